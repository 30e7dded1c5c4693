"""The orders of the scheduler. Each ends in a name or a place, so it is total: equal snapshots give equal plans."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from job_queue.scheduler.fair_share import Queue
from job_queue.scheduler.model import ActiveJob, JobState, Policy, Slots, WaitingJob

WaitingKey = tuple[int, float, str]
VictimKey = tuple[int, float, float, str]
Deprivation = tuple[bool, float, float, int, int]


def waiting_order(job: WaitingJob | ActiveJob, now: float = 0, aging: float | None = None) -> WaitingKey:
    """Who of a project is served first: highest priority, then longest in the queue, then name.

    :param aging: seconds of waiting that raise its place by one priority. Only its place: preempting compares
        nominal priorities.
    """
    raised = int(max(0.0, now - job.entered) // aging) if aging else 0
    return (-job.priority - raised, job.entered, job.name)


def victim_order(job: ActiveJob, now: float) -> VictimKey:
    """Who leaves first: lowest priority, then least work lost, then latest entry, then name."""
    return (job.priority, work_lost(job, now), -job.entered, job.name)


def work_lost(job: ActiveJob, now: float) -> float:
    """Instance-seconds that a stop would throw away: what was done since the start, or the last checkpoint."""
    if job.started is None:
        return 0.0
    saved = max(job.started, job.checkpoint or job.started)
    return max(0.0, now - saved) * sum(job.slots.values())


def deprivation(queue: Queue, need: Slots, usage: Mapping[str, int]) -> Deprivation:
    """How well off a queue is with its next job: the smallest is served first (scheduling rules, section 2).

    Of several pools the worst counts.

    :param need: the first alternative of its next job.
    :param usage: what the queue holds, slots by pool.
    """
    beyond = False
    worst: tuple[float, float, int] = (-1.0, 0.0, 0)
    for pool, count in need.items():
        held, due = usage[pool], queue.entitlement[pool]
        beyond = beyond or held + count > queue.quota.get(pool, 0)
        worst = max(worst, (_ratio(held + count, due), _ratio(held, due), due))
    return (beyond, *worst, queue.place)


def _ratio(held: int, due: int) -> float:
    return held / due if due else held * 1000.0


class Turns:
    """Which project is the most deprived, compared from the root down, after every decision.

    A queue's key is computed anew only when its usage or its next job changed; outdated entries are left in the heaps
    and skipped.

    :param next_need: a project's next job's first alternative; None: it has no next job.
    :param usage: what a queue holds, slots by pool.
    """

    def __init__(self, next_need: Callable[[Queue], Slots | None], usage: Callable[[Queue], Mapping[str, int]]) -> None:
        self._next_need = next_need
        self._usage = usage
        self._current: dict[Queue, tuple[Deprivation, Queue] | None] = {}
        self._heaps: dict[Queue | None, list[tuple[Deprivation, Queue]]] = defaultdict(list)

    def refresh(self, project: Queue) -> None:
        """The project's usage or its next job changed."""
        self._push(project, self._next_need(project))
        if project.parent is not None:
            child = self._top(project.parent)
            self._push(project.parent, None if child is None else self._next_need(child))

    def next(self) -> Queue | None:
        """The project whose turn it is."""
        top = self._top(None)
        return self._top(top) if top is not None and top.children else top

    def _push(self, queue: Queue, need: Slots | None) -> None:
        if need is None:
            self._current[queue] = None
            return
        entry = (deprivation(queue, need, self._usage(queue)), queue)
        self._current[queue] = entry
        heappush(self._heaps[queue.parent], entry)

    def _top(self, parent: Queue | None) -> Queue | None:
        heap = self._heaps[parent]
        while heap and self._current.get(heap[0][-1]) is not heap[0]:
            heappop(heap)
        return heap[0][-1] if heap else None


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
        """When a job's guarantee is over, in seconds since the epoch; an unknown start counts as now."""
        return (now if job.started is None else job.started) + self.runtime(job.project, job.slots)

    def allow_to_evict(self, job: ActiveJob, now: float) -> bool:
        """Whether a job may be evicted, now or (being launched) as soon as it runs."""
        if not job.preemptible or job.state is JobState.STOPPING:
            return False
        if job.state is JobState.STARTING:
            return self.runtime(job.project, job.slots) <= 0
        return self.ends(job, now) <= now
