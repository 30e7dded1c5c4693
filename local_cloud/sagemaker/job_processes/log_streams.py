"""The output of jobs in CloudWatch Logs: writing and reading."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

_log = logging.getLogger(__name__)

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_BATCH = 500  # lines in one call
_LONGEST = 200_000  # characters of one line; CloudWatch takes 256 KB


class LogStream:
    """The log stream of one instance's output. `client` is a boto3 client of CloudWatch Logs.

    Output that cannot be sent is dropped, since a job does not fail because of its logs.

    :param delay: seconds from the reading of a line to its arrival. The time of the reading is the line's timestamp.
        The log stream is also created only after this delay.
    """

    def __init__(self, client: Any, name: str, output: Path, delay: float = 0.0) -> None:
        self._client = client
        self._name = name
        self._output = output
        self._delay = delay
        self._position = 0
        self._broken = False
        self._held: list[tuple[float, list[dict[str, Any]]]] = []
        if delay:
            self._held.append((time.monotonic() + delay, []))
        else:
            self._try(self._create)

    def ship(self, *, last: bool = False) -> None:
        """Send the lines that were written since the last call. With `last`, an unfinished line is sent as well.

        Delayed lines are sent by a later call. After the last call, a timer sends the remaining lines.
        """
        with self._output.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        end = len(new) if last else new.rfind(b"\n") + 1
        self._position += end
        lines = [line for line in new[:end].decode(errors="replace").split("\n") if line.strip()]
        now = round(time.time() * 1000)
        events = [{"timestamp": now, "message": line[:_LONGEST]} for line in lines]
        if not self._delay:
            self._send(events)
            return
        self._held.append((time.monotonic() + self._delay, events))
        if last:
            timer = threading.Timer(self._delay, self._send_held, [float("inf")])
            timer.daemon = True
            timer.start()
        else:
            self._send_held(time.monotonic())

    def _send_held(self, until: float) -> None:
        while self._held and self._held[0][0] <= until:
            self._try(self._create)
            self._send(self._held.pop(0)[1])

    def _create(self) -> None:
        for create, name in (
            (self._client.create_log_group, {}),
            (self._client.create_log_stream, {"logStreamName": self._name}),
        ):
            try:
                create(logGroupName=LOG_GROUP, **name)
            except self._client.exceptions.ResourceAlreadyExistsException:
                continue

    def _send(self, events: list[dict[str, Any]]) -> None:
        for start in range(0, len(events), _BATCH):
            batch = events[start : start + _BATCH]
            self._try(
                lambda batch=batch: self._client.put_log_events(
                    logGroupName=LOG_GROUP, logStreamName=self._name, logEvents=batch
                )
            )

    def _try(self, action: Any) -> None:
        try:
            action()
        except (BotoCoreError, ClientError) as error:
            if not self._broken:
                _log.warning("Logs of %s are lost: %s", self._name, error)
            self._broken = True


def written_lines(client: Any, training_job: str) -> list[str]:
    """Return the lines that a training job has written so far, one instance after the other."""
    try:
        # FilterLogEvents would sort the lines of all instances by time.
        streams = client.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{training_job}/")
    except client.exceptions.ResourceNotFoundException:
        return []
    lines: list[str] = []
    for stream in streams["logStreams"]:
        token: dict[str, str] = {}
        while True:
            page = client.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=True, **token
            )
            lines += [event["message"].rstrip() for event in page["events"]]
            if token.get("nextToken") == page["nextForwardToken"]:
                break
            token = {"nextToken": page["nextForwardToken"]}
    return lines
