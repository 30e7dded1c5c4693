"""The state that a cycle reads (live jobs, external jobs, metadata), and its conversion to the planner's snapshot."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from job_queue.domain.accounting.attempts import AttemptRecord, PastUseOfAttempts
from job_queue.domain.capacity_backoff import CapacityBackoffs, instance_types
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.fleet.checkpoints import KnownCheckpoints, checkpoint_of
from job_queue.domain.fleet.listing import ListingProgress
from job_queue.domain.fleet.training_plans import KnownPlans, calendars
from job_queue.domain.fleet.warm_matching import fitting_jobs, usable_warm_pools, warm_slots
from job_queue.domain.job import MANY_REFUSALS, ExternalTrainingJob, Job, epoch, project_of_waiting_queue
from job_queue.domain.policy import AppliedPolicy, StoredPolicy, alternatives, under_ceiling, why_pools_are_unusable
from job_queue.scheduler import (
    ActiveJob,
    Calendar,
    Carrier,
    Drain,
    Drains,
    JobState,
    PastUse,
    PausedPool,
    Policy,
    Project,
    Snapshot,
    WaitingJob,
    depends_on_past_use,
    stopping_drain,
)


@dataclass(frozen=True, slots=True)
class StoredDrains:
    """All drains, as they are stored. Each change makes the next version."""

    version: int = 0  # 0: no drain was ever stored
    by_pool: Drains = field(default_factory=dict)  # includes drains of pools that the policy no longer has


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of the queue, as one strongly consistent read returned it."""

    fencing_token: int = 0  # fencing token of the lease
    lease_expires: int = 0  # epoch seconds at which the lease ends
    generation: int = 0  # the wake-up counter
    waiting_queues: Mapping[str, int] = field(
        default_factory=dict
    )  # waiting queue in use -> epoch seconds at which a job was last added
    opened_by: Mapping[str, str] = field(default_factory=dict)  # waiting queue -> owner of its first job, if known
    policy: StoredPolicy | None = None
    drains: StoredDrains = StoredDrains()
    reservations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # job -> pool -> slots
    capacity_backoffs: CapacityBackoffs = field(default_factory=dict)
    listing: ListingProgress | None = None  # the known part of SageMaker's list of training jobs
    reconciled: int | None = None  # epoch seconds of the last successful comparison with SageMaker's list
    site_listings: Mapping[str, ListingProgress] = field(
        default_factory=dict
    )  # key of another site -> the known part of its list
    site_reconciled: Mapping[str, int] = field(default_factory=dict)  # key of another site -> its `reconciled`
    training_plans: KnownPlans = field(default_factory=dict)
    checkpoints: KnownCheckpoints = field(default_factory=dict)
    unrecorded: Mapping[str, int] = field(
        default_factory=dict
    )  # job whose transition could not be recorded -> epoch seconds of the next try


