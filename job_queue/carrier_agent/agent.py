"""The agent's main loop: it reads its mailbox, starts and stops members, and reports that it is alive."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from .gpus import Gpus, InvalidAssignment, gpu_numbers
from .mailbox import CARRIER, ForeignAgent, Mailbox, key_line
from .member import Member
from .processes import adopt_orphans, log, protect
from .s3 import S3, CredentialSource, S3Error

POLL_SECONDS = 2.0
# Polling intervals between logging the key's digest and publishing the key. Usually, CloudWatch Logs shows the digest
# by then.
LOG_DELAY_POLLS = 2
ALIVE_SECONDS = 15.0  # between two heartbeats


class Agent:
    """The agent of a carrier, which runs members until `close`.

    :param base: the carrier's own /opt/ml, in which each member gets a tree.
    """

    def __init__(self, s3: S3, mailbox: Mailbox, gpus: Gpus, base: Path, poll: float = POLL_SECONDS) -> None:
        self._s3, self._mailbox, self._gpus, self._base, self._poll = s3, mailbox, gpus, base, poll
        self._members: Dict[str, Member] = {}
        self._refusals: Dict[str, Dict[str, Any]] = {}  # attempt -> report of its refusal that S3 does not have yet
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._wake = threading.Event()

    def close(self, number: int = 0, frame: object = None) -> None:
        """Let `run` return, after all members have been stopped and have saved their files.

        The method is also the handler of signals, hence the parameters.
        """
        self._closing.set()
        self._wake.set()

    def run(self) -> None:
        """Run until `close`. Raise ForeignAgent if another program has published a key as this carrier's agent."""
        log(CARRIER, key_line(self._mailbox.public))
        self._closing.wait(LOG_DELAY_POLLS * self._poll)
        self._introduce()
        alive = threading.Thread(target=self._stay_alive, daemon=True)
        alive.start()
        log(CARRIER, "[agent] ready")
        while not self._closing.is_set():
            try:
                self._poll_mailbox()
            except Exception as error:  # an error of one poll must not end the members
                log(CARRIER, f"[agent] the mailbox cannot be read: {error}")
            self._wake.wait(self._poll)
            self._wake.clear()
        with self._lock:
            left = list(self._members.values())
        for member in left:
            member.stop("the carrier was stopped")
        for member in left:
            member.join()
        self._gpus.close()
        log(CARRIER, "[agent] closed")

    def _introduce(self) -> None:
        while True:
            try:
                return self._mailbox.introduce()
            except (S3Error, OSError) as error:
                log(CARRIER, f"[agent] the agent's key cannot be published: {error}")
                if self._closing.wait(self._poll):
                    return None

    def _poll_mailbox(self) -> None:
        """Read the mailbox once. If a stop order arrives together with the assignment, the attempt does not begin."""
        for attempt in list(self._refusals):
            self._report_refusal(attempt)
        for attempt, messages in sorted(self._mailbox.arrived().items()):
            try:
                self._obey(attempt, messages)
            except Exception as error:  # an error of one attempt must not delay the orders of others
                log(attempt, f"[agent] its order cannot be carried out: {type(error).__name__}: {error}")

    def _obey(self, attempt: str, messages: Set[str]) -> None:
        """Carry out the orders about an attempt: `assign`, `stop`, or both."""
        with self._lock:
            member = self._members.get(attempt)
        if member is not None:
            if "stop" in messages and not member.is_stopping and self._mailbox.is_stopped(attempt):
                member.stop("the queue asked for it")
        elif "assign" in messages and attempt not in self._refusals:
            self._begin(attempt, may_be_stopped="stop" in messages)

    def _begin(self, attempt: str, *, may_be_stopped: bool) -> None:
        try:
            assignment = self._mailbox.assignment(attempt)
        except (ValueError, TypeError, KeyError) as error:
            log(attempt, f"[agent] its assignment cannot be read: {error}")
            self._refuse(attempt, "Failed", "InternalServerError: its assignment cannot be read")
            return
        if assignment is None:
            return
        if may_be_stopped and self._is_stopped(attempt):
            self._refuse(attempt, "Stopped", "the queue asked for it")
            return
        try:
            gpus, tenths = gpu_numbers(assignment.get("gpus", [])), int(assignment.get("tenths", 10))
            with self._lock:
                self._gpus.take(gpus, tenths)
        except (InvalidAssignment, ValueError, TypeError) as error:
            self._refuse(attempt, "Failed", f"InternalServerError: {error}")
            return
        try:
            assignment.setdefault("disk", self._share_of_disk(len(gpus) * tenths))
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
        except Exception as error:  # the queue gets a report, and the other members continue
            with self._lock:
                self._gpus.give_back(gpus, tenths)
            log(attempt, f"[agent] its request cannot be run: {type(error).__name__}: {error}")
            fault = "InternalServerError" if isinstance(error, OSError) else "ClientError"
            self._refuse(attempt, "Failed", f"{fault}: its request cannot be run; its log says why")
            return
        log(attempt, f"[agent] on GPU {', '.join(map(str, gpus))}{'' if tenths == 10 else f', {tenths}/10 of it'}")
        with self._lock:
            self._members[attempt] = member
        try:
            member.start()
        except RuntimeError as error:  # the container has reached its limit of threads
            with self._lock:
                del self._members[attempt]
                self._gpus.give_back(gpus, tenths)
            self._refuse(attempt, "Failed", f"InternalServerError: {error}")

    def _is_stopped(self, attempt: str) -> bool:
        """Return whether the queue has ordered the stop of an assigned attempt.

        An order that S3 does not return now is read by a later poll.
        """
        try:
            return self._mailbox.is_stopped(attempt)
        except S3Error as error:
            log(attempt, f"[agent] its stop order cannot be read: {error}")
            return False

    def _share_of_disk(self, tenths: int) -> int:
        """Return the bytes that a member may use: its share of the carrier's GPUs is also its share of the disk.

        A tenth of the disk is kept free.

        :param tenths: tenths of GPUs of the member.
        """
        return int(shutil.disk_usage(str(self._base)).total * 0.9 * tenths / self._gpus.total_tenths)

    def _refuse(self, attempt: str, status: str, reason: str) -> None:
        log(attempt, f"[agent] {status.lower()}: {reason}")
        self._refusals[attempt] = {"started": None, "status": status, "reason": reason}
        self._report_refusal(attempt)

    def _report_refusal(self, attempt: str) -> None:
        """Report that an attempt was refused. If that fails, the next poll retries.

        Without a report, the queue counts the attempt as running.
        """
        try:
            self._mailbox.report(attempt, "ended", self._refusals[attempt])
        except (S3Error, OSError) as error:
            log(attempt, f"[agent] its refusal cannot be reported now: {error}")
        else:
            del self._refusals[attempt]

    def _free(self, member: Member) -> None:
        """Release the GPUs of a member whose processes have all ended."""
        with self._lock:
            self._gpus.give_back(member.assignment["gpus"], int(member.assignment.get("tenths", 10)))

    def _forget(self, member: Member) -> None:
        """Remove a member whose end is reported.

        If the member's processes cannot be ended, also close the agent, because the member's GPUs never become free.
        """
        if member.stuck:
            log(CARRIER, f"[agent] processes of {member.attempt} cannot be ended: closing")
            self.close()
        with self._lock:
            del self._members[member.attempt]
        self._wake.set()

    def _stay_alive(self) -> None:
        """Report repeatedly that the agent is alive. The queue stops a carrier whose heartbeats are missing."""
        while True:
            with self._lock:
                members = sorted(self._members)
            try:
                self._mailbox.beat(members)
            except Exception as error:  # without heartbeats the queue stops the carrier
                log(CARRIER, f"[agent] the heartbeat cannot be written: {error}")
            time.sleep(ALIVE_SECONDS)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the agent of this container. The container's hyperparameters name its mailbox and its number of GPUs."""
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
        log(CARRIER, f"[agent] closed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())
