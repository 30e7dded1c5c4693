"""Stop attempts: send the recorded stops to SageMaker, repeat them, and record the stops that SageMaker denies."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from job_queue.adapters.metadata import Lease
from job_queue.adapters.sagemaker import StopResult
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.controller.reconciler import Reconciler
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import LeaseLost, QueueError, Refused
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import JobState

STOP_AGAIN_SECONDS = 10  # pause before a stop is requested again


class Stops(ControllerPart):
    """The requests for stops, for the holder of the lease."""

    def __init__(self, backend: Backend, reconciler: Reconciler) -> None:
        super().__init__(backend)
        self._reconciler = reconciler

    def request(self, lease: Lease, cluster: ClusterState, recorded: Iterable[Job], now: float) -> bool:
        """Request every intended stop, and repeat old requests. Return whether planning again may do more.

        :param recorded: jobs in the state that this cycle has recorded.
        """
        intended = [job for job in recorded if _can_be_stopped(job)]
        if lease.stops_repeated_at + STOP_AGAIN_SECONDS <= now:
            stopping = [job for job in cluster.active.values() if _can_be_stopped(job)]
            intended += [job for job in stopping if epoch(job.since) + STOP_AGAIN_SECONDS <= now]
            lease.stops_repeated_at = int(now)
        results = self._parallel([partial(self._stop, job) for job in intended])
        may_do_more = False
        for job, result in zip(intended, results, strict=True):
            if result is StopResult.DENIED:
                may_do_more = self._record_denied(lease, job) or may_do_more
            else:
                may_do_more = result is StopResult.ENDED_ALREADY or may_do_more
        return may_do_more

    def _stop(self, job: Job) -> StopResult:
        """Request a stop, and return the result. If the attempt has ended or the stop is denied, check the attempt.

        `ENDED_ALREADY` means that the end is recorded. `DENIED` means that the attempt keeps running.
        """
        result = self._training.stop_attempt(job)
        try:
            if result is StopResult.ENDED_ALREADY and not self._reconciler.examine_attempt(job, in_cycle=True):
                return StopResult.UNKNOWN
            if result is StopResult.DENIED:
                found = self._training.describe_attempt(job)
                if found is None or found.ended or found.status == "Stopping" or found.is_newer_than_launch_of(job):
                    # The end will be reported later, or the attempt was deleted and its name is reused.
                    return StopResult.UNKNOWN
        except QueueError as error:
            log.warning("attempt cannot be stopped", job=job.name, attempt=job.launched, why=error.message)
            return StopResult.UNKNOWN
        return result

    def _record_denied(self, lease: Lease, job: Job) -> bool:
        """Record that SageMaker denies a stop, so that plans evict another job. Return whether this was recorded."""
        log.warning("stop denied", job=job.name, attempt=job.launched, claimant=job.evicted_for)
        try:
            denied = state_machine.stop_denied(job, self._clock())
            record = self._repository.record(job.name)  # the whole record, so that a long history can be truncated
            self._repository.commit(lease, [replace(denied, record=record)], self._clock())
        except LeaseLost:
            raise
        except (QueueError, Refused) as error:
            log.info("denied stop not recorded", job=job.name, why=repr(error))
            return False
        return True


def _can_be_stopped(job: Job) -> bool:
    """Return whether to request the stop of a job's attempt.

    A missing attempt is not stopped, because another training job may have its name.
    """
    return job.state is JobState.STOPPING and job.missing_since is None
