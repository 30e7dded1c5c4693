"""Read the tags that schedule a job (project, priority, pools, after, ...), and check them against the policy."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from job_queue.domain.access.rights import Rights, is_member
from job_queue.domain.carriers.members import accepted_gpus
from job_queue.domain.errors import Forbidden, InvalidRequest
from job_queue.domain.failures import DEFAULT_RETRIES, NamedRule, RuleError, asks_for_retries, rules_of_tag
from job_queue.domain.names import is_name
from job_queue.domain.policy import project_of
from job_queue.domain.policy_validation import listing
from job_queue.domain.requests.deadline_tags import Deadlines, deadlines_of
from job_queue.domain.requests.training_request import Resources, TagValue, TrainingRequest
from job_queue.scheduler import DEFAULT, MAX_PRIORITY, MOST_PREEMPTIONS, OnHang, Policy, Project

MAX_RETRIES = 10
MOST_PARALLEL = 10_000
MOST_DEPENDENCIES = 10
MOST_SIZES = 8
_OUTCOMES = ("", "ok", "any")
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class After:
    """A job that the tag `after` names."""

    job: str
    any_outcome: bool
    field: str  # field of the request with the tag


@dataclass(frozen=True, slots=True)
class SchedulingOptions:
    """The scheduling options of a job."""

    project: str
    group: str | None = None  # value of the tag `group`
    max_parallel: int | None = None  # jobs of the same owner, project and group that may be active at a time
    priority: int = 0
    preemptible: bool = True
    interactive: bool = False
    pools: tuple[str, ...] = ()
    on_hang: str | None = None  # action when the job hangs; None: the policy's
    retries: int = 0  # allowed retries after failures of the job itself
    sizes: tuple[int, ...] = ()  # accepted numbers of instances, best first; empty: only the request's number
    gpus: int | None = None  # tenths of GPUs of a shared instance; None: whole instances
    max_preemptions: int | None = None  # preemptions after which the job is planned as not preemptible
    deadlines: Deadlines = Deadlines()


def scheduling_options(request: TrainingRequest, owner: str, policy: Policy) -> SchedulingOptions:
    """Read the tags with scheduling options, and check them against the policy.

    :raises InvalidRequest: a tag is wrong. The error names the field.
    :raises Forbidden: the policy forbids an option.
    """
    tags = request.tag_values
    project = _project(tags.get("project"), owner, policy)
    group = tags["group"].text or None if "group" in tags else None
    priority = _priority(tags["priority"]) if "priority" in tags else 0
    check_ceiling(project, priority, field=tags["priority"].field if "priority" in tags else None)
    interactive = _truth("interactive", tags["interactive"]) if "interactive" in tags else False
    if interactive and "gpus" in tags:
        raise InvalidRequest(
            "An interactive job needs whole instances, and the tag gpus requests a part of a shared instance, where a "
            "shell would also open the other jobs.",
            field=tags["interactive"].field,
            remedy="Leave out the tag gpus, and name a small instance type if one GPU is enough; or leave out the tag "
            "interactive.",
        )
    max_preemptions = _max_preemptions(tags["max_preemptions"]) if "max_preemptions" in tags else None
    preemptible = _preemptible(tags.get("preemptible"), interactive=interactive)
    return SchedulingOptions(
        project=project.name,
        group=group,
        max_parallel=_max_parallel(tags["max_parallel"], group) if "max_parallel" in tags else None,
        priority=priority,
        preemptible=preemptible and max_preemptions != 0,  # a job that is never preempted needs quota
        interactive=interactive,
        pools=_pools(tags["pools"], project, policy, interactive=interactive) if "pools" in tags else (),
        on_hang=_on_hang(tags["on_hang"], interactive=interactive) if "on_hang" in tags else None,
        retries=_allowed_retries(tags),
        sizes=accepted_sizes(request),
        gpus=accepted_gpus(request),
        max_preemptions=max_preemptions,
        deadlines=deadlines_of(tags),
    )


def named_dependencies(request: TrainingRequest) -> tuple[After, ...]:
    """Return the jobs that the tag `after` names, separated by spaces, commas or plus signs: `prepare train-1:any`.

    :raises InvalidRequest: the tag is wrong. The error names the field.
    """
    tag = request.tag_values.get("after")
    return _after(tag, request.name) if tag else ()


def accepted_sizes(request: TrainingRequest) -> tuple[int, ...]:
    """Return the numbers of instances that the tag `instances` names, best first: `8 4 2`; empty without the tag.

    The first number must be the request's own number, so that no job gets more instances than its request says.

    :raises InvalidRequest: the tag is wrong, or the request does not allow such a number. The error names the field.
    """
    tag = request.tag_values.get("instances")
    return _sizes(tag, request.resources) if tag else ()


def _priority(tag: TagValue) -> int:
    """Return the priority in a tag.

    :raises InvalidRequest: the text is not a whole number, or the number is too large.
    """
    if not _INTEGER.fullmatch(tag.text.strip()) or abs(int(tag.text)) > MAX_PRIORITY:
        raise InvalidRequest(
            f"A priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, not {tag.text!r}.",
            field=tag.field,
            remedy="Name such a number. Jobs with a higher number start sooner.",
        )
    return int(tag.text)


def check_ceiling(project: Project, priority: int, field: str | None) -> None:
    """Check that a priority is not above the project's priority ceiling.

    :raises Forbidden: the priority is above the ceiling.
    """
    if project.priority_ceiling is not None and priority > project.priority_ceiling:
        raise Forbidden(
            f"Jobs of the project {project.name} may have a priority of at most {project.priority_ceiling}, "
            f"not {priority}.",
            field=field,
        )


def _project(tag: TagValue | None, owner: str, policy: Policy) -> Project:
    if tag is not None:
        project = project_of(policy, tag.text)
        if project is None:
            known = [project.name for project in policy.projects]
            close = get_close_matches(tag.text, known, n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise InvalidRequest(
                f"No project {tag.text!r}.", field=tag.field, remedy=f"{hint}Projects: {listing(known)}."
            )
        Rights().check_member(owner, project, tag.field)
        return project
    if (project := project_of(policy, DEFAULT)) and is_member(project, owner):
        return project
    mine = [project for project in policy.projects if is_member(project, owner)]
    if len(mine) == 1:
        return mine[0]
    if not mine:
        raise Forbidden(
            f"{owner} is a member of no project.",
            field="Tags",
            remedy="Ask an admin to add you to the members of a project in the policy.",
        )
    raise InvalidRequest(
        "The job names no project.",
        field="Tags",
        remedy=f"Name one by a tag `project`. Projects: {listing([project.name for project in mine])}.",
    )


def _preemptible(tag: TagValue | None, *, interactive: bool) -> bool:
    if tag is None:
        return not interactive
    preemptible = _truth("preemptible", tag)
    if preemptible and interactive:
        raise InvalidRequest(
            "The job has both tags, interactive=true and preemptible=true; an interactive job is never stopped to make "
            "room.",
            field=tag.field,
            remedy="Leave out one of them: without the tag interactive, the job may be stopped to make room.",
        )
    return preemptible


def _truth(key: str, tag: TagValue) -> bool:
    word = tag.text.strip().lower()
    if word not in _TRUTH:
        raise InvalidRequest(f"The tag {key} must be true or false, not {tag.text!r}.", field=tag.field)
    return _TRUTH[word]


def _on_hang(tag: TagValue, *, interactive: bool) -> str:
    word = tag.text.strip().lower()
    if word not in set(OnHang):
        raise InvalidRequest(
            f"The tag on_hang must be {' or '.join(OnHang)}, not {tag.text!r}: the action when the job hangs.",
            field=tag.field,
        )
    if interactive and word == OnHang.REQUEUE:
        raise InvalidRequest(
            "The job has both tags, interactive=true and on_hang=requeue; an interactive job is idle while no "
            "user types, and is never stopped for that.",
            field=tag.field,
            remedy="Leave out one of them.",
        )
    return word


def _retries(tag: TagValue) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", tag.text.strip(), re.ASCII) or int(tag.text) > MAX_RETRIES:
        raise InvalidRequest(
            f"The tag retries must be a whole number from 0 to {MAX_RETRIES}, not {tag.text!r}: the number of retries "
            "after failures of the job itself.",
            field=tag.field,
        )
    return int(tag.text)


def _max_preemptions(tag: TagValue) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", tag.text.strip(), re.ASCII) or int(tag.text) > MOST_PREEMPTIONS:
        raise InvalidRequest(
            f"The tag max_preemptions must be a whole number from 0 to {MOST_PREEMPTIONS:,}, not {tag.text!r}: how "
            "often the job may be stopped to make room.",
            field=tag.field,
        )
    return int(tag.text)


def _allowed_retries(tags: Mapping[str, TagValue]) -> int:
    """Return the retries in the tag `retries`, else the default of a tag `retry_on` that asks for retries, else 0."""
    rules = _retry_rules(tags["retry_on"]) if "retry_on" in tags else ()
    if "retries" in tags:
        return _retries(tags["retries"])
    return DEFAULT_RETRIES if asks_for_retries(rules) else 0


def _retry_rules(tag: TagValue) -> tuple[NamedRule, ...]:
    try:
        return rules_of_tag(tag.text)
    except RuleError as error:
        raise InvalidRequest(str(error), field=tag.field, remedy=error.remedy) from None


def _max_parallel(tag: TagValue, group: str | None) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", tag.text.strip(), re.ASCII) or not 1 <= int(tag.text) <= MOST_PARALLEL:
        raise InvalidRequest(
            f"The tag max_parallel must be a whole number from 1 to {MOST_PARALLEL:,}, not {tag.text!r}: how many jobs "
            "of the job's group may be active at a time.",
            field=tag.field,
        )
    if group is None:
        raise InvalidRequest(
            "The tag max_parallel says how many jobs of a group may be active at a time, and the job has no group.",
            field=tag.field,
            remedy="Give all jobs that are meant the same tag `group`.",
        )
    return int(tag.text)


def _after(tag: TagValue, own_name: str) -> tuple[After, ...]:
    found: dict[str, After] = {}
    for word in re.split(r"[\s,+]+", tag.text.strip()):
        job, colon, outcome = word.partition(":")
        if not is_name(job) or outcome not in _OUTCOMES or (colon and not outcome):
            raise InvalidRequest(
                f"The tag after must name jobs that this one is to run after, not {word!r}: such as prepare, or "
                "prepare:any for one that need not complete.",
                field=tag.field,
            )
        if job == own_name:
            raise InvalidRequest(f"{job} cannot wait for itself.", field=tag.field)
        if job in found and found[job].any_outcome != (outcome == "any"):
            raise InvalidRequest(f"The tag after names {job} twice, once with :any.", field=tag.field)
        found[job] = After(job, outcome == "any", tag.field)
    if len(found) > MOST_DEPENDENCIES:
        raise InvalidRequest(
            f"The tag after names {len(found)} jobs; it may name {MOST_DEPENDENCIES}.",
            field=tag.field,
            remedy="Let a job in between wait for some of them.",
        )
    return tuple(found.values())


def _sizes(tag: TagValue, resources: Resources) -> tuple[int, ...]:
    words = re.split(r"[\s,+]+", tag.text.strip())
    if not all(re.fullmatch(r"[0-9]{1,9}", word, re.ASCII) and int(word) for word in words):
        raise InvalidRequest(
            f"The tag instances must name numbers of instances that the job accepts, the best first, not {tag.text!r}: "
            "such as 8 4 2.",
            field=tag.field,
        )
    sizes = tuple(map(int, words))
    if len(sizes) > MOST_SIZES:
        raise InvalidRequest(
            f"The tag instances names {len(sizes)} numbers; it may name {MOST_SIZES}.",
            field=tag.field,
            remedy="Leave out sizes that are close to other sizes.",
        )
    for larger, smaller in pairwise(sizes):
        if larger <= smaller:
            wrong = f"names {larger} twice" if larger == smaller else f"names {smaller} after {larger}"
            raise InvalidRequest(
                f"The tag instances {wrong}. Its numbers must fall, as more instances are better.", field=tag.field
            )
    _check_resizable(tag.field, sizes, resources)
    return sizes


def _check_resizable(field: str, sizes: tuple[int, ...], resources: Resources) -> None:
    """Check that the request allows other numbers of instances, and that its own number is the first of the sizes.

    :raises InvalidRequest: the request allows no other number, or has another number than the first.
    """
    counted = any(choice.instance_count is not None for choice in resources.preferences)
    why = next(
        why
        for applies, why in (
            (resources.instance_groups, "each of its InstanceGroups has a number of its own"),
            (counted, "its InstancePreferences say already how many instances it accepts of each type"),
            (resources.instance_placement_config, "its InstancePlacementConfig says where each of its instances is"),
            (True, None),
        )
        if applies
    )
    if why is not None:
        raise InvalidRequest(
            f"The tag instances names numbers of instances, and the job cannot have another number: {why}.",
            field=field,
            remedy="Leave out the tag, or ask for one instance type and a number of instances.",
        )
    if (asked := resources.instance_count) != sizes[0]:
        raise InvalidRequest(
            f"The tag instances begins with {sizes[0]}, and the request's InstanceCount is {asked}: the number that is "
            "best must be the same in both.",
            field=field,
            remedy=f"Set InstanceCount (an estimator's instance_count) to {sizes[0]}, or change the tag.",
        )


def _pools(tag: TagValue, project: Project, policy: Policy, *, interactive: bool) -> tuple[str, ...]:
    """Return the pools that the tag names.

    Commas, spaces or plus signs separate the names, because some services allow no commas in tags.
    """
    names = tuple(dict.fromkeys(re.split(r"[\s,+]+", tag.text.strip())))
    allowed = project.pools_for(interactive=interactive) or tuple(pool.name for pool in policy.pools)
    for name in names:
        if name not in allowed:
            raise InvalidRequest(
                f"{'Interactive jobs' if interactive else 'Jobs'} of the project {project.name} cannot run in a pool "
                f"{name!r}; they can in {listing(allowed)}.",
                field=tag.field,
            )
    return names
