"""The routes of the private REST API. No other module reads or writes HTTP."""

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
from api_contract.routes import Operation
from api_contract.shape import Answer
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.heavy_requests import DRY_RUN_PERMITS, PREVIEW_PERMITS
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.api.error_mapping import refusal
from job_queue.api.history_answers import past_attempt
from job_queue.api.pages import HistoryPages, JobPages, states_of
from job_queue.api.previews import preview_answer, preview_of
from job_queue.api.queue_position import QueuePosition
from job_queue.api.requests import read_body, read_query
from job_queue.api.responses import (
    ShowsValues,
    detail,
    drain_answer,
    plan_answer,
    policy_answer,
    policy_history,
    queue_status,
    summary,
)
from job_queue.api.sizes import LARGEST_ANSWER, MOST_BYTES, sent_bytes, take_fitting
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain.access.rights import Action, Relation, Rights, needs_no_job
from job_queue.domain.carriers.carrier_launch import owner_part
from job_queue.domain.errors import Busy, Forbidden, InvalidRequest, NotFound, QueueError, TooLarge, Unavailable
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.identity import owner_of
from job_queue.domain.job import Job, JobRecord
from job_queue.services.drains import DrainService
from job_queue.services.dry_run import DryRun
from job_queue.services.job_commands import JobCommands, RemoteDebugService
from job_queue.services.policy_service import PolicyService
from job_queue.services.preview import PreviewService
from job_queue.services.queue_reader import QueueReader
from job_queue.services.submission import MAX_REQUEST_BYTES, SubmissionService
from job_queue.validation.issue import quoted
from job_queue.validation.json_text import json_object

