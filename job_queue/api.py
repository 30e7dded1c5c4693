"""The routes of the private REST API, and the one place where errors become HTTP."""

import json
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response, content_types
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from job_queue.changes import Changes
from job_queue.cycle import Invocation, Scheduler
from job_queue.errors import Forbidden, InvalidRequest, QueueError, TooLarge
from job_queue.intake import MAX_REQUEST_BYTES, Intake
from job_queue.listing import MAX_PAGE, Listing, states_of
from job_queue.outlook import Outlook
from job_queue.policy_desk import PolicyDesk
from job_queue.records import JobRecord
from job_queue.store import Store
from job_queue.telemetry import log
from job_queue.validation.problem import quoted
from job_queue.views import Standing, detail, policy_view, queue_status, summary, trial_view

MAX_BODY_BYTES = 2 * MAX_REQUEST_BYTES  # white space and escapes are not kept, but there is an end to them


def build_api(  # noqa: C901  (a function per route)
    store: Store,
    intake: Intake,
    scheduler: Scheduler,
    outlook: Outlook,
    listing: Listing,
    changes: Changes,
    desk: PolicyDesk,
    invocation: Callable[[], Invocation],
) -> APIGatewayRestResolver:
    """The API.

    :param invocation: the one that is under way.
    """
    api = APIGatewayRestResolver(strip_prefixes=[])

    @api.post("/add-job")
    def add_job() -> Response[str]:
        accepted = intake.submit(_body(api), _caller(api), preflight=_preflight(api))
        job = accepted.record.job
        if not job.state.finished:
            scheduler.wake(invocation())
        record = store.record(job.name) or accepted.record
        standing = _standing(outlook, record)
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
        standing = Standing.in_queue(*outlook.look())
        return _answer(200, {"jobs": [summary(job, standing) for job in jobs], "next": following})

    @api.get("/jobs/<name>")
    def show_job(name: str) -> Response[str]:
        record = changes.record(name)
        if not record.job.state.waits:
            return _answer(200, detail(record, Standing.nowhere(), []))
        world, decided, advice = outlook.advice(record.job.name)
        return _answer(200, detail(record, Standing.in_queue(world, decided), advice))

    @api.delete("/jobs/<name>")
    def cancel_job(name: str) -> Response[str]:
        record, changed = changes.cancel(name, _caller(api))
        if changed:
            record = _woken(record)
        status = 200 if record.job.state.finished and not changed else 202
        return _answer(status, summary(record.job, _standing(outlook, record)))

    @api.patch("/jobs/<name>")
    def change_job(name: str) -> Response[str]:
        record, changed = changes.change(name, _caller(api), _body(api))
        if changed:
            record = _woken(record)
        return _answer(200, summary(record.job, _standing(outlook, record)))

    def _woken(record: JobRecord) -> JobRecord:
        scheduler.wake(invocation())
        return changes.record(record.job.name)

    @api.get("/queue")
    def show_queue() -> Response[str]:
        return _answer(200, queue_status(*outlook.look()))

    @api.post("/plan")
    def try_job() -> Response[str]:
        examined = intake.examine(_body(api), _caller(api))
        return _answer(200, {**trial_view(examined.job, *outlook.trial(examined.job)), "warnings": examined.warnings})

    @api.get("/policy")
    def show_policy() -> Response[str]:
        return _answer(200, policy_view(desk.current()))

    @api.put("/policy")
    def apply_policy() -> Response[str]:
        applied, warnings = desk.apply(_body(api), _caller(api))
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


def _standing(outlook: Outlook, record: JobRecord) -> Standing:
    """Where a job stands; only a waiting one is worth a look at the whole queue."""
    return Standing.in_queue(*outlook.look()) if record.job.state.waits else Standing.nowhere()


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
