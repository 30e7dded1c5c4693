"""Both sides of the mailboxes of carriers over a bucket in memory: the queue's real code, and the agent's."""

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from job_queue.adapters.carriers.mailbox import Mailboxes
from job_queue.carrier_agent import seal
from job_queue.carrier_agent.mailbox import ForeignAgent, Mailbox, key_line
from job_queue.carrier_agent.s3 import Object
from job_queue.domain.job import Job

BUCKET = "work"
BITS = 256  # of the primes: the shortest RSA key that can sign a digest of SHA-256


class BucketInMemory:
    """The part of a boto3 S3 client that the queue uses, and the part of the agent's that the agent uses."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.objects: dict[str, tuple[bytes, float]] = {}  # key -> content, and when it was written
        self.written: list[str] = []  # keys, each time one is written
        self.archived: set[str] = set()  # keys of objects that S3 does not return
        self.key_lines: dict[str, set[str]] = {}  # by carrier's attempt: lines of its log, which names a key

    # --- for the queue -----------------------------------------------------------------------------------

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str | None = None) -> None:  # noqa: N803
        if IfNoneMatch and Key in self.objects:
            refusal: Any = {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"HTTPStatusCode": 412}}
            raise ClientError(refusal, "PutObject")
        self.objects[Key] = Body, self._clock()
        self.archived.discard(Key)
        self.written.append(Key)

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        if Key in self.archived:
            raise ClientError({"Error": {"Code": "InvalidObjectState"}}, "GetObject")
        content, at = self.objects[Key]
        return {"Body": io.BytesIO(content), "LastModified": datetime.fromtimestamp(at, UTC)}

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> None:  # noqa: N803
        for it in Delete["Objects"]:
            self.objects.pop(it["Key"], None)

    # --- for the agent -----------------------------------------------------------------------------------

    def list(self, bucket: str, prefix: str) -> Iterator[Object]:
        found = ((key, it) for key, it in sorted(self.objects.items()) if key.startswith(prefix))
        return (Object(key, len(content), str(at)) for key, (content, at) in found)


class AgentsS3:
    """The agent's S3 over a bucket in memory."""

    def __init__(self, bucket: BucketInMemory) -> None:
        self._bucket = bucket

    def objects(self, bucket: str, prefix: str) -> Iterator[Object]:
        return self._bucket.list(bucket, prefix)

    def read(self, bucket: str, key: str, most: int) -> tuple[bytes, str] | None:
        found = self._bucket.objects.get(key)
        return None if found is None else (found[0], str(found[1]))

    def get(self, bucket: str, key: str, most: int) -> bytes | None:
        found = self._bucket.objects.get(key)
        return None if found is None else found[0]

    def put(self, bucket: str, key: str, body: bytes, *, new: bool = False) -> bool:
        if new and key in self._bucket.objects:
            return False
        self._bucket.put_object(Bucket=bucket, Key=key, Body=body)
        return True


@dataclass(frozen=True)
class SmallKey:
    """An RSA key pair that is too short for anything but tests, and fast."""

    modulus: int
    private: int

    def sign(self, text: str) -> bytes:
        length = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(seal.padded(text.encode(), length), "big")
        return pow(number, self.private, self.modulus).to_bytes(length, "big")


@cache
def small_key(seed: int = 0) -> SmallKey:
    """Return a key pair, the same for the same seed."""
    chance = random.Random(seed)
    one, other = _prime(chance), _prime(chance)
    return SmallKey(one * other, pow(seal.EXPONENT, -1, (one - 1) * (other - 1)))


def _prime(chance: random.Random) -> int:
    while True:
        number = chance.getrandbits(BITS) | 1 | 3 << (BITS - 2)
        if (number - 1) % seal.EXPONENT and all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11)):
            return number


class AgentInMemory:
    """An agent that reads orders and writes reports when a test says so."""

    def __init__(self, bucket: BucketInMemory, settings: dict[str, str], clock: Callable[[], float]) -> None:
        self._bucket, self._clock = bucket, clock
        modulus, queue = int(settings["order_key"], 16), int(settings["queue_key"], 16)
        self.mailbox = Mailbox(AgentsS3(bucket), settings["mailbox"], modulus, queue, clock)  # type: ignore[arg-type]
        self.assignments: dict[str, dict[str, Any]] = {}  # by attempt: all that it has ever begun
        self.ended: set[str] = set()

    def introduce(self) -> bool:
        """Name the key in the log, and publish it. False: another program has done so before."""
        self._bucket.key_lines.setdefault(self.mailbox.carrier, set()).add(key_line(self.mailbox.public))
        try:
            self.mailbox.introduce()
        except ForeignAgent:
            return False
        return True

    def look(self) -> dict[str, dict[str, Any]]:
        """Accept the assignments that have arrived; return those that are new."""
        new = {}
        for attempt, messages in self.mailbox.arrived().items():
            if (attempt not in self.assignments or attempt in self.ended) and "assign" in messages:
                try:
                    found = self.mailbox.assignment(attempt)
                except ValueError:  # the agent reports that the assignment cannot be read
                    found = {}
                if found is not None:
                    new[attempt] = self.assignments[attempt] = found
                    self.ended.discard(attempt)
        return new

    def is_stopped(self, attempt: str) -> bool:
        """Return whether the queue has ordered the end of an attempt."""
        return "stop" in self.mailbox.arrived().get(attempt, ()) and self.mailbox.is_stopped(attempt)

    def report(self, attempt: str, status: str, reason: str | None, started: float | None = None) -> None:
        """Report the end of an attempt."""
        self.ended.add(attempt)
        self.mailbox.report(attempt, "ended", {"started": started, "status": status, "reason": reason or ""})

    def beat(self) -> None:
        """Write a heartbeat."""
        self.mailbox.beat(sorted(self.assignments.keys() - self.ended))


def mailboxes(bucket: BucketInMemory, carrier_of: Callable[[str], Job | None]) -> Mailboxes:
    """Return the queue's side."""
    client: Any = bucket
    return Mailboxes(client, BUCKET, small_key(), lambda carrier: bucket.key_lines.get(carrier, ()), carrier_of)
