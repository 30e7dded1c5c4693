"""The processes of one job while they run, with their logs and checkpoints."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.instance import Instance
from local_cloud.sagemaker.job_processes.log_streams import LogStream
from local_cloud.sagemaker.job_processes.process import ContainerProcess, ProcessLaunch, kill_marked, signal_marked
from local_cloud.sagemaker.job_processes.storage import CheckpointSync, TransferError

_log = logging.getLogger(__name__)

# seconds; if one instance fails during a stop and the others run on for this time, the job fails
FAILED_ALONE_AFTER = 1.0
LOG_PERIOD = 0.3  # seconds
SYNC_PERIOD = 1.0  # seconds
_TICK = 0.05  # seconds


@dataclass(frozen=True)
class Grace:
    """Seconds between SIGTERM and SIGKILL. AWS always waits 120 s; here a process without a handler gets less time."""

    handled: float
    """The time for a container whose first process handles SIGTERM."""
    unhandled: float
    """The time for a container whose first process does not handle SIGTERM and so works on until SIGKILL."""


class Execution:
    """The running processes of a job, one for each instance.

    :param logs: a boto3 client of CloudWatch Logs.
    :param sync: the copying of checkpoints to S3; None if there is no CheckpointConfig.
    :param log_delay: returns the seconds by which the lines of a log stream arrive late; called once for each stream.
    """

    def __init__(
        self,
        cluster: Cluster,
        instances: Sequence[Instance],
        logs: Any,
        sync: CheckpointSync | None,
        log_delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._cluster = cluster
        self._instances = instances
        self._logs = logs
        self._sync = sync
        self._log_delay = log_delay
        self._processes: list[ContainerProcess] = []
        self._streams: list[LogStream] = []
        self._next_log = self._next_sync = 0.0

    def start(self) -> None:
        """Start all processes and create their log streams."""
        for instance in self._instances:
            launch = ProcessLaunch(
                instance.command, instance.environment(), instance.cwd, instance.stage, instance.mounts
            )
            self._processes.append(ContainerProcess(launch, instance.output))
        now = int(time.time())
        self._streams = [
            LogStream(self._logs, f"{self._cluster.name}/{instance.host}-{now}", instance.output, self._log_delay())
            for instance in self._instances
        ]

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts."""
        return [instance.host for instance in self._instances]

    def instance(self, host: str) -> Instance | None:
        """Return the instance of that host while its process runs, else None.

        Another thread may still be starting the processes. Then an instance without a process gives None.
        """
        started = zip(self._instances, tuple(self._processes), strict=False)
        return next((it for it, process in started if it.host == host and process.exit_code() is None), None)

    def exit_codes(self) -> list[tuple[Instance, int | None]]:
        """Return each instance with the exit code of its process, which is None while the process runs."""
        return [
            (instance, process.exit_code()) for instance, process in zip(self._instances, self._processes, strict=True)
        ]

    def done(self) -> bool:
        """Return whether all started processes have ended."""
        return all(process.exit_code() is not None for process in self._processes)

    def stop(self, grace: Grace, hurry: threading.Event | None = None) -> tuple[Instance, int] | None:
        """Send SIGTERM, then SIGKILL when the grace period is over or `hurry` is set.

        If one instance fails and others still run FAILED_ALONE_AFTER seconds later, the job has failed: return the
        failed instance and its exit code. Otherwise return None.
        """
        began = time.monotonic()
        handles = [process.terminate() for process in self._processes]
        failed_at: float | None = None
        while not self.done() and not (hurry and hurry.is_set()):
            now = time.monotonic()
            left = [handled for handled, (_, code) in zip(handles, self.exit_codes(), strict=True) if code is None]
            if now >= began + (grace.handled if any(left) else min(grace.handled, grace.unhandled)):
                break
            if failure := next(((instance, code) for instance, code in self.exit_codes() if code), None):
                failed_at = failed_at or now
                if now >= failed_at + FAILED_ALONE_AFTER:
                    self.kill()
                    return failure
            self.report()
            time.sleep(_TICK)
        self.kill()
        return None

    def suspend(self) -> None:
        """Send SIGSTOP to every process. The processes exist and do nothing more; SIGKILL still ends them."""
        self._signal(signal.SIGSTOP)
        signal_marked(str(self._cluster.folder), signal.SIGSTOP)

    def kill(self) -> None:
        """Send SIGKILL to every process, including processes that have left their process group."""
        self._signal(signal.SIGKILL)
        while not self.done():
            time.sleep(0.002)
        kill_marked(str(self._cluster.folder))

    def report(self, *, last: bool = False) -> None:
        """Upload logs and checkpoints, each at most once in its period. With `last`, upload both now.

        A failed upload of checkpoints is logged and tried again. With `last`, a failed upload raises TransferError.
        """
        now = time.monotonic()
        if last or now >= self._next_log:
            for stream in self._streams:
                stream.ship(last=last)
            self._next_log = now + LOG_PERIOD
        if self._sync and (last or now >= self._next_sync):
            try:
                self._sync.sync()
            except TransferError as error:
                if last:
                    raise
                _log.warning("Checkpoints of %s: %s; trying again", self._cluster.name, error)
            self._next_sync = time.monotonic() + SYNC_PERIOD

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.signal(number)
