"""Who is served first (section 2), each rule with its counter-case."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.scheduler import Order, Project, WaitingJob, plan
from job_queue.scheduler.fair_share import ShareNode, deprivation
from job_queue.scheduler.ordering import expected_runtime
from tests.builders import (
    a_policy,
    a_snapshot,
    active,
    department,
    line,
    many,
    project,
    waiting,
)
from tests.unit.scheduler.decided import evicted_by, started

NONE_HELD = {"p5": 0}

# --- jobs of a project ---------------------------------------------------------------------------------------------


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


# --- projects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("projects", "held", "first"),
    [
        pytest.param([project("a", 1), project("b", 2)], {"a": 1, "b": 1}, "b", id="within its quota"),
        pytest.param(
            [project("a", 0), project("b", 2)], {"a": 0, "b": 1}, "b", id="... though the other holds nothing"
        ),
        pytest.param([project("a", 4), project("b", 4)], {"a": 2, "b": 1}, "b", id="smaller part of its entitlement"),
        pytest.param([project("a", 2), project("b", 4)], {"a": 0, "b": 0}, "b", id="... with its next job"),
        pytest.param([project("a", 0, over_quota=0), project("b", 0)], {"b": 1}, "b", id="entitlement 0 is worst"),
        pytest.param([project("a", 4), project("b", 4)], {"a": 1, "b": 1}, "a", id="policy order"),
        pytest.param([project("b", 4), project("a", 4)], {"a": 1, "b": 1}, "b", id="... whatever that is"),
    ],
)
def test_the_most_deprived_project_is_first(projects: list[Project], held: dict[str, int], first: str) -> None:
    jobs = [job for name, count in held.items() for job in many(count, f"r{name}", project=name)]
    jobs_waiting = [*line(4, "wa", project="a"), *line(4, "wb", project="b")]
    policy = a_policy(len(jobs) + 1, projects)
    assert list(started(plan(a_snapshot(*jobs, *jobs_waiting, policy=policy)))) == [f"w{first}0"]


def test_within_its_quota_comes_before_a_smaller_part_of_the_entitlement() -> None:
    def queue(name: str, place: int, quota: int, due: int) -> ShareNode:
        return ShareNode(name, place, None, {"p5": quota}, {}, entitlement={"p5": due})

    within, beyond = queue("a", 1, quota=1, due=1), queue("b", 0, quota=0, due=9)
    assert deprivation(within, {"p5": 1}, NONE_HELD) < deprivation(beyond, {"p5": 1}, NONE_HELD)
    assert deprivation(within, {"p5": 2}, NONE_HELD) > deprivation(beyond, {"p5": 2}, NONE_HELD)


def test_departments_are_compared_before_their_projects() -> None:
    # With its next job b would hold 1 of 4 and c 1 of 3; but b's department 3 of 6, and c's 1 of 3.
    projects = [project("a", 2, department="x"), project("b", 4, department="x"), project("c", 3, department="y")]
    policy = a_policy(12, [*projects, project("z", 3)], [department("x", 6), department("y", 3)])
    held = (active("a0", 2, project="a"), active("z0", 9, project="z", preemptible=False))
    jobs = (*line(4, "b", project="b"), *line(3, "c", project="c"))
    assert list(started(plan(a_snapshot(*held, *jobs, policy=policy)))) == ["c0"]


def test_the_order_is_compared_anew_after_every_start() -> None:
    policy = a_policy(4, [project("a", 4), project("b", 4)])
    jobs = [*line(4, "a", project="a"), *line(4, "b", project="b")]
    assert set(started(plan(a_snapshot(*jobs, policy=policy)))) == {"a0", "b0", "a1", "b1"}


def test_equal_ratios_the_smaller_part_held_is_first() -> None:
    # With its next job each would hold half: a has 0 of 4 and asks 2, b has 1 of 4 and asks 1.
    policy = a_policy(3, [project("b", 4), project("a", 4)])
    jobs = (active("r", project="b"), waiting("wb", project="b"), waiting("wa", 2, project="a"))
    assert started(plan(a_snapshot(*jobs, policy=policy))) == {"wa": {"p5": 2}}


def test_departments_are_compared_before_projects() -> None:
    # c holds nothing, but its department holds half; a's department holds nothing.
    projects = [project("c", 2, department="x"), project("d", 2, department="x"), project("a", 4, department="y")]
    policy = a_policy(3, projects, [department("x", 4), department("y", 4)])
    jobs = (*many(2, "d", project="d"), waiting("wc", project="c"), waiting("wa", project="a"))
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["wa"]


def test_of_several_pools_the_worst_counts() -> None:
    pools = {"p5": 4, "c6": 4}
    projects = [Project("a", quota=pools), Project("b", quota=pools)]
    jobs = (active("r", {"c6": 3}), waiting("wa", {"p5": 1, "c6": 1}), waiting("wb", {"p5": 2}, project="b"))
    policy = a_policy({"p5": 2, "c6": 4}, projects)
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["wb"]


# --- aging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waited", "first"), [(999, "new"), (1000, "old")])
def test_aging_raises_a_place_by_one_priority_per_interval(waited: float, first: str) -> None:
    jobs = (waiting("old", priority=1, waited=waited), waiting("new", priority=2, waited=0))
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000, min_runtime=60))))) == [first]
    # Without a guaranteed runtime the higher priority would preempt it at once, so it is not even started.
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000))))) == ["new"]
    preempted = replace(jobs[0], preemptions=1), jobs[1]
    assert list(started(plan(a_snapshot(*preempted, policy=a_policy(1, aging=1000))))) == [first]


def test_aging_does_not_help_to_preempt() -> None:
    jobs = (active("r", priority=2), waiting("old", priority=1, waited=99_000))
    assert not evicted_by(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000))))


def test_who_was_raised_by_aging_does_not_hide_a_higher_priority_of_the_same_demand() -> None:
    jobs = (active("r", priority=2), waiting("old", priority=1, waited=9000), waiting("new", priority=3, waited=0))
    assert evicted_by(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000)))) == {"r": ("new", "preempt")}


# --- shortest first ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(waiting("z", waited=1, expected=100), waiting("a", waited=99, expected=200), id="shorter"),
        pytest.param(waiting("z", priority=2, expected=9e4), waiting("a", expected=1), id="priority comes before"),
        pytest.param(waiting("z", waited=99, expected=100), waiting("a", waited=1, expected=100), id="then entry"),
        pytest.param(waiting("a", expected=100), waiting("z", expected=100), id="then name"),
        pytest.param(waiting("z", max_runtime=100), waiting("a", max_runtime=200), id="as long as they may"),
        pytest.param(
            waiting("z", expected=9, max_runtime=9e4), waiting("a", max_runtime=10), id="predicted before may"
        ),
        pytest.param(waiting("z", expected=9e4, max_runtime=9), waiting("a", expected=10), id="no longer than it may"),
        pytest.param(waiting("z", expected=86_000), waiting("a"), id="of whom nothing is known: a day"),
    ],
)
def test_by_order_of_shortest_one_slot_goes_to_the_shortest(first: WaitingJob, second: WaitingJob) -> None:
    policy = a_policy(1, order=Order.SHORTEST)
    assert list(started(plan(a_snapshot(second, first, policy=policy)))) == [first.name]


@pytest.mark.parametrize(("earlier", "first"), [(2999, "short"), (3001, "long")])
def test_a_job_is_passed_until_its_stretch_is_over(earlier: float, first: str) -> None:
    """Ten times what it is expected to run longer: 3,000 s."""
    jobs = (waiting("long", waited=earlier + 5, expected=400), waiting("short", waited=5, expected=100))
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(1, order=Order.SHORTEST, stretch=10))))) == [first]


lengths = st.one_of(st.none(), st.floats(0, 1e6))


@given(
    st.lists(st.tuples(st.floats(0, 1e6), lengths, lengths), min_size=2, max_size=12),
    st.integers(1, 6),
    st.floats(0.01, 100),
)
def test_nobody_is_passed_by_who_comes_later_than_its_stretch(
    drawn: list[tuple[float, float | None, float | None]], slots: int, stretch: float
) -> None:
    jobs = [
        waiting(f"w{place}", waited=waited, expected=expected, max_runtime=longest)
        for place, (waited, expected, longest) in enumerate(drawn)
    ]
    policy = a_policy(slots, order=Order.SHORTEST, stretch=stretch)
    starts = started(plan(a_snapshot(*jobs, policy=policy)))
    for left in (job for job in jobs if job.name not in starts):
        until = left.entered + stretch * expected_runtime(left)
        assert all(job.entered <= until for job in jobs if job.name in starts)


# --- the two passes ------------------------------------------------------------------------------------------------


def test_who_stays_within_entitlement_comes_first() -> None:
    # a is at its share, though its next job is of higher priority; b is not.
    policy = a_policy(3, [project("a", 2, over_quota=0), project("b", 1)])
    jobs = (*many(2, "r", project="a"), waiting("wa", priority=99, project="a"), waiting("wb", project="b"))
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["wb"]


def test_idle_slots_are_for_anyone_afterwards() -> None:
    policy = a_policy(4, [project("a", 2, over_quota=0), project("b", 1)])
    jobs = (*many(2, "r", project="a"), waiting("wa", project="a"), waiting("wb", project="b"))
    assert set(started(plan(a_snapshot(*jobs, policy=policy)))) == {"wa", "wb"}


def test_own_lower_priorities_do_not_count_in_the_first_pass() -> None:
    # high may preempt low, so with it a stays within its share: it is served before b's over-share job.
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    jobs = (active("low", project="a"), waiting("high", priority=9), *many(1, "r", project="b", priority=9))
    assert evicted_by(plan(a_snapshot(*jobs, waiting("wb", project="b"), policy=policy))) == {
        "low": ("high", "preempt")
    }


def test_a_higher_priority_withdraws_starts_of_the_same_plan() -> None:
    # In the first pass low starts, within a's share of 2; high wants 3 and gets them in the second.
    policy = a_policy(3, [project("a", 2, over_quota=0), project("b", 1, over_quota=0)])
    jobs = (waiting("low", 1, priority=1), waiting("high", 3, priority=9))
    assert started(plan(a_snapshot(*jobs, policy=policy))) == {"high": {"p5": 3}}
    # ... but no more of them than it needs.
    three = (waiting("low1", priority=1), waiting("low2", priority=2), waiting("high", 3, priority=9))
    assert started(plan(a_snapshot(*three, policy=a_policy(4, policy.projects)))) == {
        "high": {"p5": 3},
        "low2": {"p5": 1},
    }


def test_an_equal_priority_withdraws_nothing() -> None:
    policy = a_policy(3, [project("a", 2, over_quota=0), project("b", 1, over_quota=0)])
    jobs = (waiting("low", 1, waited=1), waiting("high", 3, waited=9))
    assert started(plan(a_snapshot(*jobs, policy=policy))) == {"low": {"p5": 1}}


def test_nobody_preempts_past_a_higher_priority_of_its_project() -> None:
    # mid alone could preempt low and stay within the share of 3, but top wants both slots of low, beyond the share.
    policy = a_policy(4, [project("a", 3, over_quota=0), project("b", 1, over_quota=0)])
    jobs = (active("low", 2, priority=1), active("own", 2, priority=9))
    decided = plan(a_snapshot(*jobs, waiting("mid", 1, priority=5), waiting("top", 2, priority=9), policy=policy))
    assert evicted_by(decided) == {"low": ("top", "preempt")}


def test_an_alternative_within_the_share_comes_before_one_beyond_it() -> None:
    policy = a_policy({"p5": 2, "p4": 2}, [Project("a", quota={"p4": 2}, over_quota=0), Project("b", quota={"p5": 2})])
    assert started(plan(a_snapshot(waiting("job", {"p5": 1}, {"p4": 1}), policy=policy))) == {"job": {"p4": 1}}
    # ... and the one beyond it is taken where the other is not to be had.
    jobs = (*many(1, "r", slots={"p4": 2}), waiting("job", {"p5": 1}, {"p4": 1}))
    assert started(plan(a_snapshot(*jobs, policy=policy))) == {"job": {"p5": 1}}
