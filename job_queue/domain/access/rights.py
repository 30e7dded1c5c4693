"""Decide which caller may do which action of the API, such as submit, cancel or apply a policy.

No other module decides about rights, with one exception: `services.job_commands` does not let former members of a
project release a job or raise its priority. docs/reference/iam.md has the table `ALLOWED` for people, and a test
compares both tables.

IAM decides which callers may call the API. A caller may also be a member or an admin of a job's project, the job's
owner, or an admin of the queue. A caller has the rights of all these relations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from job_queue.domain import identity
from job_queue.domain.errors import Forbidden
from job_queue.scheduler import Project


class Relation(StrEnum):
    """The relation of a caller to a job, to its project, or to the queue."""

    ANYBODY = "anybody"  # every caller whose signed request API Gateway accepts
    MEMBER = "member"  # in the project's list of members, or an admin of the project; without a list, every caller
    OWNER = "owner"  # the owner of the job
    PROJECT_ADMIN = "project admin"  # an admin of the project, according to the policy
    ADMIN = "admin"  # an admin of the queue, according to the stack's parameter AdminArns


class Action(StrEnum):
    """An action of the API that is allowed or denied, including access to the values of a job's request."""

    SUBMIT = "submit"
    PLAN = "plan"
    LIST_JOBS = "list jobs"
    LIST_HISTORY = "list attempts that have ended"
    SHOW_JOB = "show a job"
    SHOW_VALUES = "show a job's values"
    CANCEL = "cancel"
    CHANGE = "change"
    REQUEUE = "requeue"
    ENTER = "enable a shell"
    SHOW_QUEUE = "show the queue"
    SHOW_POLICY = "show the policy"
    SHOW_HISTORY = "show the policy's history"
    APPLY_POLICY = "apply a policy"
    ROLL_BACK = "roll back the policy"
    DRAIN = "drain a pool"
    UNDRAIN = "end a drain"
    PREVIEW = "preview a change"
    WHO_AM_I = "who am I"


_EVERYBODY = frozenset({Relation.ANYBODY})
_MEMBERS = frozenset({Relation.MEMBER})
_RESPONSIBLE = frozenset({Relation.OWNER, Relation.PROJECT_ADMIN, Relation.ADMIN})
_ADMINS = frozenset({Relation.ADMIN})

ALLOWED: Mapping[Action, frozenset[Relation]] = {
    Action.SUBMIT: _MEMBERS,
    Action.PLAN: _MEMBERS,
    Action.LIST_JOBS: _EVERYBODY,
    Action.LIST_HISTORY: _EVERYBODY,
    Action.SHOW_JOB: _EVERYBODY,
    Action.SHOW_VALUES: frozenset({Relation.OWNER, Relation.ADMIN}),
    Action.CANCEL: _RESPONSIBLE,
    Action.CHANGE: _RESPONSIBLE,
    Action.REQUEUE: _RESPONSIBLE,  # also for a hold that stops the attempt at once
    Action.ENTER: _RESPONSIBLE,  # a session also needs ssm:StartSession, which IAM gives
    Action.SHOW_QUEUE: _EVERYBODY,
    Action.SHOW_POLICY: _EVERYBODY,
    Action.SHOW_HISTORY: _EVERYBODY,
    Action.APPLY_POLICY: _ADMINS,
    Action.ROLL_BACK: _ADMINS,
    Action.DRAIN: _ADMINS,
    Action.UNDRAIN: _ADMINS,
    Action.PREVIEW: frozenset({Relation.MEMBER, Relation.ADMIN}),  # a member of any project
    Action.WHO_AM_I: _EVERYBODY,
}
_SET_ADMINS = "Ask the operator of the queue to add you, or a role of yours, to the stack's parameter AdminArns."


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of callers.

    :ivar admins: patterns of the queue's admins; empty if the queue has no admins.
    """

    admins: tuple[str, ...] = ()

    def relations(
        self, caller: str, *, project: Project | None = None, owner: str | None = None
    ) -> frozenset[Relation]:
        """Return all relations of a caller, including the relation that every caller has.

        :param project: the project of the job in question.
        :param owner: the recorded owner of the job in question.
        """
        found = {Relation.ANYBODY}
        if any(identity.matches(pattern, caller) for pattern in self.admins):
            found.add(Relation.ADMIN)
        if owner is not None and identity.acts_for(caller, owner):
            found.add(Relation.OWNER)
        if project is not None and any(identity.matches(pattern, caller) for pattern in project.admins):
            found |= {Relation.PROJECT_ADMIN, Relation.MEMBER}
        if project is not None and is_member(project, caller):
            found.add(Relation.MEMBER)
        return frozenset(found)

    def may(self, action: Action, caller: str, *, project: Project | None = None, owner: str | None = None) -> bool:
        """Return whether a caller may do an action."""
        return bool(ALLOWED[action] & self.relations(caller, project=project, owner=owner))

    def check_everywhere(self, action: Action, caller: str) -> None:
        """Check that a caller may do an action that concerns no job and no project.

        :raises Forbidden: the caller may not.
        """
        if self.may(action, caller):
            return
        if not self.admins:
            raise Forbidden("The queue has no admins, so no caller may do this.", remedy=_SET_ADMINS)
        raise Forbidden("Only an admin (the stack's parameter AdminArns) may do this.", remedy=_SET_ADMINS)

    def check_member(self, caller: str, project: Project, field: str | None) -> None:
        """Check that a caller may submit to a project.

        :param field: the field that names the project.
        :raises Forbidden: the caller may not.
        """
        if not self.may(Action.SUBMIT, caller, project=project):
            raise Forbidden(
                f"{caller} is not a member of the project {project.name}.",
                field=field,
                remedy="Submit the job to a project of yours, or ask an admin to add you to the members in the policy.",
            )

    def check_preview(self, caller: str, projects: Iterable[Project]) -> None:
        """Check that a caller may preview a change.

        Members of any project and admins of the queue may do this. If there is no project, all callers may do this.

        :param projects: projects of the policy in force.
        :raises Forbidden: the caller may not.
        """
        found = list(projects)
        if not found or self.may(Action.PREVIEW, caller):
            return
        if not any(self.may(Action.PREVIEW, caller, project=project) for project in found):
            raise Forbidden(
                f"{caller} is not a member of any project, and only members and admins may preview a change.",
                remedy="Ask an admin to add you to the members of a project in the policy.",
            )


def needs_no_job(action: Action) -> bool:
    """Return whether the right to an action depends on no job and no project."""
    return ALLOWED[action] in (_EVERYBODY, _ADMINS)


def is_member(project: Project, caller: str) -> bool:
    """Return whether a caller may submit to a project. A project without members is open to all callers."""
    named = (*project.members, *project.admins)
    return not project.members or any(identity.matches(pattern, caller) for pattern in named)
