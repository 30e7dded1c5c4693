"""Who can be served at all, whatever is free; and what everybody asks for."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any

from job_queue.scheduler.fair_share import Queue, QueueTree
from job_queue.scheduler.model import (
    ActiveJob,
    Backfill,
    JobState,
    PausedPool,
    Pool,
    Reason,
    Slots,
    Snapshot,
    WaitingJob,
    covers,
    is_larger,
)
from job_queue.scheduler.ordering import WaitingKey, WaitingOrder, expected_runtime, rank
from job_queue.scheduler.sharing.spending import Spending

Group = tuple[str, str, str]
"""Jobs that count together for their `max_parallel`: project, owner, and the name that the owner gave them."""

NEVER = inf


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A waiting job that starts as soon as there is room for one of its alternatives."""

    name: str
    job: WaitingJob
    project: Queue
    rank: int  # its priority, without aging; that of an interactive job that comes first is above all others
    alternatives: tuple[Slots, ...]  # those that its pools could ever hold, best first
    key: WaitingKey  # its place among those of its project
    patient: bool  # has waited longer than the setting `patience`
    shape: tuple[Any, ...]  # who has the same shape and no higher priority has no better chances
    pools: frozenset[str]  # every pool in which it could run
    runs: float  # seconds that it is taken to run, where that has to be before somebody else starts
    group: Group | None = None  # where so many of its jobs may be active at a time
    on_free_slots_only: tuple[Slots, ...] = ()  # the alternatives that a pool has refused
    backs_off: bool = False  # it keeps what is set aside for it, and does not start

    def useful_part(self, reserved: Slots) -> Slots:
        """What a reservation is worth to it: one alternative, or less."""
        for need in self.alternatives:
            if covers(reserved, need):
                return need
        return {
            pool: min(reserved.get(pool, 0), max(need.get(pool, 0) for need in self.alternatives))
            for pool in sorted(self.pools)
        }

    def worth_waiting_for(self, reserved: Slots) -> tuple[Slots, ...]:
        """The alternatives on which it starts while these slots are set aside for it.

        Others leave for the size for which they were asked to: on a smaller one it would have started without them.
        """
        promised = next((need for need in self.alternatives if covers(reserved, need)), None)
        if promised is None or len(self.alternatives) < 2:
            return self.alternatives
        sizes = _by_pools(self.job.demand)
        most = _sizes_above(promised, sizes)
        return tuple(need for need in self.alternatives if _sizes_above(need, sizes) <= most)

    def smallest(self) -> tuple[Slots, ...]:
        """The alternatives of which there is no smaller size in the same pools."""
        return smallest(self.alternatives)

    def not_refused(self, needs: list[Slots]) -> list[Slots]:
        """Those that no pool has refused: others may be tried on free slots, but are not waited for."""
        if not self.on_free_slots_only:
            return needs
        return [need for need in needs if need not in self.on_free_slots_only]


def _by_pools(alternatives: Sequence[Slots]) -> dict[frozenset[str], list[Slots]]:
    """Those of the same pools together: of very many each is compared with few."""
    found: dict[frozenset[str], list[Slots]] = defaultdict(list)
    for need in alternatives:
        found[frozenset(need)].append(need)
    return found


def _sizes_above(need: Slots, sizes: Mapping[frozenset[str], Sequence[Slots]]) -> int:
    """How many larger sizes of an alternative there are."""
    return sum(is_larger(other, need) for other in sizes[frozenset(need)])


def smallest(alternatives: Sequence[Slots]) -> tuple[Slots, ...]:
    """The alternatives of which there is no smaller size in the same pools."""
    sizes = _by_pools(alternatives)
    return tuple(need for need in alternatives if not any(is_larger(need, other) for other in sizes[frozenset(need)]))


