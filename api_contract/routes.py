"""The operations of the API: paths, requests, answers and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from api_contract.error_codes import ErrorCode
from api_contract.history import HistoryFilter, HistoryPage
from api_contract.models import (
    Cancellation,
    CreateTrainingJobRequest,
    DrainAnswer,
    DrainEnd,
    DrainRequest,
    Identity,
    JobChange,
    JobDetail,
    JobFilter,
    JobPage,
    JobSelection,
    JobSummary,
    PlanAnswer,
    PolicyAnswer,
    PolicyChange,
    PolicyHistory,
    PolicyRollback,
    PolicySelection,
    QueueStatus,
    Submission,
    SubmitOptions,
)
from api_contract.preview import PreviewAnswer, PreviewRequest
from api_contract.shape import Answer, Body

Answer_co = TypeVar("Answer_co", bound=Answer, covariant=True)

_READ_ERRORS = (ErrorCode.FORBIDDEN, ErrorCode.INTERNAL_ERROR, ErrorCode.UNAVAILABLE)
_WRITE_ERRORS = (*_READ_ERRORS, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE)


@dataclass(frozen=True)
class Operation(Generic[Answer_co]):
    """One method of one path."""

    id: str
    """A unique id; the client's method may have another name."""
    method: str
    path: str
    """The path, in which `{name}` is the name of a job."""
    summary: str
    answer: type[Answer_co]
    statuses: Mapping[int, str]
    """The HTTP statuses of success, and their meanings."""
    errors: tuple[ErrorCode, ...]
    """The error codes with which the queue may answer."""
    query: type[Body] | None = None
    body: Any = None
    """The type of the request body: a Body, or a document that is defined elsewhere."""
    description: str = field(default="", repr=False)


ADD_JOB = Operation(
    "addJob",
    "POST",
    "/add-job",
    "Submit a training job",
    Submission,
    {
        200: "The same request of the same owner was accepted before: the job as it is",
        202: "The job as it is now, waiting or already starting",
    },
    (*_WRITE_ERRORS, ErrorCode.NAME_TAKEN, ErrorCode.CONFLICT, ErrorCode.TOO_MANY),
    query=SubmitOptions,
    body=CreateTrainingJobRequest,
    description="""The queue validates the request like SageMaker, stores the job, and starts it later.

These tags of the request are options of the queue:

- `priority`: a whole number; jobs with a higher number start sooner (default 0)
- `project`: the project that the job counts for
- `preemptible`: `true` or `false`, whether the job may be stopped to make room
- `interactive`: `true` for a job in which people work; within its quota it comes before training jobs
- `pools`: the pools that the job may use, best first, separated by spaces, commas or plus signs
- `group`: the name of jobs that are listed and cancelled together
- `max_parallel`: the number of jobs of the owner's group that may be active in the project at a time
- `after`: up to 10 jobs that must complete first; `NAME:any` accepts every outcome
- `retries`: the number of retries after failures of the job itself, 0 to 10 (default 0)
- `retry_on`: rules for failures, which precede the rules of the policy
- `not_before`: a time in ISO 8601 before which the job does not start
- `start_by`: a time by which the job should start
- `start_by_action`: the action if the job has not started by then: `notify` (default), `cancel` or `next_pool`
- `max_total_runtime`: the runtime of all attempts together, such as `90m`, `12h` or `3d`
- `max_preemptions`: the largest number of preemptions, 0 to 1,000

The same request may be sent again, for example after a lost answer: the answer then has the job as it is. Pre-flight
refuses a request that is certain to fail, unless it was accepted before.""",
)

LIST_JOBS = Operation(
    "listJobs",
    "GET",
    "/jobs",
    "List jobs",
    JobPage,
    {200: "A page of jobs"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST),
    JobFilter,
    description="""Live jobs come first, sorted by priority and entry time. Finished jobs follow, the latest first. A
page may have fewer jobs than requested, even none, although more pages follow.""",
)

LIST_HISTORY = Operation(
    "listHistory",
    "GET",
    "/history",
    "List finished attempts",
    HistoryPage,
    {200: "A page of attempts"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST),
    HistoryFilter,
    description="""One entry for each attempt, the earliest end first, also for jobs that are no longer stored
(`AttemptHistoryDays`). Times are SageMaker's. A page may have fewer attempts than requested, even none, although more
pages follow.""",
)

DESCRIBE_JOB = Operation(
    "describeJob",
    "GET",
    "/jobs/{name}",
    "Describe a job",
    JobDetail,
    {200: "The job"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.BUSY),
    JobSelection,
    description="""The state is current. The reason, the position and the expected start are those of the last cycle,
because the queue makes a plan for this request only with `advice`.""",
)

CANCEL_JOB = Operation(
    "cancelJob",
    "DELETE",
    "/jobs/{name}",
    "Cancel a job",
    Cancellation,
    {
        200: "The job had finished before, and is unchanged",
        202: "The job is stopped (state `stopped`), or will be (`cancelRequested`)",
    },
    (*_READ_ERRORS, ErrorCode.NOT_FOUND),
    description="""A waiting job is stopped at once. A running job is stopped in SageMaker, which may take minutes; it
can still complete before. Only the job's owner, admins of its project and administrators of the queue may cancel
it.""",
)

CHANGE_JOB = Operation(
    "changeJob",
    "PATCH",
    "/jobs/{name}",
    "Change a job's priority, hold it, release it, requeue it, or enable a shell in it",
    JobSummary,
    {200: "The job as it is now"},
    (*_WRITE_ERRORS, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.BUSY),
    body=JobChange,
    description="""A held job keeps its place and does not start until it is released. `requeue` stops the attempt of
an active job, which then waits again in its old place; a starting attempt is stopped once SageMaker has accepted it.
`{"held": true, "now": true}` does both. Without `now`, a running job cannot be held (409). Nor can a waiting job be
requeued (409). While the attempt is being stopped, the same request again changes nothing. `remoteDebug` enables
SageMaker's remote debugging in the running attempt, while SageMaker reports it as Downloading or Training (409
otherwise); a job that shares an instance is refused (400). A caller has one such request answered at a time (429).
Only the job's owner, admins of its project and administrators of the queue may change it.""",
)

