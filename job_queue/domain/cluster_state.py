"""What a cycle knows when it plans: the live jobs, what else uses capacity, and the planner's snapshot of them."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from job_queue.domain.capacity_backoff import CapacityBackoff, CapacityBackoffs, kinds
from job_queue.domain.job import ExternalJob, Item, Job, epoch, project_of_line
from job_queue.domain.policy import AppliedPolicy, alternatives, slots_of
from job_queue.scheduler.model import ActiveJob, JobState, PausedPool, Policy, Project, Snapshot, WaitingJob


@dataclass(frozen=True, slots=True)
class Metadata:
    """The queue's own rows, as one strongly consistent read saw them."""

    token: int = 0  # of the lease, when this was read
    news: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)  # waiting lines in use -> when last entered
    policy: Item | None = None  # the policy's row: {version, document (JSON text), appliedAt, appliedBy}
    reservations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pauses: Mapping[str, CapacityBackoff] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProjectLoad:
    """The live jobs of a project, as far as a cycle reads its waiting lines (the policy's `window`)."""

    waiting: int = 0  # jobs
    active: int = 0  # jobs that hold slots
    instances: int = 0  # ... and how many


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The live jobs and what else uses capacity."""

    metadata: Metadata
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

    def with_active(self, jobs: Iterable[Job]) -> "ClusterState":
        """The same state with some active jobs changed."""
        return replace(self, active={**self.active, **{job.name: job for job in jobs}})

    def with_waiting(self, job: Job) -> "ClusterState":
        """The same state with one more waiting job."""
        return replace(self, waiting={**self.waiting, job.name: job})

    def more_wait(self, projects: Container[str]) -> bool:
        """Whether more jobs of these projects wait than were read."""
        return any(project_of_line(line) in projects for line in self.cut)

    def pauses(self, now: float) -> CapacityBackoffs:
        """Where SageMaker lacks instances."""
        return {place: pause for place, pause in self.metadata.pauses.items() if not pause.is_forgotten(now)}

    def loads(self, changed: Iterable[Job]) -> dict[str, ProjectLoad]:
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
            reserved=self.metadata.reservations,
            paused={place: PausedPool(pause.until, pause.instances) for place, pause in self.pauses(now).items()},
        )


def latest_versions(read: Iterable[Iterable[Job]]) -> dict[str, Job]:
    """Each job of some lines by its name, as the latest of what was read of it."""
    jobs: dict[str, Job] = {}
    for job in (job for line in read for job in line):
        if job.name not in jobs or jobs[job.name].version < job.version:
            jobs[job.name] = job
    return jobs


def _load(jobs: list[Job]) -> ProjectLoad:
    active = [job for job in jobs if job.state.holds_slots]
    return ProjectLoad(
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
