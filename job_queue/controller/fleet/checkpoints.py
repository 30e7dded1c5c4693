"""Look up when running jobs last wrote checkpoints, so that a plan evicts the job that loses the least work."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from job_queue.adapters.items import stored_request
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.checkpoints import KnownCheckpoint, checkpoints_to_look_up
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job
from job_queue.domain.policy import checkpoint_address
from job_queue.scheduler import Plan, Policy

NewestAt = Callable[[Site | None], Callable[[str], float | None]]
"""Returns a function for the buckets of a site. The site None is the home site.

The returned function takes an S3 address, and returns the epoch seconds of the newest object there, or None.
"""


class CheckpointTimes(ControllerPart):
    """The known times of checkpoints, updated if they affect a decision."""

    def __init__(self, backend: Backend, newest_at: NewestAt) -> None:
        super().__init__(backend)
        self._newest_at = newest_at

    def look_up(self, cluster: ClusterState, decided: Plan) -> ClusterState | None:
        """Return the cluster with newly read checkpoints, or None if no checkpoint has to be read.

        Only checkpoints that can decide between the plan's victims and equal jobs are read (`checkpoints_to_look_up`).

        :param decided: a plan of that cluster.
        """
        known = cluster.metadata.checkpoints
        evicted = [eviction.job for eviction in decided.evictions]
        jobs = checkpoints_to_look_up(list(cluster.active.values()), evicted, known, self._clock())
        if not jobs:
            return None
        seen = self._parallel(
            [partial(self._look_up_job, job, cluster.applied.policy, known.get(job.name)) for job in jobs]
        )
        of_active_jobs = {name: checkpoint for name, checkpoint in known.items() if name in cluster.active}
        checkpoints = of_active_jobs | {job.name: checkpoint for job, checkpoint in zip(jobs, seen, strict=True)}
        try:
            self._repository.note_checkpoints(checkpoints)
        except Unavailable as error:  # the checkpoints count in this cycle; the next cycle looks them up again
            log.warning("checkpoints not noted", why=error.message)
        return replace(cluster, metadata=replace(cluster.metadata, checkpoints=checkpoints))

    def _look_up_job(self, job: Job, policy: Policy, earlier: KnownCheckpoint | None) -> KnownCheckpoint:
        at = None
        try:
            record = self._repository.record(job.name)
            address = checkpoint_address(stored_request(record.details), record.job, policy) if record else None
            at = self._newest_at(job.site)(address) if address else None
        except Unavailable as error:  # without a known checkpoint, all work since the start counts as lost
            at = earlier.at if earlier and earlier.attempt == job.attempt else None
            log.warning("checkpoints not listed", job=job.name, why=error.message)
        return KnownCheckpoint(job.attempt, int(self._clock()), None if at is None else int(at))
