"""FilterLogEvents of CloudWatch Logs, in place of ministack's: with stream prefixes, pages and filter patterns.

ministack ignores `logStreamNamePrefix`, returns only one page, and splits quoted phrases at spaces. Patterns for JSON
and for columns are not evaluated: they match all lines, as in ministack.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from ministack.core.responses import error_response_json, json_response
from ministack.services import cloudwatch_logs

_MOST_EVENTS = 10_000

_TERM = re.compile(r"""(?P<sign>[-?]?)(?:"(?P<phrase>[^"]*)"|%(?P<regex>[^%]+)%|(?P<word>[^\s"]+))""")

Answer = Any  # ministack's response


def install() -> None:
    """Replace ministack's FilterLogEvents."""
    cloudwatch_logs._filter_log_events = filter_log_events


def filter_log_events(request: Mapping[str, Any]) -> Answer:
    """Return one page of the requested streams' events, sorted by time."""
    group = cloudwatch_logs._resolve_log_group_name(request)
    if group not in cloudwatch_logs._log_groups:
        return error_response_json("ResourceNotFoundException", f"The specified log group does not exist: {group}", 400)
    names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
    if names and prefix is not None:
        return _refused("logStreamNames and logStreamNamePrefix are mutually exclusive parameters.")
    limit = request.get("limit", _MOST_EVENTS)
    if not 1 <= limit <= _MOST_EVENTS:
        return _refused(f"The value of limit must be from 1 to {_MOST_EVENTS}.")
    begin = _offset(request.get("nextToken"))
    if begin is None:
        return _refused("The specified nextToken is invalid.")
    streams = cloudwatch_logs._log_groups[group]["streams"]
    if missing := [name for name in names or () if name not in streams]:
        return error_response_json(
            "ResourceNotFoundException", f"The specified log stream does not exist: {missing[0]}", 400
        )
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
    pattern = request.get("filterPattern", "")
    found = [event for event in events if matches(pattern, event.get("message", ""))]
    answer: dict[str, Any] = {"events": found[begin : begin + limit], "searchedLogStreams": []}
    if len(found) > begin + limit:
        answer["nextToken"] = base64.b64encode(str(begin + limit).encode()).decode()
    return json_response(answer)


def matches(pattern: str, message: str) -> bool:
    """Return whether a line has all plain terms, none of the `-terms` and, if there are `?terms`, at least one."""
    if pattern.strip().startswith(("{", "[")):
        return True
    terms = [
        (found["sign"], found["phrase"] or found["regex"] or found["word"], bool(found["regex"]))
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


def _refused(message: str) -> Answer:
    return error_response_json("InvalidParameterException", message, 400)


def _offset(token: str | None) -> int | None:
    try:
        return int(base64.b64decode(token, validate=True)) if token else 0
    except (binascii.Error, ValueError):
        return None