MAX_BODY_BYTES = 2 * MAX_REQUEST_BYTES  # the stored form is smaller: it has no white space and fewer escapes
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
    contract.DRAIN_POOL.id: Action.DRAIN,
    contract.UNDRAIN_POOL.id: Action.UNDRAIN,
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
    shared_reader: QueueReader,
    own_reader: QueueReader,
    dry_run: DryRun,
    listing: JobPages,
    history: HistoryPages,
    commands: JobCommands,
    remote_debug: RemoteDebugService,
    policy_service: PolicyService,
    drains: DrainService,
    previews: PreviewService,
    settings: DeploymentSettings,
    invocation: Callable[[], Invocation],
) -> APIGatewayRestResolver:
    """Return the API with all its routes.

    :param shared_reader: reader for requests that change nothing. It may return rows that other requests have read in
        the last few seconds.
    :param own_reader: reader for requests that change something. It never returns such shared rows, so that the answer
        shows the change.
    :param invocation: returns the current invocation.
    """
    api = APIGatewayRestResolver(strip_prefixes=[])
    rights = settings.rights
    serves = partial(_serves, api, rights)

    def _shows_values() -> ShowsValues:
        return partial(commands.may_see_values, caller=_caller(api))

    @serves(contract.ADD_JOB)
    def add_job() -> tuple[int, Submission]:
        options = read_query(SubmitOptions, _query(api))
        accepted = submissions.submit(_training_job(api), _caller(api), preflight=options.preflight)
        job = accepted.record.job
        if not job.state.finished:
            scheduler.wake(invocation(), accepted.metadata)
        record = repository.record(job.name) or accepted.record
        positions = _positions(own_reader, record.job)
        warnings = list(accepted.warnings)
        unschedulable = positions.unschedulable_message(record.job)
        if unschedulable and not any(unschedulable in warning for warning in warnings):
            warnings.append(f"The job cannot start: {unschedulable} Cancel it, or submit it with fewer instances.")
        answer = summary(
            Submission,
            record.job,
            positions,
            _shows_values(),
            warnings=tuple(warnings),
            known=accepted.known,
        )
        return 200 if accepted.known else 202, answer

    @serves(contract.LIST_JOBS)
    def list_jobs() -> tuple[int, JobPage]:
        selection = read_query(JobFilter, _query(api))
        states, published = states_of(selection.state), shared_reader.published()
        jobs, following = listing.page(states, selection.limit, _optional(selection.next))
        positions, shows_values = QueuePosition(published.plan, published.outlook), _shows_values()
        page, _ = take_fitting((summary(JobSummary, job, positions, shows_values) for job in jobs), MOST_BYTES)
        return 200, JobPage(page, listing.token_after(jobs[len(page) - 1]) if len(page) < len(jobs) else following)

    @serves(contract.LIST_HISTORY)
    def list_history() -> tuple[int, HistoryPage]:
        selection = read_query(HistoryFilter, _query(api))
        filters = {"owner": _optional(selection.owner), "project": _optional(selection.project)}
        since, until = _optional(selection.since), _optional(selection.until)
        found, following = history.page(since, until, selection.limit, _optional(selection.next), **filters)
        return 200, HistoryPage(tuple(map(past_attempt, found)), following)

    @serves(contract.DESCRIBE_JOB)
    def show_job(name: str) -> tuple[int, JobDetail]:
        selection, record = read_query(JobSelection, _query(api)), commands.record(name)
        if not (selection.advice and record.job.state.waits):
            policy = shared_reader.policy() if record.job.failure else None
            return 200, detail(record, _positions(shared_reader, record.job), [], _shows_values(), policy)
        with repository.heavy_requests.permit(_caller(api), dry_run.now(), DRY_RUN_PERMITS):
            cluster, decided, advice = dry_run.advice(record.job.name)
            plan = PublishedPlan.of(cluster, decided, dry_run.now())
            return 200, detail(record, QueuePosition(plan, cluster.outlook), advice, _shows_values())

    @serves(contract.CANCEL_JOB)
    def cancel_job(name: str) -> tuple[int, Cancellation]:
        record, changed = commands.cancel(name, _caller(api))
        if changed:
            record = _woken(record)
        was_finished = record.job.state.finished and not changed
        positions = _positions(own_reader, record.job)
        answer = summary(Cancellation, record.job, positions, _shows_values(), was_finished=was_finished)
        return 200 if was_finished else 202, answer

    @serves(contract.CHANGE_JOB)
    def change_job(name: str) -> tuple[int, JobSummary]:
        change = read_body(JobChange, json_object(_body(api), 'such as {"priority": 5} or {"held": true}'))
        if change.remote_debug:
            if change != JobChange(remote_debug=True):
                raise InvalidRequest("remoteDebug must be the only change of a request.", field="remoteDebug")
            record = remote_debug.enable(name, _caller(api))
            return 200, summary(JobSummary, record.job, _positions(own_reader, record.job), _shows_values())
        record, changed = commands.change(
            name,
            _caller(api),
            priority=_optional(change.priority),
            held=_optional(change.held),
            now=change.now,
            requeue=change.requeue,
        )
        if changed:
            record = _woken(record)
        return 200, summary(JobSummary, record.job, _positions(own_reader, record.job), _shows_values())

    def _woken(record: JobRecord) -> JobRecord:
        scheduler.wake(invocation())
        return commands.record(record.job.name)

    @serves(contract.DESCRIBE_QUEUE)
    def show_queue() -> tuple[int, QueueStatus]:
        cluster, published = shared_reader.queue()
        return 200, queue_status(cluster, published.plan, published.plan.read_at, _shows_values())

    @serves(contract.PLAN_JOB)
    def try_job() -> tuple[int, PlanAnswer]:
        request, caller = _training_job(api), _caller(api)
        with repository.heavy_requests.permit(caller, dry_run.now(), DRY_RUN_PERMITS):
            validated = submissions.validate(request, caller)
            job = validated.job
            cluster, decided, advice = dry_run.what_if(job)
            ahead = None if job.name in decided.started else dry_run.starts(cluster, job.name)
            return 200, plan_answer(job, cluster, decided, dry_run.now(), advice, validated.warnings, ahead)

    @serves(contract.DESCRIBE_POLICY)
    def show_policy() -> tuple[int, PolicyAnswer]:
        selection = read_query(PolicySelection, _query(api))
        version = _optional(selection.version)
        applied = policy_service.current() if version is None else policy_service.of_version(version)
        return 200, policy_answer(applied, policy_service.warnings(applied))

    @serves(contract.POLICY_HISTORY)
    def show_history() -> tuple[int, PolicyHistory]:
        return 200, policy_history(policy_service.history())

    @serves(contract.APPLY_POLICY)
    def apply_policy() -> tuple[int, PolicyAnswer]:
        change = read_body(PolicyChange, json_object(_body(api), "the policy, and the version that was read"))
        applied, warnings = policy_service.apply(change.policy, change.version, _caller(api), force=change.force)
        scheduler.wake(invocation())
        return 200, policy_answer(applied, warnings)

    @serves(contract.ROLL_BACK_POLICY)
    def roll_back_policy() -> tuple[int, PolicyAnswer]:
        body = json_object(_body(api), "the version to go back to, and the version that was read")
        rollback = read_body(PolicyRollback, body)
        applied, warnings = policy_service.roll_back(rollback.to, rollback.version, _caller(api), force=rollback.force)
        scheduler.wake(invocation())
        return 200, policy_answer(applied, warnings)

    @serves(contract.DRAIN_POOL)
    def drain_pool() -> tuple[int, DrainAnswer]:
        request = read_body(DrainRequest, json_object(_body(api), 'such as {"pool": "p5"}'))
        at = _optional(request.at)
        changed = drains.drain(request.pool, _caller(api), at=at, reason=request.reason, stops=request.stops)
        scheduler.wake(invocation())
        return 200, drain_answer(changed, dry_run.now())

    @serves(contract.UNDRAIN_POOL)
    def undrain_pool() -> tuple[int, DrainAnswer]:
        request = read_body(DrainEnd, json_object(_body(api), 'such as {"pool": "p5"}'))
        changed = drains.undrain(request.pool, _caller(api))
        if changed.was_drained:
            scheduler.wake(invocation())
        return 200, drain_answer(changed, dry_run.now())

    @serves(contract.PREVIEW_POLICY)
    def preview_policy() -> tuple[int, PreviewAnswer]:
        caller = _caller(api)
        rights.check_preview(caller, policy_service.current().policy.projects)
        request = read_body(PreviewRequest, json_object(_body(api), "a policy, or the capacity of pools"))
        with repository.heavy_requests.permit(caller, dry_run.now(), PREVIEW_PERMITS):
            return 200, preview_answer(preview_of(previews, request))

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
        return _response(*refusal(NotFound(f"The API has no address {quoted(f'{event.http_method} {event.path}')}.")))

    @api.exception_handler(Exception)  # type: ignore[untyped-decorator]
    def unexpected_error(error: Exception) -> Response[str]:
        log.exception("unexpected", exc_info=error)
        answer = QueueError("The queue failed; nothing is lost.", remedy="Its log has the details.")
        return _response(*refusal(answer))

    return api


def _serves(
    api: APIGatewayRestResolver, rights: Rights, operation: Operation[Answered]
) -> Callable[[Callable[Parameters, tuple[int, Answered]]], Callable[Parameters, Response[str]]]:
    """Return a decorator that registers a function as the answer to an operation.

    A caller without the right to the operation is refused. If the right depends on a job or a project, it is not
    checked here: the service checks it, and the route checks the right to previews.
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
        remedy = "Request less; the log of the function has the size."
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


def _optional(value: Value | msgspec.UnsetType) -> Value | None:
    return None if isinstance(value, msgspec.UnsetType) else value


def _positions(reader: QueueReader, job: Job) -> QueuePosition:
    published = reader.published_for(job)
    return QueuePosition(published.plan, published.outlook)


def _caller(api: APIGatewayRestResolver) -> str:
    identity = api.current_event.request_context.identity
    arn = identity.user_arn or identity.caller
    if not arn:
        raise Forbidden("The request is not signed.", remedy="Sign it with AWS credentials (SigV4).")
    return str(arn)
