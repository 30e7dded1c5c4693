"""The agent's side of the mailbox: it checks orders, rejects forged ones, and writes authenticated reports.

The messages are JSON objects in S3 below the carrier's prefix.

    in/<attempt>/assign.json     {"order": text, "signature": hex}
    in/<attempt>/stop.json       the same
    out/agent.json               {"key": hex}: the agent's public number, written once when the agent starts. The
                                 carrier's log has the digest of this number, because more programs can write to S3
                                 than to this log
    out/<attempt>/started.json   {"report": text, "code": hex}
    out/<attempt>/ended.json     the same, written when the attempt's processes have ended and its files are saved
    out/alive.json               the same, every 15 seconds

An order is JSON text that the deployment's key has signed: {"do": "assign" or "stop", "carrier", "attempt",
"submission", "call"}. An assignment also has {"gpus": [0], "tenths": 10, "sealed"}, where `tenths` is the part of each
GPU. `sealed` is {"request": fields of CreateTrainingJob, "disk": bytes, "grace": seconds, "saving": seconds}, encrypted
for this agent. All of these fields but "request" may be missing. `submission` distinguishes jobs that have the same
name at different times. `call` counts the launches of a job. An agent accepts one assignment for each pair of attempt
and submission. An agent obeys a stop only if the stop's `call` is at least the assignment's. So no order can be
replayed, or moved to another carrier or attempt.

A report is JSON text with an authentication code, made with the key that the queue and this agent share. Every report
has {"carrier", "at"}, and in addition
    started  {"attempt", "submission", "call", "sharing": whole, mps or time-slicing}
    ended    {"attempt", "submission", "call", "started", "status", "reason", "exit", "sharing", "unsaved"}. The last
             three fields are missing if the agent has refused the assignment
    alive    {"beat", "members", "ended"}: running attempts, and the last ones that ended, as <attempt>/<submission>
`status` is one of SageMaker's: Completed, Failed or Stopped.
"""

import hashlib
import json
import re
import time
from itertools import islice
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import seal
from .s3 import S3, S3Error, split

ATTEMPT = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
MOST_OBJECTS = 5_000  # objects that one poll lists; enough, because the queue removes the orders of ended attempts
LARGEST = 2 << 20  # bytes of an order at most
MOST_ENDED = 500  # attempts that a heartbeat names
MOST_REJECTED = 10_000  # rejected objects that are remembered, and as many unreadable ones
FIRST_PAUSE = 5.0  # seconds until an object that S3 does not return is read again; each failure doubles the pause
LONGEST_PAUSE = 600.0

KEY_WORDS = "[agent] key"
CARRIER = "carrier"  # the prefix of log lines that concern no member

Json = Dict[str, Any]


class ForeignAgent(Exception):
    """Another program has published a key as the agent of this carrier."""


def key_line(key: str) -> str:
    """Return the line of the carrier's log that has the digest (SHA-256) of the agent's key.

    :param key: the agent's public number, as `out/agent.json` has it.
    """
    return f"{KEY_WORDS} {hashlib.sha256(key.encode()).hexdigest()}"


