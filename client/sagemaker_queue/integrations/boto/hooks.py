"""The hooks by which the queue answers calls of AWS's APIs about training jobs.

Every SageMaker SDK, and plain boto3, uses a botocore client. A botocore client calls its handlers before sending a
request. The handlers here answer calls about jobs of the queue, under the jobs' own names. All other calls pass to AWS,
including calls about training jobs that the queue does not know.
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
from botocore.config import Config
from botocore.exceptions import ClientError

from sagemaker_queue.errors import ConfigError, Forbidden, NameTaken, NotAuthenticated, QueueError, TooMany, Unavailable
from sagemaker_queue.integrations.boto import training_calls, unqueued_calls
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.cloudwatch import insights, logs, metrics
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import Place
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.queue_config import is_loopback
from sagemaker_queue_startup import PARAMETERS, pass_all_calls

logger = logging.getLogger(__name__)
_Config: Any = Config  # Config's types lack the option ignore_configured_endpoint_urls

# Handlers by service and operation. sagemaker_queue_startup.OPERATIONS lists the same operations.
HANDLERS: Mapping[str, Mapping[str, Handler]] = {
    "sagemaker": {**training_calls.HANDLERS, **unqueued_calls.SAGEMAKER},
    "cloudwatch-logs": {**logs.HANDLERS, **insights.HANDLERS},
    "cloudwatch": metrics.HANDLERS,
    "batch": unqueued_calls.BATCH,
}
_CREATE = "CreateTrainingJob"
_VIEWS = frozenset(
    {"DescribeTrainingJob", "ListTrainingJobs", "Search", "ListTags", *logs.HANDLERS, *insights.HANDLERS}
    | metrics.HANDLERS.keys()
)
"""The operations that show training jobs and do not change training jobs."""

VIEW_VARIABLE = "SAGEMAKER_QUEUE_HOOKS"
"""The view of SageMaker calls: `jobs` of the queue, or `attempts` as SageMaker has them. Default: `jobs`."""
JOBS, ATTEMPTS = "jobs", "attempts"


def view_of(hooks: str | None) -> str:
    """Return the view of calls that show training jobs, JOBS or ATTEMPTS: ``hooks``, else VIEW_VARIABLE, else JOBS.

    Raises ConfigError for another value.
    """
    view = hooks if hooks is not None else os.environ.get(VIEW_VARIABLE, "").strip().lower() or JOBS
    if view not in (JOBS, ATTEMPTS):
        where = "hooks" if hooks is not None else VIEW_VARIABLE
        raise ConfigError(f"{where} is {view!r}: write {JOBS!r} to see jobs, {ATTEMPTS!r} to see what SageMaker has.")
    return view


@dataclass(frozen=True)
class _Reply:
    """A stand-in for the HTTP response that botocore expects, since no request is sent."""

    status_code: int


class Hooks:
    """The hooks of all clients with the same credentials. The hooks' own calls of AWS use ``session``.

    With ``leave_other_regions``, a CreateTrainingJob call for another region than the queue's passes to SageMaker, with
    a warning; otherwise such a call is refused. ``view`` is the argument of ``view_of``: jobs or attempts.
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
        self.active = True  # False after uninstall: existing clients keep their handlers, which then let all calls pass
        self.session = session
        self._leave_other_regions = leave_other_regions
        self._clients: dict[tuple[str, str, str | None, str | None], Any] = {}
        self._lock = threading.Lock()
        _ALIVE.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hooks:
        """Return this object: a copied session shares the hooks, since locks and connections cannot be copied."""
        return self

    def answer(self, model: Any, params: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[_Reply, Answer] | None:
        """Answer a call of an operation, or return None to let the call pass. A QueueError becomes an AWS error."""
        region = context["client_region"]
        if not self.active or self._passes_to_aws(model.name, region):
            return None
        if self.view == ATTEMPTS and model.name in _VIEWS:
            return None
        address = urlsplit(params["url"])
        endpoint, config = f"{address.scheme}://{address.netloc}", context["client_config"]
        service = model.service_model

        def client() -> Any:
            return self._client(service.service_name, region, None, endpoint, config)

        def elsewhere(place: Place, job: str) -> Any:
            return self._client_elsewhere(service.service_name, place, job, endpoint, config)

        call = Call(model.name, context[PARAMETERS], region, self.session, self.preflight, client, elsewhere)
        try:
            answer = HANDLERS[service.service_id.hyphenize()][model.name](self.jobs, call)
        except QueueError as error:
            return refused(error)
        except ClientError as error:  # raised by a call of AWS that the handler made, or by the handler itself
            return _Reply(error.response["ResponseMetadata"]["HTTPStatusCode"]), dict(error.response)
        return None if answer is None else _accepted(answer)

    def _passes_to_aws(self, operation: str, region: str) -> bool:
        """Return whether a call passes to AWS because its client's region is not the queue's region."""
        if region == self.jobs.queue.region:
            return False
        if operation == _CREATE and self._leave_other_regions:
            logger.warning(
                "A training job of %s goes to SageMaker directly: the queue runs jobs in %s.",
                region,
                self.jobs.queue.region,
            )
        return operation != _CREATE or self._leave_other_regions

    def _client(
        self, service: str, region: str, account: str | None, endpoint: str | None, config: Any, job: str | None = None
    ) -> Any:
        """Return a cached client of AWS, whose calls go to AWS and not to the queue.

        With ``account``, the client uses the profile of that account, otherwise the hooks' own session. Without
        ``endpoint``, the session's settings determine the endpoint. Raises NoAccountProfile, whose message names
        ``job``.
        """
        key = (service, region, account, endpoint)
        with self._lock:  # boto3 sessions are not thread-safe while creating a client
            if key not in self._clients:
                session = self.session if account is None else self.jobs.queue.aws_session(account, job=job)
                create: Any = session.client
                client = create(service, region_name=region, endpoint_url=endpoint, config=config)
                if endpoint is None and is_loopback(urlsplit(client.meta.endpoint_url).hostname or ""):
                    # The endpoint setting names a proxy of the queue. Ignore it: the proxy must not call itself.
                    direct = config.merge(_Config(ignore_configured_endpoint_urls=True))
                    client = create(service, region_name=region, config=direct)
                pass_all_calls(client.meta.events)  # calls of this client go to AWS
                self._clients[key] = client
            return self._clients[key]

    def _client_elsewhere(self, service: str, place: Place, job: str, endpoint: str, config: Any) -> Any:
        """Return a client for an attempt in another region or account. ``endpoint`` is that of the called client.

        A local cloud has one endpoint for all regions and accounts. In AWS, each region has its own endpoints.
        """
        on_this_machine = is_loopback(urlsplit(endpoint).hostname or "")
        region = place.region or self.jobs.queue.region
        config_of_region = config.merge(Config(region_name=region))
        return self._client(
            service, region, place.account, endpoint if on_this_machine else None, config_of_region, job
        )

    def renew(self) -> None:
        """Replace the lock and the clients in a forked process.

        The parent may hold the lock, and owns the open connections.
        """
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


_SAGEMAKER_ERRORS: Mapping[type[QueueError], tuple[int, str]] = {
    NameTaken: (400, "ResourceInUse"),
    TooMany: (400, "ResourceLimitExceeded"),
    Forbidden: (403, "AccessDeniedException"),
    NotAuthenticated: (403, "AccessDeniedException"),
    Unavailable: (503, "ServiceUnavailable"),
}


def refused(error: QueueError) -> tuple[_Reply, Answer]:
    """Return an error of the queue with SageMaker's status and error code, for programs written for SageMaker."""
    status, code = next(
        (known for kind, known in _SAGEMAKER_ERRORS.items() if isinstance(error, kind)), (400, "ValidationException")
    )
    _, answer = _accepted({"Error": {"Code": code, "Message": str(error)}})
    answer["ResponseMetadata"]["HTTPStatusCode"] = status
    return _Reply(status), answer
