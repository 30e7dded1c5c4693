"""``python -m tools.policy_reference docs/scheduling.md``: update the fields of a policy from its schema.

In the page, the text above a comment is written by hand, and the text below that comment is generated.
"""

import sys
from collections.abc import Iterator

from tools.generated_text import update_page, with_sections
from tools.openapi import Json, document

PARTS = ("Policy", "Pool", "Department", "Project", "Budget", "Settings", "Interactive", "Prices")


def with_fields(page: str) -> str:
    """Return the page with the present fields of a policy."""
    return with_sections(page, _sections())


def _sections() -> Iterator[str]:
    schemas = document()["components"]["schemas"]
    yield "## All fields of a policy"
    for part in PARTS:
        rows = [
            f"| `{name}:` | {_values(facts, name in schemas[part]['required'])} | {facts['description']} |"
            for name, facts in schemas[part]["properties"].items()
        ]
        about = schemas[part]["description"]
        yield "\n".join([f"### {part}", "", about, "", "| field | value | meaning |", "|---|---|---|", *rows])


def _values(facts: Json, required: bool) -> str:
    """Return the possible values of a field in words, and its default."""
    default = facts.get("default")
    known = "required" if required else f"default {default}".lower() if default not in (None, (), {}) else ""
    return "; ".join(filter(None, [_words(facts), known]))


def _words(facts: Json) -> str:
    if "anyOf" in facts:
        return " or ".join(_words(one) for one in facts["anyOf"])
    if "enum" in facts:
        return ", ".join(f"`{word}`" for word in facts["enum"])
    if "$ref" in facts:
        return str(facts["$ref"]).rpartition("/")[-1]
    if facts["type"] == "array":
        return f"list of {_words(facts['items'])}"
    if facts["type"] == "object":
        return f"mapping to {_words(facts['additionalProperties'])}"
    bounds = (("above", "exclusiveMinimum"), ("from", "minimum"), ("to", "maximum"))
    return " ".join([facts["type"], *(f"{word} {facts[key]}" for word, key in bounds if key in facts)])


if __name__ == "__main__":
    sys.exit(update_page(with_fields))