@dataclass(frozen=True, slots=True)
class ProjectLoad:
    """The numbers of a project's live jobs. Waiting jobs beyond the policy's `window` are not counted."""

    waiting: int = 0  # waiting jobs
    refused: int = 0  # waiting jobs that SageMaker has refused for `LASTING_SECONDS`
    active: int = 0  # jobs that hold slots
    instances: int = 0  # instances that the active jobs hold, without members


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The live jobs, the external jobs, the metadata and the policy in force, as a cycle reads them."""

    metadata: Metadata
    applied: AppliedPolicy
    active: Mapping[str, Job]
    waiting: Mapping[str, Job]
    external: tuple[ExternalTrainingJob, ...]
    truncated_queues: frozenset[str] = frozenset()  # waiting queues of which only the policy's `window` was read
    outlook: Outlook = Outlook()  # empty if plans do not need it
    ended: tuple[AttemptRecord, ...] = ()  # attempts that have ended recently, if plans depend on past use

    @property
    def policy(self) -> Policy:
        """The policy in force, plus the removed projects that still have jobs.

        A removed project has no quota and no over-quota share, so other projects can reclaim its slots.
        """
        known = {project.name for project in self.applied.policy.projects}
        jobs = [*self.active.values(), *self.waiting.values()]
        missing = sorted({job.project for job in jobs} - known)
        if not missing:
            return self.applied.policy
        added = tuple(Project(name, over_quota=0) for name in missing)
        return replace(self.applied.policy, projects=(*self.applied.policy.projects, *added))

    def with_changed(self, jobs: Iterable[Job]) -> "ClusterState":
        """Return the same state with changed active jobs. Jobs that no longer hold slots are left out."""
        active = {**self.active, **{job.name: job for job in jobs}}
        return replace(self, active={name: job for name, job in active.items() if job.state.holds_slots})

    def with_waiting(self, job: Job) -> "ClusterState":
        """Return the same state with one more waiting job."""
        return replace(self, waiting={**self.waiting, job.name: job})

    def with_waiting_changed(self, jobs: Iterable[Job]) -> "ClusterState":
        """Return the same state with changed waiting jobs. Jobs that no longer wait are left out."""
        waiting = {**self.waiting, **{job.name: job for job in jobs}}
        return replace(self, waiting={name: job for name, job in waiting.items() if job.state.waits})

    def more_wait(self, projects: Container[str]) -> bool:
        """Return whether these projects have more waiting jobs than were read."""
        return any(project_of_waiting_queue(key) in projects for key in self.truncated_queues)

    def capacity_backoffs(self, now: float) -> CapacityBackoffs:
        """Return the capacity backoffs that still count."""
        return {
            capacity_key: backoff
            for capacity_key, backoff in self.metadata.capacity_backoffs.items()
            if not backoff.is_forgotten(now)
        }

    def loads(self, changed: Iterable[Job]) -> dict[str, ProjectLoad]:
        """Return the load of each project, by name. `changed` jobs replace the jobs of the same name that were read."""
        jobs = {**self.waiting, **self.active} | {job.name: job for job in changed}
        by_project: dict[str, list[Job]] = {project.name: [] for project in self.policy.projects}
        for job in jobs.values():
            by_project.setdefault(job.project, []).append(job)
        return {project: _load(jobs) for project, jobs in by_project.items()}

    def lasting_refusals(self, loads: Mapping[str, ProjectLoad], now: float) -> int:
        """Count the jobs and capacity keys that SageMaker has refused for `LASTING_SECONDS`, for the alarm."""
        backoffs = self.capacity_backoffs(now).values()
        return sum(load.refused for load in loads.values()) + sum(it.is_lasting for it in backoffs)

    def external_slots(self) -> dict[str, int]:
        """Return the slots of each pool that external jobs use, without warm pools that can be released."""
        used: dict[str, int] = {}
        for job in self.external:
            if job.warm is not None and not job.warm.fixed:
                continue  # the instances can be released
            for pool, count in warm_slots(job, self.applied.policy).items():
                used[pool] = used.get(pool, 0) + count
        return used

    def warm(self) -> dict[str, int]:
        """Return the instances of warm pools that can be used or released, by pool."""
        kept: dict[str, int] = {}
        for job in usable_warm_pools(self.external):
            for pool, count in warm_slots(job, self.applied.policy).items():
                kept[pool] = kept.get(pool, 0) + count
        return kept

    @property
    def drains(self) -> Drains:
        """The drains of the policy's pools."""
        names = {pool.name for pool in self.applied.policy.pools}
        return {pool: drain for pool, drain in self.metadata.drains.by_pool.items() if pool in names}

    def drain_of(self, job: Job, now: float) -> tuple[str, Drain] | None:
        """Return the pool whose drain stops an active job, with the drain; None if no drain stops the job.

        A drain of a carrier's pool stops the members. The carrier itself ends when its members have ended.
        """
        if job.carries is not None:
            return None
        return stopping_drain(self.drains, self.pools_of(job), now, preemptible=job.may_be_preempted)

    def pools_of(self, job: Job) -> Iterable[str]:
        """Return the pools in which an active job holds slots; for a member, the pool of its carrier."""
        carrier = self.active.get(job.allocation.carrier) if job.allocation is not None else None
        return (carrier or job).slots.keys()

    def calendars(self, now: float) -> dict[str, Calendar]:
        """Return the calendars of the pools that have training plans."""
        return calendars(self.metadata.training_plans, self.applied.policy, now)

    def unrecorded(self, now: float) -> frozenset[str]:
        """Return the jobs whose transitions could not be recorded. Plans do not start or stop these jobs for now."""
        return frozenset(name for name, until in self.metadata.unrecorded.items() if now < until)

    def _past_use(self, now: float) -> Mapping[str, PastUse]:
        """Return the outlook's past use plus that of attempts that ended later; empty if plans do not need past use."""
        if not depends_on_past_use(self.applied.policy):
            return {}
        sums = PastUseOfAttempts(self.applied.policy, self.outlook.past_use, self.outlook.at)
        sums.add(it for it in self.ended if it.training_job_name not in self.outlook.counted)
        return sums.at(now)

    def pools_at(self, now: float) -> Snapshot:
        """Return the planner's input without jobs: the pools, and the instances that they have now.

        :param now: epoch seconds.
        """
        calendars = self.calendars(now)
        plans = {pool: it.instances for pool, it in calendars.items() if it.is_open(now)}
        policy = under_ceiling(self.policy, self.applied.ceiling, plans)
        return Snapshot(policy, now, calendars=calendars, drains=self.drains)

    def snapshot(self, now: float) -> Snapshot:
        """Return the planner's input.

        Unrecorded jobs are left out if they wait, and cannot be stopped if they are active.
        """
        policy, unrecorded = self.applied.policy, self.unrecorded(now)
        warm = fitting_jobs(self.waiting.values(), self.external, policy, now)
        expected = self.outlook.expected
        return replace(
            self.pools_at(now),
            active=tuple(
                _active(
                    job,
                    policy,
                    now,
                    self.metadata.checkpoints,
                    must_stay=job.name in unrecorded or job.is_stop_denied(now),
                    expected=expected.get(job.name),
                    idle_since=self.outlook.idle_since(job, now),
                )
                for job in self.active.values()
                if job.carries is None
            ),
            waiting=tuple(
                _waiting(
                    job,
                    policy,
                    now,
                    warm=job.name in warm,
                    more_wait=job.waiting_queue in self.truncated_queues,
                    expected=expected.get(job.name),
                )
                for job in self.waiting.values()
                if job.name not in unrecorded and job.carries is None
            ),
            carriers=tuple(_carrier(job, now) for job in self.active.values() if job.carries is not None),
            external=self.external_slots(),
            reserved=self.metadata.reservations,
            paused={
                capacity_key: PausedPool(
                    backoff.until,
                    backoff.min_instances,
                    backoff.at_fault,
                    backoff.lag if backoff.is_lag else None,
                    backoff.unreachable,
                )
                for capacity_key, backoff in self.capacity_backoffs(now).items()
                if not backoff.is_open(now)
            },
            past_use=self._past_use(now),
        )


