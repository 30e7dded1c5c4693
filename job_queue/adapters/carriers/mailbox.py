"""The queue's side of the mailboxes: it assigns and stops members, and reads how they are.

What `SageMakerTraining` is for attempts of their own, this is for those on carriers: `<carrier>/<attempt>` is such an
attempt's address. The agent's side, and all messages, are in `carrier_agent/mailbox.py`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.carriers import program
from job_queue.adapters.sagemaker import LaunchResult, StopResult, TrainingJob
from job_queue.domain.carriers.founding import AGENTS, LONGEST_SECONDS, MAILBOXES
from job_queue.domain.errors import Unavailable
from job_queue.domain.names import is_name
from job_queue.scheduler import Seat

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_OUT_OF_TIME = "MaxRuntimeExceeded"
LARGEST = 1024 * 1024  # bytes of a message; others are as good as empty
LONGEST_REASON = 1024  # characters, as SageMaker's FailureReason
DAY = 24 * 3600  # seconds by which clocks may differ
WRITTEN = "LastModified"  # epoch seconds, by S3's word
CARRIER_STOPPED = "the carrier was stopped"  # the agent's words

_REPORT = re.compile(rf"{MAILBOXES}/([^/]+)/out/([^/]+)/ended\.json")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a carrier's mailbox says, by one list of it."""

    ended: frozenset[str] = frozenset()  # attempts whose end is reported
    alive_at: float | None = None  # epoch seconds; None: the agent has never said that it is there


class Mailboxes:
    """Mailboxes in the stack's WorkBucket.

    :param client: a boto3 S3 client with few retries; a call that fails is made again by a later cycle.
    """

    def __init__(self, client: "S3Client", bucket: str) -> None:
        self._client = client
        self.bucket = bucket
        self._sent: set[str] = set()  # digests of agents that are in the bucket

    @property
    def agent(self) -> str:
        """The address of the folder with the agent."""
        return f"s3://{self.bucket}/{AGENTS}/{program.digest()}"

    def bring_agent(self) -> None:
        """Have the agent in the bucket; raises Unavailable."""
        digest = program.digest()
        if digest in self._sent:
            return
        key = f"{AGENTS}/{digest}/{program.ARCHIVE}"
        try:
            self._client.put_object(Bucket=self.bucket, Key=key, Body=program.archive())
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(
                f"The carriers' agent could not be written to s3://{self.bucket}/{key}: {error}"
            ) from error
        self._sent.add(digest)

    def assign(self, carrier: str, seat: Seat, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        """Assign an attempt to GPUs of a carrier, unless it is already; as CreateTrainingJob answers."""
        name = request["TrainingJobName"]
        body = {"request": request, "gpus": list(seat.gpus), "tenths": seat.tenths}
        return self._put(f"{MAILBOXES}/{carrier}/in/{name}/assign.json", body)

    def stop(self, address: str) -> StopResult:
        """Ask for the end of an attempt. That it was asked for, or has ended, is no error."""
        carrier, _, name = address.partition("/")
        result, _ = self._put(f"{MAILBOXES}/{carrier}/in/{name}/stop.json", {})
        if result is LaunchResult.UNKNOWN:
            return StopResult.UNKNOWN
        try:
            ended = self._get(f"{MAILBOXES}/{carrier}/out/{name}/ended.json") is not None
        except Unavailable:
            return StopResult.UNKNOWN
        return StopResult.ENDED_ALREADY if ended else StopResult.ASKED

    def describe(self, address: str) -> TrainingJob | None:
        """An attempt as its agent reports it; None: it was never assigned.

        :raises Unavailable: S3 gave no usable answer.
        """
        carrier, _, name = address.partition("/")
        home = f"{MAILBOXES}/{carrier}"
        ended = self._get(f"{home}/out/{name}/ended.json")
        if ended is not None:
            return _as_training_job(name, ended)
        assigned = self._get(f"{home}/in/{name}/assign.json")
        if assigned is None:
            return None
        request = assigned.get("request")
        tags = request.get("Tags") if isinstance(request, dict) else None
        return _as_training_job(name, {"status": "InProgress", "tags": tags, WRITTEN: assigned[WRITTEN]})

    def heard_of(self, carrier: str) -> Heard:
        """What a mailbox has in it; raises Unavailable."""
        prefix = f"{MAILBOXES}/{carrier}/out/"
        ended, alive_at = set(), None
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                for it in page.get("Contents", []):
                    attempt, _, message = it["Key"].removeprefix(prefix).partition("/")
                    if message == "ended.json":
                        ended.add(attempt)
                    elif attempt == "alive.json":
                        alive_at = it["LastModified"].timestamp()
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"The mailbox of {carrier} could not be read: {error}") from error
        return Heard(frozenset(ended), alive_at)

    def _put(self, key: str, body: Json) -> tuple[LaunchResult, str]:
        content = json.dumps(body, separators=(",", ":")).encode()
        try:
            self._client.put_object(Bucket=self.bucket, Key=key, Body=content, IfNoneMatch="*")
        except ClientError as error:
            code = str(error.response["Error"].get("Code", ""))
            if code in _EXISTS:
                return LaunchResult.NAME_TAKEN, ""
            if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                return LaunchResult.UNKNOWN, str(error)
            return LaunchResult.NOT_NOW, f"{code}: {error.response['Error'].get('Message', '')}"
        except BotoCoreError as error:
            return LaunchResult.UNKNOWN, str(error)
        return LaunchResult.LAUNCHED, ""

    def _get(self, key: str) -> Json | None:
        try:
            answer = self._client.get_object(Bucket=self.bucket, Key=key)
            content, written = answer["Body"].read(LARGEST + 1), answer["LastModified"].timestamp()
            found = json.loads(content) if len(content) <= LARGEST else {}
        except ClientError as error:
            if str(error.response["Error"].get("Code", "")) in _MISSING:
                return None
            raise Unavailable(f"s3://{self.bucket}/{key} could not be read: {error}") from error
        except BotoCoreError as error:
            raise Unavailable(f"s3://{self.bucket}/{key} could not be read: {error}") from error
        except (ValueError, RecursionError):
            return {WRITTEN: written}
        return {**(found if isinstance(found, dict) else {}), WRITTEN: written}


