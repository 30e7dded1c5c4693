"""The seam between programs and SageMaker: what they ask SageMaker about training jobs, the queue answers.

Every SageMaker SDK, and plain boto3, ends in a botocore client, which asks its handlers before it sends a request.
The handlers here answer what concerns jobs of the queue, under the names that their users gave, and let pass what
does not: training jobs that the queue does not know, and everything else.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError

from sagemaker_queue.client import QueueClient
from sagemaker_queue.errors import ConfigError, Forbidden, NameTaken, NotAuthenticated, QueueError, TooMany, Unavailable
from sagemaker_queue.integrations.boto import elsewhere, training
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.cloudwatch import insights, logs, metrics
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue_startup import PARAMETERS, leave_alone

logger = logging.getLogger(__name__)

# By service and operation: those of sagemaker_queue_startup.OPERATIONS.
HANDLERS: Mapping[str, Mapping[str, Handler]] = {
    "sagemaker": {**training.HANDLERS, **elsewhere.SAGEMAKER},
    "cloudwatch-logs": {**logs.HANDLERS, **insights.HANDLERS},
    "cloudwatch": metrics.HANDLERS,
    "batch": elsewhere.BATCH,
}
_CREATE = "CreateTrainingJob"
_VIEWS = frozenset(
    {"DescribeTrainingJob", "ListTrainingJobs", "Search", "ListTags", *logs.HANDLERS, *insights.HANDLERS}
    | metrics.HANDLERS.keys()
)
"""What shows training jobs, and changes none."""

VIEW_VARIABLE = "SAGEMAKER_QUEUE_HOOKS"
JOBS, ATTEMPTS = "jobs", "attempts"


def view_of(hooks: str | None) -> str:
    """Return what is to be shown, jobs or attempts: as is said, or by the environment. Raises ConfigError."""
    view = hooks if hooks is not None else os.environ.get(VIEW_VARIABLE, "").strip().lower() or JOBS
    if view not in (JOBS, ATTEMPTS):
        where = "hooks" if hooks is not None else VIEW_VARIABLE
        raise ConfigError(f"{where} is {view!r}: write {JOBS!r} to see jobs, {ATTEMPTS!r} to see what SageMaker has.")
    return view


@dataclass(frozen=True)
class _Reply:
    """What botocore wants to see of an HTTP response that there never was."""

    status_code: int


class Hooks:
    """What answers the calls of clients with the same credentials: those of ``session``, which asks AWS for them.

    With ``leave_other_regions``, a job that is created in a region other than the queue's is left to SageMaker, with a
    warning; otherwise it is refused. ``view``: whether jobs or attempts are shown, as ``view_of`` takes it.
    """

    def __init__(
        self,
        session: boto3.Session,
        queue: QueueClient,
        *,
        preflight: bool = True,
        leave_other_regions: bool = False,
        view: str | None = None,
    ) -> None:
        self.view = view_of(view)
        self.jobs = JobLookup(queue)
        self.preflight = preflight
        self.active = True  # until it is undone: clients that were made meanwhile keep their handlers
        self.session = session
        self._leave_other_regions = leave_other_regions
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()
        _ALIVE.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hooks:
        """Return these: the copy of a session has the same queue, as the locks and connections cannot be copied."""
        return self

    def answer(self, model: Any, params: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[_Reply, Answer] | None:
        """Answer a call of an operation, or return None to let it pass."""
        region = context["client_region"]
        if not self.active or self._is_not_the_queues(model.name, region):
            return None
        if self.view == ATTEMPTS and model.name in _VIEWS:
            return None
        address = urlsplit(params["url"])
        service = model.service_model

        def client() -> Any:
            endpoint = f"{address.scheme}://{address.netloc}"
            return self._client(service.service_name, region, endpoint, context["client_config"])

        call = Call(model.name, context[PARAMETERS], region, self.session, self.preflight, client)
        try:
            answer = HANDLERS[service.service_id.hyphenize()][model.name](self.jobs, call)
        except QueueError as error:
            return refused(error)
        except ClientError as error:  # of a call that was made instead
            return _Reply(error.response["ResponseMetadata"]["HTTPStatusCode"]), dict(error.response)
        return None if answer is None else _accepted(answer)

    def _is_not_the_queues(self, operation: str, region: str) -> bool:
        """The queue's jobs run in its own region."""
        if region == self.jobs.queue.region:
            return False
        if operation == _CREATE and self._leave_other_regions:
            logger.warning(
                "A training job of %s goes to SageMaker directly: the queue runs jobs in %s.",
                region,
                self.jobs.queue.region,
            )
        return operation != _CREATE or self._leave_other_regions

    def _client(self, service: str, region: str, endpoint: str, config: Any) -> Any:
        key = (service, region, endpoint)
        with self._lock:  # a session makes one client at a time
            if key not in self._clients:
                create: Any = self.session.client
                made = create(service, region_name=region, endpoint_url=endpoint, config=config)
                leave_alone(made.meta.events)  # what it asks is meant for AWS
                self._clients[key] = made
            return self._clients[key]

    def renew(self) -> None:
        """Leave to the parent of a forked process what is its own: locks that it may hold, and open connections."""
        self._lock = threading.Lock()
        self._clients = {}
        self.jobs = JobLookup(self.jobs.queue)


_ALIVE: weakref.WeakSet[Hooks] = weakref.WeakSet()


def _after_fork() -> None:
    for hooks in list(_ALIVE):
        hooks.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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


def refused(error: QueueError) -> tuple[_Reply, Answer]:
    """An error of the queue as SageMaker would put it, so that programs written for it understand."""
    status, code = next(
        (known for kind, known in _SAGEMAKERS_WORDS.items() if isinstance(error, kind)), (400, "ValidationException")
    )
    _, answer = _accepted({"Error": {"Code": code, "Message": str(error)}})
    answer["ResponseMetadata"]["HTTPStatusCode"] = status
    return _Reply(status), answer
