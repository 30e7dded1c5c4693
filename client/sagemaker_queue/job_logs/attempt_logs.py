"""The log streams of training jobs in CloudWatch, read so that no line comes twice.

SageMaker names them ``<training job>/algo-<number>-<time>``, one for each instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_queue.formatting import log_line

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_TIME_AT_END = re.compile(r"-\d{10,}$")


@dataclass(frozen=True)
class LogLine:
    """One line that an instance of an attempt wrote."""

    attempt: int  # its number
    instance: str  # such as algo-1
    time: datetime  # in UTC
    message: str  # as it was written
    instances: int = 1  # how many the attempt has

    def __str__(self) -> str:
        """Return its text, without what a terminal would obey."""
        return log_line(self.message)


@dataclass(frozen=True)
class LogSource:
    """Where an attempt's lines are: in its own streams, or with its name before each in those of its carrier."""

    training_job: str
    carrier: str | None = None

    @property
    def folder(self) -> str:
        """Whose streams they are."""
        return self.carrier or self.training_job

    def own(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield those of the attempt, as it has written them."""
        if self.carrier is None:
            yield from events
            return
        own = f"{self.training_job}| "
        for event in events:
            message = event["message"]
            if message.startswith(own):
                yield {**event, "message": message[len(own) :].replace(f"\r{own}", "\r")}


def instance_of(stream: str) -> str:
    """Return the instance whose stream it is: ``algo-1`` of ``job1/algo-1-1700000000``."""
    return _TIME_AT_END.sub("", stream.partition("/")[2])


def list_streams(client: Any, training_job: str, instance: str = "") -> list[Mapping[str, Any]]:
    """Return the streams that a training job has so far, the first instance first; none without the log group."""
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
    """Return what a stream has gained since the token (None: from its beginning), and the token to go on with."""
    events: list[Mapping[str, Any]] = []
    while True:
        more = {"nextToken": token} if token else {}
        page = client.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **more)
        events += page["events"]
        if page["nextForwardToken"] == token:  # which alone means the end: a page may be empty before it
            return events, token
        token = page["nextForwardToken"]


class AttemptLog:
    """Reads the log of one attempt as it grows. ``client`` is a boto3 client of CloudWatch Logs.

    Where it shares its instance, its lines are in its ``carrier``'s log, each with its name before it.
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
        """Return the lines that came since the last time, of all instances, by time.

        After an error of the client, nothing is lost: the next time has those lines, too.
        """
        if len(self._tokens) < self._instances:  # a stream comes with the first line of its instance
            for found in list_streams(self._client, self._source.folder):
                self._tokens.setdefault(found["logStreamName"], None)
        for stream in self._tokens:
            self._unread += self._read(stream)
        lines, self._unread = self._unread, []
        return sorted(lines, key=lambda line: line.time)

    def _read(self, stream: str) -> Iterator[LogLine]:
        events, self._tokens[stream] = read_on(self._client, stream, self._tokens[stream])
        for event in self._source.own(events):
            time = datetime.fromtimestamp(event["timestamp"] / 1000, timezone.utc)
            message = event["message"].rstrip("\r\n")
            yield LogLine(self._attempt, instance_of(stream), time, message, self._instances)


def _in_order(stream: str) -> tuple[int, str]:
    """algo-2 comes before algo-10."""
    number = instance_of(stream).rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, stream)
