"""Free slots that are left to other jobs: in backfill windows, and in pools that other jobs cannot do without.

Backfill windows are free slots reserved for jobs that have waited longer than `patience` (scheduling rules, section 5).
A job behind may pass through a window: if it ends before the patient job could start, or takes nothing of what the
patient job will need then.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from job_queue.scheduler.candidates import NEVER, Candidate
from job_queue.scheduler.fair_share import Bound, counts
from job_queue.scheduler.model import ActiveJob, Backfill, JobState, Slots, Snapshot, above_zero, covers
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


class OnlyPools:
    """Free slots that waiting jobs claim because they can start in no other pool.

    A job that takes these slots although it accepts another pool would be moved away in the next cycle (ADR 0087). The
    claims are found once in each run through the candidates, in waiting order, as far as the slots go.

    :param candidates: the jobs that start as soon as there is room, in waiting order.
    """

    def __init__(self, state: PlanState, candidates: Sequence[Candidate]) -> None:
        self._state = state
        self._claimants: list[Candidate] = []
        self._claims: dict[str, Slots] = {}  # job -> slots, of jobs whose turn is still to come
        self._claimed: Counter[str] = Counter()
        if any(len(it.alternatives) > 1 and len(it.pools) > 1 for it in candidates):
            self._claimants = [it for it in candidates if _needs_a_pool(it)]

    def begin(self) -> None:
        """Begin a run: find the claims anew."""
        self._claims.clear()
        self._claimed.clear()
        left = {pool: self._state.soon(pool) for pool in self._state.free} if self._claimants else {}
        taken: Counter[Place] = Counter()
        hopeless: set[object] = set()  # jobs with the same shape have no better chances
        for job in self._claimants:
            possible = [need for need in job.alternatives if covers(left, need)]
            if not possible or not self._waits(job) or (job.project, job.shape) in hopeless:
                continue
            need = next((need for need in possible if self._is_entitled(job, need, taken)), None)
            if need is None:
                hopeless.add((job.project, job.shape))
                continue
            self._claims[job.name] = need
            self._claimed.update(need)
            for pool, count in need.items():
                left[pool] -= count
                taken.update({(queue, pool): count for queue in job.project.path})

    def end_claim(self, job: Candidate) -> None:
        """Drop the claim of a job whose turn it is: it starts now, or the slots are for others."""
        if job.name in self._claims:
            self._claimed.subtract(self._claims.pop(job.name))

    def leave_room(self, need: Slots) -> bool:
        """Whether a start on these slots takes nothing that is claimed."""
        return all(count <= self._state.soon(pool) - self._claimed[pool] for pool, count in need.items())

    def _waits(self, job: Candidate) -> bool:
        """Whether it waits with nothing set aside for it."""
        state = self._state
        return job.name not in state.settled and job.name not in state.reservations and state.within_group(job)

    def _is_entitled(self, job: Candidate, need: Slots, taken: Counter[Place]) -> bool:
        """Whether it stays within its entitlement, so that others would be moved for it.

        :param taken: what the jobs before it claim.
        """
        return self._state.within_quota(job, need) and all(
            queue.projected[pool] + taken[queue, pool] + count <= queue.entitlement[pool]
            for queue in job.project.path
            for pool, count in need.items()
        )


def _needs_a_pool(job: Candidate) -> bool:
    """Whether all its alternatives have a pool in common, and none of them has been refused."""
    first, *others = job.alternatives
    return not (job.backs_off or job.on_free_slots_only) and any(all(pool in it for it in others) for pool in first)
