"""The queue's side of the mailboxes: assign and stop members, and read the reports of their agents.

`SageMakerTraining` handles attempts that are training jobs, and this module handles attempts on carriers. The agent's
side, and the form of all messages, are in `carrier_agent/mailbox.py`. The role of a carrier may write everything below
`out/`. So a report counts only if its authentication code was made with the key that the queue shares with the agent.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.carriers import program
from job_queue.adapters.carriers.order_key import OrderKey
from job_queue.adapters.sagemaker import LaunchResult, StopResult, TrainingJob
from job_queue.adapters.sites.clients import is_service_failure
from job_queue.adapters.telemetry import log
from job_queue.carrier_agent import seal
from job_queue.carrier_agent.mailbox import context, key_line, verified
from job_queue.domain.carriers.carrier_launch import AGENTS, LONGEST_SECONDS, MAILBOXES
from job_queue.domain.errors import Unavailable
from job_queue.domain.job import Job
from job_queue.domain.launching.proof import attempt_tags
from job_queue.domain.names import apply_qstamp, is_name

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
# Error codes for an archived object, and for an object that is encrypted with a customer's key (SSE-C).
_UNREADABLE = frozenset({"InvalidObjectState", "InvalidRequest"})
_HEARTBEAT = "alive.json"
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_HEX = frozenset("0123456789abcdef")
_DIGITS = 512  # hexadecimal digits of a number of 2,048 bits
_OUT_OF_TIME = "MaxRuntimeExceeded"
LARGEST = 2 * 1024 * 1024  # bytes; a larger message counts as absent
LONGEST_REASON = 1024  # characters, as SageMaker's FailureReason
DAY = 24 * 3600  # seconds; the largest plausible difference between clocks
CARRIER_STOPPED = "the carrier was stopped"  # a reason that agents report

_REPORT = re.compile(rf"{MAILBOXES}/([^/]+)/out/(?:agent|([^/]+)/ended)\.json")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentActivity:
    """The last heartbeat of an agent. All fields are empty if there is no authentic heartbeat."""

    alive_at: float | None = None  # epoch seconds, by the agent's clock; None: no authentic heartbeat
    running: frozenset[str] = frozenset()  # running members, see `member_of`
    ended: frozenset[str] = frozenset()  # members whose end the agent has reported


@dataclass(frozen=True, slots=True)
class Introduction:
    """The key that an agent has published."""

    number: str  # public number of the agent, in hexadecimal
    written: float  # epoch seconds, according to S3


class Mailboxes:
    """The mailboxes in the stack's WorkBucket.

    :param client: a boto3 S3 client with few retries, because a later cycle repeats failed calls.
    :param key_lines: returns the log lines of a carrier's attempt that have the digest of an agent's key (`key_line`).
    :param carrier_named: returns the job of a carrier by name, also after the job has ended; None if there is none.
    """

    def __init__(
        self,
        client: "S3Client",
        bucket: str,
        orders: OrderKey,
        key_lines: Callable[[str], Collection[str]],
        carrier_named: Callable[[str], Job | None],
    ) -> None:
        self._client = client
        self.bucket = bucket
        self._orders = orders
        self._key_lines = key_lines
        self._carrier_named = carrier_named
        self._keys: dict[str, bytes] = {}  # carrier's attempt -> key that the queue shares with its agent
        self._sent: set[str] = set()  # digests of agents that this process has uploaded

    @property
    def agent(self) -> str:
        """The address of the folder with the agent."""
        return f"s3://{self.bucket}/{AGENTS}/{program.digest()}"

    def upload_agent(self) -> None:
        """Upload the agent to the bucket, unless this process has already done so; raise Unavailable."""
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

    def settings(self, carrier: str, secret: str) -> dict[str, str]:
        """Return the hyperparameters by which the agent of a new carrier finds its mailbox and verifies orders.

        DescribeTrainingJob shows these hyperparameters, so none of them is secret.

        :param secret: secret of the carrier's job.
        :raises Unavailable: the public key for orders cannot be read.
        """
        attempt = apply_qstamp(carrier, 1)
        return {
            "mailbox": f"s3://{self.bucket}/{MAILBOXES}/{attempt}",
            "order_key": f"{self._orders.modulus:x}",
            "queue_key": f"{seal.public_number(queue_number(secret, attempt)):x}",
        }

    # --- orders ------------------------------------------------------------------------------------------

    def assign(self, job: Job, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        """Assign a member's attempt to its GPUs on its carrier, unless it is assigned already.

        Return the result in the terms of a CreateTrainingJob call, and a message, which may be empty.
        """
        place = _order_place(job, "assign")
        try:
            order = self._assignment(job, request)
        except Unavailable as error:
            return LaunchResult.NOT_NOW, error.message
        if order is None:
            return LaunchResult.NOT_NOW, "the agent of its carrier has not introduced itself"
        result = self._put(place, order, new=True)
        try:
            if result[0] is LaunchResult.NAME_TAKEN and self._assigned(job) is None:
                # The queue has not signed the existing object, so the new order overwrites the object. The example
                # policies (examples/iam) are then not in force, because these policies let only the queue write orders.
                log.warning("foreign object under the key of an order", key=place)
                return self._put(place, order)
        except Unavailable as error:  # the existing object may be an order of an earlier call
            return LaunchResult.UNKNOWN, error.message
        return result

    def _assignment(self, job: Job, request: Mapping[str, Any]) -> bytes | None:
        """Return the order that assigns a member; None: no key of its carrier's agent is known yet.

        :raises Unavailable: the key cannot be read, or the order cannot be signed.
        """
        key, allocation = self._key(job), job.allocation
        if key is None or allocation is None:
            return None
        hidden = json.dumps({"request": request}, separators=(",", ":")).encode()
        bound = context(job.carrier_attempt or "", job.launched or "", job.sent)
        details = {
            "gpus": list(allocation.gpus),
            "tenths": allocation.tenths,
            "sealed": seal.sealed(key, hidden, bound),
        }
        return self._order("assign", job, details)

    def stop(self, job: Job) -> StopResult:
        """Order the end of an attempt. A repeated order, or an order after the end, is not an error."""
        try:
            result, _ = self._put(_order_place(job, "stop"), self._order("stop", job, {}))
            if result is not LaunchResult.LAUNCHED:
                return StopResult.UNKNOWN
            return StopResult.ASKED if self._ended(job) is None else StopResult.ENDED_ALREADY
        except Unavailable:
            return StopResult.UNKNOWN

    def forget(self, job: Job) -> None:
        """Remove the orders about an attempt that has ended. Orders that remain do no harm."""
        places = [{"Key": _order_place(job, do)} for do in ("assign", "stop")]
        try:
            self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": places, "Quiet": True})  # type: ignore[typeddict-item]
        except (ClientError, BotoCoreError) as error:
            log.info("orders not removed", attempt=job.launched, why=str(error))

    def _order(self, do: str, job: Job, details: Mapping[str, Any]) -> bytes:
        content = {
            "do": do,
            "carrier": job.carrier_attempt,
            "attempt": job.launched,
            "submission": job.submission,
            "call": job.sent,
            **details,
        }
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return json.dumps({"order": text, "signature": self._orders.sign(text).hex()}).encode()

    # --- reports -----------------------------------------------------------------------------------------

    def describe(self, job: Job) -> TrainingJob | None:
        """Return the recorded attempt of a member; None: there is neither a valid report of its end nor a valid order.

        The result contains only data that the queue has signed or the agent has authenticated.

        :raises Unavailable: S3 gave no usable answer.
        """
        ended = self._ended(job)
        if ended is not None:
            return ended
        order = self._assigned(job)
        return None if order is None else _training_job(job, {"status": "InProgress"}, order, 0.0)

    def introduction(self, carrier: str) -> Introduction | None:
        """Return the key that the agent of a carrier's attempt has published; raise Unavailable.

        Other programs with write access to the mailbox can publish a key. So a key counts only if the carrier's log has
        the digest of this key and of no other key. Only the carrier's container and role can write to this log.

        None means that no key is published, that the key cannot be read, or that the log does not confirm the key.
        """
        found = self._get(f"{MAILBOXES}/{carrier}/out/agent.json")
        if found is None:
            return None
        message, written = found
        number = message.get("key")
        if not isinstance(number, str) or agent_number(number) is None:
            log.warning("introduction cannot be read", attempt=carrier)
            return None
        if lines := set(self._key_lines(carrier)) ^ {key_line(number)}:
            log.warning("the carrier's log has another key's digest, or none", attempt=carrier, differs=sorted(lines))
            return None
        return Introduction(number, written)

    def agent_activity(self, carrier: Job) -> AgentActivity:
        """Return the last authentic heartbeat of an agent, or an empty one; raise Unavailable."""
        attempt = carrier.launched or ""
        key, found = key_of(carrier), self._get(f"{MAILBOXES}/{attempt}/out/{_HEARTBEAT}")
        if key is None or found is None:
            return AgentActivity()
        report = _authentic(found[0], key, "alive", carrier=attempt)
        at = _time(report, "at", found[1]) if report else None
        if report is None or at is None:
            return AgentActivity()
        return AgentActivity(at, _names(report.get("members")), _names(report.get("ended")))

    def _ended(self, job: Job) -> TrainingJob | None:
        """Return a member's attempt as its agent has reported its end; None: there is no authentic report."""
        found = self._get(f"{MAILBOXES}/{job.carrier_attempt}/out/{job.launched}/ended.json")
        key = self._key(job) if found else None
        if found is None or key is None:
            return None
        message, written = found
        report = _authentic(message, key, f"{job.launched}/ended", carrier=job.carrier_attempt, attempt=job.launched)
        if report is not None and report.get("submission") != job.submission:
            return None  # the report is about an earlier job of this name
        if report is None:
            log.warning("report is not the agent's", attempt=job.launched, carrier=job.carrier_attempt)
            return None
        if report.get("status") not in ("Completed", "Stopped"):
            report = {**report, "status": "Failed"}
        return _training_job(job, report, report, written)

    def _assigned(self, job: Job) -> Json | None:
        """Return the stored order that assigns a member's attempt; None: there is none that the queue has signed."""
        content = self._read(_order_place(job, "assign"))
        order = verified(content[0], self._orders.modulus) if content else None
        expected = {
            "do": "assign",
            "carrier": job.carrier_attempt,
            "attempt": job.launched,
            "submission": job.submission,
        }
        return order if order and all(order[field] == value for field, value in expected.items()) else None

    def _key(self, job: Job) -> bytes | None:
        """Return the key that the queue shares with the agent of a member's carrier; None: no key is known yet."""
        attempt = job.carrier_attempt or ""
        if attempt not in self._keys:
            carrier = self._carrier_named(job.allocation.carrier) if job.allocation else None
            key = key_of(carrier) if carrier is not None and apply_qstamp(carrier.name, 1) == attempt else None
            if key is None:
                return None
            self._keys[attempt] = key
        return self._keys[attempt]

    # --- S3 ----------------------------------------------------------------------------------------------

    def _put(self, key: str, content: bytes, *, new: bool = False) -> tuple[LaunchResult, str]:
        """Write an object. With `new`, the result is NAME_TAKEN if the object exists already."""
        only_new: Any = {"IfNoneMatch": "*"} if new else {}
        try:
            self._client.put_object(Bucket=self.bucket, Key=key, Body=content, **only_new)
        except ClientError as error:
            code = str(error.response["Error"].get("Code", ""))
            if code in _EXISTS:
                return LaunchResult.NAME_TAKEN, ""
            if is_service_failure(error):
                return LaunchResult.UNKNOWN, str(error)
            return LaunchResult.NOT_NOW, f"{code}: {error.response['Error'].get('Message', '')}"
        except BotoCoreError as error:
            return LaunchResult.UNKNOWN, str(error)
        return LaunchResult.LAUNCHED, ""

    def _read(self, key: str) -> tuple[bytes, float] | None:
        """Return an object's content and time (epoch seconds); None if it is missing or larger than `LARGEST`.

        An object that cannot be read because of its writer counts as empty.

        :raises Unavailable: S3 gave no usable answer.
        """
        try:
            answer = self._client.get_object(Bucket=self.bucket, Key=key)
            content, written = answer["Body"].read(LARGEST + 1), answer["LastModified"].timestamp()
        except ClientError as error:
            if str(error.response["Error"].get("Code", "")) in _MISSING:
                return None
            if _is_unreadable(error) or (_is_key_refused(error) and self._can_read_heartbeat(key)):
                log.warning("object in a mailbox is not readable", key=key, why=str(error))
                return b"", 0.0
            raise Unavailable(f"s3://{self.bucket}/{key} could not be read: {error}") from error
        except BotoCoreError as error:
            raise Unavailable(f"s3://{self.bucket}/{key} could not be read: {error}") from error
        return (content, written) if len(content) <= LARGEST else None

    def _can_read_heartbeat(self, key: str) -> bool:
        """Return whether the queue can read the heartbeat in the mailbox of an object that KMS refused to decrypt.

        If so, this object alone is encrypted with a foreign KMS key. If not, the queue itself may have lost its KMS
        key. The result is False if the object is the heartbeat.
        """
        heartbeat = f"{key.partition('/in/')[0].partition('/out/')[0]}/out/{_HEARTBEAT}"
        if key == heartbeat:
            return False
        try:
            self._client.get_object(Bucket=self.bucket, Key=heartbeat)
        except (ClientError, BotoCoreError):
            return False
        return True

    def _get(self, key: str) -> tuple[Json, float] | None:
        """Return a message and its time (see `_read`). Content that is no JSON object counts as an empty message."""
        found = self._read(key)
        if found is None:
            return None
        try:
            message = json.loads(found[0])
        except (ValueError, RecursionError):
            message = None
        return (message if isinstance(message, dict) else {}), found[1]