def of_its_size(job: ActiveJob) -> tuple[Slots, ...]:
    """Where else an active job may be moved: to no other size, as it grows only with a start, and nobody shrinks it."""
    if len(job.demand) < 2 or not any(is_larger(job.slots, it) or is_larger(it, job.slots) for it in job.demand):
        return job.demand
    size = sum(job.slots.values())
    return tuple(need for need in job.demand if sum(need.values()) == size)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pool refused as many instances as a job asks for."""

    key: str  # what backs off
    paused: PausedPool
    pool: str
    count: int  # that the job asks for


def sort_out(
    snapshot: Snapshot, queues: QueueTree, order: WaitingOrder, spending: Spending
) -> tuple[list[Candidate], dict[str, Reason]]:
    """The candidates, in waiting order, and why each other waiting job is none.

    A job whose pool backs off and that has slots set aside is both: it keeps them.
    """
    candidates: list[Candidate] = []
    refused: dict[str, Reason] = {}
    settings = snapshot.policy.settings
    backoff = PoolBackoff(snapshot)
    pools_of: dict[tuple[Any, ...], frozenset[str]] = {}  # demand -> its pools; many jobs ask for the same
    live: tuple[ActiveJob | WaitingJob, ...] = (*snapshot.active, *snapshot.waiting)
    bounded = {_group(job) for job in live if job.max_parallel is not None}
    for job in snapshot.waiting:
        project = queues.project(job.project)
        possible = _possible(job, snapshot, project.pools_of(job))
        if isinstance(possible, Reason):
            refused[job.name] = possible
            continue
        holder = job.name if job.name in snapshot.reserved else None
        open_now = possible
        if snapshot.paused:
            open_now = tuple(need for need in possible if not backoff.closed(need, job, after=holder is None))
        if not open_now:
            refused[job.name] = Reason.BACKOFF
            if holder is None:
                continue
        if spending and spending.forbids(job):
            refused[job.name] = Reason.OVER_BUDGET
            continue
        alternatives = open_now or possible
        waits_long = settings.patience is not None and snapshot.now - job.entered > settings.patience
        patient = waits_long and not job.on_free_slots_only  # no slots stand idle for what is refused
        demand = tuple(tuple(sorted(need.items())) for need in alternatives)
        if demand not in pools_of:
            pools_of[demand] = frozenset(pool for need in alternatives for pool in need)
        refused_before = alternatives if job.on_free_slots_only else _refused(alternatives, job, backoff, snapshot)
        sure = tuple(need not in refused_before for need in alternatives)
        group = _group(job) if bounded and _group(job) in bounded else None
        runs = _runs(job, settings.backfill)
        candidates.append(
            Candidate(
                name=job.name,
                job=job,
                project=project,
                rank=rank(job, snapshot.policy),
                alternatives=alternatives,
                key=order(job),
                patient=patient,
                shape=(job.preemptible, job.interactive, demand, sure, patient, runs, holder, group, job.left_idle),
                pools=pools_of[demand],
                runs=runs,
                group=group,
                on_free_slots_only=refused_before,
                backs_off=not open_now,
            )
        )
    candidates.sort(key=lambda candidate: candidate.key)
    return list(_within_owner_limit(candidates, snapshot, refused)), refused


def _within_owner_limit(
    candidates: Iterable[Candidate], snapshot: Snapshot, refused: dict[str, Reason]
) -> Iterator[Candidate]:
    """Yield the candidates, of an owner's interactive jobs no more than may be active at a time; refuse the others.

    Jobs that have slots set aside come first. A job without an owner is not limited.
    """
    most = snapshot.policy.interactive.max_per_owner if snapshot.policy.interactive.first else None
    limited = [] if most is None else [it for it in candidates if it.job.interactive and it.job.owner]
    used = Counter(job.owner for job in snapshot.active if job.interactive)
    for candidate in sorted(limited, key=lambda it: it.name not in snapshot.reserved):
        if most is not None and used[candidate.job.owner] >= most:
            refused[candidate.name] = Reason.OWNER_LIMIT
        used[candidate.job.owner] += 1
    return (it for it in candidates if refused.get(it.name) is not Reason.OWNER_LIMIT)


def _runs(job: WaitingJob, backfill: Backfill) -> float:
    """How long a job is taken to run where it has to end in time; unknown is for ever.

    What is predicted is rounded up to a step of a fifth, so that there are few shapes.
    """
    if backfill is Backfill.BOUNDED or job.expected is None:
        return NEVER if job.max_runtime is None else job.max_runtime
    expected = expected_runtime(job)
    return 1.2 ** ceil(log(expected, 1.2)) if expected > 1 else 1.0


def _refused(
    alternatives: tuple[Slots, ...], job: WaitingJob, backoff: "PoolBackoff", snapshot: Snapshot
) -> tuple[Slots, ...]:
    """The alternatives that a pool has refused."""
    if not snapshot.paused:
        return ()
    return tuple(need for need in alternatives if any(backoff.refusals(need, job)))


def _group(job: WaitingJob | ActiveJob) -> Group | None:
    return None if job.group is None else (job.project, job.owner, job.group)


class Groups:
    """How many jobs of a group are active, start, or have slots set aside, where so many may (`max_parallel`).

    Where jobs of a group name different figures, the smallest of those that are active or could start counts.
    """

    def __init__(self, active: Iterable[ActiveJob], candidates: Iterable[Candidate]) -> None:
        self._most: dict[Group, int] = {}
        self._used: Counter[Group] = Counter()
        active = list(active)
        jobs: tuple[ActiveJob | WaitingJob, ...] = (*active, *(it.job for it in candidates if it.group is not None))
        for job in jobs:
            if job.max_parallel is not None and (group := _group(job)) is not None:
                self._most[group] = min(job.max_parallel, self._most.get(group, job.max_parallel))
        if self._most:
            groups = map(_group, active)
            self._used.update(group for group in groups if group in self._most)

    def enter(self, candidate: Candidate, sign: int = 1) -> None:
        """This job takes a place in its group; with sign -1, it leaves it."""
        if candidate.group is not None:
            self._used[candidate.group] += sign

    def may_start(self, candidate: Candidate, *, has_place: bool) -> bool:
        """Whether its group has a place for it.

        :param has_place: whether it has taken one already.
        """
        group = candidate.group
        return group is None or group not in self._most or self._used[group] - has_place < self._most[group]

    def figures(self, candidate: Candidate) -> tuple[int, int]:
        """How many places of its group are taken, and how many there are."""
        assert candidate.group is not None
        return self._used[candidate.group], self._most[candidate.group]

    def asking(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Sequence[Slots]]]:
        """What candidates, in waiting order, may ask for: of a group no more jobs in each pool than have a place."""
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
    snapshot: Snapshot, candidates: Iterable[Candidate], queues: QueueTree, groups: Groups
) -> dict[Queue, Counter[str]]:
    """What each project's live jobs ask for: each, in every pool it could run in, its largest alternative there.

    Where more jobs wait than were read, their project asks for all that there is. Otherwise it would ask for more with
    each job that starts and makes room for another to be read, and what others are due would change under them.
    """
    asked: dict[Queue, Counter[str]] = defaultdict(Counter)
    for candidate, alternatives in groups.asking(candidates):
        _ask(asked[candidate.project], alternatives)
        if candidate.job.more_wait:
            pools = candidate.project.pools_of(candidate.job)
            _ask(asked[candidate.project], [{pool: snapshot.size(pools[pool]) for pool in candidate.pools}])
    for job in snapshot.active:
        if job.state is JobState.STOPPING and not job.comes_back:
            continue
        project = queues.project(job.project)
        _ask(
            asked[project],
            [job.slots, *(need for need in job.demand if _fits_in_pools(need, project.pools_of(job), snapshot))],
        )
    return asked


class PoolBackoff:
    """Pools that have refused launches: nothing starts there, and nobody is stopped for it, until it is tried again.

    What backs off is a pool, or of a pool of any type one instance type (`<pool>/<type>`).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._paused = snapshot.paused
        self._now = snapshot.now
        self.free: Counter[str] = Counter()  # slots that nobody holds
        if self._paused:
            self.free.update({pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools})
            self.free.subtract(snapshot.external)
            for job in snapshot.active:
                self.free.subtract(job.slots)

    def refusals(self, need: Slots, job: WaitingJob | None = None) -> Iterator[Refusal]:
        """Who has refused so many as an alternative asks for."""
        instance_type = None
        if job is not None and job.kinds:  # an alternative that was added to try it out has the last one's type
            instance_type = job.kinds[min(job.demand.index(need), len(job.kinds) - 1)]
        for pool, count in need.items():
            key = f"{pool}/{instance_type}" if instance_type else pool
            paused = self._paused.get(key)
            if paused and count >= paused.instances:
                yield Refusal(key, paused, pool, count)

    def closed(self, need: Slots, job: WaitingJob, *, after: bool = True) -> list[Refusal]:
        """What keeps an alternative back.

        :param after: after the backoff, too, it is tried on free slots only: stopping others buys nothing that
            SageMaker does not have.
        """
        return [
            refusal
            for refusal in self.refusals(need, job)
            if refusal.paused.until > self._now or (after and refusal.count > self.free[refusal.pool])
        ]


