"""What would let a waiting job start: found out by planning again with one thing changed, so that it is true."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from job_queue.scheduler import (
    ActiveJob,
    Department,
    Hold,
    JobState,
    Policy,
    Project,
    Reason,
    Slots,
    Snapshot,
    WaitingJob,
    duration,
    instances,
    join,
    of_pool,
    oversubscriptions,
    plan,
)

RUNTIMES = (86400, 43200, 21600, 10800, 3600, 1800, 600)  # seconds that a job might promise to end within
PROJECT_GONE = "The policy has no such project any more: submit it to another, or have the project put back."
NOTHING_TO_DO: Mapping[Reason, str] = {
    Reason.BACKOFF: "Nothing to do: it is tried again by itself.",
    Reason.WAITING_FOR_STOPPING: "Nothing to do: it starts once the jobs that make room have stopped, minutes at most.",
}
LAST_RESORT: Mapping[Reason, str] = {
    Reason.NO_SUCH_POOL: "Ask for an instance type that a pool of its project has, or have the policy changed.",
    Reason.NEVER_FITS: "Ask for fewer instances, or have the pool's capacity raised.",
    Reason.OVER_LIMIT: "Wait for jobs of its project to end, or have the limit raised.",
    Reason.OVER_QUOTA_NON_PREEMPTIBLE: "Wait for such jobs to end, or have the quota raised.",
    Reason.KEPT_FOR_PATIENT_JOB: "Wait: it comes after the job for which the slots are kept.",
    Reason.BEHIND_FAIR_SHARE: "Wait: it starts by itself when jobs of its project end, or others need less.",
    Reason.BEHIND_HIGHER_PRIORITY: "Wait: it starts by itself when those ahead of it have what they need.",
    Reason.WAITING_FOR_CAPACITY: "Wait: it starts by itself when enough of those in its way have ended.",
}


def advise(
    snapshot: Snapshot, hold: Hold, *, submitted: bool = True, may_go_on: Callable[[], bool] = lambda: True
) -> list[str]:
    """Sentences for the owner of a waiting job, what helps at once first.

    :param snapshot: the one in which it waits; each thing that might help is tried on a copy.
    :param submitted: whether the job is there, so that a command can change it.
    :param may_go_on: asked before each trial, as many of them take long; what was found by then is told.
    """
    if hold.reason in NOTHING_TO_DO:
        return [NOTHING_TO_DO[hold.reason]]
    job = next(job for job in snapshot.waiting if job.name == hold.job)
    if hold.reason is Reason.HELD_BY_USER:
        then = _Trials(snapshot, job).changed(held=False)
        return [f"Release it: smq release {job.name}. {f'It would start {then}.' if then else 'It would still wait.'}"]
    trials, remedies = _Trials(snapshot, job, may_go_on), list[str]()
    with suppress(_NoMoreTimeError):
        for remedy in _remedies(trials, job, hold.reason, submitted=submitted):
            remedies.append(remedy)  # one by one: those found in time are kept
    return [*remedies, LAST_RESORT[hold.reason]]


class _NoMoreTimeError(Exception):
    """What is found by now must do."""


def _remedies(trials: "_Trials", job: WaitingJob, reason: Reason, *, submitted: bool) -> Iterator[str]:
    yield from _of_its_owner(trials, job, submitted=submitted)
    if reason is Reason.KEPT_FOR_PATIENT_JOB:
        yield from _sooner_gone(trials)
    yield from _of_the_administrator(trials)


def _of_its_owner(trials: "_Trials", job: WaitingJob, *, submitted: bool) -> Iterator[str]:
    priorities = trials.priorities()
    if found := _first(priorities, lambda it: trials.changed(priority=it)):
        priority, when = found
        command = f": smq set-priority {job.name} {priority}" if submitted else ""
        yield f"With a priority of {priority} it would start {when}{command}."
    if not job.preemptible and (then := trials.submitted(preemptible=True)):
        yield f"Submitted as a job that may be stopped (tag preemptible=true) it would start {then}."
    if all(len(need) == 1 for need in job.demand):
        yield from _elsewhere(trials, job)
        yield from _smaller(trials, job)


def _elsewhere(trials: "_Trials", job: WaitingJob) -> Iterator[str]:
    """One more pool, of whatever instance type, that its project may use."""
    allowed = trials.pools()
    own = [pool for pool in dict.fromkeys(pool for need in job.demand for pool in need) if pool in allowed]
    count = max(job.demand[0].values())
    for pool in allowed:
        if pool not in own and (then := trials.submitted(demand=(*job.demand, {pool: count}))):
            tag = "+".join([*own, pool])
            yield f"Submitted with the tag pools={tag} it would start {then}, on {instances(count, pool)}."
            return


def _smaller(trials: "_Trials", job: WaitingJob) -> Iterator[str]:
    """As many instances as could be had."""
    (pool, count), *_ = job.demand[0].items()

    def with_at_most(most: int) -> str | None:
        return trials.submitted(demand=tuple({name: min(most, n) for name, n in need.items()} for need in job.demand))

    if found := _first(range(count - 1, 0, -1), with_at_most):
        most, then = found
        yield f"Submitted with {instances(most, pool)} instead of {count} it would start {then}."


def _sooner_gone(trials: "_Trials") -> Iterator[str]:
    """A runtime that ends before the job that is served first could start."""
    if found := _first(RUNTIMES, lambda it: trials.submitted(max_runtime=it)):
        longest, then = found
        yield (
            f"Submitted with a MaxRuntimeInSeconds of at most {longest} ({duration(longest)}) it would start {then}, "
            "past the job that is served first."
        )


def _of_the_administrator(trials: "_Trials") -> Iterator[str]:
    for what in ("limit", "quota"):
        policy, changes = trials.raised(what)
        if changes and (then := trials.under(policy)):
            yield f"With {join(changes)} in the policy it would start {then}."
            return


def _first(figures: Sequence[int], outcome: Callable[[int], str | None]) -> tuple[int, str] | None:
    """The first figure that helps, where all after it help as well, and what comes of it; none is tried twice."""
    outcome = cache(outcome)
    if not figures or not outcome(figures[-1]):
        return None
    first = figures[bisect_left(figures, True, key=lambda figure: outcome(figure) is not None)]
    return first, outcome(first) or ""


class _Trials:
    """Plans again, each time with one thing changed."""

    def __init__(self, snapshot: Snapshot, job: WaitingJob, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self._may_go_on = may_go_on
        self._snapshot = snapshot
        self._job = job
        self._others = tuple(other for other in snapshot.waiting if other.name != job.name)
        self._project = next(it for it in snapshot.policy.projects if it.name == job.project)

    def changed(self, **changes: Any) -> str | None:
        """When the job would start if it were other than it is; None: not for the time being."""
        return self._outcome(replace(self._snapshot, waiting=(*self._others, replace(self._job, **changes))))

    def submitted(self, **changes: Any) -> str | None:
        """When it would start if it were submitted anew, other than it is."""
        return self.changed(entered=self._snapshot.now, **changes)

    def under(self, policy: Policy) -> str | None:
        """When it would start under another policy."""
        return self._outcome(replace(self._snapshot, policy=policy))

    def _outcome(self, snapshot: Snapshot) -> str | None:
        if not self._may_go_on():
            raise _NoMoreTimeError
        decided, name = plan(snapshot), self._job.name
        if any(start.job == name for start in decided.starts):
            return "at once"
        if name not in decided.reservations:
            return None
        leaving = [evict.job for evict in decided.evictions if evict.claimant == name]
        if not leaving:
            return "as soon as the slots that are being freed are free"
        return f"as soon as {join(leaving)} {'has' if len(leaving) == 1 else 'have'} stopped"

    def priorities(self) -> list[int]:
        """Those that would bring it past somebody of its project, lowest first."""
        jobs: tuple[ActiveJob | WaitingJob, ...] = (*self._snapshot.active, *self._others)
        rivals = [job for job in jobs if job.project == self._job.project]
        # With the same priority as another, who came first is served first.
        above = {it for rival in rivals for it in (rival.priority, rival.priority + 1) if it > self._job.priority}
        highest = self._project.priority_ceiling
        return sorted(above if highest is None else {it for it in above if it <= highest})

    def pools(self) -> Sequence[str]:
        """All that its project may use."""
        return self._project.pools or [pool.name for pool in self._snapshot.policy.pools]

    def raised(self, what: str) -> tuple[Policy, list[str]]:
        """A policy whose limits or quotas leave room for it, and what is changed; nothing, if none could be applied."""
        policy, changes = self._snapshot.policy, []
        for queue in self._path():
            figures = dict(getattr(queue, what))
            for pool, count in self._job.demand[0].items():
                needed, now = self._held(queue, pool) + count, figures.get(pool, 0)
                if now < needed and (what == "quota" or pool in figures):
                    figures[pool] = needed
                    changes.append(f"a {what} of {needed}{of_pool(pool)} for {queue.name} (now {now})")
            policy = _with(policy, _raised(queue, what, figures))
        if what == "quota" and not policy.settings.allow_oversubscription and any(oversubscriptions(policy)):
            return policy, []
        return policy, changes

    def _path(self) -> list[Project | Department]:
        departments = self._snapshot.policy.departments
        return [self._project, *(it for it in departments if it.name == self._project.department)]

    def _held(self, queue: Project | Department, pool: str) -> int:
        projects = {it.name for it in self._snapshot.policy.projects if queue.name in (it.name, it.department)}
        return sum(
            job.slots.get(pool, 0)
            for job in self._snapshot.active
            if job.project in projects and job.state is not JobState.STOPPING
        )


def _raised(queue: Project | Department, what: str, figures: Slots) -> Project | Department:
    return replace(queue, limit=figures) if what == "limit" else replace(queue, quota=figures)


def _with(policy: Policy, queue: Project | Department) -> Policy:
    if isinstance(queue, Project):
        projects = tuple(queue if it.name == queue.name else it for it in policy.projects)
        return replace(policy, projects=projects)
    return replace(policy, departments=tuple(queue if it.name == queue.name else it for it in policy.departments))
