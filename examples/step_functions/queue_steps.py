"""A Lambda function that runs steps of AWS Step Functions and SageMaker Pipelines as jobs of the queue.

A step sends a message with its token to an SQS queue, and waits. This function stores the token, submits the job, and
answers the step when the job has finished. Three triggers invoke the function:

1. messages of steps: submit the job. The queue accepts a repeated submission of the same job only once.
2. the event "Training Job Finished" of the queue: answer the steps that wait for this job.
3. a schedule, each minute: send heartbeats, find jobs whose event was lost, and cancel jobs for which no step waits.

The state of a job always comes from the queue's API. Lost, late, repeated and forged events therefore do no harm.
docs/run/pipelines.md explains the deployment. The function needs no package besides those of Lambda's runtime.
"""

import hashlib
import json
import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import boto3
from boto3.dynamodb.conditions import Key
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

QUEUE_URL = os.environ["QUEUE_URL"].rstrip("/")
REGION = os.environ["AWS_REGION"]
CANCEL_AFTER = 60 * float(os.environ["CANCEL_AFTER_MINUTES"])  # seconds without a waiting step
MOST_RECEIVES = 5  # of a message; maxReceiveCount in template.yaml

FINISHED_EVENT = "Training Job Finished"
FINISHED = ("completed", "failed", "stopped")
CLOSED = ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken", "ResourceNotFound", "ConflictException")
FORGOTTEN = 86_400  # seconds after which a step without a job is forgotten
PAUSES = (1, 3)  # seconds before the second and the third try of a call
ANSWER_WITHIN = 12  # seconds for one call of the queue's API
RESERVE = 15_000  # milliseconds of the invocation that remain when the schedule stops to look at jobs
LONGEST_REASON = 256  # characters that Pipelines accepts

logger = logging.getLogger()
logger.setLevel(logging.INFO)

session = boto3.Session(region_name=REGION)
table: Any = session.resource("dynamodb").Table(os.environ["STEPS_TABLE"])
step_functions: Any = session.client("stepfunctions")
sagemaker: Any = session.client("sagemaker")
credentials: Any = session.get_credentials()


class UnavailableError(Exception):
    """The queue's API has not answered. The call can be repeated."""


class RefusedError(Exception):
    """The queue has refused a request. The same request would be refused again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Step:
    """A step that waits for a job. The token is a secret: it is neither logged nor part of a key."""

    job: str
    token: str
    service: str  # "states" or "pipelines"
    stored: float  # seconds since the epoch
    closed: float | None = None  # time at which the function has noticed that the step no longer waits

    @property
    def key(self) -> dict[str, str]:
        """The key of the step's item."""
        return {"job": self.job, "step": hashlib.sha256(self.token.encode()).hexdigest()}


def handler(event: Mapping[str, Any], context: Any) -> None:
    """Handle messages of steps, an event of the queue, or the schedule."""
    if "Records" in event:
        for record in event["Records"]:
            receive(json.loads(record["body"]), int(record["attributes"]["ApproximateReceiveCount"]))
    elif event.get("detail-type") == FINISHED_EVENT:
        job = event["detail"]["job"]
        if steps := list(steps_of(job)):
            look_at(job, steps)
    else:
        look_at_all(context)


# --- messages of steps


def receive(message: Mapping[str, Any], receives: int) -> None:
    """Store the step of a message and submit its job.

    An error lets SQS deliver the message again. After the last delivery, the step fails instead.

    :param receives: the number of times that SQS has delivered the message.
    """
    service = "pipelines" if "pipelineExecutionArn" in message else "states"
    step = Step("", message["token"], service, time.time())
    try:
        request = request_of(message.get("arguments"))
        step = replace(step, job=request["TrainingJobName"])
        store(step)  # before the submission: the job can end before its submission is answered
        answer = submit(request)
        if message.get("status", message.get("Status")) == "Stopping":  # only Pipelines sends this
            answer = cancel(step.job) or answer
        if answer["state"] in FINISHED:
            settle([step], describe(step.job) or answer)
    except RefusedError as refused:
        fail(step, f"Queue.{refused.code}", str(refused))
        forget([step])
    except Exception as error:
        if receives < MOST_RECEIVES:
            raise
        logger.exception("a message was delivered for the last time")
        fail(step, "Queue.Unavailable", f"It is not known whether the job was submitted: {error}")
        if step.job:  # it stays in the table: if the queue has the job, the schedule cancels it
            note_closed(step)


