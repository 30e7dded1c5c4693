"""The resources that the jobs of a project may use: execution roles, buckets, training plans.

The policy gives roles and buckets to a project. A project without roles may use all roles, and a project without
buckets may use all buckets. Training plans are used only through the pools of the policy. The permissions of a role are
not checked. So a container can read all buckets that its role may read, even if the policy does not allow them.
"""

from collections.abc import Iterator

from job_queue.domain.access.patterns import matches_pattern
from job_queue.domain.access.places import bucket_and_key
from job_queue.domain.errors import Forbidden, ValidationIssue
from job_queue.domain.fleet.sites import Site
from job_queue.domain.requests.portability import ADDRESSES, role_there
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import Policy, Project

_PLANS = frozenset({"TrainingPlanArn", "TrainingPlanArns"})
_SHOWN = 10
_S3 = "s3://"


def check_resources(request: TrainingRequest, project: Project, policy: Policy, *, interactive: bool) -> None:
    """Check that a project's job may use the resources in its request.

    :param interactive: whether the job is interactive, since such jobs may have other pools.
    :raises Forbidden: the job may not use a resource; the error names the field of each such resource.
    """
    issues = [
        *_role(request, project),
        *_buckets(request, project),
        *_folder_of_its_own(request, policy),
        *_plans(request, project, policy, interactive=interactive),
    ]
    if issues:
        raise Forbidden.of(issues)


def bucket_issue(pattern: str) -> str | None:
    """Return why an entry of a project's buckets cannot match a bucket, or None if the entry is valid."""
    if pattern.startswith(_S3):
        return "begins with s3://: give the bucket's name, and what follows it"
    parts = pattern.split("/")
    if not all(parts) or "*" in parts[0] and not parts[0].strip("*"):
        return "names no bucket: it is a name, or a name and folders (data, team-*, shared/vision)"
    return None


def role_issue(pattern: str) -> str | None:
    """Return why an entry of a project's roles cannot match a role, or None if the entry is valid."""
    parts = pattern.split(":", 5)
    if len(parts) < 6 or parts[0] != "arn" or parts[2:4] != ["iam", ""] or not parts[5].startswith("role/"):
        return "is not the ARN of a role, such as arn:aws:iam::111122223333:role/vision-*"
    return None


def why_no_role_there(role: str | None, site: Site, project: Project) -> str | None:
    """Return why a job may not use the role of the same name in a site's account, as a clause; None if it may.

    :param role: ARN of the job's role at home; None: it is not known.
    """
    if not project.roles or site.account is None:
        return None
    if role is None:
        return "it was submitted before the queue checked roles of other accounts"
    there = role_there(role, site)
    if any(matches_pattern(pattern, there) for pattern in project.roles):
        return None
    return f"its role there, {there}, is not among the roles of project {project.name}"


def unpermitted_counterpart(project: Project) -> tuple[str, str] | None:
    """Return an entry of a project's `buckets`, and its counterpart in another region that no entry permits.

    The jobs of a project use the same addresses in each bucket of `bucket_by_region`. Return None if the entries permit
    all counterparts.
    """
    for entry in project.buckets:
        name, *folders = entry.split("/", 1)
        own = project.bucket_by_region.values()
        for counterpart in own if any(matches_pattern(name, bucket) for bucket in own) else ():
            there = "/".join([counterpart, *folders])
            if not any(_lies_in(f"{_S3}{there}", other) for other in project.buckets):
                return entry, there
    return None


def _role(request: TrainingRequest, project: Project) -> Iterator[ValidationIssue]:
    if project.roles and not any(matches_pattern(pattern, request.role) for pattern in project.roles):
        yield ValidationIssue(
            "RoleArn",
            f"Jobs of the project {project.name} may not run under the role {request.role}.",
            f"Use a role of the project ({_listed(project.roles)}), or have this one added to its roles in the policy.",
        )


def _buckets(request: TrainingRequest, project: Project) -> Iterator[ValidationIssue]:
    if not project.buckets:
        return
    for field, address in request.texts_under(ADDRESSES):
        if not any(_lies_in(address, entry) for entry in project.buckets):
            yield ValidationIssue(
                field,
                f"Jobs of the project {project.name} may not use {address}.",
                f"Use an address in {_listed(project.buckets)}, or have this one's bucket added to the project's "
                "buckets in the policy.",
            )


def _folder_of_its_own(request: TrainingRequest, policy: Policy) -> Iterator[ValidationIssue]:
    """Reject checkpoints in a folder for many jobs: the job's claim would include everything in that folder."""
    if request.checkpoints is None:
        return
    own = [part for part in "/".join(bucket_and_key(request.checkpoints)).split("/") if part]
    for_many = (_without_wildcards(entry) for project in policy.projects for entry in project.buckets)
    if len(own) == 1 or any(len(entry) >= len(own) and all(map(matches_pattern, entry, own)) for entry in for_many):
        yield ValidationIssue(
            "CheckpointConfig.S3Uri",
            f"{request.checkpoints} is a whole bucket, or a folder for all jobs of a project, so no other job could "
            "write there.",
            "Use a separate folder in it for the checkpoints of this job.",
        )


def _without_wildcards(entry: str) -> list[str]:
    """Return the parts of an entry without `*` at its end. Each folder that `data/*` permits may belong to one job."""
    parts = entry.split("/")
    while len(parts) > 1 and not parts[-1].strip("*"):
        parts.pop()
    return parts


def _plans(
    request: TrainingRequest, project: Project, policy: Policy, *, interactive: bool
) -> Iterator[ValidationIssue]:
    """Reject training plans that no pool of the project has for jobs like this one."""
    mine = project.pools_for(interactive=interactive) or tuple(pool.name for pool in policy.pools)
    plans = {pool.training_plan for pool in policy.pools if pool.name in mine and pool.training_plan}
    for field, plan in request.texts_under(_PLANS):
        if plan not in plans:
            yield ValidationIssue(
                field,
                f"The training plan {plan} is in no pool that jobs of the project {project.name} may use.",
                "Leave it out, and name a pool by the tag `pools`; or have a pool with this plan put into the policy.",
            )


def _lies_in(address: str, entry: str) -> bool:
    """Return whether an address is inside the bucket or the folders that an entry names.

    An address whose key begins with a slash is inside a folder without a name, which no entry with folders matches.
    """
    own, parts = entry.split("/"), "/".join(bucket_and_key(address)).split("/")
    if len(own) > 1 and address.partition("://")[2].partition("/")[2].startswith("/"):
        return False
    return len(parts) >= len(own) and all(map(matches_pattern, own, parts))


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
