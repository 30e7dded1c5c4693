"""Commands of users for a job: cancel it, change its priority, hold, release or requeue it, or enable a shell in it.

The rights are those of `access.rights`. An owner who has left the project may only cancel, requeue or hold the job, or
lower its priority.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from job_queue.adapters.items import stored_request
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.sagemaker import TrainingJob, UpdateResult
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain import identity, state_machine
from job_queue.domain.access.rights import Action
from job_queue.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, Refused, Unavailable
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job, JobRecord
from job_queue.domain.names import is_name
from job_queue.domain.policy import project_of
from job_queue.domain.requests.scheduling_tags import check_ceiling
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Project
from job_queue.validation.issue import quoted

TRIES = 10  # tries to write a job, since other invocations may change it at the same time
_ENABLED = "remote debugging enabled"
_WHEN = "SageMaker permits it while the training job is Downloading or Training: try again then."
_PERMISSION = (
    "The queue's role needs sagemaker:UpdateTrainingJob on the names *-qstamp-*, and no policy may deny it by the "
    "condition key sagemaker:EnableRemoteDebug."
)


class JobCommands:
    """The service that changes jobs for callers. A command is tried again if another request has changed the job.

    :param clock: seconds since the epoch.
    """

    def __init__(
        self, repository: JobRepository, policies: Policies, settings: DeploymentSettings, clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._rights = settings.rights
        self._clock = clock

    def record(self, name: str) -> JobRecord:
        """Return the record of a job.

        :raises NotFound: the queue does not know the job.
        """
        record = self._repository.record(name) if is_name(name) else None
        if record is None:
            raise NotFound(f"There is no job named {name if is_name(name) else quoted(name)}.")
        return record

    def cancel(self, name: str, caller: str) -> tuple[JobRecord, bool]:
        """Cancel a job. Return its record, and whether the command changed it.

        :raises NotFound, Forbidden: the job is unknown, or the caller may not cancel it.
        """

        def make_transition(job: Job) -> JobTransition | None:
            if job.state.finished or job.cancelled:
                return None
            return state_machine.cancel(job, caller, self._clock())

        return self._change((Action.CANCEL,), name, caller, make_transition)

    def change(
        self,
        name: str,
        caller: str,
        *,
        priority: int | None = None,
        held: bool | None = None,
        now: bool = False,
        requeue: bool = False,
    ) -> tuple[JobRecord, bool]:
        """Change a job's priority, hold, release or requeue it. Return its record, and whether the command changed it.

        :param priority: None: keep it.
        :param held: True to hold the job, False to release it; None: no change.
        :param now: for a hold: stop the job's attempt, if there is one.
        :param requeue: stop the job's attempt, so that the job waits again.
        :raises InvalidRequest, NotFound, Forbidden, Conflict: nothing is changed.
        """
        if now and held is not True:
            raise InvalidRequest(
                "The option now needs held: true.", field="now", remedy='Send {"held": true, "now": true}.'
            )
        actions = (Action.CHANGE, Action.REQUEUE) if requeue or now else (Action.CHANGE,)

        def make_transition(job: Job) -> JobTransition | None:
            if job.state.finished:
                raise Conflict(f"{job.name} is {job.state}: a finished job cannot be changed.")
            new_priority = job.priority if priority is None else priority
            new_held = job.held if held is None else held
            if new_held and not job.held and not job.state.waits and not (now or requeue):
                raise Conflict(
                    f"{job.name} is {job.state}; only a waiting job can be held.",
                    remedy="Cancel it, let it run, or hold it with now (smq hold --now), which stops its attempt.",
                )
            stops = _is_to_be_stopped(job, requeue=requeue, now=now)
            if new_priority != job.priority:
                self._check_ceiling(job, new_priority)
            if (new_priority, new_held) == (job.priority, job.held) and not stops:
                return None
            if new_priority > job.priority or (job.held and not new_held):
                self._check_member(job, caller)
            return state_machine.change(job, caller, self._clock(), priority=new_priority, held=new_held, requeue=stops)

        return self._change(actions, name, caller, make_transition)

    def _change(
        self, actions: Iterable[Action], name: str, caller: str, make_transition: Callable[[Job], JobTransition | None]
    ) -> tuple[JobRecord, bool]:
        for _ in range(TRIES):
            record = self.record(name)
            for action in actions:
                self.check_right(action, record.job, caller)
            transition = make_transition(record.job)
            if transition is None:
                return record, False
            try:
                # With the whole record, a long history can be truncated: a user may change a job any number of times.
                self._repository.apply(replace(transition, record=record), self._clock())
            except Refused:
                continue
            return self.record(name), True
        raise Unavailable("Other requests are changing this job at the same time.", remedy="Try again.")

    def may_see_values(self, job: Job, caller: str) -> bool:
        """Return whether a caller may see the values of a job's request that can be secret."""
        return self._rights.may(Action.SHOW_VALUES, caller, owner=job.owner)

    def check_right(self, action: Action, job: Job, caller: str) -> None:
        """Check that a caller may do an action with a job.

        :raises Forbidden: the caller may not do this.
        """
        if self._rights.may(action, caller, owner=job.owner):
            return  # without reading the policy: an owner can cancel under any policy
        if not self._rights.may(action, caller, owner=job.owner, project=self._project(job)):
            owner = identity.owner_of(job.owner)
            commands = "enable a shell in it" if action is Action.ENTER else "cancel, requeue or change it"
            raise Forbidden(
                f"{job.name} belongs to {owner}; only its owner, an admin of its project {job.project} or an admin of "
                f"the queue may {commands}.",
                remedy="Ask one of these people.",
            )

    def _check_member(self, job: Job, caller: str) -> None:
        """Check that a caller may still submit to the job's project, or is an admin.

        :raises Forbidden: the caller has left the project, and so may do nothing that makes the job start sooner.
        """
        project = self._project(job)
        if project is None or any(
            self._rights.may(action, caller, project=project) for action in (Action.SUBMIT, Action.CHANGE)
        ):
            return
        raise Forbidden(
            f"{caller} is no longer a member of the project {project.name}, and so may not release {job.name} or raise "
            "its priority.",
            remedy="Cancel it, or ask an admin of the project.",
        )

    def _project(self, job: Job) -> Project | None:
        return project_of(self._policies.of(self._repository.policy()).policy, job.project)

    def _check_ceiling(self, job: Job, priority: int) -> None:
        if project := self._project(job):
            check_ceiling(project, priority, field="priority")


