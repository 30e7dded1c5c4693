"""Select the active jobs that may be evicted, and sort them: idle GPUs, lowest priority, least work lost.

Each sort key ends in a name or a position, so no two keys are equal.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from job_queue.scheduler.candidates import Candidate, same_size_alternatives
from job_queue.scheduler.documents.policy_schema import Policy
from job_queue.scheduler.fair_share import ShareNode, ShareTree, reclaim_key
from job_queue.scheduler.model import ActiveJob, JobState, Slots, Snapshot, WaitingJob

PREEMPTIONS_COUNT_SECONDS = 24 * 3600  # the time in which a preemption counts for the guaranteed runtime
MOST_DOUBLINGS = 60  # more doublings would exceed any limit

VictimKey = tuple[bool, float, float, float, float, str]

NodeAndPool = tuple[ShareNode, str]
"""A project or department, and a pool."""

HeapEntry = tuple[int, VictimKey, int, ShareNode]
"""A project with victims in a pool: reclaim key, key of its next victim, position in the policy, the project."""


def victim_order(job: ActiveJob, now: float, idle_after: float | None = None) -> VictimKey:
    """Return the sort key of a job among victims. The job with the smallest key is evicted first.

    The order: idle jobs, lowest priority, least work lost, least work done, latest entry, name.

    :param idle_after: seconds after which a job with idle GPUs counts as idle; None: no job counts as idle.
    """
    works = not is_idle(job, now, idle_after)
    return (works, job.priority, work_lost(job, now), work_done(job, now), -job.entered, job.name)


def is_idle(job: ActiveJob, now: float, idle_after: float | None) -> bool:
    """Return whether a job's GPUs have been idle for `idle_after` seconds."""
    return idle_after is not None and job.idle_since is not None and now - job.idle_since >= idle_after


def work_lost(job: ActiveJob, now: float) -> float:
    """Return the instance-seconds of work since the start or the last checkpoint, which a stop would lose."""
    if job.lost is not None:
        return job.lost
    if job.started is None:
        return 0.0
    saved = max(job.started, job.checkpoint or job.started)
    return max(0.0, now - saved) * sum(job.slots.values())


def work_done(job: ActiveJob, now: float) -> float:
    """Return the instance-seconds that the current attempt has run."""
    return 0.0 if job.started is None else max(0.0, now - job.started) * sum(job.slots.values())


def recent_preemptions(times: Iterable[float], now: float) -> int:
    """Return how many of these preemptions count for the guaranteed runtime of a start at `now`.

    :param times: epoch seconds of the preemptions.
    """
    return sum(now - PREEMPTIONS_COUNT_SECONDS < time for time in times)


class Guarantees:
    """The guaranteed runtime of jobs: the `min_runtime` of the project, else of the pool, else of the settings.

    After one preemption within a day, at least `preempted_min_runtime` is guaranteed. Each further preemption doubles
    this time, up to `preempted_min_runtime_limit`.
    """

    def __init__(self, policy: Policy) -> None:
        self._after_first = policy.settings.preempted_min_runtime
        self._limit = policy.settings.preempted_min_runtime_limit
        self._default = policy.settings.min_runtime or 0
        self._pools = {pool.name: pool.min_runtime for pool in policy.pools if pool.min_runtime is not None}
        self._projects = {project.name: project.min_runtime for project in policy.projects}

    def runtime(self, project: str, slots: Slots, preemptions: int) -> float:
        """Return the guaranteed seconds from a job's start. For several pools, the longest guarantee counts.

        :param preemptions: preemptions of the job within the day before its start.
        """
        return max(self._min_runtime(project, slots), self._runtime_after(preemptions))

    def _runtime_after(self, preemptions: int) -> float:
        """Return the guaranteed seconds after this number of preemptions within a day."""
        if preemptions < 1:
            return 0.0
        return min(self._after_first * 2.0 ** min(preemptions - 1, MOST_DOUBLINGS), self._limit)

    def _min_runtime(self, project: str, slots: Slots) -> float:
        own = self._projects.get(project)
        if own is not None:
            return own
        return max((self._pools.get(pool, self._default) for pool in slots), default=self._default)

    def ends(self, job: ActiveJob, now: float) -> float:
        """Return the end of a job's guaranteed runtime, in seconds since the epoch. An unknown start counts as now."""
        return (now if job.started is None else job.started) + self._of(job)

    def allow_to_evict(self, job: ActiveJob, now: float) -> bool:
        """Return whether a job may be evicted now, or, for a job that is being launched, once the job runs."""
        if not job.preemptible or job.stop_denied or job.is_kept or job.state is JobState.STOPPING:
            return False
        if job.state is JobState.STARTING:
            return self._of(job) <= 0
        return self.ends(job, now) <= now

    def _of(self, job: ActiveJob) -> float:
        return self.runtime(job.project, job.slots, job.preemptions)