def request_of(arguments: Any) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a step, with the name of the job.

    A callback step of Pipelines has no nested arguments, so `request` may also be JSON text.
    """
    try:
        name, given = arguments["TrainingJobName"], arguments["request"]
        request = dict(json.loads(given) if isinstance(given, str) else given)
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError("InvalidRequest", f"TrainingJobName and request are not as expected: {error!r}") from None
    if not isinstance(name, str) or not name:
        raise RefusedError("InvalidRequest", "TrainingJobName is not a text.")
    return {**request, "TrainingJobName": name}


# --- the end of jobs, and the schedule


def look_at_all(context: Any) -> None:
    """Look at all jobs for which steps wait, in random order, as long as the invocation has time.

    A problem with one job does not affect the other jobs.
    """
    waiting = defaultdict(list)
    for step in all_steps():
        waiting[step.job].append(step)
    jobs = list(waiting.items())
    random.shuffle(jobs)
    for job, steps in jobs:
        if context.get_remaining_time_in_millis() < RESERVE:
            logger.warning("the time was too short for all %d jobs", len(jobs))
            return
        try:
            look_at(job, steps)
        except Exception:
            logger.exception("job %s was not looked at", job)


def look_at(job: str, steps: list[Step]) -> None:
    """Answer the steps of a finished job; send heartbeats for a live job, and cancel the job if no step waits."""
    detail = describe(job)
    if detail is None:  # not submitted yet, or refused: without a heartbeat, the step ends by its timeout
        forget(step for step in steps if time.time() - step.stored > FORGOTTEN)
    elif detail["state"] in FINISHED:
        settle(steps, detail)
    else:
        closed = [step for step in steps if not is_waiting(step)]
        if len(closed) < len(steps):
            forget(closed)
            return
        over = [is_over(step) for step in closed]  # looks at each step, and so notes when each was closed
        if all(over):
            cancel(job)


def is_waiting(step: Step) -> bool:
    """Send a heartbeat, and return whether the step still waits. A step of Pipelines waits until it is answered."""
    if step.service == "pipelines":
        return step.closed is None
    return accepted(step_functions.send_task_heartbeat, taskToken=step.token)


def is_over(step: Step) -> bool:
    """Return whether a step has not waited for CANCEL_AFTER seconds. Until then, a retry can take the step's place."""
    closed = note_closed(step) if step.closed is None else step.closed
    return time.time() - closed >= CANCEL_AFTER


def note_closed(step: Step) -> float:
    """Record that a step no longer waits, and return the time."""
    now = int(time.time())
    values = {":now": now}
    table.update_item(Key=step.key, UpdateExpression="SET closed = :now", ExpressionAttributeValues=values)
    return now


def settle(steps: Iterable[Step], detail: Mapping[str, Any]) -> None:
    """Answer the steps of a finished job."""
    if detail["state"] == "completed":
        result = {"Job": detail["job"], "State": "completed", "TrainingJobName": detail["trainingJobName"]}
        for step in steps:
            if step.service == "pipelines":
                parameters = [{"Name": name, "Value": value} for name, value in result.items()]
                send = sagemaker.send_pipeline_execution_step_success
                accepted(send, CallbackToken=step.token, OutputParameters=parameters)
            else:
                accepted(step_functions.send_task_success, taskToken=step.token, output=json.dumps(result))
            forget([step])
    else:
        reason = (detail.get("reason") or {}).get("message") or f"The job has the state {detail['state']}."
        for step in steps:
            fail(step, f"Queue.Job{detail['state'].title()}", f"{detail['job']}: {reason}")
            forget([step])


