"""The last log lines of failed attempts, read from CloudWatch Logs as moto has it, within the limits."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from job_queue.adapters.lookups.failure_log import FEW_SECONDS, LAST_SECONDS, MOST_CALLS, MOST_CHARACTERS, FailureLog
from job_queue.adapters.lookups.training_logs import LOG_GROUP

NOW = time.time()


@pytest.fixture
def logs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("logs", region_name="us-east-1")


def write(logs: Any, stream: str, *lines: tuple[float, str]) -> None:
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
    events = [{"timestamp": int(1000 * (NOW + at)), "message": line} for at, line in lines]
    logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)


def reading(logs: Any, clock: Callable[[], float] = lambda: 0.0) -> FailureLog:
    return FailureLog(lambda site: logs, clock)


def read(logs: Any, attempt: str, carrier: str | None = None) -> list[tuple[str, str]]:
    return [(it.stream, it.text) for it in reading(logs)(attempt, carrier, NOW)]


def test_the_last_lines_of_all_instances_are_read(logs: Any) -> None:
    assert read(logs, "a-qstamp-1") == [], "there is no log group"
    logs.create_log_group(logGroupName=LOG_GROUP)
    write(logs, "a-qstamp-1/algo-1-17", (-LAST_SECONDS - 5, "old"), (-2, "first\n"), (-1, "x" * 9000))
    write(logs, "a-qstamp-1/algo-2-17", (-1.5, "second"))
    write(logs, "a-qstamp-10/algo-1-17", (-1, "of another attempt"))
    write(logs, "a-qstamp-1/algo-1-17/ssm", (-1, "of the agent for shells"))
    assert read(logs, "a-qstamp-1") == [
        ("a-qstamp-1/algo-1-17", "first"),
        ("a-qstamp-1/algo-2-17", "second"),
        ("a-qstamp-1/algo-1-17", "x" * MOST_CHARACTERS),
    ]


def test_the_lines_of_a_member_are_in_the_log_of_its_carrier(logs: Any) -> None:
    logs.create_log_group(logGroupName=LOG_GROUP)
    lines = [(-3, "m-qstamp-1| own"), (-2, "n-qstamp-1| m-qstamp-1| of another"), (-1, "carrier| m-qstamp-1| no")]
    write(logs, "carrier--x-qstamp-1/algo-1-17", *lines)
    assert read(logs, "m-qstamp-1", "carrier--x-qstamp-1") == [("carrier--x-qstamp-1/algo-1-17", "own")]


class Endless:
    """A log with more pages than may be read, as a job that prints very much has it."""

    def __init__(self, error: str | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self._error = error

    def filter_log_events(self, **request: Any) -> dict[str, Any]:
        self.requests.append(dict(request))
        if self._error:
            raise ClientError({"Error": {"Code": self._error, "Message": "no"}}, "FilterLogEvents")
        text = f"since {NOW - request['startTime'] / 1000:.0f}"
        event = {"logStreamName": "a-qstamp-1/algo-1-17", "timestamp": request["startTime"], "message": text}
        return {"events": [event], "nextToken": str(len(self.requests))}


def test_of_very_many_lines_the_last_seconds_are_read() -> None:
    logs = Endless()
    found = reading(logs)("a-qstamp-1", None, NOW)
    assert len(logs.requests) == MOST_CALLS
    assert [it.text for it in found] == [f"since {FEW_SECONDS}"]


def test_a_slow_answer_ends_the_look_up() -> None:
    logs, seconds = Endless(), count(0, 2)
    found = reading(logs, lambda: float(next(seconds)))("a-qstamp-1", None, NOW)
    assert len(logs.requests) == 2
    assert [it.text for it in found] == [f"since {LAST_SECONDS}"] * 2


def test_without_the_right_there_are_no_lines() -> None:
    logs = Endless("AccessDeniedException")
    assert reading(logs)("a-qstamp-1", None, NOW) == []
    assert len(logs.requests) == 1
