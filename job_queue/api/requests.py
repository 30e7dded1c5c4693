"""Conversion of request bodies and queries to the types of the API contract."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from api_contract.shape import Body, convert
from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.validation.issue import first, member, shown

BodyType = TypeVar("BodyType", bound=Body)


def read_body(kind: type[BodyType], content: Mapping[str, Any]) -> BodyType:
    """Return a request's body as the given type.

    :param content: the JSON object of the body.
    :raises InvalidRequest: the body does not have this type. The error names each field that is wrong.
    """
    if not content and not any(field.required for field in msgspec.structs.fields(kind)):
        raise InvalidRequest("The body requests no change.", remedy=f"Name a change: {_known(kind)}.")
    return _read(kind, content, strict=True)


def read_query(kind: type[BodyType], query: Mapping[str, str] | None) -> BodyType:
    """Return a request's query as the given type. Unknown parameters are ignored, because proxies may add some.

    :raises InvalidRequest: the query does not have this type. The error names each parameter that is wrong.
    """
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return _read(kind, {name: text for name, text in (query or {}).items() if name in names}, strict=False)


def _read(kind: type[BodyType], content: Mapping[str, Any], *, strict: bool) -> BodyType:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    issues = [
        ValidationIssue(where := member("", name), f"{where} is unknown here.", f"There are {_known(kind)}.")
        for name in content
        if name not in fields
    ]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in content:
            try:
                values[field.name] = _in_utc(convert(content[name], field.type, strict=strict))
            except (msgspec.ValidationError, OverflowError) as error:
                issues.append(ValidationIssue(name, f"{name} cannot be {shown(content[name])}: {error}."))
        elif field.required:
            issues.append(ValidationIssue(name, f"{name} is missing."))
    if issues:
        raise InvalidRequest.of(first(issues))
    return kind(**values)


def _in_utc(value: Any) -> Any:
    """Convert a time with a time zone to UTC. Return any other value unchanged.

    :raises OverflowError: the time in UTC is outside of the years 1 to 9999.
    """
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _known(kind: type[Body]) -> str:
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
