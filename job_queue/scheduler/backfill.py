"""Keep free slots for other jobs: backfill windows of patient jobs, and claims of jobs that have only one pool.

A patient job has waited longer than `patience`. The backfill window of a patient job is a number of free slots that are
kept for the job. A later job may start on slots of the window in two cases: the later job ends before the patient job
could start, or takes only slots that the patient job will not need at its start.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from job_queue.scheduler.candidates import NEVER, Candidate
from job_queue.scheduler.documents.policy_schema import Backfill
from job_queue.scheduler.fair_share import Bound, no_counts
from job_queue.scheduler.model import ActiveJob, JobState, Slots, Snapshot, above_zero, covers
from job_queue.scheduler.plan_state import PlanState, Window
from job_queue.scheduler.victims import NodeAndPool


class BackfillWindows:
    """The backfill windows of one pass over the candidates, and the check whether a later job may use their slots."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._now = snapshot.now
        self._state = state
        self._reserved: Counter[NodeAndPool] = Counter()  # slots in all windows of this pass
        # pool -> earliest end, latest end, slots
        self._ends: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
        self._predicted = snapshot.policy.settings.backfill is Backfill.PREDICTED
        for job in snapshot.active:
            earliest, latest = self._end_bounds(job)
            for pool, count in job.slots.items():
                self._ends[pool].append((earliest, latest, count))
        for ends in self._ends.values():
            ends.sort()

    def _end_bounds(self, job: ActiveJob) -> tuple[float, float]:
        """Return the earliest and the latest end of an active job, in epoch seconds.

        Both are equal if the runtime is known. A job of unknown runtime ends now at the earliest, and never at the
        latest. With the setting `backfill: predicted`, such a job counts as never ending.
        """
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
        """Begin a pass: close all windows of the previous pass."""
        self._reserved.clear()
        self._state.close_windows()

    def try_open(self, candidate: Candidate) -> bool:
        """Open a window for a patient job that cannot start yet. Return False if no slots can be kept for this job.

        The window is within the entitlement of the job's project and department. If the job accepts several sizes, the
        window is for the smallest size.
        """
        for need in candidate.smallest_alternatives():
            if not self._may_be_reserved(need, candidate):
                continue
            slots = above_zero({pool: self._slots_to_keep(candidate, pool, count) for pool, count in need.items()})
            if slots:
                window = self._make_window(need, slots)
                if self._predicted and window.earliest_start == NEVER:
                    return False  # the earliest start of the job is not known, so no slots are kept idle
                self._state.open_window(candidate, window)
                for pool, count in slots.items():
                    for node in candidate.project.path:
                        self._reserved[node, pool] += count
                return True
        return False

    def may_pass(self, candidate: Candidate, need: Slots) -> bool:
        """Return whether a job may start on slots in the windows of other jobs."""
        ends = self._end_time(candidate)
        for name, window in self._state.windows.items():
            in_the_way = any(window.spare[pool] < count for pool, count in need.items() if pool in window.slots)
            if name != candidate.name and ends > window.earliest_start and in_the_way:
                return False
        return True

    def record_start(self, candidate: Candidate, need: Slots) -> None:
        """Deduct the slots of a starting job from the spare slots of windows.

        A window is affected if its patient job can start before the starting job ends.
        """
        ends = self._end_time(candidate)
        for window in self._state.windows.values():
            if ends > window.earliest_start:
                for pool, count in need.items():
                    window.spare[pool] -= count

    def _end_time(self, candidate: Candidate) -> float:
        """Return the assumed end of a candidate if the job starts now, in seconds since the epoch."""
        return self._now + candidate.assumed_runtime

    def _may_be_reserved(self, need: Slots, candidate: Candidate) -> bool:
        """Return whether only free slots are missing, and project and department are entitled to the whole demand."""
        path, state = candidate.project.path, self._state
        if any(count > node.entitlement[pool] for node in path for pool, count in need.items()):
            return False
        return state.fits(candidate, need, Bound.LIMIT) and state.within_quota(candidate, need)

    def _slots_to_keep(self, candidate: Candidate, pool: str, count: int) -> int:
        due = min(
            node.entitlement[pool] - node.projected[pool] - self._reserved[node, pool]
            for node in candidate.project.path
        )
        return min(count, self._state.available_now(pool, candidate.name), due)

    def _make_window(self, need: Slots, slots: Slots) -> Window:
        starts = max(self._earliest_free(pool, count) for pool, count in need.items())
        spare = no_counts()
        for pool, count in need.items():
            gone = sum(slots for _, latest, slots in self._ends[pool] if latest <= starts)
            spare[pool] = self._state.free[pool] + gone - count
        return Window(slots, starts, spare)

    def _earliest_free(self, pool: str, count: int) -> float:
        """Return the earliest time at which `count` slots of a pool can be free, in seconds since the epoch."""
        free = self._state.free[pool]
        if free >= count:
            return self._now
        for earliest, _, slots in self._ends[pool]:
            free += slots
            if free >= count:
                return earliest
        return NEVER


