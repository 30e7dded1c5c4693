"""The search for victims: preempt, reclaim, or both; no one more than needed (scheduling rules, section 4)."""

from collections.abc import Iterable

from job_queue.scheduler.queues import Queue
from job_queue.scheduler.reclaim import Reclaim
from job_queue.scheduler.search import Claim, Leaver, Search
from job_queue.scheduler.victims import Victims


def withdraw(claim: Claim) -> Search | None:
    """Starts of this same plan, of lower priority in its project."""
    search = Search(claim, {})
    for start in claim.withdrawable:
        if any(search.lacking.get(pool, 0) > 0 for pool in start.slots):
            search.take(start)
    return _settled(search)


def preempt(claim: Claim, victims: Victims) -> Search | None:
    """Lower priorities of its own project, until it has its slots and stands within the limits."""
    search = Search(claim, _limits(claim))
    _take_own(search, victims, claim.need)
    return _settled(search)


def reclaim(claim: Claim, victims: Victims, protect_quota: bool) -> Search | None:
    """Jobs of other projects, by share: the claimant's side must stay within its entitlement afterwards."""
    if any(claim.after(claim.project, pool) > claim.project.entitlement[pool] for pool in claim.need):
        return None
    search = Search(claim, _entitlements(claim))
    Reclaim(search, victims, protect_quota).run()
    return _settled(search)


def preempt_and_reclaim(claim: Claim, victims: Victims, protect_quota: bool) -> Search | None:
    """Own lower priorities until the job is within its entitlement, the rest by reclaim.

    Where that does not suffice, all own lower priorities may go.
    """
    for all_own in (False, True):
        search = Search(claim, _entitlements(claim))
        _take_own(search, victims, claim.need, slots_too=all_own)
        if any(search.above[claim.project, pool] > 0 for pool in claim.need):
            return None
        Reclaim(search, victims, protect_quota).run()
        if search.enough:
            return _settled(search)
    return None


def _settled(search: Search) -> Search | None:
    if not search.enough:
        return None
    search.spare_needless()
    return search


def _limits(claim: Claim) -> dict[tuple[Queue, str], int]:
    return {
        (queue, pool): queue.limit[pool] for queue in claim.project.path for pool in claim.need if pool in queue.limit
    }


def _entitlements(claim: Claim) -> dict[tuple[Queue, str], int]:
    return {(queue, pool): queue.entitlement[pool] for queue in claim.project.path for pool in claim.need}


def _take_own(search: Search, victims: Victims, pools: Iterable[str], *, slots_too: bool = True) -> None:
    """Take lower priorities of its own project, in victim order."""
    claim = search.claim
    queues = claim.project.path if slots_too else (claim.project,)
    for pool in pools:
        for leaver in _own(search, victims, pool) if search.wants(pool, queues) else ():
            if slots_too and not search.wants(pool, queues):
                break
            if not slots_too and search.above[claim.project, pool] <= 0:
                break
            search.take(leaver)


def _own(search: Search, victims: Victims, pool: str) -> Iterable[Leaver]:
    claim = search.claim
    lower: list[Leaver] = []
    for victim in victims.of(claim.project, pool, claim.launching):
        if victim.job.priority >= claim.priority:
            break
        if not search.has(victim):
            lower.append(victim)
    withdrawable = [it for it in claim.withdrawable if pool in it.slots and not search.has(it)]
    return sorted([*lower, *withdrawable], key=lambda leaver: leaver.key) if withdrawable else lower
