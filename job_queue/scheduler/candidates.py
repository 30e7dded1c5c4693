"""Find the waiting jobs that may start, the reasons why others may not, and the slots that each project requests."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any, Protocol

from job_queue.scheduler.documents.policy_schema import Backfill, Pool
from job_queue.scheduler.fair_share import ShareNode, ShareTree
from job_queue.scheduler.model import (
    ActiveJob,
    JobState,
    PausedPool,
    Slots,
    Snapshot,
    WaitingJob,
    WaitReason,
    covers,
    is_larger,
)
from job_queue.scheduler.ordering import WaitingKey, WaitingOrder, expected_runtime, rank
from job_queue.scheduler.sharing.spending import Spending

Group = tuple[str, str, str]
"""The key of the jobs that share a `max_parallel`: project, owner, and the name that the owner gave to the group."""

_Items = tuple[tuple[tuple[str, int], ...], ...]
"""Alternatives in a hashable form."""

NEVER = inf


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A waiting job that starts as soon as there is room for one of its alternatives."""

    name: str
    job: WaitingJob
    project: ShareNode
    rank: int  # priority without aging; interactive jobs may rank above all priorities (policy: `first`)
    # alternatives that fit into the job's pools and do not back off, best first; with `backs_off`, all that fit
    alternatives: tuple[Slots, ...]
    key: WaitingKey  # sort key among the jobs of its project
    patient: bool  # whether the job has waited longer than `patience`; false if it may start `on_free_slots_only`
    equivalence_key: tuple[Any, ...]  # demand and properties: jobs with the same key differ only in priority and times
    pools: frozenset[str]  # every pool in which the job could run
    assumed_runtime: float  # seconds; decides whether the job would end before a patient job can start
    group: Group | None = None  # the job's group, if this group has a `max_parallel`
    refused_alternatives: tuple[Slots, ...] = ()  # alternatives that were refused: tried on free slots only
    backs_off: bool = False  # the job's pools back off: the job does not start, but keeps its reservation

    def useful_part(self, reserved: Slots) -> Slots:
        """Return the part of a reservation that the job can use.

        The part is one alternative. If no alternative is covered, the part is at most the largest need in each pool.
        """
        for need in self.alternatives:
            if covers(reserved, need):
                return need
        return {
            pool: min(reserved.get(pool, 0), max(need.get(pool, 0) for need in self.alternatives))
            for pool in sorted(self.pools)
        }

    def startable_alternatives(self, reserved: Slots) -> tuple[Slots, ...]:
        """Return the alternatives on which the job starts while these slots are reserved for it.

        Sizes smaller than the reserved size are left out: other jobs were evicted to let this job start on that size.
        """
        promised = next((need for need in self.alternatives if covers(reserved, need)), None)
        if promised is None or len(self.alternatives) < 2:
            return self.alternatives
        sizes = _by_pools(self.job.demand)
        most = _count_larger_sizes(promised, sizes)
        return tuple(need for need in self.alternatives if _count_larger_sizes(need, sizes) <= most)

    def smallest_alternatives(self) -> tuple[Slots, ...]:
        """Return the alternatives that have no smaller size in the same pools."""
        return smallest_alternatives(self.alternatives)

    def not_refused(self, needs: list[Slots]) -> list[Slots]:
        """Return the alternatives that no pool has refused. Refused alternatives are tried on free slots only."""
        if not self.refused_alternatives:
            return needs
        return [need for need in needs if need not in self.refused_alternatives]


def _by_pools(alternatives: Sequence[Slots]) -> dict[frozenset[str], list[Slots]]:
    """Return the alternatives grouped by their pools, so that each is compared with few others."""
    found: dict[frozenset[str], list[Slots]] = defaultdict(list)
    for need in alternatives:
        found[frozenset(need)].append(need)
    return found


def _count_larger_sizes(need: Slots, sizes: Mapping[frozenset[str], Sequence[Slots]]) -> int:
    """Return how many alternatives in the same pools are larger than this one."""
    return sum(is_larger(other, need) for other in sizes[frozenset(need)])


