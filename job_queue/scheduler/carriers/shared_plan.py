"""Plan jobs and shared instances: assign members to carriers; launch, evict, empty and close carriers.

`plan_instances` plans the whole instances, and treats carriers as jobs of one instance.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache

from job_queue.scheduler.candidates import Candidate, Groups, find_candidates
from job_queue.scheduler.carriers.allocations import WHOLE, Launch
from job_queue.scheduler.carriers.as_jobs import bin_as_waiting_job, carrier_as_job, carriers_as_jobs
from job_queue.scheduler.carriers.holds import MemberHolds
from job_queue.scheduler.carriers.packing import Packing, members_by_carrier
from job_queue.scheduler.documents.policy_schema import Policy
from job_queue.scheduler.fair_share import ShareTree
from job_queue.scheduler.model import (
    NOTHING,
    ActiveJob,
    Carrier,
    Hold,
    JobState,
    Plan,
    Slots,
    Snapshot,
    Start,
    WaitingJob,
)
from job_queue.scheduler.ordering import WaitingOrder
from job_queue.scheduler.planner import decide, plan_instances
from job_queue.scheduler.sharing.lately import held_lately
from job_queue.scheduler.sharing.spending import Spending
from job_queue.scheduler.victims import VictimKey, victim_order, with_limits_applied


def plan(snapshot: Snapshot, *, explained: bool = True) -> Plan:
    """Return the decisions of one cycle. The order of `active`, `waiting` and `carriers` does not matter.

    :param explained: whether to explain why the other jobs wait. Explanations take half of the time. Without them, the
        plan has no holds.
    """
    snapshot = with_limits_applied(snapshot)
    if not snapshot.carriers and all(job.gpus is None for job in snapshot.waiting):
        return plan_instances(snapshot, explained=explained)
    return _SharedPlan(snapshot).decide(explained=explained)


class _SharedPlan:
    """A plan with members and carriers.

    Four ways to serve a member are tried in this order: free GPUs of a carrier, a new carrier on a free instance, GPUs
    of evicted members, a new carrier on an evicted job's instance.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._packing = Packing(snapshot, reserved_carriers=set(_reserved_carriers(snapshot)))
        asked = {job.name: job for job in snapshot.waiting if job.gpus is not None}
        members = [_with_fitting_pools(job, snapshot.policy) for job in asked.values()]
        whole = [job for job in snapshot.waiting if job.gpus is None]
        # A carrier is charged as a whole instance, and its members hold no slots.
        charged = replace(snapshot, active=(*snapshot.active, *carriers_as_jobs(self._packing, snapshot.now)))
        spending = Spending(charged)
        order = WaitingOrder(snapshot, held_lately(charged), spending)
        # Backoffs of pools are left out, because a member on an existing carrier needs no launch.
        everyone = replace(snapshot, waiting=(*whole, *(job for job in members if job.demand)), paused={})
        candidates, refused = find_candidates(everyone, ShareTree(snapshot.policy, spending.overspent), order, spending)
        self._holds = MemberHolds(snapshot, self._packing)
        fitting = {job.name for job in members if job.demand}
        for job in members:
            if job.name not in fitting and not job.held:
                self._holds.never_fits(asked[job.name])
        misfits = (job for job in members if job.name not in fitting and job.held)
        self._others = [*whole, *(job for job in members if job.name in refused), *misfits]
        self._candidates = [it for it in candidates if it.name in fitting and it.name not in refused]
        self._candidates_by_name = {it.name: it for it in candidates}
        self._patient = [it for it in candidates if it.patient and it.name not in fitting]
        self._groups = Groups(snapshot.active, candidates)
        self._unplaced: list[WaitingJob] = []
        self._due_for_eviction = frozenset(_due_for_eviction(snapshot))
        self._explain_instances: Callable[[], tuple[Hold, ...]] = tuple  # explains the last plan of whole instances

    def decide(self, *, explained: bool) -> Plan:
        """Return the plan."""
        packing = self._packing
        for candidate in self._candidates:
            self._allocate_or_leave_unplaced(candidate)
        packing.pack_into_new_carriers(self._unplaced)
        decided = self._plan_instances()
        if self._join_reopened_carriers(decided):
            decided = self._plan_instances()
        blocked = self._blocked(decided)
        if made_room := {member.name for member in blocked if packing.make_room(member)}:
            packing.pack_into_new_carriers([member for member in self._unplaced if member.name not in made_room])
            decided = self._plan_instances()
        explain = self._explain_instances
        if moves := self._consolidates(decided):
            decided = self._plan_instances()
            explain = self._explain_instances
        if explained:
            decided = replace(decided, holds=explain())
        # If members move, the instance that they leave is for the job that claims it.
        return self._complete(decided if moves else self._with_reused_carriers(decided), explained=explained)

    def _allocate_or_leave_unplaced(self, candidate: Candidate) -> None:
        member = replace(candidate.job, demand=candidate.alternatives)
        if not self._groups.may_start(candidate, has_place=False):
            self._holds.beyond_group(member, *self._groups.count_and_limit(candidate))
            return
        if not self._packing.allocate(member, closed=self._closed_to(candidate)):
            self._packing.keep_carrier_for(member)
            self._unplaced.append(member)
        # Members without GPUs count as well, so that carriers are launched for no more members than a group allows.
        self._groups.enter(candidate)

    def _closed_to(self, candidate: Candidate) -> frozenset[str]:
        """Return the carriers that a member may not join, because joining would delay other jobs that will start there.

        The other jobs are patient jobs that come before the member in its project, and jobs for which a carrier will
        be evicted after the guaranteed runtimes of its members.
        """
        pools = {
            pool
            for it in self._patient
            if it.project is candidate.project and it.key < candidate.key
            for pool in it.pools
        }
        if not pools:
            return self._due_for_eviction
        end = self._snapshot.now + candidate.assumed_runtime
        carriers = self._packing.carriers_of(candidate.job)
        return self._due_for_eviction | {
            job.name
            for job in (carrier_as_job(self._packing, it, self._snapshot.now) for it in carriers)
            if pools & job.slots.keys() and job.max_runtime is not None and job.started is not None
            if end > job.started + job.max_runtime
        }

    def _join_reopened_carriers(self, decided: Plan) -> bool:
        """Let members join carriers that were closed only because of patient jobs which the plan starts.

        Otherwise a job might be evicted for a member although GPUs of a carrier are free for that member. Return
        whether a member joins a carrier.
        """
        started = {start.job for start in decided.starts}
        waits = [it for it in self._patient if it.name not in started]
        if len(waits) == len(self._patient):
            return False
        self._patient, unplaced = waits, self._unplaced
        self._packing.begin_pass()
        gone = {eviction.job for eviction in decided.evictions}
        self._unplaced = [
            member
            for member in unplaced
            if member.name in started
            or not self._packing.allocate(member, closed=self._closed_to(self._candidates_by_name[member.name]) | gone)
        ]
        self._packing.pack_into_new_carriers(self._unplaced)
        return len(self._unplaced) < len(unplaced)

    def _plan_instances(self, *, without: str | None = None) -> Plan:
        """Return the plan of whole instances, without holds.

        :param without: a carrier that is treated as if all its members had left.
        """
        snapshot, packing = self._snapshot, self._packing
        carriers = (
            replace(job, state=JobState.STOPPING, comes_back=False) if job.name == without else job
            for job in carriers_as_jobs(packing, snapshot.now)
        )
        whole = (*(job for job in snapshot.active if job.allocation is None), *self._members_without_slots())
        reserved = dict(snapshot.reserved)
        for it in packing.bins:  # the leader may have changed since slots were reserved
            held = [reserved.pop(member.name) for member in it.members if member.name in reserved]
            if held:
                reserved[it.leader.name] = held[0]
        decided, self._explain_instances = decide(
            replace(
                snapshot,
                active=(*whole, *carriers),
                waiting=(*self._others, *map(bin_as_waiting_job, packing.bins)),
                reserved=reserved,
                carriers=(),
            )
        )
        return decided

    def _members_without_slots(self) -> Iterator[ActiveJob]:
        """Yield a job without slots for each active or starting member of a group, so that it counts in the group."""
        for member in self._snapshot.active:
            if member.allocation is not None and member.group is not None:
                yield replace(member, slots=NOTHING, demand=(), preemptible=False, allocation=None)
        for name in self._packing.allocations:
            job = self._candidates_by_name[name].job
            if job.group is not None:
                yield ActiveJob(
                    name=name,
                    project=job.project,
                    priority=job.priority,
                    slots=NOTHING,
                    state=JobState.STARTING,
                    entered=job.entered,
                    preemptible=False,
                    owner=job.owner,
                    group=job.group,
                    max_parallel=job.max_parallel,
                )

    def _blocked(self, decided: Plan) -> list[WaitingJob]:
        """Return the members for which no carrier starts, neither now nor on slots that are already being freed."""
        served = _served(decided)
        bins = [it for it in self._packing.bins if it.leader.name not in served]
        blocked = {member.name for it in bins for member in it.members}
        return [member for member in self._unplaced if member.name in blocked]

    def _consolidates(self, decided: Plan) -> bool:
        """Move the members of one carrier to other carriers, so that another job can start on the carrier's instance.

        Return whether members were moved.
        """
        served = decided.reservations.keys() | {start.job for start in decided.starts}
        jobs = (*self._others, *(it.leader for it in self._packing.bins))
        lacking = {job.name for job in jobs if not (job.held or job.after)} - served
        if not lacking:
            return False

        @cache
        def gained(carrier: str) -> tuple[AbstractSet[str], int]:
            without = self._plan_instances(without=carrier)
            return without.reservations.keys() & lacking, len(without.evictions)

        most_valuable = self._most_valuable_carriers()
        for carrier in self._packing.movable_carriers():
            # The most valuable carrier of a group is evicted last. So if emptying that carrier helps no job, emptying
            # another carrier of the group helps no job either.
            if not gained(most_valuable[self._group_of(carrier)])[0]:
                continue
            claimants, evictions = gained(carrier)
            if claimants and evictions <= len(decided.evictions):  # the move must not add evictions
                self._packing.move_members(carrier, min(claimants))
                return True
        return False

    def _with_reused_carriers(self, decided: Plan) -> Plan:
        """Let members join empty carriers that are due for eviction, in place of new carriers in the same pool.

        A new carrier might also become due for eviction before its members join it. Carriers would then be closed and
        launched without end. The other jobs get the same number of instances, but perhaps later: the empty carrier
        could be freed at once, and the instance of the new carrier may still be in use. While the agent of the empty
        carrier is not ready, its members wait for it, and a free slot of the new carrier stays free.
        """
        packing = self._packing
        left = self._due_for_eviction - {it.job for it in decided.evictions}
        if not left or not packing.bins:
            return decided
        slots, reused, started = _served(decided), set(), {start.job for start in decided.starts}
        for candidate in self._candidates_by_name.values():
            if candidate.job.gpus is None and candidate.name in started:
                self._groups.enter(candidate)
        for it in list(packing.bins):
            # The members may start at once, so they must not exceed their groups together with the plan's starts.
            members = [self._candidates_by_name[member.name] for member in it.members]
            if all(self._groups.may_start(member, has_place=True) for member in members):
                pools = slots.get(it.leader.name, NOTHING)
                if packing.use_empty_carrier(it, {name for name in left if packing.carriers[name].pool in pools}):
                    reused.add(it.leader.name)
        if not reused:
            return decided
        return replace(
            decided,
            starts=tuple(start for start in decided.starts if start.job not in reused),
            reservations={name: need for name, need in decided.reservations.items() if name not in reused},
            holds=tuple(hold for hold in decided.holds if hold.job not in reused),
        )

    def _group_of(self, carrier: str) -> tuple[str, str, str]:
        """Return the group of a carrier: pool, project and owner. Freed instances of a group are interchangeable.

        The tag `group` has no influence here.
        """
        job = carrier_as_job(self._packing, self._packing.carriers[carrier], self._snapshot.now)
        return next(iter(job.slots)), job.project, job.owner

    def _most_valuable_carriers(self) -> dict[tuple[str, str, str], str]:
        """Return, for each group (see `_group_of`), the running carrier that would be evicted last."""
        now, idle_after = self._snapshot.now, self._snapshot.policy.settings.idle_after
        last: dict[tuple[str, str, str], tuple[VictimKey, str]] = {}
        for job in carriers_as_jobs(self._packing, now):
            if job.state is JobState.RUNNING:
                group, entry = self._group_of(job.name), (victim_order(job, now, idle_after), job.name)
                last[group] = max(entry, last.get(group, entry))
        return {group: name for group, (_, name) in last.items()}

    # --- the complete plan ------------------------------------------------------------------------------

    def _complete(self, decided: Plan, *, explained: bool) -> Plan:
        packing = self._packing
        gone = {eviction.job for eviction in decided.evictions}
        leaders = {it.leader.name: it for it in packing.bins}
        starts: list[Start] = []
        launches: list[Launch] = []
        for start in decided.starts:
            if start.job in leaders:
                members = tuple(member.name for member in leaders[start.job].members)
                launches.append(Launch(members, start.slots, len(starts)))
            else:
                starts.append(start)
        carrier_of_member = {
            job.name: job.allocation.carrier for job in self._snapshot.active if job.allocation is not None
        }
        # Members of an evicted carrier leave with the carrier, and are not evicted one by one.
        leaving = [it for it in packing.evictions.values() if carrier_of_member[it.job] not in gone]
        return replace(
            decided,
            starts=tuple(starts),
            allocations=tuple(it for it in packing.allocations.values() if it.allocation.carrier not in gone),
            launches=tuple(launches),
            evictions=(*decided.evictions, *leaving),
            holds=self._holds.of(decided) if explained else (),
            carriers_to_close=_carriers_to_close(self._snapshot, decided, packing),
        )


