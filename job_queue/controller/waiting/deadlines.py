"""Carry out deadlines: act on waiting jobs that have not started by their `start_by`, and find the next deadlines.

A cycle handles only the jobs that it has read. A job beyond the policy's `window` is handled when a cycle first reads
the job, which is always before the job starts.
"""

from collections.abc import Container, Iterable

from job_queue.adapters.metadata import Lease
from job_queue.controller.part import ControllerPart
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job
from job_queue.domain.policy import further_pools
from job_queue.domain.state_machine import JobTransition

SOON_SECONDS = 75  # a deadline within this time gets a cycle of its own; the tick of each minute sees all others


class MissedStarts(ControllerPart):
    """The actions for jobs that have not started in time, for the holder of the lease."""

    def settle(self, lease: Lease, cluster: ClusterState) -> ClusterState:
        """Record the actions for late jobs in the cluster's state. Return the state with these changes."""
        changes = late_transitions(cluster.waiting.values(), cluster, self._clock())
        recorded = self._record_all(lease, changes, "missed starts")
        return cluster.with_waiting_changed(it.new for it in recorded) if recorded else cluster


def late_transitions(jobs: Iterable[Job], cluster: ClusterState, now: float) -> list[JobTransition]:
    """Return a transition for each of these jobs that still waits after its `start_by`."""
    unrecorded = cluster.unrecorded(now)
    return [
        state_machine.start_missed(job, further_pools(job, cluster.policy), now)
        for job in jobs
        if job.is_late(now) and job.name not in unrecorded
    ]


def next_deadlines(cluster: ClusterState, starting: Container[str], now: float) -> list[float]:
    """Return the times within `SOON_SECONDS` at which waiting jobs may start, or should have started.

    :param starting: the jobs that the cycle starts.
    """
    times: list[float] = []
    for job in cluster.waiting.values():
        if job.name in starting:
            continue
        if job.not_before is not None and not job.held:
            times.append(job.not_before)
        if job.start_by is not None and not job.start_missed and job.run_seconds == 0:
            times.append(job.start_by)
    return [time for time in times if now < time <= now + SOON_SECONDS]
