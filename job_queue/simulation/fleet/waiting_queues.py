"""The waiting queues in simulated time, and the jobs that a plan reads of them."""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import replace
from heapq import nsmallest

from job_queue.scheduler import Group, Order, Settings, WaitingJob, group_of, waiting_order

_Place = tuple[int, float, str]
"""The place of a job in its waiting queue: inverted priority, submission, name."""

_Queue = tuple[str, bool, tuple[frozenset[str], ...], Group | None, int | None]
"""The key of a waiting queue: project, whether jobs are interactive, pools of each alternative, group, `max_parallel`.

Here, a group with `max_parallel` has its own waiting queue, so that its jobs take no places of other jobs. The real
queue parks the jobs of a full group instead."""


class WaitingQueues:
    """The waiting jobs by waiting queue, in the order in which the queue reads them: by priority and submission."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: dict[str, WaitingJob] = {}
        self._queues: dict[_Queue, list[_Place]] = defaultdict(list)

    def enter(self, job: WaitingJob) -> None:
        """Add a job. The caller must not add a job twice."""
        self._jobs[job.name] = job
        insort(self._queues[_queue(job)], _place(job))

    def remove(self, name: str) -> None:
        """Remove a job."""
        job = self._jobs.pop(name)
        places = self._queues[_queue(job)]
        del places[bisect_left(places, _place(job))]

    def read(self, now: float, enough: int) -> tuple[list[WaitingJob], bool]:
        """Return the waiting jobs that the queue would read, and whether some were left out.

        The queue reads at most `settings.window` jobs of each waiting queue, the first by priority and submission.

        :param enough: the largest number of jobs to return of one waiting queue. If the queue would read more, the
            first jobs in serving order are returned. For a group, `max_parallel` takes the place of `enough`.
        """
        found: list[WaitingJob] = []
        cut = False
        for (*_, max_parallel), places in self._queues.items():
            most = enough if max_parallel is None else min(max_parallel, self._settings.window)
            if len(places) <= most:
                found += [self._jobs[name] for *_, name in places]
                continue
            cut = True
            read = [self._jobs[name] for *_, name in places[: self._settings.window]]
            first, *others = read[:most] if self._is_in_order(read) else self._first(read, most, now)
            found += [replace(first, more_wait=max_parallel is None), *others]
        return found, cut

    def _is_in_order(self, jobs: list[WaitingJob]) -> bool:
        """Return whether the order of reading is the serving order."""
        settings = self._settings
        return settings.order is Order.SUBMISSION and not settings.aging and not any(job.warm for job in jobs)

    def _first(self, read: list[WaitingJob], enough: int, now: float) -> list[WaitingJob]:
        """Return the first `enough` jobs in serving order. If there are no more jobs, return them as they were read."""
        if len(read) <= enough:
            return read
        return nsmallest(enough, read, key=lambda job: waiting_order(job, now, self._settings))


def _queue(job: WaitingJob) -> _Queue:
    group = None if job.max_parallel is None else group_of(job)
    return job.project, job.interactive, tuple(map(frozenset, job.demand)), group, job.max_parallel


def _place(job: WaitingJob) -> _Place:
    return -job.priority, job.entered, job.name
