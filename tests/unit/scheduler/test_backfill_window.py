"""Slots kept for a job that has waited long (section 5), each rule with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Backfill, Policy, WaitingJob, WaitReason, plan
from tests.builders import (
    a_policy,
    a_snapshot,
    active,
    line,
    project,
    stopping,
    waiting,
)
from tests.unit.scheduler.decided import evicted_by, reasons, started


def patient_gang(**fields: Any) -> WaitingJob:
    return waiting("gang", 4, **{"priority": 5, "waited": 3600, **fields})


def long(**fields: Any) -> ActiveJob:
    return active("long", 3, **{"priority": 9, "max_runtime": 86_400.0, **fields})


def small(**fields: Any) -> WaitingJob:
    return waiting("small", **{"max_runtime": 86_400.0, **fields})


@pytest.mark.parametrize(
    ("jobs", "policy"),
    [
        pytest.param((long(), patient_gang(waited=1800), small()), a_policy(4), id="not longer than patience"),
        pytest.param((long(), patient_gang(), small()), a_policy(4, patience=None), id="no patience at all"),
        pytest.param(
            (long(), patient_gang(), small()), a_policy(4, [project("a", 3, over_quota=0)]), id="beyond its share"
        ),
        pytest.param(
            (long(), patient_gang(), small()), a_policy(4, [project("a", 4, limit=4)]), id="lacks more than slots"
        ),
        pytest.param((long(), patient_gang(), small(max_runtime=82_800.0)), a_policy(4), id="gone in time"),
        pytest.param((long(), waiting("gang", 3, waited=3600), small()), a_policy(4), id="not in its way"),
        pytest.param((long(), patient_gang(), small(priority=6)), a_policy(4), id="ahead of it"),
    ],
)
def test_who_starts_beside_a_blocked_gang(jobs: tuple[Any, ...], policy: Policy) -> None:
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["small"]


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param((long(), patient_gang(), small()), id="patient"),
        pytest.param((long(), patient_gang(), small(max_runtime=82_801.0)), id="not gone in time"),
        pytest.param((long(), patient_gang(), small(max_runtime=None)), id="runtime unknown"),
        pytest.param((long(max_runtime=None), patient_gang(), small()), id="the others' runtime unknown"),
        pytest.param((long(), patient_gang(), small(project="b")), id="another project's"),
    ],
)
def test_slots_are_kept_for_a_patient_job(jobs: tuple[Any, ...]) -> None:
    policy = a_policy(4, [project("a", 4), project("b", 0)], backfill=Backfill.BOUNDED)
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert not decided.starts
    assert reasons(decided)["small"] is WaitReason.KEPT_FOR_PATIENT_JOB
    assert "kept for gang (priority 5), which has waited 1 h 0 min." in decided.holds[-1].message


# --- as predicted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param((long(expected=7200.0), patient_gang(), small(expected=3000.0)), id="expected to be gone in time"),
        pytest.param((long(), patient_gang(), small(expected=60_000.0)), id="... before the others have to be"),
        pytest.param((long(expected=7200.0), patient_gang(), small(max_runtime=3000.0)), id="has to be gone in time"),
        pytest.param(
            (long(max_runtime=None), patient_gang(), small(max_runtime=None)),
            id="nobody knows when the gang could start",
        ),
        pytest.param(
            (long(expected=7200.0), waiting("gang", 3, waited=3600), small(expected=9e4)), id="not in its way"
        ),
    ],
)
def test_who_starts_beside_a_gang_of_which_the_start_is_predicted(jobs: tuple[Any, ...]) -> None:
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(4))))) == ["small"]


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param((long(expected=7200.0), patient_gang(), small(expected=3700.0)), id="expected to be in the way"),
        pytest.param((long(expected=7200.0), patient_gang(), small(max_runtime=None)), id="nothing is known of it"),
        pytest.param((long(expected=3000.0), patient_gang(), small(expected=60.0)), id="the others are overdue"),
        pytest.param((long(max_runtime=7200.0, expected=9e4), patient_gang(), small(expected=3700.0)), id="bounded"),
    ],
)
def test_slots_are_kept_as_far_as_a_predicted_start_needs_them(jobs: tuple[Any, ...]) -> None:
    decided = plan(a_snapshot(*jobs, policy=a_policy(4)))
    assert not decided.starts
    assert reasons(decided)["small"] is WaitReason.KEPT_FOR_PATIENT_JOB


def test_what_is_free_is_set_aside_for_others_while_nobody_knows_when_the_gang_could_start() -> None:
    """One slot is free and one is being freed: together they are what `pair` needs."""
    jobs = (active("long", 2, priority=9), stopping("goes", priority=9), patient_gang(), waiting("pair", 2))
    decided = plan(a_snapshot(*jobs, policy=a_policy(4)))
    assert decided.reservations == {"pair": {"p5": 2}}
    assert not plan(a_snapshot(*jobs, policy=a_policy(4, backfill=Backfill.BOUNDED))).reservations


def test_expected_runtimes_let_no_job_pass_with_bounded_backfill() -> None:
    jobs = (long(expected=7200.0), patient_gang(), small(expected=60.0))
    assert not plan(a_snapshot(*jobs, policy=a_policy(4, backfill=Backfill.BOUNDED))).starts


def test_who_is_expected_to_run_longer_hides_no_shorter_one_of_the_same_demand() -> None:
    jobs = (long(expected=7200.0), patient_gang(), small(expected=3700.0, waited=90), waiting("quick", expected=60.0))
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(4))))) == ["quick"]


def test_no_more_is_kept_than_the_share_allows() -> None:
    # a holds 3 of its 4: one of the two free slots is kept, the other is for anyone.
    policy = a_policy(5, [project("a", 4, over_quota=0), project("b", 0, over_quota=0)])
    held = (active("soon", 2, priority=9, max_runtime=7200.0), active("late", 1, priority=9, max_runtime=864_000.0))
    behind = line(2, "small", project="b")
    assert list(started(plan(a_snapshot(*held, patient_gang(), *behind, policy=policy)))) == ["small0"]


def test_nothing_is_kept_for_a_demand_beyond_its_share() -> None:
    # Two slots are free, and a holds one of its 3; the gang wants 4.
    policy = a_policy(5, [project("a", 3, over_quota=0), project("b", 2)], backfill=Backfill.BOUNDED)
    jobs = (active("r", priority=9), active("rb", 2, project="b", preemptible=False), patient_gang(), small())
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["small"]


def test_slots_are_kept_in_queue_order() -> None:
    # In all a's share is 4 and it holds 2: two slots are kept, and none for the second gang.
    policy = a_policy(5, [project("a", 4, over_quota=0), project("b", 0, over_quota=0)])
    held = (active("soon", 1, priority=9, max_runtime=7200.0), active("late", 1, priority=9, max_runtime=864_000.0))
    gangs = [waiting(f"gang{n}", 4, waited=4000 - n) for n in range(2)]
    decided = plan(a_snapshot(*held, *gangs, *line(2, "b", project="b"), policy=policy))
    assert list(started(decided)) == ["b0"]


def test_jobs_behind_a_patient_one_may_still_evict() -> None:
    policy = a_policy(5, [project("a", 4), project("b", 1)])
    jobs = (long(preemptible=False), active("over", 1, priority=1), patient_gang(), waiting("w", project="b"))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert evicted_by(decided) == {"over": ("w", "reclaim")} or list(started(decided)) == ["w"]


def test_a_patient_job_uses_the_slots_kept_for_it() -> None:
    policy = a_policy(4, [project("a", 4), project("b", 0)])
    assert list(started(plan(a_snapshot(patient_gang(), small(project="b"), policy=policy)))) == ["gang"]


def test_who_passes_leaves_less_for_the_next_to_pass() -> None:
    # Three slots are free. When `long` has ended there are six, and the gang needs four: two may be used beyond that.
    jobs = (long(), patient_gang(), *line(3, "small", max_runtime=200_000.0))
    assert set(started(plan(a_snapshot(*jobs, policy=6)))) == {"small0", "small1"}


def test_what_others_have_started_on_is_kept_no_more() -> None:
    """Who passes uses a slot that was kept, and the figures say so."""
    long, gang = active("long", 3, priority=5, max_runtime=86400), waiting("gang", 4, priority=5, waited=3600)
    decided = plan(a_snapshot(long, gang, waiting("short", max_runtime=600), policy=4))
    assert started(decided) == {"short": {"p5": 1}}
    assert "0 of 4 are free, 4 are used by" in decided.holds[0].message