def reported_attempt(event: Mapping[str, Any]) -> str | None:
    """The address of the attempt whose end an `Object Created` of S3 tells of; None: it tells of something else."""
    detail = event.get("detail")
    found = detail.get("object") if isinstance(detail, dict) else None
    key = found.get("key") if isinstance(found, dict) else None
    match = _REPORT.fullmatch(key) if isinstance(key, str) else None
    return f"{match[1]}/{match[2]}" if match and is_name(match[1]) and is_name(match[2]) else None


def _as_training_job(name: str, report: Mapping[str, Any]) -> TrainingJob:
    """A report as DescribeTrainingJob would tell of the attempt. Whoever runs in a carrier may have written it."""
    reason, status = _text(report.get("reason"))[:LONGEST_REASON], report.get("status")
    if status == "Stopped" and reason == CARRIER_STOPPED:  # which is no end of its own: unless it made room, it goes on
        reason, status = f"InternalServerError: {reason}", "Failed"
    told = report.get("tags")
    tags = {
        _text(it.get("Key")): _text(it.get("Value"))
        for it in (told if isinstance(told, list) else ())
        if isinstance(it, dict)
    }
    return TrainingJob(
        name=name,
        arn="",
        status=status if status in ("Completed", "Failed", "Stopped", "InProgress") else "Failed",
        secondary=_OUT_OF_TIME if reason == _OUT_OF_TIME else "",
        failure=reason or None,
        instance_counts={},
        tags=tags,
        ended_at=_time(report, "at") or report[WRITTEN] if status != "InProgress" else None,
        began=_time(report, "started"),
    )


def _text(value: object) -> str:
    """What can be stored of it, if it is a text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _time(report: Mapping[str, Any], name: str) -> float | None:
    """What a report says, if it may be: it was written after that, and the carrier did not live for much longer."""
    value, written = report.get(name), report[WRITTEN]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if written - LONGEST_SECONDS - DAY <= value <= written + DAY else None
