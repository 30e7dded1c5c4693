"""Runs one training job from its start to its end, on a thread of its own."""

import logging
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cloud.container import Gang, Instance
from local_cloud.failures import failure_reason
from local_cloud.jobs import TrainingJob
from local_cloud.logs import LogStream
from local_cloud.process import MARK, Launch, Process, kill_marked
from local_cloud.requirements import InstallError, install
from local_cloud.storage import CheckpointSync, Storage, TransferError

_log = logging.getLogger(__name__)

TICK = 0.05  # seconds between two looks at the processes
LOG_PERIOD = 0.3
SYNC_PERIOD = 1.0
SHUTDOWN_GRACE = 1.0


@dataclass(frozen=True)
class Machine:
    """What the jobs of one service share."""

    workdir: Path
    s3: Any
    logs: Any
    mounted: bool
    """Whether /opt/ml can be had."""
    environment: Mapping[str, str]
    stop_grace: float
    """Seconds between SIGTERM and SIGKILL."""
    startup_delay: float
    """Seconds that a job stays in Starting."""


@dataclass(frozen=True)
class _End:
    status: str
    secondary: str
    message: str
    failure_reason: str | None = None


_COMPLETED = _End("Completed", "Completed", "Training job completed")
_STOPPED = _End("Stopped", "Stopped", "Training job stopped")
_TIMED_OUT = _End("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided")


def _failed(reason: str) -> _End:
    return _End("Failed", "Failed", "Training job failed", reason)


class _Shutdown(Exception):
    """The service ends: the job's state does not matter any more."""