def _possible(job: WaitingJob, snapshot: Snapshot, pools: Mapping[str, Pool]) -> tuple[Slots, ...] | Reason:
    """The alternatives that its pools could hold now if they were idle, or why it is no candidate."""
    now = snapshot.now
    if job.held:
        return Reason.HELD_BY_USER
    if job.after:
        return Reason.DEPENDENCY
    if job.backoff_until is not None and job.backoff_until > now:
        return Reason.BACKOFF
    known = [need for need in job.demand if need and all(pool in pools for pool in need)]
    if not known:
        return Reason.NO_SUCH_POOL
    fitting = tuple(need for need in known if _fits_in_pools(need, pools, snapshot))
    if not fitting or not snapshot.calendars:
        return fitting or Reason.NEVER_FITS
    in_time = tuple(need for need in fitting if all(is_in_time(job, pool, snapshot) for pool in need))
    return in_time or Reason.OUTSIDE_TRAINING_PLAN


def _fits_in_pools(need: Slots, pools: Mapping[str, Pool], snapshot: Snapshot) -> bool:
    return all(pool in pools and count <= snapshot.size(pools[pool]) for pool, count in need.items())


def is_in_time(job: WaitingJob, pool: str, snapshot: Snapshot) -> bool:
    """Whether a pool has instances now, and long enough for a job that may not be stopped."""
    calendar = snapshot.calendars.get(pool)
    if calendar is None:
        return True
    if not calendar.is_open(snapshot.now):
        return False
    return job.preemptible or (job.max_runtime is not None and snapshot.now + job.max_runtime <= calendar.closes)


def _ask(asked: Counter[str], alternatives: Iterable[Slots]) -> None:
    largest: dict[str, int] = {}
    for need in alternatives:
        for pool, count in need.items():
            largest[pool] = max(count, largest.get(pool, 0))
    for pool, count in largest.items():
        asked[pool] += count