def smallest_alternatives(alternatives: Sequence[Slots]) -> tuple[Slots, ...]:
    """Return the alternatives that have no smaller size in the same pools."""
    sizes = _by_pools(alternatives)
    return tuple(need for need in alternatives if not any(is_larger(need, other) for other in sizes[frozenset(need)]))


def same_size_alternatives(job: ActiveJob) -> tuple[Slots, ...]:
    """Return the alternatives to which an active job may migrate.

    A job changes its size only when it starts. So if the job accepts several sizes in its present pools, only
    alternatives of its present size are returned.
    """
    if len(job.demand) < 2 or not any(is_larger(job.slots, it) or is_larger(it, job.slots) for it in job.demand):
        return job.demand
    size = sum(job.slots.values())
    return tuple(need for need in job.demand if sum(need.values()) == size)


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """A backoff that concerns a job, because the job needs at least as many instances as were refused."""

    key: str  # the pool, or `<pool>/<instance type>`
    paused: PausedPool
    pool: str
    count: int  # instances that the job needs


def find_candidates(
    snapshot: Snapshot, tree: ShareTree, order: WaitingOrder, spending: Spending
) -> tuple[list[Candidate], dict[str, WaitReason]]:
    """Return the candidates in waiting order, and the reason why each other waiting job is not a candidate.

    A job that has a reservation and whose pools back off is in both results. Such a job does not start, but keeps its
    reservation. But if the region or account of the pools does not respond, the job is no candidate and loses its
    reservation: no slots are freed there for now.
    """
    candidates: list[Candidate] = []
    refused: dict[str, WaitReason] = {}
    settings = snapshot.policy.settings
    backoff = PoolBackoff(snapshot)
    demands = _Demands(snapshot)
    limited = group_limits([*snapshot.active, *snapshot.waiting])
    for job in snapshot.waiting:
        project = tree.project(job.project)
        possible = _possible_alternatives(job, snapshot, project.pools_of(job), demands)
        if isinstance(possible, WaitReason):
            refused[job.name] = possible
            continue
        holder = job.name if job.name in snapshot.reserved else None
        open_now = possible
        if snapshot.paused:
            open_now = tuple(
                need for need in possible if not backoff.blocking_refusals(need, job, after=holder is None)
            )
        if not open_now:
            refused[job.name] = backoff.reason(possible, job)
            if holder is None or refused[job.name] is WaitReason.REGION_UNREACHABLE:
                continue
        if spending and spending.forbidding_account(job):
            refused[job.name] = WaitReason.OVER_BUDGET
            continue
        alternatives = open_now or possible
        waits_long = settings.patience is not None and snapshot.now - job.entered > settings.patience
        patient = waits_long and not job.on_free_slots_only  # no slots stay idle for a job that SageMaker refuses
        demand, pools = demands.number_and_pools(alternatives)
        refused_before = (
            alternatives if job.on_free_slots_only else _refused_alternatives(alternatives, job, backoff, snapshot)
        )
        sure = tuple(need not in refused_before for need in alternatives) if refused_before else None
        group = group_of(job) if limited and group_of(job) in limited else None
        assumed_runtime = _assumed_runtime(job, settings.backfill)
        candidates.append(
            Candidate(
                name=job.name,
                job=job,
                project=project,
                rank=rank(job, snapshot.policy),
                alternatives=alternatives,
                key=order(job),
                patient=patient,
                equivalence_key=(
                    job.preemptible,
                    job.interactive,
                    demand,
                    sure,
                    patient,
                    assumed_runtime,
                    holder,
                    group,
                    job.left_idle,
                ),
                pools=pools,
                assumed_runtime=assumed_runtime,
                group=group,
                refused_alternatives=refused_before,
                backs_off=not open_now,
            )
        )
    candidates.sort(key=lambda candidate: candidate.key)
    return list(_within_owner_limit(candidates, snapshot, refused)), refused


