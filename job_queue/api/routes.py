"""The routes of the private REST API: HTTP is read and written here, and nowhere else."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

import msgspec
from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response, content_types
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from api_contract import VERSION
from api_contract import routes as contract
from api_contract.history import HistoryFilter, HistoryPage
from api_contract.models import (
    Cancellation,
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
from api_contract.routes import Operation
from api_contract.shape import Answer
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.heavy_requests import DRY_RUN_SLOTS, PREVIEW_SLOTS
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.api.error_mapping import refusal
from job_queue.api.history import past_attempt
from job_queue.api.pages import HistoryPages, JobPages, states_of
from job_queue.api.previews import preview_answer, preview_of
from job_queue.api.queue_position import QueuePosition
from job_queue.api.requests import read_body, read_query
from job_queue.api.responses import (
    Sees,
    detail,
    plan_answer,
    policy_answer,
    policy_history,
    queue_status,
    summary,
)
from job_queue.api.sizes import LARGEST_ANSWER, MOST_BYTES, sent_bytes, that_fit
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain.access.rights import Action, Relation, Rights, needs_no_job
from job_queue.domain.carriers.founding import owner_part
from job_queue.domain.errors import Busy, Forbidden, InvalidRequest, NotFound, QueueError, TooLarge, Unavailable
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.identity import owner_of
from job_queue.domain.job import Job, JobRecord
from job_queue.services.dry_run import DryRun
from job_queue.services.job_commands import JobCommands
from job_queue.services.policy_service import PolicyService
from job_queue.services.preview import PreviewService
from job_queue.services.readings import Readings
from job_queue.services.submission import MAX_REQUEST_BYTES, SubmissionService
from job_queue.validation.issue import quoted
from job_queue.validation.json_text import json_object

MAX_BODY_BYTES = 2 * MAX_REQUEST_BYTES  # white space and escapes are not kept, but there is an end to them
RETRY_AFTER = {"Retry-After": "2"}  # seconds

ACTIONS = {
    contract.ADD_JOB.id: Action.SUBMIT,
    contract.PLAN_JOB.id: Action.PLAN,
    contract.LIST_JOBS.id: Action.LIST_JOBS,
    contract.LIST_HISTORY.id: Action.LIST_HISTORY,
    contract.DESCRIBE_JOB.id: Action.SHOW_JOB,
    contract.CANCEL_JOB.id: Action.CANCEL,
    contract.CHANGE_JOB.id: Action.CHANGE,
    contract.DESCRIBE_QUEUE.id: Action.SHOW_QUEUE,
    contract.DESCRIBE_POLICY.id: Action.SHOW_POLICY,
    contract.POLICY_HISTORY.id: Action.SHOW_HISTORY,
    contract.APPLY_POLICY.id: Action.APPLY_POLICY,
    contract.ROLL_BACK_POLICY.id: Action.ROLL_BACK,
    contract.PREVIEW_POLICY.id: Action.PREVIEW,
    contract.WHO_AM_I.id: Action.WHO_AM_I,
}

Parameters = ParamSpec("Parameters")
Answered = TypeVar("Answered", bound=Answer)
Value = TypeVar("Value")


def build_api(  # noqa: C901, PLR0915  (a function per route)
    repository: JobRepository,
    submissions: SubmissionService,
    scheduler: Controller,
    readings: Readings,
    answers: Readings,
    dry_run: DryRun,
    listing: JobPages,
    history: HistoryPages,
    commands: JobCommands,
    policy_service: PolicyService,
    previews: PreviewService,
    settings: DeploymentSettings,
    invocation: Callable[[], Invocation],
) -> APIGatewayRestResolver:
    """The API.

    :param readings: for requests that read.
    :param answers: for requests that change something, and are told of their own changes.
    :param invocation: the one that is under way.
    """
    api = APIGatewayRestResolver(strip_prefixes=[])
    rights = settings.rights
    serves = partial(_serves, api, rights)

    def _sees() -> Sees:
        return partial(commands.may_see_values, caller=_caller(api))

    @serves(contract.ADD_JOB)
    def add_job() -> tuple[int, Submission]:
        options = read_query(SubmitOptions, _query(api))
        accepted = submissions.submit(_training_job(api), _caller(api), preflight=options.preflight)
        job = accepted.record.job
        if not job.state.finished:
            scheduler.wake(invocation(), accepted.metadata)
        record = repository.record(job.name) or accepted.record
        positions = _positions(answers, record.job)
        warnings = list(accepted.warnings)
        never = positions.never_starts(record.job)
        if never and not any(never in warning for warning in warnings):
            warnings.append(f"The job cannot start: {never} Cancel it, or ask for less.")
        answer = summary(Submission, record.job, positions, _sees(), warnings=tuple(warnings), known=accepted.known)
        return 200 if accepted.known else 202, answer

    @serves(contract.LIST_JOBS)
    def list_jobs() -> tuple[int, JobPage]:
        wanted = read_query(JobFilter, _query(api))
        states, told = states_of(wanted.state), readings.told()
        jobs, following = listing.page(states, wanted.limit, _given(wanted.next))
        positions, sees = QueuePosition(told.plan, told.outlook), _sees()
        page, _ = that_fit((summary(JobSummary, job, positions, sees) for job in jobs), MOST_BYTES)
        return 200, JobPage(page, listing.after(jobs[len(page) - 1]) if len(page) < len(jobs) else following)

    @serves(contract.LIST_HISTORY)
    def list_history() -> tuple[int, HistoryPage]:
        wanted = read_query(HistoryFilter, _query(api))
        filters = {"owner": _given(wanted.owner), "project": _given(wanted.project)}
        since, until = _given(wanted.since), _given(wanted.until)
        found, following = history.page(since, until, wanted.limit, _given(wanted.next), **filters)
        return 200, HistoryPage(tuple(map(past_attempt, found)), following)

    @serves(contract.DESCRIBE_JOB)
    def show_job(name: str) -> tuple[int, JobDetail]:
        wanted, record = read_query(JobSelection, _query(api)), commands.record(name)
        if not (wanted.advice and record.job.state.waits):
            return 200, detail(record, _positions(readings, record.job), [], _sees())
        with repository.heavy_requests.slot(_caller(api), dry_run.now(), DRY_RUN_SLOTS):
            cluster, decided, advice = dry_run.advice(record.job.name)
            plan = PublishedPlan.of(cluster, decided, dry_run.now())
            return 200, detail(record, QueuePosition(plan, cluster.outlook), advice, _sees())

    @serves(contract.CANCEL_JOB)
    def cancel_job(name: str) -> tuple[int, Cancellation]:
        record, changed = commands.cancel(name, _caller(api))
        if changed:
            record = _woken(record)
        was_finished = record.job.state.finished and not changed
        positions = _positions(answers, record.job)
        answer = summary(Cancellation, record.job, positions, _sees(), was_finished=was_finished)
        return 200 if was_finished else 202, answer

    @serves(contract.CHANGE_JOB)
    def change_job(name: str) -> tuple[int, JobSummary]:
        wanted = read_body(JobChange, json_object(_body(api), 'such as {"priority": 5} or {"held": true}'))
        record, changed = commands.change(
            name, _caller(api), priority=_given(wanted.priority), held=_given(wanted.held)
        )
        if changed:
            record = _woken(record)
        return 200, summary(JobSummary, record.job, _positions(answers, record.job), _sees())

    def _woken(record: JobRecord) -> JobRecord:
        scheduler.wake(invocation())
        return commands.record(record.job.name)

    @serves(contract.DESCRIBE_QUEUE)
    def show_queue() -> tuple[int, QueueStatus]:
        cluster, told = readings.queue()
        return 200, queue_status(cluster, told.plan, told.plan.asked, _sees())

    @serves(contract.PLAN_JOB)
    def try_job() -> tuple[int, PlanAnswer]:
        request, caller = _training_job(api), _caller(api)
        with repository.heavy_requests.slot(caller, dry_run.now(), DRY_RUN_SLOTS):
            examined = submissions.examine(request, caller)
            job = examined.job
            cluster, decided, advice = dry_run.what_if(job)
            ahead = None if job.name in decided.begins else dry_run.starts(cluster, job.name)
            return 200, plan_answer(job, cluster, decided, dry_run.now(), advice, examined.warnings, ahead)

    @serves(contract.DESCRIBE_POLICY)
    def show_policy() -> tuple[int, PolicyAnswer]:
        wanted = read_query(PolicySelection, _query(api))
        version = _given(wanted.version)
        applied = policy_service.current() if version is None else policy_service.of_version(version)
        return 200, policy_answer(applied, policy_service.warnings(applied))

    @serves(contract.POLICY_HISTORY)
    def show_history() -> tuple[int, PolicyHistory]:
        return 200, policy_history(policy_service.history())

    @serves(contract.APPLY_POLICY)
    def apply_policy() -> tuple[int, PolicyAnswer]:
        wanted = read_body(PolicyChange, json_object(_body(api), "the policy, and the version that was read"))
        applied, warnings = policy_service.apply(wanted.policy, wanted.version, _caller(api), force=wanted.force)
        scheduler.wake(invocation())
        return 200, policy_answer(applied, warnings)

    @serves(contract.ROLL_BACK_POLICY)
    def roll_back_policy() -> tuple[int, PolicyAnswer]:
        body = json_object(_body(api), "the version to go back to, and the version that was read")
        wanted = read_body(PolicyRollback, body)
        applied, warnings = policy_service.roll_back(wanted.to, wanted.version, _caller(api), force=wanted.force)
        scheduler.wake(invocation())
        return 200, policy_answer(applied, warnings)

    @serves(contract.PREVIEW_POLICY)
    def preview_policy() -> tuple[int, PreviewAnswer]:
        caller = _caller(api)
        rights.check_preview(caller, policy_service.current().policy.projects)
        wanted = read_body(PreviewRequest, json_object(_body(api), "a policy, or the capacity of pools"))
        with repository.heavy_requests.slot(caller, dry_run.now(), PREVIEW_SLOTS):
            return 200, preview_answer(preview_of(previews, wanted))

    @serves(contract.WHO_AM_I)
    def who_am_i() -> tuple[int, Identity]:
        caller = _caller(api)
        return 200, Identity(
            caller,
            admin=Relation.ADMIN in rights.relations(caller),
            applies_policies=rights.may(Action.APPLY_POLICY, caller),
            allowed_role_arns=settings.allowed_role_arns,
            carrier_owner=owner_part(owner_of(caller)) if settings.work_bucket else None,
            queue_version=VERSION,
        )

    @api.exception_handler(QueueError)  # type: ignore[untyped-decorator]
    def refuse(error: QueueError) -> Response[str]:
        status, body = refusal(error)
        code = body.errors[0].code
        log.info("request refused", code=code, field=error.field, why=error.message, exc_info=error.__cause__)
        return _response(status, body, RETRY_AFTER if isinstance(error, Busy | Unavailable) else None)

    @api.not_found
    def no_route(_: NotFoundError) -> Response[str]:
        event = api.current_event
        return _response(*refusal(NotFound(f"There is nothing at {quoted(f'{event.http_method} {event.path}')}.")))

    @api.exception_handler(Exception)  # type: ignore[untyped-decorator]
    def surprise(error: Exception) -> Response[str]:
        log.exception("unexpected", exc_info=error)
        told = QueueError("The queue failed; nothing is lost.", remedy="Its log has the details.")
        return _response(*refusal(told))

    return api


def _serves(
    api: APIGatewayRestResolver, rights: Rights, operation: Operation[Answered]
) -> Callable[[Callable[Parameters, tuple[int, Answered]]], Callable[Parameters, Response[str]]]:
    """Makes a function the one that answers an operation, for those who may have it done.

    What depends on a job or a project, the services ask for.
    """
    action = ACTIONS[operation.id]

    def register(answer: Callable[Parameters, tuple[int, Answered]]) -> Callable[Parameters, Response[str]]:
        def serve(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Response[str]:
            caller = _caller(api)
            if needs_no_job(action):
                rights.check_everywhere(action, caller)
            return _response(*answer(*args, **kwargs))

        path = operation.path.replace("{", "<").replace("}", ">")
        api.route(path, method=[operation.method])(serve)
        return serve

    return register


def _response(status: int, content: Answer, headers: Mapping[str, str] | None = None) -> Response[str]:
    body = msgspec.json.encode(content).decode()
    if (size := sent_bytes(body)) > LARGEST_ANSWER:
        log.error("answer too large", kind=type(content).__name__, bytes=size)
        remedy = "Ask for less; the log of the function has its size."
        status, refused = refusal(QueueError("The answer is too large to send.", remedy=remedy))
        body = msgspec.json.encode(refused).decode()
    return Response(status_code=status, content_type=content_types.APPLICATION_JSON, body=body, headers=headers)


def _query(api: APIGatewayRestResolver) -> dict[str, str]:
    return api.current_event.query_string_parameters or {}


def _training_job(api: APIGatewayRestResolver) -> dict[str, Any]:
    return json_object(_body(api), "a CreateTrainingJob request")


def _body(api: APIGatewayRestResolver) -> str:
    try:
        body = api.current_event.decoded_body or ""
    except ValueError:
        raise InvalidRequest("The body is not UTF-8 text.") from None
    if len(body.encode(errors="surrogatepass")) > MAX_BODY_BYTES:
        raise TooLarge(f"The body has more than {MAX_BODY_BYTES:,} bytes.")
    return body


def _given(value: Value | msgspec.UnsetType) -> Value | None:
    return None if isinstance(value, msgspec.UnsetType) else value


def _positions(readings: Readings, job: Job) -> QueuePosition:
    told = readings.told_of(job)
    return QueuePosition(told.plan, told.outlook)


def _caller(api: APIGatewayRestResolver) -> str:
    identity = api.current_event.request_context.identity
    arn = identity.user_arn or identity.caller
    if not arn:
        raise Forbidden("The request is not signed.", remedy="Sign it with AWS credentials (SigV4).")
    return str(arn)
