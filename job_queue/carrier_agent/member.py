"""One attempt of a member: its data, its command, its checkpoints and results, and the report of its end."""

import os
import re
import shutil
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from .files import Bounds, LimitExceeded
from .folders import Folders
from .mailbox import Mailbox
from .pace import Background, Pace, within
from .processes import ENDING_SECONDS, Processes, end_marked, log
from .s3 import S3, S3Error
from .transfer import Checkpoints, Unusable, fetch_channel, send_packed

Json = Dict[str, Any]

SYNC_SECONDS = 15.0  # between two copies of new checkpoints, and two measurements of the disk
POLL_SECONDS = 0.2  # between two checks for the end of the process and for a stop
GRACE_SECONDS = 100.0  # from SIGTERM to SIGKILL; SageMaker gives the carrier 120 s
SAVING_SECONDS = 120.0  # limit for saving files of a stopped member, from the end of its processes, by default
STALL_SECONDS = 120.0  # saving is given up if no byte is read or sent for this time
MOST_SAVING_SECONDS = 4 * 3600.0  # limit for saving files of a member that ended by itself, while bytes are sent
REMOVING_SECONDS = 30.0  # limit for removing files before the end is reported; the rest is removed in the background
MOST_REMOVING_SECONDS = 3600.0  # limit for removing files in the background
REASON_LENGTH = 1024  # characters
STUCK = "InternalServerError: processes could not be ended"


