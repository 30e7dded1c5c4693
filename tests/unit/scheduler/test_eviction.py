"""Who may be made to leave inside a project (section 4), each rule with its counter-case."""

from dataclasses import replace
from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Evict, JobState, Project, Rule, Slots, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import (
    NOW,
    a_policy,
    a_snapshot,
    active,
    starting,
    stopping_for,
    waiting,
)
from tests.unit.scheduler.decided import evicted, started


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(active("it", priority=5), id="the same priority"),
        pytest.param(active("it", preemptible=False), id="not preemptible"),
        pytest.param(active("it", project="b"), id="another project's"),
        pytest.param(starting("it"), id="being launched"),
        pytest.param(active("it", started=None), id="guaranteed runtime, start unknown"),
        pytest.param(active("it", ran=599), id="guaranteed runtime"),
    ],
)
def test_only_lower_preemptible_running_jobs_past_their_guarantee_leave(spared: ActiveJob) -> None:
    policy = a_policy(1, projects=["a", "b"], min_runtime=600)
    claimant = waiting("claimant", priority=5)
    assert plan(a_snapshot(spared, claimant, policy=policy)).evictions == ()
    decided = plan(a_snapshot(active("it", ran=600), claimant, policy=policy))
    assert decided.evictions == (Evict("it", "claimant", Rule.PREEMPT),)


@pytest.mark.parametrize(
    ("policy", "guaranteed"),
    [
        (a_policy(1, min_runtime=100), 100),
        (a_policy(1, [Project("a", min_runtime=200)], min_runtime=100), 200),
        (a_policy(1, [Project("a", min_runtime=0)], min_runtime=100), 0),
    ],
)
def test_the_projects_guarantee_comes_before_the_setting(policy: Any, guaranteed: int) -> None:
    for ran in {max(0, guaranteed - 1), guaranteed}:
        decided = plan(a_snapshot(active("low", ran=ran), waiting("high", priority=9), policy=policy))
        assert bool(decided.evictions) is (ran >= guaranteed)


@pytest.mark.parametrize(
    ("settings", "preemptions", "guaranteed"),
    [
        pytest.param({}, 0, 0, id="none"),
        pytest.param({}, 1, 2100, id="one"),
        pytest.param({}, 2, 4200, id="two"),
        pytest.param({}, 4, 14_400, id="the limit"),
        pytest.param({}, 10**9, 14_400, id="more than can be doubled"),
        pytest.param({"preempted_min_runtime": 100, "preempted_min_runtime_limit": 350}, 2, 200, id="other settings"),
        pytest.param({"preempted_min_runtime": 100, "preempted_min_runtime_limit": 350}, 3, 350, id="another limit"),
        pytest.param({"preempted_min_runtime": 0}, 3, 0, id="off"),
        pytest.param({"min_runtime": 3000}, 1, 3000, id="min_runtime is longer"),
        pytest.param({"min_runtime": 3000}, 2, 4200, id="min_runtime is shorter"),
        pytest.param({"min_runtime": 20_000}, 9, 20_000, id="min_runtime is longer than the limit"),
    ],
)
def test_each_preemption_doubles_the_guaranteed_runtime(
    settings: dict[str, Any], preemptions: int, guaranteed: int
) -> None:
    policy = a_policy(1, **settings)
    for ran in {max(0, guaranteed - 1), guaranteed}:
        job = active("low", ran=ran, preemptions=preemptions)
        decided = plan(a_snapshot(job, waiting("high", priority=9), policy=policy))
        assert bool(decided.evictions) is (ran >= guaranteed)


def test_a_preempted_job_that_is_being_launched_is_not_waited_for_as_a_victim() -> None:
    jobs = (active("held", priority=9), waiting("high", 2, priority=9))
    keeps = plan(a_snapshot(*jobs, starting("low"), policy=a_policy(2)))
    preempted = plan(a_snapshot(*jobs, starting("low", preemptions=1), policy=a_policy(2)))
    assert not keeps.evictions and not preempted.evictions
    free = (starting("low"), waiting("pair", 2, priority=9))
    assert plan(a_snapshot(*free, policy=a_policy(2))).reservations == {"pair": {"p5": 1}}
    free = (starting("low", preemptions=1), waiting("pair", 2, priority=9))
    assert not plan(a_snapshot(*free, policy=a_policy(2))).reservations


def test_an_eviction_is_counted_once_the_job_has_stopped() -> None:
    run = ScenarioRun(a_snapshot(active("low", preemptions=1), waiting("high", priority=9), policy=a_policy(1)))
    run.apply(plan(replace(run.snapshot, now=NOW + 9000)))
    assert [(job.name, job.state, job.preemptions) for job in run.snapshot.active] == [("low", JobState.STOPPING, 1)]
    run.apply(plan(run.snapshot))
    assert [(job.name, job.preemptions) for job in run.snapshot.waiting if job.name == "low"] == [("low", 2)]


