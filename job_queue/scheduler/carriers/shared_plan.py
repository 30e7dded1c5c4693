"""plan(snapshot) -> Plan, with members: seats on carriers first, and carriers as jobs of one instance for the planner."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from job_queue.scheduler.candidates import Groups, sort_out
from job_queue.scheduler.carriers.packing import Packing
from job_queue.scheduler.fair_share import QueueTree
from job_queue.scheduler.model import Evict, Hold, JobState, Plan, Reason, Snapshot, WaitingJob
from job_queue.scheduler.ordering import WaitingOrder
from job_queue.scheduler.planner import plan as plan_instances
from job_queue.scheduler.sharing.lately import held_lately
from job_queue.scheduler.sharing.spending import Spending


def plan(snapshot: Snapshot, *, explained: bool = True) -> Plan:
    """Decide one cycle. The order of `active`, `waiting` and `carriers` does not matter.

    :param explained: whether to say why the others wait, which takes half of the time. Otherwise there are no holds.
    """
    members = {job.name: job for job in snapshot.waiting if job.gpus is not None}
    if not members and not snapshot.carriers:
        return plan_instances(snapshot, explained=explained)
    return _SharedPlan(snapshot, members).decide(explained=explained)


class _SharedPlan:
    def __init__(self, snapshot: Snapshot, members: Mapping[str, WaitingJob]) -> None:
        self._snapshot = snapshot
        self._packing = Packing(snapshot)
        spending = Spending(snapshot)
        order = WaitingOrder(snapshot, held_lately(snapshot), spending)
        candidates, refused = sort_out(snapshot, QueueTree(snapshot.policy, spending.overspent), order, spending)
        self._refused = {name for name in refused if name in members}
        self._groups = Groups(snapshot.active, candidates)
        self._candidates = {candidate.name: candidate for candidate in candidates}
        able = (candidate.job for candidate in candidates if candidate.name in members)
        self._able = [job for job in able if job.name not in self._refused]
        self._whole = [job for job in snapshot.waiting if job.name not in members or job.name in self._refused]
        self._members = members
        self._beyond_group: dict[str, str] = {}  # member -> why

    def decide(self, *, explained: bool) -> Plan:
        """Seats that are there; instances that are free; seats that others leave; instances that others leave."""
        unseated = []
        for member in self._able:
            if self._may_join(member):
                if self._packing.seat(member):
                    self._join(member)
                else:
                    self._packing.keep(member)
                    unseated.append(member)
        self._launch_for(unseated)
        decided = self._plan_instances(explained=False)
        left = [member for member in unseated if not self._is_served(member, decided)]
        made_room = [member for member in left if self._packing.make_room(member)]
        if made_room:
            self._launch_for([member for member in unseated if member not in made_room])
        return self._completed(self._plan_instances(explained=explained))

    def _launch_for(self, members: list[WaitingJob]) -> None:
        self._packing.bins.clear()
        for member in members:
            self._packing.enter(member)

    def _may_join(self, member: WaitingJob) -> bool:
        candidate = self._candidates[member.name]
        if self._groups.may_start(candidate, has_place=False):
            return True
        used, most = self._groups.figures(candidate)
        self._beyond_group[member.name] = (
            f"Of its group {member.group} {used} {'job is' if used == 1 else 'jobs are'} active or about to be; {most} "
            "may be at a time (tag max_parallel). It waits until one ends."
        )
        return False

    def _join(self, member: WaitingJob) -> None:
        self._groups.enter(self._candidates[member.name])

    def _is_served(self, member: WaitingJob, decided: Plan) -> bool:
        """Whether a carrier starts for it, or will on what is being freed anyway."""
        leader = next(it.leader.name for it in self._packing.bins if member in it.members)
        if leader in {start.job for start in decided.starts}:
            return True
        asked = {eviction.claimant for eviction in decided.evictions}
        return leader in decided.reservations and leader not in asked

    def _plan_instances(self, *, explained: bool) -> Plan:
        carriers = tuple(self._packing.as_jobs())
        whole = tuple(job for job in self._snapshot.active if job.seat is None)
        leaders = tuple(it.leader for it in self._packing.bins)
        outer = replace(self._snapshot, active=(*whole, *carriers), waiting=(*self._whole, *leaders))
        return plan_instances(outer, explained=explained)

    # --- the plan as a whole ----------------------------------------------------------------------------

    def _completed(self, decided: Plan) -> Plan:
        packing = self._packing
        gone = {eviction.job for eviction in decided.evictions}
        leaders = {it.leader.name for it in packing.bins}
        starts = {start.job: start.slots for start in decided.starts}
        stay = {job.seat.carrier for job in self._snapshot.active if job.seat and job.name in packing.evictions}
        return replace(
            decided,
            starts=tuple(start for start in decided.starts if start.job not in leaders),
            seats=tuple(seat for seat in packing.seats.values() if seat.seat.carrier not in gone),
            launches=packing.launches(starts),
            evictions=(*decided.evictions, *self._evictions_on_board(gone & stay)),
            holds=self._holds(decided, gone, starts),
            closes=self._closes(decided),
        )

    def _evictions_on_board(self, gone: set[str]) -> tuple[Evict, ...]:
        """Nobody leaves a carrier by himself that leaves as a whole."""
        on_board = {job.name: job.seat.carrier for job in self._snapshot.active if job.seat}
        return tuple(it for it in self._packing.evictions.values() if on_board[it.job] not in gone)

    def _closes(self, decided: Plan) -> tuple[str, ...]:
        """Empty carriers that somebody waits for, who is empty longest first; and those that were kept long enough."""
        wanted: Counter[str] = Counter()
        for slots in decided.reservations.values():
            wanted.update(slots)
        free = self._left_free(decided)
        keep = {pool.name: pool.keep_warm or 0.0 for pool in self._snapshot.policy.pools}
        closes = []
        empty = [
            carrier
            for carrier in self._snapshot.carriers
            if carrier.state is JobState.RUNNING and not self._packing.is_taken(carrier.name)
        ]
        for carrier in sorted(empty, key=lambda it: (it.empty_since or it.started, it.name)):
            pool = carrier.pool
            since = carrier.started if carrier.empty_since is None else carrier.empty_since
            if wanted[pool] > free[pool] or self._snapshot.now - since >= keep[pool]:
                closes.append(carrier.name)
                free[pool] += 1
        return tuple(closes)

    def _left_free(self, decided: Plan) -> Counter[str]:
        """Slots that are free, or being freed by others than empty carriers, once the plan is carried out."""
        free = Counter({pool.name: self._snapshot.capacity(pool) for pool in self._snapshot.policy.pools})
        free.subtract(self._snapshot.external)
        gone = {eviction.job for eviction in decided.evictions}
        for job in self._snapshot.active:
            if job.seat is None and job.state is not JobState.STOPPING and job.name not in gone:
                free.subtract(job.slots)
        for carrier in self._snapshot.carriers:
            if carrier.state is not JobState.STOPPING and carrier.name not in gone:
                free[carrier.pool] -= 1
        for start in decided.starts:
            free.subtract(start.slots)
        return free

    def _holds(self, decided: Plan, gone: set[str], starts: Mapping[str, object]) -> tuple[Hold, ...]:
        if not decided.holds and decided.shares and not self._members:
            return decided.holds
        packing, holds = self._packing, list(decided.holds)
        of_leaders = {hold.job: hold for hold in decided.holds}
        for name, message in self._beyond_group.items():
            holds.append(Hold(name, Reason.GROUP_LIMIT, message))
        for name, carrier in packing.promised.items():
            by = [eviction.job for eviction in packing.evictions.values() if eviction.claimant == name]
            holds.append(Hold(name, Reason.WAITING_FOR_STOPPING, self._promise(carrier, by), blockers=tuple(by)))
        for name, seat in packing.seats.items():
            if seat.seat.carrier in gone:
                message = f"Its carrier {seat.seat.carrier} makes room for another job."
                holds.append(Hold(name, Reason.WAITING_FOR_CAPACITY, message))
        for it in packing.bins:
            hold = of_leaders.get(it.leader.name)
            for member in it.members:
                if member is not it.leader and hold is not None:
                    message = f"It is to share an instance with {it.leader.name}. {hold.message}"
                    holds.append(Hold(member.name, hold.reason, message, hold.ahead, hold.blockers))
            if it.leader.name in starts:
                message = "Its carrier is being launched."
                holds.extend(Hold(member.name, Reason.WAITING_FOR_STOPPING, message) for member in it.members)
        return tuple(holds)

    def _promise(self, carrier: str, by: list[str]) -> str:
        if by:
            return f"GPUs of {carrier} are set aside for it; it starts when {', '.join(by)} have stopped."
        state = next(it.state for it in self._snapshot.carriers if it.name == carrier)
        if state is JobState.STARTING:
            return f"Its carrier {carrier} is being launched."
        return f"GPUs of {carrier} are set aside for it, which others are leaving."
