"""Assign members to carriers: to free GPUs, to GPUs that become free, to GPUs of victims, or to new carriers.

A member never takes GPUs that are promised to an earlier member. Evictions of whole carriers are decided in the planner
of instances, which treats carriers as jobs of one instance.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, merge
from itertools import islice

from job_queue.scheduler.carriers.allocations import WHOLE, FreeGpus, GpuAllocation, GpuAssignment, allocation_on
from job_queue.scheduler.model import NOTHING, ActiveJob, Carrier, Evict, JobState, Rule, Slots, Snapshot, WaitingJob
from job_queue.scheduler.victims import Guarantees, VictimKey, victim_order

_Host = tuple[int, str]
"""A carrier that takes moved members: its free tenths of GPUs, and its name."""

_MemberClass = tuple[str, str, frozenset[str]]
"""The kind, project and pools of a member, which determine the carriers that it may join."""


@dataclass
class Bin:
    """A carrier that does not exist yet, and the members for which it would be launched, in waiting order."""

    free_gpus: FreeGpus
    members: list[WaitingJob]

    @property
    def leader(self) -> WaitingJob:
        """The member whose place in the waiting queue counts for the carrier."""
        return self.members[0]


@dataclass
class _EvictionOptions:
    """The carriers on which evictions can free enough GPUs for a member, least valuable victims first."""

    # sort keys of the victims, most valuable first; the carrier; its number of changes at that time; the victims
    heap: list[tuple[list[VictimKey], str, int, Sequence[ActiveJob]]] = field(default_factory=list)
    changes_seen: int = 0  # number of recorded changes of carriers that the heap already reflects


class Packing:
    """The GPU allocations on all carriers, updated while members get GPUs one by one in waiting order.

    :param snapshot: a snapshot whose `active` and `waiting` jobs include the members.
    :param reserved_carriers: carriers that no member may join, because their instances are reserved for other jobs.
    """

    def __init__(self, snapshot: Snapshot, reserved_carriers: Collection[str] = ()) -> None:
        self._now, self._settings = snapshot.now, snapshot.policy.settings
        self._guarantees = Guarantees(snapshot.policy)
        self._gpus = {pool.name: pool.gpus or 0 for pool in snapshot.policy.pools}
        self._reserved_carriers = reserved_carriers
        self._drained = snapshot.drains.keys()
        self.carriers = {carrier.name: carrier for carrier in sorted(snapshot.carriers, key=lambda it: it.name)}
        self._classes: dict[tuple[str, str], list[Carrier]] = defaultdict(list)  # (kind, project) -> carriers
        for carrier in self.carriers.values():
            self._classes[carrier.kind, carrier.project].append(carrier)
        self._active: dict[
            _MemberClass, dict[str, Carrier]
        ] = {}  # cache of the carriers that a member may join, by name
        self.members = members_by_carrier(snapshot)
        self._staying = {
            name: [job for job in jobs if job.state is not JobState.STOPPING] for name, jobs in self.members.items()
        }
        self.evictions: dict[str, Evict] = {}
        self._free: dict[str, FreeGpus] = {}  # carrier -> GPUs without a member
        # carrier -> GPUs that are not promised, and will be free once stopping and evicted members have ended
        self._soon_free: dict[str, FreeGpus] = {}
        for name, carrier in self.carriers.items():
            self._free[name] = FreeGpus(carrier.gpus, map(_allocation, self.members[name]))
            self._soon_free[name] = FreeGpus(carrier.gpus, map(_allocation, self.staying(name)))
        # (class of members, carriers closed to them) -> the smallest size, in tenths of GPUs, that found no place
        self._no_place: dict[tuple[_MemberClass, frozenset[str]], int] = {}
        # (class of members, their size) -> the highest priority for which no victims were found
        self._failed_searches: dict[tuple[_MemberClass, int], int] = {}
        # by class, size and priority of members
        self._eviction_options: dict[tuple[_MemberClass, int, int], _EvictionOptions] = defaultdict(_EvictionOptions)
        self._changed: dict[tuple[str, str], list[str]] = defaultdict(list)  # (kind, project) -> changed carriers
        self._changes: dict[str, int] = defaultdict(int)  # carrier -> number of changes
        self._whole: dict[str, ActiveJob] = {}  # cache: member -> the member as if it held a whole instance
        self._victim_keys: dict[str, VictimKey] = {}  # cache of sort keys in victim order
        self._evictable: dict[str, bool] = {}  # cache: whether a member may be evicted
        self._kept: dict[str, str] = {}  # carrier -> the patient member for which the carrier's GPUs are kept
        self._kept_before: dict[str, int] = {}  # member without a place -> number of carriers kept for earlier members
        # class of members -> the smallest size, in tenths of GPUs, for which no carrier was left to keep
        self._none_to_keep: dict[_MemberClass, int] = {}
        self.as_jobs: dict[str, ActiveJob] = {}  # cache: carrier -> its job of one instance, until its members change
        self.joining: dict[str, list[WaitingJob]] = {carrier: [] for carrier in self.carriers}
        self.allocations: dict[str, GpuAssignment] = {}
        self.promised: dict[str, str] = {}  # waiting member -> the carrier on which it will have an allocation
        self.bins: list[Bin] = []

    def carriers_of(self, member: WaitingJob) -> Sequence[Carrier]:
        """Return the carriers of the member's kind and project."""
        return self._classes.get((member.kind, member.project), ())

    def staying(self, carrier: str) -> Sequence[ActiveJob]:
        """Return the members of a carrier that are neither stopping nor evicted by this plan."""
        return self._staying[carrier]

    def is_emptied(self, carrier: str) -> bool:
        """Return whether no member stays on or joins a carrier, so that the instance counts as being freed."""
        return not self.staying(carrier) and not self.joining[carrier]

    # --- existing allocations ---------------------------------------------------------------------------------

    def begin_pass(self) -> None:
        """Begin another pass of `allocate` over members without GPUs, in waiting order."""
        self._no_place.clear()  # may come from a later member, for which more carriers are kept by others

    def allocate(self, member: WaitingJob, closed: frozenset[str] = frozenset()) -> bool:
        """Give a member free GPUs, or promise GPUs that will be free. Return whether either was possible.

        :param closed: carriers that the member may not join.
        """
        size, member_class = member.gpus or 0, (_member_class(member), closed)
        # Until members are evicted, free GPUs only become fewer. So if a member finds no place, no larger member does.
        if size >= self._no_place.get(member_class, size + 1):
            return False
        kept = self._kept_for_earlier_members(member)
        for at_once in (True, False):
            found = []
            for name, carrier in self._joinable_carriers(member).items():
                if (at_once and not carrier.takes_members) or name in closed or name in kept:
                    continue
                row = self._soon_free[name]
                gpus = row.find_gpus(size, self._free[name] if at_once else None)
                if gpus is not None:
                    found.append((row.would_split_whole_gpu(gpus, size), row.free, name, gpus))
            if found:
                *_, name, gpus = min(found)
                self._record_allocation(member, allocation_on(name, gpus, size), at_once=at_once)
                return True
        self._no_place[member_class] = min(size, self._no_place.get(member_class, size))
        return False

    def _joinable_carriers(self, member: WaitingJob) -> Mapping[str, Carrier]:
        """Return the active carriers of the member's kind, project and pools, without reserved carriers."""
        member_class = _member_class(member)
        if member_class not in self._active:
            self._active[member_class] = {
                carrier.name: carrier
                for carrier in self.carriers_of(member)
                if carrier.pool in member_class[-1]
                if carrier.state in (JobState.STARTING, JobState.RUNNING)
                and carrier.name not in self._reserved_carriers
            }
        return self._active[member_class]

    def _record_allocation(self, member: WaitingJob, allocation: GpuAllocation, *, at_once: bool) -> None:
        self._soon_free[allocation.carrier].add(allocation)
        self.joining[allocation.carrier].append(member)
        self._note_change(allocation.carrier)
        if at_once:
            self._free[allocation.carrier].add(allocation)
            self.allocations[member.name] = GpuAssignment(member.name, allocation)
        else:
            self.promised[member.name] = allocation.carrier

    def keep_carrier_for(self, member: WaitingJob) -> None:
        """Keep the GPUs of one carrier, as they become free, for a member that has waited longer than `patience`."""
        self._kept_before[member.name] = len(self._kept)
        patience = self._settings.patience
        if patience is None or self._now - member.entered <= patience:
            return
        size, member_class = member.gpus or 0, _member_class(member)
        if size >= self._none_to_keep.get(member_class, size + 1):
            return
        able = [
            (self._soon_free[name].free, name)
            for name, it in self._joinable_carriers(member).items()
            if name not in self._kept and it.gpus * WHOLE >= size
        ]
        if able:
            self._kept[max(able)[1]] = member.name
        else:
            self._none_to_keep[member_class] = size

    def _kept_for_earlier_members(self, member: WaitingJob) -> set[str]:
        """Return the carriers that are kept for members before this one in waiting order."""
        return set(islice(self._kept, self._kept_before.get(member.name, len(self._kept))))

    # --- new carriers -----------------------------------------------------------------------------------

    def pack_into_new_carriers(self, members: Iterable[WaitingJob]) -> None:
        """Pack members, in waiting order, into new carriers by first fit, separately by kind, project and demand."""
        self.bins = []
        classes: dict[object, list[Bin]] = defaultdict(list)  # kind, project and demand -> bins
        full: dict[object, int] = {}  # (class, size) -> number of bins, from the first, that have no place
        for member in members:
            demand = tuple(tuple(sorted(need.items())) for need in member.demand)
            size, member_class = member.gpus or 0, (member.kind, member.project, demand)
            bins, first = classes[member_class], full.get((member_class, size), 0)
            for place in range(first, len(bins)):
                it = bins[place]
                if (gpus := it.free_gpus.find_gpus(size)) is not None:
                    it.free_gpus.add(allocation_on("", gpus, size))
                    it.members.append(member)
                    full[member_class, size] = place
                    break
            else:
                full[member_class, size] = len(bins)
                row = FreeGpus(min(self._gpus[pool] for need in member.demand for pool in need))
                gpus = row.find_gpus(size)
                assert gpus is not None, "the demand of a member has only pools whose instances have enough GPUs"
                row.add(allocation_on("", gpus, size))
                self.bins.append(Bin(row, [member]))
                bins.append(self.bins[-1])

    def use_empty_carrier(self, it: Bin, carriers: Collection[str]) -> bool:
        """Give the members of a bin an empty carrier in place of a new one. Return whether a carrier was found.

        :param carriers: the carriers that may be used.
        """
        kept = self._kept_for_earlier_members(it.leader)
        able = (
            carrier
            for name, carrier in self._joinable_carriers(it.leader).items()
            if name in carriers and name not in kept and carrier.state is JobState.RUNNING
            if not self.members[name] and not self.joining[name]
        )
        for carrier in sorted(able, key=lambda carrier: not carrier.takes_members):
            if (allocations := self._allocations_on_empty(carrier, it.members)) is not None:
                for member, allocation in zip(it.members, allocations, strict=True):
                    self._record_allocation(member, allocation, at_once=carrier.takes_members)
                self.bins.remove(it)
                return True
        return False

    def _allocations_on_empty(self, carrier: Carrier, members: Iterable[WaitingJob]) -> list[GpuAllocation] | None:
        """Return an allocation for each member on an empty carrier, or None if the carrier has too few GPUs."""
        row, found = FreeGpus(carrier.gpus), []
        for member in members:
            size = member.gpus or 0
            if (gpus := row.find_gpus(size)) is None:
                return None
            found.append(allocation_on(carrier.name, gpus, size))
            row.add(found[-1])
        return found

    # --- allocations of victims -------------------------------------------------------------------------------

    def make_room(self, member: WaitingJob) -> bool:
        """Evict members of lower priority from one carrier, and promise their GPUs. Return whether this was possible.

        No more members are evicted than needed. If several carriers are possible, the carrier with the least valuable
        victims is chosen. Members must be tried in waiting order.
        """
        size, member_class = member.gpus or 0, _member_class(member)
        if member.priority <= self._failed_searches.get((member_class, size), member.priority - 1):
            return False
        options = self._eviction_options_for(member)
        if not options.heap:
            self._failed_searches[member_class, size] = member.priority
            return False
        self._failed_searches.clear()
        _, name, _, victims = options.heap[0]
        for victim in victims:
            self._soon_free[name].remove(_allocation(victim))
        self._evict(name, [Evict(victim.name, member.name, Rule.PREEMPT) for victim in victims])
        gpus = self._soon_free[name].find_gpus(size)
        assert gpus is not None
        self._record_allocation(member, allocation_on(name, gpus, size), at_once=False)
        return True

    def _eviction_options_for(self, member: WaitingJob) -> _EvictionOptions:
        """Return the carriers on which room can be made for a member. Later calls check only changed carriers."""
        kept = self._kept_for_earlier_members(member)
        place = (_member_class(member), member.gpus or 0, member.priority)
        able, changed = self._joinable_carriers(member), self._changed[member.kind, member.project]
        if place in self._eviction_options:
            options = self._eviction_options[place]
            names: Iterable[str] = dict.fromkeys(changed[options.changes_seen :])
        else:
            options, names = self._eviction_options[place], able
        options.changes_seen = len(changed)
        for name in names:
            if name not in able or able[name].state is not JobState.RUNNING or name in kept:
                continue
            if victims := self._victims_on(name, member):
                keys = sorted((self._victim_key(victim) for victim in victims), reverse=True)
                heappush(options.heap, (keys, name, self._changes[name], victims))
        while options.heap:
            _, name, changes, _ = options.heap[0]
            if changes == self._changes[name] and name not in kept:
                break
            heappop(options.heap)
        return options

    def _evict(self, carrier: str, evictions: Iterable[Evict]) -> None:
        """Enter evictions of members of a carrier."""
        self.evictions.update((it.job, it) for it in evictions)
        self._staying[carrier] = [job for job in self._staying[carrier] if job.name not in self.evictions]
        self._no_place.clear()
        self._note_change(carrier)

    def _note_change(self, carrier: str) -> None:
        """Record a change of a carrier's members, so that cached results that depend on them are not reused."""
        it = self.carriers[carrier]
        self._changed[it.kind, it.project].append(carrier)
        self._changes[carrier] += 1
        self.as_jobs.pop(carrier, None)

    def _victims_on(self, carrier: str, member: WaitingJob) -> Sequence[ActiveJob]:
        """Return the members to evict from a carrier so that enough of its GPUs are free, in victim order.

        The result has only victims that are needed. The result is empty if there are not enough victims.
        """
        row, size = self._soon_free[carrier].copy(), member.gpus or 0
        leaving: list[ActiveJob] = []
        lower = [job for job in self.staying(carrier) if job.priority < member.priority and self._may_be_evicted(job)]
        for job in sorted(lower, key=self._victim_key):
            if row.find_gpus(size) is not None:
                break
            row.remove(_allocation(job))
            leaving.append(job)
        if row.find_gpus(size) is None:
            return ()
        for job in sorted(leaving, key=self._victim_key, reverse=True):
            row.add(_allocation(job))
            if row.find_gpus(size) is None:
                row.remove(_allocation(job))
            else:
                leaving.remove(job)
        return leaving

    def _may_be_evicted(self, job: ActiveJob) -> bool:
        if job.name not in self._evictable:
            runs = job.state is JobState.RUNNING
            self._evictable[job.name] = runs and self._guarantees.allow_to_evict(self._as_whole(job), self._now)
        return self._evictable[job.name]

    def _victim_key(self, job: ActiveJob) -> VictimKey:
        if job.name not in self._victim_keys:
            self._victim_keys[job.name] = victim_order(self._as_whole(job), self._now, self._settings.idle_after)
        return self._victim_keys[job.name]

    def _as_whole(self, job: ActiveJob) -> ActiveJob:
        """Return a member as if it held one slot of its carrier's pool.

        A member holds no slots, but victim order and the pool's guaranteed runtime depend on slots.
        """
        if job.name not in self._whole:
            slots: Slots = {self.carriers[job.allocation.carrier].pool: 1} if job.allocation else NOTHING
            self._whole[job.name] = replace(job, slots=slots)
        return self._whole[job.name]

    # --- consolidation ----------------------------------------------------------------------------------

    def movable_carriers(self) -> Iterator[str]:
        """Yield the carriers whose members could all move to other running carriers, least work lost first.

        Do not continue the iteration after members were evicted: the later results would be wrong.
        """
        able = []
        for name, carrier in self.carriers.items():
            staying = self.staying(name)
            if carrier.state is not JobState.RUNNING or not staying or self.joining[name]:
                continue
            if all(map(self._may_be_evicted, staying)):
                able.append((sum(self.work_lost(job) for job in staying), name))
        hosts = self._hosts() if able else {}
        return (name for _, name in sorted(able) if self._allocations_elsewhere(name, hosts) is not None)

    def move_members(self, carrier: str, claimant: str) -> None:
        """Evict the staying members of a carrier, and reserve allocations on other carriers for them."""
        places = self._allocations_elsewhere(carrier, self._hosts())
        assert places is not None
        self._evict(carrier, [Evict(job.name, claimant, Rule.CONSOLIDATE) for job, _ in places])
        for _, allocation in places:
            self._soon_free[allocation.carrier].add(allocation)
        self._soon_free[carrier] = FreeGpus(self.carriers[carrier].gpus)

    def _hosts(self) -> Mapping[object, Sequence[_Host]]:
        """Return the carriers that take moved members, fewest free GPUs first, by kind, project and pool."""
        found: dict[object, list[_Host]] = defaultdict(list)
        for name, it in self.carriers.items():
            if (
                it.takes_members
                and name not in self._kept
                and not self.is_emptied(name)
                and it.pool not in self._drained
            ):
                found[it.kind, it.project, it.pool].append((self._soon_free[name].free, name))
        for hosts in found.values():
            hosts.sort()
        return found

    def _allocations_elsewhere(
        self, name: str, hosts: Mapping[object, Sequence[_Host]]
    ) -> Sequence[tuple[ActiveJob, GpuAllocation]] | None:
        """Return an allocation on another carrier for each staying member, or None if a member finds no place.

        The allocated GPUs are free now and promised to no other member.
        """
        own = self.carriers[name]
        others = hosts.get((own.kind, own.project, own.pool), ())
        used: dict[str, FreeGpus] = {}  # carrier that gets some of these members -> the GPUs that are then left
        found = []
        for job in sorted(self.staying(name), key=lambda it: (-_allocation(it).size, it.name)):
            size = _allocation(job).size
            unused = islice(others, bisect_left(others, (size, "")), None)
            for free, it in merge(unused, sorted((row.free, it) for it, row in used.items())):
                row = used.get(it, self._soon_free[it])
                if it == name or row.free != free:  # the carrier itself, or an entry from before it got members
                    continue
                if (gpus := row.find_gpus(size, self._free[it])) is not None:
                    allocation = allocation_on(it, gpus, size)
                    used.setdefault(it, row.copy()).add(allocation)
                    found.append((job, allocation))
                    break
            else:
                return None
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


def _member_class(member: WaitingJob) -> _MemberClass:
    return member.kind, member.project, frozenset(pool for need in member.demand for pool in need)


def _allocation(job: ActiveJob) -> GpuAllocation:
    assert job.allocation is not None
    return job.allocation
