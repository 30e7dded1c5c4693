"""Who may be made to leave inside a project (section 4), each rule with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Evict, Project, Rule, Slots, plan
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
