"""The routes of the private REST API, and the one place where errors become HTTP."""

import json
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response, content_types
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.telemetry import log
from job_queue.api.pages import MAX_PAGE, JobPages, states_of
from job_queue.api.responses import QueuePosition, detail, policy_view, queue_status, summary, trial_view
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain.errors import Forbidden, InvalidRequest, QueueError, TooLarge
from job_queue.domain.job import JobRecord
from job_queue.services.dry_run import DryRun
from job_queue.services.job_commands import JobCommands
from job_queue.services.policy_service import PolicyService
from job_queue.services.submission import MAX_REQUEST_BYTES, SubmissionService
from job_queue.validation.issue import quoted

MAX_BODY_BYTES = 2 * MAX_REQUEST_BYTES  # white space and escapes are not kept, but there is an end to them


def build_api(  # noqa: C901  (a function per route)
    repository: JobRepository,
    submissions: SubmissionService,
    scheduler: Controller,
    dry_run: DryRun,
    listing: JobPages,
    changes: JobCommands,
    policies_service: PolicyService,
    invocation: Callable[[], Invocation],
) -> APIGatewayRestResolver:
    """The API.

    :param invocation: the one that is under way.
    """
    api = APIGatewayRestResolver(strip_prefixes=[])

    @api.post("/add-job")
    def add_job() -> Response[str]:
        accepted = submissions.submit(_body(api), _caller(api), preflight=_preflight(api))
        job = accepted.record.job
        if not job.state.finished:
            scheduler.wake(invocation())
        record = repository.record(job.name) or accepted.record
        standing = _standing(dry_run, record)
        warnings = list(accepted.warnings)
        hopeless = standing.never_starts(record.job)
        if hopeless and not any(hopeless in warning for warning in warnings):
            warnings.append(f"The job cannot start: {hopeless} Cancel it, or ask for less.")
        return _answer(200 if accepted.known else 202, {**summary(record.job, standing), "warnings": warnings})

    @api.get("/jobs")
    def list_jobs() -> Response[str]:
        query = api.current_event.query_string_parameters or {}
        states = states_of(query.get("state", "live"))
        jobs, following = listing.page(states, _limit(query.get("limit", "100")), query.get("next"))
        standing = QueuePosition.in_queue(*dry_run.forecast())
        return _answer(200, {"jobs": [summary(job, standing) for job in jobs], "next": following})

    @api.get("/jobs/<name>")
    def show_job(name: str) -> Response[str]:
        record = changes.record(name)
        if not record.job.state.waits:
            return _answer(200, detail(record, QueuePosition.nowhere(), []))
        cluster, decided, advice = dry_run.advice(record.job.name)
        return _answer(200, detail(record, QueuePosition.in_queue(cluster, decided), advice))

    @api.delete("/jobs/<name>")
    def cancel_job(name: str) -> Response[str]:
        record, changed = changes.cancel(name, _caller(api))
        if changed:
            record = _woken(record)
        status = 200 if record.job.state.finished and not changed else 202
        return _answer(status, summary(record.job, _standing(dry_run, record)))

    @api.patch("/jobs/<name>")
    def change_job(name: str) -> Response[str]:
        record, changed = changes.change(name, _caller(api), _body(api))
        if changed:
            record = _woken(record)
        return _answer(200, summary(record.job, _standing(dry_run, record)))

    def _woken(record: JobRecord) -> JobRecord:
        scheduler.wake(invocation())
        return changes.record(record.job.name)

    @api.get("/queue")
    def show_queue() -> Response[str]:
        return _answer(200, queue_status(*dry_run.forecast()))

    @api.post("/plan")
    def try_job() -> Response[str]:
        examined = submissions.examine(_body(api), _caller(api))
        return _answer(200, {**trial_view(examined.job, *dry_run.what_if(examined.job)), "warnings": examined.warnings})

    @api.get("/policy")
    def show_policy() -> Response[str]:
        return _answer(200, policy_view(policies_service.current()))

    @api.put("/policy")
    def apply_policy() -> Response[str]:
        applied, warnings = policies_service.apply(_body(api), _caller(api))
        scheduler.wake(invocation())
        return _answer(200, {**policy_view(applied), "warnings": warnings})

    @api.exception_handler(QueueError)  # type: ignore[untyped-decorator]
    def refuse(error: QueueError) -> Response[str]:
        log.info("request refused", code=error.code, field=error.field, why=error.message, exc_info=error.__cause__)
        answer = {"message": error.message, "code": error.code}
        return _answer(error.status, answer | ({"field": error.field} if error.field else {}))

    @api.not_found
    def no_route(_: NotFoundError) -> Response[str]:
        event = api.current_event
        return _answer(
            404, {"message": f"There is nothing at {quoted(f'{event.http_method} {event.path}')}.", "code": "NotFound"}
        )

    @api.exception_handler(Exception)  # type: ignore[untyped-decorator]
    def surprise(error: Exception) -> Response[str]:
        log.exception("unexpected", exc_info=error)
        message = "The queue met an error of its own; nothing is lost. Its log has the details."
        return _answer(500, {"message": message, "code": "InternalError"})

    return api


def _answer(status: int, content: Any) -> Response[str]:
    return Response(status_code=status, content_type=content_types.APPLICATION_JSON, body=json.dumps(content))


def _body(api: APIGatewayRestResolver) -> str:
    try:
        body = api.current_event.decoded_body or ""
    except ValueError:
        raise InvalidRequest("The body is not UTF-8 text.") from None
    if len(body.encode(errors="surrogatepass")) > MAX_BODY_BYTES:
        raise TooLarge(f"The body has more than {MAX_BODY_BYTES:,} bytes.")
    return body


def _standing(dry_run: DryRun, record: JobRecord) -> QueuePosition:
    """Where a job stands; only a waiting one is worth a look at the whole queue."""
    return QueuePosition.in_queue(*dry_run.forecast()) if record.job.state.waits else QueuePosition.nowhere()


def _caller(api: APIGatewayRestResolver) -> str:
    identity = api.current_event.request_context.identity
    arn = identity.user_arn or identity.caller
    if not arn:
        raise Forbidden("The request is not signed; sign it with AWS credentials (SigV4).")
    return str(arn)


def _preflight(api: APIGatewayRestResolver) -> bool:
    """Whether the caller wants to be told of what would come to nothing."""
    text = (api.current_event.query_string_parameters or {}).get("preflight", "true")
    if text not in ("true", "false"):
        raise InvalidRequest(f"preflight must be true or false, not {quoted(text)}.", field="preflight")
    return text == "true"


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequest(f"limit must be a whole number from 1 to {MAX_PAGE}, not {text[:20]!r}.", field="limit")
    return int(text)
