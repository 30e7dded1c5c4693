"""`max_parallel`: how many jobs of a group may be active at a time."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler import ActiveJob, JobState, Plan, Snapshot, WaitingJob, WaitReason, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import a_policy, a_snapshot, active, project, starting, stopping, waiting
from tests.unit.scheduler.decided import evicted, final, reasons, started
from tests.unit.scheduler.snapshots import shuffled, snapshots

ROUNDS = 10


def member(name: str, *need: Any, most: int | None = 2, **fields: Any) -> WaitingJob:
    """A waiting job of the group g."""
    return waiting(name, *need, **{"group": "g", "max_parallel": most, **fields})


def running(name: str, *need: Any, most: int | None = 2, **fields: Any) -> ActiveJob:
    """An active one."""
    return active(name, *need, **{"group": "g", "max_parallel": most, **fields})


def test_so_many_start_and_the_others_say_why_they_wait() -> None:
    jobs = [member(f"s{n}", waited=100 - n) for n in range(4)]
    decided = plan(a_snapshot(running("r"), *jobs, policy=9))
    assert started(decided).keys() == {"s0"}
    assert reasons(decided) == dict.fromkeys(("s1", "s2", "s3"), WaitReason.GROUP_LIMIT)
    hold = decided.holds[0]
    assert hold.blockers == ("r", "s0")
    assert hold.ahead == ()
    assert hold.message == (
        "2 jobs are active or about to start in its group g; at most 2 may be at a time (tag max_parallel). It waits "
        "until one "
        "ends."
    )


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING, JobState.STOPPING])
def test_whoever_holds_slots_counts(state: JobState) -> None:
    busy = running("r", most=1, state=state)
    assert reasons(plan(a_snapshot(busy, member("s", most=1), policy=9))) == {"s": WaitReason.GROUP_LIMIT}


def test_it_stops_nobody_and_keeps_no_slots() -> None:
    low = active("low", 1, priority=0)
    snapshot = a_snapshot(
        running("r", priority=5, most=1), low, member("s", 1, priority=9, most=1, waited=9000), policy=2
    )
    decided = plan(snapshot)
    assert not decided.evictions
    assert not decided.reservations
    # without the group, it would stop the other
    assert evicted(plan(replace(snapshot, waiting=(waiting("s", 1, priority=9),)))) == {"low": "s"}


def test_others_pass_it_however_long_it_has_waited() -> None:
    jobs = [member("s", 2, priority=9, most=1, waited=90_000), waiting("small", 1), waiting("other", 1)]
    decided = plan(a_snapshot(running("r", most=1), *jobs, policy=a_policy(3, patience=60)))
    assert started(decided).keys() == {"small", "other"}


def test_another_of_the_group_starts_where_the_first_lacks_slots() -> None:
    # Places are taken by who starts, not by who comes first.
    pools = a_policy({"p5": 1, "p4": 1})
    first, second = member("first", {"p5": 1}, most=2, waited=99), member("second", {"p4": 1}, most=2)
    decided = plan(a_snapshot(running("r", {"p5": 1}, priority=9), first, second, policy=pools))
    assert started(decided).keys() == {"second"}
    assert reasons(decided) == {"first": WaitReason.GROUP_LIMIT}


def test_a_group_is_its_owners_and_its_projects() -> None:
    policy = a_policy(9, [project("a", 5), project("b", 4)])
    jobs = [
        member("mine", owner="ada", most=1),
        member("anothers", owner="bob", most=1),
        member("elsewhere", owner="ada", most=1, project="b"),
        member("of-another-group", owner="ada", most=1, group="h"),
    ]
    decided = plan(a_snapshot(running("r", owner="ada", most=1), *jobs, policy=policy))
    assert reasons(decided) == {"mine": WaitReason.GROUP_LIMIT}


def test_the_smallest_figure_of_a_group_counts() -> None:
    jobs = [member("many", most=8, waited=99), member("none", most=None, waited=98), member("few", most=2, waited=97)]
    decided = plan(a_snapshot(running("r", most=None), *jobs, policy=9))
    assert started(decided).keys() == {"many"}
    assert reasons(decided) == {"none": WaitReason.GROUP_LIMIT, "few": WaitReason.GROUP_LIMIT}
    # ... unless it is that of a job that is held or could not start at all
    for idle in (member("few", most=1, held=True), member("few", 50, most=1)):
        assert started(plan(a_snapshot(running("r", most=8), *jobs[:1], idle, policy=9))).keys() == {"many"}


def test_without_a_figure_a_group_has_no_bound() -> None:
    jobs = [member(f"s{n}", most=None) for n in range(4)]
    assert started(plan(a_snapshot(*jobs, policy=4))).keys() == {"s0", "s1", "s2", "s3"}


def test_slots_that_are_being_freed_for_one_of_the_group_are_its_place() -> None:
    # s1 has made somebody leave. s0 comes first by priority, and waits, though a slot is free.
    stops = stopping("victim", 2, comes_back=True)
    first, holder = member("s0", priority=9, most=1), member("s1", 2, most=1)
    decided = plan(a_snapshot(stops, first, holder, policy=3, reserved={"s1": {"p5": 2}}))
    assert reasons(decided) == {"s0": WaitReason.GROUP_LIMIT, "s1": WaitReason.WAITING_FOR_STOPPING}
    assert not decided.starts


def test_what_is_beyond_the_group_is_not_asked_for() -> None:
    # a asks for one instance more, so b is due three and takes the third from c.
    policy = a_policy(4, [project("a", 0), project("b", 0), project("c", 0)])
    sweep = [member(f"s{n}", most=1, waited=100 - n) for n in range(9)]
    asked = plan(a_snapshot(*sweep, *(waiting(f"b{n}", project="b") for n in range(9)), policy=policy))
    assert asked.shares["p5"] == {"a": 1, "b": 3, "c": 0}


def test_a_sweep_runs_to_its_end() -> None:
    snapshot = a_snapshot(*(member(f"s{n}", most=4, waited=100 - n) for n in range(9)), policy=9)
    assert final(snapshot) == {"s0", "s1", "s2", "s3"}


def test_a_start_that_is_withdrawn_leaves_its_place() -> None:
    # By aging, old comes first and takes the only slot; urgent takes it from old, and nobody of the group starts.
    policy = a_policy(1, aging=60.0)
    old, urgent = member("old", priority=1, most=1, waited=60_000), waiting("urgent", priority=3)
    other = member("other", priority=1, most=1)
    decided = plan(a_snapshot(old, urgent, other, policy=policy))
    assert started(decided).keys() == {"urgent"}
    assert reasons(decided)["old"] is not WaitReason.GROUP_LIMIT


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_no_group_has_more_active_jobs_than_it_may(snapshot: Snapshot, random: Random) -> None:
    snapshot = grouped(snapshot, random)
    for before, decided in rounds(snapshot):
        waits = {job.name: job for job in before.waiting}
        starts = [waits[start.job] for start in decided.starts]
        holders = [waits[name] for name in decided.reservations if name in waits]
        there: tuple[ActiveJob | WaitingJob, ...] = (*before.active, *starts, *holders)
        places = Counter(job.group for job in there)
        entering = [*starts, *(job for job in holders if job.name not in before.reserved)]
        for job in entering:
            assert job.group is None or places[job.group] <= least(job.group, (*before.active, *entering))
        limited = {hold.job for hold in decided.holds if hold.reason is WaitReason.GROUP_LIMIT}
        assert not limited & ({eviction.claimant for eviction in decided.evictions} | decided.reservations.keys())
        for group in {waits[name].group for name in limited}:
            assert places[group] >= least(group, (*before.active, *before.waiting))


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_plans_with_groups_are_stable_and_do_not_depend_on_the_order(snapshot: Snapshot, random: Random) -> None:
    snapshot = grouped(snapshot, random)
    assert plan(shuffled(snapshot, random)) == plan(snapshot)
    run = ScenarioRun(snapshot)
    assert any(not run.apply(plan(run.snapshot)) for _ in range(2 * ROUNDS))


def grouped(snapshot: Snapshot, random: Random) -> Snapshot:
    """The same with most jobs in one of two groups of each project, which name figures or none."""

    def of(job: Any) -> Any:
        group = random.choice((None, "g", "h"))
        return replace(job, group=group and f"{job.project}-{group}", max_parallel=random.choice((None, 1, 2, 3)))

    return replace(snapshot, active=tuple(map(of, snapshot.active)), waiting=tuple(map(of, snapshot.waiting)))


def rounds(snapshot: Snapshot) -> Iterator[tuple[Snapshot, Plan]]:
    run = ScenarioRun(snapshot)
    for _ in range(ROUNDS):
        decided = plan(run.snapshot)
        yield run.snapshot, decided
        run.apply(decided)


def least(group: str | None, jobs: Iterable[ActiveJob | WaitingJob]) -> float:
    """The smallest figure that these jobs of the group name."""
    figures = (job.max_parallel for job in jobs if job.group == group)
    return min((figure for figure in figures if figure is not None), default=float("inf"))


def test_of_a_job_that_is_being_launched_the_place_is_taken() -> None:
    assert reasons(plan(a_snapshot(starting("r", group="g", max_parallel=1), member("s", most=1), policy=9))) == {
        "s": WaitReason.GROUP_LIMIT
    }
