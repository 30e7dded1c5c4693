"""The runner of one training job, from its start to its end, on its own thread."""

import logging
import queue
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cloud.faults.injection import Faults
from local_cloud.ports import free_ports
from local_cloud.sagemaker.account.emulated_plans import EmulatedPlan
from local_cloud.sagemaker.job_processes import failures, staging
from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.container.requirements import InstallError
from local_cloud.sagemaker.job_processes.execution import Execution, Grace
from local_cloud.sagemaker.job_processes.failures import LONGEST, failure_reason, install_failure, killed
from local_cloud.sagemaker.job_processes.instance import Instance
from local_cloud.sagemaker.job_processes.process import MARK
from local_cloud.sagemaker.job_processes.storage import CheckpointSync, Storage, TransferError
from local_cloud.sagemaker.training_job import EmulatedTrainingJob

_log = logging.getLogger(__name__)

TICK = 0.05  # seconds between two checks of the processes
SHUTDOWN_GRACE = 1.0  # seconds
_AT_SHUTDOWN = Grace(SHUTDOWN_GRACE, 0.0)
CAPACITY_ENDS = "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
"""The variable with the end of a training plan's reserved capacity, in epoch milliseconds (AWS's guide)."""


@dataclass(frozen=True)
class Machine:
    """The settings and clients that all jobs of a service share. `s3` and `logs` are boto3 clients."""

    workdir: Path
    s3: Any
    logs: Any
    environment: Mapping[str, str]
    grace: Grace
    startup_delay: float
    """Seconds that a job stays in Starting, unless a warm pool has its instances."""
    faults: Faults
    mounted: bool = False
    """Whether a folder can be mounted at /opt/ml."""


@dataclass(frozen=True)
class _End:
    status: str
    secondary: str
    message: str
    failure_reason: str | None = None


_COMPLETED = _End("Completed", "Completed", "Training job completed")
_STOPPED = _End("Stopped", "Stopped", "Training job stopped")
_RECALLED = _End("Stopped", "Stopped", "Training job stopped: the reserved capacity of its training plan is ending")
_TIMED_OUT = _End("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided")


def _failed(reason: str) -> _End:
    return _End("Failed", "Failed", "Training job failed", reason)


PENDING = 0.3  # seconds that a job stays Pending when an injected fault denies it instances
_EARLY_ENDS = {
    "capacity": _failed(failures.CAPACITY),
    "internal": _failed(failures.INTERNAL),
    "pending": _End("Stopped", "Stopped", "Training job pending time exceeded MaxPendingTimeInSeconds provided"),
}


class _ShutdownError(Exception):
    """A sign that the service is stopping, and that the job's state is no longer needed."""


