"""Make a cycle's transitions: starts and evictions, repeated launches, requested stops."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace

from job_queue.adapters.telemetry import log
from job_queue.controller.launcher import is_call_due, is_unsent
from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import borrowed_by
from job_queue.domain.capacity_backoff import backoffs_while_tried, instances_by_capacity_key
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.fleet.sites import site_of_slots
from job_queue.domain.job import LaunchCall
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Plan, Start


def requested_stops(cluster: ClusterState, now: float) -> list[JobTransition]:
    """Return the stops of cancelled jobs, requeued jobs, jobs in drained pools, and hung jobs that are to be requeued.

    If several causes apply, the stop names the first in this order. A starting job is stopped only after its launch is
    completed. If all launch calls of a cancelled job were throttled, the job ends at once.
    """
    transitions = []
    for job in cluster.active.values():
        if job.state is JobState.RUNNING and not job.is_stop_denied(now):
            if job.cancelled:
                transitions.append(state_machine.stop_cancelled(job, now))
            elif job.requeued_by is not None:
                transitions.append(state_machine.stop_requeued(job, now))
            elif (drained := cluster.drain_of(job, now)) is not None:
                transitions.append(state_machine.stop_drained(job, *drained, now))
            elif job.requeue_hung:
                transitions.append(state_machine.stop_hung(job, now))
        elif job.cancelled and is_unsent(job):
            transitions.append(state_machine.cancel_unsent(job, now))
    return transitions


def relaunch_transitions(cluster: ClusterState, call: LaunchCall, now: float) -> list[JobTransition]:
    """Return a transition for each launch for which another call is due (`is_call_due`), highest priority first.

    A cancelled job is left out if all its launch calls were throttled, because `requested_stops` ends this job.
    """
    jobs = sorted(cluster.active.values(), key=lambda job: (-job.priority, job.entered, job.name))
    again = [job for job in jobs if is_call_due(job, now) and not (job.cancelled and is_unsent(job))]
    return [state_machine.launch_again(job, call, now) for job in again]


def eviction_transitions(cluster: ClusterState, plan: Plan, now: float) -> list[JobTransition]:
    """Return the evictions of the plan as transitions."""
    transitions = []
    for eviction in plan.evictions:
        log.info("evict", job=eviction.job, claimant=eviction.claimant, rule=eviction.rule)
        victim = cluster.active[eviction.job]
        transitions.append(state_machine.evict(victim, eviction.claimant, eviction.rule, now, idle=eviction.idle))
    return transitions


def start_transitions(
    cluster: ClusterState, plan: Plan, call: LaunchCall, now: float
) -> tuple[list[JobTransition], list[Start]]:
    """Return the starts of the plan as transitions, in the plan's order, and the starts that are deferred.

    When the backoff of a capacity key ends, only one of its jobs is started, and the other starts are deferred. In
    the next plan the capacity key backs off again, so a deferred job may start in another pool.
    """
    transitions, deferred = [], list[Start]()
    used = _used_by_project(cluster)
    known, tried = cluster.capacity_backoffs(now), set[str]()
    for start in plan.starts:
        job = cluster.waiting[start.job]
        wanted = instances_by_capacity_key(job, start.slots, cluster.applied.policy)
        backoffs = backoffs_while_tried(known, wanted, now)
        if any(backoff.capacity_key in tried for backoff in backoffs):
            deferred.append(start)
            continue
        tried |= {backoff.capacity_key for backoff in backoffs}
        log.info("start", job=start.job, slots=dict(start.slots))
        held = used.setdefault(job.project, {})
        borrowed = borrowed_by(job, start.slots, held, cluster.policy)
        begun = state_machine.record_launch_intent(
            job,
            start.slots,
            call,
            now,
            secrets.token_hex(16),
            borrowed,
            site_of_slots(start.slots, cluster.applied.policy),
        )
        _add_slots(held, start.slots)
        transitions.append(replace(begun, backoffs=backoffs))
    return transitions, deferred


def with_paced_starts(
    permitted: list[JobTransition], starts: list[JobTransition], decided: Plan
) -> tuple[list[JobTransition], Plan]:
    """Return the permitted starts, and the plan with slots reserved for the other starts."""
    now = {it.new.name for it in permitted}
    kept = {it.new.name: it.new.slots for it in starts if it.new.name not in now}
    return permitted, replace(decided, reservations={**decided.reservations, **kept})


def with_deferred(decided: Plan, deferred: Iterable[Start], cluster: ClusterState) -> Plan:
    """Return the plan in which deferred starts keep the slots that were reserved for them before.

    Otherwise smaller jobs, to which the backoff does not apply, would take slots that evictions freed for these starts.
    """
    kept = {}
    for start in deferred:
        job = cluster.waiting[start.job]
        holder = job.first_members[0] if job.carries is not None else job.name  # a new carrier has a new name
        if holder in cluster.metadata.reservations:
            kept[start.job] = start.slots
    return replace(decided, reservations={**decided.reservations, **kept})


def _used_by_project(cluster: ClusterState) -> dict[str, dict[str, int]]:
    """Return the instances that jobs hold, by project and pool."""
    used: dict[str, dict[str, int]] = {}
    for job in cluster.active.values():
        _add_slots(used.setdefault(job.project, {}), job.slots)
    return used


def _add_slots(used: dict[str, int], slots: Mapping[str, int]) -> None:
    for pool, count in slots.items():
        used[pool] = used.get(pool, 0) + count
