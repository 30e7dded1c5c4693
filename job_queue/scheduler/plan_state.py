"""The unfinished plan: its starts, evictions and reservations so far, and the slots that are still available.

Only the methods of PlanState change the plan. The slots of a pool are interchangeable, so a reservation is a number of
slots and not particular slots. All reservations together never exceed the slots that are free or being freed.

Reservations are filled in the order in which their jobs are served: first from slots that this plan's victims free,
then from free slots. The remaining free slots are available to all jobs. So a later job may start on free slots while
an earlier job waits for its victims to stop.

A job may start on free slots that are reserved for a job that is served later, but only if stops in progress will free
as many slots for the later job.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from job_queue.scheduler.candidates import Candidate, Groups
from job_queue.scheduler.documents.policy_schema import UNLIMITED
from job_queue.scheduler.fair_share import Bound, Counts, ShareNode, ShareTree, fits
from job_queue.scheduler.model import NOTHING, Evict, JobState, Rule, Slots, Snapshot, above_zero, covers
from job_queue.scheduler.victims import Guarantees, NodeAndPool, Victim, VictimKey, Victims


@dataclass(slots=True)
class Window:
    """The backfill window of a patient job, and the job's earliest start."""

    slots: Slots  # free slots that are kept for the job
    # Earliest start, in seconds since the epoch. Active jobs of unknown runtime count as ending now with the setting
    # `backfill: bounded`, and as never ending with `backfill: predicted`:
    earliest_start: float
    spare: Counts  # slots that stay free after that start; active jobs of unknown runtime count as never ending


