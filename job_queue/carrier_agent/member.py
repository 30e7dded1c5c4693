"""One attempt of a member, from its assignment to its report."""

import os
import shutil
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from .folders import Folders
from .mailbox import Mailbox
from .processes import Processes, end_marked, say
from .s3 import S3, S3Error
from .transfer import Checkpoints, fetch_channel, send_packed

Json = Dict[str, Any]

SYNC_SECONDS = 15.0  # between two looks for new checkpoints, and at the disk
LOOK_SECONDS = 0.2  # between two looks whether the process has ended or a stop has come
GRACE_SECONDS = 100.0  # from SIGTERM to SIGKILL; SageMaker gives the carrier 120 s
REASON_LENGTH = 1024


class Ended(Exception):
    """The attempt is over before its command was: how, and why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Member:
    """Runs an attempt in a thread of its own.

    :param assignment: see `mailbox`; its GPUs are taken.
    :param freed: called when no process of it is left and its files are saved, before its end is reported: whoever is
        assigned to its GPUs after that finds them free.
    :param done: called when its end is reported.
    """

    def __init__(
        self,
        attempt: str,
        assignment: Json,
        gpus: Dict[str, str],
        sharing: str,
        base: Path,
        s3: S3,
        mailbox: Mailbox,
        freed: "Callable[[Member], None]",
        done: "Callable[[Member], None]",
    ) -> None:
        self.attempt = attempt
        self.assignment = assignment
        self.sharing = sharing
        self._request: Json = assignment["request"]
        self._gpus, self._s3, self._mailbox = gpus, s3, mailbox
        self._freed, self._done = freed, done
        self._folders = Folders(base / "members" / attempt, self._request, attempt)
        self._stop = threading.Event()
        self._stop_reason = ""
        self._thread = threading.Thread(target=self._run, name=attempt)
        self._checkpoints: Optional[Checkpoints] = None
        self._exit: Optional[int] = None
        self._started: Optional[float] = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Have it end: SIGTERM, and SIGKILL once its grace is over. A second stop changes nothing."""
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stop.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stop.is_set()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            ended = self._live()
        except Exception as error:  # whatever it is, the others go on, and the queue hears of it
            ended = Ended("Failed", f"InternalServerError: the agent failed: {type(error).__name__}: {error}")
        say(self.attempt, f"[smq] {ended.status.lower()}{': ' + ended.reason if ended.reason else ''}")
        self._folders.remove()
        report = {
            "started": self._started,
            "status": ended.status,
            "reason": ended.reason[:REASON_LENGTH],
            "exit": self._exit,
            "sharing": self.sharing,
        }
        self._freed(self)
        self._report(report)
        self._done(self)

    def _report(self, report: Json) -> None:
        """Tell of the end, until it is told: before, the queue takes it for running."""
        while True:
            try:
                self._mailbox.report(self.attempt, "ended", report)
                return
            except (S3Error, OSError) as error:
                say(self.attempt, f"[smq] its end cannot be reported, again in 5 s: {error}")
                time.sleep(5)

    def _live(self) -> Ended:
        try:
            self._prepare()
            processes = self._begin()
        except Ended as early:
            return early
        except (S3Error, OSError, ValueError, KeyError) as error:
            return Ended("Failed", f"ClientError: {error}")
        try:
            ended = self._watch(processes)
        finally:
            processes.end()
        return self._save(ended)

    # --- before ------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        end_marked(self._folders.root)  # of an agent before this one, which was killed
        self._folders.remove()
        self._folders.make()
        config = self._request.get("CheckpointConfig")
        if config:
            self._checkpoints = Checkpoints(self._s3, self._folders.checkpoints, config["S3Uri"], self._kms_key)
            self._checkpoints.restore()
        for channel in self._request.get("InputDataConfig") or []:
            if self._stop.is_set():
                raise Ended("Stopped", self._stop_reason)
            source = channel["DataSource"]["S3DataSource"]
            fetch_channel(self._s3, source, self._folders.channels[channel["ChannelName"]])

    def _begin(self) -> Processes:
        if self._stop.is_set():
            raise Ended("Stopped", self._stop_reason)
        command = self._folders.command()
        if not command:
            raise Ended("Failed", "ClientError: the request names no ContainerEntrypoint")
        environment = {**self._folders.environment(os.environ), **self._gpus}
        program = shutil.which(command[0], path=environment.get("PATH"))
        if program is None:
            raise Ended("Failed", f"ClientError: {command[0]} is not there")
        self._started = time.time()
        processes = Processes(self.attempt, [program, *command[1:]], self._folders.root, environment)
        self._mailbox.report(self.attempt, "started", {"sharing": self.sharing})
        return processes

    # --- while it runs -----------------------------------------------------------------------------------

    def _watch(self, processes: Processes) -> Ended:
        """Until its first process has ended; how."""
        limits = self._request.get("StoppingCondition") or {}
        until = time.monotonic() + float(limits.get("MaxRuntimeInSeconds") or 86_400)
        asked: Optional[Ended] = None
        killed_at = next_look = 0.0
        while True:
            self._exit = processes.wait(LOOK_SECONDS)
            if self._exit is not None:
                return asked or self._as_it_ended(self._exit)
            now = time.monotonic()
            if asked is None:
                asked = self._asked(now, until)
                if asked is not None:
                    processes.signal(signal.SIGTERM)
                    killed_at = now + float(self.assignment.get("grace") or GRACE_SECONDS)
            elif now >= killed_at:
                processes.signal(signal.SIGKILL)
            if now >= next_look:
                next_look = now + SYNC_SECONDS
                self._sync()
                asked = self._too_large(processes) or asked

    def _asked(self, now: float, until: float) -> Optional[Ended]:
        if self._stop.is_set():
            return Ended("Stopped", self._stop_reason)
        return Ended("Stopped", "MaxRuntimeExceeded") if now >= until else None

    def _too_large(self, processes: Processes) -> Optional[Ended]:
        """It uses more of the disk than it may: it ends at once, or the others would have none."""
        most = self.assignment.get("disk")
        if not most or self._folders.used() <= most:
            return None
        processes.signal(signal.SIGKILL)
        return Ended("Failed", f"ClientError: it uses more than its {int(most) >> 20} MiB of the carrier's disk")

    def _sync(self) -> None:
        if self._checkpoints is not None:
            try:
                self._checkpoints.sync()
            except (S3Error, OSError) as error:
                say(self.attempt, f"[smq] checkpoints are not saved now: {error}")

    def _as_it_ended(self, code: int) -> Ended:
        if code == 0:
            return Ended("Completed", "")
        try:
            said = self._folders.failure.read_bytes()[: REASON_LENGTH * 4].decode("utf-8", "replace").strip()
        except OSError:
            said = ""
        return Ended("Failed", f"AlgorithmError: {said}, exit code: {code}")

    # --- after -------------------------------------------------------------------------------------------

    def _save(self, ended: Ended) -> Ended:
        """Checkpoints whatever the end is; results too, as SageMaker saves them of jobs that were stopped."""
        problems: List[str] = []
        if self._checkpoints is not None:
            self._try(self._checkpoints.sync, problems)
        output = (self._request.get("OutputDataConfig") or {}).get("S3OutputPath")
        if output:
            home = f"{output.rstrip('/')}/{self.attempt}/output"
            for folder, name in ((self._folders.model, "model"), (self._folders.output, "output")):
                if any(path.is_file() for path in folder.rglob("*")):
                    self._try(partial(self._send, folder, f"{home}/{name}.tar.gz"), problems)
        if problems and ended.status == "Completed":
            return Ended("Failed", f"ClientError: what it has made could not be saved: {problems[0]}")
        return ended

    def _send(self, folder: Path, address: str) -> None:
        send_packed(self._s3, folder, address, self._folders.temporary, self._kms_key)

    def _try(self, step: Callable[[], None], problems: List[str]) -> None:
        try:
            step()
        except (S3Error, OSError) as error:
            problems.append(str(error))
            say(self.attempt, f"[smq] not saved: {error}")

    @property
    def _kms_key(self) -> Optional[str]:
        return (self._request.get("OutputDataConfig") or {}).get("KmsKeyId")
