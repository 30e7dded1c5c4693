"""The properties of scheduling rules, section 7, on random snapshots; the others' rules are still to come.

They are written from the rules and share no code with the planner.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler.decisions import Plan
from job_queue.scheduler.model import JobState, Slots, Snapshot, WaitingJob
from job_queue.scheduler.planner import plan
from job_queue.scheduler.simulation import Run
from tests.builders import NOW
from tests.unit.scheduler.snapshots import snapshots

ordinary = settings(max_examples=300, deadline=None)
ROUNDS = 10


@ordinary
@given(snapshots())
def test_1_capacity(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    free = capacity(snapshot)
    free.subtract(used(snapshot))
    assert within(total(start.slots for start in decided.starts), free)


@ordinary
@given(snapshots())
def test_2_gang(snapshot: Snapshot) -> None:
    demands = {job.name: job.demand for job in snapshot.waiting}
    assert all(start.slots in demands[start.job] for start in plan(snapshot).starts)


@ordinary
@given(snapshots())
def test_4_only_lower_preemptible_running_jobs_leave(snapshot: Snapshot) -> None:
    priorities = {job.name: job.priority for job in snapshot.waiting}
    victims = {job.name: job for job in snapshot.active}
    for eviction in plan(snapshot).evictions:
        victim = victims[eviction.job]
        assert victim.preemptible
        assert victim.state is JobState.RUNNING
        assert victim.priority < priorities[eviction.claimant]
        assert victim.started is not None
        assert victim.started + snapshot.policy.settings.min_runtime <= snapshot.now


@ordinary
@given(snapshots())
def test_6_work_conservation(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    for job in left_waiting(snapshot, decided):
        own = decided.reservations.get(job.name)
        if own is None or own == snapshot.reserved.get(job.name):  # others were just promised slots being freed
            room = free_for(job, snapshot, decided)
            assert not any(within(need, room) for need in job.demand if may_run(need, snapshot))


@ordinary
@given(snapshots(guarantees=False))
def test_7_priority(snapshot: Snapshot) -> None:
    stable, _ = run_to_the_end(snapshot)
    decided = plan(stable)
    assert decided.reservations == {}
    for job in left_waiting(stable, decided):
        lower = total(it.slots for it in stable.active if it.preemptible and it.priority < job.priority)
        room = capacity(stable)
        room.subtract(used(stable))
        room.update(lower)
        assert not any(within(need, room) for need in job.demand if may_run(need, stable))


@ordinary
@given(snapshots())
def test_8_no_needless_eviction(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    room = coming_free(snapshot, decided)
    room.subtract(total(decided.reservations.values()))
    victims = {job.name: job for job in snapshot.active}
    demands = {job.name: job.demand for job in snapshot.waiting}
    for eviction in decided.evictions:
        without = Counter(room)
        without.subtract(victims[eviction.job].slots)
        assert min(without.values()) < 0, "somebody was evicted whose slots nobody needs"
        assert any(within(need, decided.reservations[eviction.claimant]) for need in demands[eviction.claimant])


@ordinary
@given(snapshots(), st.randoms(use_true_random=False))
def test_9_order_free(snapshot: Snapshot, random: Random) -> None:
    active, waiting = list(snapshot.active), list(snapshot.waiting)
    random.shuffle(active)
    random.shuffle(waiting)
    shuffled = Snapshot(
        policy=snapshot.policy,
        now=snapshot.now,
        active=tuple(active),
        waiting=tuple(waiting),
        external=dict(reversed(list(snapshot.external.items()))),
        reserved=dict(reversed(list(snapshot.reserved.items()))),
    )
    assert plan(shuffled) == plan(snapshot)


@ordinary
@given(snapshots())
def test_10_stable(snapshot: Snapshot) -> None:
    stable, rounds = run_to_the_end(snapshot)
    assert rounds <= ROUNDS
    decided = plan(stable)
    assert not decided.starts
    assert not decided.evictions


@ordinary
@given(snapshots())
def test_10_no_second_eviction_for_a_holder(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    run = Run(snapshot)
    run.apply(decided)
    still = tuple(job for job in snapshot.active if job.state is JobState.STOPPING)
    back = {job.name for job in still}
    while_stops_run = replace(
        run.snapshot,
        active=(*run.snapshot.active, *(replace(job, reserved_for=None) for job in still)),
        waiting=tuple(job for job in run.snapshot.waiting if job.name not in back),
    )
    claimants = {eviction.claimant for eviction in plan(while_stops_run).evictions}
    demands = {job.name: job.demand for job in snapshot.waiting}
    # Who holds less than it needs has not evicted yet: its victims were still being launched.
    promised = {name for name, own in decided.reservations.items() if any(within(it, own) for it in demands[name])}
    assert not claimants & promised


@ordinary
@given(snapshots())
def test_11_conservation(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    waiting = [start.job for start in decided.starts] + [hold.job for hold in decided.holds]
    assert sorted(waiting) == sorted(job.name for job in snapshot.waiting)
    evicted = [eviction.job for eviction in decided.evictions]
    assert len(set(evicted)) == len(evicted)
    assert set(evicted) <= {job.name for job in snapshot.active}
    assert set(decided.reservations) <= {hold.job for hold in decided.holds}


@ordinary
@given(snapshots(movers=False))
def test_12_no_start_is_followed_by_its_own_eviction(snapshot: Snapshot) -> None:
    run = Run(snapshot)
    started: set[str] = set()
    for _ in range(ROUNDS):
        decided = plan(run.snapshot)
        assert not started & {eviction.job for eviction in decided.evictions}
        started |= {start.job for start in decided.starts}
        run.apply(decided)


@ordinary
@given(snapshots())
def test_every_hold_says_something(snapshot: Snapshot) -> None:
    for hold in plan(snapshot).holds:
        assert hold.message.endswith(".")
        assert hold.message[0].isupper() or hold.message[0].isdigit()


# --- figures, from the snapshot and the plan alone ----------------------------------------------------


def total(slots: Iterable[Slots]) -> Counter[str]:
    result: Counter[str] = Counter()
    for some in slots:
        result.update(some)
    return result


def capacity(snapshot: Snapshot) -> Counter[str]:
    return Counter({pool.name: pool.capacity for pool in snapshot.policy.pools})


def used(snapshot: Snapshot) -> Counter[str]:
    return total([*(job.slots for job in snapshot.active), snapshot.external])


def coming_free(snapshot: Snapshot, decided: Plan) -> Counter[str]:
    """What is free, or will be once all stops are over, starts of the plan being carried out."""
    evicted = {eviction.job for eviction in decided.evictions}
    room = capacity(snapshot)
    room.subtract(used(snapshot))
    room.subtract(total(start.slots for start in decided.starts))
    room.update(total(job.slots for job in snapshot.active if job.state is JobState.STOPPING or job.name in evicted))
    return room


def free_for(job: WaitingJob, snapshot: Snapshot, decided: Plan) -> Counter[str]:
    """Free slots, less those set aside for others.

    What victims of this plan leave serves the reservations first; then free slots, for those ahead first.
    """
    own = decided.reservations.get(job.name, {})
    ahead = {it.name for it in snapshot.waiting if order(it) < order(job)}
    before = total(slots for name, slots in decided.reservations.items() if name in ahead)
    everyone = total(decided.reservations.values())
    evicted = {eviction.job for eviction in decided.evictions}
    if not own:
        everyone -= total(victim.slots for victim in snapshot.active if victim.name in evicted)
    room = capacity(snapshot)
    room.subtract(used(snapshot))
    room.subtract(total(start.slots for start in decided.starts))
    return Counter(
        {
            pool: max(0, free - everyone[pool]) + max(0, min(own.get(pool, 0), free - before[pool]))
            for pool, free in room.items()
        }
    )


def order(job: WaitingJob) -> tuple[int, float, str]:
    return (-job.priority, job.entered, job.name)


def left_waiting(snapshot: Snapshot, decided: Plan) -> list[WaitingJob]:
    """Who is not held, not backing off, and does not start."""
    started = {start.job for start in decided.starts}
    return [
        job
        for job in snapshot.waiting
        if job.name not in started and not job.held and (job.backoff_until or NOW) <= NOW
    ]


def may_run(need: Slots, snapshot: Snapshot) -> bool:
    """Whether the pools exist and are ever large enough."""
    return within(need, capacity(snapshot))


def within(need: Slots, room: Mapping[str, int]) -> bool:
    return all(count <= room.get(pool, 0) for pool, count in need.items())


def run_to_the_end(snapshot: Snapshot) -> tuple[Snapshot, int]:
    """The stable state, and after how many rounds nothing was started or evicted any more."""
    run, last = Run(snapshot), 0
    for number in range(1, 51):
        decided = plan(run.snapshot)
        if decided.starts or decided.evictions:
            last = number
        if not run.apply(decided):
            return run.snapshot, last
    raise AssertionError("not stable after 50 rounds")