class PlanState:
    """The slots of every pool, the usage of every project and department, and the decisions made so far."""

    def __init__(self, snapshot: Snapshot, candidates: Sequence[Candidate], tree: ShareTree, groups: Groups) -> None:
        self.tree = tree
        self.groups = groups
        self.free = Counter({pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools})
        self.freeing: Counter[str] = Counter()  # slots held by attempts that are stopping
        self.reservations: dict[str, Slots] = {}  # job -> slots reserved for it
        self.windows: dict[str, Window] = {}  # by patient job; the slots of windows are not in `reservations`
        self.started: dict[str, Slots] = {}
        self.evicted: dict[str, Evict] = {}
        self.settled: set[str] = set()  # jobs that start, wait with a reservation, or migrate
        # Holders of a reservation for which earlier plans may have requested a stop:
        self.awaiting_stops: set[str] = set()
        self.slots_came_free = False  # whether slots were released that other jobs may use
        self.changed: set[ShareNode] = set()  # projects whose usage has changed since the planner cleared this set
        self._reserved: Counter[str] = Counter()  # sum of all reservations
        self._reserved_settled: Counter[str] = Counter()  # sum of the reservations of settled jobs
        self._in_windows: Counter[str] = Counter()  # slots of all windows
        self._freed_by_victims: Counter[str] = Counter()  # slots freed by the victims of this plan; part of `freeing`
        self._surplus: Counter[str] = Counter()  # the part of `_freed_by_victims` that the claimants did not need
        self._holders: dict[ShareNode, dict[str, Candidate]] = defaultdict(dict)
        self._starts: dict[ShareNode, dict[str, Victim]] = defaultdict(dict)
        self._lowest_ranks: dict[
            ShareNode, int
        ] = {}  # project -> a lower bound of the ranks of its reservations and starts
        # The most slots that a project or department may hold. An eviction is not cancelled if this bound would be
        # exceeded without the eviction:
        self._bounds: dict[NodeAndPool, int] = {}
        self._evicted_by_size: dict[tuple[tuple[str, int], ...], list[tuple[VictimKey, Victim]]] = defaultdict(list)
        self.guarantees = Guarantees(snapshot.policy)
        self.free.subtract(snapshot.external)
        for job in snapshot.active:
            stops = job.state is JobState.STOPPING
            for pool, count in job.slots.items():
                self.free[pool] -= count
                if stops:
                    self.freeing[pool] += count
            project = tree.project(job.project)
            self._add_usage(project, job.slots, now=True, later=not stops, preemptible=job.preemptible)
        self._enter_existing_reservations(snapshot, candidates)
        self.victims = Victims(snapshot, tree, self.guarantees)

    def _enter_existing_reservations(self, snapshot: Snapshot, candidates: Iterable[Candidate]) -> None:
        """Enter the reservations of the snapshot, limited to slots that are free or being freed."""

        def limited_to_available(slots: Slots) -> Slots:
            return above_zero({pool: min(count, self.available_soon(pool)) for pool, count in slots.items()})

        for job in sorted(snapshot.active, key=lambda job: job.name):
            migrates = job.state is JobState.STOPPING and job.comes_back and job.name in snapshot.reserved
            if migrates and not snapshot.is_unreachable(job.slots):
                # A migrating job keeps the slots that it moves to, unless its region or account does not respond.
                target = limited_to_available(snapshot.reserved[job.name])
                self._add_reservation(job.name, self.tree.project(job.project), target)
        for candidate in candidates:
            if candidate.name in snapshot.reserved:
                slots = limited_to_available(candidate.useful_part(snapshot.reserved[candidate.name]))
                self._enter_reservation(candidate, slots)
                if slots and any(self.freeing[pool] > 0 for pool in candidate.pools):
                    self.awaiting_stops.add(candidate.name)

    # --- slots ------------------------------------------------------------------------------------------

    def available_soon(self, pool: str, name: str = "", transferred: int = 0) -> int:
        """Return the slots, free or being freed, that are neither reserved nor in backfill windows for other jobs.

        :param name: the job that needs the slots; the job's own reservation and window count as available.
        :param transferred: slots reserved for other jobs that are transferred to this job.
        """
        own = self.reservations[name].get(pool, 0) if name in self.reservations else 0
        windows = self._in_windows_of_others(pool, name) if self.windows else 0
        return self.free[pool] + self.freeing[pool] - self._reserved[pool] + transferred + own - windows

    def available_now(self, pool: str, name: str = "", transferred: int = 0, *, include_windows: bool = False) -> int:
        """Return the free slots on which a job can start now: reserved for this job, or not reserved for other jobs.

        :param name: the job that needs the slots; the job's own reservation and window count as available.
        :param transferred: slots reserved for other jobs that are transferred to this job.
        :param include_windows: whether to include the slots in the backfill windows of other jobs.
        """
        free, victims = self.free[pool], self._freed_by_victims[pool] - self._surplus[pool]
        windows = 0 if include_windows else self._in_windows_of_others(pool, name)
        left = free - max(0, self._reserved[pool] - transferred - victims) - windows
        if name not in self.reservations:
            # Reservations of jobs that are served later can be filled from slots that are being freed.
            ahead = free - max(0, self._reserved_settled[pool] - victims) - windows
            return left if transferred else max(left, min(ahead, self.available_soon(pool, name)))
        own = self.reservations[name].get(pool, 0)
        before = self._reserved_settled[pool] - (own if name in self.settled else 0)
        return min(free, max(0, left) + max(0, min(own, free - max(0, before - victims))))

    def is_free(self, candidate: Candidate, need: Slots, *, include_windows: bool = False) -> bool:
        """Return whether all slots of an alternative are free for the candidate."""
        for pool, count in need.items():
            if self.free[pool] < count:  # a fast check: `available_now` is never more than `free`
                return False
            if self.available_now(pool, candidate.name, include_windows=include_windows) < count:
                return False
        return True

    def surplus(self, pool: str) -> int:
        """Return the available slots that this plan's victims free beyond the need of their claimants."""
        return max(0, min(self._surplus[pool], self.available_soon(pool))) if pool in self._surplus else 0

    def _in_windows_of_others(self, pool: str, name: str) -> int:
        if not self.windows:
            return 0
        return self._in_windows[pool] - (self.windows[name].slots.get(pool, 0) if name in self.windows else 0)

    # --- usage ------------------------------------------------------------------------------------------

    def fits(
        self, candidate: Candidate, need: Slots, bound: Bound, freed: Slots = NOTHING, *, project_only: bool = False
    ) -> bool:
        """Return whether the candidate's project and department stay within a bound with this alternative.

        :param freed: slots that project and department no longer hold after evictions of other jobs of the project.
        :param project_only: whether to check only the project, and not its department.
        """
        if bound is not Bound.LIMIT_NOW:  # current usage does not include reservations
            own = self.reserved_for(candidate)
            freed = Counter(own) + Counter(freed) if own and freed else own or freed
        nodes = (candidate.project,) if project_only else candidate.project.path
        for node in nodes:  # noqa: SIM110  (faster than a generator)
            if not fits(node, need, bound, freed):
                return False
        return True

    def within_limits(self, candidate: Candidate, need: Slots, freed: Slots = NOTHING) -> bool:
        """Return whether project and department stay within their limits, now and after all stops.

        Slots of stopping jobs count until the jobs have ended. Reservations of other jobs count as well.
        """
        now, later = Bound.LIMIT_NOW, Bound.LIMIT
        return self.fits(candidate, need, now, freed) and self.fits(candidate, need, later, freed)

    def within_group(self, candidate: Candidate) -> bool:
        """Return whether one more job of the candidate's group may be active."""
        return self.groups.may_start(candidate, has_place=candidate.name in self.reservations)

    def within_quota(self, candidate: Candidate, need: Slots) -> bool:
        """Return whether the job is preemptible, or fits into the quota together with other non-preemptible jobs."""
        return candidate.job.preemptible or self.fits(candidate, need, Bound.NON_PREEMPTIBLE_QUOTA)

    def _add_usage(
        self,
        project: ShareNode,
        slots: Slots,
        sign: int = 1,
        *,
        now: bool = False,
        later: bool = True,
        preemptible: bool,
    ) -> None:
        """Add slots to the usage of a project and its department. With `sign` -1, subtract the slots.

        :param now: whether current usage changes.
        :param later: whether projected usage changes, which is the usage after all stops.
        """
        self.changed.add(project)
        for node in project.path:
            for pool, count in slots.items():
                if now:
                    node.current[pool] += sign * count
                if later:
                    node.projected[pool] += sign * count
                if not preemptible:
                    node.non_preemptible[pool] += sign * count

    # --- reservations -----------------------------------------------------------------------------------

    def reserved_for(self, candidate: Candidate) -> Slots:
        """Return the slots that are reserved for a job."""
        return self.reservations.get(candidate.name, NOTHING)

    def reserve(self, candidate: Candidate, slots: Slots) -> None:
        """Settle a job, and reserve these slots until the job starts. The job's earlier reservation is dropped."""
        self._replace_reservation(candidate, slots)
        self._enter_reservation(candidate, slots)
        self.settle(candidate.name)

    def _replace_reservation(self, candidate: Candidate, slots: Slots) -> None:
        """Drop the reservation and the window of a job that gets these slots. Note whether other slots came free."""
        self.slots_came_free = not covers(slots, self.drop_reservation(candidate)) or self.slots_came_free
        self.close_window(candidate.name)

    def settle(self, name: str) -> None:
        """Settle a job: the free slots of its reservation are no longer available to later jobs."""
        if name not in self.settled:
            self.settled.add(name)
            self._reserved_settled.update(self.reservations.get(name, NOTHING))

    def drop_reservation(self, candidate: Candidate) -> Slots:
        """Drop the reservation of a job, and return its slots."""
        if candidate.name not in self.reservations:
            return NOTHING
        del self._holders[candidate.project][candidate.name]
        self.awaiting_stops.discard(candidate.name)
        self.groups.enter(candidate, -1)
        return self._free_reservation(candidate.name, candidate.project, preemptible=candidate.job.preemptible)

    def lower_priority_holders(self, candidate: Candidate) -> list[Candidate]:
        """Return jobs of lower priority in the project whose reservations this job may take, in waiting order."""
        if not self.may_take_from_lower(candidate):
            return []
        lower = [
            holder
            for name, holder in self._holders[candidate.project].items()
            if holder.rank < candidate.rank and self.reservations[name].keys() & candidate.pools
        ]
        return sorted(lower, key=lambda holder: holder.key)

    def transfer(self, candidate: Candidate, holders: Sequence[Candidate]) -> None:
        """Drop the reservations of these jobs, and make the candidate the claimant of the evictions made for them."""
        losers = {holder.name for holder in holders}
        for holder in holders:
            self.drop_reservation(holder)
            self.slots_came_free = True
        for name, eviction in self.evicted.items():
            if eviction.claimant in losers:
                self.evicted[name] = replace(eviction, claimant=candidate.name)

    def _enter_reservation(self, candidate: Candidate, slots: Slots) -> None:
        if slots:
            self._add_reservation(candidate.name, candidate.project, slots, preemptible=candidate.job.preemptible)
            self._holders[candidate.project][candidate.name] = candidate
            self.groups.enter(candidate)
            self._note_rank(candidate)

    def _add_reservation(self, name: str, project: ShareNode, slots: Slots, *, preemptible: bool = True) -> None:
        if slots:
            self.reservations[name] = dict(slots)
            self._reserved.update(slots)
            self._add_usage(project, slots, preemptible=preemptible)

    def _free_reservation(self, name: str, project: ShareNode, *, preemptible: bool = True) -> Slots:
        slots = self.reservations.pop(name)
        self._reserved.subtract(slots)
        self._add_usage(project, slots, -1, preemptible=preemptible)
        if name in self.settled:
            self.settled.discard(name)
            self._reserved_settled.subtract(slots)
        return slots

    def may_take_from_lower(self, candidate: Candidate) -> bool:
        """Return whether the job may preempt, and this plan has given slots to jobs of lower priority in its project.

        The result stays True after such jobs have lost all these slots again.
        """
        lowest = self._lowest_ranks.get(candidate.project, candidate.rank)
        return lowest < candidate.rank and not candidate.job.left_idle

    def _note_rank(self, candidate: Candidate) -> None:
        lowest = self._lowest_ranks.get(candidate.project, candidate.rank)
        self._lowest_ranks[candidate.project] = min(candidate.rank, lowest)

    # --- backfill windows -------------------------------------------------------------------------------

    def open_window(self, candidate: Candidate, window: Window) -> None:
        """Keep free slots for a patient job that cannot start yet, so that later jobs do not take them."""
        self.windows[candidate.name] = window
        self._in_windows.update(window.slots)

    def close_window(self, name: str) -> None:
        """Close the window of a job, if there is one."""
        if name in self.windows:
            self._in_windows.subtract(self.windows.pop(name).slots)

    def close_windows(self) -> None:
        """Close all windows."""
        self.windows.clear()
        self._in_windows.clear()

    # --- starts -----------------------------------------------------------------------------------------

    def start(self, candidate: Candidate, slots: Slots) -> None:
        """Start a job on free slots. The job's reservation and window are dropped."""
        self._replace_reservation(candidate, slots)
        self._occupy(candidate, slots, 1)
        self.started[candidate.name] = slots
        self.settled.add(candidate.name)
        self.groups.enter(candidate)
        if candidate.job.preemptible:
            key = (True, candidate.rank, 0.0, 0.0, -candidate.job.entered, candidate.name)
            start = Victim(candidate.name, slots, candidate.project, candidate.rank, key, start=candidate)
            self._starts[candidate.project][candidate.name] = start
            self._note_rank(candidate)

    def withdrawable(self, candidate: Candidate) -> list[Victim]:
        """Return the starts of this plan that this job may withdraw by its priority, lowest priority first.

        Through aging, a job of lower priority may come before this job in waiting order. The start of such a job is
        withdrawn only if the job has no guaranteed runtime: a later plan would then preempt the job anyway.
        """
        if not self.may_take_from_lower(candidate):
            return []
        guaranteed = self.guarantees.runtime
        lower = [
            victim
            for victim in self._starts[candidate.project].values()
            if (other := victim.start) is not None
            and other.rank < candidate.rank
            and (
                candidate.key < other.key or not guaranteed(candidate.job.project, victim.slots, other.job.preemptions)
            )
        ]
        return sorted(lower, key=lambda victim: victim.key)

    def _withdraw(self, candidate: Candidate) -> None:
        """Withdraw the start of this candidate, because a job of higher priority needs the slots."""
        del self._starts[candidate.project][candidate.name]
        self._occupy(candidate, self.started.pop(candidate.name), -1)
        self.settled.discard(candidate.name)
        self.groups.enter(candidate, -1)
        self.slots_came_free = True

    def _occupy(self, candidate: Candidate, slots: Slots, sign: int) -> None:
        for pool, count in slots.items():
            self.free[pool] -= sign * count
        self._add_usage(candidate.project, slots, sign, now=True, preemptible=candidate.job.preemptible)

    # --- evictions --------------------------------------------------------------------------------------

    def evict_or_withdraw(
        self, victims: Mapping[Victim, Slots], bounds: Mapping[NodeAndPool, int], claimant: Candidate
    ) -> None:
        """Withdraw the victims that are starts of this plan. Evict the active jobs, or migrate them to their target.

        :param victims: each victim, with the slots to which it migrates; empty: it does not migrate.
        :param bounds: the most slots that the claimant's project and department may hold. An eviction is not cancelled
            if the project or department would hold more without the eviction.
        """
        for victim, target in victims.items():
            if victim.start is not None:
                self._withdraw(victim.start)
            else:
                self._evict(victim, target, claimant)
        for node_and_pool, bound in bounds.items():
            self._bounds[node_and_pool] = min(bound, self._bounds.get(node_and_pool, UNLIMITED))

    def _evict(self, victim: Victim, target: Slots, claimant: Candidate) -> None:
        rule = Rule.PREEMPT if victim.project is claimant.project else Rule.RECLAIM
        rule, idle = (Rule.CONSOLIDATE, False) if target else (rule, victim.idle)
        self.evicted[victim.name] = Evict(victim.name, claimant.name, rule, idle)
        self.victims.mark_evicted(victim)
        self._count_as_freeing(victim, 1)
        insort(self._evicted_by_size[_size(victim)], (victim.key, victim))
        if target:
            # Settle the victim, so that no other job takes this reservation.
            self._add_reservation(victim.name, victim.project, target)
            self.settle(victim.name)

    def use_surplus(self, slots: Slots) -> None:
        """Deduct these slots from the surplus, because a job gets the slots or a victim keeps them."""
        for pool in self._surplus.keys() & slots.keys():
            self._surplus[pool] = max(0, self._surplus[pool] - slots[pool])

    def add_surplus(self, before: Mapping[str, int]) -> None:
        """Add to the surplus the slots that the latest evictions freed beyond the need of the claimant.

        Slots that were reserved for a migration become available when the migration is cancelled. Such slots are no
        surplus, because no victim freed them.

        :param before: available slots by pool, before the evictions.
        """
        for pool, count in before.items():
            if (more := self.available_soon(pool) - max(0, count)) > 0:
                self._surplus[pool] += max(0, min(more, self._freed_by_victims[pool] - self._surplus[pool]))
                self.slots_came_free = True

    def cancel_needless_evictions(self, tries: int | None = None) -> None:
        """Cancel evictions whose slots are not needed, most valuable victim first.

        :param tries: number of victims of each size to check, or None for all.
        """
        while (victim := self._most_valuable_needless_victim(tries)) is not None:
            alike = self._evicted_by_size[_size(victim)]
            del alike[bisect_left(alike, (victim.key, victim))]
            if self.evicted.pop(victim.name).rule is Rule.CONSOLIDATE:
                self._free_reservation(victim.name, victim.project)
                self.slots_came_free = True  # the slots that were reserved for the migration are available again
            self.victims.unmark_evicted(victim)
            self._count_as_freeing(victim, -1)
            self.use_surplus(victim.slots)

    def _count_as_freeing(self, victim: Victim, sign: int) -> None:
        for pool, count in victim.slots.items():
            self.freeing[pool] += sign * count
            self._freed_by_victims[pool] += sign * count
        self._add_usage(victim.project, victim.slots, -sign, preemptible=True)

    def _most_valuable_needless_victim(self, tries: int | None) -> Victim | None:
        best: Victim | None = None
        available = {pool: self.available_soon(pool) for pool in self.free}
        if max(available.values(), default=0) <= 0:
            return None
        for size, victims in self._evicted_by_size.items():
            if victims and all(count <= available[pool] for pool, count in size):
                bounded: set[ShareNode] = set()  # projects that would exceed a bound with a victim of this size
                for key, victim in islice(reversed(victims), tries):
                    if best is not None and key < best.key:
                        break
                    if victim.project in bounded:
                        continue
                    if self._stays_within_bounds(victim):
                        best = victim
                        break
                    bounded.add(victim.project)
        return best

    def _stays_within_bounds(self, victim: Victim) -> bool:
        for node in victim.project.path:
            for pool, count in victim.slots.items():
                if node.projected[pool] + count > self._bounds.get((node, pool), UNLIMITED):
                    return False
        return True


def _size(victim: Victim) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(victim.slots.items()))
