"""Pools that have refused launches: each rule with its counter-case, the same snapshot without the pause."""

from dataclasses import replace

import pytest

from job_queue.scheduler import (
    ActiveJob,
    Hold,
    PausedPool,
    Plan,
    Policy,
    Pool,
    Project,
    Snapshot,
    WaitingJob,
    WaitReason,
    plan,
)
from tests.builders import NOW, a_policy, a_snapshot, active, stopping, waiting

CLOSED = PausedPool(until=NOW + 90)
TRIED = PausedPool(until=NOW - 1)  # its pause is over, nothing has started since
TWO_POOLS = a_policy({"p5": 2, "p4": 2})


def both(paused: PausedPool, snapshot: Snapshot, pool: str = "p5") -> tuple[Plan, Plan]:
    """The plan with the pause, and the one without."""
    return plan(replace(snapshot, paused={pool: paused})), plan(snapshot)


def starts(decided: Plan) -> dict[str, dict[str, int]]:
    return {start.job: dict(start.slots) for start in decided.starts}


def hold(decided: Plan, job: str) -> Hold:
    return next(it for it in decided.holds if it.job == job)


def test_nothing_starts_in_a_paused_pool() -> None:
    with_pause, without = both(CLOSED, a_snapshot(waiting("job1"), waiting("job2")))
    assert starts(with_pause) == {}
    assert {it.reason for it in with_pause.holds} == {WaitReason.BACKOFF}
    assert set(starts(without)) == {"job1", "job2"}


def test_the_reason_says_when_it_is_tried_again() -> None:
    decided, _ = both(PausedPool(NOW + 90, instances=2), a_snapshot(waiting("gang", 2)))
    assert hold(decided, "gang").message == (
        "SageMaker has fewer than 2 instances of p5 at present. "
        "The next try, with the first job of the queue, is at 1970-01-12 13:48:10 UTC, in 90 s."
    )


def test_who_asks_for_less_than_was_refused_may_start() -> None:
    snapshot = a_snapshot(waiting("gang", 2, priority=9), waiting("small", 1))
    with_pause, without = both(PausedPool(NOW + 90, instances=2), snapshot)
    assert starts(with_pause) == {"small": {"p5": 1}}
    assert starts(without) == {"gang": {"p5": 2}}


def test_another_pool_that_it_accepts_is_taken() -> None:
    snapshot = a_snapshot(waiting("job1", {"p5": 1}, {"p4": 1}), policy=TWO_POOLS)
    with_pause, without = both(CLOSED, snapshot)
    assert starts(with_pause) == {"job1": {"p4": 1}}
    assert starts(without) == {"job1": {"p5": 1}}


def test_one_paused_pool_keeps_back_a_gang_over_two() -> None:
    snapshot = a_snapshot(waiting("gang", {"p5": 1, "p4": 1}), policy=TWO_POOLS)
    with_pause, without = both(CLOSED, snapshot, "p4")
    assert hold(with_pause, "gang").message.startswith("SageMaker has no instances of p4 at present")
    assert "gang" in starts(without)


@pytest.mark.parametrize("paused", [CLOSED, TRIED])
def test_nobody_is_stopped_for_a_pool_that_refuses(paused: PausedPool) -> None:
    with_pause, without = both(paused, a_snapshot(active("low", 2), waiting("high", 1, priority=9)))
    assert (with_pause.evictions, dict(with_pause.reservations)) == ((), {})
    assert [it.job for it in without.evictions] == ["low"]


@pytest.mark.parametrize("paused", [CLOSED, TRIED])
def test_nothing_more_is_set_aside_in_a_pool_that_refuses(paused: PausedPool) -> None:
    with_pause, without = both(paused, a_snapshot(stopping("leaving", 2), waiting("high", 2, priority=9)))
    assert dict(with_pause.reservations) == {}
    assert dict(without.reservations) == {"high": {"p5": 2}}


@pytest.mark.parametrize("paused", [PausedPool(NOW + 90, instances=2), PausedPool(NOW - 1, instances=2), CLOSED, TRIED])
def test_what_is_being_freed_for_a_job_is_not_for_others_while_the_pool_is_paused(paused: PausedPool) -> None:
    jobs = [stopping("leaving", 1), waiting("gang", 2, priority=9), waiting("small", 1, priority=1)]
    with_pause, _ = both(paused, a_snapshot(*jobs, reserved={"gang": {"p5": 2}}))
    assert (starts(with_pause), with_pause.evictions) == ({}, ())
    assert dict(with_pause.reservations) == {"gang": {"p5": 2}}
    with_pause, _ = both(paused, a_snapshot(*jobs))
    assert starts(with_pause) == ({} if paused is CLOSED else {"small": {"p5": 1}})


def test_who_is_behind_a_holder_whose_pool_is_paused_leaves_it_the_free_slot() -> None:
    jobs = [stopping("leaving", 2), waiting("gang", 2, priority=9), waiting("small", 1, priority=1)]
    decided, _ = both(PausedPool(NOW + 90, instances=2), a_snapshot(*jobs, policy=3, reserved={"gang": {"p5": 2}}))
    assert (starts(decided), dict(decided.reservations)) == ({}, {"gang": {"p5": 2}, "small": {"p5": 1}})


def test_it_starts_when_its_time_has_come_and_all_is_free() -> None:
    with_pause, _ = both(TRIED, a_snapshot(waiting("gang", 2), waiting("small", 1), reserved={"gang": {"p5": 2}}))
    assert starts(with_pause) == {"gang": {"p5": 2}}