@pytest.mark.parametrize(
    ("leaves", "stays"),
    [
        pytest.param(active("z", priority=1, ran=900), active("a", priority=2, ran=1), id="lowest priority"),
        pytest.param(active("z", ran=60), active("a", ran=61), id="least work lost"),
        pytest.param(active("z", ran=900, checkpoint=NOW - 5), active("a", ran=60), id="checkpoint"),
        pytest.param(active("z", ran=60), active("a", ran=90, checkpoint=NOW - 100), id="a checkpoint of before"),
        pytest.param(
            active("z", ran=60, entered=NOW - 9999, checkpoint=NOW - 5),
            active("a", ran=900, checkpoint=NOW - 5),
            id="least work done",
        ),
        pytest.param(active("z", entered=NOW - 1), active("a", entered=NOW - 2), id="latest entry"),
        pytest.param(active("a"), active("z"), id="name"),
    ],
)
def test_victim_order(leaves: ActiveJob, stays: ActiveJob) -> None:
    decided = plan(a_snapshot(stays, leaves, waiting("high", priority=9), policy=2))
    assert evicted(decided) == {leaves.name: "high"}


def test_work_lost_counts_instances() -> None:
    decided = plan(a_snapshot(active("big", 2, ran=60), active("long", ran=100), waiting("high", priority=9), policy=3))
    assert evicted(decided) == {"long": "high"}


def test_no_victim_more_than_needed() -> None:
    # In victim order `one` comes first, but `three` is needed and then suffices.
    jobs = (active("one", 1, priority=1), active("three", 3, priority=2), waiting("high", 3, priority=9))
    assert evicted(plan(a_snapshot(*jobs, policy=4))) == {"three": "high"}
    assert evicted(plan(a_snapshot(*jobs, policy=5))) == {"three": "high"}
    assert evicted(plan(a_snapshot(*jobs, policy=6))) == {"one": "high"}


def test_nobody_leaves_in_one_pool_when_the_other_stays_full() -> None:
    jobs = (active("low"), active("high", {"c6": 1}, priority=9), waiting("gang", {"p5": 1, "c6": 1}, priority=5))
    assert plan(a_snapshot(*jobs, policy=a_policy({"p5": 1, "c6": 1}))).evictions == ()
    assert evicted(plan(a_snapshot(*jobs, policy=a_policy({"p5": 1, "c6": 2})))) == {"low": "gang"}


def test_victims_are_not_taken_where_slots_are_not_missing() -> None:
    jobs = (active("idler", {"c6": 1}), active("low", {"p5": 1}, priority=2), waiting("high", priority=9))
    assert evicted(plan(a_snapshot(*jobs, policy=a_policy({"p5": 1, "c6": 1})))) == {"low": "high"}


def test_the_surplus_of_a_later_eviction_spares_an_earlier_victim() -> None:
    # `first` takes the lowest; `second` then needs the big one, whose fourth slot is enough for `first`.
    jobs = (active("small", 1, priority=1), active("big", 4, priority=2))
    decided = plan(a_snapshot(*jobs, waiting("first", priority=9), waiting("second", 3, priority=8), policy=5))
    assert evicted(decided) == {"big": "second"}
    assert decided.reservations == {"first": {"p5": 1}, "second": {"p5": 3}}


def test_a_spared_victim_frees_nothing() -> None:
    jobs = (active("small", 1, priority=1), active("big", 4, priority=2))
    claimants = (waiting("first", 3, priority=9), waiting("second", 3, priority=8), waiting("low", priority=0))
    decided = plan(a_snapshot(*jobs, *claimants, policy=7))
    assert (started(decided), evicted(decided)) == ({}, {"big": "second"})
    assert decided.reservations == {"first": {"p5": 3}, "second": {"p5": 3}}


def test_to_take_over_a_reservation_is_better_than_to_evict_more() -> None:
    holder = waiting("holder", priority=5)
    jobs = (stopping_for("holder", "old"), active("one", 1), active("two", 2, priority=2), holder)
    decided = plan(a_snapshot(*jobs, waiting("urgent", 3, priority=9), policy=4))
    assert evicted(decided) == {"two": "urgent", "one": "holder"}
    assert decided.reservations["urgent"] == {"p5": 3}


@pytest.mark.parametrize(
    ("missing", "chosen"),
    [
        ({"p5": 1}, {"a"}),
        ({"p5": 3}, {"a", "b"}),
        ({"p5": 4}, {"a", "c"}),  # b came before c, but is not needed with it
        ({"p5": 5}, {"b", "c"}),
        ({"p5": 6}, {"a", "b", "c"}),
        ({"c6": 1}, {"d"}),
        ({"p5": 1, "c6": 1}, {"a", "d"}),
        ({"p5": 6, "c6": 2}, {"a", "b", "c", "d"}),
    ],
)
def test_no_proper_subset_of_the_victims_would_do(missing: Slots, chosen: set[str]) -> None:
    full = [active("a", 1), active("b", 2), active("c", 3), active("d", {"c6": 2})]
    snapshot = a_snapshot(*full, waiting("claimant", missing, priority=9), policy=a_policy({"p5": 6, "c6": 2}))
    assert set(evicted(plan(snapshot))) == chosen


def test_surplus_goes_to_the_next_in_line() -> None:
    jobs = (active("big", 3), waiting("high", priority=9), waiting("next", 2, priority=1))
    decided = plan(a_snapshot(*jobs, policy=3))
    assert evicted(decided) == {"big": "high"}
    assert decided.reservations == {"high": {"p5": 1}, "next": {"p5": 2}}


def test_another_one_leaves_where_sagemaker_does_not_let_the_queue_stop_the_first() -> None:
    jobs = (active("denied", priority=0, stop_denied=True), active("other", priority=1), waiting("high", priority=9))
    assert evicted(plan(a_snapshot(*jobs))) == {"other": "high"}
    alone = (active("denied", priority=0, stop_denied=True), waiting("high", priority=9))
    assert evicted(plan(a_snapshot(*alone, policy=1))) == {}
