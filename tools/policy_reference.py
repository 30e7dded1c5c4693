"""``python -m tools.policy_reference docs/reference/policy.md``: update the fields of a policy from its schema.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import sys
from collections.abc import Iterator

from tools.field_tables import field_table, schemas
from tools.generated_text import update_page, with_sections

PARTS = ("Policy", "Pool", "Department", "Project", "Budget", "Settings", "Interactive", "FailureRule", "Prices")


def with_fields(page: str) -> str:
    """Return the page with the present fields of a policy."""
    return with_sections(page, _sections())


def _sections() -> Iterator[str]:
    yield "## All fields"
    for part in PARTS:
        yield f"### {part}\n\n{schemas()[part]['description']}\n\n{field_table(part, suffix=':')}"


if __name__ == "__main__":
    sys.exit(update_page(with_fields))
