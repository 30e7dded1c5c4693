"""Pools that have refused launches: nothing starts there, and nobody is stopped for it, until it is tried again."""

from collections import Counter
from collections.abc import Iterator, Sequence

from job_queue.scheduler.model import Slots, Snapshot, WaitingJob
from job_queue.scheduler.sentences import clock, duration, of_pool, with_verb


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

    def closes(self, job: WaitingJob, need: Slots, *, holder: bool) -> bool:
        """Whether an alternative cannot be tried now.

        After the pause it is tried on free slots only: stopping others buys nothing that SageMaker does not have.

        :param holder: slots are set aside for the job since before; it waits for these.
        """
        if not self._paused:
            return False
        return any(not holder or self._paused[place].until > self._now for place, _, _ in self._closed(job, need))

    def doubted(self, job: WaitingJob, needs: Sequence[Slots]) -> tuple[Slots, ...]:
        """The alternatives that a pool refused: they may be tried, and nobody gives up anything for them."""
        if not self._paused:
            return ()
        return tuple(need for need in needs if self.doubts(need, self._kind(job, need)))

    def doubts(self, need: Slots, kind: str | None = None) -> bool:
        """Whether a pool refused so many."""
        return any(self._concerns(_place(pool, kind), count) for pool, count in need.items())

    def why(self, job: WaitingJob) -> str:
        """When a job that backs off, by itself or with its pools, is tried again."""
        if job.backoff_until is not None and job.backoff_until > self._now:
            return f"Could not be launched just now; is tried again at {self._at(job.backoff_until)}."
        closed = {
            place: (pool, count) for need in reversed(job.demand) for place, pool, count in self._closed(job, need)
        }
        return " ".join(self._sentence(place, *where) for place, where in reversed(closed.items()))

    def _closed(self, job: WaitingJob, need: Slots) -> Iterator[tuple[str, str, int]]:
        """The places that keep an alternative back; of each its pool, and how many instances are asked for."""
        kind = self._kind(job, need)
        for pool, count in need.items():
            place = _place(pool, kind)
            if self._concerns(place, count) and (self._paused[place].until > self._now or count > self._free[pool]):
                yield place, pool, count

    def _kind(self, job: WaitingJob, need: Slots) -> str | None:
        """Of an alternative; one that was added to try it out is of the last."""
        return job.kinds[min(job.demand.index(need), len(job.kinds) - 1)] if job.kinds else None

    def _concerns(self, place: str, count: int) -> bool:
        return place in self._paused and count >= self._paused[place].instances

    def _sentence(self, place: str, pool: str, count: int) -> str:
        paused = self._paused[place]
        kind = of_pool(pool) if place == pool else f" of {place.removeprefix(pool)[1:]}"
        lacking = f"{f'fewer than {paused.instances}' if paused.instances > 1 else 'no'} instances{kind}"
        if paused.until > self._now:
            return f"SageMaker has {lacking} just now; the first in line is tried again at {self._at(paused.until)}."
        return (
            f"SageMaker had {lacking} when it was last asked, so nobody is stopped for it; it is tried again when "
            f"{with_verb(count)} free, and {with_verb(max(0, self._free[pool]))}."
        )

    def _at(self, until: float) -> str:
        return f"{clock(until)}, in {duration(until - self._now)}"


def _place(pool: str, kind: str | None) -> str:
    return f"{pool}/{kind}" if kind else pool
