"""``python -m tools.openapi docs/openapi.yaml``: generate the OpenAPI document from api_contract and the policy."""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from api_contract import VERSION
from api_contract.error_codes import GatewayRefusal, Refusal
from api_contract.models import CreateTrainingJobRequest
from api_contract.routes import OPERATIONS, Operation
from api_contract.shape import Answer, JobName
from job_queue.scheduler import Policy

Json = dict[str, Any]


def _unwrapped(prose: str) -> str:
    """Join the lines of each paragraph of a source text, but not different paragraphs or list items."""
    return re.sub(r"(?<!\n)\n(?![\n-])", " ", prose).strip()


_HEADER = "# Made of api_contract/ and the policy schema by `make docs`.\n"
_PARTS = (msgspec.inspect.StructType, msgspec.inspect.TypedDictType, msgspec.inspect.DataclassType)
_REF = "#/components/schemas/{name}"
_FRAME: Json = {
    "openapi": "3.1.0",
    "info": {
        "title": "training-job-queue",
        "version": VERSION,
        "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        "description": _unwrapped("""
The private REST API of the training job queue: the contract between the queue and its clients.

Every request is signed (AWS Signature Version 4, service `execute-api`) by a caller with the right to
`execute-api:Invoke`. It reaches the API through a VPC endpoint, whose own address needs the header `x-apigw-api-id`. A
job belongs to the caller who submitted it.

Objects may get more members in later versions; clients ignore those that they do not know. Times are UTC.
"""),
    },
    "servers": [
        {
            "url": "https://{apiId}.execute-api.{region}.amazonaws.com/prod",
            "description": "in a VPC with private DNS",
            "variables": {"apiId": {"default": "abcde12345"}, "region": {"default": "us-east-1"}},
        }
    ],
    "security": [{"sigv4": []}],
}
_SIGNATURE = {"type": "apiKey", "in": "header", "name": "Authorization", "x-amazon-apigateway-authtype": "awsSigv4"}
_GATEWAY_REFUSALS = {
    403: "API Gateway refuses: the request is not signed, the caller may not call the API, or nothing is there.",
    413: "API Gateway takes no body of more than 10 MB.",
    429: "API Gateway refuses: too many calls; try again later.",
    500: "API Gateway's own 502 and 504 mean the same.",
}


def document() -> Json:
    """Return the OpenAPI document."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        if "{name}" in operation.path:
            methods["parameters"] = [_job_name()]
        methods[operation.method.lower()] = _operation(operation)
    return {**_FRAME, "paths": paths, "components": {"securitySchemes": {"sigv4": _SIGNATURE}, "schemas": _schemas()}}


def text() -> str:
    """Return the document as YAML."""
    return _HEADER + msgspec.yaml.encode(msgspec.json.decode(msgspec.json.encode(document()))).decode()


# --- operations ---------------------------------------------------------------------------------------


def _operation(operation: Operation[Answer]) -> Json:
    described: Json = {"operationId": operation.id, "summary": operation.summary}
    if operation.description:
        described["description"] = _unwrapped(operation.description)
    if operation.query:
        described["parameters"] = list(_query(operation.query))
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    described["responses"] = {
        str(status): {"description": meaning, "content": _content(operation.answer)}
        for status, meaning in operation.statuses.items()
    } | dict(_refusals(operation))
    return described


def _refusals(operation: Operation[Answer]) -> Iterator[tuple[str, Json]]:
    for status in sorted({*(code.status for code in operation.errors), 403, 429}):
        codes = [code for code in operation.errors if code.status == status]
        meanings = [f"`{code.value}`: {code.meaning}" for code in codes]
        kinds: list[type[Answer]] = [Refusal] if codes else []
        if status in _GATEWAY_REFUSALS:
            meanings.append(_GATEWAY_REFUSALS[status])
            kinds.append(GatewayRefusal)
        yield str(status), {"description": " ".join(meanings), "content": _content(*kinds)}


def _content(*kinds: Any) -> Json:
    references = [{"$ref": _REF.format(name=kind.__name__)} for kind in kinds]
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}}


