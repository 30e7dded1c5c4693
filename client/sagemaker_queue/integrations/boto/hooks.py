"""The seam between programs and SageMaker: what they ask SageMaker about training jobs, the queue answers.

Every SageMaker SDK, and plain boto3, ends in a botocore client, which asks its handlers before it sends a request.
The handlers here answer what concerns jobs of the queue, under the names that their users gave, and let pass what
does not: training jobs that the queue does not know, and everything else.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError

from sagemaker_queue.client import QueueClient
from sagemaker_queue.errors import Forbidden, NameTaken, NotAuthenticated, QueueError, TooMany, Unavailable
from sagemaker_queue.integrations.boto import logs, metrics, training
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.integrations.sdk_v3 import follow_waits

_PARAMETERS = "sagemaker_queue.parameters"  # in the context of a call: what it was given, before it was serialized
_HOOKS = "_sagemaker_queue_hooks"  # of a boto3 session
_HANDLERS: Mapping[str, Mapping[str, Handler]] = {  # by service and operation
    "sagemaker": training.HANDLERS,
    "cloudwatch-logs": logs.HANDLERS,
    "cloudwatch": metrics.HANDLERS,
}


@dataclass(frozen=True)
class _Reply:
    """What botocore wants to see of an HTTP response that there never was."""

    status_code: int


class Hooks:
    """The handlers of one boto3 session."""

    def __init__(self, session: boto3.Session, queue: QueueClient) -> None:
        self.jobs = JobLookup(queue)
        self.preflight = True
        self._session = session
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()

    def register(self, events: Any) -> None:
        """Answer for the clients that have these events. Doing so again changes nothing."""
        for service, operations in _HANDLERS.items():
            for operation, handler in operations.items():
                of = f"{service}.{operation}"
                events.register_last(f"provide-client-params.{of}", _remember, unique_id=f"sagemaker-queue-params-{of}")
                events.register_last(f"before-call.{of}", self._responder(handler), unique_id=f"sagemaker-queue-{of}")

    def _responder(self, handler: Handler) -> Callable[..., tuple[_Reply, Answer] | None]:
        def respond(
            model: Any, params: Mapping[str, Any], context: Mapping[str, Any], **_: Any
        ) -> tuple[_Reply, Answer] | None:
            if _PARAMETERS not in context:
                return None
            address = urlsplit(params["url"])
            region = context["client_region"]
            if region != self.jobs.queue.region and model.name != "CreateTrainingJob":
                return None  # the queue's jobs run in its own region

            def client() -> Any:
                endpoint = f"{address.scheme}://{address.netloc}"
                return self._client(model.service_model.service_name, region, endpoint, context["client_config"])

            follow_waits(_jobs_of)
            call = Call(model.name, context[_PARAMETERS], region, self._session, self.preflight, client)
            try:
                answer = handler(self.jobs, call)
            except QueueError as error:
                return _refused(error)
            except ClientError as error:  # of a call that was made instead
                return _Reply(error.response["ResponseMetadata"]["HTTPStatusCode"]), dict(error.response)
            return None if answer is None else _accepted(answer)

        return respond

    def _client(self, service: str, region: str, endpoint: str, config: Any) -> Any:
        key = (service, region, endpoint)
        with self._lock:  # a session makes one client at a time
            if key not in self._clients:
                create: Any = self._session.client
                self._clients[key] = create(service, region_name=region, endpoint_url=endpoint, config=config)
            return self._clients[key]


def boto_session(
    session: boto3.Session | None = None, *, queue: QueueClient | None = None, preflight: bool = True
) -> boto3.Session:
    """Return a boto3 session whose training jobs go through the queue.

    It is ``session`` (default: a new one), of which the clients that are made from now on speak to ``queue``
    (default: the one that ``find_config`` finds, with the session's credentials). Give it to whatever takes a boto3
    session. ``preflight``: whether a job that is certain to fail, as far as one can see, is refused at once. Raises
    ConfigError if no queue is configured.
    """
    session = session or _new_session()
    hooks(session, queue).preflight = preflight
    return session


def install(*, queue: QueueClient | None = None, preflight: bool = True) -> boto3.Session:
    """Send the training jobs of boto3's default session through the queue, and return that session.

    It is what ``boto3.client`` uses, and the SageMaker SDKs where they are given no session. Call it before any
    client is made. The arguments are those of ``boto_session``.
    """
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    return boto_session(boto3.DEFAULT_SESSION, queue=queue, preflight=preflight)


def hooks(session: boto3.Session, queue: QueueClient | None = None) -> Hooks:
    """Return the handlers of a session, which has them from now on; ``queue`` replaces the one that it had."""
    found: Hooks | None = getattr(session, _HOOKS, None)
    if found is None:
        found = Hooks(session, queue or QueueClient(boto_session=session))
        found.register(session.events)
        setattr(session, _HOOKS, found)
    elif queue is not None:
        found.jobs = JobLookup(queue)
    return found


def _new_session() -> boto3.Session:
    """Return a session like boto3's default one, whose own clients must not change."""
    default = boto3.DEFAULT_SESSION
    if default is None:
        return boto3.Session()
    credentials = default.get_credentials()
    given = credentials.get_frozen_credentials() if credentials and credentials.method == "explicit" else None
    return boto3.Session(
        aws_access_key_id=given.access_key if given else None,
        aws_secret_access_key=given.secret_key if given else None,
        aws_session_token=given.token if given else None,
        region_name=default.region_name,
        profile_name=None if default.profile_name == "default" else default.profile_name,
    )


def _jobs_of(session: boto3.Session | None) -> tuple[boto3.Session, JobLookup] | None:
    session = session or boto3.DEFAULT_SESSION
    found: Hooks | None = getattr(session, _HOOKS, None)
    return (session, found.jobs) if session and found else None


def _remember(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[_PARAMETERS] = params


def _accepted(answer: Answer) -> tuple[_Reply, Answer]:
    metadata = {"RequestId": str(uuid.uuid4()), "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
    return _Reply(200), {"ResponseMetadata": metadata, **answer}


_SAGEMAKERS_WORDS: Mapping[type[QueueError], tuple[int, str]] = {
    NameTaken: (400, "ResourceInUse"),
    TooMany: (400, "ResourceLimitExceeded"),
    Forbidden: (403, "AccessDeniedException"),
    NotAuthenticated: (403, "AccessDeniedException"),
    Unavailable: (503, "ServiceUnavailable"),
}


def _refused(error: QueueError) -> tuple[_Reply, Answer]:
    """An error of the queue as SageMaker would put it, so that programs written for it understand."""
    status, code = next(
        (known for kind, known in _SAGEMAKERS_WORDS.items() if isinstance(error, kind)), (400, "ValidationException")
    )
    _, answer = _accepted({"Error": {"Code": code, "Message": str(error)}})
    answer["ResponseMetadata"]["HTTPStatusCode"] = status
    return _Reply(status), answer
