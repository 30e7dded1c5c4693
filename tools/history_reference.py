"""``python -m tools.history_reference docs/reference/history.md``: update the fields of an attempt from its schema.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import sys

from tools.field_tables import field_table
from tools.generated_text import update_page, with_sections


def with_fields(page: str) -> str:
    """Return the page with the present fields of an attempt's record."""
    about = "Names in the API. The names in Python have underscores: `gpuMeanPercent` is `gpu_mean_percent`."
    return with_sections(page, [f"## Fields of an attempt\n\n{about}\n\n{field_table('PastAttempt', answer=True)}"])


if __name__ == "__main__":
    sys.exit(update_page(with_fields))