class Ended(Exception):
    """The end of an attempt: its status and its reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Member:
    """One attempt of a member, which runs in its own thread.

    :param assignment: see `mailbox`; its GPUs are allocated.
    :param freed: called when the member's processes have ended and its files are saved. The call precedes the report of
        the end, so the GPUs are free for the next member. `freed` is not called if processes are left (see `stuck`).
    :param done: called when the member's end is reported.
    """

    stuck = False  # whether some processes of the member could not be ended, so that its GPUs are not free

    def __init__(
        self,
        attempt: str,
        assignment: Json,
        gpu_variables: Dict[str, str],
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
        self._gpu_variables, self._s3, self._mailbox = gpu_variables, s3, mailbox
        self._freed, self._done = freed, done
        self._folders = Folders(base / "members" / attempt, self._request, attempt)
        self._stop = threading.Event()
        self._stop_reason = ""
        self._stopped_at: Optional[float] = None
        self._thread = threading.Thread(target=self._run, name=attempt)
        self._checkpoints: Optional[Checkpoints] = None
        self._syncing: Optional[Background[Any]] = None
        self._unsaved: List[str] = []
        disk = assignment.get("disk")
        self._disk = int(disk) if disk else shutil.disk_usage(str(base)).total
        self._saving_seconds = float(assignment.get("saving") or SAVING_SECONDS)
        self._exit: Optional[int] = None
        self._started: Optional[float] = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Stop the attempt: SIGTERM, then SIGKILL after its grace time. A second stop changes nothing."""
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stopped_at = time.monotonic()
            self._stop.set()

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def join(self) -> None:
        """Wait until the member's end is reported."""
        self._thread.join()

    def _run(self) -> None:
        try:
            ended = self._run_attempt()
        except Exception as error:  # the queue gets a report, and the other members continue
            self._log(f"the agent failed: {type(error).__name__}: {error}")
            ended = Ended("Failed", f"InternalServerError: the agent failed: {type(error).__name__}")
        if self.stuck:
            ended = Ended("Failed", STUCK)
        reason = ended.reason[:REASON_LENGTH]
        self._log(f"{ended.status.lower()}{': ' + reason if reason else ''}")
        self._remove()
        report = {
            "started": self._started,
            "status": ended.status,
            "reason": reason,
            "exit": self._exit,
            "sharing": self.sharing,
            "unsaved": "; ".join(self._unsaved)[:REASON_LENGTH],
        }
        if not self.stuck:
            self._freed(self)
        self._report(report)
        self._done(self)

    def _report(self, report: Json) -> None:
        """Report the end, and retry until S3 has the report.

        Without a report, the queue counts the attempt as running.
        """
        while True:
            try:
                self._mailbox.report(self.attempt, "ended", report)
                return
            except Exception as error:
                self._log(f"its end cannot be reported, again in 5 s: {error}")
                time.sleep(5)

    def _log(self, text: str) -> None:
        try:
            log(self.attempt, f"[agent] {text}")
        except (OSError, ValueError):  # the log is closed
            pass

    def _run_attempt(self) -> Ended:
        """Run the attempt, from the preparation of its files to saving them. Return its end."""
        try:
            self._clean()
            self._prepare()
            processes = self._begin()
        except Ended as early:
            return early
        try:
            ended = self._watch(processes)
        finally:
            if not processes.end():
                self.stuck = True
                self._log("processes could not be ended")
        return self._save(ended)

    # --- before ------------------------------------------------------------------------------------------

    def _clean(self) -> None:
        """End processes and remove files of this attempt that an earlier, killed agent has left."""
        if not end_marked(self._folders.root):
            self.stuck = True
            raise Ended("Failed", STUCK)
        self._remove()

    def _prepare(self) -> None:
        self._step("its folders", lambda pace: self._folders.make())
        bounds = Bounds(self._disk)
        config = self._request.get("CheckpointConfig")
        if config:
            self._step("CheckpointConfig", partial(self._restore, config["S3Uri"], bounds))
        for number, channel in enumerate(self._request.get("InputDataConfig") or []):
            self._step(f"InputDataConfig[{number}]", partial(self._fetch, channel, bounds))

    def _step(self, field: str, step: Callable[[Pace], None]) -> None:
        """Run a step until its end or a stop. If the step fails or is stopped, raise Ended.

        :param field: the field of the request that the step carries out. The reason of a failure names the field.
        """
        pace = Pace(stopped_at=lambda: self._stopped_at, after_stop=0)
        try:
            within(pace, partial(step, pace))
        except Exception as error:
            if self._stop.is_set():
                raise Ended("Stopped", self._stop_reason) from error
            self._log(f"{field}: {error}")
            raise Ended("Failed", f"ClientError: {field}: {cause(error)}") from error

    def _restore(self, address: str, bounds: Bounds, pace: Pace) -> None:
        folders = self._folders
        checkpoints = Checkpoints(
            self._s3, folders.opened, folders.parts(folders.checkpoints), address, self._disk, self._kms_key
        )
        checkpoints.restore(bounds, pace)
        self._checkpoints = checkpoints

    def _fetch(self, channel: Json, bounds: Bounds, pace: Pace) -> None:
        folders, source = self._folders, channel["DataSource"]["S3DataSource"]
        folder = folders.parts(folders.channels[channel["ChannelName"]])
        fetch_channel(self._s3, source, folders.opened, folder, bounds, pace)

    def _begin(self) -> Processes:
        if self._stop.is_set():
            raise Ended("Stopped", self._stop_reason)
        command = self._folders.command()
        if not command:
            raise Ended("Failed", "ClientError: the request names no ContainerEntrypoint")
        environment = {**self._folders.environment(os.environ), **self._gpu_variables}
        try:
            program = shutil.which(command[0], path=environment.get("PATH"))
            if program is None:
                raise Ended("Failed", "ClientError: the program of ContainerEntrypoint is not there")
            self._started = time.time()
            processes = Processes(self.attempt, [program, *command[1:]], self._folders.root, environment)
        except (OSError, ValueError) as error:
            self._log(f"it cannot be started: {error}")
            raise Ended(
                "Failed", f"ClientError: the program of ContainerEntrypoint cannot be started: {cause(error)}"
            ) from error
        try:
            self._mailbox.report(self.attempt, "started", {"sharing": self.sharing})
        except Exception as error:  # the end is reported in any case
            self._log(f"its start cannot be reported: {error}")
        return processes

    # --- while it runs -----------------------------------------------------------------------------------

    def _watch(self, processes: Processes) -> Ended:
        """Wait until the first process has ended, and return the end of the attempt.

        Measurements of the disk and copies of checkpoints run in their own threads, because the member's files or the
        network can make such steps slow. This thread notices a stop meanwhile.
        """
        limits = self._request.get("StoppingCondition") or {}
        until = time.monotonic() + float(limits.get("MaxRuntimeInSeconds") or 86_400)
        requested: Optional[Ended] = None
        killed_at = next_sync = 0.0
        measurement: Optional[Background[Any]] = None
        sync: Optional[Background[Any]] = None
        try:
            while True:
                self._exit = processes.wait(POLL_SECONDS)
                if self._exit is not None:
                    return requested or self._end_by_itself(self._exit)
                now = time.monotonic()
                if requested is None:
                    requested = self._requested_end(now, until)
                    if requested is not None:
                        processes.signal(signal.SIGTERM)
                        killed_at = now + float(self.assignment.get("grace") or GRACE_SECONDS)
                elif now >= killed_at:
                    processes.signal(signal.SIGKILL)
                    if now >= killed_at + ENDING_SECONDS:  # the kernel does not end the process
                        return requested
                if measurement is not None and measurement.join(0):
                    over = self._too_large(measurement)
                    if over is not None and (requested is None or killed_at > now):
                        requested, killed_at = over, now
                    measurement = None
                if now >= next_sync and measurement is None and (sync is None or sync.join(0)):
                    next_sync = now + SYNC_SECONDS
                    measurement, sync = Background(partial(self._folders.used, self._disk)), self._sync()
        finally:
            if sync is not None:
                sync.pace.cancel()
                self._syncing = sync

    def _requested_end(self, now: float, until: float) -> Optional[Ended]:
        if self._stop.is_set():
            return Ended("Stopped", self._stop_reason)
        return Ended("Stopped", "MaxRuntimeExceeded") if now >= until else None

    def _too_large(self, measurement: "Background[Any]") -> Optional[Ended]:
        """Return an end if the member uses more than its share of the disk, because other members need their shares."""
        try:
            measurement.result()
        except LimitExceeded as error:
            return Ended("Failed", f"ClientError: it uses {error}")
        except Exception as error:
            self._log(f"its files cannot be counted: {error}")
        return None

    def _sync(self) -> Optional["Background[Any]"]:
        """Start to copy changed checkpoints to S3 in the background. None: the member has no CheckpointConfig."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return None
        pace = Pace()

        def copy() -> None:
            try:
                unnamed = checkpoints.sync(pace)
                if unnamed:
                    self._log(f"{unnamed} checkpoint files are not saved, as their names cannot be those of objects")
            except Exception as error:
                if pace.left() > 0:
                    self._log(f"checkpoints are not saved now: {error}")

        return Background(copy, pace)

    def _end_by_itself(self, code: int) -> Ended:
        if code == 0:
            return Ended("Completed", "")
        try:
            message = within(Pace(10), lambda: self._folders.failed_with(REASON_LENGTH - 100))
        except OSError:
            message = ""
        return Ended("Failed", f"AlgorithmError: {message}, exit code: {code}")

    # --- after -------------------------------------------------------------------------------------------

    def _save(self, ended: Ended) -> Ended:
        """Save checkpoints and results after every end: SageMaker also saves both for stopped jobs.

        A member that was stopped or killed has its saving time for both: the seconds in its assignment, or
        `SAVING_SECONDS`. A member that ended by itself has `MOST_SAVING_SECONDS` while bytes are sent. If such a member
        is stopped meanwhile, it has its saving time from the stop.
        """
        by_itself = ended.status == "Completed" or ended.reason.startswith("AlgorithmError")
        pace = Pace(
            MOST_SAVING_SECONDS if by_itself else self._saving_seconds,
            STALL_SECONDS,
            lambda: self._stopped_at,
            self._saving_seconds,
        )
        if self._checkpoints is not None:
            self._save_part("checkpoints", partial(self._last_sync, self._checkpoints, pace), pace)
        output = (self._request.get("OutputDataConfig") or {}).get("S3OutputPath")
        if output:
            results = f"{output.rstrip('/')}/{self.attempt}/output"
            for folder in ("model", "output"):
                self._save_part("results", partial(self._send, folder, f"{results}/{folder}.tar.gz", pace), pace)
        if not self._unsaved or ended.status == "Stopped":  # the queue parses the reason of a stop
            return ended
        problem = "; ".join(self._unsaved)
        if ended.status == "Completed":
            return Ended("Failed", f"ClientError: {problem}")
        return Ended(ended.status, f"{ended.reason}; {problem}")

    def _last_sync(self, checkpoints: Checkpoints, pace: Pace) -> int:
        """Wait for the copy in progress, then copy the checkpoints that have changed since that copy began."""
        if self._syncing is not None:
            self._syncing.join(pace.left())
        pace.moved()
        return checkpoints.sync(pace)

    def _send(self, folder: str, address: str, pace: Pace) -> int:
        opened = self._folders.opened.below((folder,))
        scratch = str(self._folders.root.parent)
        return send_packed(self._s3, opened, address, scratch, self._disk, pace, self._kms_key)

    def _save_part(self, subject: str, step: Callable[[], int], pace: Pace) -> None:
        """Save some files. An error is logged and becomes a part of the report of the end.

        :param step: saves the files and returns the number of files that are left out.
        """
        try:
            left_out = within(pace, step)
        except Exception as error:
            self._log(f"{subject} not saved: {error}")
            self._unsaved.append(f"{subject} not saved: {cause(error)}")
            return
        if left_out:
            self._log(f"{subject}: {left_out} files are left out: special files, links that lead out, or odd names")

    def _remove(self) -> None:
        """Remove the tree. After `REMOVING_SECONDS`, the removal continues in the background."""
        removing = Background(partial(self._folders.remove, Pace(MOST_REMOVING_SECONDS)))
        if not removing.join(REMOVING_SECONDS):
            self._log("its files are still being removed")

    @property
    def _kms_key(self) -> Optional[str]:
        return (self._request.get("OutputDataConfig") or {}).get("KmsKeyId")


def cause(error: BaseException) -> str:
    """Return the cause of an error, without text of a request or a member, because other users can read reasons."""
    if isinstance(error, S3Error):  # messages of S3Error name objects
        answer = re.search(r": (\d{3} [A-Za-z]*)$", str(error))
        if answer:
            return f"S3 answered {answer[1]}"
        return str(error) if isinstance(error, Unusable) else "S3 did not answer the request"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__