def latest_versions(reads: Iterable[Iterable[Job]]) -> dict[str, Job]:
    """Return the latest version of each job among the reads, by name."""
    jobs: dict[str, Job] = {}
    for job in chain.from_iterable(reads):
        if job.name not in jobs or jobs[job.name].version < job.version:
            jobs[job.name] = job
    return jobs


def _load(jobs: list[Job]) -> ProjectLoad:
    active = [job for job in jobs if job.state.holds_slots]
    return ProjectLoad(
        waiting=sum(job.state.waits for job in jobs),
        refused=sum(job.is_refused_for_long for job in jobs),
        active=len(active),
        instances=sum(job.instances for job in active if job.allocation is None),
    )


def _active(
    job: Job,
    policy: Policy,
    now: float,
    checkpoints: KnownCheckpoints,
    *,
    must_stay: bool,
    expected: float | None,
    idle_since: float | None,
) -> ActiveJob:
    return ActiveJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        slots=job.slots,
        state=job.state,
        entered=epoch(job.entered),
        started=epoch(job.started) if job.started else None,
        preemptible=job.preemptible,
        interactive=job.interactive,
        demand=alternatives(job, policy),
        checkpoint=checkpoint_of(job, checkpoints),
        max_runtime=job.attempt_limit,
        expected=expected,
        idle_since=idle_since,
        stop_denied=must_stay,
        comes_back=job.state is JobState.STOPPING and not job.cancelled and not job.held,
        owner=job.owner,
        group=job.group,
        max_parallel=job.max_parallel,
        allocation=job.allocation,
        kind=job.kind or "",
        preemptions=job.preemptions(now),
        preempted_in_all=job.preemptions_in_all,
        max_preemptions=job.max_preemptions,
    )


def _carrier(job: Job, now: float) -> Carrier:
    return Carrier(
        name=job.name,
        pool=next(iter(job.slots)),
        project=job.project,
        kind=job.kind or "",
        gpus=job.carries or 0,
        state=JobState.STOPPING if job.cancelled else job.state,
        started=epoch(job.started or job.since),
        empty_since=job.empty_since,
        preemptible=job.preemptible,
        owner=job.owner,
        stop_denied=job.is_stop_denied(now),
        ready=job.agent_key is not None,
    )


def _waiting(
    job: Job, policy: Policy, now: float, *, warm: bool, more_wait: bool, expected: float | None
) -> WaitingJob:
    demand = alternatives(job, policy)
    return WaitingJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        demand=demand,
        entered=epoch(job.entered),
        preemptible=job.preemptible,
        interactive=job.interactive,
        held=job.held,
        backoff_until=job.backoff_until,
        max_runtime=job.attempt_limit,
        expected=expected,
        warm=warm,
        kinds=instance_types(job, demand, policy),
        refusal=job.reason if job.refused else None,
        on_free_slots_only=job.refusals >= MANY_REFUSALS,
        left_idle=job.left_idle,
        more_wait=more_wait,
        after=tuple((it.job, it.any_outcome) for it in job.after),
        owner=job.owner,
        group=job.group,
        max_parallel=job.max_parallel,
        gpus=job.gpus,
        kind=job.kind or "",
        preemptions=job.preemptions(now),
        preempted_in_all=job.preemptions_in_all,
        max_preemptions=job.max_preemptions,
        not_before=job.not_before,
        unusable=why_pools_are_unusable(job, policy),
    )
