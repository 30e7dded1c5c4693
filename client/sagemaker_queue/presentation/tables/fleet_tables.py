"""Tables of the fleet: the pools, and the departments and projects that share the pools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api_contract.models import (
    DepartmentStatus,
    DrainAnswer,
    ExternalJob,
    Pause,
    PoolDrain,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
)
from sagemaker_queue.jobs.formatting import age, amount, moment, short_owner

_FIGURES = ["Capacity", "Used", "External", "Free", "Stopping"]
_MARKETS = {"spot": "spot", "training_plan": "training plan"}
_MARKET_HEADERS = ["Pool", "Market", "Training Plan", "Starts (UTC)", "Taken Back (UTC)"]
_DRAIN_HEADERS = ["Pool", "Drained From (UTC)", "By", "Stops", "Reason"]
_EXTERNAL_HEADERS = ["Training Job", "Pool", "Instances", "Seen For"]
_PAUSE_HEADERS = ["Pool", "Instances", "Refusals", "Last Refusal", "Next Try (UTC)"]
SHARE_HEADERS = ["Project", "Pool", "Quota", "Share", "Used", "Limit", "Waiting"]


_NO_POLICY = "No policy is applied, so all jobs share one pool (smq policy show)"


@dataclass(frozen=True)
class Part:
    """A title or sentence, which may be empty, and optionally a table."""

    title: str
    headers: list[str] | None = None
    rows: tuple[list[object], ...] = ()


def status_parts(status: QueueStatus) -> Iterator[Part]:
    """Yield the parts of ``smq status``: the headline, then the pools.

    After the pools come drains, markets, shared and warm instances. Departments and projects with their slots in each
    pool follow, then backoffs, then external jobs.
    """
    yield Part(headline(status))
    if status.pools:
        yield Part("", pool_headers(status), tuple(pool_row(pool, status) for pool in status.pools))
    if drains := [_drain_row(pool) for pool in status.pools if pool.drain]:
        yield Part("Drained: no job starts there until smq undrain", _DRAIN_HEADERS, tuple(drains))
    if markets := [_market_row(pool) for pool in status.pools if pool.market in _MARKETS]:
        yield Part("Not bought on demand", _MARKET_HEADERS, tuple(markets))
    if shared := shared_gpus(status):
        yield Part(shared)
    if warm := [f"{pool.warm} of {pool.name}" for pool in status.pools if pool.warm]:
        yield Part(f"Kept warm for jobs that match: {', '.join(warm)}")
    if rows := [row for path, sharer in departments_and_projects(status) for row in share_rows(path, sharer, status)]:
        yield Part("", SHARE_HEADERS, tuple(rows))
    other_reasons = [pause for pause in status.pauses if pause.at_fault or pause.unreachable or pause.quota_lag]
    if lacking := [_pause_row(pause) for pause in status.pauses if pause not in other_reasons]:
        yield Part("Backing off: SageMaker had no instances", _PAUSE_HEADERS, tuple(lacking))
    for pause in other_reasons:
        tried = f"the next job is tried at {moment(pause.until)} UTC"
        if pause.at_fault:
            sentence = f"Pool {pause.pool} backs off: check its settings in the policy; {tried}."
            yield Part(f"{sentence}\nSageMaker: {pause.at_fault}")
        elif pause.unreachable:
            yield Part(f"Pool {pause.pool} backs off: its region or account does not respond; {tried}.")
        else:
            yield Part(
                f"Pool {_paused_pool(pause)} waits for the quota of jobs that have ended; {tried}.\n{pause.quota_lag}"
            )
    if status.external:
        outside = [row for job in status.external for row in _external_rows(job)]
        yield Part("Started outside the queue", _EXTERNAL_HEADERS, tuple(outside))


def shared_gpus(status: QueueStatus) -> str | None:
    """Return a sentence about the GPUs in use on shared instances; None if no pool has shared instances."""
    pools = [f"{pool.gpus_used:g} of {pool.gpus} in {pool.name}" for pool in status.pools if pool.gpus is not None]
    return f"GPUs in use where instances are shared: {', '.join(pools)}" if pools else None


def headline(status: QueueStatus) -> str:
    """Return a sentence about the policy in force and the number of jobs."""
    waiting = at_least(len(status.waiting), more=status.more_waiting)
    active = sum(job.carries is None for job in status.active)  # carriers are the queue's own jobs
    jobs = f"{at_least(active, more=True)} jobs" if status.more_active else amount(active, "job")
    jobs = f"{jobs} active, {waiting} waiting."
    if status.policy_version is None:
        return jobs
    policy = f"Policy version {status.policy_version}" if status.policy_version else _NO_POLICY
    return f"{policy}; {jobs}"


def pool_headers(status: QueueStatus) -> list[str]:
    """Return the headers of the table of pools.

    The column Region is present only if a pool is in another region than the queue; the same applies to Account.
    """
    sites = [title for title, has in zip(("Region", "Account"), _sites(status)) if has]
    return ["Pool", "Instance Type", *sites, *_FIGURES]


def pool_row(pool: PoolStatus, status: QueueStatus) -> list[object]:
    """Return the pool's row below ``pool_headers``."""
    sites = [value for value, has in zip((pool.region, pool.account), _sites(status)) if has]
    figures = [pool.capacity, pool.used, pool.external, pool.free, pool.stopping]
    return [pool.name, pool.instance_type or "any", *sites, *figures]


def _sites(status: QueueStatus) -> tuple[bool, bool]:
    """Return whether any pool is in another region than the queue, and whether any pool is in another account."""
    return any(pool.region for pool in status.pools), any(pool.account for pool in status.pools)