class JobRunner:
    """The thread and the processes of one job; `number` makes its folder's name, which must be short."""

    def __init__(self, job: TrainingJob, machine: Machine, number: int) -> None:
        self._job = job
        self._machine = machine
        self._folder = machine.workdir / str(number)
        self._storage = Storage(machine.s3, self._folder)
        self._shutdown = threading.Event()
        self._processes: list[Process] = []
        self._streams: list[LogStream] = []
        self._sync: CheckpointSync | None = None
        self._thread = threading.Thread(target=self._main, name=f"training-{job.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def shut_down(self) -> None:
        """Ask it to end everything, without SageMaker's ceremony; returns at once."""
        self._shutdown.set()
        self._job.stop_asked.set()  # wakes the thread

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout)

    def _main(self) -> None:
        try:
            end = self._run()
        except _Shutdown:
            self._terminate(SHUTDOWN_GRACE)
            return
        except (TransferError, InstallError) as error:
            end = _failed(f"ClientError: {error}"[:1024])
        except Exception as error:
            _log.exception("The emulator failed to run %s", self._job.name)
            end = _failed(f"InternalServerError: the emulator failed: {error}"[:1024])
        finally:
            self._clean()
        self._job.end(end.status, end.secondary, end.message, failure_reason=end.failure_reason)

    def _run(self) -> _End:
        job = self._job
        if self._cancelled(self._machine.startup_delay):
            return _STOPPED
        job.progress("Downloading", "Downloading input data")
        self._folder.mkdir(parents=True)
        gang = self._gang()
        if not gang.entrypoint and not gang.script:
            return _failed(
                "ClientError: the local cloud does not run images: give AlgorithmSpecification.ContainerEntrypoint, or "
                "the hyperparameters sagemaker_program and sagemaker_submit_directory"
            )
        instances = [Instance(gang, host) for host in gang.hosts]
        self._download(gang, instances)
        if self._cancelled():
            return _STOPPED
        job.progress("Training", "Training image download completed. Training in progress.")
        self._launch(instances)
        end = self._watch(instances)
        self._report(last=True)
        return self._upload(instances, end)

    def _cancelled(self, seconds: float = 0.0) -> bool:
        """Wait, or until the job is to be stopped."""
        stop = self._job.stop_asked.wait(seconds)
        if self._shutdown.is_set():
            raise _Shutdown
        return stop

    def _gang(self) -> Gang:
        return Gang(
            name=self._job.name,
            arn=self._job.arn,
            request=self._job.request,
            groups=self._job.groups,
            folder=self._folder,
            master_port=_free_port(),
            mounted=self._machine.mounted,
            base_environment={**self._machine.environment, MARK: str(self._folder)},
        )

    def _download(self, gang: Gang, instances: list[Instance]) -> None:
        for instance in instances:
            instance.prepare()
        if "CheckpointConfig" in gang.request:
            self._sync = CheckpointSync(self._storage, gang.checkpoints, gang.request["CheckpointConfig"]["S3Uri"])
            self._sync.restore()
        for instance in instances:
            for channel in gang.channels:
                source, target = channel["DataSource"]["S3DataSource"], instance.root / "input/data"
                groups = source.get("InstanceGroupNames")
                if not groups or gang.group_of(instance.host).name in groups:
                    self._storage.download_channel(
                        source, target / channel["ChannelName"], instance.shard, len(instances)
                    )
        if gang.script and not gang.entrypoint:
            self._fetch_code(gang, instances)

    def _fetch_code(self, gang: Gang, instances: list[Instance]) -> None:
        where = str(gang.hyperparameters.get("sagemaker_submit_directory", ""))
        archive = gang.folder / "sourcedir.tar.gz"
        if where.startswith("/opt/ml/"):  # the SDK puts it in a channel where the network is isolated
            archive = instances[0].root / where.removeprefix("/opt/ml/")
        else:
            self._storage.download(where, archive)
        for instance in instances:
            instance.unpack_code(archive)
        requirements = instances[0].root / "code" / "requirements.txt"
        if requirements.is_file():
            target = gang.folder / "packages"
            if install(requirements, target, self._job.stop_asked):
                gang.python_path.append(str(target))

    def _launch(self, instances: list[Instance]) -> None:
        epoch = int(time.time())
        for instance in instances:
            launch = Launch(instance.command, instance.environment(), instance.cwd, instance.stage, instance.mounts)
            self._processes.append(Process(launch, instance.output))
            name = f"{self._job.name}/{instance.host}-{epoch}"
            self._streams.append(LogStream(self._machine.logs, name, instance.output))

    def _watch(self, instances: list[Instance]) -> _End:
        """Until all instances are done, or one has failed, or a stop is due."""
        deadline = time.monotonic() + self._job.max_runtime
        while (end := self._outcome(instances)) is None:
            if self._cancelled(TICK):
                return self._stop(instances, _STOPPED)
            if time.monotonic() > deadline:
                self._job.begin_stopping("MaxRuntimeInSeconds is over: stopping the training job")
                return self._stop(instances, _TIMED_OUT)
            self._report()
        self._terminate(0)
        return end

    def _outcome(self, instances: list[Instance]) -> _End | None:
        """How the script has ended by itself, if it has."""
        codes = [process.exit_code() for process in self._processes]
        for instance, code in zip(instances, codes, strict=True):
            if code:
                return _failed(failure_reason(instance, code))
        return _COMPLETED if all(code == 0 for code in codes) else None

    def _stop(self, instances: list[Instance], end: _End) -> _End:
        """SIGTERM, the grace period, SIGKILL; a script that was done before the signal has its own end."""
        if own_end := self._outcome(instances):
            self._terminate(0)
            return own_end
        self._terminate(self._machine.stop_grace, self._report)
        return end

    def _terminate(self, grace: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """End what still runs."""
        deadline = time.monotonic() + grace
        if grace:
            self._signal(signal.SIGTERM)
        while any(process.exit_code() is None for process in self._processes):
            if time.monotonic() > deadline or (self._shutdown.is_set() and grace > SHUTDOWN_GRACE):
                self._signal(signal.SIGKILL)
            meanwhile()
            time.sleep(TICK)
        kill_marked(str(self._folder))

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.signal(number)

    _next_log = 0.0
    _next_sync = 0.0

    def _report(self, *, last: bool = False) -> None:
        """Ship logs and checkpoints, if their time has come."""
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
                _log.warning("Checkpoints of %s: %s; trying again", self._job.name, error)
            self._next_sync = time.monotonic() + SYNC_PERIOD

    def _upload(self, instances: list[Instance], end: _End) -> _End:
        """The artifacts; a failed job has no model, but keeps what it wrote to output/data."""
        self._job.progress("Uploading", "Uploading generated training model")
        config = self._job.request["OutputDataConfig"]
        base = f"{config['S3OutputPath'].rstrip('/')}/{self._job.name}/output"
        outputs = [instance.root / "output/data" for instance in instances]
        models = [instance.root / "model" for instance in instances]
        packed = config.get("CompressionType", "GZIP") == "GZIP"
        upload = self._storage.upload_packed if packed else self._storage.upload_folders
        if any(any(folder.iterdir()) for folder in outputs):
            upload(outputs, f"{base}/output.tar.gz" if packed else f"{base}/data/")
        if end.status != "Failed":
            address = f"{base}/model.tar.gz" if packed else f"{base}/model/"
            upload(models, address)
            self._job.artifacts = address
        return end

    def _clean(self) -> None:
        """Whatever happened: no process and no file stays."""
        if self._processes:
            self._terminate(0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
