"""Who may be evicted, and in which order. An order ends in a name or a place, so that it is total."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from job_queue.scheduler.candidates import Candidate, of_its_size
from job_queue.scheduler.fair_share import Queue, QueueTree, turn_to_give
from job_queue.scheduler.model import ActiveJob, JobState, Policy, Slots, Snapshot

VictimKey = tuple[bool, float, float, float, float, str]

Place = tuple[Queue, str]
"""A queue, and a pool."""

HeapEntry = tuple[int, VictimKey, int, Queue]
"""A project with victims in a pool: its turn to give, its next victim's key, its place in the policy, itself."""


def victim_order(job: ActiveJob, now: float, idle_after: float | None = None) -> VictimKey:
    """Who leaves first: who is idle, then lowest priority, least work lost, least work done, latest entry, name.

    :param idle_after: seconds after which a job whose GPUs do nothing is idle; None: nobody is.
    """
    works = not is_idle(job, now, idle_after)
    return (works, job.priority, work_lost(job, now), work_done(job, now), -job.entered, job.name)


def is_idle(job: ActiveJob, now: float, idle_after: float | None) -> bool:
    """Whether a job's GPUs have done nothing for that long."""
    return idle_after is not None and job.idle_since is not None and now - job.idle_since >= idle_after


def work_lost(job: ActiveJob, now: float) -> float:
    """Instance-seconds that a stop would throw away: what was done since the start, or the last checkpoint."""
    if job.lost is not None:
        return job.lost
    if job.started is None:
        return 0.0
    saved = max(job.started, job.checkpoint or job.started)
    return max(0.0, now - saved) * sum(job.slots.values())


def work_done(job: ActiveJob, now: float) -> float:
    """Instance-seconds of the current attempt."""
    return 0.0 if job.started is None else max(0.0, now - job.started) * sum(job.slots.values())


class Guarantees:
    """How long a job may not be stopped: its project's `min_runtime`, else the pool's, else the setting."""

    def __init__(self, policy: Policy) -> None:
        self._default = policy.settings.min_runtime
        self._pools = {pool.name: pool.min_runtime for pool in policy.pools if pool.min_runtime is not None}
        self._projects = {project.name: project.min_runtime for project in policy.projects}

    def runtime(self, project: str, slots: Slots) -> float:
        """Guaranteed seconds from a job's start; of several pools the longest."""
        own = self._projects.get(project)
        if own is not None:
            return own
        return max((self._pools.get(pool, self._default) for pool in slots), default=self._default)

    def ends(self, job: ActiveJob, now: float) -> float:
        """When a job's guarantee is over, in seconds since the epoch; an unknown start counts as now."""
        return (now if job.started is None else job.started) + self.runtime(job.project, job.slots)

    def allow_to_evict(self, job: ActiveJob, now: float) -> bool:
        """Whether a job may be evicted, now or (being launched) as soon as it runs."""
        if not job.preemptible or job.stop_denied or job.state is JobState.STOPPING:
            return False
        if job.state is JobState.STARTING:
            return self.runtime(job.project, job.slots) <= 0
        return self.ends(job, now) <= now


@dataclass(eq=False, slots=True)
class Victim:
    """An active job that may be evicted, or a start of this same plan that may be withdrawn."""

    name: str
    slots: Slots
    project: Queue
    priority: int
    key: VictimKey
    demand: tuple[Slots, ...] = ()  # all it would accept, where it may migrate
    start: Candidate | None = None  # whose start it is
    launching: bool = False  # may be evicted once it runs
    gone: bool = False  # leaves by this plan

    @property
    def idle(self) -> bool:
        """Whether it comes first in victim order as its GPUs do nothing, whatever its priority."""
        return not self.key[0]


class Victims:
    """The jobs of a snapshot that may be evicted, sorted once, per project and pool."""

    def __init__(self, snapshot: Snapshot, queues: QueueTree, guarantees: Guarantees) -> None:
        self.protect_quota = snapshot.policy.settings.protect_project_quota
        idle_after = snapshot.policy.settings.idle_after
        self.all: list[Victim] = []
        self._lists: dict[Place, list[Victim]] = defaultdict(list)
        self._head: dict[Place, int] = defaultdict(int)
        self._sums: dict[Queue, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        self._heaps: dict[str, list[HeapEntry]] = defaultdict(list)
        for job in snapshot.active:
            if guarantees.allow_to_evict(job, snapshot.now):
                project, key = queues.project(job.project), victim_order(job, snapshot.now, idle_after)
                launching = job.state is JobState.STARTING
                others = of_its_size(job)
                self.all.append(Victim(job.name, job.slots, project, job.priority, key, others, None, launching))
        self.all.sort(key=lambda victim: victim.key)
        for victim in self.all:
            self._count(victim, 1)
            for pool in victim.slots:
                self._lists[victim.project, pool].append(victim)
        self.any_launching = any(victim.launching for victim in self.all)
        for project, pool in self._lists:
            self._enter(project, pool)

    def of(self, project: Queue, pool: str, launching: bool) -> Iterator[Victim]:
        """A project's jobs in a pool that may be evicted, in victim order."""
        if (project, pool) in self._lists:
            victims = self._lists[project, pool]
            for at in range(self._head[project, pool], len(victims)):
                victim = victims[at]
                if not victim.gone and (launching or not victim.launching):
                    yield victim

    def below(self, project: Queue, priority: int, pool: str) -> int:
        """Slots of a pool held by a project's jobs of lower priority that may be evicted, now or once they run."""
        if project not in self._sums:
            return 0
        return sum(sums[pool] for own, sums in self._sums[project].items() if own < priority and pool in sums)

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

    def refresh(self, project: Queue) -> None:
        """The project's figures changed."""
        for pool in list(project.projected):
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

    def _count(self, victim: Victim, sign: int) -> None:
        sums = self._sums[victim.project][victim.priority]
        for pool, count in victim.slots.items():
            sums[pool] += sign * count

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
        excess = project.projected[pool] - project.entitlement[pool]
        return (turn_to_give(project, excess), victims[head].key, project.place, project)