def _is_unreadable(error: ClientError) -> bool:
    """Return whether the object exists, but is archived, or encrypted with a customer's key.

    A program that may write to the mailbox can cause this. Such an object counts like any other foreign content.
    """
    return error.response["Error"].get("Code") in _UNREADABLE


def _is_key_refused(error: ClientError) -> bool:
    """Return whether KMS refused to decrypt the object: its KMS key is foreign, or the queue has lost this key."""
    code, message = str(error.response["Error"].get("Code", "")), str(error.response["Error"].get("Message", ""))
    denied = code == "AccessDenied" and ("kms:Decrypt" in message or "ciphertext" in message)
    return denied or (code.startswith("KMS.") and not is_service_failure(error) and "Throttl" not in code)


def member_of(job: Job) -> str:
    """Return the name of a member's attempt in heartbeats."""
    return f"{job.launched}/{job.submission}"


def reported_attempts(event: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return pairs (carrier's attempt, member's ended attempt), one for each message of an SQS batch about a report.

    The second is None if the message says that the agent has published its key. Messages about other objects are left
    out.

    :param event: event of SQS; the body of each message is an event "Object Created" of S3.
    """
    found = (_reported_attempt(record.get("body")) for record in event["Records"])
    return [it for it in found if it is not None]


def _reported_attempt(body: object) -> tuple[str, str | None] | None:
    try:
        event = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("source") != "aws.s3":
        return None
    detail = event.get("detail")
    found = detail.get("object") if isinstance(detail, dict) else None
    key = found.get("key") if isinstance(found, dict) else None
    match = _REPORT.fullmatch(key) if isinstance(key, str) else None
    if match is None or not is_name(match[1]) or not (match[2] is None or is_name(match[2])):
        return None
    return match[1], match[2]


def _order_place(job: Job, do: str) -> str:
    return f"{MAILBOXES}/{job.carrier_attempt}/in/{job.launched}/{do}.json"


def _authentic(message: Json, key: bytes, name: str, **expected: str | None) -> Json | None:
    """Return the report in a message; None if the authentication code is invalid or a field is not as expected."""
    text, code = message.get("report"), message.get("code")
    if not isinstance(text, str) or not isinstance(code, str):
        return None
    try:
        if not seal.is_authentic(key, text, name, code):
            return None
        report = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or any(report.get(field) != value for field, value in expected.items()):
        return None
    return report


def _training_job(job: Job, report: Mapping[str, Any], source: Mapping[str, Any], written: float) -> TrainingJob:
    """Return an attempt on a carrier in the form of DescribeTrainingJob.

    :param source: an authenticated report or a signed order. The field `call` identifies the launch.
    :param written: time of the report, epoch seconds.
    """
    reason, status = _text(report.get("reason"))[:LONGEST_REASON], report["status"]
    # The member was stopped because its carrier was stopped. This counts as a fault of SageMaker, so the member is
    # started again.
    if status == "Stopped" and reason == CARRIER_STOPPED:
        reason, status = f"InternalServerError: {reason}", "Failed"
    call = source.get("call")
    return TrainingJob(
        name=job.launched or "",
        arn="",
        status=status,
        secondary=_OUT_OF_TIME if reason == _OUT_OF_TIME else "",
        failure=reason or None,
        instance_counts={},
        tags=attempt_tags(job, call=call) if isinstance(call, int) else {},
        ended_at=_time(report, "at", written) or written if status != "InProgress" else None,
        began=_time(report, "started", written),
        carrier=job.carrier_attempt,
    )


def _names(value: object) -> frozenset[str]:
    return frozenset(it for it in value if isinstance(it, str)) if isinstance(value, list) else frozenset()


def _text(value: object) -> str:
    """Return a text in which characters that cannot be stored are replaced; an empty text if the value is no text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _time(report: Mapping[str, Any], name: str, written: float) -> float | None:
    """Return a time in a report; None if the time is not plausible.

    A plausible time is at most `LONGEST_SECONDS` (the longest life of a carrier) before the report, and not after the
    report. Clocks may differ by `DAY`.

    :param written: time of the report, epoch seconds.
    """
    value = report.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if written - LONGEST_SECONDS - DAY <= value <= written + DAY else None


def queue_number(secret: str, attempt: str) -> int:
    """Return the queue's private Diffie-Hellman number for a carrier's attempt, derived from the carrier's secret."""
    drawn = hmac.new(secret.encode(), f"agent/{attempt}".encode(), hashlib.sha256).digest()
    return int.from_bytes(drawn, "big") | 1 << 255


def agent_number(text: str) -> int | None:
    """Return an agent's public number; None: the text is not hexadecimal, or the number is out of range."""
    if not 0 < len(text) <= _DIGITS or not _HEX.issuperset(text):
        return None
    number = int(text, 16)
    return number if 1 < number < seal.PRIME - 1 else None


def key_of(carrier: Job) -> bytes | None:
    """Return the key that the queue shares with a carrier's agent; None: the agent's public number is not recorded."""
    number = agent_number(carrier.agent_key or "")
    if number is None or carrier.secret is None:
        return None
    attempt = apply_qstamp(carrier.name, 1)  # a carrier has one attempt
    return seal.shared_key(queue_number(carrier.secret, attempt), number, attempt)
