"""FilterLogEvents of CloudWatch Logs, in place of ministack's: with stream prefixes, pages and filter patterns.

ministack ignores `logStreamNamePrefix` and `startFromHead`, returns only one page, and splits quoted phrases at spaces.
Patterns for JSON and for columns are not evaluated: they match all lines, as in ministack.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core.responses import error_response_json, json_response
from ministack.services import cloudwatch_logs

_MOST_EVENTS = 10_000  # of one page
_MOST_BYTES = 1024 * 1024  # of one page
_EVENT_OVERHEAD = 26  # bytes that CloudWatch counts for each event, besides the message
_FIRST_FROM_TAIL = 1_704_067_200_000  # 2024-01-01 UTC, in ms: the earliest startTime if startFromHead is false

_TERM = re.compile(r"""(?P<sign>[-?]?)(?:"(?P<phrase>[^"]*)"|%(?P<regex>[^%]+)%|(?P<word>[^\s"]+))""")

Answer = Any  # ministack's response


def install() -> None:
    """Replace ministack's FilterLogEvents."""
    cloudwatch_logs._filter_log_events = filter_log_events


def filter_log_events(request: Mapping[str, Any]) -> Answer:
    """Return one page of the requested streams' events, sorted by time.

    https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
    """
    group = cloudwatch_logs._resolve_log_group_name(request)
    if group not in cloudwatch_logs._log_groups:
        return error_response_json("ResourceNotFoundException", f"The specified log group does not exist: {group}", 400)
    streams = cloudwatch_logs._log_groups[group]["streams"]
    names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
    if missing := [name for name in names or () if name not in streams]:
        return error_response_json(
            "ResourceNotFoundException", f"The specified log stream does not exist: {missing[0]}", 400
        )
    position = _position(request.get("nextToken"), from_head=request.get("startFromHead", True))
    if (complaint := _complaint(request, position)) or position is None:
        return error_response_json("InvalidParameterException", complaint, 400)
    begin, from_head = position
    since, until = request.get("startTime", float("-inf")), request.get("endTime", float("inf"))
    with cloudwatch_logs._log_events_lock:
        events = [
            {**event, "logStreamName": name}
            for name, stream in streams.items()
            if (name in names if names else name.startswith(prefix or ""))
            for event in stream["events"]
            if since <= event["timestamp"] <= until
        ]
    events.sort(key=lambda event: event["timestamp"])  # stable: events of one stream and time keep their order
    if not from_head:
        events.reverse()
    found, end = _page(events, begin, request.get("limit", _MOST_EVENTS), request.get("filterPattern", ""))
    answer: dict[str, Any] = {"events": found, "searchedLogStreams": []}
    if end < len(events):
        answer["nextToken"] = base64.b64encode(json.dumps([end, from_head]).encode()).decode()
    return json_response(answer)


def _complaint(request: Mapping[str, Any], position: tuple[int, bool] | None) -> str:
    """Return the reason for which the parameters are refused; empty if they are valid."""
    if request.get("logStreamNames") and request.get("logStreamNamePrefix") is not None:
        return "logStreamNames and logStreamNamePrefix are mutually exclusive parameters."
    if not 1 <= request.get("limit", _MOST_EVENTS) <= _MOST_EVENTS:
        return f"The value of limit must be from 1 to {_MOST_EVENTS}."
    since = request.get("startTime", 0)
    if since > request.get("endTime", float("inf")):
        return "The endTime must not be before the startTime."
    if position is None:
        return "The specified nextToken is invalid."
    if not position[1] and since < _FIRST_FROM_TAIL:
        return "startFromHead can be false only with a startTime on or after 2024-01-01T00:00:00Z."
    return _pattern_complaint(request.get("filterPattern", ""))


def _pattern_complaint(pattern: str) -> str:
    try:
        matches(pattern, "")
    except re.error as error:
        return f"Invalid filter pattern: {error}."
    return ""


def _page(events: Sequence[dict[str, Any]], begin: int, limit: int, pattern: str) -> tuple[list[dict[str, Any]], int]:
    """Return the matching events of one page, and the position at which the next page begins.

    A page ends after `limit` matching events, or when `_MOST_EVENTS` events or `_MOST_BYTES` have been read, matching
    or not. So a page may be short or empty although later pages have matching events.
    """
    found: list[dict[str, Any]] = []
    size = 0
    for position in range(begin, len(events)):
        event = events[position]
        size += len(event.get("message", "").encode()) + _EVENT_OVERHEAD
        is_full = size > _MOST_BYTES or position - begin >= _MOST_EVENTS
        if len(found) == limit or (is_full and position > begin):
            return found, position
        if matches(pattern, event.get("message", "")):
            found.append(event)
    return found, len(events)


def matches(pattern: str, message: str) -> bool:
    """Return whether a line has all plain terms, none of the `-terms`, and at least one `?term` if there are any."""
    if pattern.strip().startswith(("{", "[")):
        return True
    terms = [
        (found["sign"], found["phrase"] or found["regex"] or found["word"] or "", bool(found["regex"]))
        for found in _TERM.finditer(pattern)
    ]
    found_terms = [
        (sign, bool(re.search(term, message)) if is_regex else term in message) for sign, term, is_regex in terms
    ]
    one_of = [found for sign, found in found_terms if sign == "?"]
    return (
        all(found for sign, found in found_terms if not sign)
        and not any(found for sign, found in found_terms if sign == "-")
        and (not one_of or any(one_of))
    )


def _position(token: str | None, *, from_head: bool) -> tuple[int, bool] | None:
    """Return the position and the direction of a token, or of a first page; None if the token is invalid."""
    if not token:
        return 0, from_head
    try:
        position, direction = json.loads(base64.b64decode(token, validate=True))
        return int(position), bool(direction)
    except (binascii.Error, ValueError, TypeError):
        return None
