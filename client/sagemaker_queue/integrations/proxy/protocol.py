"""AWS's JSON protocol 1.1 as the service model has it: a request as botocore would have it, and its answer back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from botocore.parsers import create_parser
from botocore.utils import parse_to_aware_datetime
from botocore.validate import ParamValidator

from sagemaker_queue.integrations.proxy.messages import Refusal, Request

_JSON = "application/x-amz-json-"


class NotOfTheModel(Exception):
    """A request that this machine's botocore does not understand in full; it says why."""


def operation_of(request: Request) -> str | None:
    """Return the operation that a request names; None if it names none in a way that is known."""
    target = request.header("X-Amz-Target")
    if target:
        return target.rpartition(".")[2]
    # As newer protocols have it: /service/SageMaker/operation/CreateTrainingJob.
    before, _, name = request.path.partition("?")[0].rpartition("/")
    return name if before.endswith("/operation") else None


def content(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, without what is null. Raises Refusal."""
    is_json = request.header("Content-Type").startswith(_JSON) and not request.header("Content-Encoding")
    if request.method != "POST" or not is_json or not request.header("X-Amz-Target"):
        raise _unreadable(f"smq proxy reads this operation as AWS's JSON protocol has it only: POST, {_JSON}1.1.")
    try:
        value = _without_nulls(json.loads(request.body or b"{}"))
    except (ValueError, RecursionError):
        raise _unreadable("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise _unreadable("The body is not a JSON object.")
    return value


def _unreadable(message: str) -> Refusal:
    return Refusal(400, "SerializationException", message)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


def parameters(given: Mapping[str, Any], operation: Any) -> dict[str, Any]:
    """Return a request's content as a program in Python would give it to botocore. Raises NotOfTheModel."""
    shape = operation.input_shape
    if shape is None:
        return {}
    report = ParamValidator().validate(given, shape)
    if report.has_errors():
        raise NotOfTheModel(report.generate_report())
    # A request is read as an answer would be: times become datetimes, base64 becomes bytes.
    message = {"status_code": 200, "headers": {}, "body": json.dumps(given).encode()}
    read: dict[str, Any] = create_parser("json").parse(message, shape)
    read.pop("ResponseMetadata", None)
    return read


def serialized(answer: Mapping[str, Any], operation: Any) -> bytes:
    """Return what a program in Python would be given as AWS would send it: nothing, if the operation has no answer."""
    shape = operation.output_shape
    return b"" if shape is None else json.dumps(_plain(shape, answer)).encode()


def _plain(shape: Any, value: Any) -> Any:
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        return {
            member.serialization.get("name", name): _plain(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if shape.type_name == "list":
        return [_plain(shape.member, member) for member in value]
    if shape.type_name == "map":
        return {name: _plain(shape.value, member) for name, member in value.items()}
    if shape.type_name == "timestamp":
        return round(parse_to_aware_datetime(value).timestamp(), 3)  # seconds, as SageMaker has them
    if shape.type_name == "blob":
        return base64.b64encode(value).decode()
    return value
