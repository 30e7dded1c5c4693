"""Sections 2 to 6 among several projects, rule by rule, each with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler.decisions import Evict, Plan, Reason, Rule
from job_queue.scheduler.model import ActiveJob, Policy, Project, Slots, Snapshot, WaitingJob
from job_queue.scheduler.planner import plan
from job_queue.scheduler.queues import Queue, deprivation
from job_queue.scheduler.simulation import Run
from tests.builders import NOW, a_policy, a_snapshot, active, department, project, starting, stopping, waiting


def started(decided: Plan) -> dict[str, Slots]:
    return {start.job: start.slots for start in decided.starts}


def evicted(decided: Plan) -> dict[str, tuple[str, str]]:
    return {eviction.job: (eviction.claimant, eviction.rule.value) for eviction in decided.evictions}


def reasons(decided: Plan) -> dict[str, Reason]:
    return {hold.job: hold.reason for hold in decided.holds}


def many(count: int, prefix: str, **fields: Any) -> list[ActiveJob]:
    """One-slot jobs; the later ones have lost less work, so they leave first."""
    return [active(f"{prefix}{n}", ran=10_000 - n, **fields) for n in range(count)]


def line(count: int, prefix: str, **fields: Any) -> list[WaitingJob]:
    return [waiting(f"{prefix}{n}", waited=100 - n, **fields) for n in range(count)]


def final(snapshot: Snapshot) -> set[str]:
    """Who runs in the stable state."""
    run = Run(snapshot)
    for _ in range(50):
        if not run.apply(plan(run.snapshot)):
            return {job.name for job in run.snapshot.active}
    raise AssertionError("not stable")


# --- 2. order of projects -------------------------------------------------------------------------------


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
    def queue(name: str, place: int, quota: int, due: int) -> Queue:
        return Queue(name, place, None, {"p5": quota}, {}, {"p5": due})

    within, beyond = queue("a", 1, quota=1, due=1), queue("b", 0, quota=0, due=9)
    assert deprivation(within, {"p5": 1}) < deprivation(beyond, {"p5": 1})
    assert deprivation(within, {"p5": 2}) > deprivation(beyond, {"p5": 2})


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


# --- 2. aging -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waited", "first"), [(999, "new"), (1000, "old")])
def test_aging_raises_a_place_by_one_priority_per_interval(waited: float, first: str) -> None:
    jobs = (waiting("old", priority=1, waited=waited), waiting("new", priority=2, waited=0))
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000, min_runtime=60))))) == [first]
    # Without a guaranteed runtime the higher priority would preempt it at once, so it is not even started.
    assert list(started(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000))))) == ["new"]


def test_aging_does_not_help_to_preempt() -> None:
    jobs = (active("r", priority=2), waiting("old", priority=1, waited=99_000))
    assert not evicted(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000))))


def test_who_was_raised_by_aging_does_not_hide_a_higher_priority_of_the_same_demand() -> None:
    jobs = (active("r", priority=2), waiting("old", priority=1, waited=9000), waiting("new", priority=3, waited=0))
    assert evicted(plan(a_snapshot(*jobs, policy=a_policy(1, aging=1000)))) == {"r": ("new", "preempt")}


# --- 2. the two passes ----------------------------------------------------------------------------------


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
    assert evicted(plan(a_snapshot(*jobs, waiting("wb", project="b"), policy=policy))) == {"low": ("high", "preempt")}


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
    assert evicted(decided) == {"low": ("top", "preempt")}


def test_an_alternative_within_the_share_comes_before_one_beyond_it() -> None:
    policy = a_policy({"p5": 2, "p4": 2}, [Project("a", quota={"p4": 2}, over_quota=0), Project("b", quota={"p5": 2})])
    assert started(plan(a_snapshot(waiting("job", {"p5": 1}, {"p4": 1}), policy=policy))) == {"job": {"p4": 1}}
    # ... and the one beyond it is taken where the other is not to be had.
    jobs = (*many(1, "r", slots={"p4": 2}), waiting("job", {"p5": 1}, {"p4": 1}))
    assert started(plan(a_snapshot(*jobs, policy=policy))) == {"job": {"p5": 1}}


# --- 3. who may start -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        pytest.param(a_policy(4, [project("a", 1, limit=2)]), True, id="within the project's limit"),
        pytest.param(a_policy(4, [project("a", 1, limit=1)]), False, id="over the project's limit"),
        pytest.param(
            a_policy(4, [project("a", 1, department="x")], [department("x", 1, 2)]), True, id="within the department's"
        ),
        pytest.param(
            a_policy(4, [project("a", 1, department="x")], [department("x", 1, 1)]), False, id="over the department's"
        ),
    ],
)
def test_limits(policy: Policy, starts: bool) -> None:
    decided = plan(a_snapshot(active("r"), waiting("w"), policy=policy))
    assert bool(decided.starts) is starts
    if not starts:
        assert reasons(decided) == {"w": Reason.OVER_LIMIT}


def test_stopping_slots_count_until_they_are_gone() -> None:
    policy = a_policy(4, [project("a", 1, limit=1)])
    snapshot = a_snapshot(stopping("s"), waiting("w"), policy=policy)
    decided = plan(snapshot)
    assert (started(decided), reasons(decided)) == ({}, {"w": Reason.WAITING_FOR_STOPPING})
    assert final(snapshot) == {"w"}


def test_to_get_under_its_limit_a_project_preempts_though_slots_are_free() -> None:
    policy = a_policy(4, [project("a", 1, limit=1)])
    assert evicted(plan(a_snapshot(active("low"), waiting("high", priority=9), policy=policy))) == {
        "low": ("high", "preempt")
    }
    assert not evicted(plan(a_snapshot(active("low"), waiting("equal"), policy=policy)))


def test_to_get_under_a_departments_limit_victims_come_from_it() -> None:
    projects = [project("a", 1, over_quota=0, department="x"), project("b", 1, department="x"), project("c", 0)]
    policy = a_policy(6, projects, [department("x", 2, limit=2)])
    jobs = (*many(2, "a", project="a"), *many(3, "c", project="c"), waiting("wb", project="b"))
    assert evicted(plan(a_snapshot(*jobs, policy=policy))) == {"a1": ("wb", "reclaim")}


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        (a_policy(4, [project("a", 2), project("b", 2)]), True),
        (a_policy(4, [project("a", 1), project("b", 2)]), False),
        (a_policy(4, [project("a", 2, department="x"), project("b", 2)], [department("x", 1)]), False),
    ],
)
def test_jobs_that_are_not_preemptible_use_quota_only(policy: Policy, starts: bool) -> None:
    decided = plan(a_snapshot(active("r", preemptible=False), waiting("w", preemptible=False), policy=policy))
    assert bool(decided.starts) is starts
    if not starts:
        assert reasons(decided) == {"w": Reason.OVER_QUOTA_NON_PREEMPTIBLE}


def test_preemptible_jobs_of_the_project_do_not_count_as_fixed() -> None:
    policy = a_policy(4, [project("a", 1), project("b", 2)])
    assert list(started(plan(a_snapshot(active("r"), waiting("w", preemptible=False), policy=policy)))) == ["w"]


def test_two_jobs_that_are_not_preemptible_do_not_share_one_slot_of_quota() -> None:
    policy = a_policy(4, [project("a", 1), project("b", 2)])
    decided = plan(a_snapshot(*line(2, "w", preemptible=False), policy=policy))
    assert list(started(decided)) == ["w0"]


# --- 4. reclaim -----------------------------------------------------------------------------------------


def test_reclaim_takes_what_is_above_the_share_and_no_more() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    jobs = (*many(4, "a", project="a"), *line(4, "b", project="b"))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert decided.evictions == (Evict("a3", "b0", Rule.RECLAIM), Evict("a2", "b1", Rule.RECLAIM))


def test_who_would_be_above_its_share_reclaims_nothing() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    jobs = (*many(3, "a", project="a"), *many(1, "b", project="b"))
    assert evicted(plan(a_snapshot(*jobs, waiting("w", 2, project="b"), policy=policy))) == {}
    assert evicted(plan(a_snapshot(*jobs, waiting("w", 1, project="b"), policy=policy))) == {"a2": ("w", "reclaim")}


def test_a_project_may_lose_more_than_the_excess_when_its_job_is_a_gang() -> None:
    policy = a_policy(4, [project("a", 2), project("b", 2)])
    assert evicted(plan(a_snapshot(active("a", 3), waiting("b", 2, project="b"), policy=policy))) == {
        "a": ("b", "reclaim")
    }


def test_each_victim_is_taken_only_while_its_side_is_above_its_share() -> None:
    # a is one over: the gang of two is taken, then nobody, though two more slots are lacking.
    policy = a_policy(6, [project("a", 2), project("b", 4, over_quota=0)])
    jobs = (active("a1", 2, priority=2), active("a2", 1, priority=1), active("b0", 2, project="b", preemptible=False))
    assert evicted(plan(a_snapshot(*jobs, waiting("b", 2, project="b"), policy=policy))) == {"a2": ("b", "reclaim")}


def test_priority_does_not_matter_between_projects() -> None:
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    jobs = many(2, "a", project="a", priority=99)
    assert evicted(plan(a_snapshot(*jobs, waiting("b", priority=1, project="b"), policy=policy))) == {
        "a1": ("b", "reclaim")
    }


def test_under_its_quota_it_takes_from_whom_is_above_quota_though_within_its_share() -> None:
    # More quota than slots: shares are scaled to 2, 1 and 1, so b would be above its share but not above its quota.
    projects = [project("a", 2), project("b", 2), project("c", 0)]
    jobs = (*many(2, "a", project="a"), active("b0", project="b"), active("c0", project="c"))
    policy = a_policy(4, [*projects[:2], project("c", 0)])
    decided = plan(a_snapshot(*jobs, waiting("w", project="b"), policy=policy))
    assert evicted(decided) == {"c0": ("w", "reclaim")}


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
    assert evicted(decided) == {"b1": ("w", "reclaim")}
    # Without a quota of its own it takes nothing from whom is within its share.
    assert not evicted(plan(a_snapshot(*jobs, policy=a_policy(4, [*owners, project("c", 0)]))))


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
    assert evicted(decided) == {leaves.name: ("c", "reclaim")}


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(active("it", project="a", preemptible=False), id="not preemptible"),
        pytest.param(active("it", project="a", ran=599), id="guaranteed runtime"),
    ],
)
def test_who_is_never_reclaimed(spared: ActiveJob) -> None:
    policy = a_policy(1, [project("a", 0), project("b", 1)], min_runtime=600)
    assert not evicted(plan(a_snapshot(spared, waiting("w", project="b"), policy=policy)))
    other = active("it", project="a", ran=600)
    assert evicted(plan(a_snapshot(other, waiting("w", project="b"), policy=policy))) == {"it": ("w", "reclaim")}


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
    assert not evicted(plan(snapshot))
    run = Run(snapshot)
    run.apply(plan(snapshot))
    assert evicted(plan(run.snapshot)) == {"a1": ("w", "reclaim")} or len(plan(run.snapshot).evictions) == 1


# --- 4. reclaim and departments ---------------------------------------------------------------------------


def two_departments(**settings: Any) -> Policy:
    projects = [project("a", 1, department="x"), project("b", 1, department="x"), project("c", 2, department="y")]
    return a_policy(4, projects, [department("x", 2), department("y", 2)], **settings)


def test_a_projects_quota_is_protected() -> None:
    jobs = (active("a0", project="a", ran=1), *many(2, "b", project="b"), active("c0", project="c"))
    assert evicted(plan(a_snapshot(*jobs, waiting("c1", project="c"), policy=two_departments()))) == {
        "b1": ("c1", "reclaim")
    }
    # b's job over quota cannot be stopped, so without protection a loses its quota ...
    fixed = (active("a0", project="a"), active("b0", 2, project="b", preemptible=False), active("c0", project="c"))
    unprotected = two_departments(protect_project_quota=False)
    assert evicted(plan(a_snapshot(*fixed, waiting("c1", project="c"), policy=unprotected))) == {
        "a0": ("c1", "reclaim")
    }
    # ... and with it nobody gives.
    assert not evicted(plan(a_snapshot(*fixed, waiting("c1", project="c"), policy=two_departments())))


def test_departments_are_compared_where_they_differ() -> None:
    # b is above its project's share, but its department is within its own: c gets nothing from it.
    projects = [project("a", 2, department="x"), project("b", 0, over_quota=0, department="x"), project("c", 2)]
    policy = a_policy(4, projects, [department("x", 2)])
    jobs = (*many(2, "b", project="b"), *many(2, "c", project="c"))
    assert not evicted(plan(a_snapshot(*jobs, waiting("c9", project="c"), policy=policy)))
    # Inside the department projects are compared.
    assert evicted(plan(a_snapshot(*jobs, waiting("a", project="a"), policy=policy))) == {"b1": ("a", "reclaim")}


def test_the_claimants_department_must_stay_within_its_share() -> None:
    # a is below its share, but x is at its own, and what is above there may not be stopped.
    jobs = (active("b0", 2, project="b", preemptible=False), *many(2, "c", project="c"))
    assert not evicted(plan(a_snapshot(*jobs, waiting("a0", project="a"), policy=two_departments())))


def test_from_the_own_department_as_much_as_it_needs_and_the_rest_from_others() -> None:
    projects = [project("a", 4, department="x"), project("b", 0, department="x"), project("c", 0)]
    policy = a_policy(4, projects, [department("x", 4)])
    jobs = (*many(2, "b", project="b"), *many(2, "c", project="c"), waiting("a", 4, project="a"))
    assert set(evicted(plan(a_snapshot(*jobs, policy=policy)))) == {"b0", "b1", "c0", "c1"}


# --- 4. preempt and reclaim together ------------------------------------------------------------------------


def test_own_lower_priorities_until_it_is_within_its_share_the_rest_by_reclaim() -> None:
    policy = a_policy(6, [project("a", 3), project("b", 3)])
    jobs = (*many(2, "low", project="a"), *many(4, "b", project="b", priority=9))
    decided = plan(a_snapshot(*jobs, waiting("high", 3, priority=5), policy=policy))
    own = {"low0": ("high", "preempt"), "low1": ("high", "preempt")}
    assert evicted(decided) == {**own, "b3": ("high", "reclaim")}


def test_where_preempting_suffices_nobody_is_reclaimed_from() -> None:
    policy = a_policy(6, [project("a", 3), project("b", 3)])
    jobs = (*many(2, "low", project="a"), *many(4, "b", project="b"))
    assert set(evicted(plan(a_snapshot(*jobs, waiting("high", 1, priority=5), policy=policy)))) == {"b3"}
    jobs = (*many(3, "low", project="a"), *many(3, "b", project="b"))
    decided = plan(a_snapshot(*jobs, waiting("high", 2, priority=5), policy=policy))
    assert evicted(decided) == {"low2": ("high", "preempt"), "low1": ("high", "preempt")}


def test_preempting_may_go_beyond_the_share() -> None:
    policy = a_policy(3, [project("a", 1, over_quota=0), project("b", 2)])
    assert evicted(plan(a_snapshot(active("low", 3), waiting("high", 3, priority=5), policy=policy))) == {
        "low": ("high", "preempt")
    }


# --- 4. consolidate -----------------------------------------------------------------------------------------

POOLS = {"p5": 1, "p4": 1}


def movable(**fields: Any) -> ActiveJob:
    return active("easy", {"p5": 1}, **{"demand": ({"p5": 1}, {"p4": 1}), **fields})


def test_a_mover_gets_its_new_place_and_nobody_takes_it_over() -> None:
    policy = a_policy(POOLS, [Project("a", quota=POOLS)])
    jobs = (movable(), waiting("picky"), waiting("other", {"p4": 1}, priority=0))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert evicted(decided) == {"easy": ("picky", "consolidate")}
    assert decided.reservations == {"easy": {"p4": 1}, "picky": {"p5": 1}}
    assert not decided.starts
    run = Run(a_snapshot(*jobs, policy=policy))
    run.apply(decided)
    urgent = waiting("urgent", {"p4": 1}, priority=9)
    snapshot = Snapshot(policy, NOW, run.snapshot.active, (*run.snapshot.waiting, urgent), {}, run.snapshot.reserved)
    assert plan(snapshot).reservations == {"easy": {"p4": 1}, "picky": {"p5": 1}}


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param((movable(preemptible=False), waiting("picky")), id="not preemptible"),
        pytest.param((movable(demand=()), waiting("picky")), id="accepts no other pool"),
        pytest.param(
            (movable(demand=({"p5": 1}, {"p4": 2})), waiting("picky")), id="no free place that is large enough"
        ),
        pytest.param((movable(), active("busy", {"p4": 1}), waiting("picky")), id="no free place"),
        pytest.param((movable(ran=10), waiting("picky")), id="guaranteed runtime"),
        pytest.param((movable(project="b"), waiting("picky")), id="the mover would be above its share there"),
        pytest.param((movable(), waiting("picky", project="b")), id="the claimant would be above its share"),
    ],
)
def test_who_does_not_move(snapshot: tuple[Any, ...]) -> None:
    policy = a_policy(POOLS, [Project("a", quota=POOLS), Project("b", quota={}, over_quota=0)], min_runtime=60)
    assert Rule.CONSOLIDATE not in {it.rule for it in plan(a_snapshot(*snapshot, policy=policy)).evictions}


def test_moving_is_gentler_than_reclaiming_and_preempting() -> None:
    policy = a_policy({"p5": 2, "p4": 1}, [Project("a", quota={"p5": 2, "p4": 1})])
    jobs = (movable(priority=8), active("low", priority=1), waiting("picky", priority=9))
    assert evicted(plan(a_snapshot(*jobs, policy=policy))) == {"easy": ("picky", "consolidate")}


def test_two_movers_do_not_take_the_same_place() -> None:
    policy = a_policy({"p5": 2, "p4": 1}, [Project("a", quota={"p5": 2, "p4": 1})])
    both = [active(f"m{n}", demand=({"p5": 1}, {"p4": 1})) for n in range(2)]
    assert not evicted(plan(a_snapshot(*both, waiting("picky", 2), policy=policy)))
    two = {"p5": 2, "p4": 2}
    policy = a_policy(two, [Project("a", quota=two), project("b")])
    busy = active("busy", {"p4": 1}, project="b", preemptible=False)
    assert not evicted(plan(a_snapshot(*both, busy, waiting("picky", 2), policy=policy)))
    assert len(evicted(plan(a_snapshot(*both, waiting("picky", 2), policy=policy)))) == 2


# --- 4. surplus -----------------------------------------------------------------------------------------------


def test_what_victims_free_beyond_the_need_goes_to_who_stays_within_its_share() -> None:
    policy = a_policy(4, [project("a", 1, over_quota=0), project("b", 2, over_quota=0), project("c", 1, over_quota=0)])
    jobs = (active("gang", 4, project="a"), waiting("b0", 2, project="b"), waiting("c0", project="c"))
    decided = plan(a_snapshot(*jobs, waiting("c1", project="c"), policy=policy))
    assert evicted(decided) == {"gang": ("c0", "reclaim")}
    assert decided.reservations == {"b0": {"p5": 2}, "c0": {"p5": 1}}  # c1 would be above its share


# --- 5. patience ------------------------------------------------------------------------------------------------


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
    policy = a_policy(4, [project("a", 4), project("b", 0)])
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert not decided.starts
    assert reasons(decided)["small"] is Reason.KEPT_FOR_PATIENT_JOB
    assert "kept for gang (priority 5), which has waited 1 h 0 min." in decided.holds[-1].message


def test_no_more_is_kept_than_the_share_allows() -> None:
    # a holds 3 of its 4: one of the two free slots is kept, the other is for anyone.
    policy = a_policy(5, [project("a", 4, over_quota=0), project("b", 0, over_quota=0)])
    held = (active("soon", 2, priority=9, max_runtime=7200.0), active("late", 1, priority=9, max_runtime=864_000.0))
    behind = line(2, "small", project="b")
    assert list(started(plan(a_snapshot(*held, patient_gang(), *behind, policy=policy)))) == ["small0"]


def test_nothing_is_kept_for_a_demand_beyond_its_share() -> None:
    # Two slots are free, and a holds one of its 3; the gang wants 4.
    policy = a_policy(5, [project("a", 3, over_quota=0), project("b", 2)])
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
    assert evicted(decided) == {"over": ("w", "reclaim")} or list(started(decided)) == ["w"]


def test_a_patient_job_uses_the_slots_kept_for_it() -> None:
    policy = a_policy(4, [project("a", 4), project("b", 0)])
    assert list(started(plan(a_snapshot(patient_gang(), small(project="b"), policy=policy)))) == ["gang"]


# --- 6. reasons --------------------------------------------------------------------------------------------------


def reason_of(decided: Plan, name: str) -> tuple[Reason, str]:
    return next((hold.reason, hold.message) for hold in decided.holds if hold.job == name)


def test_behind_fair_share() -> None:
    policy = a_policy(3, [project("a", 1), project("b", 2)])
    jobs = (*many(1, "a", project="a"), *many(2, "b", project="b"))
    decided = plan(a_snapshot(*jobs, waiting("w", project="a"), policy=policy))
    assert reason_of(decided, "w") == (
        Reason.BEHIND_FAIR_SHARE,
        "Project a holds 1 instance of p5 and is due 1 (quota 1), so nobody has to give way to it; "
        "b holds 2 and is due 2. It needs 1 instance of p5; 0 of 3 are free, 3 are used by "
        "a0 (priority 1), b0 (priority 1) and b1 (priority 1).",
    )


def test_at_its_share_alone_it_waits_for_capacity() -> None:
    decided = plan(a_snapshot(*many(2, "a"), waiting("w"), policy=a_policy(2)))
    assert reasons(decided) == {"w": Reason.WAITING_FOR_CAPACITY}


def test_behind_fair_share_comes_before_behind_a_higher_priority() -> None:
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    jobs = (*many(1, "a", project="a"), *many(1, "b", project="b"), *line(2, "w", project="a"))
    assert set(reasons(plan(a_snapshot(*jobs, policy=policy))).values()) == {Reason.BEHIND_FAIR_SHARE}


def test_over_its_limit() -> None:
    policy = a_policy(4, [project("a", 1, limit=2)])
    decided = plan(a_snapshot(*many(2, "a"), waiting("w"), policy=policy))
    assert reason_of(decided, "w") == (
        Reason.OVER_LIMIT,
        "Needs 1 instance of p5; project a holds 2 instances of p5 and may never hold more than 2, which is its limit.",
    )


def test_over_its_departments_quota() -> None:
    policy = a_policy(4, [project("a", 2, department="x")], [department("x", 1)])
    decided = plan(a_snapshot(active("r", preemptible=False), waiting("w", preemptible=False), policy=policy))
    assert reason_of(decided, "w") == (
        Reason.OVER_QUOTA_NON_PREEMPTIBLE,
        "Needs 1 instance of p5 and is not preemptible, so it may use nothing but quota; department x has a quota of "
        "1 instance of p5, and jobs that are not preemptible hold 1 of it.",
    )


def test_over_the_limit_only_if_every_alternative_is() -> None:
    pools = {"p5": 2, "p4": 1}
    policy = a_policy(pools, [Project("a", quota=pools, limit={"p5": 1})])
    jobs = (active("x"), active("y", {"p4": 1}), waiting("w", {"p5": 1}, {"p4": 1}))
    assert reasons(plan(a_snapshot(*jobs, policy=policy))) == {"w": Reason.WAITING_FOR_CAPACITY}


def test_a_project_that_is_no_longer_there() -> None:
    policy = a_policy(2, [project("b", 2)])
    decided = plan(
        a_snapshot(active("r", 2, project="a"), waiting("w", project="a"), waiting("v", project="b"), policy=policy)
    )
    assert reasons(decided)["w"] is Reason.NO_SUCH_POOL
    assert evicted(decided) == {"r": ("v", "reclaim")}


def test_holds_stand_in_the_order_in_which_jobs_would_be_served() -> None:
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    jobs = (
        *many(1, "a", project="a"),
        *many(1, "b", project="b"),
        *line(2, "wa", project="a"),
        *line(2, "wb", project="b"),
    )
    decided = plan(a_snapshot(*jobs, waiting("held", held=True, waited=99, project="a"), policy=policy))
    assert [hold.job for hold in decided.holds] == ["wa0", "wb0", "held", "wa1", "wb1"]
    assert [hold.ahead for hold in decided.holds][-1] == ("wa0", "wb0", "wa1")
    assert decided.holds[0].blockers == ("a0", "b0")
