"""Who may be made to leave: the active jobs, sorted once, per project and pool (scheduling rules, section 4)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from job_queue.scheduler.model import ActiveJob, JobState, Policy, Slots, Snapshot
from job_queue.scheduler.ordering import VictimKey, victim_order
from job_queue.scheduler.queues import Queue, Queues

HeapEntry = tuple[int, VictimKey, int, Queue]


class Guarantees:
    """How long a job may not be stopped: its project's `min_runtime`, else the pool's, else the setting."""

    def __init__(self, policy: Policy) -> None:
        self._default = policy.settings.min_runtime
        self._pools = {pool.name: pool.min_runtime for pool in policy.pools}
        self._projects = {project.name: project.min_runtime for project in policy.projects}

    def runtime(self, project: str, slots: Slots) -> float:
        """Guaranteed seconds from a job's start; of several pools the longest."""
        own = self._projects.get(project)
        if own is not None:
            return own
        of_pools = [self._pools.get(pool) for pool in slots]
        return max((self._default if seconds is None else seconds for seconds in of_pools), default=self._default)

    def ends(self, job: ActiveJob, now: float) -> float:
        """When a job's guarantee is over; an unknown start counts as now."""
        return (now if job.started is None else job.started) + self.runtime(job.project, job.slots)


@dataclass(eq=False, slots=True)
class Victim:
    """An active job that may be evicted, or (launching) may be as soon as it runs."""

    job: ActiveJob
    project: Queue
    key: VictimKey
    launching: bool
    gone: bool = False  # is being evicted by this plan

    @property
    def slots(self) -> Slots:
        """What it would free."""
        return self.job.slots


class Victims:
    """The jobs of a snapshot that may be evicted, in victim order."""

    def __init__(self, snapshot: Snapshot, queues: Queues) -> None:
        self._lists: dict[tuple[Queue, str], list[Victim]] = defaultdict(list)
        self._head: dict[tuple[Queue, str], int] = defaultdict(int)
        self._sums: dict[Queue, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        self._heaps: dict[str, list[HeapEntry]] = defaultdict(list)
        self.all: list[Victim] = []
        guarantees = Guarantees(snapshot.policy)
        for job in snapshot.active:
            launching = job.state is JobState.STARTING
            if not job.preemptible or job.state is JobState.STOPPING:
                continue
            if (
                guarantees.runtime(job.project, job.slots) > 0
                if launching
                else guarantees.ends(job, snapshot.now) > snapshot.now
            ):
                continue
            self.all.append(Victim(job, queues.project(job.project), victim_order(job, snapshot.now), launching))
        self.all.sort(key=lambda victim: victim.key)
        for victim in self.all:
            for pool, count in victim.slots.items():
                self._lists[victim.project, pool].append(victim)
                self._sums[victim.project][victim.job.priority][pool] += count
        self.launching = any(victim.launching for victim in self.all)
        for project, pool in self._lists:
            self._enter(project, pool)

    # --- looking ---------------------------------------------------------------------------------

    def of(self, project: Queue, pool: str, launching: bool) -> Iterator[Victim]:
        """A project's jobs in a pool that may be evicted, in victim order."""
        place = (project, pool)
        if place in self._lists:
            victims = self._lists[place]
            for at in range(self._head[place], len(victims)):
                victim = victims[at]
                if not victim.gone and (launching or not victim.launching):
                    yield victim

    def below(self, project: Queue, priority: int, pool: str) -> int:
        """Slots of a pool held by a project's jobs of lower priority that may be evicted, now or once they run."""
        if project not in self._sums:
            return 0
        return sum(sums[pool] for own, sums in self._sums[project].items() if own < priority and pool in sums)

    # --- the projects with victims in a pool, furthest above its entitlement first -------------------

    def refresh(self, project: Queue) -> None:
        """The project's figures changed."""
        for pool in list(project.held):
            self._enter(project, pool)

    def pop(self, pool: str) -> HeapEntry | None:
        """The project furthest above its entitlement; ties by their next victims."""
        heap = self._heaps[pool]
        while heap:
            entry = heappop(heap)
            if self._entry(entry[-1], pool) == entry:
                return entry
        return None

    def push(self, pool: str, entries: list[HeapEntry]) -> None:
        """Put back what was popped."""
        for entry in entries:
            heappush(self._heaps[pool], entry)

    def _enter(self, project: Queue, pool: str) -> None:
        entry = self._entry(project, pool)
        if entry is not None:
            heappush(self._heaps[pool], entry)

    def _entry(self, project: Queue, pool: str) -> HeapEntry | None:
        place = (project, pool)
        if place not in self._lists:
            return None
        victims, head = self._lists[place], self._head[place]
        while head < len(victims) and victims[head].gone:
            head += 1
        self._head[place] = head
        if head == len(victims):
            return None
        return (-project.excess(pool), victims[head].key, project.place, project)

    # --- writing ---------------------------------------------------------------------------------

    def take(self, victim: Victim) -> None:
        """This job is being evicted: nobody else can count on it."""
        victim.gone = True
        self._count(victim, -1)

    def give_back(self, victim: Victim) -> None:
        """This job stays, and may be evicted for another."""
        victim.gone = False
        self._count(victim, 1)
        for pool in victim.slots:
            self._head[victim.project, pool] = 0

    def _count(self, victim: Victim, sign: int) -> None:
        sums = self._sums[victim.project][victim.job.priority]
        for pool, count in victim.slots.items():
            sums[pool] += sign * count