class _Demands:
    """The alternatives of a snapshot's waiting jobs. Alternatives that many jobs share are examined once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._fitting: dict[tuple[int, _Items], tuple[Slots, ...] | WaitReason] = {}  # by pools and alternatives
        self._numbers: dict[_Items, int] = {}  # by alternatives with sorted pools
        self._known: dict[_Items, tuple[int, frozenset[str]]] = {}

    def fitting(self, demand: Sequence[Slots], pools: Mapping[str, Pool]) -> tuple[Slots, ...] | WaitReason:
        """Return the alternatives that would fit into the empty pools, or the reason why there are none.

        :param pools: the pools that the job may use. Pass the same mapping in each call, not a copy, because the cache
            identifies the mapping by its id.
        """
        key = (id(pools), tuple([tuple(need.items()) for need in demand]))
        if key not in self._fitting:
            known = [need for need in demand if need and all(pool in pools for pool in need)]
            fitting = tuple(need for need in known if _fits_in_pools(need, pools, self._snapshot))
            self._fitting[key] = fitting or (WaitReason.NEVER_FITS if known else WaitReason.NO_SUCH_POOL)
        return self._fitting[key]

    def number_and_pools(self, alternatives: Sequence[Slots]) -> tuple[int, frozenset[str]]:
        """Return a number that identifies these alternatives, and the set of all their pools.

        Alternatives that differ only in the order of their pools have the same number.
        """
        key = tuple([tuple(need.items()) for need in alternatives])
        if key not in self._known:
            pools = frozenset(pool for need in alternatives for pool in need)
            equal = tuple(tuple(sorted(need.items())) for need in alternatives)
            self._known[key] = self._numbers.setdefault(equal, len(self._numbers)), pools
        return self._known[key]


def _within_owner_limit(
    candidates: Iterable[Candidate], snapshot: Snapshot, refused: dict[str, WaitReason]
) -> Iterator[Candidate]:
    """Leave out interactive jobs that exceed their owner's limit, and add them to `refused`.

    Jobs with a reservation are counted first. A job without an owner is not limited. A job that is larger than the
    quota of its project takes no place, because it cannot start.
    """
    most = snapshot.policy.interactive.max_per_owner if snapshot.policy.interactive.first else None
    limited = [] if most is None else [it for it in candidates if it.job.interactive and it.job.owner]
    limited = [it for it in limited if it.job.preemptible or any(_fits_in_quota(it, need) for need in it.alternatives)]
    used = Counter(job.owner for job in snapshot.active if job.interactive)
    for candidate in sorted(limited, key=lambda it: it.name not in snapshot.reserved):
        if most is not None and used[candidate.job.owner] >= most:
            refused[candidate.name] = WaitReason.OWNER_LIMIT
        used[candidate.job.owner] += 1
    return (it for it in candidates if refused.get(it.name) is not WaitReason.OWNER_LIMIT)


def _fits_in_quota(candidate: Candidate, need: Slots) -> bool:
    """Return whether the quotas of the project and its department suffice, if no other job uses them."""
    return all(count <= node.quota.get(pool, 0) for node in candidate.project.path for pool, count in need.items())


def _assumed_runtime(job: WaitingJob, backfill: Backfill) -> float:
    """Return the assumed runtime of a job in seconds; infinite if the runtime is not known.

    The runtime decides whether the job would end before a patient job can start. Predictions are rounded up to powers
    of 1.2, so that many jobs have the same equivalence key.
    """
    if backfill is Backfill.BOUNDED or job.expected is None:
        return NEVER if job.max_runtime is None else job.max_runtime
    expected = expected_runtime(job)
    if expected == NEVER:  # a simulation that does not know when the job ends
        return NEVER
    return 1.2 ** ceil(log(expected, 1.2)) if expected > 1 else 1.0


def _refused_alternatives(
    alternatives: tuple[Slots, ...], job: WaitingJob, backoff: "PoolBackoff", snapshot: Snapshot
) -> tuple[Slots, ...]:
    """Return the alternatives that a pool has refused."""
    if not snapshot.paused:
        return ()
    return tuple(need for need in alternatives if any(backoff.refusals(need, job)))


class Grouped(Protocol):
    """A job that may belong to a group."""

    @property
    def project(self) -> str: ...  # noqa: D102
    @property
    def owner(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str | None: ...  # noqa: D102
    @property
    def max_parallel(self) -> int | None: ...  # noqa: D102


def group_of(job: Grouped) -> Group | None:
    """Return the group of a job. Groups of different projects and owners are different, even with the same name."""
    return None if job.group is None else (job.project, job.owner, job.group)


def group_limits(jobs: Iterable[Grouped]) -> dict[Group, int]:
    """Return the limit of each limited group. If its jobs have different limits, the smallest limit applies."""
    limits: dict[Group, int] = {}
    for job in jobs:
        if job.max_parallel is not None and (group := group_of(job)) is not None:
            limits[group] = min(job.max_parallel, limits.get(group, job.max_parallel))
    return limits


class Groups:
    """Counters of the jobs in each limited group (`max_parallel`): active, starting, or with a reservation.

    The limits are those of the active jobs and of the candidates.
    """

    def __init__(self, active: Sequence[ActiveJob], candidates: Iterable[Candidate]) -> None:
        self._used: Counter[Group] = Counter()
        self._most = group_limits([*active, *(it.job for it in candidates if it.group is not None)])
        if self._most:
            groups = map(group_of, active)
            self._used.update(group for group in groups if group in self._most)

    def enter(self, candidate: Candidate, sign: int = 1) -> None:
        """Count a job in its group. With `sign` -1, remove the job from the count."""
        if candidate.group is not None:
            self._used[candidate.group] += sign

    def may_start(self, candidate: Candidate, *, has_place: bool) -> bool:
        """Return whether the candidate's group allows one more job.

        :param has_place: whether the candidate is counted already.
        """
        group = candidate.group
        return group is None or group not in self._most or self._used[group] - has_place < self._most[group]

    def count_and_limit(self, candidate: Candidate) -> tuple[int, int]:
        """Return how many jobs of the candidate's group are counted, and how many are allowed."""
        assert candidate.group is not None
        return self._used[candidate.group], self._most[candidate.group]

    def limited_requests(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Sequence[Slots]]]:
        """Yield candidates, in waiting order, with the alternatives that they may request.

        In each pool, a group requests slots for no more jobs than it may still start.
        """
        asked: Counter[tuple[Group, str]] = Counter()
        for candidate in candidates:
            group, most = candidate.group, self._most.get(candidate.group) if candidate.group else None
            if group is None or most is None:
                yield candidate, candidate.alternatives
                continue
            pools = [pool for pool in candidate.pools if self._used[group] + asked[group, pool] < most]
            asked.update((group, pool) for pool in pools)
            yield candidate, [{pool: need[pool] for pool in need if pool in pools} for need in candidate.alternatives]