def fail(step: Step, error: str, cause: str) -> None:
    """Let a step fail.

    :param error: the name of the error, which Retry and Catch of a state machine can select.
    """
    if step.service == "pipelines":
        reason = f"{error}: {cause}"[:LONGEST_REASON]
        accepted(sagemaker.send_pipeline_execution_step_failure, CallbackToken=step.token, FailureReason=reason)
    else:
        accepted(step_functions.send_task_failure, taskToken=step.token, error=error, cause=cause)


def accepted(send: Any, **request: Any) -> bool:
    """Make a call with a token. Return False if the step no longer waits, for example because it was answered."""
    try:
        send(**request)
    except ClientError as error:
        if error.response["Error"]["Code"] not in CLOSED:
            raise
        return False
    return True


# --- the table of waiting steps


def store(step: Step) -> None:
    """Store a step before its job is submitted."""
    item = {**step.key, "token": step.token, "service": step.service, "stored": int(step.stored)}
    table.put_item(Item=item)


def forget(steps: Iterable[Step]) -> None:
    """Delete steps that need no answer any more."""
    for step in steps:
        if step.job:
            table.delete_item(Key=step.key)


def steps_of(job: str) -> Iterator[Step]:
    """Return the steps that wait for a job: more than one if a step was retried."""
    for item in pages(table.query, KeyConditionExpression=Key("job").eq(job), ConsistentRead=True):
        yield step_of(item)


def all_steps() -> Iterator[Step]:
    """Return all waiting steps."""
    for item in pages(table.scan, ConsistentRead=True):
        yield step_of(item)


def pages(read: Any, **request: Any) -> Iterator[dict[str, Any]]:
    """Return the items of all pages of a query or a scan."""
    while True:
        page = read(**request)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def step_of(item: Mapping[str, Any]) -> Step:
    """Return the step of an item."""
    closed = float(item["closed"]) if "closed" in item else None
    return Step(item["job"], item["token"], item["service"], float(item["stored"]), closed)


# --- the queue's API


def submit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Submit a job. A repeated submission returns the job as it is."""
    return call("POST", "/add-job", request)


def describe(job: str) -> dict[str, Any] | None:
    """Return a job; None if the queue does not know the job."""
    return found("GET", job)


def cancel(job: str) -> dict[str, Any] | None:
    """Cancel a job; None if the queue does not know the job."""
    logger.info("job %s is cancelled: its step was stopped, or no longer waits", job)
    return found("DELETE", job)


def found(method: str, job: str) -> dict[str, Any] | None:
    """Return the answer to a request about a job; None if there is no such job."""
    try:
        return call(method, f"/jobs/{quote(job, safe='')}")
    except RefusedError as refused:
        if refused.code != "NotFound":
            raise
        return None


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer to a signed request. Repeat the request after temporary failures.

    Raise RefusedError if the queue refuses the request, and UnavailableError if it does not answer.
    """
    data = None if body is None else json.dumps(body).encode()
    for pause in (*PAUSES, None):
        signed = AWSRequest(method, QUEUE_URL + path, data=data, headers={"Content-Type": "application/json"})
        SigV4Auth(credentials, "execute-api", REGION).add_auth(signed)
        request = Request(QUEUE_URL + path, data, dict(signed.headers), method=method)  # noqa: S310  (the deployer's)
        try:
            with urlopen(request, timeout=ANSWER_WITHIN) as answer:  # noqa: S310
                return dict(json.load(answer))
        except HTTPError as error:
            if error.code != 429 and error.code < 500:
                raise refusal(error) from None
            problem = str(error)
        except OSError as error:
            problem = str(error)
        logger.warning("%s %s: %s", method, path, problem)
        if pause is not None:
            time.sleep(pause)
    raise UnavailableError(f"{method} {path}: {problem}")


def refusal(error: HTTPError) -> RefusedError:
    """Return the refusal of a request. API Gateway refuses with a message instead of a list of errors."""
    try:
        body = json.load(error)
    except ValueError:
        body = {}
    errors = body.get("errors") or [
        {"code": "Forbidden", "message": body.get("message") or body.get("Message") or str(error)}
    ]
    return RefusedError(errors[0]["code"], " ".join(one["message"] for one in errors))
