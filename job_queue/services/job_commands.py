"""Commands for a job: cancel it, change its priority, hold and release it."""

from collections.abc import Callable
from dataclasses import replace

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain import identity, state_machine
from job_queue.domain.access.rights import Action
from job_queue.domain.errors import Conflict, Forbidden, NotFound, Refused, Unavailable
from job_queue.domain.job import Job, JobRecord
from job_queue.domain.names import is_name
from job_queue.domain.policy import project_of
from job_queue.domain.scheduling_tags import check_ceiling
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import Project
from job_queue.validation.issue import quoted

TRIES = 10  # against writers that change the same job at the same time


class JobCommands:
    """Changes jobs on behalf of callers; each change is made under the job's version."""

    def __init__(
        self, repository: JobRepository, policies: Policies, settings: DeploymentSettings, clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._rights = settings.rights
        self._clock = clock

    def record(self, name: str) -> JobRecord:
        """A job's row.

        :raises NotFound: there is none.
        """
        record = self._repository.record(name) if is_name(name) else None
        if record is None:
            raise NotFound(f"There is no job named {name if is_name(name) else quoted(name)}.")
        return record

    def cancel(self, name: str, caller: str) -> tuple[JobRecord, bool]:
        """Cancel a job. Gives it as it is then, and whether that changed anything.

        :raises NotFound, Forbidden: there is none, or it is somebody else's.
        """

        def make_transition(job: Job) -> Transition | None:
            if job.state.finished or job.cancelled:
                return None
            return state_machine.cancel(job, caller, self._clock())

        return self._change(Action.CANCEL, name, caller, make_transition)

    def change(
        self, name: str, caller: str, *, priority: int | None = None, held: bool | None = None
    ) -> tuple[JobRecord, bool]:
        """Give a job another priority, hold it or release it. Gives it as it is then, and whether it was changed.

        :param priority: None: as it is.
        :param held: True to hold it, False to release it; None: as it is.
        :raises NotFound, Forbidden, Conflict: nothing is changed.
        """

        def make_transition(job: Job) -> Transition | None:
            if job.state.finished:
                raise Conflict(f"{job.name} is {job.state}: nothing about it can be changed any more.")
            new_priority = job.priority if priority is None else priority
            new_held = job.held if held is None else held
            if new_held and not job.held and not job.state.waits:
                raise Conflict(
                    f"{job.name} is {job.state}; only a waiting job can be held.", remedy="Cancel it, or let it run."
                )
            if new_priority != job.priority:
                self._check_ceiling(job, new_priority)
            if (new_priority, new_held) == (job.priority, job.held):
                return None
            if new_priority > job.priority or (job.held and not new_held):
                self._check_member(job, caller)
            return state_machine.change(job, caller, self._clock(), priority=new_priority, held=new_held)

        return self._change(Action.CHANGE, name, caller, make_transition)

    def _change(
        self, action: Action, name: str, caller: str, make_transition: Callable[[Job], Transition | None]
    ) -> tuple[JobRecord, bool]:
        for _ in range(TRIES):
            record = self.record(name)
            self._check_right(action, record.job, caller)
            transition = make_transition(record.job)
            if transition is None:
                return record, False
            try:
                # With the whole record, so that a long history is cut: each of a user's changes makes it longer.
                self._repository.apply(replace(transition, record=record), self._clock())
            except Refused:
                continue
            return self.record(name), True
        raise Unavailable("The job is being changed by many at once.", remedy="Try again.")

    def may_see_values(self, job: Job, caller: str) -> bool:
        """Whether a caller is shown those values of a job's request that may be secret."""
        return self._rights.may(Action.SHOW_VALUES, caller, owner=job.owner)

    def _check_right(self, action: Action, job: Job, caller: str) -> None:
        if self._rights.may(action, caller, owner=job.owner):
            return  # without a look at the policy: an owner can cancel whatever it says
        if not self._rights.may(action, caller, owner=job.owner, project=self._project(job)):
            owner = identity.owner_of(job.owner)
            raise Forbidden(
                f"{job.name} belongs to {owner}; only its owner, an admin of its project {job.project} or an admin of "
                "the queue may cancel or change it.",
                remedy="Ask one of them.",
            )

    def _check_member(self, job: Job, caller: str) -> None:
        """Check that a caller may still submit to the job's project, or is an admin.

        :raises Forbidden: the owner of a job has left its project, and may make the job start no sooner.
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
