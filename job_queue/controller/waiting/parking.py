"""Park jobs that cannot start: move them behind the rest of a long waiting queue, and back when they may start.

A cycle reads only the first jobs of a waiting queue (the policy's `window`). Some of these jobs cannot start: they are
on hold, in backoff, too large, or beyond a limit or budget. Without parking, such jobs could fill the window, and no
later job would be considered. A larger window would make cycles slower.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf

from job_queue.adapters.job_repository import transactions
from job_queue.adapters.metadata import WAITING_QUEUE_UNUSED_SECONDS, Lease
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.controller.waiting.deadlines import SOON_SECONDS, late_transitions
from job_queue.controller.waiting.dependencies import Dependencies
from job_queue.domain import state_machine
from job_queue.domain.capacity_backoff import instances_by_capacity_key
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import LeaseLost, Refused, Unavailable
from job_queue.domain.job import FOR_EVER, PARKED_POSITION, Job, live_position, waiting_position
from job_queue.domain.policy import alternatives, project_of
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import (
    UNTIL_OTHERS_END,
    UNTIL_POLICY_CHANGES,
    Group,
    Hold,
    Plan,
    WaitReason,
    group_limits,
    group_of,
    plan,
)

PARKED_SECONDS = 10 * 60  # for jobs that wait for another policy, other jobs, a budget, a drain or a training plan
_CANNOT_START = UNTIL_POLICY_CHANGES | UNTIL_OTHERS_END | {WaitReason.OUTSIDE_TRAINING_PLAN}
KEPT_OF_FULL_GROUP = 1  # jobs of a full group, or of an owner at the interactive limit, that stay in the window


class Parking(ControllerPart):
    """The parking of jobs and their return, for the holder of the lease."""

    def __init__(self, backend: Backend, dependencies: Dependencies) -> None:
        super().__init__(backend)
        self._dependencies = dependencies

    def park_and_forget(self, lease: Lease, cluster: ClusterState, decided: Plan) -> tuple[bool, list[float]]:
        """Park jobs of waiting queues that are longer than the window, and forget metadata that is no longer needed.

        Return whether the next cycle will read other jobs than this cycle, and the near times at which parked jobs may
        start (`not_before`).
        """
        self._forget_unused(cluster)
        if not cluster.truncated_queues:
            return False, []
        now = self._clock()
        newly_parked = parking_transitions(cluster, decided, now)
        returns, near_starts = self._returns_of_parked(cluster, decided, newly_parked, now)
        transitions = [*returns, *newly_parked]
        changed = {transition.old.name: transition for transition in transitions}
        has_parked = False
        for part in transactions(changed.values()) if changed else ():
            try:
                self._repository.commit(lease, part, now)
            except LeaseLost:
                raise
            except (Refused, Unavailable) as error:
                log.info("not parked", jobs=[transition.old.name for transition in part], why=repr(error))
                continue
            has_parked = True
        return has_parked, near_starts

    def _forget_unused(self, cluster: ClusterState) -> None:
        """Forget unused waiting queues and backoffs that are long over.

        A waiting queue is unused if it is empty, no job was added for long, and no active job can return to it.
        """
        jobs = (*cluster.waiting.values(), *cluster.active.values())
        now, in_use = self._clock(), {job.waiting_queue for job in jobs} | cluster.truncated_queues
        for key, last_used in cluster.metadata.waiting_queues.items():
            if key not in in_use and last_used + WAITING_QUEUE_UNUSED_SECONDS < now:
                self._repository.forget_waiting_queue(key, last_used)
        for backoff in cluster.metadata.capacity_backoffs.values():
            if backoff.is_forgotten(now):
                self._repository.end_capacity_backoff(backoff)

    def _returns_of_parked(
        self, cluster: ClusterState, decided: Plan, newly_parked: Iterable[JobTransition], now: float
    ) -> tuple[list[JobTransition], list[float]]:
        """Return the transitions of parked jobs that return, are late or depend on ended jobs, and the near starts.

        The near starts are the times within `SOON_SECONDS` at which parked jobs may start. One window of parked jobs is
        read from each waiting queue that is longer than the window.
        """
        window = cluster.applied.policy.settings.window
        keys = sorted(cluster.truncated_queues)
        reads = [partial(self._repository.waiting, key, window, PARKED_POSITION) for key in keys]
        found: list[list[Job]] = self._parallel(reads)
        due = [job for jobs in found for job in jobs if job.parked is not None and job.parked <= now]
        later = [job for jobs in found for job in jobs if _is_parked(job, now)]
        early = returns_of_groups(cluster, decided, newly_parked, later, now)
        released_dependents = self._dependencies.transitions(later, cluster)
        of_late_jobs = late_transitions(later, cluster, now)
        soon = [
            float(job.parked)
            for job in later
            if job.parked is not None and job.parked <= now + SOON_SECONDS and job.parked_for == WaitReason.NOT_BEFORE
        ]
        return [
            *(state_machine.park(job, None, now) for job in [*due, *with_reservations(cluster, decided, now)]),
            *early,
            *released_dependents,
            *of_late_jobs,
        ], soon


def with_reservations(cluster: ClusterState, decided: Plan, now: float) -> Iterator[Job]:
    """Yield the parked jobs that the plan has reserved slots for.

    A cycle sees parked jobs if a window has places left. Other jobs could take these places, and the job with the
    reservation would lose it.
    """
    for job in cluster.waiting.values():
        if job.name in decided.reservations and _is_parked(job, now):
            yield job


def returns_of_groups(
    cluster: ClusterState, decided: Plan, newly_parked: Iterable[JobTransition], parked: Iterable[Job], now: float
) -> list[JobTransition]:
    """Return the transitions of the jobs that `next_of_groups` yields.

    A job returns only if the next plan would not park it again. Otherwise two cycles would park and return it without
    end. A job that would be parked for another reason is parked for that reason, so that the next jobs of its group are
    considered.

    :param newly_parked: the jobs that this cycle parks.
    :param parked: the jobs that earlier cycles have parked.
    """
    gone = {transition.old.name for transition in newly_parked}
    leaving = Counter(
        job.waiting_queue for name, job in cluster.waiting.items() if name in gone | decided.started.keys()
    )
    jobs = list(next_of_groups(cluster, parked, leaving, now))
    if not jobs:
        return []
    stays = {name: job for name, job in cluster.waiting.items() if name not in gone}
    then = replace(cluster, waiting=stays | {job.name: job.with_changes(parked=None) for job in jobs})
    again = {it.old.name: it.new for it in parking_transitions(then, plan(then.snapshot(now)), now)}
    transitions = []
    for job in jobs:
        new = again.get(job.name)
        if new is None:
            transitions.append(state_machine.park(job, None, now))
        elif new.parked_for != WaitReason.GROUP_LIMIT:
            transitions.append(state_machine.park(job, new.parked, now, new.parked_for))
    return transitions


def next_of_groups(
    cluster: ClusterState, parked: Iterable[Job], leaving: Mapping[str, int], now: float
) -> Iterator[Job]:
    """Yield the jobs that were parked because their group was full, and whose group now has room in the window.

    Jobs whose places the next cycle cannot read are left out. Active jobs take places of their group, even with a
    user's hold. The smallest limit of a group applies, even if only a parked job has this limit. Otherwise one cycle
    would park the jobs that another cycle returns.

    :param leaving: the number of jobs that leave the window of each waiting queue, so that its window moves on.
    """
    active = cluster.active.values()
    ready = [
        job
        for job in cluster.waiting.values()
        if not job.held and (job.backoff_until is None or job.backoff_until <= now)
    ]
    limits = group_limits([*active, *ready])
    counts = Counter(map(group_of, [*active, *(job for job in ready if not _is_parked(job, now))]))
    ends, room_behind = _ends_of_windows(cluster), Counter(leaving)
    for job in parked:
        group = group_of(job)
        if job.parked_for != WaitReason.GROUP_LIMIT or group is None:
            continue
        is_behind = waiting_position(job.priority, job.entered, job.name) > ends.get(job.waiting_queue, "")
        if is_behind and not room_behind[job.waiting_queue]:
            continue
        limit = min(limits.get(group, inf), inf if job.max_parallel is None else job.max_parallel)
        if counts[group] < limit + KEPT_OF_FULL_GROUP:
            counts[group] += 1
            if is_behind:
                room_behind[job.waiting_queue] -= 1
            yield job


def parking_transitions(cluster: ClusterState, decided: Plan, now: float) -> list[JobTransition]:
    """Return transitions that park the jobs that cannot start, in waiting queues that are longer than the window.

    A job with a reservation is not parked. Otherwise the next plan, without this job, would give its slots to others.
    """
    useless: dict[str, tuple[int, WaitReason]] = {}
    kept: Counter[Group | str | None] = Counter()  # jobs found so far, by full group and by owner
    for hold in decided.holds:
        job = None if hold.job in decided.reservations else cluster.waiting.get(hold.job)
        if job is None or job.waiting_queue not in cluster.truncated_queues or _is_parked(job, now):
            continue
        if hold.reason is WaitReason.GROUP_LIMIT:
            kept[group_of(job)] += 1
            if kept[group_of(job)] <= KEPT_OF_FULL_GROUP:
                continue
        if hold.reason is WaitReason.OWNER_LIMIT:
            kept[job.owner] += 1
            if kept[job.owner] <= KEPT_OF_FULL_GROUP:
                continue
        until = _parked_until(job, hold, cluster, now)
        if until is not None:
            useless[job.name] = until, hold.reason
    return [state_machine.park(cluster.waiting[name], until, now, reason) for name, (until, reason) in useless.items()]


def _ends_of_windows(cluster: ClusterState) -> dict[str, str]:
    """Return the last position that was read from each waiting queue that is longer than the window."""
    ends: dict[str, str] = {}
    for job in cluster.waiting.values():
        if job.waiting_queue in cluster.truncated_queues and job.carries is None:  # a new carrier was not read
            ends[job.waiting_queue] = max(ends.get(job.waiting_queue, ""), live_position(job))
    return ends


def _is_parked(job: Job, now: float) -> bool:
    """Return whether a job is parked. A job whose time is over, but that was not returned yet, is not."""
    return job.parked is not None and job.parked > now


def _parked_until(job: Job, hold: Hold, cluster: ClusterState, now: float) -> int | None:
    """Return the time until which to park a job with this hold (epoch seconds); None: do not park the job."""
    if hold.reason in (WaitReason.HELD_BY_USER, WaitReason.NOT_BEFORE):
        return FOR_EVER if hold.reason is WaitReason.HELD_BY_USER else job.not_before
    if hold.reason in _CANNOT_START or (hold.reason is WaitReason.DRAINED and _is_drained_later(job, cluster, now)):
        return int(now) + PARKED_SECONDS
    if hold.reason is WaitReason.OVER_BUDGET:  # if the project's own budget is spent, no later job can start either
        project = project_of(cluster.policy, job.project)
        return int(now) + PARKED_SECONDS if project and project.owner_budget else None
    if hold.reason not in (WaitReason.BACKOFF, WaitReason.REGION_UNREACHABLE):
        return None
    if job.backoff_until is not None and job.backoff_until > now:
        return job.backoff_until
    return _until_its_pools_are_tried(job, cluster, now)


def _is_drained_later(job: Job, cluster: ClusterState, now: float) -> bool:
    """Return whether a drain of one of the job's pools is not in force yet. Until then, shorter jobs may start."""
    pools = {pool for need in alternatives(job, cluster.applied.policy) for pool in need}
    return any(not drain.is_in_force(now) for pool, drain in cluster.drains.items() if pool in pools)


def _until_its_pools_are_tried(job: Job, cluster: ClusterState, now: float) -> int | None:
    """Return the latest end of the backoffs of the job's capacity keys (epoch seconds); None: no backoff counts.

    A backoff after the refusal of a single instance does not count, because a later job could not start either.
    """
    policy = cluster.applied.policy
    needs = [instances_by_capacity_key(job, need, policy) for need in alternatives(job, policy)]
    backoffs = [it for key, it in cluster.capacity_backoffs(now).items() if any(key in need for need in needs)]
    until = max((it.until for it in backoffs if it.min_instances > 1), default=0)
    return until if until > now else None
