"""The handler of the Lambda function, for API requests, events and the schedule."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from job_queue.adapters.carriers.mailbox import reported_attempts
from job_queue.adapters.eventbridge import woken_by
from job_queue.adapters.sagemaker import origin_of, training_job_detail
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.app import App
from job_queue.domain.names import QUEUE_NAME

CORRELATION_ID = (
    "requestContext.requestId || id"  # JMESPath: the request id in API Gateway's log, or the id of EventBridge's event
)

_app: App | None = None


@log.inject_lambda_context(clear_state=True, correlation_id_path=CORRELATION_ID)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    """Handle an invocation by API Gateway, EventBridge or the queue of the carriers' mailboxes (SQS).

    Only requests of API Gateway have an answer. An event of unknown form is logged and ignored.
    """
    global _app  # noqa: PLW0603  (reused by later invocations of the process)
    _app = _app or App(DeploymentSettings.from_environment())
    try:
        return _dispatch(_app, event, context)
    finally:
        _app.flush(context)


def _dispatch(app: App, event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    if "httpMethod" in event:
        return app.answer(event, context)
    if event.get("source") == "aws.sagemaker" and (detail := training_job_detail(event)):
        log.info("training job", attempt=detail["TrainingJobName"], status=detail["TrainingJobStatus"])
        app.training_job_changed(detail, context, origin_of(event, context.invoked_function_arn))
    elif "Records" in event:
        reported = reported_attempts(event)
        log.info("mailboxes", reported=reported)
        app.mailboxes_changed(reported, context)
    elif event.get("source") == "aws.events":
        app.tick(context)
    elif event.get("source") == QUEUE_NAME and (by := woken_by(event)):
        app.woken(context, by)
    else:
        log.warning("unknown event", keys=sorted(event))
    return None
