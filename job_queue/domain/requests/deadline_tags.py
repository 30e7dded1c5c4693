"""Read the tags with a job's deadlines: `not_before`, `start_by`, `start_by_action` and `max_total_runtime`."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.domain.job import LEAST_RUNTIME_SECONDS, StartByAction
from job_queue.domain.requests.training_request import TagValue
from job_queue.scheduler import time_text

MOST_RUNTIME_SECONDS = 10 * 365 * 86_400
_MOST_SECONDS_AHEAD = 100 * 366 * 86_400  # largest time from now until start_by
_DAY = 86_400
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": _DAY}
_ACTIONS = tuple(action.value for action in StartByAction)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The deadlines of a job. Times are epoch seconds."""

    not_before: int | None = None  # the job does not start earlier
    start_by: int | None = None  # the job should have started by then
    start_by_action: StartByAction = StartByAction.NOTIFY
    max_total_runtime: int | None = None  # seconds of all attempts together


def deadlines_of(tags: Mapping[str, TagValue]) -> Deadlines:
    """Read the tags of a request. `deadline_issues` checks whether the times can be met.

    :raises InvalidRequest: a tag is wrong. The error names the field.
    """
    start_by, action = _start_by(tags["start_by"]) if "start_by" in tags else (None, None)
    if "start_by_action" in tags:
        action = _action(tags["start_by_action"], start_by, action)
    return Deadlines(
        not_before=_time("not_before", tags["not_before"]) if "not_before" in tags else None,
        start_by=start_by,
        start_by_action=action or StartByAction.NOTIFY,
        max_total_runtime=_duration(tags["max_total_runtime"]) if "max_total_runtime" in tags else None,
    )


def deadline_issues(
    deadlines: Deadlines, tags: Mapping[str, TagValue], now: float, most_days: int
) -> Iterator[ValidationIssue]:
    """Yield an issue for each deadline that a job submitted at `now` cannot meet.

    :param tags: the tags from which the deadlines were read.
    :param now: epoch seconds.
    :param most_days: the largest number of days until `not_before`. Finished jobs are kept for the same number of days.
    """
    not_before, start_by = deadlines.not_before, deadlines.start_by
    if not_before is not None and not_before > now + most_days * _DAY:
        yield ValidationIssue(
            tags["not_before"].field,
            f"The tag not_before is {time_text(not_before)}, and a job may wait for at most {most_days} days to begin: "
            "that is how long the queue keeps the records of jobs (the stack's parameter FinishedJobDays).",
            "Submit the job later, or name an earlier time.",
        )
    if start_by is None:
        return
    if start_by <= now:
        yield ValidationIssue(
            tags["start_by"].field,
            f"The tag start_by is {time_text(start_by)}, which is past: the time is {time_text(now)}.",
            "Name a later time, or leave out the tag. Times without a zone are UTC.",
        )
    if start_by > now + _MOST_SECONDS_AHEAD:
        yield ValidationIssue(
            tags["start_by"].field,
            f"The tag start_by is {time_text(start_by)}, which is more than a hundred years ahead.",
            "Name an earlier time, or leave out the tag.",
        )
    if not_before is not None and start_by <= not_before:
        yield ValidationIssue(
            tags["start_by"].field,
            f"The job is to start by {time_text(start_by)} and not before {time_text(not_before)}: it never could.",
            "Let start_by be later than not_before.",
        )


def _start_by(tag: TagValue) -> tuple[int, StartByAction | None]:
    """Return the time and the action in a tag such as `2026-11-28T18:00Z:cancel`. The action is None if left out."""
    text, colon, last = tag.text.strip().rpartition(":")
    if colon and last.strip() in _ACTIONS:
        return _time("start_by", TagValue(text, tag.field)), StartByAction(last.strip())
    return _time("start_by", tag), None


def _action(tag: TagValue, start_by: int | None, named: StartByAction | None) -> StartByAction:
    text = tag.text.strip()
    if text not in _ACTIONS:
        raise InvalidRequest(
            f"The tag start_by_action must be notify, cancel or next_pool, not {tag.text!r}: the action if the job "
            "has not started by the time in start_by.",
            field=tag.field,
        )
    if start_by is None:
        raise InvalidRequest(
            "The tag start_by_action needs a tag start_by.",
            field=tag.field,
            remedy="Add the tag start_by with a time, such as 2026-11-28T18:00:00Z.",
        )
    if named not in (None, StartByAction(text)):
        raise InvalidRequest(
            f"The tag start_by_action is {text}, and the tag start_by ends in {named}.",
            field=tag.field,
            remedy="Leave out one of them.",
        )
    return StartByAction(text)


def _time(key: str, tag: TagValue) -> int:
    """Return the epoch seconds of an ISO 8601 time, rounded up. A time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(tag.text.strip())
        seconds = math.ceil((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
        time_text(seconds)  # times near the years 1 and 9999 cannot be shown in UTC
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"The tag {key} must be a time in ISO 8601, such as 2026-11-28T18:00:00Z, not {tag.text!r}.",
            field=tag.field,
            remedy="Without a zone, a time is UTC. smq submit also takes 18:00 or 2h, and writes the tag.",
        ) from None
    return seconds


def _duration(tag: TagValue) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", tag.text.strip(), re.ASCII)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not LEAST_RUNTIME_SECONDS <= seconds <= MOST_RUNTIME_SECONDS:
        raise InvalidRequest(
            f"The tag max_total_runtime must be a time from {LEAST_RUNTIME_SECONDS} seconds to ten years, such as 90m, "
            f"12h, 3d or a number of seconds, not {tag.text!r}: how long all attempts of the job may run together.",
            field=tag.field,
        )
    return seconds
