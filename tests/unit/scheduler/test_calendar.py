"""Pools whose instances come and go by a calendar: those of training plans."""

from dataclasses import replace
from math import inf

import pytest

from job_queue.scheduler import Calendar, Policy, Pool, Snapshot, WaitingJob, WaitReason, plan
from job_queue.scheduler.what_if import WhatIf
from job_queue.services.advice import advise
from tests.builders import NOW, POOL, a_snapshot, active, project, waiting

WINTER = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"
HOUR = 3600.0


def a_plan_pool(*jobs: object, opens: float = -HOUR, closes: float = HOUR, instances: int = 4) -> Snapshot:
    """One pool of a training plan; times are seconds from now."""
    policy = Policy((Pool(POOL, instance_type="ml.p5.48xlarge", training_plan=WINTER),), (project("a", 4),))
    calendar = Calendar(instances, NOW + opens, NOW + closes)
    return a_snapshot(*jobs, policy=policy, calendars={POOL: calendar})


def hold_of(snapshot: Snapshot) -> tuple[WaitReason, str]:
    (hold,) = plan(snapshot).holds
    return hold.reason, hold.message


@pytest.mark.parametrize(
    ("job", "opens", "closes", "message"),
    [
        (
            waiting("a"),
            HOUR,
            9 * HOUR,
            "It waits for the training plan winter of p5, which starts at 1970-01-12 14:46:40 UTC, in 60 min.",
        ),
        (
            waiting("a"),
            inf,
            inf,
            "It waits for the training plan winter of p5. SageMaker has not reported yet when the plan starts.",
        ),
        (
            waiting("a"),
            -9 * HOUR,
            -HOUR,
            "The training plan winter of p5 is over: SageMaker took its instances back at 1970-01-12 12:46:40 UTC.",
        ),
        (
            waiting("a", preemptible=False, max_runtime=3 * HOUR),
            -HOUR,
            HOUR,
            "The end of the training plan winter of p5 would cut it off: it may run for 3 h 0 min and may not be "
            "stopped, and "
            "SageMaker takes the plan's instances back at 1970-01-12 14:46:40 UTC, in 60 min.",
        ),
        (
            waiting("a", preemptible=False),
            -HOUR,
            HOUR,
            "The end of the training plan winter of p5 would cut it off: it has no MaxRuntimeInSeconds and may not be "
            "stopped, "
            "and SageMaker takes the plan's instances back at 1970-01-12 14:46:40 UTC, in 60 min.",
        ),
    ],
)
def test_who_waits_for_a_plan_is_told_so(job: WaitingJob, opens: float, closes: float, message: str) -> None:
    snapshot = a_plan_pool(job, opens=opens, closes=closes)
    assert hold_of(snapshot) == (WaitReason.OUTSIDE_TRAINING_PLAN, message.replace("60 min", "1 h 0 min"))


def test_the_policys_capacity_is_a_ceiling() -> None:
    snapshot = a_plan_pool(*(waiting(f"job{n}") for n in range(4)))
    pools = tuple(replace(pool, capacity=3) for pool in snapshot.policy.pools)
    capped = replace(snapshot, policy=replace(snapshot.policy, pools=pools))
    assert (len(plan(snapshot).starts), len(plan(capped).starts)) == (4, 3)
    assert plan(capped).capacities == {POOL: 3}


def test_nobody_is_stopped_for_a_job_that_the_plans_end_would_cut_off() -> None:
    low = [active(f"low{n}", ran=n) for n in range(4)]
    assert plan(a_plan_pool(*low, waiting("high", priority=9))).evictions
    cut_off = waiting("high", priority=9, preemptible=False, max_runtime=2 * HOUR)
    assert plan(a_plan_pool(*low, cut_off)).evictions == ()


def test_a_plan_that_has_not_begun_gives_nobody_a_share() -> None:
    snapshot = a_plan_pool(waiting("a", 4), opens=HOUR, closes=2 * HOUR)
    assert plan(snapshot).shares[POOL]["a"] == 0


def test_what_was_set_aside_for_a_job_falls_when_the_plan_is_over() -> None:
    snapshot = replace(a_plan_pool(waiting("a"), closes=-1), reserved={"a": {POOL: 1}})
    assert plan(snapshot).reservations == {}


def test_nobody_is_moved_to_a_plan_that_has_not_begun() -> None:
    mover = active("mover", demand=({POOL: 1}, {"winter": 1}))
    policy = Policy(
        (Pool(POOL, 1, "ml.p5.48xlarge"), Pool("winter", instance_type="ml.p5.48xlarge", training_plan=WINTER)),
        (project("a", {POOL: 1, "winter": 4}),),
    )
    for opens, moved in ((-HOUR, 1), (HOUR, 0)):
        calendars = {"winter": Calendar(4, NOW + opens, NOW + 9 * HOUR)}
        decided = plan(a_snapshot(mover, waiting("picky"), policy=policy, calendars=calendars))
        assert len(decided.evictions) == moved


def test_a_runtime_that_fits_is_advised() -> None:
    job = waiting("a", preemptible=False, max_runtime=3 * HOUR)
    snapshot = a_plan_pool(job, closes=2 * HOUR)
    advice = advise(snapshot, plan(snapshot).holds[0])
    assert advice[:2] == [
        "Submitted as a job that may be stopped (tag preemptible=true) it would start at once.",
        "Submitted with a MaxRuntimeInSeconds of at most 3600 (1 h 0 min) it would start at once, because it would end "
        "before the "
        "plan ends.",
    ]
    assert WhatIf(snapshot, job).with_job_changes(max_runtime=7200)
