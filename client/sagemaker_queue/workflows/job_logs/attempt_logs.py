"""Read the log lines of an attempt's instances from CloudWatch Logs, each line once.

Each instance has one stream. SageMaker names the stream ``<training job>/algo-<number>-<time>``. With remote debugging,
each instance also has the stream ``<training job>/algo-<number>-<time>/ssm`` of the SSM Agent, which is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_queue.jobs.formatting import log_line

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_TIME_AT_END = re.compile(r"-\d{10,}$")


@dataclass(frozen=True)
class LogLine:
    """A log line of one instance of an attempt."""

    attempt: int  # the attempt's number
    instance: str  # such as algo-1
    time: datetime  # in UTC
    message: str  # unchanged, so it may contain control characters
    instances: int = 1  # number of instances of the attempt

    def __str__(self) -> str:
        """Return the message without the control characters that a terminal would obey."""
        return log_line(self.message)


@dataclass(frozen=True)
class LogSource:
    """The log streams that contain an attempt's lines.

    An attempt without a carrier has streams of its own. Otherwise its lines are in the carrier's streams, and each
    line begins with the attempt's name.
    """

    training_job: str
    carrier: str | None = None

    @property
    def folder(self) -> str:
        """The name with which the streams begin: the carrier's, else that of the training job."""
        return self.carrier or self.training_job

    def events_of_attempt(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the events of this attempt; remove the attempt's name from the beginning of each line."""
        if self.carrier is None:
            yield from events
            return
        prefix = f"{self.training_job}| "
        for event in events:
            message = event["message"]
            if message.startswith(prefix):
                yield {**event, "message": message[len(prefix) :].replace(f"\r{prefix}", "\r")}


def instance_of(stream: str) -> str:
    """Return the instance of a stream: ``algo-1`` for ``job1/algo-1-1700000000``."""
    return _TIME_AT_END.sub("", stream.partition("/")[2])


def list_streams(client: Any, training_job: str, instance: str = "") -> list[Mapping[str, Any]]:
    """Return the present streams of a training job, sorted by instance number; empty if there is no log group."""
    streams: list[Mapping[str, Any]] = []
    try:
        pages = client.get_paginator("describe_log_streams")
        for page in pages.paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{training_job}/{instance}"):
            streams += page["logStreams"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
    return sorted(streams, key=lambda stream: _in_order(stream["logStreamName"]))


def read_on(client: Any, stream: str, token: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return a stream's events after the token (None: from the beginning), and the token for the next call."""
    events: list[Mapping[str, Any]] = []
    while True:
        more = {"nextToken": token} if token else {}
        page = client.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **more)
        events += page["events"]
        # Only an unchanged token marks the end: a page before the end may be empty.
        if page["nextForwardToken"] == token:
            return events, token
        token = page["nextForwardToken"]


class AttemptLog:
    """The growing log of one attempt. ``client`` is a boto3 client of CloudWatch Logs.

    The lines of an attempt on a shared instance are in the log of its ``carrier`` (see LogSource).
    """

    def __init__(
        self, client: Any, attempt: int, training_job: str, instances: int, carrier: str | None = None
    ) -> None:
        self._client = client
        self._attempt = attempt
        self.training_job = training_job
        self._instances = instances
        self._source = LogSource(training_job, carrier)
        self._tokens: dict[str, str | None] = {}  # by stream
        self._unread: list[LogLine] = []

    def new_lines(self) -> list[LogLine]:
        """Return the new lines of all instances since the last call, sorted by time.

        No line is lost after an error of the client: the next call also returns the lines that were already read.
        """
        if len(self._tokens) < self._instances:  # a stream appears with the first line of its instance
            for found in list_streams(self._client, self._source.folder):
                if "/" not in instance_of(found["logStreamName"]):
                    self._tokens.setdefault(found["logStreamName"], None)
        for stream in self._tokens:
            self._unread += self._read(stream)
        lines, self._unread = self._unread, []
        return sorted(lines, key=lambda line: line.time)

    def _read(self, stream: str) -> Iterator[LogLine]:
        events, self._tokens[stream] = read_on(self._client, stream, self._tokens[stream])
        for event in self._source.events_of_attempt(events):
            time = datetime.fromtimestamp(event["timestamp"] / 1000, timezone.utc)
            message = event["message"].rstrip("\r\n")
            yield LogLine(self._attempt, instance_of(stream), time, message, self._instances)


def _in_order(stream: str) -> tuple[int, str]:
    """Return a sort key by which algo-2 comes before algo-10."""
    number = instance_of(stream).rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, stream)
