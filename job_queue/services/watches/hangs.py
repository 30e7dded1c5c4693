"""Detect hangs: look up the logs and checkpoints of jobs whose GPUs are idle, and record the jobs that hang."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from job_queue.adapters.items import stored_request
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.telemetry import log
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import QueueError, Refused
from job_queue.domain.expectations.hangs import Activity, is_requeued, may_hang, silence_of, suspects
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job, JobRecord, epoch
from job_queue.domain.policy import checkpoint_address
from job_queue.scheduler import Policy

WroteLog = Callable[[str, float, float], bool | None]
"""Function: training job, its start, a time -> whether its log has a line since that time; None: unknown.

Both times are epoch seconds."""

WroteCheckpoint = Callable[[str, float], bool | None]
"""Function: address in S3, epoch seconds -> whether an object was written there since that time; None: unknown."""


class HangWatch:
    """A detector of hangs. Only jobs with idle GPUs are looked up.

    :param log_at: returns, for a site, the function that checks the log of a training job.
    :param checkpoints_at: returns, for a site, the function that checks the objects under an address in S3.
    """

    def __init__(
        self,
        repository: JobRepository,
        log_at: Callable[[Site | None], WroteLog],
        checkpoints_at: Callable[[Site | None], WroteCheckpoint],
    ) -> None:
        self._repository = repository
        self._log_at = log_at
        self._checkpoints_at = checkpoints_at
        self._turn = 0

    def check(
        self, cluster: ClusterState, idle: Mapping[str, float], now: float, may_go_on: Callable[[], bool]
    ) -> None:
        """Look up the suspects, and record each hang. A hang causes a notice and, by tag or policy, a stop.

        :param idle: training job -> epoch seconds since which its GPUs have been idle.
        :param now: epoch seconds.
        :param may_go_on: after its first result of False, no further jobs are looked up.
        """
        found = suspects(cluster, idle, now, self._turn)
        self._turn += 1
        for job in found:
            if not may_go_on():
                return
            try:
                self._check_job(job, cluster, now)
            except Refused:
                log.info("hang not recorded, as the job has changed", job=job.name)
            except QueueError as error:
                log.warning("hang not looked up", job=job.name, attempt=job.launched, exc_info=error)

    def _check_job(self, job: Job, cluster: ClusterState, now: float) -> None:
        policy = cluster.applied.policy
        silence, record = silence_of(job, policy), self._repository.record(job.name)
        if silence is None or record is None or record.job.submission != job.submission or not may_hang(record.job):
            return
        since = now - silence
        if self._activity(record, since, policy).is_silent:
            transition = state_machine.record_hang(record.job, since, now, requeue=is_requeued(record.job, policy))
            self._repository.apply(replace(transition, record=record), now)

    def _activity(self, record: JobRecord, since: float, policy: Policy) -> Activity:
        """Return the activity since a time. Checkpoints are looked up only if the log is known to have no new line."""
        job = record.job
        wrote_log = self._log_at(job.site)(job.launched or "", epoch(job.started or job.since), since)
        if wrote_log is not False:
            return Activity(wrote_log, None)
        address = checkpoint_address(stored_request(record.details), job, policy)
        if address is None:
            return Activity(wrote_log, wrote_checkpoint=False)  # the job cannot write checkpoints
        return Activity(wrote_log, self._checkpoints_at(job.site)(address, since))