def is_limit_reached(limit: int | None, preempted: int) -> bool:
    """Return whether a job was preempted as often as a limit allows. None: no limit."""
    return limit is not None and preempted >= limit


def preempted_in_all(job: ActiveJob | WaitingJob) -> int:
    """Return how often a job was preempted since its submission."""
    return max(job.preempted_in_all, job.preemptions)


class PreemptionLimits:
    """The limits on preemptions (`max_preemptions`): a job that has reached a limit is not evicted again.

    The policy can have a limit for all jobs or for a project, and a job can have its own, smaller limit. A job that
    has reached only its own limit is planned as not preemptible, so it starts only within its project's quota.
    Otherwise a job could keep slots that other projects are entitled to, just by its tag.
    """

    def __init__(self, policy: Policy) -> None:
        self._default = policy.settings.max_preemptions
        self._projects = {
            project.name: project.max_preemptions for project in policy.projects if project.max_preemptions is not None
        }

    @property
    def any(self) -> bool:
        """Whether the policy limits the preemptions of any job."""
        return self._default is not None or bool(self._projects)

    def is_reached_by_policy(self, job: ActiveJob | WaitingJob) -> bool:
        """Return whether a job was preempted as often as the policy allows."""
        return is_limit_reached(self._projects.get(job.project, self._default), preempted_in_all(job))

    def active(self, job: ActiveJob) -> ActiveJob:
        """Return an active job for planning: not evicted again if it has reached a limit.

        A job that has reached only its own limit is also planned as not preemptible.
        """
        if self.is_reached_by_policy(job):
            return replace(job, is_kept=True)
        return replace(job, is_kept=True, preemptible=False) if has_reached_own_limit(job) else job

    def waiting(self, job: WaitingJob) -> WaitingJob:
        """Return a waiting job for planning: not preemptible if only the job's own limit is reached."""
        if not has_reached_own_limit(job) or self.is_reached_by_policy(job):
            return job
        return replace(job, preemptible=False)


