"""What the queue and the agent tell each other: JSON objects in S3, each written once, under names that follow from
the attempt. So a message that is repeated meets itself.

    in/<attempt>/assign.json     {"request": fields of CreateTrainingJob, "gpus": [0], "tenths": 10, "disk": bytes,
                                  "grace": seconds}; the last two may be missing
    in/<attempt>/stop.json       {}
    out/<attempt>/started.json   {"at", "sharing": whole, mps or time-slicing}
    out/<attempt>/ended.json     {"at", "started", "status", "reason", "exit", "sharing", "tags"}: no process of it is
                                 left; the tags are the request's, by which the queue knows it
    out/alive.json               {"at", "members"}: every few seconds anew

An attempt's name is unique for ever. `status` is SageMaker's word: Completed, Failed or Stopped.
"""

import json
import re
import time
from typing import Any, Dict, Optional, Set

from .s3 import S3, split

ATTEMPT = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")

Json = Dict[str, Any]


class Mailbox:
    """The mailbox of one carrier, at an address in S3."""

    def __init__(self, s3: S3, address: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split(address)
        self._prefix = prefix.rstrip("/") + "/"

    def arrived(self) -> Dict[str, Set[str]]:
        """Attempt -> which messages about it are there."""
        found: Dict[str, Set[str]] = {}
        below = self._prefix + "in/"
        for it in self._s3.objects(self._bucket, below):
            attempt, _, message = it.key[len(below) :].partition("/")
            if ATTEMPT.fullmatch(attempt) and message in ("assign.json", "stop.json"):
                found.setdefault(attempt, set()).add(message[: -len(".json")])
        return found

    def ended(self) -> Set[str]:
        """Attempts that have ended: none of them is started again."""
        below = self._prefix + "out/"
        keys = (it.key[len(below) :] for it in self._s3.objects(self._bucket, below))
        return {key.partition("/")[0] for key in keys if key.endswith("/ended.json")}

    def assignment(self, attempt: str) -> Optional[Json]:
        """What is to run; None: nothing is, or nobody can read it."""
        content = self._s3.get(self._bucket, f"{self._prefix}in/{attempt}/assign.json")
        try:
            found = json.loads((content or b"").decode())
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def tell(self, attempt: str, what: str, report: Json) -> None:
        """Report `started` or `ended`. The first report stands."""
        body = json.dumps({"at": time.time(), **report}).encode()
        self._s3.put(self._bucket, f"{self._prefix}out/{attempt}/{what}.json", body, new=True)

    def tell_alive(self, report: Json) -> None:
        """Say that the agent is there."""
        body = json.dumps({"at": time.time(), **report}).encode()
        self._s3.put(self._bucket, f"{self._prefix}out/alive.json", body)

    def forget(self, attempt: str) -> None:
        """Take messages away whose attempt has ended, and was reported."""
        for message in ("assign", "stop"):
            self._s3.delete(self._bucket, f"{self._prefix}in/{attempt}/{message}.json")
