"""Slots kept for jobs that have waited longer than `patience`, and who may pass them (scheduling rules, section 5)."""

from collections import defaultdict
from dataclasses import dataclass

from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.ledger import Ledger
from job_queue.scheduler.model import JobState, Slots, Snapshot
from job_queue.scheduler.queues import Counts, Queue

NEVER = float("inf")


@dataclass(slots=True)
class Wait:
    """What a patient job waits for."""

    pools: frozenset[str]
    until: float  # when it could start at the latest guess that nobody gains from: unknown runtimes end at once
    spare: Counts  # slots that it will not need then: unknown runtimes do not end


class Patience:
    """Keeps free slots for patient jobs while a pass goes on."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self._now = snapshot.now
        self._ledger = ledger
        self._waits: dict[str, Wait] = {}
        self._kept: dict[tuple[Queue, str], int] = defaultdict(int)
        self._ends: dict[str, list[tuple[float, float, int]]] = defaultdict(list)  # earliest and latest end, slots
        for job in snapshot.active:
            if job.state is JobState.STOPPING:
                earliest = latest = snapshot.now
            elif job.max_runtime is None:
                earliest, latest = snapshot.now, NEVER
            else:
                began = snapshot.now if job.started is None else job.started
                earliest = latest = max(snapshot.now, began + job.max_runtime)
            for pool, count in job.slots.items():
                self._ends[pool].append((earliest, latest, count))
        for ends in self._ends.values():
            ends.sort()

    def begin(self) -> None:
        """Begin a pass: nothing is kept for anybody."""
        self._waits.clear()
        self._kept.clear()
        self._ledger.keep_nothing()

    def keep(self, candidate: Candidate, project: Queue) -> bool:
        """Keep for a blocked patient job what is free and within its entitlement; False: there is nothing.

        A job is kept slots for if it lacks nothing but slots and its demand fits in what its project and its
        department are due.
        """
        for need in candidate.alternatives:
            if not self._may_be_kept(need, candidate, project):
                continue
            kept = {pool: self._free_for(candidate, project, pool, count) for pool, count in need.items()}
            kept = {pool: count for pool, count in kept.items() if count > 0}
            if kept:
                self._ledger.keep_no_longer(candidate.name)
                self._ledger.keep(candidate.name, kept)
                self._waits[candidate.name] = self._wait(need, frozenset(kept))
                for pool, count in kept.items():
                    for queue in project.path:
                        self._kept[queue, pool] += count
                return True
        return False

    def may_pass(self, candidate: Candidate, need: Slots) -> bool:
        """Whether a job may start on slots kept for others: it is gone, or not in the way, when they could start."""
        ends = self._end(candidate)
        for name, wait in self._waits.items():
            if name == candidate.name or name not in self._ledger.kept or not need.keys() & wait.pools:
                continue
            in_the_way = any(wait.spare[pool] < count for pool, count in need.items() if pool in wait.pools)
            if ends > wait.until and in_the_way:
                return False
        return True

    def started(self, candidate: Candidate, need: Slots, sign: int = 1) -> None:
        """A job starts: it may be in the way of those for whom slots are kept."""
        ends = self._end(candidate)
        for wait in self._waits.values():
            if ends > wait.until:
                for pool, count in need.items():
                    wait.spare[pool] -= sign * count

    def _end(self, candidate: Candidate) -> float:
        return NEVER if candidate.job.max_runtime is None else self._now + candidate.job.max_runtime

    def _may_be_kept(self, need: Slots, candidate: Candidate, project: Queue) -> bool:
        for queue in project.path:
            for pool, count in need.items():
                if count > queue.entitlement[pool] or count > queue.room(pool):
                    return False
                if not candidate.job.preemptible and queue.fixed[pool] + count > queue.quota.get(pool, 0):
                    return False
        return True

    def _free_for(self, candidate: Candidate, project: Queue, pool: str, count: int) -> int:
        due = min(queue.entitlement[pool] - queue.held[pool] - self._kept[queue, pool] for queue in project.path)
        return min(count, self._ledger.now(pool, candidate.name), due)

    def _wait(self, need: Slots, pools: frozenset[str]) -> Wait:
        until = max(self._earliest(pool, count) for pool, count in need.items())
        spare: Counts = defaultdict(int)
        for pool, count in need.items():
            gone = sum(slots for _, latest, slots in self._ends[pool] if latest <= until)
            spare[pool] = self._ledger.free[pool] + gone - count
        return Wait(pools, until, spare)

    def _earliest(self, pool: str, count: int) -> float:
        free = self._ledger.free[pool]
        for earliest, _, slots in self._ends[pool]:
            if free >= count:
                break
            free += slots
            if free >= count:
                return earliest
        return self._now if free >= count else NEVER