def with_limits_applied(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the effects of `max_preemptions` on its jobs. The function is idempotent."""
    limits = PreemptionLimits(snapshot.policy)
    active, waiting = snapshot.active, snapshot.waiting
    if limits.any or any(job.max_preemptions is not None for job in active):
        active = tuple(map(limits.active, active))
    if any(job.max_preemptions is not None for job in waiting):
        waiting = tuple(map(limits.waiting, waiting))
    unchanged = active is snapshot.active and waiting is snapshot.waiting
    return snapshot if unchanged else replace(snapshot, active=active, waiting=waiting)


def has_reached_own_limit(job: ActiveJob | WaitingJob) -> bool:
    """Return whether a job was preempted as often as its own limit allows."""
    return is_limit_reached(job.max_preemptions, preempted_in_all(job))


@dataclass(eq=False, slots=True)
class Victim:
    """An active job that may be evicted, or a start of this plan that may be withdrawn."""

    name: str
    slots: Slots
    project: ShareNode
    priority: int
    key: VictimKey
    demand: tuple[Slots, ...] = ()  # the alternatives to which the job may migrate
    start: Candidate | None = None  # the candidate, if this is a start of this plan
    launching: bool = False  # whether the job is being launched, and so can be evicted only once it runs
    is_evicted: bool = False  # whether this plan evicts the job, or a claimant counts on its eviction by a later plan

    @property
    def idle(self) -> bool:
        """Whether the job comes first in victim order, regardless of its priority, because its GPUs are idle."""
        return not self.key[0]


class Victims:
    """The jobs of a snapshot that may be evicted, sorted once, by project and pool."""

    def __init__(self, snapshot: Snapshot, tree: ShareTree, guarantees: Guarantees) -> None:
        self.protect_quota = snapshot.policy.settings.protect_project_quota
        idle_after = snapshot.policy.settings.idle_after
        self.all: list[Victim] = []
        self._lists: dict[NodeAndPool, list[Victim]] = defaultdict(list)
        self._head: dict[NodeAndPool, int] = defaultdict(int)
        self._sums: dict[ShareNode, dict[int, dict[str, int]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(int))
        )
        self._heaps: dict[str, list[HeapEntry]] = defaultdict(list)
        for job in snapshot.active:
            if guarantees.allow_to_evict(job, snapshot.now):
                project, key = tree.project(job.project), victim_order(job, snapshot.now, idle_after)
                launching = job.state is JobState.STARTING
                others = same_size_alternatives(job)
                self.all.append(Victim(job.name, job.slots, project, job.priority, key, others, None, launching))
        self.all.sort(key=lambda victim: victim.key)
        for victim in self.all:
            self._count(victim, 1)
            for pool in victim.slots:
                self._lists[victim.project, pool].append(victim)
        self.any_launching = any(victim.launching for victim in self.all)
        for project, pool in self._lists:
            self._push_entry(project, pool)

    def in_pool(self, project: ShareNode, pool: str, launching: bool) -> Iterator[Victim]:
        """Yield the jobs of a project in a pool that may still be evicted, in victim order.

        :param launching: whether to include jobs that are being launched.
        """
        if (project, pool) in self._lists:
            victims = self._lists[project, pool]
            for at in range(self._head[project, pool], len(victims)):
                victim = victims[at]
                if not victim.is_evicted and (launching or not victim.launching):
                    yield victim

    def slots_below(self, project: ShareNode, priority: int, pool: str) -> int:
        """Return the slots of a pool that evictable jobs of lower priority in a project hold.

        The slots of jobs that are being launched are included, although these jobs can be evicted only once they run.
        """
        if project not in self._sums:
            return 0
        return sum(sums[pool] for own, sums in self._sums[project].items() if own < priority and pool in sums)

    def mark_evicted(self, victim: Victim) -> None:
        """Mark a job as evicted, so that no other claimant counts on the job's slots."""
        victim.is_evicted = True
        self._count(victim, -1)

    def unmark_evicted(self, victim: Victim) -> None:
        """Mark a job as not evicted, so that the job may be evicted for another claimant."""
        victim.is_evicted = False
        self._count(victim, 1)
        for pool in victim.slots:
            self._head[victim.project, pool] = 0

    def refresh(self, project: ShareNode) -> None:
        """Enter a project into the heaps again, after a change of its usage. Its older entries are skipped later."""
        for pool in list(project.projected):
            self._push_entry(project, pool)

    def pop(self, pool: str) -> HeapEntry | None:
        """Remove and return the first entry of a pool, by reclaim key, then by next victim; None if none is left."""
        heap = self._heaps[pool]
        while heap:
            entry = heappop(heap)
            if self._make_entry(entry[-1], pool) == entry:
                return entry
        return None

    def push(self, pool: str, entries: list[HeapEntry]) -> None:
        """Put entries that `pop` removed back into the heap of the pool."""
        for entry in entries:
            heappush(self._heaps[pool], entry)

    def _count(self, victim: Victim, sign: int) -> None:
        sums = self._sums[victim.project][victim.priority]
        for pool, count in victim.slots.items():
            sums[pool] += sign * count

    def _push_entry(self, project: ShareNode, pool: str) -> None:
        entry = self._make_entry(project, pool)
        if entry is not None:
            heappush(self._heaps[pool], entry)

    def _make_entry(self, project: ShareNode, pool: str) -> HeapEntry | None:
        place = (project, pool)
        if place not in self._lists:
            return None
        victims, head = self._lists[place], self._head[place]
        while head < len(victims) and victims[head].is_evicted:
            head += 1
        self._head[place] = head
        if head == len(victims):
            return None
        excess = project.projected[pool] - project.entitlement[pool]
        return (reclaim_key(project, excess), victims[head].key, project.policy_index, project)
