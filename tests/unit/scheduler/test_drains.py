"""Drained pools: no job starts there, no job moves there, and jobs that wait for them are told so."""

from dataclasses import replace

import pytest

from job_queue.scheduler import (
    Calendar,
    Carrier,
    Drain,
    DrainStops,
    GpuAllocation,
    JobState,
    Policy,
    Pool,
    Snapshot,
    WaitReason,
    plan,
    stopping_drain,
)
from job_queue.scheduler.what_if import WhatIf
from job_queue.services.advice import advise
from tests.builders import NOW, a_snapshot, active, project, waiting

HOUR = 3600
ANN = "arn:aws:iam::123456789012:user/ann"
POLICY = Policy((Pool("p5", capacity=2), Pool("p4", capacity=2)), (project("a", {"p5": 2, "p4": 2}),))


def drained(*jobs: object, at: int = 0, pool: str = "p5", reason: str = "", **more: object) -> Snapshot:
    drains = {pool: Drain(int(NOW) + at, ANN, reason)}
    return a_snapshot(*jobs, policy=POLICY, drains=drains, **more)


def holds(snapshot: Snapshot) -> dict[str, WaitReason]:
    return {hold.job: hold.reason for hold in plan(snapshot).holds}


def test_no_job_starts_in_a_drained_pool_and_its_capacity_is_0() -> None:
    decided = plan(drained(waiting("a"), waiting("b", {"p4": 1})))
    assert [start.job for start in decided.starts] == ["b"]
    assert (decided.capacities, decided.evictions) == ({"p5": 0, "p4": 2}, ())


def test_a_job_that_accepts_another_pool_starts_there() -> None:
    decided = plan(drained(waiting("a", {"p5": 1}, {"p4": 1})))
    assert [dict(start.slots) for start in decided.starts] == [{"p4": 1}]


def test_who_waits_for_a_drain_is_told_by_whom_since_when_why_and_until_when() -> None:
    (hold,) = plan(drained(waiting("a"), at=-HOUR, reason="new disks")).holds
    assert (hold.reason, hold.message) == (
        WaitReason.DRAINED,
        "Pool p5 has been drained by ann since 1970-01-12 12:46:40 UTC (new disks): no job starts there until an admin "
        "ends "
        "the drain (smq undrain p5).",
    )


@pytest.mark.parametrize(("max_runtime", "starts"), [(HOUR, True), (HOUR + 1, False), (None, False)])
def test_before_the_time_a_job_starts_only_if_its_longest_runtime_ends_by_then(
    max_runtime: float | None, starts: bool
) -> None:
    snapshot = drained(waiting("a", max_runtime=max_runtime, expected=60), at=HOUR)
    assert bool(plan(snapshot).starts) is starts
    assert holds(snapshot) == ({} if starts else {"a": WaitReason.DRAINED})
    assert plan(snapshot).capacities["p5"] == 2


def test_without_a_longest_runtime_a_job_counts_as_24_hours_as_for_sagemaker() -> None:
    assert not plan(drained(waiting("a"), at=24 * HOUR - 1)).starts
    assert plan(drained(waiting("a"), at=24 * HOUR)).starts
    (hold,) = plan(drained(waiting("a"), at=HOUR)).holds
    assert hold.message == (
        "Pool p5 will be drained by ann at 1970-01-12 14:46:40 UTC, in 1 h 0 min, until an admin ends the drain (smq "
        "undrain p5). A job starts there only if its MaxRuntimeInSeconds ends before that time, and this job may run "
        "for "
        "24 h 0 min."
    )


def test_the_advice_is_a_shorter_runtime_or_another_pool() -> None:
    snapshot = drained(waiting("a"), at=HOUR)
    (hold,) = plan(snapshot).holds
    advice = advise(snapshot, hold)
    assert any("tag pools=p5+p4" in sentence for sentence in advice)
    assert any("MaxRuntimeInSeconds of at most 3600" in sentence for sentence in advice)
    assert "smq undrain" in advice[-1]
    assert WhatIf(snapshot, snapshot.waiting[0]).with_job_changes(priority=9) is None