class DebuggableTraining(Protocol):
    """The operations of SageMaker's training API that the service needs; see `adapters.sagemaker`."""

    def describe(self, name: str) -> TrainingJob | None: ...  # noqa: D102
    def enable_remote_debug(self, name: str) -> tuple[UpdateResult, str]: ...  # noqa: D102


class DebuggableSites(DebuggableTraining, Protocol):
    """The operations of `DebuggableTraining` at the home site, and by `at` at any other site."""

    def at(self, site: Site | None) -> DebuggableTraining: ...  # noqa: D102


class RemoteDebugService:
    """The service that enables SageMaker's remote debugging in running attempts, so that a shell can be opened there.

    The queue calls UpdateTrainingJob with its own rights, because examples/iam denies this action to people. Only IAM
    decides whether a person may open a session.

    :param clock: seconds since the epoch.
    """

    def __init__(
        self, commands: JobCommands, repository: JobRepository, training: DebuggableSites, clock: Callable[[], float]
    ) -> None:
        self._commands = commands
        self._repository = repository
        self._training = training
        self._clock = clock

    def enable(self, name: str, caller: str) -> JobRecord:
        """Enable remote debugging in the running attempt of a job. Return the job's record.

        The first success for an attempt is recorded in the job's history. Later successes change nothing.

        :raises NotFound, Forbidden: the job is unknown, or the caller or the queue may not do this.
        :raises InvalidRequest: no session can ever be opened in this job.
        :raises Conflict: the job has no running attempt, or SageMaker does not permit the change now.
        :raises Busy: another such request of the caller is being answered.
        :raises Unavailable: SageMaker gave no usable answer.
        """
        record = self._commands.record(name)
        self._commands.check_right(Action.ENTER, record.job, caller)
        attempt = _running_attempt(record)
        with self._repository.heavy_requests.one_for_caller(caller, self._clock()):
            training = self._training.at(record.job.site)
            described = training.describe(attempt)
            # The name of a deleted attempt is free, so the training job may belong to another person.
            if described is None or not described.is_current_attempt_of(record.job):
                raise Conflict(
                    f"The training job {attempt} is not the attempt of {name}, or SageMaker has not found it."
                )
            result, message = training.enable_remote_debug(attempt)
        answer = message.rstrip(".")
        if result is UpdateResult.DENIED:
            raise Forbidden(f"The queue may not enable remote debugging in {attempt}: {answer}.", remedy=_PERMISSION)
        if result is UpdateResult.REFUSED:
            raise Conflict(f"SageMaker does not enable remote debugging in {attempt}: {answer}.", remedy=_WHEN)
        return self._recorded(record, caller)

    def _recorded(self, record: JobRecord, caller: str) -> JobRecord:
        """Record the change in the job's history, unless it is there already or the attempt no longer runs."""
        name, attempt = record.job.name, record.job.attempt
        for _ in range(TRIES):
            known = any(it.attempt == attempt and it.cause.startswith(_ENABLED) for it in record.history)
            if known or record.job.attempt != attempt or record.job.state is not JobState.RUNNING:
                break
            transition = state_machine.annotate(record.job, f"{_ENABLED} by {caller}", self._clock())
            try:
                self._repository.apply(replace(transition, record=record), self._clock())
            except Refused:
                record = self._commands.record(name)
                continue
            return self._commands.record(name)
        return record


