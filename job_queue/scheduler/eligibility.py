"""Who can be served at all, whatever is free; and what everybody asks for."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from job_queue.scheduler.decisions import Reason
from job_queue.scheduler.model import ActiveJob, JobState, Policy, Pool, Slots, Snapshot, WaitingJob
from job_queue.scheduler.ordering import LineKey, line_order
from job_queue.scheduler.pausing import Pausing

NO_POOLS: Mapping[str, Pool] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A waiting job that starts as soon as there is room for one of its alternatives."""

    name: str
    job: WaitingJob
    alternatives: tuple[Slots, ...]  # those that its pools could ever hold, best first
    key: LineKey  # its place in its project's line
    patient: bool  # has waited longer than `patience`
    shape: tuple[Any, ...]  # who has the same shape and no higher priority has no better chances
    pools: frozenset[str]  # every pool in which it could run
    doubted: tuple[Slots, ...] = ()  # those alternatives that are tried on free slots only
    paused: bool = False  # it keeps what is set aside for it, and does not start


def sort_out(snapshot: Snapshot) -> tuple[list[Candidate], dict[str, Reason]]:
    """The candidates, in line order, and why each other waiting job is none.

    A job that waits for a pause to end and has slots set aside is both: it keeps them.
    """
    candidates: list[Candidate] = []
    refused: dict[str, Reason] = {}
    allowed = PoolsOfProjects(snapshot.policy)
    settings = snapshot.policy.settings
    holders = _holders(snapshot)
    pausing = Pausing(snapshot)
    shapes = _Shapes()
    for job in snapshot.waiting:
        verdict = _judge(job, snapshot.now, allowed[job.project])
        if isinstance(verdict, Reason):
            refused[job.name] = verdict
            continue
        holder = job.name if job.name in holders else None
        open_now = tuple(need for need in verdict if not pausing.closes(job, need, holder=holder is not None))
        if not open_now:
            refused[job.name] = Reason.BACKOFF
            if holder is None:
                continue
        alternatives = open_now or verdict
        patient = settings.patience is not None and snapshot.now - job.entered > settings.patience
        demand, pools = shapes.of(alternatives)
        doubted = pausing.doubted(job, alternatives)
        sure = tuple(need not in doubted for need in alternatives) if doubted else None
        shape = (job.project, job.preemptible, demand, sure, patient, job.max_runtime, holder)
        key = line_order(job, snapshot.now, settings.aging)
        candidates.append(Candidate(job.name, job, alternatives, key, patient, shape, pools, doubted, not open_now))
    candidates.sort(key=lambda candidate: candidate.key)
    return candidates, refused


def requests(snapshot: Snapshot, candidates: Iterable[Candidate]) -> dict[str, Counter[str]]:
    """What each project's live jobs ask for: each, in every pool it could run in, its largest alternative there."""
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    allowed = PoolsOfProjects(snapshot.policy)
    for candidate in candidates:
        _ask(asked[candidate.job.project], candidate.alternatives)
    for job in snapshot.active:
        if job.state is JobState.STOPPING and not makes_room(job):
            continue  # it will not come back
        pools = allowed[job.project]
        _ask(asked[job.project], [job.slots, *(need for need in job.demand if _fits(need, pools))])
    return asked


def makes_room(job: ActiveJob) -> bool:
    """Whether a stopping job will wait again."""
    return job.comes_back or job.reserved_for is not None


class PoolsOfProjects(dict[str, Mapping[str, Pool]]):
    """Project -> the pools that its jobs may use, by name."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._allowed = {project.name: project.pools for project in policy.projects}
        self._pools = {pool.name: pool for pool in policy.pools}

    def __missing__(self, project: str) -> Mapping[str, Pool]:
        if project not in self._allowed:
            self[project] = NO_POOLS
        elif allowed := self._allowed[project]:
            self[project] = {name: pool for name, pool in self._pools.items() if name in allowed}
        else:
            self[project] = self._pools
        return self[project]


def _judge(job: WaitingJob, now: float, pools: Mapping[str, Pool]) -> tuple[Slots, ...] | Reason:
    if job.held:
        return Reason.HELD_BY_USER
    if job.backoff_until is not None and job.backoff_until > now:
        return Reason.BACKOFF
    known = [need for need in job.demand if need and all(pool in pools for pool in need)]
    if not known:
        return Reason.NO_SUCH_POOL
    return tuple(need for need in known if _fits(need, pools)) or Reason.NEVER_FITS


def _fits(need: Slots, pools: Mapping[str, Pool]) -> bool:
    return all(pool in pools and count <= pools[pool].capacity for pool, count in need.items())


def _ask(asked: Counter[str], alternatives: Iterable[Slots]) -> None:
    largest: dict[str, int] = {}
    for need in alternatives:
        for pool, count in need.items():
            if count > largest.get(pool, 0):
                largest[pool] = count
    for pool, count in largest.items():
        asked[pool] += count


def _holders(snapshot: Snapshot) -> set[str]:
    return {*snapshot.reserved, *(job.reserved_for for job in snapshot.active if job.reserved_for is not None)}


class _Shapes:
    """Equal demands, seen once: their key and their pools."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], frozenset[str]] = {}

    def of(self, alternatives: tuple[Slots, ...]) -> tuple[tuple[Any, ...], frozenset[str]]:
        key = tuple(tuple(need.items()) if len(need) == 1 else tuple(sorted(need.items())) for need in alternatives)
        if key not in self._known:
            self._known[key] = frozenset(pool for need in alternatives for pool in need)
        return key, self._known[key]