def site_text(region: str | None, account: str | None) -> str:
    """Return a region and an account as text for users. None stands for the queue's own, and is left out."""
    return ", ".join(part for part in (region, account and f"account {account}") if part)


def drain_text(drain: PoolDrain) -> str:
    """Return a clause about a drain: its start, the user who drained the pool, and the reason."""
    since = "drained since" if drain.in_force else "drained from"
    why = f": {drain.reason}" if drain.reason else ""
    return f"{since} {moment(drain.at)} UTC by {short_owner(drain.by)}{why}"


def drain_sentence(answer: DrainAnswer) -> str:
    """Return a sentence about a drain: its start if later than now, and how many jobs stop or run to their ends."""
    drain = answer.drain
    now = drain is None or drain.in_force
    begins = f"{answer.pool} is drained"
    if drain is not None and not now:
        begins += f" from {moment(drain.at)} UTC on"
    return f"{begins}: {', '.join(drain_effects(answer.stopping, answer.staying, now=now)) or 'no job runs there'}"


def drain_effects(stopping: int, staying: int, *, now: bool) -> list[str]:
    """Return a clause about the jobs that a drain stops, and a clause about the jobs that run to their ends.

    A clause about 0 jobs is left out. ``now``: the drain is in force; otherwise the jobs are stopped later.
    """
    effects = []
    if stopping:
        is_one, when = stopping == 1, "" if now else "at that time "
        verbs = ("is", "waits") if is_one else ("are", "wait")
        effects.append(f"{amount(stopping, 'job')} {verbs[0]} {when}stopped and {verbs[1]} again")
    if staying:
        effects.append(f"{amount(staying, 'job')} {'runs to its end' if staying == 1 else 'run to their ends'}")
    return effects


def undrain_sentence(answer: DrainAnswer) -> str:
    """Return the result of a request to end the drain of a pool."""
    if answer.was_drained:
        return f"{answer.pool} is no longer drained: jobs start there again"
    return f"{answer.pool} is not drained; nothing is changed"


def _drain_row(pool: PoolStatus) -> list[object]:
    """Return the pool's row below ``_DRAIN_HEADERS``."""
    drain = pool.drain
    assert drain is not None
    return [pool.name, moment(drain.at), short_owner(drain.by), f"{drain.stops} jobs", drain.reason]


def _market_row(pool: PoolStatus) -> list[object]:
    """Return the pool's row below ``_MARKET_HEADERS``; only a training plan has times."""
    times = [moment(time) if time else "not known yet" for time in (pool.opens, pool.closes)]
    return [pool.name, _MARKETS[pool.market], pool.training_plan, *(times if pool.training_plan else (None, None))]


def _paused_pool(pause: Pause) -> str:
    """Return the name of the pool that backs off, followed by the instance type if the pool allows any type."""
    return f"{pause.pool} ({pause.instance_type})" if pause.instance_type else pause.pool


def _pause_row(pause: Pause) -> list[object]:
    last = f"{age(pause.last_refusal)} ago" if pause.last_refusal else None
    return [_paused_pool(pause), f"{pause.instances} or more", pause.refusals, last, moment(pause.until)]


def _external_rows(job: ExternalJob) -> Iterator[list[object]]:
    """Yield a row for each pool of an external job; only the first row has name and time."""
    site = site_text(job.region, job.account)
    stray = " (left over by the queue, being stopped)" if job.stopping else ""
    stray = " (has the queue's tags, but the queue did not launch it)" if job.forged else stray
    for index, (pool, count) in enumerate(job.slots.items() or [(None, None)]):
        name, seen = (
            (f"{job.training_job_name}{f' in {site}' if site else ''}{stray}", age(job.since))
            if index == 0
            else (None, None)
        )
        yield [name, pool, count, seen]


def departments_and_projects(status: QueueStatus) -> Iterator[tuple[str, DepartmentStatus]]:
    """Yield each department followed by its projects, then projects without a department; each as title and status."""
    departments = {department.name for department in status.departments}
    for department in status.departments:
        yield f"{department.name} (department)", department
        yield from ((_path(project), project) for project in status.projects if project.department == department.name)
    yield from ((_path(project), project) for project in status.projects if project.department not in departments)


def _path(project: ProjectStatus) -> str:
    return f"{project.department}/{project.name}" if project.department else project.name


def share_rows(path: str, sharer: DepartmentStatus, status: QueueStatus) -> Iterator[list[object]]:
    """Yield a row for each pool in which the department or project has a limit, or a figure other than 0.

    Without such a pool, yield one row without figures. Only the first row has the name and the number of waiting jobs.
    """
    order = {pool.name: rank for rank, pool in enumerate(status.pools)}
    known = {
        pool
        for slots in (sharer.quota, sharer.share, sharer.used, sharer.limit)
        for pool, count in slots.items()
        if count
    }
    known |= sharer.limit.keys()  # a limit of 0 is also shown
    pools = sorted(known, key=lambda pool: (order.get(pool, len(order)), pool))
    for index, pool in enumerate(pools or [None]):
        name, waiting = (path, at_least(sharer.waiting, more=sharer.more_waiting)) if index == 0 else (None, None)
        figures = [slots.get(pool, 0) if pool else None for slots in (sharer.quota, sharer.share, sharer.used)]
        yield [name, pool, *figures, sharer.limit.get(pool) if pool else None, waiting]


def at_least(count: int, *, more: bool) -> int | str:
    """Return the number, or with ``more`` a text such as 100+."""
    return f"{count}+" if more else count
