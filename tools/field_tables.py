"""Tables of the fields of schemas in the API's definition, for pages of the documentation."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from tools.markdown import table
from tools.openapi import Json, document


def field_table(schema: str, *, suffix: str = "", answer: bool = False) -> str:
    """Return a table with the name, values and meaning of each field of a schema.

    :param suffix: text after each name, such as the colon of YAML.
    :param answer: whether the queue writes the fields: if so, leave out defaults, and the marks of required fields.
    """
    facts = schemas()[schema]
    rows = [
        (
            f"`{name}{suffix}`",
            f"{words(field)}{'' if answer else _presence(field, name in facts['required'])}",
            field["description"],
        )
        for name, field in facts["properties"].items()
    ]
    return table(["field", "value", "meaning"], rows)


@cache
def schemas() -> Json:
    """Return all schemas of the API by name."""
    found: Json = document()["components"]["schemas"]
    return found


def _presence(facts: Json, required: bool) -> str:
    """Return whether a field is required, or its default."""
    default = facts.get("default")
    known = default not in (None, (), {})
    return "; required" if required else f"; default {default}".lower() if known else ""


def words(facts: Json, elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the possible values of a field in words.

    :param elsewhere: the addresses of objects that the page does not describe itself.
    """
    if "anyOf" in facts:
        return " or ".join(dict.fromkeys(words(one, elsewhere) for one in facts["anyOf"]))
    if "enum" in facts:
        return ", ".join(f"`{word}`" if word is not None else "null" for word in facts["enum"])
    if "$ref" in facts:
        name = str(facts["$ref"]).rpartition("/")[-1]
        return f"[{name}]({elsewhere.get(name, f'#{name.lower()}')})"
    return _typed(facts, elsewhere)


def _typed(facts: Json, elsewhere: Mapping[str, str]) -> str:
    if facts["type"] == "array":
        return f"list of {words(facts['items'], elsewhere)}"
    if facts["type"] == "object":
        values = facts.get("additionalProperties")
        return f"mapping to {words(values, elsewhere)}" if isinstance(values, dict) and values else "object"
    if facts.get("format") == "date-time":
        return "time"
    bounds = (("above", "exclusiveMinimum"), ("from", "minimum"), ("to", "maximum"))
    return " ".join([facts["type"], *(f"{word} {facts[key]}" for word, key in bounds if key in facts)])
