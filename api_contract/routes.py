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
    """The errors that the queue may answer."""
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
        200: "The very same request of the same owner was known: the job as it is",
        202: "The job as it is now, waiting or already starting",
    },
    (*_WRITE_ERRORS, ErrorCode.NAME_TAKEN, ErrorCode.CONFLICT, ErrorCode.TOO_MANY),
    query=SubmitOptions,
    body=CreateTrainingJobRequest,
    description="""The job is validated as SageMaker would do it, stored, and started when its turn comes. The tag
`priority`, a whole number, says how important it is (0 without it; the higher, the sooner), `project` whom it counts
for, `preemptible` (`true` or `false`) whether it may be stopped to make room, `interactive` (`true` or `false`)
whether people work in it, so that within quota it comes before training jobs, and is not preemptible, `pools` (names,
separated by spaces, commas or plus signs) where it may run, best first, `group` joins jobs that are listed and
cancelled together, `max_parallel` says how many jobs of its owner's group in its project may be active at once,
`after` names jobs that have to complete before it starts (`NAME:any` where any end will do; up to 10, with spaces or
plus signs between; if one does not complete, the job is stopped), and `retries` (0 to 10, 0 without it) says how
often it is tried again after it failed by itself; lack of capacity, faults of SageMaker and evictions do not count.
Deadlines are tags, too: `not_before` (a time in ISO 8601; the job does not start earlier), `start_by` (a time) with
`start_by_action` (`notify`, `cancel` or `next_pool`: what happens if the job has not started by then; `notify` without
it; `start_by` may also end in it, as in `TIME:cancel`), and `max_total_runtime` (seconds, or `90m`, `12h`, `3d`: how
long all attempts may run together). `max_preemptions` (0 to 1,000) says how often the job may be stopped to make room.
`retry_on` has rules for failures (exit codes, classes, or `text:` and a part of the reason; then `=` and `fail`,
`retry`, `retry-free`, `retry-fresh` or `retry-free-fresh`), before those of the policy.
Submitting the very same request again changes nothing and answers with the job as it is, so it is safe to repeat a
call whose answer was lost. A request that is certain to come to nothing (pre-flight) is refused, too, unless it was
taken before.""",
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
    description="""Live jobs come first, by priority, the highest first, then by entry time; finished ones follow, the
latest first. A page may hold fewer jobs than asked for, even none, and still not be the last.""",
)

LIST_HISTORY = Operation(
    "listHistory",
    "GET",
    "/history",
    "List attempts that have ended",
    HistoryPage,
    {200: "A page of attempts"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST),
    HistoryFilter,
    description="""One entry for each attempt, the earliest end first, also where its job is forgotten
(`AttemptHistoryDays`). Times are SageMaker's. A page may hold fewer attempts than asked for, even none, and still not
be the last.""",
)

DESCRIBE_JOB = Operation(
    "describeJob",
    "GET",
    "/jobs/{name}",
    "All that is known of a job",
    JobDetail,
    {200: "The job"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.BUSY),
    JobSelection,
    description="""Its state is that of this moment. Why it waits, its position and its expected start are those of the
queue's last cycle, as the queue is not planned for this request, unless it asks for advice.""",
)

CANCEL_JOB = Operation(
    "cancelJob",
    "DELETE",
    "/jobs/{name}",
    "Cancel a job",
    Cancellation,
    {
        200: "The job had finished before; it is as it was",
        202: "The job is stopped (state `stopped`), or is going to be (`cancelRequested`)",
    },
    (*_READ_ERRORS, ErrorCode.NOT_FOUND),
    description="""A job that waits is stopped at once. One that is live is stopped in SageMaker, which may take
minutes; it can still complete before. Only the job's owner, admins of its project and administrators of the queue may
cancel it.""",
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
    "What would become of a job, were it submitted now",
    PlanAnswer,
    {200: "Whether it would start, whom it would evict, or why it would wait"},
    (*_WRITE_ERRORS, ErrorCode.CONFLICT, ErrorCode.TOO_MANY, ErrorCode.BUSY),
    body=CreateTrainingJobRequest,
    description="""The request is validated as by `/add-job`, and the queue planned as if the job were in it. Nothing is
stored, nobody is stopped. What pre-flight has against the request is among the warnings. The answer holds for this
moment.""",
)

DESCRIBE_QUEUE = Operation(
    "describeQueue",
    "GET",
    "/queue",
    "Pools, departments and projects, who runs, and who waits, in order",
    QueueStatus,
    {200: "The queue as it is now"},
    _READ_ERRORS,
)

DESCRIBE_POLICY = Operation(
    "describePolicy",
    "GET",
    "/policy",
    "The policy that holds now, or an earlier version",
    PolicyAnswer,
    {200: "The policy; version 0 is the default one, which nobody applied"},
    (*_READ_ERRORS, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND),
    PolicySelection,
)

POLICY_HISTORY = Operation(
    "policyHistory",
    "GET",
    "/policy/history",
    "Who applied which policy, and when",
    PolicyHistory,
    {200: "The versions that are kept, the present one first"},
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
    description="""It takes effect in the next cycle, as a whole or not at all. Running jobs above a new limit go on,
and are not replaced when they end. Only administrators of the queue (`AdminArns`) may apply a policy, and where there
are none, nobody. Its pools may have no more instances together than the stack's parameter `MaxCapacity`.""",
)

ROLL_BACK_POLICY = Operation(
    "rollBackPolicy",
    "POST",
    "/policy/rollback",
    "Apply an earlier version of the policy",
    PolicyAnswer,
    {200: "The policy is applied, as a version of its own"},
    (*_WRITE_ERRORS, ErrorCode.NOT_FOUND, ErrorCode.STALE_POLICY, ErrorCode.IN_USE),
    body=PolicyRollback,
    description="It is checked as any other that is applied, by the rules and against the jobs of now.",
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
preemption: they wait again in their old places, and resume in another pool that they accept, or after the drain. Jobs
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
    "What another policy, or other capacities, would change",
    PreviewAnswer,
    {200: "Who would start or be stopped now, and who would wait longer or less long"},
    (*_WRITE_ERRORS, ErrorCode.TAKES_TOO_LONG, ErrorCode.BUSY),
    body=PreviewRequest,
    description="""A policy is validated as by `PUT /policy`. Then the queue is planned under it, and carried ahead with
likely runtimes, as it is under the policy that holds. Nothing is changed, and nobody is stopped. Where so many jobs
wait that this would take too long, less is looked at, and the answer says so. Where not even one likely future could be
looked at in time, the preview is refused at once. It is for members of a project and administrators of the queue.""",
)

WHO_AM_I = Operation(
    "whoAmI",
    "GET",
    "/whoami",
    "Who the caller is to the queue",
    Identity,
    {200: "The caller, and what the queue lets them do"},
    _READ_ERRORS,
    description="It reads nothing: it is answered also where a table or SageMaker is not.",
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
