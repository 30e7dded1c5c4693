"""The agent's loop: reads its mailbox, starts and stops members, and reports that it works."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List, Optional

from .gpus import Gpus, Taken, listed
from .mailbox import CARRIER, ForeignAgent, Mailbox, key_line
from .member import Member
from .processes import adopt_orphans, protect, say
from .s3 import S3, CredentialSource, S3Error

POLL_SECONDS = 2.0
LOOKS_FOR_LOG = 2  # intervals of polling that a line takes at most, as a rule, until CloudWatch Logs shows it
ALIVE_SECONDS = 15.0


class Agent:
    """Runs members until it is told to end.

    :param base: the carrier's own /opt/ml, in which each member gets a tree.
    """

    def __init__(self, s3: S3, mailbox: Mailbox, gpus: Gpus, base: Path, poll: float = POLL_SECONDS) -> None:
        self._s3, self._mailbox, self._gpus, self._base, self._poll = s3, mailbox, gpus, base, poll
        self._members: Dict[str, Member] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._wake = threading.Event()

    def close(self, number: int = 0, frame: object = None) -> None:
        """SageMaker stops the carrier, or a person does: all members stop, and save what they have."""
        self._closing.set()
        self._wake.set()

    def run(self) -> None:
        """Run until `close`. Raise ForeignAgent if another program has introduced itself as this agent."""
        say(CARRIER, key_line(self._mailbox.public))
        self._closing.wait(LOOKS_FOR_LOG * self._poll)
        self._introduce()
        alive = threading.Thread(target=self._stay_alive, daemon=True)
        alive.start()
        say(CARRIER, "[agent] ready")
        while not self._closing.is_set():
            try:
                self._look()
            except (S3Error, OSError) as error:
                say(CARRIER, f"[agent] the mailbox cannot be read: {error}")
            self._wake.wait(self._poll)
            self._wake.clear()
        with self._lock:
            left = list(self._members.values())
        for member in left:
            member.stop("the carrier was stopped")
        for member in left:
            member.join()
        self._gpus.close()
        say(CARRIER, "[agent] closed")

    def _introduce(self) -> None:
        while True:
            try:
                return self._mailbox.introduce()
            except (S3Error, OSError) as error:
                say(CARRIER, f"[agent] the agent's key cannot be published: {error}")
                if self._closing.wait(self._poll):
                    return None

    def _look(self) -> None:
        """Look into the mailbox once. A stop that comes before its assignment ends the attempt before it begins."""
        for attempt, messages in sorted(self._mailbox.arrived().items()):
            with self._lock:
                member = self._members.get(attempt)
            if member is not None:
                if "stop" in messages and not member.is_stopping and self._mailbox.is_stopped(attempt):
                    member.stop("the queue asked for it")
            elif "assign" in messages:
                self._begin(attempt, may_be_stopped="stop" in messages)

    def _begin(self, attempt: str, *, may_be_stopped: bool) -> None:
        try:
            assignment = self._mailbox.assignment(attempt)
        except (ValueError, TypeError) as error:
            say(attempt, f"[agent] its assignment cannot be read: {error}")
            self._refuse(attempt, "Failed", "InternalServerError: its assignment cannot be read")
            return
        if assignment is None:
            return
        if may_be_stopped and self._mailbox.is_stopped(attempt):
            self._refuse(attempt, "Stopped", "the queue asked for it")
            return
        try:
            gpus, tenths = listed(assignment.get("gpus", [])), int(assignment.get("tenths", 10))
            with self._lock:
                self._gpus.take(gpus, tenths)
        except (Taken, ValueError, TypeError) as error:
            self._refuse(attempt, "Failed", f"InternalServerError: {error}")
            return
        assignment.setdefault("disk", self._share_of_disk(len(gpus) * tenths))
        try:
            sharing, environment = self._gpus.environment(gpus, tenths)
            member = Member(
                attempt,
                assignment,
                environment,
                sharing,
                self._base,
                self._s3,
                self._mailbox,
                freed=self._free,
                done=self._forget,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            say(attempt, f"[agent] its request cannot be run: {error}")
            self._refuse(attempt, "Failed", "ClientError: its request cannot be run; its log says why")
            with self._lock:
                self._gpus.give_back(gpus, tenths)
            return
        with self._lock:
            self._members[attempt] = member
        say(attempt, f"[agent] on GPU {', '.join(map(str, gpus))}{'' if tenths == 10 else f', {tenths}/10 of it'}")
        member.start()

    def _share_of_disk(self, tenths: int) -> int:
        """Bytes that a member may have: of the carrier's disk as much as of its GPUs, and a tenth is nobody's."""
        return int(shutil.disk_usage(str(self._base)).total * 0.9 * tenths / self._gpus.tenths)

    def _refuse(self, attempt: str, status: str, reason: str) -> None:
        say(attempt, f"[agent] {status.lower()}: {reason}")
        self._mailbox.report(attempt, "ended", {"started": None, "status": status, "reason": reason})

    def _free(self, member: Member) -> None:
        """No process of it is left: who comes next may have its GPUs."""
        with self._lock:
            self._gpus.give_back(member.assignment["gpus"], int(member.assignment.get("tenths", 10)))

    def _forget(self, member: Member) -> None:
        """Its end is reported. A member whose processes cannot be ended keeps its GPUs: the carrier ends."""
        if member.stuck:
            say(CARRIER, f"[agent] processes of {member.attempt} cannot be ended: closing")
            self.close()
        with self._lock:
            del self._members[member.attempt]
        self._wake.set()

    def _stay_alive(self) -> None:
        """Report again and again that the agent works. The queue stops a carrier whose reports stay out."""
        while True:
            with self._lock:
                members = sorted(self._members)
            try:
                self._mailbox.beat(members)
            except (S3Error, OSError) as error:
                say(CARRIER, f"[agent] the heartbeat cannot be written: {error}")
            time.sleep(ALIVE_SECONDS)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the agent of this container: its hyperparameters say where its mailbox is, and how many GPUs there are."""
    config = Path((arguments or sys.argv[1:])[0])
    base = config.parents[1]
    settings = json.loads((config / "hyperparameters.json").read_text(encoding="utf-8"))
    s3 = S3(CredentialSource())
    adopt_orphans()
    protect()
    gpus = Gpus(int(settings["gpus"]), base / "mps")
    mailbox = Mailbox(s3, settings["mailbox"], int(settings["order_key"], 16), int(settings["queue_key"], 16))
    agent = Agent(s3, mailbox, gpus, base, float(settings.get("poll") or POLL_SECONDS))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, agent.close)
    try:
        agent.run()
    except ForeignAgent as error:
        say(CARRIER, f"[agent] closed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())
