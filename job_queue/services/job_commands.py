"""Commands for a job: cancel it, change its priority, hold and release it."""

from collections.abc import Callable
from typing import Any

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain import state_machine
from job_queue.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, Refused, Unavailable
from job_queue.domain.job import MAX_PRIORITY, Job, JobRecord
from job_queue.domain.names import is_name
from job_queue.domain.policy import project_of
from job_queue.domain.scheduling_tags import check_ceiling
from job_queue.domain.state_machine import Transition
from job_queue.validation.issue import member, quoted
from job_queue.validation.json_text import json_object

TRIES = 10  # against writers that change the same job at the same time
_EXAMPLES = 'such as {"priority": 5} or {"held": true}'
_FIELDS = {"priority": "a whole number", "held": "true or false"}


class JobCommands:
    """Changes jobs on behalf of callers; each change is made under the job's version."""

    def __init__(
        self, repository: JobRepository, policies: Policies, settings: DeploymentSettings, clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._settings = settings
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

        return self._change(name, caller, make_transition)

    def change(self, name: str, caller: str, body: str) -> tuple[JobRecord, bool]:
        """Give a job another priority, hold it or release it, as a JSON body says.

        :raises InvalidRequest, NotFound, Forbidden, Conflict: nothing is changed.
        """
        wanted = parse_change(body)

        def make_transition(job: Job) -> Transition | None:
            if job.state.finished:
                raise Conflict(f"{job.name} is {job.state}: nothing about it can be changed any more.")
            priority, held = wanted.get("priority", job.priority), wanted.get("held", job.held)
            if held and not job.held and not job.state.waits:
                raise Conflict(f"{job.name} is {job.state}; only a waiting job can be held. Cancel it, or let it run.")
            if priority != job.priority:
                self._check_ceiling(job, priority)
            if (priority, held) == (job.priority, job.held):
                return None
            return state_machine.change(job, caller, self._clock(), priority=priority, held=held)

        return self._change(name, caller, make_transition)

    def _change(
        self, name: str, caller: str, make_transition: Callable[[Job], Transition | None]
    ) -> tuple[JobRecord, bool]:
        for _ in range(TRIES):
            record = self.record(name)
            self._check_owner(record.job, caller)
            transition = make_transition(record.job)
            if transition is None:
                return record, False
            try:
                self._repository.apply(transition, self._clock())
            except Refused:
                continue
            return self.record(name), True
        raise Unavailable("The job is being changed by many at once; try again.")

    def _check_owner(self, job: Job, caller: str) -> None:
        if caller != job.owner and not self._settings.is_admin(caller):
            raise Forbidden(f"{job.name} belongs to {job.owner}; only its owner or an admin may cancel or change it.")

    def _check_ceiling(self, job: Job, priority: int) -> None:
        project = project_of(self._policies.of(self._repository.policy()).policy, job.project)
        if project is not None:
            check_ceiling(project, priority, field="priority")


def parse_change(body: str) -> dict[str, Any]:
    """The fields of a change.

    :raises InvalidRequest: there is none, or one is wrong.
    """
    wanted = json_object(body, _EXAMPLES)
    if not wanted:
        raise InvalidRequest(f"The body must be a JSON object: {_EXAMPLES}.")
    for field, value in wanted.items():
        if field not in _FIELDS:
            raise InvalidRequest(
                f"{member('', field)} cannot be changed; {' and '.join(_FIELDS)} can.", field=member("", field)
            )
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_PRIORITY
        if not (isinstance(value, bool) if field == "held" else whole):
            raise InvalidRequest(f"{field} must be {_FIELDS[field]}.", field=field)
    return wanted