@pytest.mark.parametrize("paused", [CLOSED, TRIED])
def test_nobody_moves_to_a_pool_that_refuses(paused: PausedPool) -> None:
    jobs: list[ActiveJob | WaitingJob] = [
        active("mover", {"p5": 2}, demand=({"p5": 2}, {"p4": 2})),
        waiting("picky", {"p5": 2}),
    ]
    snapshot = a_snapshot(*jobs, policy=TWO_POOLS)
    with_pause, without = both(paused, snapshot, "p4")
    assert [it.job for it in without.evictions] == ["mover"]
    assert with_pause.evictions == ()


def test_only_one_counts_on_what_is_free_the_others_stop_nobody() -> None:
    jobs = [active("low"), waiting("first", priority=9), waiting("second", priority=8)]
    with_pause, without = both(TRIED, a_snapshot(*jobs))
    assert (starts(with_pause), with_pause.evictions) == ({"first": {"p5": 1}}, ())
    assert [it.claimant for it in without.evictions] == ["second"]


def test_an_alternative_that_nobody_refused_may_cost_others_theirs() -> None:
    jobs = [active("low", {"p4": 2}), active("there", {"p5": 2}), waiting("job1", {"p5": 1}, {"p4": 1}, priority=9)]
    with_pause, _ = both(TRIED, a_snapshot(*jobs, policy=TWO_POOLS))
    assert [it.job for it in with_pause.evictions] == ["low"]


def test_when_its_time_has_come_it_is_tried_on_free_slots() -> None:
    with_pause, _ = both(TRIED, a_snapshot(waiting("job1", 2)))
    assert starts(with_pause) == {"job1": {"p5": 2}}


def test_it_says_what_it_waits_for_when_its_time_has_come() -> None:
    decided, _ = both(replace(TRIED, instances=2), a_snapshot(active("small"), waiting("gang", 2)))
    assert hold(decided, "gang").reason is WaitReason.BACKOFF
    assert hold(decided, "gang").message == (
        "SageMaker had fewer than 2 instances of p5 at the last try, so no job is stopped for it. "
        "The next try is made when 2 are free; now 1 is."
    )


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (waiting("job1", held=True), WaitReason.HELD_BY_USER),
        (waiting("job1", {"p6": 1}), WaitReason.NO_SUCH_POOL),
        (waiting("job1", 3), WaitReason.NEVER_FITS),
    ],
)
def test_what_no_pause_would_change_is_told_first(job: WaitingJob, reason: WaitReason) -> None:
    assert hold(both(CLOSED, a_snapshot(job))[0], "job1").reason is reason


def test_its_own_backoff_is_told_before_the_pools() -> None:
    decided, _ = both(CLOSED, a_snapshot(waiting("job1", backoff_until=NOW + 30)))
    assert hold(decided, "job1").message.startswith("It could not be launched. The next try is at ")


def test_in_a_pool_of_any_type_one_kind_is_paused() -> None:
    policy = Policy((Pool("default", 4),), (Project("a", quota={"default": 4}),))
    one = {"default": 1}
    lacking, other = waiting("lacking", one, kinds=("ml.p5",)), waiting("other", one, kinds=("ml.g5",))
    either = waiting("either", one, kinds=("ml.g5",), priority=9)
    decided, without = both(CLOSED, a_snapshot(lacking, other, either, policy=policy), "default/ml.p5")
    assert set(starts(decided)) == {"other", "either"}
    assert len(without.starts) == 3
    assert hold(decided, "lacking").message.startswith("SageMaker has no instances of ml.p5 at present. The next try, ")


# --- a region that does not respond ------------------------------------------------------------------

SILENT = PausedPool(until=NOW + 90, unreachable="Could not connect.")


def test_no_slots_are_kept_for_a_job_that_nobody_can_stop() -> None:
    moves = stopping("moves", {"p5": 2}, demand=({"p5": 2}, {"p4": 2}), comes_back=True)
    snapshot = a_snapshot(moves, waiting("other", {"p4": 2}), policy=TWO_POOLS, reserved={"moves": {"p4": 2}})
    paused, open_plan = both(SILENT, snapshot)
    assert starts(paused) == {"other": {"p4": 2}} and not paused.reservations
    assert not starts(open_plan) and open_plan.reservations["moves"] == {"p4": 2}
    assert both(CLOSED, snapshot)[0].reservations["moves"] == {"p4": 2}


def test_a_claimant_does_not_wait_for_a_stop_there() -> None:
    claimant = waiting("claimant", {"p5": 2}, {"p4": 2}, priority=9)
    held = active("low", {"p4": 2}, priority=0)
    snapshot = a_snapshot(
        stopping("gone", {"p5": 2}), held, claimant, policy=TWO_POOLS, reserved={"claimant": {"p5": 2}}
    )
    paused, open_plan = both(SILENT, snapshot)
    assert [it.job for it in paused.evictions] == ["low"] and paused.reservations == {"claimant": {"p4": 2}}
    assert not open_plan.evictions and open_plan.reservations == {"claimant": {"p5": 2}}


def test_a_job_of_that_region_alone_waits_without_a_reservation() -> None:
    snapshot = a_snapshot(
        stopping("gone", {"p5": 2}),
        waiting("claimant", {"p5": 2}),
        policy=TWO_POOLS,
        reserved={"claimant": {"p5": 2}},
    )
    paused, open_plan = both(SILENT, snapshot)
    assert not paused.reservations and hold(paused, "claimant").reason is WaitReason.REGION_UNREACHABLE
    assert open_plan.reservations == {"claimant": {"p5": 2}}
