"""A client of the queue's HTTP API: methods with typed answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any, TypeVar

import boto3

from api_contract import routes
from api_contract.history import PastAttempt
from api_contract.models import (
    MAX_PAGE,
    Cancellation,
    DrainAnswer,
    DrainedJobs,
    Identity,
    JobDetail,
    JobSummary,
    PlanAnswer,
    PolicyAnswer,
    PolicyHistory,
    QueueStatus,
    Submission,
)
from api_contract.preview import PreviewAnswer
from api_contract.routes import Operation
from api_contract.shape import Answer, UnreadableError
from sagemaker_queue.errors import InvalidRequest, NotFound, QueueError, StalePolicy
from sagemaker_queue.queue.config.queue_config import QueueConfig, find_config
from sagemaker_queue.queue.identity import owner_of
from sagemaker_queue.queue.transport import ATTEMPTS, Transport

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0  # API Gateway ends a request after 29 s with an answer of its own
# An older queue does not send these members: its status 200 stands for true, another status for false.
_MEMBERS_FROM_STATUS = ("known", "wasFinished")
_JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)

Answered = TypeVar("Answered", bound=Answer)


class QueueClient:
    """A client of the queue's API, with a method for each operation.

    The public class is its subclass ``sagemaker_queue.QueueClient``, which documents the arguments.
    """

    def __init__(
        self,
        config: QueueConfig | None = None,
        *,
        boto_session: boto3.Session | None = None,
        url: str | None = None,
        api_id: str | None = None,
        profile: str | None = None,
        region: str | None = None,
        tries: int = ATTEMPTS,
        pause_seconds: float = 0.5,
        timeout_seconds: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
    ) -> None:
        self.config = config or find_config(url=url, api_id=api_id, profile=profile, region=region)
        own = self.config.profile
        self.named = (self.config.url if own is None else None, own)  # the arguments of find_defaults: url and profile
        self.boto_session = boto_session
        self._transport = Transport(
            self.config, boto_session, tries=tries, pause_seconds=pause_seconds, timeout_seconds=timeout_seconds
        )

    @property
    def region(self) -> str:
        """The AWS region of the queue, and of all jobs without a region of their own."""
        return self._transport.region

    def aws_client(
        self, service: str, region: str | None = None, account: str | None = None, *, job: str | None = None
    ) -> Any:
        """Return a boto3 client of an AWS service, such as ``logs``.

        The default ``region`` and ``account`` are the queue's. In the queue's account, the boto3 client has the
        credentials of this QueueClient. In another account, the boto3 client has the credentials of the account's AWS
        profile in the setting ``account_profiles``. Raises NoAccountProfile without such a profile; the message names
        ``job``.
        """
        create: Any = self.aws_session(account, job=job).client
        return create(service, region_name=region or self.region)

    def aws_session(self, account: str | None = None, *, job: str | None = None) -> boto3.Session:
        """Return the boto3 session for an account (default: the queue's); the errors are as for ``aws_client``."""
        return self._transport.aws_session(account, job=job)

    def impatient(self, seconds: float) -> QueueClient:
        """Return a client of the same queue without retries, with ``seconds`` as timeout of connection and answer."""
        return QueueClient(self.config, boto_session=self.aws_session(), tries=1, timeout_seconds=(seconds, seconds))

    def submit(self, request: Mapping[str, Any], *, preflight: bool = True) -> Submission:
        """Submit a CreateTrainingJob request. A repeated identical request returns the existing job.

        Without ``preflight``, the queue accepts a job that is certain to fail, with a warning in the answer. A request
        that SageMaker would refuse is still refused. This method does not check contents of S3; call
        ``sagemaker_queue.jobs.preflight.check`` for that check.
        """
        _check_json(request)
        query = None if preflight else {"preflight": "false"}
        return self._call(routes.ADD_JOB, query=query, content=request)

    def plan(self, request: Mapping[str, Any]) -> PlanAnswer:
        """Return the outcome that a CreateTrainingJob request would have if submitted now. Nothing is stored."""
        _check_json(request)
        return self._call(routes.PLAN_JOB, content=request)

    def jobs(self, states: str | Iterable[str] = "live") -> Iterator[JobSummary]:
        """Yield jobs: ``live``, ``finished``, ``all``, or the jobs in the given states. Pages are read as needed.

        Live jobs are in the queue's order: highest priority first, then earliest submission first.
        """
        state = states if isinstance(states, str) else ",".join(states)
        query = {"state": state, "limit": str(MAX_PAGE)}
        seen: set[str] = set()  # a job whose position changes between two requests may be on both pages
        while True:
            page = self._call(routes.LIST_JOBS, query=query)
            for job in page.jobs:
                if job.job not in seen:
                    seen.add(job.job)
                    yield job
            if page.next is None:
                return
            query["next"] = page.next

    def history(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        owner: str | None = None,
        project: str | None = None,
    ) -> Iterator[PastAttempt]:
        """Yield the attempts that ended from ``since`` to before ``until``, the earliest end first.

        Pages are read as needed. Attempts of forgotten jobs are included. ``owner`` is an ARN, which may contain ``*``.
        """
        filters = {"until": None if until is None else _rfc3339(until), "owner": owner, "project": project}
        given = {"since": _rfc3339(since), "limit": str(MAX_PAGE)}
        given.update({name: text for name, text in filters.items() if text is not None})
        while True:
            page = self._call(routes.LIST_HISTORY, query=given)
            yield from page.attempts
            if page.next is None:
                return
            given["next"] = page.next

    def caller_arn(self) -> str:
        """Return the ARN by which you own jobs in the queue. The ARN is computed from the answer of AWS (STS)."""
        return owner_of(self._transport.caller_arn())

    def whoami(self) -> Identity:
        """Return your identity and your rights in the queue, and the queue's version."""
        return self._call(routes.WHO_AM_I)

    def job(self, name: str, *, advice: bool = False) -> JobDetail:
        """Return the job's full description.

        With ``advice``, ``why.advice`` of a waiting job lists changes that would let the job start. The queue computes
        plans for this advice, which can take seconds: do not poll with ``advice``.
        """
        return self._call(routes.DESCRIBE_JOB, name, query={"advice": "true"} if advice else None)

    def cancel(self, name: str) -> Cancellation:
        """Cancel the job. A waiting job ends at once; an active job is stopped first, which may take minutes."""
        return self._call(routes.CANCEL_JOB, name)

    def change(
        self, name: str, *, priority: int | None = None, held: bool | None = None, now: bool = False
    ) -> JobSummary:
        """Change the job's priority, hold the job, or release it (``held=False``). None leaves a value unchanged.

        With ``now``, a hold also stops the attempt of an active job, as ``requeue`` does; without it, such a job cannot
        be held (Conflict).
        """
        changes = {"priority": priority, "held": held, "now": now or None}
        content = {member: value for member, value in changes.items() if value is not None}
        return self._call(routes.CHANGE_JOB, name, content=content)

    def requeue(self, name: str) -> JobSummary:
        """Stop the job's attempt like a preemption: the job waits again in its old position, and resumes later.

        Raises Conflict if the job waits already, is cancelled or has finished.
        """
        return self._call(routes.CHANGE_JOB, name, content={"requeue": True})

    def drain(
        self, pool: str, *, at: datetime | None = None, reason: str = "", stops: DrainedJobs = "preemptible"
    ) -> DrainAnswer:
        """Drain a pool, now or from the time ``at`` on: no job starts there, and its running jobs are stopped.

        The stopped jobs wait again in their old positions, and resume in another pool that they accept, or after the
        drain. ``stops`` selects the running jobs to stop: ``none``, ``preemptible``, or ``all``. Raises NotFound if the
        policy has no such pool, and Forbidden unless the caller is an admin of the queue.
        """
        changes = {"at": at and _rfc3339(at), "reason": reason or None, "stops": stops}
        content = {"pool": pool, **{member: value for member, value in changes.items() if value is not None}}
        return self._call(routes.DRAIN_POOL, content=content)

    def undrain(self, pool: str) -> DrainAnswer:
        """End the drain of a pool, so that jobs start there again. If the pool is not drained, nothing changes."""
        return self._call(routes.UNDRAIN_POOL, content={"pool": pool})

    def enable_remote_debug(self, name: str) -> JobSummary:
        """Enable SageMaker's remote debugging in the job's running attempt, so that a shell can be opened in it.

        Raises Conflict if the job does not run, or if SageMaker does not permit the change yet. Raises InvalidRequest
        if no shell can ever be opened in the job.
        """
        return self._call(routes.CHANGE_JOB, name, content={"remoteDebug": True})

    def policy(self, version: int | None = None) -> PolicyAnswer:
        """Return the policy in force, or the given version of the policy, with its version number.

        Raises NotFound if that version is not kept.
        """
        query = None if version is None else {"version": str(version)}
        answer = self._call(routes.DESCRIBE_POLICY, query=query)
        if version is not None and answer.version != version:
            raise QueueError("The queue is older than this client, and keeps no earlier versions of its policy.")
        return answer

    def policy_history(self) -> PolicyHistory:
        """Return the versions of the policy, each with its time and the identity that applied it."""
        return self._call(routes.POLICY_HISTORY)

    def roll_back_policy(self, to: int, version: int, *, force: bool = False) -> PolicyAnswer:
        """Apply the earlier version ``to`` of the policy again.

        ``version``, ``force`` and the errors are as for ``apply_policy``.
        """
        content = {"to": to, "version": version, "force": force}
        try:
            return self._call(routes.ROLL_BACK_POLICY, content=content)
        except StalePolicy:
            # An earlier try of this request may have succeeded although its answer was lost.
            latest = self.policy_history().versions[:1]
            if latest and (latest[0].version, latest[0].restored) == (version + 1, to):
                return self.policy()
            raise

    def apply_policy(self, document: Mapping[str, Any], version: int, *, force: bool = False) -> PolicyAnswer:
        """Replace the policy by the document, which is in force from the next cycle on.

        ``version`` is the version of the policy from which the document was made. Raises StalePolicy if a newer version
        is in force, and InvalidRequest with the faults of the document. Without ``force``, raises InUse if the document
        drops or changes projects, pools, buckets, training plans or roles that live jobs use, or lowers a quota below
        running non-preemptible jobs.
        """
        _check_json(document)
        content = {"policy": document, "version": version, "force": force}
        try:
            return self._call(routes.APPLY_POLICY, content=content)
        except StalePolicy:
            # An earlier try of this request may have succeeded although its answer was lost.
            applied = self.policy()
            if applied.version == version + 1 and applied.policy == document:
                return applied
            raise

    def preview(
        self,
        policy: Mapping[str, Any] | None = None,
        *,
        capacity: Mapping[str, int] | None = None,
        hours: float = 8,
    ) -> PreviewAnswer:
        """Return the changes that another policy, or other capacities of pools, would make in the next ``hours``.

        Pass either ``policy`` or ``capacity``. Nothing is changed. Raises InvalidRequest with the faults of the policy.
        """
        parameters = {"policy": policy, "capacity": capacity}
        content = {member: value for member, value in parameters.items() if value is not None}
        _check_json(content)
        return self._call(routes.PREVIEW_POLICY, content={**content, "hours": hours})

    def queue(self) -> QueueStatus:
        """Return the pools, the departments, the projects, and the active, waiting and external jobs."""
        return self._call(routes.DESCRIBE_QUEUE)

    def _call(
        self,
        operation: Operation[Answered],
        name: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: object = None,
    ) -> Answered:
        if name is not None and not _JOB_NAME.fullmatch(name):
            raise NotFound(f"There is no job {name!r}: a job's name has up to 63 letters, digits and inner hyphens.")
        path = operation.path.replace("{name}", name or "")
        status, answer = self._transport.call(operation.method, path, query=query, content=content)
        from_status = dict.fromkeys(_MEMBERS_FROM_STATUS, status == HTTPStatus.OK)
        try:
            return operation.answer.from_json({**from_status, **answer})
        except UnreadableError as error:
            raise QueueError(
                f"The queue's answer cannot be read: {error}."
                " Is the address right, or does this client need an upgrade?"
            ) from error


def _rfc3339(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _check_json(content: Mapping[str, Any]) -> None:
    misfit = _first_non_json(content, "")
    if misfit:
        path, value = misfit
        raise InvalidRequest(
            f"{path} is {value!r} ({type(value).__name__}), which JSON cannot carry;"
            " use text, numbers, true or false, lists and objects.",
            path,
        )


def _first_non_json(value: object, path: str) -> tuple[str, object] | None:
    """Return path and value of the first value for which JSON has no type; None if there is no such value."""
    if isinstance(value, Mapping):
        members: Iterable[tuple[object, str, object]] = (
            (key, f"{path}.{key}" if path else str(key), member) for key, member in value.items()
        )
    elif isinstance(value, (list, tuple)):
        members = (("", f"{path}[{index}]", member) for index, member in enumerate(value))
    else:
        finite = not isinstance(value, float) or abs(value) < float("inf")
        return None if isinstance(value, (str, int, float, type(None))) and finite else (path, value)
    for key, where, member in members:
        misfit = (where, key) if not isinstance(key, str) else _first_non_json(member, where)
        if misfit:
            return misfit
    return None