def requests(
    snapshot: Snapshot, candidates: Iterable[Candidate], tree: ShareTree, groups: Groups
) -> dict[ShareNode, Counter[str]]:
    """Return the slots that each project requests. In each pool, a job requests the slots of its largest alternative.

    Candidates and active jobs count, except stopping jobs that do not come back.

    If a waiting queue has more jobs than were read, its project requests all instances of the pools of that waiting
    queue. Without this rule, the request would grow whenever a job starts and another job is read in its place. The
    entitlements of other projects would then change.
    """
    asked: dict[ShareNode, Counter[str]] = defaultdict(Counter)
    for candidate, alternatives in groups.limited_requests(candidates):
        _add_request(asked[candidate.project], alternatives)
        if candidate.job.more_wait:
            pools = candidate.project.pools_of(candidate.job)
            _add_request(asked[candidate.project], [{pool: snapshot.size(pools[pool]) for pool in candidate.pools}])
    for job in snapshot.active:
        if job.state is JobState.STOPPING and not job.comes_back:
            continue
        project = tree.project(job.project)
        _add_request(
            asked[project],
            [job.slots, *(need for need in job.demand if _fits_in_pools(need, project.pools_of(job), snapshot))],
        )
    return asked


class PoolBackoff:
    """Backoffs of pools after refused launches.

    During a backoff, no job of the refused size or larger starts in the pool. After the backoff, such a job is tried on
    free slots only: no job is evicted for it. If a pool allows any instance type, not the whole pool backs off, but
    only the refused type (`<pool>/<type>`).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._paused = snapshot.paused
        self._now = snapshot.now
        self.free: Counter[str] = Counter()  # slots that no job holds
        if self._paused:
            self.free.update({pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools})
            self.free.subtract(snapshot.external)
            for job in snapshot.active:
                self.free.subtract(job.slots)

    def refusals(self, need: Slots, job: WaitingJob | None = None) -> Iterator[PoolRefusal]:
        """Yield the refusals that concern an alternative, including those whose backoff is over."""
        instance_type = None
        if job is not None and job.kinds:  # alternatives that WhatIf appends to the demand have the last type
            instance_type = job.kinds[min(job.demand.index(need), len(job.kinds) - 1)]
        for pool, count in need.items():
            key = f"{pool}/{instance_type}" if instance_type else pool
            paused = self._paused.get(key)
            if paused and count >= paused.instances:
                yield PoolRefusal(key, paused, pool, count)

    def reason(self, alternatives: Sequence[Slots], job: WaitingJob) -> WaitReason:
        """Return the wait reason of a job, given that all its alternatives back off."""
        blocking = [refusal for need in alternatives for refusal in self.blocking_refusals(need, job)]
        unreachable = bool(blocking) and all(it.paused.unreachable for it in blocking)
        return WaitReason.REGION_UNREACHABLE if unreachable else WaitReason.BACKOFF

    def blocking_refusals(self, need: Slots, job: WaitingJob, *, after: bool = True) -> list[PoolRefusal]:
        """Return the refusals that keep a job from starting on an alternative.

        :param after: whether a refusal still applies after its backoff if too few slots are free. The job would then
            need evictions, and evictions do not create instances that SageMaker does not have.
        """
        return [
            refusal
            for refusal in self.refusals(need, job)
            if refusal.paused.until > self._now or (after and refusal.count > self.free[refusal.pool])
        ]


def _own_reason(job: WaitingJob, now: float) -> WaitReason | None:
    """Return the reason why a job cannot start even if all slots are free, or None if there is no such reason."""
    if job.held:
        return WaitReason.HELD_BY_USER
    if job.not_before is not None and job.not_before > now:
        return WaitReason.NOT_BEFORE
    if job.after:
        return WaitReason.DEPENDENCY
    return WaitReason.BACKOFF if job.backoff_until is not None and job.backoff_until > now else None


def _possible_alternatives(
    job: WaitingJob, snapshot: Snapshot, pools: Mapping[str, Pool], demands: _Demands
) -> tuple[Slots, ...] | WaitReason:
    """Return the alternatives that would fit into the empty pools, or why the job is not a candidate."""
    if (own := _own_reason(job, snapshot.now)) is not None:
        return own
    fitting = demands.fitting(job.demand, pools)
    if isinstance(fitting, WaitReason):
        return fitting
    if snapshot.calendars:
        fitting = tuple(need for need in fitting if all(is_in_time(job, pool, snapshot) for pool in need))
        if not fitting:
            return WaitReason.OUTSIDE_TRAINING_PLAN
    return without_drained(fitting, job, snapshot) or WaitReason.DRAINED


def without_drained(
    alternatives: tuple[Slots, ...], job: WaitingJob | ActiveJob, snapshot: Snapshot
) -> tuple[Slots, ...]:
    """Return the alternatives in whose pools no drain forbids the job to start now."""
    if not snapshot.drains:
        return alternatives
    closed = {pool for pool, drain in snapshot.drains.items() if not drain.allows_start(snapshot.now, job.max_runtime)}
    return tuple(need for need in alternatives if not need.keys() & closed)


def _fits_in_pools(need: Slots, pools: Mapping[str, Pool], snapshot: Snapshot) -> bool:
    return all(pool in pools and count <= snapshot.size(pools[pool]) for pool, count in need.items())


def is_in_time(job: WaitingJob, pool: str, snapshot: Snapshot) -> bool:
    """Return whether a pool's training plan, if any, is open now and long enough for the job.

    For a non-preemptible job, the plan must be open until the latest end of the job.
    """
    calendar = snapshot.calendars.get(pool)
    if calendar is None:
        return True
    if not calendar.is_open(snapshot.now):
        return False
    return job.preemptible or (job.max_runtime is not None and snapshot.now + job.max_runtime <= calendar.closes)


def _add_request(asked: Counter[str], alternatives: Sequence[Slots]) -> None:
    largest = dict(alternatives[0]) if alternatives else {}
    for need in alternatives[1:]:
        for pool, count in need.items():
            largest[pool] = max(count, largest.get(pool, 0))
    for pool, count in largest.items():
        asked[pool] += count
