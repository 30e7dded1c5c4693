"""Place past, running and expected attempts on the lanes of the fleet figure; a lane is one instance of a pool.

SageMaker does not report which machine runs a job. So a lane does not stand for a certain machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from api_contract.history import PastAttempt
from api_contract.models import JobSummary, QueueStatus

RAN, RUNS, GOES_ON, EXPECTED, EXTERNAL = "ran", "runs", "goes on", "expected", "external"
UNKNOWN_LENGTH = timedelta(hours=1)  # drawn length of an expected attempt without a known end
_MARGIN = timedelta(seconds=1)  # a lane counts as free if it becomes free at most this long after the span's start


@dataclass(frozen=True)
class Span:
    """The instances of a pool that one attempt holds for a time."""

    pool: str
    count: int
    start: datetime
    end: datetime
    kind: str
    job: str
    project: str | None = None
    owner: str | None = None
    outcome: str | None = None  # the outcome of a finished attempt
    made_room_for: str | None = None
    is_external: bool = False
    end_is_known: bool = True
    lanes: tuple[int, ...] = ()
    members: tuple[str, ...] | None = None  # the jobs on a shared instance; None: the instance is not shared

    @property
    def label(self) -> str:
        """Text in the bar."""
        return self.job if self.members is None else ", ".join(self.members) or "shared, empty"


def spans(
    status: QueueStatus, past: Iterable[PastAttempt], begin: datetime, now: datetime, until: datetime
) -> list[Span]:
    """Return the spans between ``begin`` and ``until``, with their lanes, numbered from 0."""
    found = [
        span for span in (*_past(past, now), *_present(status, now)) if span.end > begin or span.end_is_known is False
    ]
    free = _Lanes({pool.name: pool.capacity for pool in status.pools})
    placed = [free.place(span) for span in sorted(found, key=lambda span: (span.start, span.job))]
    for start, job in sorted(_expected(status.waiting), key=lambda each: (each[0], each[1].position or 0)):
        if start < until:
            placed.append(free.place(_future(job, max(start, now), free.pool_for(job, start, status))))
    shown = [replace(span, start=max(span.start, begin), end=min(span.end, until)) for span in placed]
    return [part for span in shown for part in _parts(span, now)]


def _parts(span: Span, now: datetime) -> Iterator[Span]:
    """Yield the past part of a running span, and the expected part if the end is known; yield other spans unchanged."""
    if span.kind not in (RUNS, EXTERNAL):
        yield span
        return
    yield replace(span, end=now)
    if span.end_is_known:
        yield replace(span, start=now, kind=GOES_ON)


def _past(past: Iterable[PastAttempt], now: datetime) -> Iterator[Span]:
    past = list(past)
    members = _members((one.carrier, one.job) for one in past)
    for one in past:
        start = one.launched or one.began
        if start is None or one.carrier is not None:
            continue
        for pool, count in one.slots.items():
            yield Span(
                pool,
                count,
                start,
                one.ended or now,
                RAN,
                one.job,
                one.project,
                one.owner,
                one.outcome,
                one.made_room_for,
                members=None if one.carries is None else members.get(one.job, ()),
            )


def _present(status: QueueStatus, now: datetime) -> Iterator[Span]:
    members = _members((job.carrier, job.job) for job in status.active)
    for job in status.active:
        start = job.started or job.state_since or now
        end = job.expected_end
        names = None if job.carries is None else members.get(job.job, ())
        for pool, count in job.slots.items():
            ends, known = max(end, now) if end else now, end is not None
            yield Span(
                pool, count, start, ends, RUNS, job.job, job.project, job.owner, end_is_known=known, members=names
            )
    for other in status.external:
        for pool, count in other.slots.items():
            yield Span(
                pool,
                count,
                other.since or now,
                now,
                EXTERNAL,
                other.training_job_name,
                end_is_known=False,
                is_external=True,
            )


def _members(allocations: Iterable[tuple[str | None, str]]) -> dict[str, tuple[str, ...]]:
    """Return the names of each carrier's members, from pairs of carrier and member. Skip pairs without a carrier."""
    found: dict[str, tuple[str, ...]] = {}
    for carrier, name in allocations:
        if carrier is not None and name not in found.get(carrier, ()):
            found[carrier] = (*found.get(carrier, ()), name)
    return found


