"""What the queue answers, as frozen dataclasses with the API's members in snake case.

Times are aware datetimes in UTC. ``to_json`` gives the API's JSON again. What an older queue does not
send has a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sagemaker_queue.codec import Answer, a_time, an, by_pool, listed

FINISHED = frozenset({"completed", "failed", "stopped"})
WAITING = frozenset({"pending", "preempted"})
ACTIVE = frozenset({"starting", "running", "stopping"})

Slots = Mapping[str, int]
"""Pool name -> number of instances."""


@dataclass(frozen=True)
class Reason(Answer):
    """Why a job waits, or why it ended: a code for programs and a sentence for people."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobSummary(Answer):
    """A job as a line of the queue."""

    job: str
    state: str  # pending, starting, running, stopping, preempted, completed, failed or stopped
    priority: int = 0
    project: str | None = None
    group: str | None = None  # jobs that are listed and cancelled together, such as a sweep's
    owner: str | None = None  # ARN of who submitted it
    instances: int = 1
    entry_time: datetime | None = a_time()
    state_since: datetime | None = a_time()
    attempt: int = 0  # the latest one; 0 if none was launched yet
    training_job_name: str | None = None  # of the latest attempt, in SageMaker
    position: int | None = None  # among all that wait, 1 is next; None if it does not wait
    reason: Reason | None = an(Reason)
    cancel_requested: bool = False  # while the job is live: it is being stopped for good
    held: bool = False  # keeps its place, and does not start until it is released
    preemptible: bool = True  # may be stopped to make room
    pools: tuple[str, ...] = listed(str)  # those that its tag names, best first; none: its project's
    slots: Slots = by_pool()  # what it holds now
    retries: int = 0  # how often it is tried again after it failed by itself
    retried: int = 0  # how often it was

    @property
    def finished(self) -> bool:
        """True once nothing more will happen to the job."""
        return self.state in FINISHED

    @property
    def waits(self) -> bool:
        """True while the job stands in a line."""
        return self.state in WAITING


@dataclass(frozen=True)
class Submission(JobSummary):
    """What became of a submitted job, and what its owner may want to know about it."""

    warnings: tuple[str, ...] = listed(str)
    known: bool = False  # the very same request was there already


@dataclass(frozen=True)
class Cancellation(JobSummary):
    """What became of a job that was cancelled."""

    was_finished: bool = False  # there was nothing left to cancel


@dataclass(frozen=True)
class Attempt(Answer):
    """One SageMaker training job that was launched for a job."""

    attempt: int
    training_job_name: str | None = None
    started: datetime | None = a_time()
    ended: datetime | None = a_time()
    outcome: str | None = None  # preempted, completed, failed or stopped; None while it lives


@dataclass(frozen=True)
class Transition(Answer):
    """One change of a job's state."""

    state: str
    at: datetime | None = a_time()
    attempt: int | None = None
    cause: str = ""


@dataclass(frozen=True)
class Why(Answer):
    """Why a job waits, beyond its reason."""

    ahead: tuple[str, ...] = listed(str)  # jobs that come first and want the same pools
    blockers: tuple[str, ...] = listed(str)  # jobs that hold what it needs
    advice: tuple[str, ...] = listed(str)  # sentences: what would let it start


@dataclass(frozen=True)
class JobDetail(JobSummary):
    """All that the queue knows of a job."""

    history: tuple[Transition, ...] = listed(Transition.from_json)
    attempts: tuple[Attempt, ...] = listed(Attempt.from_json)
    request: Mapping[str, Any] = field(default_factory=dict)  # the CreateTrainingJob request
    why: Why | None = an(Why)  # None if it does not wait


@dataclass(frozen=True)
class PoolStatus(Answer):
    """The instances of one pool: ``capacity`` in all, of which the others say what becomes."""

    name: str
    capacity: int = 0
    used: int = 0
    external: int = 0  # by training jobs that are not the queue's
    stopping: int = 0  # those of the used ones that are being freed
    free: int = 0
    instance_type: str | None = None  # None: any


@dataclass(frozen=True)
class DepartmentStatus(Answer):
    """What a department is given and has, by pool."""

    name: str
    quota: Slots = by_pool()
    limit: Slots = by_pool()  # a pool that is not named has none
    share: Slots = by_pool()  # its fair share at this moment
    used: Slots = by_pool()
    waiting: int = 0  # jobs
    more_waiting: bool = False  # and more, which the queue has not counted


@dataclass(frozen=True)
class ProjectStatus(DepartmentStatus):
    """What a project is given and has, by pool."""

    department: str | None = None


@dataclass(frozen=True)
class ExternalJob(Answer):
    """A training job that was started outside the queue and uses instances."""

    training_job_name: str
    slots: Slots = by_pool()
    since: datetime | None = a_time()  # when the queue first saw it
    stopping: bool = False  # it is a stray attempt of the queue, and is stopped


@dataclass(frozen=True)
class Pause(Answer):
    """A pool that backs off because SageMaker had no instances."""

    pool: str
    instance_type: str | None = None  # in a pool of any type
    instances: int = 1  # jobs that ask for so many or more wait
    refusals: int = 1  # in a row
    last_refusal: datetime | None = a_time()
    until: datetime | None = a_time()  # when the next job is tried


@dataclass(frozen=True)
class QueueStatus(Answer):
    """The queue as a whole."""

    pools: tuple[PoolStatus, ...] = listed(PoolStatus.from_json)
    active: tuple[JobSummary, ...] = listed(JobSummary.from_json)
    waiting: tuple[JobSummary, ...] = listed(JobSummary.from_json)  # the next one first
    more_waiting: bool = False  # and more, further behind in their lines
    departments: tuple[DepartmentStatus, ...] = listed(DepartmentStatus.from_json)
    projects: tuple[ProjectStatus, ...] = listed(ProjectStatus.from_json)
    policy_version: int | None = None  # 0: nobody has applied one
    external: tuple[ExternalJob, ...] = listed(ExternalJob.from_json)
    pauses: tuple[Pause, ...] = listed(Pause.from_json)


@dataclass(frozen=True)
class PolicyAnswer(Answer):
    """A policy that is applied; version 0 is the default one, which nobody applied."""

    version: int
    policy: Mapping[str, Any] = field(default_factory=dict)
    applied_by: str | None = None  # ARN
    applied_at: datetime | None = a_time()
    warnings: tuple[str, ...] = listed(str)  # of the call that applied it


@dataclass(frozen=True)
class Eviction(Answer):
    """A job that would be stopped to make room."""

    job: str
    rule: str = ""  # preempt, reclaim or consolidate


@dataclass(frozen=True)
class PlanAnswer(Answer):
    """What would become of a job, were it submitted now."""

    would_start: bool = False
    slots: Slots = by_pool()
    evicts: tuple[Eviction, ...] = listed(Eviction.from_json)
    position: int | None = None  # among all that wait
    reason: Reason | None = an(Reason)  # why it would wait
    ahead: tuple[str, ...] = listed(str)
    blockers: tuple[str, ...] = listed(str)
    advice: tuple[str, ...] = listed(str)  # sentences: what would let it start
    warnings: tuple[str, ...] = listed(str)


@dataclass(frozen=True)
class JobPage(Answer):
    """One page of a list of jobs."""

    jobs: tuple[JobSummary, ...] = field(metadata={"each": JobSummary.from_json})
    next: str | None = None  # asks for the page that follows
