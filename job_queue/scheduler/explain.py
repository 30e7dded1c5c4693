"""Why each job waits: a reason, and a sentence with the figures, for whoever looks at the queue at night."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from job_queue.scheduler.decisions import Evict, Hold, Reason, Start
from job_queue.scheduler.eligibility import Candidate, pools_of_project
from job_queue.scheduler.ledger import Ledger, covers
from job_queue.scheduler.model import ActiveJob, JobState, Slots, Snapshot, WaitingJob
from job_queue.scheduler.ordering import line_order, victim_order
from job_queue.scheduler.sentences import clock, demand, duration, join, of_pool, with_verb
from job_queue.scheduler.victims import Guarantees

AHEAD = 20  # how many of the jobs ahead a hold names

_Pools = frozenset[str]


def explain(
    snapshot: Snapshot,
    line: Sequence[Candidate],
    refused: Mapping[str, Reason],
    *,
    ledger: Ledger,
    starts: Sequence[Start],
    evictions: Sequence[Evict],
) -> tuple[Hold, ...]:
    """A hold for each waiting job that does not start, in the order in which they are served.

    :param line: the jobs that start as soon as there is room.
    :param refused: jobs that cannot be served whatever is free, and why.
    :param ledger: the slots as they are after the plan's decisions.
    """
    candidates = {candidate.name: candidate for candidate in line}
    started = {start.job for start in starts}
    scene = _Scene(snapshot, ledger, starts, evictions)
    everyone, by_project = _Lacking(), defaultdict[str, _Lacking](_Lacking)
    holds: list[Hold] = []
    for job in sorted(snapshot.waiting, key=line_order):
        if job.name in started:
            continue
        if job.name in refused:
            holds.append(Hold(job.name, refused[job.name], _refusal(snapshot, job, refused[job.name])))
            continue
        candidate = candidates[job.name]
        pools, own = candidate.pools, by_project[job.project]
        reason, message = scene.explanation(candidate, own)
        ahead = tuple(other.name for other in everyone.first(pools))
        holds.append(Hold(job.name, reason, message, ahead, scene.blockers(pools)))
        everyone.add(job, pools)
        own.add(job, pools)
    return tuple(holds)


def _refusal(snapshot: Snapshot, job: WaitingJob, reason: Reason) -> str:
    pools = pools_of_project(snapshot.policy, job.project)
    if reason is Reason.HELD_BY_USER:
        return "Is held: it keeps its place in the line and starts only once it is released."
    if reason is Reason.BACKOFF:
        until = job.backoff_until or snapshot.now
        return f"Could not be launched just now; is tried again at {clock(until)}, in {duration(until - snapshot.now)}."
    if reason is Reason.NO_SUCH_POOL:
        unknown = sorted({pool for need in job.demand for pool in need} - pools.keys())
        asked = f"Asks for {join(unknown)}" if unknown else "Asks for no instances"
        return f"{asked}, but the pools that its project may use are {join(sorted(pools)) or 'none'}."
    sizes = join([f"{pools[pool].capacity}{of_pool(pool)}" for pool in _pools_in_order(job.demand) if pool in pools])
    return f"Needs {demand(job.demand)}, and there are only {sizes} in all: it can never start."


class _Lacking:
    """The jobs seen so far that lack slots, by the pools they want."""

    def __init__(self) -> None:
        self._jobs: dict[_Pools, list[WaitingJob]] = defaultdict(list)

    def add(self, job: WaitingJob, pools: _Pools) -> None:
        """Enter a job; they come in the order of the line."""
        self._jobs[pools].append(job)

    def first(self, pools: _Pools) -> list[WaitingJob]:
        """The first of those that want one of these pools, at most AHEAD."""
        found = [job for wanted, jobs in self._jobs.items() if wanted & pools for job in jobs[:AHEAD]]
        return sorted(found, key=line_order)[:AHEAD]

    def count(self, pools: _Pools) -> int:
        """How many want one of these pools."""
        return sum(len(jobs) for wanted, jobs in self._jobs.items() if wanted & pools)


@dataclass(frozen=True, slots=True)
class _User:
    """A job that holds slots of a pool once the plan is carried out."""

    place: tuple[int, float, str]  # in the order in which jobs are served
    count: int
    leaving: bool

    @property
    def name(self) -> str:
        return self.place[-1]

    def __str__(self) -> str:
        return f"{self.name} (priority {-self.place[0]})"


class _Scene:
    """The pools as the plan leaves them, and sentences about them."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, starts: Sequence[Start], evictions: Sequence[Evict]) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._guarantees = Guarantees(snapshot.policy)
        self._capacity = {pool.name: pool.capacity for pool in snapshot.policy.pools}
        self._evicted = {eviction.job for eviction in evictions}
        self._users: dict[str, list[_User]] = defaultdict(list)
        self._holders: dict[str, list[str]] = defaultdict(list)  # pool -> who has slots set aside there
        self._blockers: dict[_Pools, tuple[str, ...]] = {}
        self._figures: dict[str, str] = {}
        waiting = {job.name: job for job in snapshot.waiting}
        for job in snapshot.active:
            self._enter((-job.priority, job.entered, job.name), job.slots, leaving=self._is_leaving(job))
        for start in starts:
            self._enter(line_order(waiting[start.job]), start.slots, leaving=False)
        for users in self._users.values():
            users.sort(key=lambda user: user.place)
        for name in sorted(ledger.claims, key=lambda name: line_order(waiting[name])):
            for pool in ledger.claims[name]:
                self._holders[pool].append(name)

    def blockers(self, pools: _Pools) -> tuple[str, ...]:
        """Who holds slots of these pools, in the order in which jobs are served."""
        if pools not in self._blockers:
            places = {user.place for pool in pools for user in self._users[pool]}
            self._blockers[pools] = tuple(place[-1] for place in sorted(places))
        return self._blockers[pools]

    def explanation(self, candidate: Candidate, ahead: _Lacking) -> tuple[Reason, str]:
        """Why a job waits that starts as soon as there is room.

        :param ahead: the jobs of its project that come first and lack slots, too.
        """
        job, pools = candidate.job, _pools_in_order(candidate.alternatives)
        figures = [(f"{pool}: " if len(pools) > 1 else "") + self._figures_of(pool) for pool in pools]
        needs = f"needs {demand(candidate.alternatives)}; {'; '.join(figures)}"
        if job.name in self._ledger.claims:
            return Reason.WAITING_FOR_STOPPING, f"{self._set_aside(candidate)} It {needs}."
        if first := ahead.first(candidate.pools)[:1]:
            others = ahead.count(candidate.pools) - 1
            rest = f" and {others} more" if others else ""
            behind = f"Waits behind {first[0].name} (priority {first[0].priority}){rest}"
            lack = "which lack" if others else "which lacks"
            return Reason.BEHIND_HIGHER_PRIORITY, f"{behind}, {lack} slots, too. It {needs}."
        return Reason.WAITING_FOR_CAPACITY, f"N{needs[1:]}. {self._why_nobody_leaves(candidate)}"

    # --- the parts of a sentence ------------------------------------------------------------------

    def _figures_of(self, pool: str) -> str:
        """`1 of 4 is free, 2 are used by a (priority 5) and b (priority 3), 1 by jobs outside the queue`."""
        if pool not in self._figures:
            free = max(0, self._ledger.free[pool])
            parts = [f"{free} of {self._capacity.get(pool, 0)} {'is' if free == 1 else 'are'} free"]
            aside = free - max(0, min(free, self._ledger.soon(pool, "")))
            if aside:
                parts[0] += f" ({aside} set aside for {join(self._holders[pool])})"
            if staying := [user for user in self._users[pool] if not user.leaving]:
                parts.append(f"{_count(staying)} used by {join(list(map(str, staying)))}")
            if external := self._snapshot.external.get(pool, 0):
                parts.append(f"{external if staying else f'{with_verb(external)} used'} by jobs outside the queue")
            if leaving := [user for user in self._users[pool] if user.leaving]:
                parts.append(f"{_count(leaving)} being freed by {join(list(map(str, leaving)))}")
            self._figures[pool] = ", ".join(parts)
        return self._figures[pool]

    def _set_aside(self, candidate: Candidate) -> str:
        """What is set aside for a job and what it waits for."""
        claim = self._ledger.claims[candidate.name]
        aside = f"{demand([claim]).capitalize()} {'is' if sum(claim.values()) == 1 else 'are'} set aside for it"
        leaving = sorted({user.place: user for pool in claim for user in self._users[pool] if user.leaving}.items())
        if any(covers(claim, need) for need in candidate.alternatives):
            gone = join([str(user) for _, user in leaving])
            return f"{aside}; it starts when {gone} {'has' if len(leaving) == 1 else 'have'} stopped."
        return f"{aside}; the rest is held by lower priorities that cannot be stopped yet."

    def _why_nobody_leaves(self, candidate: Candidate) -> str:
        """Why no active job makes room for this one."""
        job = candidate.job
        lower = [
            active
            for active in sorted(self._snapshot.active, key=lambda active: victim_order(active, self._snapshot.now))
            if active.project == job.project
            and active.priority < job.priority
            and active.slots.keys() & candidate.pools
            and not self._is_leaving(active)
        ]
        if not lower:
            return f"No job of its project there has a lower priority than {job.priority}."
        why: dict[str, list[str]] = defaultdict(list)
        for active in lower:
            why[self._protection(active)].append(active.name)
        stay = [f"{join(names)} ({protection})" for protection, names in why.items()]
        return f"Of lower priority there: {'; '.join(stay)}."

    def _protection(self, active: ActiveJob) -> str:
        """Why a job of lower priority stays."""
        if not active.preemptible:
            return "may not be stopped"
        if active.state is JobState.STARTING:
            return "still being launched"
        until = self._guarantees.ends(active, self._snapshot.now)
        if until > self._snapshot.now:
            return f"guaranteed to run until {clock(until)}"
        return "stopping all that may be stopped would not free enough"

    def _enter(self, place: tuple[int, float, str], slots: Slots, *, leaving: bool) -> None:
        for pool, count in slots.items():
            self._users[pool].append(_User(place, count, leaving))

    def _is_leaving(self, job: ActiveJob) -> bool:
        return job.state is JobState.STOPPING or job.name in self._evicted


def _count(users: list[_User]) -> str:
    return with_verb(sum(user.count for user in users))


def _pools_in_order(alternatives: Sequence[Slots]) -> list[str]:
    return list(dict.fromkeys(pool for need in alternatives for pool in need))
