"""Who may be made to leave for another project (section 4), each rule with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Evict, Policy, Rule, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import (
    a_policy,
    a_snapshot,
    active,
    department,
    line,
    many,
    project,
    starting,
    waiting,
)
from tests.unit.scheduler.decided import evicted_by

# --- reclaim -------------------------------------------------------------------------------------------------------


def test_reclaim_takes_what_is_above_the_share_and_no_more() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    jobs = (*many(4, "a", project="a"), *line(4, "b", project="b"))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert decided.evictions == (Evict("a3", "b0", Rule.RECLAIM), Evict("a2", "b1", Rule.RECLAIM))


def test_who_would_be_above_its_share_reclaims_nothing() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    jobs = (*many(3, "a", project="a"), *many(1, "b", project="b"))
    assert evicted_by(plan(a_snapshot(*jobs, waiting("w", 2, project="b"), policy=policy))) == {}
    assert evicted_by(plan(a_snapshot(*jobs, waiting("w", 1, project="b"), policy=policy))) == {"a2": ("w", "reclaim")}


def test_a_project_may_lose_more_than_the_excess_when_its_job_is_a_gang() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    assert evicted_by(plan(a_snapshot(active("a", 3), waiting("b", 2, project="b"), policy=policy))) == {
        "a": ("b", "reclaim")
    }


def test_each_victim_is_taken_only_while_its_side_is_above_its_share() -> None:
    # a is one over: the gang of two is taken, then nobody, though two more slots are lacking.
    policy = a_policy(6, [project("a", 2), project("b", 4, over_quota=0)])
    jobs = (active("a1", 2, priority=2), active("a2", 1, priority=1), active("b0", 2, project="b", preemptible=False))
    assert evicted_by(plan(a_snapshot(*jobs, waiting("b", 2, project="b"), policy=policy))) == {"a2": ("b", "reclaim")}


def test_under_its_quota_it_takes_from_whom_is_above_quota_though_within_its_share() -> None:
    # More quota than slots: shares are scaled to 2, 1 and 1, so b would be above its share but not above its quota.
    projects = [project("a", 2), project("b", 2), project("c", 0)]
    jobs = (*many(2, "a", project="a"), active("b0", project="b"), active("c0", project="c"))
    policy = a_policy(4, [*projects[:2], project("c", 0)])
    decided = plan(a_snapshot(*jobs, waiting("w", project="b"), policy=policy))
    assert evicted_by(decided) == {"c0": ("w", "reclaim")}


def test_the_project_furthest_above_its_share_gives_first() -> None:
    policy = a_policy(9, [project("a", 3), project("b", 3), project("c", 3)])
    jobs = (*many(3, "a", project="a"), active("cheap", project="a", ran=1), *many(5, "b", project="b"))
    decided = plan(a_snapshot(*jobs, *line(3, "c", project="c"), policy=policy))
    assert [(it.claimant, it.job) for it in decided.evictions] == [("c0", "b4"), ("c1", "cheap"), ("c2", "b3")]


def test_a_gang_takes_again_from_whom_is_still_furthest_above() -> None:
    policy = a_policy(10, [project("a", 3), project("b", 3), project("c", 4)])
    jobs = (*many(4, "a", project="a"), *many(6, "b", project="b"), *line(2, "c", project="c"))
    decided = plan(a_snapshot(*jobs, waiting("gang", 2, priority=9, project="c"), policy=policy))
    assert {it.job for it in decided.evictions if it.claimant == "gang"} == {"b5", "b4"}


def test_for_its_quota_it_takes_from_whom_is_above_quota_though_within_its_share() -> None:
    # What a holds beyond its share is guaranteed a runtime; b is within its share of 2, but has no quota.
    young = [active(f"a{n}", project="a", ran=60) for n in range(2)]
    jobs = (*young, *many(2, "b", project="b"), waiting("w", project="c"))
    owners = (project("a", 1, over_quota=0, min_runtime=3600), project("b", 0))
    decided = plan(a_snapshot(*jobs, policy=a_policy(4, [*owners, project("c", 2)])))
    assert evicted_by(decided) == {"b1": ("w", "reclaim")}
    # Without a quota of its own it takes nothing from whom is within its share.
    assert not evicted_by(plan(a_snapshot(*jobs, policy=a_policy(4, [*owners, project("c", 0)]))))


@pytest.mark.parametrize(
    ("leaves", "stays"),
    [
        pytest.param(active("z", project="b", ran=99), active("a", priority=2, project="a"), id="lowest priority"),
        pytest.param(active("z", project="b", ran=60), active("a", project="a", ran=61), id="least work lost"),
        pytest.param(active("a", project="b"), active("z", project="a"), id="name"),
    ],
)
def test_equally_far_above_their_next_victims_decide(leaves: ActiveJob, stays: ActiveJob) -> None:
    policy = a_policy(4, [project("a", 1), project("b", 1), project("c", 2)])
    others = (active("oa", project="a", priority=9), active("ob", project="b", priority=9))
    decided = plan(a_snapshot(leaves, stays, *others, waiting("c", project="c"), policy=policy))
    assert evicted_by(decided) == {leaves.name: ("c", "reclaim")}


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(active("it", project="a", preemptible=False), id="not preemptible"),
        pytest.param(active("it", project="a", ran=599), id="guaranteed runtime"),
    ],
)
def test_who_is_never_reclaimed(spared: ActiveJob) -> None:
    policy = a_policy(1, [project("a", 0), project("b", 1)], min_runtime=600)
    assert not evicted_by(plan(a_snapshot(spared, waiting("w", project="b"), policy=policy)))
    other = active("it", project="a", ran=600)
    assert evicted_by(plan(a_snapshot(other, waiting("w", project="b"), policy=policy))) == {"it": ("w", "reclaim")}


def test_the_pools_guarantee_comes_after_the_projects_and_before_the_setting() -> None:
    policy = a_policy(1, [project("a", 0), project("b", 1)], min_runtime=600)
    pool = policy.pools[0]
    for of_pool, of_project, leaves in ((None, None, False), (100, None, True), (100, 900, False), (900, 100, True)):
        changed = Policy(
            pools=(type(pool)(pool.name, 1, min_runtime=of_pool),),
            projects=(project("a", 0, min_runtime=of_project), project("b", 1)),
            settings=policy.settings,
        )
        decided = plan(a_snapshot(active("it", ran=300), waiting("w", project="b"), policy=changed))
        assert bool(decided.evictions) is leaves


def test_what_is_being_launched_is_reclaimed_once_it_runs() -> None:
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    snapshot = a_snapshot(
        starting("a0", project="a"), starting("a1", project="a"), waiting("w", project="b"), policy=policy
    )
    assert not evicted_by(plan(snapshot))
    run = ScenarioRun(snapshot)
    run.apply(plan(snapshot))
    assert evicted_by(plan(run.snapshot)) == {"a1": ("w", "reclaim")} or len(plan(run.snapshot).evictions) == 1


# --- departments ---------------------------------------------------------------------------------------------------


def two_departments(**settings: Any) -> Policy:
    projects = [project("a", 1, department="x"), project("b", 1, department="x"), project("c", 2, department="y")]
    return a_policy(4, projects, [department("x", 2), department("y", 2)], **settings)


def test_a_projects_quota_is_protected() -> None:
    jobs = (active("a0", project="a", ran=1), *many(2, "b", project="b"), active("c0", project="c"))
    assert evicted_by(plan(a_snapshot(*jobs, waiting("c1", project="c"), policy=two_departments()))) == {
        "b1": ("c1", "reclaim")
    }
    # b's job over quota cannot be stopped, so without protection a loses its quota ...
    fixed = (active("a0", project="a"), active("b0", 2, project="b", preemptible=False), active("c0", project="c"))
    unprotected = two_departments(protect_project_quota=False)
    assert evicted_by(plan(a_snapshot(*fixed, waiting("c1", project="c"), policy=unprotected))) == {
        "a0": ("c1", "reclaim")
    }
    # ... and with it nobody gives.
    assert not evicted_by(plan(a_snapshot(*fixed, waiting("c1", project="c"), policy=two_departments())))


def test_departments_are_compared_where_they_differ() -> None:
    # b is above its project's share, but its department is within its own: c gets nothing from it.
    projects = [project("a", 2, department="x"), project("b", 0, over_quota=0, department="x"), project("c", 2)]
    policy = a_policy(4, projects, [department("x", 2)])
    jobs = (*many(2, "b", project="b"), *many(2, "c", project="c"))
    assert not evicted_by(plan(a_snapshot(*jobs, waiting("c9", project="c"), policy=policy)))
    # Inside the department projects are compared.
    assert evicted_by(plan(a_snapshot(*jobs, waiting("a", project="a"), policy=policy))) == {"b1": ("a", "reclaim")}


def test_the_claimants_department_must_stay_within_its_share() -> None:
    # a is below its share, but x is at its own, and what is above there may not be stopped.
    jobs = (active("b0", 2, project="b", preemptible=False), *many(2, "c", project="c"))
    assert not evicted_by(plan(a_snapshot(*jobs, waiting("a0", project="a"), policy=two_departments())))


def test_from_the_own_department_as_much_as_it_needs_and_the_rest_from_others() -> None:
    projects = [project("a", 4, department="x"), project("b", 0, department="x"), project("c", 0)]
    policy = a_policy(4, projects, [department("x", 4)])
    jobs = (*many(2, "b", project="b"), *many(2, "c", project="c"), waiting("a", 4, project="a"))
    assert set(evicted_by(plan(a_snapshot(*jobs, policy=policy)))) == {"b0", "b1", "c0", "c1"}


def test_who_takes_for_its_quota_stays_within_it_when_victims_are_given_back() -> None:
    # c's department is within its share of 2, but above its quota of 1. Only once b has left, x stays within its quota
    # of 2; so b is not given back, though c frees a slot more than is lacking and x is due 3.
    projects = [project("a", 2, department="x"), project("b", over_quota=0, department="x")]
    projects += [project("c", department="y"), project("z", over_quota=0)]
    policy = a_policy(7, projects, [department("x", 2), department("y", 1)])
    jobs = (active("b0", project="b", priority=5), active("c0", 2, project="c"))
    busy = active("z0", 4, project="z", preemptible=False)
    decided = plan(a_snapshot(*jobs, busy, waiting("w", 2, project="a"), policy=policy))
    assert evicted_by(decided) == {"b0": ("w", "reclaim"), "c0": ("w", "reclaim")}


@pytest.mark.parametrize(("quota", "leaves"), [pytest.param(1, False, id="within its quota in p4"), (0, True)])
def test_a_victim_must_be_fair_game_in_each_pool_that_is_lacking(quota: int, leaves: bool) -> None:
    # b is above its share of p5. Could it lose its p4 with that, it would reclaim it: the two would stop each other.
    projects = [project("a", {"p5": 1, "p4": 1}), project("b", {"p4": quota}, over_quota=0), project("z", over_quota=0)]
    policy = a_policy({"p5": 1, "p4": 2}, projects)
    jobs = (active("b0", {"p5": 1, "p4": 1}, project="b"), active("z0", {"p4": 1}, project="z", preemptible=False))
    decided = plan(a_snapshot(*jobs, waiting("w", {"p5": 1, "p4": 1}, project="a"), policy=policy))
    assert evicted_by(decided) == ({"b0": ("w", "reclaim")} if leaves else {})


# --- preempt and reclaim together ----------------------------------------------------------------------------------


def test_own_lower_priorities_until_it_is_within_its_share_the_rest_by_reclaim() -> None:
    policy = a_policy(6, [project("a", 3), project("b", 3)])
    jobs = (*many(2, "low", project="a"), *many(4, "b", project="b", priority=9))
    decided = plan(a_snapshot(*jobs, waiting("high", 3, priority=5), policy=policy))
    own = {"low0": ("high", "preempt"), "low1": ("high", "preempt")}
    assert evicted_by(decided) == {**own, "b3": ("high", "reclaim")}


def test_where_preempting_suffices_nobody_is_reclaimed_from() -> None:
    policy = a_policy(6, [project("a", 3), project("b", 3)])
    jobs = (*many(2, "low", project="a"), *many(4, "b", project="b"))
    assert set(evicted_by(plan(a_snapshot(*jobs, waiting("high", 1, priority=5), policy=policy)))) == {"b3"}
    jobs = (*many(3, "low", project="a"), *many(3, "b", project="b"))
    decided = plan(a_snapshot(*jobs, waiting("high", 2, priority=5), policy=policy))
    assert evicted_by(decided) == {"low2": ("high", "preempt"), "low1": ("high", "preempt")}


def test_preempting_may_go_beyond_the_share() -> None:
    policy = a_policy(3, [project("a", 1, over_quota=0), project("b", 2)])
    assert evicted_by(plan(a_snapshot(active("low", 3), waiting("high", 3, priority=5), policy=policy))) == {
        "low": ("high", "preempt")
    }


# --- surplus -------------------------------------------------------------------------------------------------------


def test_what_victims_free_beyond_the_need_goes_to_who_stays_within_its_share() -> None:
    policy = a_policy(4, [project("a", 1, over_quota=0), project("b", 2, over_quota=0), project("c", 1, over_quota=0)])
    jobs = (active("gang", 4, project="a"), waiting("b0", 2, project="b"), waiting("c0", project="c"))
    decided = plan(a_snapshot(*jobs, waiting("c1", project="c"), policy=policy))
    assert evicted_by(decided) == {"gang": ("c0", "reclaim")}
    assert decided.reservations == {"b0": {"p5": 2}, "c0": {"p5": 1}}  # c1 would be above its share