def _is_to_be_stopped(job: Job, *, requeue: bool, now: bool) -> bool:
    """Return whether a command stops a job's attempt: False if there is no attempt, or if a stop is already due.

    :raises Conflict: the job cannot be requeued.
    """
    if not (requeue or now):
        return False
    if job.carries is not None:
        raise Conflict(
            f"{job.name} is a carrier, which belongs to the queue and never waits again.",
            remedy="Requeue the jobs that share it.",
        )
    if job.state.waits:
        if requeue:
            raise Conflict(
                f"{job.name} waits already: it is {job.state}.", remedy="Hold it if it is not to start (smq hold)."
            )
        return False
    if job.cancelled:
        raise Conflict(f"{job.name} is cancelled: it ends with its attempt, and does not wait again.")
    return job.requeued_by is None and job.state is not JobState.STOPPING


def _running_attempt(record: JobRecord) -> str:
    """Return the name of the training job of a job's running attempt.

    :raises InvalidRequest: no session can ever be opened in the job.
    :raises Conflict: the job has no running attempt.
    """
    job = record.job
    if job.carries is not None or job.gpus is not None:
        raise InvalidRequest(
            f"{job.name} shares an instance with other jobs, and a shell would open all of them: it cannot be entered.",
            remedy="Submit a job with a whole instance, without GPUs of a shared one.",
        )
    if stored_request(record.details).enable_network_isolation:
        raise InvalidRequest(
            f"{job.name} has EnableNetworkIsolation, which isolates its container, so no shell can be opened in it.",
            field="EnableNetworkIsolation",
        )
    if job.state.finished:
        raise Conflict(f"{job.name} has finished ({job.state}), so no shell can be opened in it.")
    if job.state is not JobState.RUNNING or job.launched is None:
        raise Conflict(f"{job.name} does not run: it is {job.state}.", remedy="Try again when it runs.")
    if _is_being_stopped(job):
        raise Conflict(f"{job.name} is being stopped.", remedy="Wait for its next attempt, if there is one.")
    return job.launched


def _is_being_stopped(job: Job) -> bool:
    return job.cancelled or job.requeued_by is not None
