"""Slots set aside for a job until it starts (section 5), each rule with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, WaitingJob, WaitReason, plan
from tests.builders import (
    NOW,
    a_policy,
    a_snapshot,
    active,
    project,
    starting,
    stopping,
    stopping_for,
    waiting,
)
from tests.unit.scheduler.decided import evicted, next_snapshot, reasons, started


def test_an_eviction_sets_aside_the_freed_and_the_free_slots() -> None:
    snapshot = a_snapshot(active("low"), waiting("gang", 2, priority=9), waiting("small", priority=1), policy=2)
    decided = plan(snapshot)
    assert evicted(decided) == {"low": "gang"}
    assert started(decided) == {}
    assert decided.reservations == {"gang": {"p5": 2}}
    assert reasons(decided)["gang"] is WaitReason.WAITING_FOR_STOPPING


def test_a_reservation_outlives_the_stop_and_ends_with_the_start() -> None:
    snapshot = a_snapshot(active("low"), waiting("gang", 2, priority=9), waiting("small", priority=1), policy=2)
    while_stopping = next_snapshot(snapshot)
    assert plan(while_stopping).evictions == ()
    assert plan(while_stopping).reservations == {"gang": {"p5": 2}}
    stopped = next_snapshot(while_stopping)
    assert not stopped.active
    assert started(plan(stopped)) == {"gang": {"p5": 2}}
    assert plan(stopped).reservations == {}


@pytest.mark.parametrize("told", ["reserved", "reserved_for", "both"])
def test_no_second_eviction_for_a_holder(told: str) -> None:
    old = stopping("old") if told == "reserved" else stopping_for("new", "old")
    reserved = {} if told == "reserved_for" else {"new": {"p5": 1}}
    snapshot = a_snapshot(old, active("low"), waiting("new", priority=9), policy=2, reserved=reserved)
    decided = plan(snapshot)
    assert decided.evictions == ()
    assert decided.reservations == {"new": {"p5": 1}}


def test_without_a_reservation_slots_being_freed_come_before_an_eviction() -> None:
    decided = plan(a_snapshot(stopping("old"), active("low"), waiting("new", priority=9), policy=2))
    assert decided.evictions == ()
    assert decided.reservations == {"new": {"p5": 1}}


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param([], id="gone"),
        pytest.param([waiting("holder", held=True)], id="held"),
        pytest.param([waiting("holder", backoff_until=NOW + 60)], id="backing off"),
        pytest.param([waiting("holder", {"none": 1})], id="no such pool"),
    ],
)
def test_a_reservation_falls_with_its_job(holder: list[WaitingJob]) -> None:
    snapshot = a_snapshot(waiting("next", priority=-1), *holder, policy=1, reserved={"holder": {"p5": 1}})
    assert list(started(plan(snapshot))) == ["next"]
    assert plan(snapshot).reservations == {}


def test_who_is_ahead_of_a_holder_starts_on_the_free_slot_and_the_holder_waits_for_its_stop() -> None:
    jobs = (stopping("old"), waiting("first", priority=5, waited=90), waiting("holder", priority=5, waited=60))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"holder": {"p5": 1}}))
    assert started(decided) == {"first": {"p5": 1}}
    assert decided.reservations == {"holder": {"p5": 1}}


def test_who_is_behind_a_holder_leaves_it_the_free_slot() -> None:
    jobs = (stopping("old"), waiting("holder", priority=5, waited=90), waiting("last", priority=5, waited=60))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"holder": {"p5": 1}}))
    assert started(decided) == {"holder": {"p5": 1}}
    assert decided.reservations == {"last": {"p5": 1}}


def test_a_lower_priority_does_not_use_reserved_slots() -> None:
    jobs = (stopping_for("gang", "old"), waiting("gang", 2, priority=5), waiting("small", priority=4))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"gang": {"p5": 2}}))
    assert started(decided) == {}


@pytest.mark.parametrize(
    ("other", "takes_over"),
    [
        pytest.param(waiting("other", priority=6), True, id="higher priority"),
        pytest.param(waiting("other", priority=5, waited=999), False, id="same priority, longer in the queue"),
        pytest.param(waiting("other", priority=6, project="b"), False, id="another project's"),
    ],
)
def test_who_takes_over_a_reservation(other: WaitingJob, takes_over: bool) -> None:
    jobs = (stopping_for("holder", "old"), waiting("holder", priority=5), other)
    decided = plan(a_snapshot(*jobs, policy=a_policy(1, ["a", "b"])))
    assert decided.reservations == {"other" if takes_over else "holder": {"p5": 1}}


def test_the_reservation_of_an_equal_priority_is_left_alone() -> None:
    jobs = (stopping("old", 2), waiting("equal", priority=5), waiting("lower", priority=4))
    urgent = waiting("gang", 2, priority=5, waited=30)
    reserved = {"equal": {"p5": 1}, "lower": {"p5": 1}}
    decided = plan(a_snapshot(*jobs, urgent, policy=2, reserved=reserved))
    assert decided.reservations == reserved


def test_victims_that_a_limit_needs_are_not_given_back() -> None:
    # With its limit of 2 the project holds 4: three have to leave for one to start, whatever is free.
    held = [active(f"r{n}") for n in range(3)]
    policy = a_policy(9, [project("a", 0, limit=2)])
    decided = plan(
        a_snapshot(*held, starting("launching"), waiting("w0", priority=2), waiting("w1", priority=2), policy=policy)
    )
    assert evicted(decided) == {"r0": "w0", "r1": "w0", "r2": "w0"}
    assert decided.reservations == {"w0": {"p5": 1}}


def test_a_higher_priority_starts_on_free_slots_that_are_set_aside() -> None:
    snapshot = a_snapshot(
        waiting("holder", priority=5), waiting("urgent", priority=6), policy=1, reserved={"holder": {"p5": 1}}
    )
    decided = plan(snapshot)
    assert started(decided) == {"urgent": {"p5": 1}}
    assert decided.reservations == {}


def test_free_slots_of_an_equal_priority_are_left_alone() -> None:
    jobs = (waiting("equal", priority=5), waiting("lower", priority=4), waiting("gang", 2, priority=5, waited=99))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"equal": {"p5": 1}, "lower": {"p5": 1}}))
    assert set(started(decided)) == {"equal", "lower"}


def test_who_would_be_beyond_its_share_takes_no_reservation_over() -> None:
    policy = a_policy(2, [project("a", 1, over_quota=0), project("b", 1)])
    jobs = (stopping("old", 2), waiting("holder", priority=5), waiting("urgent", 2, priority=9))
    assert plan(a_snapshot(*jobs, policy=policy, reserved={"holder": {"p5": 1}})).reservations == {"holder": {"p5": 1}}


def test_with_a_reservation_its_evictions_fall_to_who_takes_it_over() -> None:
    # `aged` stands first by aging and evicts; `urgent` has the higher nominal priority.
    jobs = (active("low", priority=0), waiting("aged", priority=1, waited=6000), waiting("urgent", priority=2))
    decided = plan(a_snapshot(*jobs, policy=a_policy(1, aging=600)))
    assert (evicted(decided), decided.reservations) == ({"low": "urgent"}, {"urgent": {"p5": 1}})


def test_the_lowest_reservation_is_taken_over_and_no_other() -> None:
    jobs = (stopping("old", 3), waiting("x", priority=5), waiting("y", 2, priority=4), waiting("urgent", priority=9))
    decided = plan(a_snapshot(*jobs, policy=3, reserved={"x": {"p5": 1}, "y": {"p5": 2}}))
    assert decided.reservations == {"urgent": {"p5": 1}, "x": {"p5": 1}}


def test_a_reservation_that_is_not_needed_with_the_others_is_let_off() -> None:
    jobs = (stopping("old", 3), waiting("x", 2, priority=5), waiting("y", priority=4), waiting("urgent", 2, priority=9))
    decided = plan(a_snapshot(*jobs, policy=3, reserved={"x": {"p5": 2}, "y": {"p5": 1}}))
    assert decided.reservations == {"urgent": {"p5": 2}, "y": {"p5": 1}}


def test_who_is_let_off_keeps_its_reservation_against_an_older_equal() -> None:
    jobs = (stopping("old", 4), waiting("x", priority=2, waited=10), waiting("y", 3, priority=2, waited=50))
    others = (waiting("older", priority=2, waited=99), waiting("urgent", 3, priority=3))
    decided = plan(a_snapshot(*jobs, *others, policy=4, reserved={"x": {"p5": 1}, "y": {"p5": 3}}))
    assert decided.reservations == {"urgent": {"p5": 3}, "x": {"p5": 1}}


def test_a_holder_starts_where_it_can_and_lets_its_slots_go() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    jobs = (stopping_for("holder", "old"), waiting("holder", {"p5": 1}, {"p4": 1}), waiting("next"))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert started(decided) == {"holder": {"p4": 1}}
    assert decided.reservations == {"next": {"p5": 1}}


def test_slots_let_go_help_a_job_ahead_of_the_holder() -> None:
    policy = a_policy({"p5": 2, "p4": 1})
    ahead, holder = waiting("ahead", waited=99), waiting("holder", {"p5": 2}, {"p4": 1}, waited=1)
    jobs = (stopping("old"), ahead, holder, waiting("behind", priority=0))
    decided = plan(a_snapshot(*jobs, policy=policy, reserved={"holder": {"p5": 2}}))
    assert started(decided) == {"ahead": {"p5": 1}, "holder": {"p4": 1}}


def test_a_reservation_that_leads_nowhere_falls_for_a_job_ahead_of_its_holder() -> None:
    ahead, holder = waiting("ahead", waited=99), waiting("holder", 2, waited=1)
    decided = plan(a_snapshot(ahead, holder, policy=2, external={"p5": 1}, reserved={"holder": {"p5": 2}}))
    assert (started(decided), decided.reservations) == ({"ahead": {"p5": 1}}, {})


def test_a_holder_keeps_its_place_when_a_better_one_is_being_freed() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    jobs = (stopping("x"), stopping_for("holder", "y", {"p4": 1}), waiting("holder", {"p5": 1}, {"p4": 1}))
    assert plan(a_snapshot(*jobs, policy=policy)).reservations == {"holder": {"p4": 1}}


def test_free_slots_serve_the_reservations_of_those_ahead_first() -> None:
    jobs = (stopping("x"), stopping("y"), waiting("gang", 4, priority=5), waiting("small", priority=4))
    decided = plan(a_snapshot(*jobs, policy=5, reserved={"gang": {"p5": 4}, "small": {"p5": 1}}))
    assert started(decided) == {}
    decided = plan(a_snapshot(jobs[0], *jobs[2:], policy=5, reserved={"gang": {"p5": 4}, "small": {"p5": 1}}))
    assert started(decided) == {"gang": {"p5": 4}}


def test_nobody_starts_on_more_than_what_is_free() -> None:
    # Its own slots and those that a victim left would be four, but only three are free yet.
    jobs = (active("big", 5), waiting("first", 2, priority=5, waited=99), waiting("holder", 4, priority=5))
    decided = plan(a_snapshot(*jobs, policy=8, reserved={"holder": {"p5": 2}}))
    assert (started(decided), evicted(decided)) == ({}, {"big": "first"})
    assert decided.reservations == {"first": {"p5": 2}, "holder": {"p5": 4}}


def test_slots_told_twice_count_once() -> None:
    jobs = (stopping_for("new", "old"), stopping("x"), waiting("new", 2, 1, priority=5), waiting("small"))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"new": {"p5": 1}}))
    assert decided.reservations == {"new": {"p5": 1}, "small": {"p5": 1}}


def test_no_second_eviction_while_the_first_is_under_way_even_if_it_will_not_suffice() -> None:
    # An external job has taken one of the two slots that were set aside.
    jobs = (stopping_for("gang", "old"), active("low"), waiting("gang", 2, priority=9), waiting("small"))
    snapshot = a_snapshot(*jobs, policy=3, external={"p5": 1}, reserved={"gang": {"p5": 2}})
    decided = plan(snapshot)
    assert (decided.starts, decided.evictions) == ((), ())
    assert decided.reservations == {"gang": {"p5": 1}}
    assert evicted(plan(next_snapshot(snapshot))) == {"low": "gang"}


def test_a_promise_that_can_no_longer_be_kept_falls_and_is_made_anew() -> None:
    # An external job has taken one of the two slots set aside for the gang.
    gang = waiting("gang", 2, priority=9)
    short = a_snapshot(gang, active("low"), policy=3, external={"p5": 1}, reserved={"gang": {"p5": 2}})
    assert evicted(plan(short)) == {"low": "gang"}
    hopeless = a_snapshot(gang, waiting("small"), policy=2, external={"p5": 1}, reserved={"gang": {"p5": 2}})
    assert list(started(plan(hopeless))) == ["small"]
    assert plan(hopeless).reservations == {}


def test_no_more_is_set_aside_than_there_is() -> None:
    jobs = (stopping("old"), waiting("a", priority=2), waiting("b", priority=1))
    assert plan(a_snapshot(*jobs, policy=1, reserved={"a": {"p5": 1}, "b": {"p5": 1}})).reservations == {"a": {"p5": 1}}


# --- nobody starts only to leave -----------------------------------------------------------------------------------


def test_slots_are_kept_for_a_job_that_will_preempt_what_is_being_launched() -> None:
    jobs = (starting("launching"), waiting("gang", 2, priority=9), waiting("small", priority=0))
    snapshot = a_snapshot(*jobs, policy=2)
    decided = plan(snapshot)
    assert (decided.starts, decided.evictions) == ((), ())
    assert decided.reservations == {"gang": {"p5": 1}}
    launched = next_snapshot(snapshot)
    assert evicted(plan(launched)) == {"launching": "gang"}


@pytest.mark.parametrize(
    ("launching", "settings"),
    [
        pytest.param(starting("launching", priority=9), {}, id="not of lower priority"),
        pytest.param(starting("launching", preemptible=False), {}, id="not preemptible"),
        pytest.param(starting("launching"), {"min_runtime": 60}, id="guaranteed runtime"),
    ],
)
def test_slots_are_not_kept_where_the_launch_may_not_be_preempted(
    launching: ActiveJob, settings: dict[str, Any]
) -> None:
    jobs = (launching, waiting("gang", 2, priority=9), waiting("small", priority=0))
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(2, **settings))))) == ["small"]
