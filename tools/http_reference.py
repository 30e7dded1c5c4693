"""``python -m tools.http_reference docs/reference/http-api.md``: describe the HTTP API from its OpenAPI document.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import re
import sys
from collections.abc import Iterator

from api_contract.routes import OPERATIONS, Operation
from api_contract.shape import Answer
from job_queue.scheduler import Policy
from tools.field_tables import words
from tools.generated_text import update_page, with_sections
from tools.markdown import anchor_of, table
from tools.openapi import Json, document

_ELSEWHERE = {
    "CreateTrainingJobRequest": (
        "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html#API_CreateTrainingJob_RequestSyntax"
    ),
    Policy.__name__: "policy.md",
}
"""Objects that other pages describe."""


def with_routes(page: str) -> str:
    """Return the page with the present routes and objects."""
    return with_sections(page, _sections())


def _sections() -> Iterator[str]:
    whole = document()
    schemas: dict[str, Json] = whole["components"]["schemas"]
    rows = [(f"[`{_title(one)}`](#{anchor_of(_title(one))})", one.summary) for one in OPERATIONS]
    yield "## All routes"
    yield table(["route", ""], rows)
    for operation in OPERATIONS:
        yield from _route(operation, whole["paths"][operation.path][operation.method.lower()])
    yield "## Objects"
    yield "An answer has all fields, with `null` for a field without a value. Later versions may add fields."
    for name in _described(schemas):
        yield f"### {name}"
        yield _prose(schemas[name].get("description", ""))
        yield _fields(schemas[name])


def _title(operation: Operation[Answer]) -> str:
    return f"{operation.method} {operation.path}"


def _route(operation: Operation[Answer], described: Json) -> Iterator[str]:
    yield f"## `{_title(operation)}`"
    yield _prose(f"{described['summary'].rstrip('.')}.")
    if "description" in described:
        yield _prose(described["description"])
    if "parameters" in described:
        rows = [
            (f"`{one['name']}`", _cell(_words(one["schema"])), _cell(one["description"]))
            for one in described["parameters"]
        ]
        yield table(["in the query", "value", "meaning"], rows)
    if "requestBody" in described:
        yield f"Body: {_words(_content(described['requestBody']))}."
    rows = [
        (status, _cell(one["description"]), _cell(_words(_content(one))))
        for status, one in described["responses"].items()
        if int(status) < 300
    ]
    yield table(["status", "meaning", "answer"], rows)
    codes = [f"[`{code.value}`](errors.md#{code.value.lower()}) ({code.status})" for code in operation.errors]
    yield f"Errors: {', '.join(codes)}."


def _content(part: Json) -> Json:
    schema: Json = part["content"]["application/json"]["schema"]
    return schema


def _described(schemas: dict[str, Json]) -> list[str]:
    """Return the names of the objects of this page: all except the policy, its parts and SageMaker's request."""
    elsewhere = _reached(schemas, Policy.__name__) | _ELSEWHERE.keys()
    return sorted(schemas.keys() - elsewhere, key=str.lower)


def _reached(schemas: dict[str, Json], root: str) -> set[str]:
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(r"#/components/schemas/(\w+)", str(schemas[name]))
    return found


def _fields(schema: Json) -> str:
    properties: dict[str, Json] = schema.get("properties", {})
    rows = [
        (f"`{name}`", f"{_cell(_words(facts))}{_required(name, schema)}", _cell(facts.get("description", "")))
        for name, facts in properties.items()
    ]
    return table(["field", "value", "meaning"], rows)


def _required(name: str, schema: Json) -> str:
    """Return the note for a required field of a request; empty for answers, which have all fields."""
    required = schema.get("required", [])
    return ", required" if name in required and len(required) < len(schema["properties"]) else ""


def _words(facts: Json) -> str:
    return words(facts, _ELSEWHERE)


def _prose(text: str) -> str:
    return re.sub(r"([<])", r"\\\1", text)


def _cell(text: str) -> str:
    return _prose(" ".join(text.split()).replace("|", "\\|"))


if __name__ == "__main__":
    sys.exit(update_page(with_routes))