def _served(decided: Plan) -> dict[str, Slots]:
    """Return the slots of the jobs that start, or for which slots are reserved without evictions by the planner."""
    claimants = {eviction.claimant for eviction in decided.evictions}
    reserved = {name: slots for name, slots in decided.reservations.items() if name not in claimants}
    return reserved | {start.job: start.slots for start in decided.starts}


def _due_for_eviction(snapshot: Snapshot) -> set[str]:
    """Return the carriers that would be evicted if no runtime were guaranteed.

    Such a carrier takes no new members, because the guaranteed runtime of a new member would delay the eviction.
    """
    policy = snapshot.policy
    pools = tuple(replace(it, min_runtime=None) for it in policy.pools)
    projects = tuple(replace(it, min_runtime=None) for it in policy.projects)
    settings = replace(policy.settings, min_runtime=0)
    live: tuple[ActiveJob | WaitingJob, ...] = (*snapshot.active, *snapshot.waiting)
    if any(job.preemptions for job in live):
        settings = replace(settings, preempted_min_runtime=0)
    without = replace(policy, pools=pools, projects=projects, settings=settings)
    if without == policy or not snapshot.carriers or all(job.gpus is None for job in snapshot.waiting):
        return set()
    decided = _SharedPlan(replace(snapshot, policy=without)).decide(explained=False)
    return {it.job for it in decided.evictions} & {it.name for it in snapshot.carriers}