def _expected(waiting: Iterable[JobSummary]) -> Iterator[tuple[datetime, JobSummary]]:
    for job in waiting:
        # A job with gpus has no lane of its own: its carrier has one.
        if job.expected_start and job.expected_start.start and job.gpus is None:
            yield job.expected_start.start, job


def _future(job: JobSummary, start: datetime, pool: str) -> Span:
    end = job.expected_end if job.expected_end and job.expected_end > start else None
    ends = end or start + UNKNOWN_LENGTH
    return Span(
        pool, job.instances, start, ends, EXPECTED, job.job, job.project, job.owner, end_is_known=end is not None
    )


@dataclass(frozen=True)
class _Lane:
    """A lane, with the end of its last span."""

    end: datetime | None = None  # None: the lane has no span yet
    end_is_known: bool = True

    def delay(self, start: datetime) -> tuple[timedelta, bool]:
        """Return the time from ``start`` until the lane is free, and whether that time is only a guess."""
        delay = self.end - start if self.end else timedelta()
        return (delay if delay > _MARGIN else timedelta()), not self.end_is_known


_AT_ONCE = (timedelta(), False)  # the delay of a lane that is free


class _Lanes:
    """The lanes of each pool."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self._lanes: dict[str, list[_Lane]] = {pool: [_Lane()] * count for pool, count in capacity.items()}

    def place(self, span: Span) -> Span:
        """Return the span on the free lanes with the lowest numbers, which are then occupied until the span's end.

        A lane whose last span has no known end does not count as free. If too few lanes are free, an expected span
        gets the lanes that probably become free soonest, because its start is only a guess. If the pool has too few
        lanes, lanes are added.
        """
        lanes = self._lanes.setdefault(span.pool, [])
        numbers = range(len(lanes))
        chosen = [number for number in numbers if lanes[number].delay(span.start) == _AT_ONCE]
        if len(chosen) < span.count and span.kind == EXPECTED:
            chosen = sorted(numbers, key=lambda number: (lanes[number].delay(span.start), number))
        chosen = sorted(chosen[: span.count])
        while len(chosen) < span.count:
            chosen.append(len(lanes))
            lanes.append(_Lane())
        for number in chosen:
            previous = lanes[number]
            if previous.end is None or previous.end <= span.end:
                lanes[number] = _Lane(span.end, span.end_is_known)
        return replace(span, lanes=tuple(chosen))

    def pool_for(self, job: JobSummary, start: datetime, status: QueueStatus) -> str:
        """Return the accepted pool in which a waiting job can start soonest; empty if no pool is accepted."""
        fits = [pool.name for pool in status.pools if _accepts(job, pool.name, pool.instance_type)]
        return min(fits or [""], key=lambda pool: self._delay(pool, job.instances, start))

    def _delay(self, pool: str, count: int, start: datetime) -> tuple[timedelta, bool]:
        """Return the time from ``start`` until ``count`` lanes are free, and whether that time is only a guess.

        The time is timedelta.max if the pool is too small.
        """
        delays = sorted(lane.delay(start) for lane in self._lanes.get(pool, []))
        return delays[count - 1] if len(delays) >= count else (timedelta.max, True)


def _accepts(job: JobSummary, pool: str, instance_type: str | None) -> bool:
    if job.pools:
        return pool in job.pools
    return instance_type is None or not job.instance_types or instance_type in job.instance_types


def adjacent_lanes(lanes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the lowest lane and the number of lanes of each group of adjacent lanes."""
    first = 0
    for index in range(1, len(lanes) + 1):
        if index == len(lanes) or lanes[index] != lanes[index - 1] + 1:
            yield lanes[first], index - first
            first = index
