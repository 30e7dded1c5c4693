"""Backfill windows: free slots reserved for jobs that have waited longer than `patience` (scheduling rules, section 5).

A job behind may pass through a window: if it ends before the patient job could start, or takes nothing of what the
patient job will need then.
"""

from collections import Counter, defaultdict

from job_queue.scheduler.candidates import NEVER, Candidate
from job_queue.scheduler.fair_share import Bound, counts
from job_queue.scheduler.model import ActiveJob, Backfill, JobState, Slots, Snapshot, above_zero
from job_queue.scheduler.plan_state import PlanState, Window
from job_queue.scheduler.victims import Place


class BackfillWindows:
    """Opens windows while a run through the candidates goes on, and tells who may pass."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._now = snapshot.now
        self._state = state
        self._reserved: Counter[Place] = Counter()  # in all windows that this run has opened
        self._ends: dict[str, list[tuple[float, float, int]]] = defaultdict(list)  # earliest and latest end, slots
        self._predicted = snapshot.policy.settings.backfill is Backfill.PREDICTED
        for job in snapshot.active:
            earliest, latest = self._when_ends(job)
            for pool, count in job.slots.items():
                self._ends[pool].append((earliest, latest, count))
        for ends in self._ends.values():
            ends.sort()

    def _when_ends(self, job: ActiveJob) -> tuple[float, float]:
        """When an active job may end: at the earliest and at the latest; as predicted both are the same."""
        if job.state is JobState.STOPPING:
            return self._now, self._now
        known = job.max_runtime
        if self._predicted and job.expected is not None:
            known = job.expected if known is None else min(known, job.expected)
        if known is None:
            return (NEVER if self._predicted else self._now), NEVER
        end = max(self._now, (self._now if job.started is None else job.started) + known)
        return end, end

    def begin(self) -> None:
        """Begin a run: there is no window."""
        self._reserved.clear()
        self._state.close_windows()

    def open(self, candidate: Candidate) -> bool:
        """Reserve for a blocked patient job what is free and within its entitlement; False: there is nothing.

        Of one that accepts several sizes, for the smallest, with which it will start.
        """
        for need in candidate.smallest():
            if not self._may_be_reserved(need, candidate):
                continue
            slots = above_zero({pool: self._free_for(candidate, pool, count) for pool, count in need.items()})
            if slots:
                window = self._window(need, slots)
                if self._predicted and window.starts == NEVER:
                    return False  # nobody knows when it could start: nothing stands idle for it meanwhile
                self._state.open_window(candidate, window)
                for pool, count in slots.items():
                    for queue in candidate.project.path:
                        self._reserved[queue, pool] += count
                return True
        return False

    def may_pass(self, candidate: Candidate, need: Slots) -> bool:
        """Whether a job may start on slots in the windows of others."""
        ends = self._end(candidate)
        for name, window in self._state.windows.items():
            in_the_way = any(window.spare[pool] < count for pool, count in need.items() if pool in window.slots)
            if name != candidate.name and ends > window.starts and in_the_way:
                return False
        return True

    def started(self, candidate: Candidate, need: Slots) -> None:
        """A job starts: what it still holds when a window's job could start is not spare."""
        ends = self._end(candidate)
        for window in self._state.windows.values():
            if ends > window.starts:
                for pool, count in need.items():
                    window.spare[pool] -= count

    def _end(self, candidate: Candidate) -> float:
        """When it will have ended, in seconds since the epoch, if it starts now."""
        return self._now + candidate.runs

    def _may_be_reserved(self, need: Slots, candidate: Candidate) -> bool:
        """Whether nothing but slots keeps it from starting, and all of its demand is within its entitlement."""
        path, state = candidate.project.path, self._state
        if any(count > queue.entitlement[pool] for queue in path for pool, count in need.items()):
            return False
        return state.fits(candidate, need, Bound.LIMIT) and state.within_quota(candidate, need)

    def _free_for(self, candidate: Candidate, pool: str, count: int) -> int:
        due = min(
            queue.entitlement[pool] - queue.projected[pool] - self._reserved[queue, pool]
            for queue in candidate.project.path
        )
        return min(count, self._state.now(pool, candidate.name), due)

    def _window(self, need: Slots, slots: Slots) -> Window:
        starts = max(self._earliest(pool, count) for pool, count in need.items())
        spare = counts()
        for pool, count in need.items():
            gone = sum(slots for _, latest, slots in self._ends[pool] if latest <= starts)
            spare[pool] = self._state.free[pool] + gone - count
        return Window(slots, starts, spare)

    def _earliest(self, pool: str, count: int) -> float:
        """When so many slots of a pool can be free at the earliest, in seconds since the epoch."""
        free = self._state.free[pool]
        if free >= count:
            return self._now
        for earliest, _, slots in self._ends[pool]:
            free += slots
            if free >= count:
                return earliest
        return NEVER
