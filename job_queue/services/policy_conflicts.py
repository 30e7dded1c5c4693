"""Find the conflicts of a new policy with live jobs. A policy with conflicts is applied only by force."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import ValidationIssue
from job_queue.domain.job import Job
from job_queue.scheduler import NOTHING, Department, JobState, Policy, Project

NAMES_SHOWN = 5

_Holder = tuple[type[Department | Project], str]
"""A department or a project, and its name."""

_DROPPED = (
    "Let these jobs end or cancel them first; or apply it with force (smq policy apply --force): they then wait, and "
    "say why."
)
_LOWERED = (
    "Keep the quota, or let these jobs end or cancel them first. With force (smq policy apply --force), or with "
    "allow_oversubscription in the policy's settings, they run on, and no other non-preemptible job starts there "
    "until they fit in the quota."
)
_OTHER_BUCKETS = (
    "Keep these regions with their buckets, and only add others; or let these jobs end or cancel them first. With "
    "force (smq policy apply --force), jobs of other owners may use the same folders, and a preempted job does not "
    "find its checkpoints in another bucket."
)

_OTHER_MARKET = (
    "Let these jobs end or cancel them first, or add a further pool. With force (smq policy apply --force), they run "
    "on as they were started. Keep the old role until they have ended; the end of the old training plan ends them for "
    "good, without notice."
)


def conflicts(cluster: ClusterState, policy: Policy) -> Iterator[ValidationIssue]:
    """Yield the conflicts of a policy with live jobs.

    There are three kinds of conflicts:

    - Live jobs need a project or a pool that the policy drops, or a bucket that the policy drops or changes.
    - A pool in use would have another training plan or role.
    - A quota is lowered below the slots of non-preemptible jobs, without `allow_oversubscription`.
    """
    yield from (ValidationIssue("policy", message, _DROPPED) for message in _drops(cluster, policy))
    yield from (ValidationIssue("policy", message, _OTHER_BUCKETS) for message in _other_buckets(cluster, policy))
    yield from (ValidationIssue("policy", message, _OTHER_MARKET) for message in _other_markets(cluster, policy))
    if not policy.settings.allow_oversubscription:
        yield from (ValidationIssue("policy", message, _LOWERED) for message in _lowered(cluster, policy))


def _drops(cluster: ClusterState, policy: Policy) -> Iterator[str]:
    """Yield a message for each project and pool that live jobs need and the policy no longer has."""
    jobs = _live_jobs(cluster)
    projects, pools = {project.name for project in policy.projects}, {pool.name for pool in policy.pools}
    for name in sorted({job.project for job in jobs} - projects):
        yield f"The project {name} still has {_names_of(job.name for job in jobs if job.project == name)}."
    used = {pool for job in jobs for pool in (*job.slots, *job.pools)}
    for name in sorted(used - pools):
        jobs_of_pool = (job.name for job in jobs if name in job.slots or name in job.pools)
        yield f"The pool {name} is still used or named by {_names_of(jobs_of_pool)}."


def _other_buckets(cluster: ClusterState, policy: Policy) -> Iterator[str]:
    """Yield a message for each project with live jobs whose `bucket_by_region` loses or changes a region.

    Claims of live jobs name their folders in only one bucket of this map (`domain/access/places.py`). With another map,
    new claims on the same folders could have other names.
    """
    before = {project.name: project.bucket_by_region for project in cluster.applied.policy.projects}
    jobs = _live_jobs(cluster)
    for project in policy.projects:
        changed = sorted(before.get(project.name, {}).items() - project.bucket_by_region.items())
        live = [job.name for job in jobs if job.project == project.name]
        if changed and live:
            regions = ", ".join(region for region, _ in changed)
            yield (
                f"bucket_by_region of {project.name} would lose or change the bucket of {regions}, and the folders of "
                f"{_names_of(live)} may be in it."
            )


def _other_markets(cluster: ClusterState, policy: Policy) -> Iterator[str]:
    """Yield a message for each pool with active jobs whose training plan or role changes."""
    before = {pool.name: pool for pool in cluster.applied.policy.pools}
    for pool in policy.pools:
        known = before.get(pool.name, pool)
        active = [job.name for job in cluster.active.values() if pool.name in job.slots]
        for field, old, new in (
            ("training_plan", known.training_plan, pool.training_plan),
            ("role", known.role, pool.role),
        ):
            if active and old is not None and old != new:
                yield f"The {field} of the pool {pool.name} would change, and {_names_of(active)} were started with it."


def _lowered(cluster: ClusterState, policy: Policy) -> Iterator[str]:
    """Yield a message for each quota that falls below the slots of running non-preemptible jobs.

    A pool or a project that the policy drops does not count as a lowered quota. Jobs count for the department to which
    their project belongs in the new policy.
    """
    departments = {project.name: project.department for project in policy.projects}
    members = _members(cluster)
    held_by: dict[_Holder, list[Job]] = defaultdict(list)
    for job in _non_preemptible(cluster, members):
        held_by[Project, job.project].append(job)
        if (department := departments.get(job.project)) is not None:
            held_by[Department, department].append(job)
    before = {(type(part), part.name): part.quota for part in _quota_holders(cluster.applied.policy)}
    for part in _quota_holders(policy):
        holder = type(part), part.name
        for pool in (pool.name for pool in policy.pools if holder in held_by):
            old, new = before.get(holder, NOTHING).get(pool, 0), part.quota.get(pool, 0)
            holding = [job for job in held_by[holder] if pool in job.slots] if new < old else []
            held = sum(job.slots[pool] for job in holding)
            if new < held:
                kind = "department" if isinstance(part, Department) else "project"
                names = _names_of(name for job in holding for name in members.get(job.name, [job.name]))
                yield (
                    f"The quota of the {kind} {part.name} would fall from {old} to {new} {pool}, and its running "
                    f"non-preemptible jobs hold {held}: {names}."
                )


def _quota_holders(policy: Policy) -> tuple[Department | Project, ...]:
    return (*policy.departments, *policy.projects)


def _members(cluster: ClusterState) -> Mapping[str, list[str]]:
    """Return the names of each carrier's members that are not stopping."""
    members: dict[str, list[str]] = defaultdict(list)
    for job in cluster.active.values():
        if job.allocation is not None and job.state is not JobState.STOPPING:
            members[job.allocation.carrier].append(job.name)
    return members


def _non_preemptible(cluster: ClusterState, members: Mapping[str, list[str]]) -> Iterator[Job]:
    """Yield the jobs that hold slots and may not be stopped, including carriers.

    Stopping jobs are left out, because their slots become free. Carriers without members are left out, because their
    slots count as free.
    """
    for job in cluster.active.values():
        stays = job.state is not JobState.STOPPING and (job.carries is None or job.name in members)
        if stays and not job.may_be_preempted:
            yield job


def _live_jobs(cluster: ClusterState) -> list[Job]:
    return [*cluster.active.values(), *cluster.waiting.values()]


def _names_of(jobs: Iterable[str]) -> str:
    names = sorted(jobs)
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else shown
