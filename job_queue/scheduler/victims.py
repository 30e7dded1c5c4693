"""Who may be made to leave, in which order, and no one more than needed."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from job_queue.scheduler.model import ActiveJob, JobState, Policy, Slots, Snapshot
from job_queue.scheduler.ordering import victim_order

_Key = tuple[int, float, float, str]


class Guarantees:
    """How long a job may not be stopped: its project's `min_runtime`, else the pool's, else the setting."""

    def __init__(self, policy: Policy) -> None:
        self._default = policy.settings.min_runtime
        self._pools = {pool.name: pool.min_runtime for pool in policy.pools}
        self._projects = {project.name: project.min_runtime for project in policy.projects}

    def runtime(self, job: ActiveJob) -> float:
        """Guaranteed seconds from its start; of several pools the longest."""
        own = self._projects.get(job.project)
        if own is not None:
            return own
        of_pools = [self._pools.get(pool) for pool in job.slots]
        return max((self._default if seconds is None else seconds for seconds in of_pools), default=self._default)

    def ends(self, job: ActiveJob, now: float) -> float:
        """When a job's guarantee is over; an unknown start counts as now."""
        return (now if job.started is None else job.started) + self.runtime(job)


class Victims:
    """The jobs of a snapshot that may be evicted, and those that may be as soon as they run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.now
        self._line: dict[str, list[tuple[_Key, ActiveJob]]] = defaultdict(list)
        self._ready: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self._launching: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        guarantees = Guarantees(snapshot.policy)
        for job in snapshot.active:
            if not job.preemptible:
                continue
            if job.state is JobState.RUNNING and guarantees.ends(job, snapshot.now) <= snapshot.now:
                self.give_back(job)
            elif job.state is JobState.STARTING and not guarantees.runtime(job):
                self._launching[job.project][job.priority].update(job.slots)

    def below(self, project: str, priority: int) -> Iterator[ActiveJob]:
        """Those that this priority of this project may preempt, in victim order."""
        ranked = takewhile(lambda entry: entry[0][0] < priority, self._line[project])
        return (job for _, job in ranked)

    def slots_below(self, project: str, priority: int) -> Slots:
        """What they hold together."""
        return _sum_below(self._ready[project], priority)

    def launching_below(self, project: str, priority: int) -> Slots:
        """What jobs hold that are being launched and may be preempted once they run."""
        return _sum_below(self._launching[project], priority)

    def take(self, job: ActiveJob) -> None:
        """This job is being evicted: nobody else can count on it."""
        self._line[job.project].remove((victim_order(job, self._now), job))
        self._ready[job.project][job.priority].subtract(job.slots)

    def give_back(self, job: ActiveJob) -> None:
        """This job stays, and may be evicted for another."""
        insort(self._line[job.project], (victim_order(job, self._now), job), key=lambda entry: entry[0])
        self._ready[job.project][job.priority].update(job.slots)


def choose(ranked: Iterable[ActiveJob], missing: Slots) -> list[ActiveJob]:
    """Victims that free what is missing, such that no proper subset does; none where all together do not.

    :param ranked: those who may be taken, in victim order.
    :param missing: slots still needed, pool by pool.
    """
    open_need = {pool: count for pool, count in missing.items() if count > 0}
    chosen: list[ActiveJob] = []
    for job in ranked:
        if not open_need:
            break
        chosen.append(job)
        open_need = {pool: n for pool, count in open_need.items() if (n := count - job.slots.get(pool, 0)) > 0}
    if open_need:
        return []
    surplus = {pool: sum(job.slots.get(pool, 0) for job in chosen) - max(0, n) for pool, n in missing.items()}
    return without_needless(chosen, surplus)


def without_needless(chosen: list[ActiveJob], surplus: Mapping[str, int]) -> list[ActiveJob]:
    """Give back victims whose slots the surplus of the others covers, most valuable first.

    :param chosen: in victim order.
    :param surplus: what they free beyond the need; a pool that is not named needs nothing.
    """
    left = dict(surplus)
    needed: list[ActiveJob] = []
    for job in reversed(chosen):
        if all(left.get(pool, count) >= count for pool, count in job.slots.items()):
            left.update({pool: left[pool] - count for pool, count in job.slots.items() if pool in left})
        else:
            needed.append(job)
    return needed[::-1]


def _sum_below(by_priority: Mapping[int, Counter[str]], priority: int) -> Slots:
    total: Counter[str] = Counter()
    for own, slots in by_priority.items():
        if own < priority:
            total.update(slots)
    return total