def _job_name() -> Json:
    description = "The job's TrainingJobName, as submitted."
    return {"name": "name", "in": "path", "required": True, "description": description, "schema": _inline(JobName)}


def _query(kind: type[msgspec.Struct]) -> Iterator[Json]:
    for name, facts in _struct(kind)["properties"].items():
        yield {"name": name, "in": "query", "description": facts.pop("description"), "schema": facts}


# --- schemas ------------------------------------------------------------------------------------------


def _schemas() -> dict[str, Json]:
    roots: list[Any] = [Refusal, GatewayRefusal, CreateTrainingJobRequest, Policy]
    for operation in OPERATIONS:
        roots += [operation.answer, *([operation.body] if operation.body else [])]
    kinds = sorted(_reachable(roots), key=lambda kind: str(kind.__name__))
    return {kind.__name__: _inline(kind) if issubclass(kind, dict) else _struct(kind) for kind in kinds}


def _reachable(roots: list[Any]) -> set[Any]:
    """Return the named types that these types contain."""
    found: set[Any] = set()

    def visit(kind: msgspec.inspect.Type) -> None:
        if isinstance(kind, msgspec.inspect.Metadata):
            visit(kind.type)
        elif isinstance(
            kind, (msgspec.inspect.StructType, msgspec.inspect.TypedDictType, msgspec.inspect.DataclassType)
        ):
            if kind.cls not in found:
                found.add(kind.cls)
                for field in kind.fields:
                    visit(field.type)
        elif isinstance(kind, msgspec.inspect.UnionType):
            for one in kind.types:
                visit(one)
        elif isinstance(kind, msgspec.inspect.CollectionType):
            visit(kind.item_type)
        elif isinstance(kind, msgspec.inspect.DictType):
            visit(kind.value_type)

    for kind in msgspec.inspect.multi_type_info(roots):
        visit(kind)
    return found


def _struct(kind: type) -> Json:
    """Return the schema of a Struct, or of a part of the policy, with the docstrings of the class and its fields."""
    made = _inline(kind)
    meanings = _meanings(kind)
    about = msgspec.inspect.type_info(kind)
    assert isinstance(about, (msgspec.inspect.StructType, msgspec.inspect.DataclassType))
    for field in about.fields:
        if field.default_factory is dict:
            made["properties"][field.encode_name]["default"] = {}
        made["properties"][field.encode_name]["description"] = meanings[field.name]
    if dataclasses.is_dataclass(kind):
        made["additionalProperties"] = False
    if issubclass(kind, Answer):  # the queue sends all fields
        made["required"] = list(made["properties"])
        for facts in made["properties"].values():
            facts.pop("default", None)
    elif not made["required"]:
        made["minProperties"] = 1  # otherwise an empty request would be valid
    return made


def _inline(kind: Any) -> Json:
    schema, components = msgspec.json.schema_components([kind], ref_template=_REF)
    made: Json = components[kind.__name__] if isinstance(kind, type) else schema[0]
    if isinstance(kind, type):
        made["description"] = _unwrapped(inspect.getdoc(kind) or "")
    made.pop("title", None)
    enums = {_REF.format(name=name): {"enum": it["enum"]} for name, it in components.items() if "enum" in it}
    referring: Json = _with_references(made, enums)
    return referring


def _with_references(schema: Any, enums: dict[str, Json]) -> Any:
    """Replace a schema that names a ``document`` (see `shape.schema`) by a reference to that schema of the API.

    Replace a reference to an enum by the enum's own schema; ``enums`` maps references to schemas.
    """
    if isinstance(schema, dict):
        if "document" in schema:
            return {"$ref": _REF.format(name=schema["document"])}
        own = enums.get(schema.get("$ref", ""), {})
        return own | {name: _with_references(it, enums) for name, it in schema.items() if not own or name != "$ref"}
    return [_with_references(value, enums) for value in schema] if isinstance(schema, list) else schema


@cache
def _meanings(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and of its base classes."""
    found = _meanings(kind.__base__) if kind.__base__ not in (None, object, msgspec.Struct) else {}
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    own: dict[str, str] = {}
    for field, below in pairwise(definition.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            own[field.target.id] = _unwrapped(inspect.cleandoc(below.value.value))
    return {**found, **own}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
