"""Each rule of the core with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler.decisions import Evict, Plan, Reason, Rule
from job_queue.scheduler.model import ActiveJob, Project, Slots, Snapshot, WaitingJob
from job_queue.scheduler.planner import plan
from job_queue.scheduler.simulation import Run
from tests.builders import NOW, a_policy, a_snapshot, active, project, starting, stopping, waiting


def started(decided: Plan) -> dict[str, Slots]:
    return {start.job: start.slots for start in decided.starts}


def evicted(decided: Plan) -> dict[str, str]:
    return {eviction.job: eviction.claimant for eviction in decided.evictions}


def reasons(decided: Plan) -> dict[str, Reason]:
    return {hold.job: hold.reason for hold in decided.holds}


def next_snapshot(snapshot: Snapshot) -> Snapshot:
    run = Run(snapshot)
    run.apply(plan(snapshot))
    return run.snapshot


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(waiting("z", priority=2, waited=1), waiting("a", priority=1, waited=99), id="priority"),
        pytest.param(waiting("z", waited=99), waiting("a", waited=1), id="entry"),
        pytest.param(waiting("a"), waiting("z"), id="name"),
        pytest.param(waiting("z", priority=-1), waiting("a", priority=-2), id="negative priorities"),
    ],
)
def test_one_slot_goes_to_the_first_in_order(first: WaitingJob, second: WaitingJob) -> None:
    assert list(started(plan(a_snapshot(second, first, policy=1)))) == [first.name]


# --- who may start --------------------------------------------------------------------------------


def test_a_gang_takes_all_its_slots_or_none() -> None:
    assert started(plan(a_snapshot(waiting("gang", 3), policy=3))) == {"gang": {"p5": 3}}
    assert started(plan(a_snapshot(waiting("gang", 3), active("other"), policy=3))) == {}


def test_a_gang_of_two_pools_takes_both_or_none() -> None:
    gang = waiting("gang", {"p5": 1, "c6": 2})
    assert started(plan(a_snapshot(gang, policy=a_policy({"p5": 1, "c6": 2})))) == {"gang": {"p5": 1, "c6": 2}}
    busy = a_snapshot(gang, active("other", {"c6": 1}), policy=a_policy({"p5": 1, "c6": 2}))
    assert started(plan(busy)) == {}


def test_a_smaller_job_uses_what_a_blocked_gang_cannot() -> None:
    jobs = (waiting("gang", 3, priority=5), waiting("small", priority=1))
    assert started(plan(a_snapshot(active("other", 2, priority=9), *jobs, policy=4))) == {"small": {"p5": 1}}
    # ... but not what the gang can have as soon as others have left for it.
    decided = plan(a_snapshot(active("other", 2, priority=1), *jobs, policy=4))
    assert (started(decided), evicted(decided)) == ({"small": {"p5": 1}}, {"other": "gang"})
    decided = plan(a_snapshot(active("other", 1, priority=1), *jobs, policy=3))
    assert (started(decided), evicted(decided)) == ({}, {"other": "gang"})


def test_alternatives_are_tried_in_order() -> None:
    policy = a_policy({"p5": 1, "p4": 2})
    job = waiting("job", {"p5": 1}, {"p4": 2})
    assert started(plan(a_snapshot(job, policy=policy))) == {"job": {"p5": 1}}
    assert started(plan(a_snapshot(job, active("other"), policy=policy))) == {"job": {"p4": 2}}


def test_a_free_second_choice_is_better_than_an_eviction() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    job = waiting("job", {"p5": 1}, {"p4": 1}, priority=9)
    decided = plan(a_snapshot(job, active("low"), policy=policy))
    assert (started(decided), evicted(decided)) == ({"job": {"p4": 1}}, {})
    decided = plan(a_snapshot(job, active("low"), active("other", {"p4": 1}, priority=9), policy=policy))
    assert evicted(decided) == {"low": "job"}


def test_slots_being_freed_for_a_second_choice_are_better_than_an_eviction() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    job = waiting("job", {"p5": 1}, {"p4": 1}, priority=9)
    decided = plan(a_snapshot(job, active("low"), stopping("old", {"p4": 1}), policy=policy))
    assert (evicted(decided), decided.reservations) == ({}, {"job": {"p4": 1}})
    # ... and so are those set aside for a lower priority.
    holder = waiting("holder", {"p4": 1}, priority=5)
    decided = plan(
        a_snapshot(job, holder, active("low"), stopping("old", {"p4": 1}, reserved_for="holder"), policy=policy)
    )
    assert (evicted(decided), decided.reservations) == ({}, {"job": {"p4": 1}})


def test_external_jobs_use_slots_and_are_left_alone() -> None:
    decided = plan(a_snapshot(waiting("job", priority=9), policy=2, external={"p5": 2}))
    assert reasons(decided) == {"job": Reason.WAITING_FOR_CAPACITY}
    assert not decided.evictions
    assert started(plan(a_snapshot(waiting("job"), policy=2, external={"p5": 1}))) == {"job": {"p5": 1}}


def test_a_pool_that_was_made_smaller_starts_nothing_until_it_has_room() -> None:
    decided = plan(a_snapshot(active("a", 2), active("b", 2), waiting("job", priority=9), policy=1))
    assert evicted(decided) == {"a": "job", "b": "job"}  # one alone would leave the pool full
    decided = plan(a_snapshot(active("a", 2), active("b", 2, priority=9), waiting("job", priority=9), policy=1))
    assert (decided.starts, decided.evictions) == ((), ())


# --- who is not served at all -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (waiting("job", 9, held=True), Reason.HELD_BY_USER),
        (waiting("job", 9, backoff_until=NOW + 1), Reason.BACKOFF),
        (waiting("job", {"none": 1}), Reason.NO_SUCH_POOL),
        (waiting("job", {"p5": 1, "none": 1}), Reason.NO_SUCH_POOL),
        (waiting("job", {"none": 1}, {"p5": 3}), Reason.NEVER_FITS),
        (waiting("job", 3), Reason.NEVER_FITS),
    ],
)
def test_who_cannot_be_served_is_told_so_and_blocks_nobody(job: WaitingJob, reason: Reason) -> None:
    decided = plan(a_snapshot(job, waiting("other", priority=-1), policy=2))
    assert reasons(decided) == {"job": reason}
    assert list(started(decided)) == ["other"]


@pytest.mark.parametrize(
    "job",
    [
        waiting("job", backoff_until=NOW),
        waiting("job", {"none": 1}, {"p5": 1}),
        waiting("job", 3, 2),
    ],
)
def test_who_can_be_served_after_all_is(job: WaitingJob) -> None:
    assert list(started(plan(a_snapshot(job, policy=2)))) == ["job"]


def test_a_project_uses_only_its_pools() -> None:
    policy = a_policy({"p5": 1, "p4": 1}, projects=[Project("a", pools=("p4",))])
    assert reasons(plan(a_snapshot(waiting("job"), policy=policy))) == {"job": Reason.NO_SUCH_POOL}
    assert list(started(plan(a_snapshot(waiting("job", {"p4": 1}), policy=policy)))) == ["job"]


# --- who may be made to leave -----------------------------------------------------------------------


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


def test_nobody_leaves_for_a_claimant_that_would_not_fit() -> None:
    snapshot = a_snapshot(active("low"), active("high", 2, priority=9), waiting("gang", 2, priority=5), policy=3)
    assert plan(snapshot).evictions == ()


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
    jobs = (stopping("old", reserved_for="holder"), active("one", 1), active("two", 2, priority=2), holder)
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


# --- reservations -----------------------------------------------------------------------------------


def test_an_eviction_sets_aside_the_freed_and_the_free_slots() -> None:
    snapshot = a_snapshot(active("low"), waiting("gang", 2, priority=9), waiting("small", priority=1), policy=2)
    decided = plan(snapshot)
    assert evicted(decided) == {"low": "gang"}
    assert started(decided) == {}
    assert decided.reservations == {"gang": {"p5": 2}}
    assert reasons(decided)["gang"] is Reason.WAITING_FOR_STOPPING


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
    old = stopping("old", reserved_for=None if told == "reserved" else "new")
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


def test_a_lower_priority_does_not_use_reserved_slots() -> None:
    jobs = (stopping("old", reserved_for="gang"), waiting("gang", 2, priority=5), waiting("small", priority=4))
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
    jobs = (stopping("old", reserved_for="holder"), waiting("holder", priority=5), other)
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


def test_the_lowest_reservation_is_taken_over_and_no_other() -> None:
    jobs = (stopping("old", 3), waiting("x", priority=5), waiting("y", 2, priority=4), waiting("urgent", priority=9))
    decided = plan(a_snapshot(*jobs, policy=3, reserved={"x": {"p5": 1}, "y": {"p5": 2}}))
    assert decided.reservations == {"urgent": {"p5": 1}, "x": {"p5": 1}}


def test_a_reservation_that_is_not_needed_with_the_others_is_let_off() -> None:
    jobs = (stopping("old", 3), waiting("x", 2, priority=5), waiting("y", priority=4), waiting("urgent", 2, priority=9))
    decided = plan(a_snapshot(*jobs, policy=3, reserved={"x": {"p5": 2}, "y": {"p5": 1}}))
    assert decided.reservations == {"urgent": {"p5": 2}, "y": {"p5": 1}}


def test_a_holder_starts_where_it_can_and_lets_its_slots_go() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    jobs = (stopping("old", reserved_for="holder"), waiting("holder", {"p5": 1}, {"p4": 1}), waiting("next"))
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
    jobs = (stopping("x"), stopping("y", {"p4": 1}, reserved_for="holder"), waiting("holder", {"p5": 1}, {"p4": 1}))
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
    jobs = (stopping("old", reserved_for="new"), stopping("x"), waiting("new", 2, 1, priority=5), waiting("small"))
    decided = plan(a_snapshot(*jobs, policy=2, reserved={"new": {"p5": 1}}))
    assert decided.reservations == {"new": {"p5": 1}, "small": {"p5": 1}}


def test_no_second_eviction_while_the_first_is_under_way_even_if_it_will_not_suffice() -> None:
    # An external job has taken one of the two slots that were set aside.
    jobs = (stopping("old", reserved_for="gang"), active("low"), waiting("gang", 2, priority=9), waiting("small"))
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


# --- nobody starts only to leave ----------------------------------------------------------------------


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


# --- reasons and sentences ------------------------------------------------------------------------------


def test_the_sentence_has_the_figures() -> None:
    jobs = (active("job-a", 1, priority=5), active("job-b", 1, priority=3, project="b"))
    snapshot = a_snapshot(*jobs, waiting("job", 2, priority=5), policy=a_policy(4, ["a", "b"]), external={"p5": 1})
    (hold,) = plan(snapshot).holds
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert hold.message == (
        "Needs 2 instances of p5; 1 of 4 is free, 2 are used by job-a (priority 5) and job-b (priority 3), "
        "1 by jobs outside the queue. No job of its project there has a lower priority than 5. "
        "Other projects keep theirs: b holds 1 of p5 and is due 4."
    )
    assert hold.blockers == ("job-a", "job-b")
    assert hold.ahead == ()


def test_the_one_pool_without_a_policy_needs_no_name() -> None:
    jobs = (active("other", {"default": 2}), waiting("job", {"default": 1}))
    (hold,) = plan(a_snapshot(*jobs, policy=a_policy({"default": 2}))).holds
    assert hold.message.startswith("Needs 1 instance; 0 of 2 are free, 2 are used by other (priority 1).")


def test_who_waits_behind_another_of_its_project_is_told_behind_whom() -> None:
    jobs = [waiting(f"job{place}", waited=99 - place) for place in range(4)]
    other = waiting("other", project="b", waited=50)
    decided = plan(a_snapshot(active("busy", 2), *jobs, other, policy=a_policy(2, ["a", "b"])))
    holds = {hold.job: hold for hold in decided.holds}
    assert [hold.job for hold in decided.holds] == ["other", "job0", "job1", "job2", "job3"]
    assert holds["job0"].reason is Reason.WAITING_FOR_CAPACITY
    assert holds["other"].reason is Reason.WAITING_FOR_CAPACITY
    assert holds["job0"].ahead == ("other",)
    assert holds["job3"].reason is Reason.BEHIND_HIGHER_PRIORITY
    assert holds["job3"].message.startswith("Waits behind job0 (priority 1) and 2 more, which lack slots, too.")
    assert holds["job3"].ahead == ("other", "job0", "job1", "job2")


def test_a_job_of_another_pool_is_not_in_the_way() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    jobs = (active("x"), active("y", {"p4": 1}), waiting("first", waited=99), waiting("second", {"p4": 1}))
    assert set(reasons(plan(a_snapshot(*jobs, policy=policy))).values()) == {Reason.WAITING_FOR_CAPACITY}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (active("low", ran=60), "low (guaranteed to run until 1970-01-12 14:35:40 UTC)."),
        (active("low", preemptible=False), "low (may not be stopped)."),
        (active("low"), "low (stopping all that may be stopped would not free enough)."),
        (starting("low"), "low (still being launched)."),
    ],
)
def test_why_a_lower_priority_stays(other: ActiveJob, words: str) -> None:
    policy = a_policy(2, min_runtime=3000)
    decided = plan(a_snapshot(other, active("top", priority=99), waiting("job", 2, priority=9), policy=policy))
    assert decided.holds[0].message.endswith(words)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (waiting("job", held=True), "It is held: it keeps its place in the line and starts only once it is released."),
        (
            waiting("job", backoff_until=NOW + 300),
            "Could not be launched just now; is tried again at 1970-01-12 13:51:40 UTC, in 5 min.",
        ),
        (waiting("job", {"none": 1}), "Asks for none, but the pools that its project may use are p4 and p5."),
        (
            waiting("job", 3, {"p4": 2}),
            "Needs 3 instances of p5, or 2 instances of p4, and there are only 2 of p5 and 1 of p4 in all: "
            "it can never start.",
        ),
    ],
)
def test_the_sentence_of_who_is_not_served_at_all(job: WaitingJob, words: str) -> None:
    (hold,) = plan(a_snapshot(job, policy=a_policy({"p5": 2, "p4": 1}))).holds
    assert hold.message == words


def test_the_sentence_of_who_waits_for_a_stop() -> None:
    jobs = (active("low", 2), waiting("job", 3, priority=9))
    (hold,) = plan(a_snapshot(*jobs, policy=3)).holds
    assert hold.message == (
        "3 instances of p5 are set aside for it; it starts when low (priority 1) has stopped. "
        "It needs 3 instances of p5; 1 of 3 is free (1 set aside for job), 2 are being freed by low (priority 1)."
    )


# --- the article ------------------------------------------------------------------------------------
