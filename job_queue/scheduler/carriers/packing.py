"""Members on carriers: who sits down, who waits for a seat, who makes room, and for whom carriers are launched.

A member never takes what is promised to one that comes before it. Nobody is told here to leave an instance: that is
the planner's, which takes carriers for jobs of one instance.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from job_queue.scheduler.carriers.seats import Carrier, Launch, Row, Seat, SitDown, seat_on
from job_queue.scheduler.model import ActiveJob, Evict, JobState, Rule, Snapshot, WaitingJob
from job_queue.scheduler.victims import Guarantees, victim_order


@dataclass
class Bin:
    """A carrier that does not exist yet, and the members that it would be launched for."""

    leader: WaitingJob
    row: Row
    members: list[WaitingJob] = field(default_factory=list)


class Packing:
    """The seats of a project's carriers, and those who want one; in the order in which they come.

    :param snapshot: with the members among `active` and `waiting`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._now, self._settings = snapshot.now, snapshot.policy.settings
        self._guarantees = Guarantees(snapshot.policy)
        self._gpus = {pool.name: pool.gpus or 0 for pool in snapshot.policy.pools}
        self._carriers = {carrier.name: carrier for carrier in snapshot.carriers}
        self.on_board: dict[str, list[ActiveJob]] = {carrier: [] for carrier in self._carriers}
        for job in snapshot.active:
            if job.seat is not None and job.seat.carrier in self.on_board:
                self.on_board[job.seat.carrier].append(job)
        self._free: dict[str, Row] = {}  # nobody sits there
        self._soon: dict[str, Row] = {}  # nobody sits there once those that stop are gone, and nobody was promised it
        for name, carrier in self._carriers.items():
            seats = [(job.state, job.seat) for job in self.on_board[name] if job.seat is not None]
            self._free[name] = Row(carrier.gpus, (seat for _, seat in seats))
            staying = (seat for state, seat in seats if state is not JobState.STOPPING)
            self._soon[name] = Row(carrier.gpus, staying)
        self._kept: dict[str, str] = {}  # carrier -> the patient member for whom its seats are kept
        self.seats: dict[str, SitDown] = {}
        self.promised: dict[str, str] = {}  # waiting member -> the carrier on which it will have a seat
        self.evictions: dict[str, Evict] = {}
        self.bins: list[Bin] = []
        self._seated: dict[str, list[WaitingJob]] = {carrier: [] for carrier in self._carriers}

    # --- seats that are there ---------------------------------------------------------------------------

    def seat(self, member: WaitingJob) -> bool:
        """Give a member a seat that is free, or promise it one that will be."""
        size = member.gpus or 0
        for when in (self._free, None):  # None: once others are gone, or the carrier runs
            found = []
            for carrier in self._of(member):
                if when is not None and carrier.state is not JobState.RUNNING:
                    continue
                row = self._soon[carrier.name]
                gpus = row.place(size, when[carrier.name] if when else None)
                if gpus is not None and self._may_take(carrier, member):
                    found.append((row.opens_a_gpu(gpus, size), row.free, carrier.name, gpus))
            if found:
                *_, name, gpus = min(found)
                self._give(member, seat_on(name, gpus, size), at_once=when is not None)
                return True
        return False

    def _of(self, member: WaitingJob) -> Iterable[Carrier]:
        """The carriers that take a member, or will."""
        pools = {pool for need in member.demand for pool in need}
        return (
            carrier
            for carrier in self._carriers.values()
            if carrier.kind == member.kind and carrier.project == member.project and carrier.pool in pools
            if carrier.state in (JobState.STARTING, JobState.RUNNING)
        )

    def _may_take(self, carrier: Carrier, member: WaitingJob) -> bool:
        return self._kept.get(carrier.name, member.name) == member.name

    def _give(self, member: WaitingJob, seat: Seat, *, at_once: bool) -> None:
        self._soon[seat.carrier].take(seat)
        self._seated[seat.carrier].append(member)
        if at_once:
            self._free[seat.carrier].take(seat)
            self.seats[member.name] = SitDown(member.name, seat)
        else:
            self.promised[member.name] = seat.carrier

    def keep(self, member: WaitingJob) -> None:
        """Who has waited for too long gets the next seats of a carrier: nobody behind it sits down there."""
        patience = self._settings.patience
        if patience is None or self._now - member.entered <= patience:
            return
        able = [it for it in self._of(member) if it.name not in self._kept and it.gpus * 10 >= (member.gpus or 0)]
        if able:
            best = max(able, key=lambda carrier: (self._soon[carrier.name].free, carrier.name))
            self._kept[best.name] = member.name

    # --- carriers that are not there --------------------------------------------------------------------

    def enter(self, member: WaitingJob) -> None:
        """A member for which a carrier is to be launched, or that joins others for which one is."""
        size = member.gpus or 0
        for it in self.bins:
            same = it.leader.kind == member.kind and it.leader.project == member.project
            if same and it.leader.demand == member.demand and (gpus := it.row.place(size)) is not None:
                it.row.take(seat_on("", gpus, size))
                it.members.append(member)
                return
        gpus_there = [self._gpus.get(pool, 0) for need in member.demand for pool in need]
        row = Row(min((gpus for gpus in gpus_there if gpus * 10 >= size), default=max(gpus_there, default=0)))
        if (gpus := row.place(size)) is not None:
            row.take(seat_on("", gpus, size))
        self.bins.append(Bin(member, row, [member]))

    # --- seats that others leave ------------------------------------------------------------------------

    def make_room(self, member: WaitingJob) -> bool:
        """Have members of lower priority leave one carrier, as few and as cheap as will do; promise their seat."""
        found = []
        for carrier in self._of(member):
            if carrier.state is JobState.RUNNING and (victims := self._who_leaves(carrier, member)):
                keys = sorted((self._order(victim) for victim in victims), reverse=True)
                found.append((keys, carrier.name, victims))
        if not found:
            return False
        _, name, victims = min(found, key=lambda it: it[:2])
        row, size = self._soon[name], member.gpus or 0
        for victim in victims:
            assert victim.seat is not None
            self.evictions[victim.name] = Evict(victim.name, member.name, Rule.PREEMPT)
            row.leave(victim.seat)
        gpus = row.place(size)
        assert gpus is not None
        self._give(member, seat_on(name, gpus, size), at_once=False)
        return True

    def _who_leaves(self, carrier: Carrier, member: WaitingJob) -> Sequence[ActiveJob]:
        """Whose leaving makes a place, in victim order, none of them needless; nobody where all together do not."""
        row, size = self._soon[carrier.name].copy(), member.gpus or 0
        leaving: list[ActiveJob] = []
        lower = [job for job in self.on_board[carrier.name] if job.priority < member.priority and self._may_leave(job)]
        for job in sorted(lower, key=self._order):
            if row.place(size) is not None:
                break
            assert job.seat is not None
            row.leave(job.seat)
            leaving.append(job)
        if row.place(size) is None:
            return ()
        for job in sorted(leaving, key=self._order, reverse=True):
            assert job.seat is not None
            row.take(job.seat)
            if row.place(size) is None:
                row.leave(job.seat)
            else:
                leaving.remove(job)
        return leaving

    def _may_leave(self, job: ActiveJob) -> bool:
        if job.name in self.evictions or job.state is not JobState.RUNNING:
            return False
        return self._guarantees.allow_to_evict(replace(job, slots=self._slots_of(job)), self._now)

    def _order(self, job: ActiveJob) -> tuple[object, ...]:
        return victim_order(replace(job, slots=self._slots_of(job)), self._now, self._settings.idle_after)

    def _slots_of(self, job: ActiveJob) -> Mapping[str, int]:
        """As who holds an instance has them: what counts is how members compare, and whose guarantee it is."""
        return {self._carriers[job.seat.carrier].pool: 1} if job.seat else {}

    # --- as the planner sees it -------------------------------------------------------------------------

    def is_taken(self, carrier: str) -> bool:
        """Whether anybody sits on a carrier, or is to."""
        return bool(self.on_board[carrier] or self._seated[carrier])

    def as_jobs(self) -> Iterable[ActiveJob]:
        """The carriers as jobs of one instance: as important as the best on board, and as hard to replace as all.

        Of one that nobody sits on, or is to, the instance is as good as free.
        """
        for name, carrier in self._carriers.items():
            aboard = [job for job in self.on_board[name] if job.name not in self.evictions]
            joining = self._seated[name]
            empty = not self.is_taken(name)
            state = JobState.STOPPING if empty and carrier.state is JobState.RUNNING else carrier.state
            staying = [job for job in aboard if job.state is not JobState.STOPPING]
            lost = [self._work_lost(job) for job in staying]
            yield ActiveJob(
                name=name,
                project=carrier.project,
                priority=max((job.priority for job in (*staying, *joining)), default=-(10**9)),
                slots={carrier.pool: 1},
                state=state,
                entered=min((job.entered for job in aboard), default=carrier.started),
                started=max((job.started for job in staying if job.started), default=carrier.started),
                preemptible=carrier.preemptible,
                stop_denied=any(job.stop_denied for job in aboard),
                comes_back=state is JobState.STOPPING and not empty,
                idle_since=_idle_since(staying, joining),
                owner=aboard[0].owner if aboard else "",
                lost=sum(lost) / (carrier.gpus * 10),
                **_until(staying, joining),
            )

    def _work_lost(self, job: ActiveJob) -> float:
        """GPU-tenth-seconds."""
        if job.started is None or job.seat is None:
            return 0.0
        return max(0.0, self._now - max(job.started, job.checkpoint or job.started)) * job.seat.size

    def launches(self, starts: Mapping[str, Mapping[str, int]]) -> tuple[Launch, ...]:
        """The carriers to be launched.

        :param starts: what the planner gave to those who lead.
        """
        return tuple(
            Launch(tuple(member.name for member in it.members), starts[it.leader.name])
            for it in self.bins
            if it.leader.name in starts
        )


def _idle_since(staying: Sequence[ActiveJob], joining: Sequence[WaitingJob]) -> float | None:
    times = [job.idle_since for job in staying]
    if joining or not times or None in times:
        return None
    return max(time for time in times if time is not None)


def _until(staying: Sequence[ActiveJob], joining: Sequence[WaitingJob]) -> dict[str, float]:
    """When it is over at the latest, and is expected to be, where that is known of all; seconds from its start."""
    if joining or not staying:
        return {}
    begun = max(job.started or 0.0 for job in staying)
    found: dict[str, float] = {}
    for name in ("max_runtime", "expected"):
        ends = [(job.started or begun) + known for job in staying if (known := getattr(job, name)) is not None]
        if len(ends) == len(staying):
            found[name] = max(ends) - begun
    return found
