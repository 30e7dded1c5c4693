"""SageMaker's events as EventBridge hands them over: what is not as such events are is not believed."""

from collections.abc import Callable, Mapping
from typing import Any

from job_queue.domain.names import is_name

LONGEST_TEXT = 1024  # characters, SageMaker's limit of a FailureReason


def training_job_detail(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The detail of a `SageMaker Training Job State Change`; None if it names no training job or no status.

    Where whose it is or how it ended cannot be read, the detail says nothing of it, so that SageMaker is asked.
    """
    detail = event.get("detail")
    if not isinstance(detail, dict):
        return None
    needed = {field: detail.get(field) for field in ("TrainingJobName", "TrainingJobStatus")}
    if not _are_fit(needed):
        return None
    return detail if _are_fit(detail) else needed


def _are_fit(fields: Mapping[str, object]) -> bool:
    return all(_FIELDS[field](value) for field, value in fields.items() if field in _FIELDS)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_tags(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(part) for tag in value.items() for part in tag)


_FIELDS: Mapping[str, Callable[[object], bool]] = {
    "TrainingJobName": lambda value: isinstance(value, str) and is_name(value),
    "TrainingJobStatus": _is_text,
    "SecondaryStatus": _is_text,
    "FailureReason": _is_text,
    "Tags": _is_tags,
}