def test_a_closed_training_plan_is_told_before_a_drain_and_a_drain_before_a_budget() -> None:
    closed = {"p5": Calendar(2, NOW + HOUR, NOW + 2 * HOUR)}
    assert holds(drained(waiting("a"), calendars=closed)) == {"a": WaitReason.OUTSIDE_TRAINING_PLAN}
    assert holds(drained(waiting("a", held=True))) == {"a": WaitReason.HELD_BY_USER}


def test_no_job_is_evicted_for_slots_of_a_drained_pool() -> None:
    runs = active("a", priority=1, slots={"p5": 2})
    for at in (0, HOUR):
        decided = plan(drained(runs, waiting("b", priority=9), at=at))
        assert (decided.evictions, decided.reservations) == ((), {})


def test_a_reservation_in_a_drained_pool_is_dropped() -> None:
    stops = active("a", slots={"p5": 2}, state=JobState.STOPPING)
    decided = plan(drained(stops, waiting("b", priority=9), reserved={"b": {"p5": 1}}))
    assert decided.reservations == {}


@pytest.mark.parametrize("at", [0, HOUR])
def test_no_job_moves_to_a_drained_pool(at: int) -> None:
    """Without the drain, flexible moves to p5, because gang needs p4."""
    flexible = active("flexible", slots={"p4": 1}, demand=({"p4": 1}, {"p5": 1}))
    gang = waiting("gang", {"p4": 2})
    free = a_snapshot(flexible, gang, policy=POLICY)
    assert [it.job for it in plan(free).evictions] == ["flexible"]
    assert plan(drained(flexible, gang, at=at)).evictions == ()


def test_a_job_that_needs_a_drained_and_another_pool_at_once_waits() -> None:
    assert holds(drained(waiting("a", {"p5": 1, "p4": 1}))) == {"a": WaitReason.DRAINED}


@pytest.mark.parametrize(
    ("stops", "preemptible", "expected"),
    [
        (DrainStops.NONE, True, False),
        (DrainStops.PREEMPTIBLE, True, True),
        (DrainStops.PREEMPTIBLE, False, False),
        (DrainStops.ALL, False, True),
    ],
)
def test_the_jobs_that_a_drain_stops(stops: DrainStops, preemptible: bool, expected: bool) -> None:
    drains = {"p5": Drain(100, ANN, stops=stops)}
    assert (stopping_drain(drains, ["p4", "p5"], 100, preemptible=preemptible) is not None) is expected
    assert stopping_drain(drains, ["p5"], 99, preemptible=preemptible) is None, "its time has not come"
    assert stopping_drain(drains, ["p4"], 100, preemptible=preemptible) is None


# --- shared instances ----------------------------------------------------------------------------------

SHARED = Policy((Pool("p5", capacity=2, gpus=8, keep_warm=HOUR),), (project("a", 2),))
CARRIER = Carrier("carrier", "p5", "a", "k", 8, JobState.RUNNING, NOW - 60)


def shared(*jobs: object, at: int | None) -> Snapshot:
    drains = {} if at is None else {"p5": Drain(int(NOW) + at, ANN)}
    return a_snapshot(*jobs, policy=SHARED, carriers=(CARRIER,), drains=drains)


def test_no_member_joins_a_carrier_in_a_drained_pool_and_an_empty_carrier_is_closed_at_once() -> None:
    member = waiting("m", gpus=10, kind="k")
    assert [it.job for it in plan(shared(member, at=None)).allocations] == ["m"]
    decided = plan(shared(member, at=0))
    assert (decided.allocations, decided.launches, decided.carriers_to_close) == ((), (), ("carrier",))
    assert holds(shared(member, at=0)) == {"m": WaitReason.DRAINED}
    assert plan(shared(at=None)).carriers_to_close == ()


def test_a_carrier_with_members_is_not_closed() -> None:
    runs = replace(active("m", slots={}, kind="k"), allocation=GpuAllocation("carrier", (0,)))
    assert plan(shared(runs, at=0)).carriers_to_close == ()


def test_a_short_member_joins_before_the_time() -> None:
    member = waiting("m", gpus=10, kind="k", max_runtime=HOUR)
    assert [it.job for it in plan(shared(member, at=HOUR)).allocations] == ["m"]
    assert plan(shared(member, at=HOUR - 1)).allocations == ()
