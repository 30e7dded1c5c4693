"""Describe the submissions that the policy in force accepts and another policy would refuse."""

from collections.abc import Iterator

from job_queue.scheduler import DEFAULT, Policy, Project, join


def refused_submissions(before: Policy, after: Policy) -> Iterator[str]:
    """Yield a sentence for each kind of submission that only the new policy would refuse.

    :param before: the policy in force.
    :param after: the new policy.
    """
    projects = {project.name: project for project in after.projects}
    for project in before.projects:
        if project.name not in projects:
            yield f"New submissions to the project {project.name} would be refused."
    if _needs_project(after) and not _needs_project(before):
        yield (
            "New submissions that name no project would be refused (tag project, smq submit --project), except from "
            "users who are members of only one project."
            if any(project.members for project in after.projects)
            else "New submissions that name no project would be refused (tag project, smq submit --project)."
        )
    kept = {pool.name for pool in after.pools}
    for pool in before.pools:
        if pool.name not in kept:
            yield f"New submissions that name the pool {pool.name} (tag pools) would be refused."
    general = _refused_types(_types(before, None), _types(after, None))
    if general:
        yield f"New submissions with {general} would be refused."
    for project in before.projects:
        if (new_project := projects.get(project.name)) is not None:
            of_project = _refused_types(_types(before, project), _types(after, new_project))
            if of_project and of_project != general:
                yield f"New submissions to the project {project.name} with {of_project} would be refused."


def _needs_project(policy: Policy) -> bool:
    """Return whether a submission must name a project, unless its user is a member of only one project."""
    return len(policy.projects) > 1 and all(project.name != DEFAULT for project in policy.projects)


def _types(policy: Policy, project: Project | None) -> tuple[str, ...] | None:
    """Return the instance types that a project may use; None if every type may be used.

    :param project: None: the types that the pools of the policy have together.
    """
    names = project.pools_for(interactive=False) if project else ()
    pools = [pool for pool in policy.pools if not names or pool.name in names]
    types = [pool.instance_type for pool in pools]
    return None if None in types else tuple(dict.fromkeys(name for name in types if name is not None))


def _refused_types(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> str:
    """Return the instance types that only the new policy refuses, as text; empty if there are none."""
    if after is None:
        return ""
    if before is None:
        return f"an instance type other than {join(after)}" if after else "any instance type"
    gone = [name for name in before if name not in after]
    return f"the instance type{'s' if len(gone) > 1 else ''} {join(gone)}" if gone else ""