def _with_fitting_pools(member: WaitingJob, policy: Policy) -> WaitingJob:
    """Return the member with only the pools that are shared and whose instances have enough GPUs."""
    gpus = {pool.name: (pool.gpus or 0) * WHOLE for pool in policy.pools}
    able = tuple(need for need in member.demand if all(gpus.get(pool, 0) >= (member.gpus or 0) for pool in need))
    return replace(member, demand=able)


def _reserved_carriers(snapshot: Snapshot) -> Iterator[str]:
    """Yield the running carriers on which no member stays, if jobs that cannot join them need their instances.

    Such jobs have reservations for which the other free slots do not suffice.
    """
    members = members_by_carrier(snapshot)
    left = [
        carrier
        for carrier in sorted(snapshot.carriers, key=lambda it: it.name)
        if carrier.state is JobState.RUNNING
        if all(job.state is JobState.STOPPING for job in members[carrier.name])
    ]
    if not left or not snapshot.reserved:
        return
    free = _free_slots(snapshot, gone=())
    waiting = {job.name: job for job in snapshot.waiting}
    for carrier in left:
        wanted = sum(
            slots.get(carrier.pool, 0)
            for name, slots in snapshot.reserved.items()
            if name in waiting and not _is_for(carrier, waiting[name])
        )
        if wanted > free[carrier.pool]:
            free[carrier.pool] += 1
            yield carrier.name