class OnlyPoolClaims:
    """Claims on slots, free or being freed, by waiting jobs that can start in no other pool.

    If a job that also accepts another pool took these slots, the next cycle would move it to its other pool (ADR 0087).
    The claims are computed once in each pass over the candidates, in waiting order, while slots are left.

    :param candidates: the jobs that start as soon as there is room, in waiting order.
    """

    def __init__(self, state: PlanState, candidates: Sequence[Candidate]) -> None:
        self._state = state
        self._claimants: list[Candidate] = []
        self._claims: dict[str, Slots] = {}  # job -> slots, for jobs that this pass has not tried yet
        self._claimed: Counter[str] = Counter()
        if any(len(it.alternatives) > 1 and len(it.pools) > 1 for it in candidates):
            self._claimants = [it for it in candidates if _has_only_pool(it)]

    def begin(self) -> None:
        """Begin a pass: compute the claims again."""
        self._claims.clear()
        self._claimed.clear()
        left = {pool: self._state.available_soon(pool) for pool in self._state.free} if self._claimants else {}
        taken: Counter[NodeAndPool] = Counter()
        hopeless: set[object] = set()  # (project, equivalence key) of jobs beyond their quota or entitlement
        for job in self._claimants:
            possible = [need for need in job.alternatives if covers(left, need)]
            if not possible or not self._waits(job) or (job.project, job.equivalence_key) in hopeless:
                continue
            need = next((need for need in possible if self._is_entitled(job, need, taken)), None)
            if need is None:
                hopeless.add((job.project, job.equivalence_key))
                continue
            self._claims[job.name] = need
            self._claimed.update(need)
            for pool, count in need.items():
                left[pool] -= count
                taken.update({(node, pool): count for node in job.project.path})

    def end_claim(self, job: Candidate) -> None:
        """Drop the claim of the job that is served now: the job takes the slots, or leaves the slots to other jobs."""
        if job.name in self._claims:
            self._claimed.subtract(self._claims.pop(job.name))

    def leaves_claims(self, need: Slots) -> bool:
        """Return whether a start on these slots takes no claimed slots."""
        return all(count <= self._state.available_soon(pool) - self._claimed[pool] for pool, count in need.items())

    def _waits(self, job: Candidate) -> bool:
        """Return whether the job waits without a reservation, and its group has room."""
        state = self._state
        return job.name not in state.settled and job.name not in state.reservations and state.within_group(job)

    def _is_entitled(self, job: Candidate, need: Slots, taken: Counter[NodeAndPool]) -> bool:
        """Return whether the job stays within its entitlement, so that other jobs would be migrated for this job.

        :param taken: slots that earlier jobs claim.
        """
        return self._state.within_quota(job, need) and all(
            node.projected[pool] + taken[node, pool] + count <= node.entitlement[pool]
            for node in job.project.path
            for pool, count in need.items()
        )


def _has_only_pool(job: Candidate) -> bool:
    """Return whether all alternatives have a pool in common, and none of them backs off or was refused."""
    first, *others = job.alternatives
    return not (job.backs_off or job.refused_alternatives) and any(all(pool in it for it in others) for pool in first)
