"""Translation between AWS's JSON protocol 1.1 and botocore's Python values, by the service model."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from botocore.parsers import create_parser
from botocore.utils import parse_to_aware_datetime
from botocore.validate import ParamValidator

from sagemaker_queue.integrations.proxy.messages import ProxyRefusal, Request

_JSON = "application/x-amz-json-"
_NEWER = "Smithy-Protocol"  # the header of requests whose path names the operation
_TARGET = re.compile(r"SageMaker\.(?P<operation>[A-Z][A-Za-z0-9]{0,127})")
_OPERATION_PATH = re.compile(r"/service/SageMaker/operation/(?P<operation>[A-Z][A-Za-z0-9]{0,127})")
_JSON_KIND = re.compile(r"application/x-amz-json-1\.[01](; ?charset=utf-8)?", re.IGNORECASE)
_CBOR_KIND = re.compile("application/cbor")
_METHOD_HEADERS = ("X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override")  # some servers follow these


class NotInModel(Exception):
    """A request that does not fit this machine's botocore model; the message says why."""


def operation_of(request: Request, queue_operations: Collection[str]) -> str:
    """Return the operation that a request names.

    Raises ProxyRefusal unless the request names exactly one operation, in a known form. With looser rules, AWS and the
    proxy could read different operations from one request. A name that differs from one of ``queue_operations``
    only in capital letters is refused.
    """
    if any(request.headers.get_all(name) for name in _METHOD_HEADERS):
        raise _unknown("a header names another method")
    targets, protocols = (request.headers.get_all(name) or [] for name in ("X-Amz-Target", _NEWER))
    if request.method != "POST" or len(targets) + len(protocols) != 1:
        raise _unknown("it is not a POST with one X-Amz-Target")
    if targets:
        match, kinds = _TARGET.fullmatch(targets[0]), _JSON_KIND
        if request.path != "/":
            raise _unknown("it has both a target and a path")
    else:
        match, kinds = _OPERATION_PATH.fullmatch(request.path), _CBOR_KIND
    if match is None:
        raise _unknown("its target is not SageMaker.OPERATION, letter by letter")
    name = match["operation"]
    if name not in queue_operations:
        if name.lower() in {one.lower() for one in queue_operations}:
            raise _unknown("its target has capital letters in other places")
        if not kinds.fullmatch(request.header("Content-Type")):
            raise _unreadable("The Content-Type is not that of the protocol in which the operation is named.")
    return name


def _unknown(reason: str) -> ProxyRefusal:
    return ProxyRefusal(
        400,
        "UnknownOperationException",
        f"smq proxy cannot tell for certain which operation this is ({reason}), and passes on nothing that could go "
        "past the queue.",
    )


def content(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, without null values. Raises ProxyRefusal if the body cannot be read."""
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


def _unreadable(message: str) -> ProxyRefusal:
    return ProxyRefusal(400, "SerializationException", message)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


def parameters(given: Mapping[str, Any], operation: Any) -> dict[str, Any]:
    """Return a request's content as botocore's parameters. Raises NotInModel if the content does not fit the model."""
    shape = operation.input_shape
    if shape is None:
        return {}
    report = ParamValidator().validate(given, shape)
    if report.has_errors():
        raise NotInModel(report.generate_report())
    # Parse the request with the parser of answers: times become datetimes, base64 becomes bytes.
    message = {"status_code": 200, "headers": {}, "body": json.dumps(given).encode()}
    read: dict[str, Any] = create_parser("json").parse(message, shape)
    read.pop("ResponseMetadata", None)
    return read


def serialized(answer: Mapping[str, Any], operation: Any) -> bytes:
    """Return a parsed answer of botocore as the JSON body that AWS sends; empty if the operation has no output."""
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
        return round(parse_to_aware_datetime(value).timestamp(), 3)  # seconds since 1970, as in SageMaker's answers
    if shape.type_name == "blob":
        return base64.b64encode(value).decode()
    return value
