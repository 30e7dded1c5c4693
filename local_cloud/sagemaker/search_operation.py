"""Search for training jobs. Unlike ListTrainingJobs, Search filters before it cuts pages, and returns whole jobs."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from local_cloud.sagemaker.registry import AnyJob
from local_cloud.sagemaker.validation import invalid, service_model

DEFAULT_PAGE = 10
_TIMES = frozenset({"CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime"})
_ORDERED = {
    "GreaterThan": lambda value, than: value > than,
    "GreaterThanOrEqualTo": lambda value, than: value >= than,
    "LessThan": lambda value, than: value < than,
    "LessThanOrEqualTo": lambda value, than: value <= than,
}


def search(jobs: Iterable[AnyJob], request: dict[str, Any]) -> dict[str, Any]:
    """Return one page of the training jobs that match the request's SearchExpression."""
    if request["Resource"] != "TrainingJob":
        raise invalid(f"Search of {request['Resource']} is not emulated in the local cloud; TrainingJob is.")
    expression = request.get("SearchExpression", {})
    found = [record for record in map(_record, jobs) if _matches(expression, record)]
    by = request.get("SortBy", "LastModifiedTime")
    if any(isinstance(record.get(by), Mapping | list) for record in found):
        raise invalid(f"SortBy is {by}, which is not a single value: name another property.")
    found.sort(
        key=lambda record: (str(type(record.get(by))), record.get(by, 0), record["TrainingJobName"]),
        reverse=request.get("SortOrder", "Descending") == "Descending",
    )
    begin, size = _offset(request.get("NextToken")), request.get("MaxResults", DEFAULT_PAGE)
    answer: dict[str, Any] = {"Results": [{"TrainingJob": record} for record in found[begin : begin + size]]}
    if len(found) > begin + size:
        answer["NextToken"] = base64.urlsafe_b64encode(json.dumps(begin + size).encode()).decode()
    return answer


def _record(job: AnyJob) -> dict[str, Any]:
    """Return a training job as Search returns it: the fields of DescribeTrainingJob that Search has, and the tags."""
    shape: Any = service_model().shape_for("TrainingJob")
    described = {name: value for name, value in job.describe().items() if name in shape.members}
    return {**described, "Tags": [{"Key": key, "Value": value} for key, value in job.tags.items()]}


def _matches(expression: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    parts = [_passes(part, list(_at(record, part["Name"].split(".")))) for part in expression.get("Filters", [])]
    parts += [_nested(part, record) for part in expression.get("NestedFilters", [])]
    parts += [_matches(part, record) for part in expression.get("SubExpressions", [])]
    return any(parts) if parts and expression.get("Operator") == "Or" else all(parts)


def _nested(nested: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Return whether at least one item of the list at NestedPropertyName passes all filters of the entry."""
    path = nested["NestedPropertyName"]
    return any(
        all(
            _passes(part, list(_at(member, part["Name"].removeprefix(f"{path}.").split("."))))
            for part in nested["Filters"]
        )
        for member in _at(record, path.split("."))
    )


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    """Yield the values at a path of property names; the path `Tags.<key>` gives the value of a tag.

    A list on the way gives the values of all its members. Times become datetimes.
    """
    if isinstance(value, list):
        for member in value:
            yield from _at(member, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        if path[0] == "Tags" and path[1:]:
            yield from (tag["Value"] for tag in value.get("Tags", []) if tag["Key"] == ".".join(path[1:]))
        elif path[0] in value:
            inner = value[path[0]]
            yield from _at(datetime.fromtimestamp(inner, UTC) if path[0] in _TIMES else inner, path[1:])
        elif ".".join(path) in value:
            yield value[".".join(path)]


def _passes(part: Mapping[str, Any], values: list[Any]) -> bool:
    """Return whether the values of a property pass a filter. One matching value is enough, except for NotEquals."""
    operator, wanted = part.get("Operator", "Equals" if "Value" in part else "Exists"), part.get("Value", "")
    if operator in ("Exists", "NotExists"):
        return bool(values) is (operator == "Exists")
    if operator == "NotEquals":
        return not any(_equals(value, wanted) for value in values)
    if operator == "Equals":
        return any(_equals(value, wanted) for value in values)
    if operator == "In":
        return any(_equals(value, one.strip()) for value in values for one in wanted.split(","))
    if operator == "Contains":
        return any(wanted in str(value) for value in values)
    if any(isinstance(value, Mapping) for value in values):
        raise invalid(f"{part['Name']} is a structure: {operator} compares only single values, so name a field of it.")
    return any(_ORDERED[operator](value, _comparable(value, wanted)) for value in values if not isinstance(value, str))


def _equals(value: Any, wanted: str) -> bool:
    return bool(value == _comparable(value, wanted))


def _comparable(value: Any, wanted: str) -> Any:
    """Convert the text of a filter to the type of the value with which the text is compared."""
    try:
        if isinstance(value, datetime):
            time = datetime.fromisoformat(wanted)
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, bool):
            return wanted.lower() == "true"
        return float(wanted) if isinstance(value, (int, float)) else wanted
    except ValueError:
        raise invalid(f"{wanted!r} cannot be compared with a value of that property.") from None


def _offset(token: str | None) -> int:
    try:
        return int(json.loads(base64.urlsafe_b64decode(token))) if token else 0
    except (ValueError, TypeError):
        raise invalid("NextToken is not valid: pass on the one of the page before, or none.") from None