def _is_for(carrier: Carrier, job: WaitingJob) -> bool:
    return job.gpus is not None and (job.kind, job.project) == (carrier.kind, carrier.project)


def _free_slots(snapshot: Snapshot, gone: Iterable[str], starts: Sequence[Slots] = ()) -> Counter[str]:
    """Return the slots that are free or being freed; negative if a pool is too small.

    Empty carriers also hold their slots, until their stops are requested.

    :param gone: carriers and jobs that are evicted.
    :param starts: slots of jobs that start.
    """
    free = Counter({pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools})
    free.subtract(snapshot.external)
    leaving = set(gone)
    for job in snapshot.active:
        if job.allocation is None and job.state is not JobState.STOPPING and job.name not in leaving:
            free.subtract(job.slots)
    for carrier in snapshot.carriers:
        if carrier.state is not JobState.STOPPING and carrier.name not in leaving:
            free[carrier.pool] -= 1
    for slots in starts:
        free.subtract(slots)
    return free


def _carriers_to_close(snapshot: Snapshot, decided: Plan, packing: Packing) -> tuple[str, ...]:
    """Return the empty carriers to stop: their instances are needed, or were kept for `keep_warm` seconds.

    Carriers that have been empty for the longest time come first.
    """
    gone = {eviction.job for eviction in decided.evictions}
    empty = [
        it
        for it in snapshot.carriers
        if it.state is JobState.RUNNING and not it.stop_denied
        if not packing.members[it.name] and not packing.joining[it.name]
    ]
    if not empty:
        return ()
    free = _free_slots(snapshot, gone, [start.slots for start in decided.starts])
    wanted: Counter[str] = Counter()
    for slots in decided.reservations.values():
        wanted.update(slots)
    keep: Mapping[str, float] = {pool.name: pool.keep_warm or 0.0 for pool in snapshot.policy.pools}
    to_close = []
    for carrier in sorted(empty, key=lambda it: (_empty_since(it), it.name)):
        if wanted[carrier.pool] > free[carrier.pool] or snapshot.now - _empty_since(carrier) >= keep[carrier.pool]:
            to_close.append(carrier.name)
            free[carrier.pool] += 1
    return tuple(to_close)


def _empty_since(carrier: Carrier) -> float:
    return carrier.started if carrier.empty_since is None else carrier.empty_since