class Mailbox:
    """The mailbox of one carrier, as its agent sees it.

    :param address: address in S3; the last part of the path is the carrier's attempt.
    :param modulus: modulus of the deployment's RSA key.
    :param queue: the queue's public number for this carrier.
    """

    def __init__(
        self, s3: S3, address: str, modulus: int, queue: int, clock: "Callable[[], float]" = time.time
    ) -> None:
        self._s3 = s3
        self._bucket, prefix = split(address)
        self._prefix = prefix.rstrip("/") + "/"
        self.carrier = prefix.rstrip("/").rpartition("/")[2]
        self._modulus, self._clock = modulus, clock
        private = seal.private_number()
        self.public = f"{seal.public_number(private):x}"
        self._key = seal.shared_key(private, queue, self.carrier)
        self._assigned: Dict[str, Tuple[str, int]] = {}  # attempt -> its submission and the call that assigned it
        self._seen: Set[Tuple[str, str]] = set()  # pairs (attempt, submission) that have been assigned
        self._rejected: Set[Tuple[str, str]] = set()  # pairs (key, ETag) of objects that are not orders
        self._etags: Dict[str, str] = {}  # key -> ETag of the object when it was last read
        self._listed: Dict[str, str] = {}  # key -> ETag of the object in the last listing
        self._unreadable: Dict[Tuple[str, str], Tuple[float, float]] = {}  # (key, ETag) -> pause, time of the next try
        self._beats = 0
        self._ended: List[str] = []

    def introduce(self) -> None:
        """Publish the agent's key. Raise ForeignAgent if another key is published already."""
        key = self._prefix + "out/agent.json"
        body = json.dumps({"key": self.public}).encode()
        if self._s3.put(self._bucket, key, body, new=True):
            return
        try:
            found = self._s3.get(self._bucket, key, LARGEST)
        except S3Error as error:
            if not 400 <= error.status < 500:
                raise
            raise ForeignAgent(f"the key that another program has published cannot be read: {error}") from error
        if found is None:
            raise S3Error("another request about the key was in progress")
        if found != body:  # this agent's own key is no error: an earlier try has published it
            raise ForeignAgent("another program has introduced itself as the agent of this carrier")

    def arrived(self) -> Dict[str, Set[str]]:
        """Return for each attempt the kinds of its orders in the mailbox: `assign`, `stop`, or both.

        Rejected orders are left out. Orders that S3 refused to return are left out for a while.
        """
        found: Dict[str, Set[str]] = {}
        below, now = self._prefix + "in/", self._clock()
        self._listed.clear()
        for it in islice(self._s3.objects(self._bucket, below), MOST_OBJECTS):
            attempt, _, message = it.key[len(below) :].partition("/")
            if not ATTEMPT.fullmatch(attempt) or message not in ("assign.json", "stop.json") or it.size > LARGEST:
                continue
            self._listed[it.key] = it.etag
            _, next_try = self._unreadable.get((it.key, it.etag), (0.0, 0.0))
            if (it.key, it.etag) not in self._rejected and next_try <= now:
                found.setdefault(attempt, set()).add(message[: -len(".json")])
        return found

    def assignment(self, attempt: str) -> Optional[Json]:
        """Return an assignment: its gpus, tenths, request and so on.

        None: there is no valid order, S3 gave no answer, or this submission of the attempt was assigned before.

        :raises ValueError, KeyError: the order has a valid signature, but its content cannot be decrypted or lacks a
            field.
        """
        order = self._order(attempt, "assign")
        if order is None:
            return None
        submission, call = order["submission"], order["call"]
        if (attempt, submission) in self._seen:
            self._reject(attempt, "assign")
            return None
        self._assigned[attempt] = submission, call
        self._seen.add((attempt, submission))
        hidden = json.loads(seal.opened(self._key, str(order["sealed"]), context(self.carrier, attempt, call)).decode())
        if not isinstance(hidden, dict) or not isinstance(hidden.get("request"), dict):
            raise ValueError("the assignment has no request")
        return {**hidden, "gpus": order["gpus"], "tenths": order["tenths"]}

    def is_stopped(self, attempt: str) -> bool:
        """Return whether the queue has ordered the stop of an assigned attempt."""
        order = self._order(attempt, "stop")
        submission, call = self._assigned.get(attempt, ("", 0))
        return order is not None and order["submission"] == submission and order["call"] >= call

    def report(self, attempt: str, what: str, report: Json) -> None:
        """Report `started` or `ended`. A repeated report replaces the earlier one."""
        submission, call = self._assigned[attempt]
        content = {"attempt": attempt, "submission": submission, "call": call, **report}
        self._write(f"{attempt}/{what}", content)
        if what == "ended":
            self._ended = [*self._ended[1 - MOST_ENDED :], f"{attempt}/{submission}"]

    def beat(self, members: List[str]) -> None:
        """Report that the agent is alive."""
        self._beats += 1
        running = [f"{attempt}/{self._assigned[attempt][0]}" for attempt in members]
        self._write("alive", {"beat": self._beats, "members": running, "ended": list(self._ended)})

    def _write(self, name: str, content: Json) -> None:
        text = json.dumps({"carrier": self.carrier, "at": self._clock(), **content})
        body = {"report": text, "code": seal.authentication(self._key, text, name)}
        self._s3.put(self._bucket, f"{self._prefix}out/{name}.json", json.dumps(body).encode())

    def _order(self, attempt: str, do: str) -> Optional[Json]:
        """Return an order that the queue has signed for this carrier and this attempt; reject any other content.

        None: there is no such order, or S3 gave no answer (an S3Error without a status).

        :raises S3Error: S3 refuses to return the object. `arrived` then leaves out the object for a while.
        """
        key = f"{self._prefix}in/{attempt}/{do}.json"
        try:
            found = self._s3.read(self._bucket, key, LARGEST)
        except S3Error as error:
            if error.status:
                self._postpone(key)
                raise
            return None
        if found is None:
            return None
        content, self._etags[key] = found
        order = verified(content, self._modulus)
        if order is not None and (order["do"], order["carrier"], order["attempt"]) == (do, self.carrier, attempt):
            return order
        self._reject(attempt, do)
        return None

    def _postpone(self, key: str) -> None:
        """Leave an object out of `arrived` for a while: it may be archived, or encrypted with a key of its writer."""
        if len(self._unreadable) >= MOST_REJECTED:
            self._unreadable.clear()
        version = key, self._listed.get(key, "")
        pause = min(LONGEST_PAUSE, 2 * self._unreadable.get(version, (FIRST_PAUSE / 2, 0.0))[0])
        self._unreadable[version] = pause, self._clock() + pause

    def _reject(self, attempt: str, do: str) -> None:
        """Ignore the object that was just read, until an object with another ETag replaces this object."""
        key = f"{self._prefix}in/{attempt}/{do}.json"
        if len(self._rejected) >= MOST_REJECTED:
            self._rejected.clear()
        self._rejected.add((key, self._etags.pop(key, "")))


def verified(content: bytes, modulus: int) -> Optional[Json]:
    """Return the order of a message if the deployment's key has signed it, else None."""
    try:
        message = json.loads(content.decode())
        text, signature = message["order"], bytes.fromhex(message["signature"])
        if not seal.is_signed(text.encode(), signature, modulus):
            return None
        order = json.loads(text)
        known = {"do", "carrier", "attempt"} <= set(order)
        return order if known and isinstance(order["submission"], str) and isinstance(order["call"], int) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def context(carrier: str, attempt: str, call: int) -> str:
    """Return the text that binds an encrypted request to its attempt."""
    return f"{carrier}/{attempt}/{call}"
