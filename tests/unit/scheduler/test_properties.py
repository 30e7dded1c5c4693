"""The properties of scheduling rules, section 7, on random snapshots of whole policies.

They are written from the rules and share no code with the planner, except that fair shares are read from the plan.
A longer run: `pytest tests/unit/scheduler/test_properties.py --hypothesis-profile=long`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    ActiveJob,
    Calendar,
    Department,
    JobState,
    Plan,
    Project,
    Rule,
    Slots,
    Snapshot,
    WaitingJob,
    WaitReason,
    plan,
)
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import NOW, a_snapshot, waiting
from tests.unit.scheduler.snapshots import SMALL, Kind, drawn, make, snapshots

pytestmark = pytest.mark.timeout(3600)  # the long profile's tens of thousands of snapshots take their time

LARGE = Kind()
LONG = settings().max_examples > 100
ordinary = settings(max_examples=settings().max_examples * (3 if LONG else 1), deadline=None)
few = settings(max_examples=settings().max_examples if LONG else 30, deadline=None)
SAMPLES = 3000 if LONG else 1000  # for what is counted
ROUNDS = 15


@ordinary
@given(snapshots())
def test_1_capacity(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        free = capacity(before)
        free.subtract(used(before))
        assert within(total(start.slots for start in decided.starts), free)


@few
@given(snapshots(LARGE))
def test_1_2_3_4_on_large_snapshots(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    free = capacity(snapshot)
    free.subtract(used(snapshot))
    assert within(total(start.slots for start in decided.starts), free)
    check_gangs(snapshot, decided)
    check_limits(snapshot, decided)
    check_fixed(snapshot, decided)
    check_evictions(snapshot, decided)


@ordinary
@given(snapshots())
def test_2_gang(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        check_gangs(before, decided)


@ordinary
@given(snapshots())
def test_3_limits(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        check_limits(before, decided)


@ordinary
@given(snapshots())
def test_4_jobs_that_are_not_preemptible_stay_in_quota_and_are_never_evicted(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        check_fixed(before, decided)
        check_evictions(before, decided)


@ordinary
@given(
    snapshots(
        replace(SMALL, fixed=False, external=False, guarantees=False, patience=False, oversubscribed=False, stops=False)
    )
)
def test_5_guarantee(snapshot: Snapshot) -> None:
    stable, _ = run_to_the_end(snapshot)
    decided = plan(stable)
    for job in left_waiting(stable, decided):
        for need in job.demand:
            if may_run(need, stable):
                assert not fits_in_quota(job, need, stable)


@ordinary
@given(snapshots(replace(SMALL, patience=False)))
@example(  # a mover that turns out not to be needed leaves its place in the other pool
    make(
        100201, [590, 2814, 3131415, 1_152_858_197], [1, 281, 291, 17522, 0, 715690], replace(SMALL, patience=False)
    )  # fmt: skip
)
def test_6_work_conservation(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    evicted = {eviction.job for eviction in decided.evictions}
    victims = total(job.slots for job in snapshot.active if job.name in evicted)
    free = free_after_starts(snapshot, decided)
    # What victims of this plan leave serves their claimants first, then free slots do; what they leave beyond that is
    # not for everybody.
    aside = total(decided.reservations.values())
    claimants = {eviction.claimant for eviction in decided.evictions}
    claimed = total(decided.reservations.get(name, {}) for name in claimants)
    soon = coming_free(snapshot, decided)
    room: Counter[str] = Counter()
    for pool, count in free.items():
        filled = min(victims[pool], claimed[pool]) - max(0, soon[pool] - aside[pool])
        room[pool] = count - max(0, aside[pool] - max(0, filled))
    for job in left_waiting(snapshot, decided):
        if job.name not in decided.reservations:
            for need in job.demand:
                if may_run(need, snapshot) and may_start(job, need, snapshot, decided):
                    assert not within(need, room)


@ordinary
@given(snapshots(replace(SMALL, guarantees=False, patience=False)))
@example(  # who holds a reservation backs off
    make(
        41_156_356_537_830_856_719_481_115_548_682_416_004_530_176,
        [],
        [0, 0, 0],
        replace(SMALL, guarantees=False, patience=False),
    )  # fmt: skip
)
@example(  # a job of two pools, one of which has refused an instance
    make(
        20_922_789_888_001,
        [35, 606_725],
        [18_760],
        replace(SMALL, guarantees=False, patience=False),
    )  # fmt: skip
)
def test_7_priority(snapshot: Snapshot) -> None:
    stable, _ = run_to_the_end(snapshot)
    decided = plan(stable)
    # Who backs off keeps what is set aside for it; for everybody else nothing is, as nobody is being stopped.
    backs_off = {hold.job for hold in decided.holds if hold.reason is WaitReason.BACKOFF}
    assert decided.reservations.keys() <= backs_off
    for job in left_waiting(stable, decided):
        lower = [it for it in stable.active if it.preemptible and is_below(it, job)]
        without = replace(stable, active=tuple(it for it in stable.active if it not in lower))
        for need in job.demand:
            # A job that needs refused instances of one pool has no jobs of another pool stopped for it.
            left = without if is_certain(need, stable) else stable
            room = capacity(left)
            room.subtract(used(left))
            room.subtract(total(decided.reservations.values()))
            if may_run(need, stable) and may_start(job, need, left, Plan()):
                assert not within(need, room)


@ordinary
@given(snapshots())
@example(  # the free slot is kept for a patient gang; a job behind it may evict
    make(336_092_917_825_400_000, [0, 56], [1, 37_085], SMALL)
)
def test_8_no_needless_eviction(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    room = coming_free(snapshot, decided)
    room.subtract(total(decided.reservations.values()))
    room.subtract(most_kept(snapshot, decided))
    active = {job.name: job for job in snapshot.active}
    waits = {job.name: job for job in snapshot.waiting}
    claimed = {
        (queue.name, pool)
        for eviction in decided.evictions
        for queue in path(waits[eviction.claimant], snapshot)
        for pool in decided.reservations.get(eviction.claimant, {})
    }
    after = held_after(snapshot, decided)
    for eviction in decided.evictions:
        victim = active[eviction.job]
        assert any(within(need, decided.reservations[eviction.claimant]) for need in waits[eviction.claimant].demand)
        needed_for_slots = any(room[pool] < count for pool, count in victim.slots.items())
        # ... or so that the claimant's project and department stay within what they may hold
        needed_for_shares = any(
            (queue.name, pool) in claimed and after[queue.name, pool] + count > least_bound(queue, pool)
            for queue in path(victim, snapshot)
            for pool, count in victim.slots.items()
        )
        assert needed_for_slots or needed_for_shares


@ordinary
@given(snapshots(), st.randoms(use_true_random=False))
def test_9_order_free(snapshot: Snapshot, random: Random) -> None:
    check_order_free(snapshot, random)


@few
@given(snapshots(LARGE), st.randoms(use_true_random=False))
def test_9_order_free_on_large_snapshots(snapshot: Snapshot, random: Random) -> None:
    check_order_free(snapshot, random)


@ordinary
@given(snapshots())
def test_10_stable(snapshot: Snapshot) -> None:
    check_stable(snapshot)


@few
@given(snapshots(LARGE))
def test_10_stable_on_large_snapshots(snapshot: Snapshot) -> None:
    check_stable(snapshot)


@ordinary
@given(snapshots())
def test_10_no_second_eviction_for_a_holder(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    run = ScenarioRun(snapshot)
    run.apply(decided)
    still = tuple(job for job in snapshot.active if job.state is JobState.STOPPING)
    back = {job.name for job in still}
    while_stops_run = replace(
        run.snapshot,
        active=(*run.snapshot.active, *still),
        waiting=tuple(job for job in run.snapshot.waiting if job.name not in back),
    )
    evicted_for = {eviction.claimant for eviction in decided.evictions}
    again, jobs = plan(while_stops_run), {job.name: job for job in snapshot.waiting}
    for name in evicted_for & {eviction.claimant for eviction in again.evictions}:
        # ... unless a higher priority, which could not be helped before, has taken its reservation over.
        new = [jobs[it] for it in again.reservations.keys() - decided.reservations.keys() if it in jobs]
        assert any(it.project == jobs[name].project and it.priority > jobs[name].priority for it in new)


@ordinary
@given(snapshots())
def test_11_conservation(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        told = [start.job for start in decided.starts] + [hold.job for hold in decided.holds]
        assert sorted(told) == sorted(job.name for job in before.waiting)
        evicted = [eviction.job for eviction in decided.evictions]
        assert len(set(evicted)) == len(evicted)
        assert set(evicted) <= {job.name for job in before.active}
        moving = {it.job for it in decided.evictions if it.rule is Rule.CONSOLIDATE} | set(before.reserved)
        assert set(decided.reservations) <= {hold.job for hold in decided.holds} | moving


PLAIN = replace(SMALL, pools=1, movers=False, stops=False, patience=False, shrunk=False, alternatives=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "exceptions_in_1000"),
    [
        pytest.param(PLAIN, 0, id="plain"),
        pytest.param(replace(PLAIN, patience=True), 0, id="patience"),
        pytest.param(replace(PLAIN, pools=2, alternatives=True, movers=True), 3, id="two pools, alternatives, movers"),
    ],
)
def test_12_hardly_a_start_is_followed_by_its_own_eviction(kind: Kind, exceptions_in_1000: int) -> None:
    """ADR 0010 tells when it happens and why the rules are left so."""
    random, found = Random(12), 0
    for _ in range(SAMPLES):
        snapshot = drawn(random, kind)
        started: set[str] = set()
        for before, decided in rounds(snapshot):
            found += any(
                eviction.job in started and not goes_beyond_its_share(eviction.claimant, before, decided)
                for eviction in decided.evictions
            )
            started |= {start.job for start in decided.starts}
    assert found * 1000 <= exceptions_in_1000 * SAMPLES


@ordinary
@given(snapshots(replace(SMALL, pools=2)))
def test_14_nobody_counts_on_a_pool_that_refuses(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        assert not any(waits_for_pause(start.slots, before) for start in decided.starts)
        for eviction in decided.evictions:
            if eviction.rule is Rule.CONSOLIDATE:
                assert not waits_for_pause(decided.reservations[eviction.job], before)
        waits = {job.name: job for job in before.waiting}
        holders = {*decided.reservations.keys() - before.reserved.keys(), *(it.claimant for it in decided.evictions)}
        for name in holders & waits.keys():
            assert any(is_certain(need, before) for need in waits[name].demand)
        for hold in decided.holds:
            if hold.reason is WaitReason.BACKOFF and waits[hold.job].backoff_until in (None, NOW):
                assert "SageMaker ha" in hold.message


CALENDARS = (
    None,
    Calendar(3, NOW - 3600, NOW + 3600),
    Calendar(4, NOW - 3600, NOW + 1200),
    Calendar(4, NOW + 3600, NOW + 7200),
    Calendar(4, NOW - 7200, NOW - 3600),
)


@ordinary
@given(snapshots(), st.tuples(*[st.sampled_from(CALENDARS)] * SMALL.pools), st.randoms(use_true_random=False))
def test_15_nobody_starts_outside_a_calendar_or_is_cut_off_who_may_not_be_stopped(
    snapshot: Snapshot, drawn_calendars: tuple[Calendar | None, ...], random: Random
) -> None:
    pools = [pool.name for pool in snapshot.policy.pools]
    calendars = {pool: calendar for pool, calendar in zip(pools, drawn_calendars, strict=False) if calendar}
    waiting_jobs = tuple(replace(job, warm=random.random() < 0.5) for job in snapshot.waiting)
    snapshot = replace(snapshot, calendars=calendars, waiting=waiting_jobs)
    for before, decided in rounds(snapshot):
        waits = {job.name: job for job in before.waiting}
        closed = {pool for pool, calendar in calendars.items() if not calendar.is_open(before.now)}
        for start in decided.starts:
            assert not start.slots.keys() & closed
            job = waits[start.job]
            ends = NOW + (job.max_runtime or float("inf"))
            for pool in start.slots.keys() & calendars.keys():
                assert job.preemptible or ends <= calendars[pool].closes
        for eviction in decided.evictions:
            possible = [need for need in waits[eviction.claimant].demand if not need.keys() & closed]
            assert possible, "nobody leaves for a job that cannot start"
        for hold in decided.holds:
            assert hold.message.endswith(".")
    check_order_free(snapshot, random)
    check_stable(snapshot)


def test_13_the_articles_example() -> None:
    """Two slots; job4 outranks all, job1 is the lowest running and afterwards waits ahead of job3."""

    def table(snapshot: Snapshot) -> dict[str, str]:
        rows = {job.name: job.state.value for job in snapshot.active}
        return rows | {job.name: "waits" for job in snapshot.waiting}

    run = ScenarioRun(a_snapshot(waiting("job1", priority=1, waited=90), waiting("job2", priority=2, waited=80)))
    while run.apply(plan(run.snapshot)):
        pass
    job3, job4 = waiting("job3", priority=1, waited=70), waiting("job4", priority=3, waited=60)
    run = ScenarioRun(a_snapshot(*run.snapshot.active, job3))
    assert not run.apply(plan(run.snapshot))
    assert table(run.snapshot) == {"job1": "running", "job2": "running", "job3": "waits"}
    run = ScenarioRun(a_snapshot(*run.snapshot.active, job3, job4))
    assert {it.job: it.claimant for it in plan(run.snapshot).evictions} == {"job1": "job4"}
    while run.apply(plan(run.snapshot)):
        pass
    assert table(run.snapshot) == {"job2": "running", "job4": "running", "job1": "waits", "job3": "waits"}
    assert [hold.job for hold in plan(run.snapshot).holds] == ["job1", "job3"]


@few
@given(snapshots(LARGE))
def test_every_hold_says_something(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    for hold in decided.holds:
        assert hold.message.endswith(".")
        assert hold.message[0].isupper() or hold.message[0].isdigit()
        assert hold.job not in hold.ahead


@few
@given(snapshots(LARGE))
def test_shares_add_up(snapshot: Snapshot) -> None:
    policy = snapshot.policy
    for pool in policy.pools:
        share = plan(snapshot).shares[pool.name]
        tops = [it.name for it in policy.departments] + [it.name for it in policy.projects if it.department is None]
        assert sum(share[name] for name in tops) <= max(0, pool.capacity - snapshot.external.get(pool.name, 0))
        for department in policy.departments:
            children = [it.name for it in policy.projects if it.department == department.name]
            assert sum(share[name] for name in children) <= share[department.name]


# --- what several properties check --------------------------------------------------------------------


def check_gangs(snapshot: Snapshot, decided: Plan) -> None:
    demands = {job.name: job.demand for job in snapshot.waiting}
    assert all(start.slots in demands[start.job] for start in decided.starts)


def check_limits(snapshot: Snapshot, decided: Plan) -> None:
    held, added = held_by_queue(snapshot, snapshot.active), starts_by_queue(snapshot, decided)
    for queue in queues(snapshot):
        for pool, limit in queue.limit.items():
            assert not added[queue.name, pool] or held[queue.name, pool] + added[queue.name, pool] <= limit


def check_fixed(snapshot: Snapshot, decided: Plan) -> None:
    fixed = {job.name for job in snapshot.waiting if not job.preemptible}
    held = held_by_queue(snapshot, [job for job in snapshot.active if not job.preemptible])
    added = starts_by_queue(snapshot, decided, fixed)
    for queue in queues(snapshot):
        for pool in capacity(snapshot):
            more = added[queue.name, pool]
            assert not more or held[queue.name, pool] + more <= queue.quota.get(pool, 0)


def check_evictions(snapshot: Snapshot, decided: Plan) -> None:
    waits = {job.name: job for job in snapshot.waiting}
    active = {job.name: job for job in snapshot.active}
    for eviction in decided.evictions:
        victim, claimant = active[eviction.job], waits[eviction.claimant]
        assert victim.preemptible
        assert victim.state is JobState.RUNNING
        assert victim.started is not None
        assert victim.started + guaranteed(victim, snapshot) <= snapshot.now
        if eviction.rule is Rule.PREEMPT:
            assert victim.project == claimant.project
            assert victim.priority < claimant.priority
        elif eviction.rule is Rule.RECLAIM:
            assert victim.project != claimant.project


def check_order_free(snapshot: Snapshot, random: Random) -> None:
    active, waits = list(snapshot.active), list(snapshot.waiting)
    random.shuffle(active)
    random.shuffle(waits)
    shuffled = replace(
        snapshot,
        active=tuple(active),
        waiting=tuple(waits),
        external=dict(reversed(list(snapshot.external.items()))),
        reserved=dict(reversed(list(snapshot.reserved.items()))),
    )
    assert plan(shuffled) == plan(snapshot)


def check_stable(snapshot: Snapshot) -> None:
    stable, last = run_to_the_end(snapshot)
    assert last <= ROUNDS
    decided = plan(stable)
    assert not decided.starts
    assert not decided.evictions


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


def queues(snapshot: Snapshot) -> list[Department | Project]:
    return [*snapshot.policy.departments, *snapshot.policy.projects]


def path(job: ActiveJob | WaitingJob, snapshot: Snapshot) -> list[Department | Project]:
    project = next(it for it in snapshot.policy.projects if it.name == job.project)
    return [project, *(it for it in snapshot.policy.departments if it.name == project.department)]


def held_by_queue(snapshot: Snapshot, jobs: Iterable[ActiveJob]) -> Counter[tuple[str, str]]:
    held: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        for queue in path(job, snapshot):
            held.update({(queue.name, pool): count for pool, count in job.slots.items()})
    return held


def starts_by_queue(snapshot: Snapshot, decided: Plan, only: set[str] | None = None) -> Counter[tuple[str, str]]:
    waits = {job.name: job for job in snapshot.waiting}
    added: Counter[tuple[str, str]] = Counter()
    for start in decided.starts:
        if only is None or start.job in only:
            for queue in path(waits[start.job], snapshot):
                added.update({(queue.name, pool): count for pool, count in start.slots.items()})
    return added


def held_after(snapshot: Snapshot, decided: Plan) -> Counter[tuple[str, str]]:
    """What queues hold once all stops are over, reservations included."""
    evicted = {eviction.job for eviction in decided.evictions}
    staying = [it for it in snapshot.active if it.state is not JobState.STOPPING and it.name not in evicted]
    held = held_by_queue(snapshot, staying) + starts_by_queue(snapshot, decided)
    jobs: dict[str, ActiveJob | WaitingJob] = {job.name: job for job in snapshot.active}
    jobs |= {job.name: job for job in snapshot.waiting}
    for name, slots in decided.reservations.items():
        for queue in path(jobs[name], snapshot):
            held.update({(queue.name, pool): count for pool, count in slots.items()})
    return held


def least_bound(queue: Department | Project, pool: str) -> int:
    """No rule asks a queue to hold less than this."""
    quota = queue.quota.get(pool, 0)
    return min(quota, queue.limit.get(pool, quota))


def free_after_starts(snapshot: Snapshot, decided: Plan) -> Counter[str]:
    """What is free now, starts of the plan being carried out."""
    free = capacity(snapshot)
    free.subtract(used(snapshot))
    free.subtract(total(start.slots for start in decided.starts))
    return free


def coming_free(snapshot: Snapshot, decided: Plan) -> Counter[str]:
    """What is free, or will be once all stops are over, starts of the plan being carried out."""
    evicted = {eviction.job for eviction in decided.evictions}
    room = free_after_starts(snapshot, decided)
    room.update(total(job.slots for job in snapshot.active if job.state is JobState.STOPPING or job.name in evicted))
    return room


def most_kept(snapshot: Snapshot, decided: Plan) -> Counter[str]:
    """The free slots that may be kept for jobs that have waited longer than `patience`: at most what they need."""
    patience = snapshot.policy.settings.patience
    needed: Counter[str] = Counter()
    for job in left_waiting(snapshot, decided):
        if patience is not None and NOW - job.entered > patience and job.name not in decided.reservations:
            for pool in {pool for need in job.demand for pool in need}:
                needed[pool] += max(need.get(pool, 0) for need in job.demand)
    free = free_after_starts(snapshot, decided)
    return Counter({pool: max(0, min(free[pool], count)) for pool, count in needed.items()})


def fits_in_quota(job: WaitingJob, need: Slots, snapshot: Snapshot) -> bool:
    """Whether it fits in the quota of its project and its department, and limits allow it."""
    held = held_by_queue(snapshot, snapshot.active)
    return all(
        held[queue.name, pool] + count <= min(queue.quota.get(pool, 0), queue.limit.get(pool, 99))
        for queue in path(job, snapshot)
        for pool, count in need.items()
    )


def may_start(job: WaitingJob, need: Slots, snapshot: Snapshot, decided: Plan) -> bool:
    """Whether limits, and for a job that is not preemptible quotas, allow it, reservations counted."""
    now = held_by_queue(snapshot, snapshot.active) + starts_by_queue(snapshot, decided)
    soon = held_after(snapshot, decided)
    waits = {it.name: it for it in snapshot.waiting}
    fixed = held_by_queue(snapshot, [it for it in snapshot.active if not it.preemptible])
    fixed += starts_by_queue(snapshot, decided, {it.name for it in snapshot.waiting if not it.preemptible})
    for name, slots in decided.reservations.items():
        if name in waits and not waits[name].preemptible:
            for queue in path(waits[name], snapshot):
                fixed.update({(queue.name, pool): count for pool, count in slots.items()})
    for queue in path(job, snapshot):
        for pool, count in need.items():
            held = max(now[queue.name, pool], soon[queue.name, pool])
            if held + count > queue.limit.get(pool, 99):
                return False
            if not job.preemptible and fixed[queue.name, pool] + count > queue.quota.get(pool, 0):
                return False
    return True


def goes_beyond_its_share(name: str, snapshot: Snapshot, decided: Plan) -> bool:
    """Whether a claimant preempts beyond its share: it may do so, but may not take over reservations (ADR 0010)."""
    job = next(it for it in snapshot.waiting if it.name == name)
    after = held_after(snapshot, decided)
    return any(
        after[queue.name, pool] > max(queue.quota.get(pool, 0), decided.shares[pool][queue.name])
        for queue in path(job, snapshot)
        for pool in capacity(snapshot)
    )


def guaranteed(job: ActiveJob, snapshot: Snapshot) -> float:
    own = next(it.min_runtime for it in snapshot.policy.projects if it.name == job.project)
    settings = snapshot.policy.settings
    after, limit = settings.preempted_min_runtime, settings.preempted_min_runtime_limit
    grown = min(after * 2 ** (job.preemptions - 1), limit) if job.preemptions else 0
    return max((settings.min_runtime or 0) if own is None else own, grown)


def is_below(active: ActiveJob, job: WaitingJob) -> bool:
    return active.project == job.project and active.priority < job.priority


def left_waiting(snapshot: Snapshot, decided: Plan) -> list[WaitingJob]:
    """Who is not held, not backing off, and does not start."""
    started = {start.job for start in decided.starts}
    return [
        job
        for job in snapshot.waiting
        if job.name not in started and not job.held and (job.backoff_until or NOW) <= NOW
    ]


def may_run(need: Slots, snapshot: Snapshot) -> bool:
    """Whether the pools exist, are ever large enough, and do not refuse so many instances just now."""
    return within(need, capacity(snapshot)) and not waits_for_pause(need, snapshot)


def is_certain(need: Slots, snapshot: Snapshot) -> bool:
    """Whether no pool has refused so many."""
    return within(need, capacity(snapshot)) and not any(
        need.get(pool, 0) >= paused.instances for pool, paused in snapshot.paused.items()
    )


def waits_for_pause(need: Slots, snapshot: Snapshot) -> bool:
    """Whether a pool refused so many, and its pause goes on, or they are not free."""
    free = capacity(snapshot)
    free.subtract(used(snapshot))
    return any(
        pool in need and need[pool] >= paused.instances and (paused.until > snapshot.now or need[pool] > free[pool])
        for pool, paused in snapshot.paused.items()
    )


def within(need: Slots, room: Mapping[str, int]) -> bool:
    return all(count <= room.get(pool, 0) for pool, count in need.items())


def rounds(snapshot: Snapshot) -> Iterator[tuple[Snapshot, Plan]]:
    """Each snapshot on the way to the stable state, and its plan."""
    run = ScenarioRun(snapshot)
    for _ in range(50):
        before, decided = run.snapshot, plan(run.snapshot)
        yield before, decided
        if not run.apply(decided):
            return
    raise AssertionError("not stable after 50 rounds")


def run_to_the_end(snapshot: Snapshot) -> tuple[Snapshot, int]:
    """The stable state, and after how many rounds nothing was started or evicted any more."""
    last, stable = 0, snapshot
    for number, (before, decided) in enumerate(rounds(snapshot), start=1):
        stable = before
        if decided.starts or decided.evictions:
            last = number
    return stable, last
