"""The routes of the private REST API, and the one place where errors become HTTP."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response, content_types
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from job_queue import lifecycle
from job_queue.cycle import Invocation, Scheduler
from job_queue.errors import Forbidden, InvalidRequest, NotFound, QueueError, Refused, TooLarge, Unavailable
from job_queue.intake import MAX_REQUEST_BYTES, Intake
from job_queue.listing import MAX_PAGE, Listing, states_of
from job_queue.records import JobRecord
from job_queue.settings import Settings
from job_queue.store import Store
from job_queue.telemetry import log
from job_queue.views import Standing, detail, queue_status, summary

TRIES = 10  # to cancel a job that changes all the time
MAX_BODY_BYTES = 2 * MAX_REQUEST_BYTES  # white space and escapes are not kept, but there is an end to them


def build_api(  # noqa: C901  (a function per route)
    store: Store,
    intake: Intake,
    scheduler: Scheduler,
    listing: Listing,
    settings: Settings,
    clock: Callable[[], float],
    invocation: Callable[[], Invocation],
) -> APIGatewayRestResolver:
    """The API.

    :param invocation: the one that is under way.
    """
    api = APIGatewayRestResolver(strip_prefixes=[])

    @api.post("/add-job")
    def add_job() -> Response[str]:
        body = api.current_event.decoded_body or ""
        if len(body.encode(errors="surrogatepass")) > MAX_BODY_BYTES:
            raise TooLarge(f"The body has more than {MAX_BODY_BYTES:,} bytes.")
        accepted = intake.submit(body, _caller(api))
        job = accepted.record.job
        if not job.state.finished:
            scheduler.wake(invocation())
        record = store.record(job.name) or accepted.record
        standing = _standing(scheduler, record)
        warnings = list(accepted.warnings)
        if hopeless := standing.never_starts(record.job):
            warnings.append(f"The job cannot start: {hopeless} Cancel it, or ask for less.")
        return _answer(200 if accepted.known else 202, {**summary(record.job, standing), "warnings": warnings})

    @api.get("/jobs")
    def list_jobs() -> Response[str]:
        query = api.current_event.query_string_parameters or {}
        states = states_of(query.get("state", "live"))
        jobs, following = listing.page(states, _limit(query.get("limit", "100")), query.get("next"))
        _, decided = scheduler.look()
        standing = Standing(decided)
        return _answer(200, {"jobs": [summary(job, standing) for job in jobs], "next": following})

    @api.get("/jobs/<name>")
    def show_job(name: str) -> Response[str]:
        record = _known(store, name)
        return _answer(200, detail(record, _standing(scheduler, record)))

    @api.delete("/jobs/<name>")
    def cancel_job(name: str) -> Response[str]:
        caller = _caller(api)
        for _ in range(TRIES):
            record = _known(store, name)
            _check_owner(record, caller, settings)
            if record.job.state.finished or record.job.cancelled:
                break
            try:
                store.move(lifecycle.cancel(record.job, caller, clock()), clock())
            except Refused:
                continue
            log.info("cancelled", job=record.job.name, by=caller)
            scheduler.wake(invocation())
            record = _known(store, name)
            return _answer(202, summary(record.job, _standing(scheduler, record)))
        else:
            raise Unavailable("The job is being changed by many at once; cancel it again.")
        return _answer(200 if record.job.state.finished else 202, summary(record.job, _standing(scheduler, record)))

    @api.get("/queue")
    def show_queue() -> Response[str]:
        return _answer(200, queue_status(*scheduler.look()))

    @api.exception_handler(QueueError)  # type: ignore[untyped-decorator]
    def refuse(error: QueueError) -> Response[str]:
        log.info("request refused", code=error.code, field=error.field, why=error.message, exc_info=error.__cause__)
        answer = {"message": error.message, "code": error.code}
        return _answer(error.status, answer | ({"field": error.field} if error.field else {}))

    @api.not_found
    def no_route(_: NotFoundError) -> Response[str]:
        event = api.current_event
        return _answer(404, {"message": f"There is nothing at {event.http_method} {event.path}.", "code": "NotFound"})

    @api.exception_handler(Exception)  # type: ignore[untyped-decorator]
    def surprise(error: Exception) -> Response[str]:
        log.exception("unexpected", exc_info=error)
        message = "The queue met an error of its own; nothing is lost. Its log has the details."
        return _answer(500, {"message": message, "code": "InternalError"})

    return api


def _answer(status: int, content: Any) -> Response[str]:
    return Response(status_code=status, content_type=content_types.APPLICATION_JSON, body=json.dumps(content))


def _known(store: Store, name: str) -> JobRecord:
    record = store.record(unquote(name))
    if record is None:
        raise NotFound(f"There is no job named {name}.")
    return record


def _standing(scheduler: Scheduler, record: JobRecord) -> Standing:
    """Where a job stands; only a waiting one is worth a look at the whole queue."""
    return Standing(scheduler.look()[1]) if record.job.state.waits else Standing.nowhere()


def _caller(api: APIGatewayRestResolver) -> str:
    identity = api.current_event.request_context.identity
    arn = identity.user_arn or identity.caller
    if not arn:
        raise Forbidden("The request is not signed; sign it with AWS credentials (SigV4).")
    return str(arn)


def _check_owner(record: JobRecord, caller: str, settings: Settings) -> None:
    if caller != record.job.owner and not settings.is_admin(caller):
        raise Forbidden(f"{record.job.name} belongs to {record.job.owner}; only its owner or an admin may cancel it.")


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequest(f"limit must be a whole number from 1 to {MAX_PAGE}, not {text[:20]!r}.", field="limit")
    return int(text)