PLAN_JOB = Operation(
    "planJob",
    "POST",
    "/plan",
    "Plan a job without submitting it",
    PlanAnswer,
    {200: "Whether the job would start, which jobs would be stopped for it, or why it would wait"},
    (*_WRITE_ERRORS, ErrorCode.CONFLICT, ErrorCode.TOO_MANY, ErrorCode.BUSY),
    body=CreateTrainingJobRequest,
    description="""The request is validated as by `/add-job`, and the queue makes a plan that contains the job. Nothing
is stored, and no job is stopped. Issues of pre-flight are warnings. The answer describes the present moment.""",
)

DESCRIBE_QUEUE = Operation(
    "describeQueue",
    "GET",
    "/queue",
    "Show pools, departments, projects, and active and waiting jobs in order",
    QueueStatus,
    {200: "The queue as it is now"},
    _READ_ERRORS,
)

DESCRIBE_POLICY = Operation(
    "describePolicy",
    "GET",
    "/policy",
    "Show the policy in force, or an earlier version",
    PolicyAnswer,
    {200: "The policy; version 0 is the default policy, which was never applied"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND),
    PolicySelection,
)

POLICY_HISTORY = Operation(
    "policyHistory",
    "GET",
    "/policy/history",
    "List the versions of the policy",
    PolicyHistory,
    {200: "The stored versions, the policy in force first"},
    _READ_ERRORS,
)

APPLY_POLICY = Operation(
    "applyPolicy",
    "PUT",
    "/policy",
    "Apply a policy",
    PolicyAnswer,
    {200: "The policy is applied"},
    (*_WRITE_ERRORS, ErrorCode.STALE_POLICY, ErrorCode.IN_USE),
    body=PolicyChange,
    description="""The policy takes effect in the next cycle, as a whole or not at all. Running jobs above a new limit
continue, and are not replaced when they end. Only administrators of the queue (`AdminArns`) may apply a policy. The
pools together may have at most the instances of the stack's parameter `MaxCapacity`.""",
)

ROLL_BACK_POLICY = Operation(
    "rollBackPolicy",
    "POST",
    "/policy/rollback",
    "Apply an earlier version of the policy",
    PolicyAnswer,
    {200: "The policy is applied, as a new version"},
    (*_WRITE_ERRORS, ErrorCode.NOT_FOUND, ErrorCode.STALE_POLICY, ErrorCode.IN_USE),
    body=PolicyRollback,
    description="The policy is checked like any other policy, by the rules and against the live jobs.",
)

DRAIN_POOL = Operation(
    "drainPool",
    "POST",
    "/drain",
    "Drain a pool, now or at a time",
    DrainAnswer,
    {200: "The drain is stored, and replaces an earlier drain of the pool"},
    (*_WRITE_ERRORS, ErrorCode.NOT_FOUND),
    body=DrainRequest,
    description="""From the time of the drain on, no job starts in the pool. Its running jobs are stopped as by a
preemption: they wait again in their former positions, and resume in another pool that they accept, or later. Jobs
that are not preemptible run to their ends, unless `stops` is `all`. Before that time, a job starts in the pool only if
its MaxRuntimeInSeconds (without it 24 hours, SageMaker's default) ends by then. The drain lasts until it is ended. Only
administrators of the queue may drain a pool.""",
)

UNDRAIN_POOL = Operation(
    "undrainPool",
    "POST",
    "/undrain",
    "End the drain of a pool",
    DrainAnswer,
    {200: "The pool is not drained"},
    (*_WRITE_ERRORS, ErrorCode.NOT_FOUND),
    body=DrainEnd,
    description="""Jobs start in the pool again. The same request again changes nothing. Only administrators of the
queue may end a drain.""",
)

PREVIEW_POLICY = Operation(
    "previewPolicy",
    "POST",
    "/policy/preview",
    "Preview another policy or other capacities",
    PreviewAnswer,
    {200: "The jobs that would start or be stopped now, or wait longer or less"},
    (*_WRITE_ERRORS, ErrorCode.TAKES_TOO_LONG, ErrorCode.BUSY),
    body=PreviewRequest,
    description="""A policy is validated as by `PUT /policy`. Then the queue is simulated with likely runtimes, under
this policy and under the policy in force. Nothing is changed, and no job is stopped. If too many jobs wait, less is
simulated, and the answer says so. If there is no time for even one simulation, the preview is refused. Members of a
project and administrators of the queue may request a preview.""",
)

WHO_AM_I = Operation(
    "whoAmI",
    "GET",
    "/whoami",
    "Show the caller's identity and rights",
    Identity,
    {200: "The caller and the caller's rights"},
    _READ_ERRORS,
    description="The answer needs no table and no call of SageMaker, so it also works while one of them fails.",
)

OPERATIONS: tuple[Operation[Answer], ...] = (
    ADD_JOB,
    LIST_JOBS,
    LIST_HISTORY,
    DESCRIBE_JOB,
    CANCEL_JOB,
    CHANGE_JOB,
    PLAN_JOB,
    DESCRIBE_QUEUE,
    DESCRIBE_POLICY,
    POLICY_HISTORY,
    APPLY_POLICY,
    ROLL_BACK_POLICY,
    DRAIN_POOL,
    UNDRAIN_POOL,
    PREVIEW_POLICY,
    WHO_AM_I,
)
