"""The keys that agents name in their logs, read from CloudWatch Logs as moto has it."""

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from job_queue.adapters.carriers.agent_log import MOST_PAGES, AgentLog
from job_queue.adapters.lookups.training_logs import LOG_GROUP
from job_queue.carrier_agent.mailbox import key_line
from job_queue.domain.errors import Unavailable

CARRIER = "carrier--nlp--ann--1-qstamp-1"


@pytest.fixture
def logs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("logs", region_name="us-east-1")


def write(logs: Any, attempt: str, *lines: str) -> None:
    stream = f"{attempt}/algo-1-1764000000"
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
    now = int(1000 * time.time())
    events = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
    logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)


def test_the_keys_of_a_carrier_are_read(logs: Any) -> None:
    assert AgentLog(logs).key_lines(CARRIER) == frozenset(), "there is no log group"
    logs.create_log_group(logGroupName=LOG_GROUP)
    assert AgentLog(logs).key_lines(CARRIER) == frozenset()
    write(logs, CARRIER, "starting", f"carrier| {key_line('a')}\n", "carrier| [agent] ready")
    write(logs, f"{CARRIER}0", f"carrier| {key_line('b')}")
    write(logs, "another-qstamp-1", f"carrier| {key_line('b')}")
    assert AgentLog(logs).key_lines(CARRIER) == {key_line("a")}


@pytest.mark.attack
@pytest.mark.parametrize("before", ["m-qstamp-1| ", "m-qstamp-1| carrier| ", " carrier| ", "carrier|  "])
def test_no_other_line_names_a_key(logs: Any, before: str) -> None:
    logs.create_log_group(logGroupName=LOG_GROUP)
    write(logs, CARRIER, before + key_line("a"))
    assert AgentLog(logs).key_lines(CARRIER) == frozenset()


@pytest.mark.attack
@pytest.mark.parametrize("end", ["algo-1-1764000000/ssm", "algo-1-1764000000\n", "algo-1", "x/algo-1-1", "algo-1-١"])
def test_no_other_stream_names_a_key(end: str) -> None:
    pages: Any = Pages([f"carrier| {key_line('a')}"], stream=f"{CARRIER}/{end}")
    assert AgentLog(pages).key_lines(CARRIER) == frozenset()


class Pages:
    """A log that needs many pages, as CloudWatch Logs gives them while it searches."""

    def __init__(self, *pages: list[str], stream: str = f"{CARRIER}/algo-1-1") -> None:
        self._pages = pages
        self._stream = stream
        self.asked = 0

    def filter_log_events(self, **request: Any) -> dict[str, Any]:
        assert request.get("nextToken") == (str(self.asked) if self.asked else None)
        lines = self._pages[self.asked] if self.asked < len(self._pages) else []
        self.asked += 1
        return {
            "events": [{"message": line, "logStreamName": self._stream} for line in lines],
            "nextToken": str(self.asked),
        }


def test_empty_pages_are_passed_and_their_number_is_limited() -> None:
    pages: Any = Pages([], [], [f"carrier| {key_line('a')}"])
    assert AgentLog(pages).key_lines(CARRIER) == {key_line("a")}
    assert pages.asked == MOST_PAGES


def test_a_log_that_cannot_be_read_is_unavailable() -> None:
    class Down:
        def filter_log_events(self, **_: Any) -> Any:
            raise EndpointConnectionError(endpoint_url="https://logs")

    down: Any = Down()
    with pytest.raises(Unavailable, match="cannot be read"):
        AgentLog(down).key_lines(CARRIER)