class JobRunner:
    """The thread and the processes of one job. `number` is the name of the job's folder, which must be short."""

    def __init__(self, job: EmulatedTrainingJob, machine: Machine, number: int) -> None:
        self._job = job
        self._machine = machine
        self._folder = machine.workdir / str(number)
        self._storage = Storage(machine.s3, self._folder)
        self._shutdown = threading.Event()
        self._strikes: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._execution: Execution | None = None
        self._thread = threading.Thread(target=self._main, name=f"training-{job.name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Return at once."""
        self._thread.start()

    def shut_down(self) -> None:
        """Request the end of all processes with a short grace period and without uploads. Return at once."""
        self._shutdown.set()
        self._job.stop_requested.set()  # wakes the thread

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, at most `timeout` seconds."""
        self._thread.join(timeout)

    def instance(self, host: str) -> Instance | None:
        """Return the instance of that host if its process runs and remote debugging is possible, else None."""
        execution = self._execution
        if (
            not self._job.agent_connects
            or execution is None
            or self._job.secondary_status not in ("Training", "Stopping")
        ):
            return None
        return execution.instance(host)

    def strike(self, kind: str, host: str) -> None:
        """Let a fault of `injection.STRIKES` happen to an instance as soon as the job trains. Return at once."""
        self._strikes.put((kind, host))

    @property
    def name(self) -> str:
        """The name of the training job."""
        return self._job.name

    @property
    def job_ended(self) -> bool:
        """Whether the training job has ended. The thread may still run for a moment."""
        return self._job.ended

    @property
    def alive(self) -> bool:
        """Whether the thread runs. The thread removes all processes and files before it ends."""
        return self._thread.is_alive()

    def _main(self) -> None:
        try:
            end = self._run()
        except _ShutdownError:
            if self._execution:
                self._execution.stop(_AT_SHUTDOWN)
            return
        except TransferError as error:
            end = _failed(f"ClientError: {error}"[:LONGEST])
        except InstallError as error:
            end = _failed(install_failure(error))
        except ValueError as error:  # such as a NUL in an environment variable
            end = _failed(f"ClientError: the process cannot be started: {error}"[:LONGEST])
        except Exception as error:
            _log.exception("The emulator failed to run %s", self._job.name)
            end = _failed(f"InternalServerError: the emulator failed: {error}"[:LONGEST])
        finally:
            self._clean()
        self._job.end(end.status, end.secondary, end.message, failure_reason=end.failure_reason)

    def _run(self) -> _End:
        job = self._job
        if end := self._provision():
            return end
        if early := self._machine.faults.early_end(may_be_pending=job.max_pending is not None):
            job.progress("Pending", "Waiting for compute capacity")
            if self._cancelled(PENDING):
                return _STOPPED
            if early == "pending":
                job.backdate(job.max_pending or 0)
            return _EARLY_ENDS[early]
        job.progress("Downloading", "Downloading input data")
        self._folder.mkdir(parents=True)
        cluster = self._cluster()
        if not cluster.entrypoint and not cluster.script:
            return _failed(
                "ClientError: the local cloud does not run images: give AlgorithmSpecification.ContainerEntrypoint, or "
                "the hyperparameters sagemaker_program and sagemaker_submit_directory"
            )
        instances = [Instance(cluster, host) for host in cluster.hosts]
        for instance in instances:
            instance.prepare()
        sync = None
        if "CheckpointConfig" in cluster.request:
            sync = CheckpointSync(
                self._storage,
                [instance.checkpoints for instance in instances],
                cluster.request["CheckpointConfig"]["S3Uri"],
            )
            sync.restore()
        staging.download_inputs(cluster, instances, self._storage, job.stop_requested)
        if self._cancelled():
            return _STOPPED
        job.progress("Training", "Training image download completed. Training in progress.")
        self._execution = execution = Execution(
            cluster, instances, self._machine.logs, sync, self._machine.faults.log_delay
        )
        execution.start()
        end = self._watch(execution)
        self._cancelled()  # raises an error if the service is stopping: then there are no uploads
        try:
            execution.report(last=True)
            job.progress("Uploading", "Uploading generated training model")
            job.artifacts = staging.upload_outputs(cluster, instances, self._storage, with_model=end.status != "Failed")
        except TransferError:
            if end.status != "Failed":  # the reason of the script's failure is more useful than that of the upload
                raise
        return end

    def _provision(self) -> _End | None:
        """Wait for the instances. Return the end of the job if there are none, or if the job is stopped, else None."""
        if self._job.plan and (end := self._wait_for_plan(self._job.plan)):
            return end
        return _STOPPED if self._cancelled(0.0 if self._job.warm_start else self._machine.startup_delay) else None

    def _wait_for_plan(self, plan: EmulatedPlan) -> _End | None:
        """Wait until the training plan has instances for the job, and return None.

        Return the end of the job if the plan expires, MaxPendingTimeInSeconds is over or the job is stopped.
        """
        job = self._job
        waits_until = None if job.max_pending is None else time.monotonic() + job.max_pending
        while not plan.take(job.name, sum(group.count for group in job.groups)):
            if job.secondary_status != "Pending":
                job.progress("Pending", "Training job waiting for capacity")
            if plan.status == "Expired":
                return _failed(failures.NO_PLAN_CAPACITY)
            if waits_until is not None and time.monotonic() > waits_until:
                return _EARLY_ENDS["pending"]
            if self._cancelled(TICK):
                return _STOPPED
        return None

    def _cancelled(self, seconds: float = 0.0) -> bool:
        """Wait for `seconds` or for a stop request. Return whether a stop is requested.

        Raise _ShutdownError if the service is stopping.
        """
        stop = self._job.stop_requested.wait(seconds)
        if self._shutdown.is_set():
            raise _ShutdownError
        return stop

    def _cluster(self) -> Cluster:
        plan = {} if self._job.plan is None else {CAPACITY_ENDS: str(round(self._job.plan.end * 1000))}
        return Cluster(
            name=self._job.name,
            arn=self._job.arn,
            request=self._job.request,
            groups=self._job.groups,
            folder=self._folder,
            master_port=free_ports(2) + 1,  # a job of `smq` also listens at the port before this one
            mounted=self._machine.mounted,
            base_environment={**self._machine.environment, **plan, MARK: str(self._folder)},
        )

    def _watch(self, execution: Execution) -> _End:
        """Wait until all processes have succeeded, one has failed, or a stop is due. Return the end of the job.

        A stop is due on request, at the recall of the training plan's instances and after MaxRuntimeInSeconds.
        """
        deadline = time.monotonic() + self._job.max_runtime
        kind, after = self._machine.faults.strike() or ("", float("inf"))
        strike_at = time.monotonic() + after
        while (end := self._script_end(execution) or self._struck(execution)) is None:
            if time.monotonic() > strike_at:
                strike_at = float("inf")
                self.strike(kind, execution.hosts[0])
            if self._cancelled(TICK):
                return self._stop(execution, _STOPPED)
            if self._job.plan and self._job.plan.recalled:
                self._job.begin_stopping("The reserved capacity is ending: stopping the training job")
                return self._stop(execution, _RECALLED)
            if time.monotonic() > deadline:
                self._job.begin_stopping("MaxRuntimeInSeconds is over: stopping the training job")
                return self._stop(execution, _TIMED_OUT)
            execution.report()
        execution.kill()
        return end

    def _struck(self, execution: Execution) -> _End | None:
        """Carry out the next fault. Return the end of the job, or None if the job goes on or there is no fault."""
        try:
            kind, host = self._strikes.get_nowait()
        except queue.Empty:
            return None
        instance = execution.instance(host)
        if kind == "hang":
            execution.suspend()
        if kind == "hang" or instance is None:
            return None
        if kind == "hardware":
            execution.kill()  # so that no process writes after these lines
            with instance.output.open("a") as output:
                machine = self._job.machines[instance.shard]
                output.writelines(f"{line}\n" for line in failures.hardware_lines(machine))
        return _failed(killed(failures.ABORTED if kind == "hardware" else failures.OUT_OF_MEMORY))

    def _script_end(self, execution: Execution) -> _End | None:
        """Return a Failed end if any process has failed, a Completed end if all have succeeded, else None."""
        codes = execution.exit_codes()  # read once: a failure between two reads would count as a success
        for instance, code in codes:
            if code:
                return _failed(failure_reason(instance, code))
        return None if any(code is None for _, code in codes) else _COMPLETED

    def _stop(self, execution: Execution, end: _End) -> _End:
        """Stop the processes with SIGTERM, the grace period and SIGKILL. Return the end of the job.

        Return the processes' own end in place of `end` if they ended before the signal, or one failed during the stop.
        """
        if script_end := self._script_end(execution):
            execution.kill()
            return script_end
        failure = execution.stop(self._machine.grace, hurry=self._shutdown)
        return _failed(failure_reason(*failure)) if failure else end

    def _clean(self) -> None:
        """Kill all processes, give back the training plan's instances and remove the files, after any kind of end."""
        if self._execution:
            self._execution.kill()
        if self._job.plan:
            self._job.plan.give_back(self._job.name)
        shutil.rmtree(self._folder, ignore_errors=True)
