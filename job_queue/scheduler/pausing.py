"""Pools that have refused launches: nothing starts there, and nobody is stopped for it, until it is tried again."""

from collections import Counter

from job_queue.scheduler.model import Slots, Snapshot, WaitingJob
from job_queue.scheduler.sentences import clock, duration, instances, of_pool, with_verb


class Pausing:
    """Which alternatives wait for a pool that could not give the instances."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.now
        self._paused = snapshot.paused
        self._free: Counter[str] = Counter()
        if self._paused:
            self._free.update({pool.name: pool.capacity for pool in snapshot.policy.pools})
            self._free.subtract(snapshot.external)
            for job in snapshot.active:
                self._free.subtract(job.slots)

    def closes(self, need: Slots) -> bool:
        """Whether an alternative cannot be tried now.

        After the pause it is tried on free slots only: stopping others buys nothing that SageMaker does not have.
        """
        return bool(self._paused) and any(self._is_closed(pool, count) for pool, count in need.items())

    def doubts(self, need: Slots) -> bool:
        """Whether a pool refused so many: nobody who has instances gives them up for such."""
        return any(self._concerns(pool, count) for pool, count in need.items())

    def why(self, job: WaitingJob) -> str:
        """When a job that backs off, by itself or with its pools, is tried again."""
        if job.backoff_until is not None and job.backoff_until > self._now:
            return f"Could not be launched just now; is tried again at {self._at(job.backoff_until)}."
        asked: dict[str, int] = {}
        for need in job.demand:
            asked |= {pool: max(count, asked.get(pool, 0)) for pool, count in need.items()}
        return " ".join(self._sentence(pool, count) for pool, count in asked.items() if self._is_closed(pool, count))

    def _is_closed(self, pool: str, count: int) -> bool:
        if not self._concerns(pool, count):
            return False
        return self._paused[pool].until > self._now or count > self._free[pool]

    def _concerns(self, pool: str, count: int) -> bool:
        return pool in self._paused and count >= self._paused[pool].instances

    def _sentence(self, pool: str, count: int) -> str:
        paused = self._paused[pool]
        count_of = f"fewer than {paused.instances}" if paused.instances > 1 else "no"
        lacking = f"{count_of} instances{of_pool(pool)}"
        if paused.until > self._now:
            return f"SageMaker has {lacking} just now; the first in line is tried again at {self._at(paused.until)}."
        return (
            f"SageMaker had {lacking} when it was last asked, so nobody is stopped for it; "
            f"it is tried again when {instances(count, pool)} {'is' if count == 1 else 'are'} free, and "
            f"{with_verb(max(0, self._free[pool]))}."
        )

    def _at(self, until: float) -> str:
        return f"{clock(until)}, in {duration(until - self._now)}"
