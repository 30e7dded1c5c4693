"""What a cycle sees: the queue's rows, read strongly consistently, and the snapshot that planning takes of them."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from job_queue.control import Control
from job_queue.observing import Load
from job_queue.pauses import Pauses, kinds
from job_queue.policy import AppliedPolicy, Policies, alternatives, slots_of
from job_queue.records import ExternalJob, Job, epoch, project_of_line
from job_queue.scheduler import ActiveJob, JobState, PausedPool, Policy, Project, Snapshot, WaitingJob
from job_queue.store import Store


class Parallel(Protocol):
    """Runs calls that do not depend on each other and gives their answers in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Raises what the first failing call raised."""


def one_by_one(calls: Sequence[Callable[[], Any]], /) -> list[Any]:
    """The simplest Parallel."""
    return [call() for call in calls]


@dataclass(frozen=True, slots=True)
class World:
    """The live jobs and what else uses capacity."""

    control: Control
    applied: AppliedPolicy
    active: Mapping[str, Job]
    waiting: Mapping[str, Job]
    external: tuple[ExternalJob, ...]
    cut: frozenset[str] = frozenset()  # waiting lines of which only the first jobs, the policy's `window`, were read

    @property
    def policy(self) -> Policy:
        """The policy, and with it the projects that it no longer has but that still have jobs.

        Those have no quota and no part of what is left over: their running jobs are the first to make room.
        """
        known = {project.name for project in self.applied.policy.projects}
        jobs = [*self.active.values(), *self.waiting.values()]
        gone = sorted({job.project for job in jobs} - known)
        if not gone:
            return self.applied.policy
        ghosts = tuple(Project(name, over_quota=0) for name in gone)
        return replace(self.applied.policy, projects=(*self.applied.policy.projects, *ghosts))

    def with_active(self, jobs: Iterable[Job]) -> "World":
        """The same world with some active jobs changed."""
        return replace(self, active={**self.active, **{job.name: job for job in jobs}})

    def with_waiting(self, job: Job) -> "World":
        """The same world with one more waiting job."""
        return replace(self, waiting={**self.waiting, job.name: job})

    def more_wait(self, projects: Container[str]) -> bool:
        """Whether more jobs of these projects wait than were read."""
        return any(project_of_line(line) in projects for line in self.cut)

    def pauses(self, now: float) -> Pauses:
        """Where SageMaker lacks instances."""
        return {place: pause for place, pause in self.control.pauses.items() if not pause.is_forgotten(now)}

    def loads(self, changed: Iterable[Job]) -> dict[str, Load]:
        """The load of each project, after some jobs have changed."""
        jobs = {**self.waiting, **self.active} | {job.name: job for job in changed}
        by_project: dict[str, list[Job]] = {project.name: [] for project in self.policy.projects}
        for job in jobs.values():
            by_project.setdefault(job.project, []).append(job)
        return {project: _load(jobs) for project, jobs in by_project.items()}

    def external_slots(self) -> dict[str, int]:
        """What training jobs that are not the queue's use of each pool."""
        used: dict[str, int] = {}
        for job in self.external:
            for pool, count in slots_of(job.demand, self.applied.policy).items():
                used[pool] = used.get(pool, 0) + count
        return used

    def snapshot(self, now: float) -> Snapshot:
        """What the planner plans with."""
        policy = self.applied.policy
        return Snapshot(
            policy=self.policy,
            now=now,
            active=tuple(_active(job, policy) for job in self.active.values()),
            waiting=tuple(_waiting(job, policy) for job in self.waiting.values()),
            external=self.external_slots(),
            reserved=self.control.reservations,
            paused={place: PausedPool(pause.until, pause.instances) for place, pause in self.pauses(now).items()},
        )


def read_world(store: Store, policies: Policies, parallel: Parallel, control: Control | None = None) -> World:
    """Read the world, as the holder of the lease: the reads do not depend on the length of the waiting lines.

    A row that moves while it is read may be seen twice or not at all; planning on a stale one is harmless, as its
    version will be refused, and one that is missed is news.

    :param control: the control rows, where they have been read already.
    """
    control = control or store.control()
    active, external, *lines = parallel([store.active, store.external, *_waiting_lines(store, policies, control)])
    return _world(control, policies, external, [active], lines)


def look_at_world(store: Store, policies: Policies, parallel: Parallel) -> World:
    """Read the world while others change it; no job is missed.

    The active line is read before and after the waiting ones: so a job that moves meanwhile, either way, is in one of
    them when that is read.
    """
    active, control = parallel([store.active, store.control])
    external, *lines = parallel([store.external, *_waiting_lines(store, policies, control)])
    return _world(control, policies, external, [active, store.active()], lines)


def latest(read: Iterable[Iterable[Job]]) -> dict[str, Job]:
    """Each job of some lines by its name, as the latest of what was read of it."""
    jobs: dict[str, Job] = {}
    for job in (job for line in read for job in line):
        if job.name not in jobs or jobs[job.name].version < job.version:
            jobs[job.name] = job
    return jobs


def _waiting_lines(store: Store, policies: Policies, control: Control) -> list[Callable[[], list[Job]]]:
    """Read one job more than is planned with, to know whether there are more."""
    window = policies.of(control.policy).policy.settings.window
    return [partial(store.waiting, line, window + 1) for line in sorted(control.lines)]


def _world(
    control: Control, policies: Policies, external: list[ExternalJob], active: list[list[Job]], lines: list[list[Job]]
) -> World:
    applied = policies.of(control.policy)
    window = applied.policy.settings.window
    jobs = latest([*active, *(line[:window] for line in lines)])
    return World(
        control=control,
        applied=applied,
        active={name: job for name, job in jobs.items() if job.state.holds_slots},
        waiting={name: job for name, job in jobs.items() if job.state.waits},
        external=tuple(external),
        cut=frozenset(line for line, jobs in zip(sorted(control.lines), lines, strict=True) if len(jobs) > window),
    )


def _load(jobs: list[Job]) -> Load:
    active = [job for job in jobs if job.state.holds_slots]
    return Load(
        waiting=sum(job.state.waits for job in jobs),
        active=len(active),
        instances=sum(job.instances for job in active),
    )


def _active(job: Job, policy: Policy) -> ActiveJob:
    return ActiveJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        slots=job.slots,
        state=job.state,
        entered=epoch(job.entered),
        started=epoch(job.started) if job.started else None,
        preemptible=job.preemptible,
        demand=alternatives(job, policy),
        max_runtime=job.max_runtime,
        comes_back=job.state is JobState.STOPPING and not job.cancelled,
    )


def _waiting(job: Job, policy: Policy) -> WaitingJob:
    demand = alternatives(job, policy)
    return WaitingJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        demand=demand,
        entered=epoch(job.entered),
        preemptible=job.preemptible,
        held=job.held,
        backoff_until=job.backoff_until,
        max_runtime=job.max_runtime,
        kinds=kinds(job, demand, policy),
    )
