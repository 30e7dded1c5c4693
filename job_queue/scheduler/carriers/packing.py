"""Assign members to carriers: to free GPUs, to GPUs that become free, to GPUs of victims, or to new carriers.

A member never takes GPUs that are promised to an earlier member. Evictions of whole carriers are decided in the planner
of instances, which treats carriers as jobs of one instance.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from job_queue.scheduler.carriers.allocations import WHOLE, GpuAllocation, GpuAssignment, Row, allocation_on
from job_queue.scheduler.model import NOTHING, ActiveJob, Carrier, Evict, JobState, Rule, Snapshot, WaitingJob
from job_queue.scheduler.victims import Guarantees, VictimKey, victim_order


@dataclass
class Bin:
    """A carrier that does not exist yet, and the members for which it would be launched, in waiting order."""

    row: Row
    members: list[WaitingJob]

    @property
    def leader(self) -> WaitingJob:
        """The member whose place in the waiting queue counts for the carrier."""
        return self.members[0]


class Packing:
    """The GPU allocations on all carriers, updated while members get GPUs one by one in waiting order.

    :param snapshot: a snapshot whose `active` and `waiting` jobs include the members.
    :param reserved_carriers: carriers that all members leave because their instances are reserved for other jobs.
    """

    def __init__(self, snapshot: Snapshot, reserved_carriers: Collection[str] = ()) -> None:
        self._now, self._settings = snapshot.now, snapshot.policy.settings
        self._guarantees = Guarantees(snapshot.policy)
        self._gpus = {pool.name: pool.gpus or 0 for pool in snapshot.policy.pools}
        self._reserved_carriers = reserved_carriers
        self.carriers = {carrier.name: carrier for carrier in sorted(snapshot.carriers, key=lambda it: it.name)}
        self._classes: dict[tuple[str, str], list[Carrier]] = defaultdict(list)  # (kind, project) -> carriers
        for carrier in self.carriers.values():
            self._classes[carrier.kind, carrier.project].append(carrier)
        self.carrier_attempt = members_by_carrier(snapshot)
        self.evictions: dict[str, Evict] = {}
        self._free: dict[str, Row] = {}  # carrier -> GPUs without a member
        # carrier -> GPUs that are not promised and have no member once stopping and evicted members have ended
        self._soon: dict[str, Row] = {}
        for name, carrier in self.carriers.items():
            self._free[name] = Row(carrier.gpus, map(_allocation, self.carrier_attempt[name]))
            self._soon[name] = Row(carrier.gpus, map(_allocation, self.staying(name)))
        # members (kind, project, GPUs, demand) and priorities for which no victims were found
        self._failed_searches: list[tuple[object, int]] = []
        self._victim_keys: dict[str, VictimKey] = {}  # cache of sort keys in victim order
        self._evictable: dict[str, bool] = {}  # cache: whether a member may be evicted
        self._kept: dict[str, str] = {}  # carrier -> the patient member for which its GPUs are kept
        self.joining: dict[str, list[WaitingJob]] = {carrier: [] for carrier in self.carriers}
        self.allocations: dict[str, GpuAssignment] = {}
        self.promised: dict[str, str] = {}  # waiting member -> the carrier on which it will have an allocation
        self.bins: list[Bin] = []

    def staying(self, carrier: str) -> list[ActiveJob]:
        """Return the members of a carrier that are neither stopping nor evicted by this plan."""
        jobs = self.carrier_attempt[carrier]
        return [job for job in jobs if job.state is not JobState.STOPPING and job.name not in self.evictions]

    def is_emptied(self, carrier: str) -> bool:
        """Return whether no member stays on or joins a carrier: its instance is as good as free."""
        return not self.staying(carrier) and not self.joining[carrier]

    # --- existing allocations ---------------------------------------------------------------------------------

    def allocate(self, member: WaitingJob, closed: Collection[str] = ()) -> bool:
        """Give a member free GPUs, or promise it GPUs that will be free. Return whether either was possible.

        :param closed: carriers that the member may not join.
        """
        size = member.gpus or 0
        for at_once in (True, False):
            found = []
            for carrier in self._of(member):
                name = carrier.name
                if (at_once and not carrier.takes_members) or name in closed:
                    continue
                row = self._soon[name]
                gpus = row.place(size, self._free[name] if at_once else None)
                if gpus is not None and self._kept.get(name, member.name) == member.name:
                    found.append((row.opens_a_gpu(gpus, size), row.free, name, gpus))
            if found:
                *_, name, gpus = min(found)
                self._give(member, allocation_on(name, gpus, size), at_once=at_once)
                return True
        return False

    def _of(self, member: WaitingJob) -> Iterable[Carrier]:
        """Return the active carriers of the member's kind, project and pools that are not reserved for others."""
        pools = {pool for need in member.demand for pool in need}
        return (
            carrier
            for carrier in self._classes.get((member.kind, member.project), ())
            if carrier.pool in pools
            if carrier.state in (JobState.STARTING, JobState.RUNNING) and carrier.name not in self._reserved_carriers
        )

    def _give(self, member: WaitingJob, allocation: GpuAllocation, *, at_once: bool) -> None:
        self._soon[allocation.carrier].take(allocation)
        self.joining[allocation.carrier].append(member)
        if at_once:
            self._free[allocation.carrier].take(allocation)
            self.allocations[member.name] = GpuAssignment(member.name, allocation)
        else:
            self.promised[member.name] = allocation.carrier

    def keep(self, member: WaitingJob) -> None:
        """Keep one carrier, with all its GPUs that become free, for a member that has waited longer than `patience`."""
        patience = self._settings.patience
        if patience is None or self._now - member.entered <= patience:
            return
        able = [it for it in self._of(member) if it.name not in self._kept and it.gpus * WHOLE >= (member.gpus or 0)]
        if able:
            best = max(able, key=lambda carrier: (self._soon[carrier.name].free, carrier.name))
            self._kept[best.name] = member.name

    # --- new carriers -----------------------------------------------------------------------------------

    def launch_for(self, members: Iterable[WaitingJob]) -> None:
        """Pack members, in waiting order, into new carriers by first fit, separately by kind and project."""
        self.bins = []
        classes: dict[tuple[str, str], list[Bin]] = defaultdict(list)
        for member in members:
            size, bins = member.gpus or 0, classes[member.kind, member.project]
            for it in bins:
                if it.row.free < size or it.leader.demand != member.demand:
                    continue
                if (gpus := it.row.place(size)) is not None:
                    it.row.take(allocation_on("", gpus, size))
                    it.members.append(member)
                    break
            else:
                row = Row(min(self._gpus[pool] for need in member.demand for pool in need))
                gpus = row.place(size)
                assert gpus is not None, "members are asked for nothing but pools that they fit into"
                row.take(allocation_on("", gpus, size))
                self.bins.append(Bin(row, [member]))
                bins.append(self.bins[-1])

    # --- allocations of victims -------------------------------------------------------------------------------

    def make_room(self, member: WaitingJob) -> bool:
        """Evict members of lower priority from one carrier, and promise their GPUs; return whether that was possible.

        Only members that are needed as victims are evicted. If several carriers are possible, the carrier with the
        least valuable victims is chosen.
        """
        like_it = (member.kind, member.project, member.gpus, member.demand)
        if any(like_it == other and member.priority <= priority for other, priority in self._failed_searches):
            return False
        found = []
        for carrier in self._of(member):
            if carrier.state is JobState.RUNNING and (victims := self._victims_on(carrier, member)):
                keys = sorted((self._victim_key(victim) for victim in victims), reverse=True)
                found.append((keys, carrier.name, victims))
        if not found:
            self._failed_searches.append((like_it, member.priority))
            return False
        self._failed_searches.clear()
        _, name, victims = min(found, key=lambda it: it[:2])
        for victim in victims:
            self.evictions[victim.name] = Evict(victim.name, member.name, Rule.PREEMPT)
            self._soon[name].leave(_allocation(victim))
        gpus = self._soon[name].place(member.gpus or 0)
        assert gpus is not None
        self._give(member, allocation_on(name, gpus, member.gpus or 0), at_once=False)
        return True

    def _victims_on(self, carrier: Carrier, member: WaitingJob) -> Sequence[ActiveJob]:
        """Return the members to evict from a carrier so that enough of its GPUs are free, in victim order.

        The result has only victims that are needed. The result is empty if there are not enough victims.
        """
        row, size = self._soon[carrier.name].copy(), member.gpus or 0
        leaving: list[ActiveJob] = []
        lower = [job for job in self.staying(carrier.name) if job.priority < member.priority and self._may_leave(job)]
        for job in sorted(lower, key=self._victim_key):
            if row.place(size) is not None:
                break
            row.leave(_allocation(job))
            leaving.append(job)
        if row.place(size) is None:
            return ()
        for job in sorted(leaving, key=self._victim_key, reverse=True):
            row.take(_allocation(job))
            if row.place(size) is None:
                row.leave(_allocation(job))
            else:
                leaving.remove(job)
        return leaving

    def _may_leave(self, job: ActiveJob) -> bool:
        if job.name not in self._evictable:
            runs = job.state is JobState.RUNNING
            whole = replace(job, slots=self._slots_of(job))
            self._evictable[job.name] = runs and self._guarantees.allow_to_evict(whole, self._now)
        return self._evictable[job.name]

    def _victim_key(self, job: ActiveJob) -> VictimKey:
        if job.name not in self._victim_keys:
            whole = replace(job, slots=self._slots_of(job))
            self._victim_keys[job.name] = victim_order(whole, self._now, self._settings.idle_after)
        return self._victim_keys[job.name]

    def _slots_of(self, job: ActiveJob) -> Mapping[str, int]:
        """Return one slot of the carrier's pool, as if the member held it.

        A member holds no slots, but victim order and the pool's guaranteed runtime depend on slots.
        """
        return {self.carriers[job.allocation.carrier].pool: 1} if job.allocation else NOTHING

    # --- consolidation ----------------------------------------------------------------------------------

    def movable(self) -> Iterable[str]:
        """Return the carriers whose members could all move to other running carriers, least work lost first."""
        found = []
        for name, carrier in self.carriers.items():
            staying = self.staying(name)
            if carrier.state is not JobState.RUNNING or not staying or self.joining[name]:
                continue
            if all(map(self._may_leave, staying)) and self._allocations_elsewhere(name) is not None:
                found.append((sum(self.work_lost(job) for job in staying), name))
        return [name for _, name in sorted(found)]

    def move(self, carrier: str, claimant: str) -> None:
        """Evict all members of a carrier, and reserve allocations on other carriers for them."""
        places = self._allocations_elsewhere(carrier)
        assert places is not None
        for job, allocation in places:
            self.evictions[job.name] = Evict(job.name, claimant, Rule.CONSOLIDATE)
            self._soon[allocation.carrier].take(allocation)
        self._soon[carrier] = Row(self.carriers[carrier].gpus)

    def _allocations_elsewhere(self, name: str) -> Sequence[tuple[ActiveJob, GpuAllocation]] | None:
        """Return an allocation on another carrier for each staying member, or None if a member finds no place.

        The allocated GPUs are free now and promised to no other member.
        """
        own = self.carriers[name]
        others = {
            it.name: (self._soon[it.name].copy(), self._free[it.name])
            for it in self._classes[own.kind, own.project]
            if it is not own and it.pool == own.pool
            if it.takes_members and it.name not in self._kept and not self.is_emptied(it.name)
        }
        found = []
        for job in sorted(self.staying(name), key=lambda it: (-_allocation(it).size, it.name)):
            size = _allocation(job).size
            able = [(soon.free, it, gpus) for it, (soon, free) in others.items() if (gpus := soon.place(size, free))]
            if not able:
                return None
            _, best, gpus = min(able)
            allocation = allocation_on(best, gpus, size)
            others[best][0].take(allocation)
            found.append((job, allocation))
        return found

    def work_lost(self, job: ActiveJob) -> float:
        """Return the GPU-seconds of work that a stop of this member would lose."""
        if job.started is None:
            return 0.0
        return max(0.0, self._now - max(job.started, job.checkpoint or job.started)) * _allocation(job).size / WHOLE


def members_by_carrier(snapshot: Snapshot) -> dict[str, list[ActiveJob]]:
    """Return the members of each carrier, by the carrier's name."""
    found: dict[str, list[ActiveJob]] = {carrier.name: [] for carrier in snapshot.carriers}
    for job in sorted(snapshot.active, key=lambda it: it.name):
        if job.allocation is not None and job.allocation.carrier in found:
            found[job.allocation.carrier].append(job)
    return found


def _allocation(job: ActiveJob) -> GpuAllocation:
    assert job.allocation is not None
    return job.allocation
