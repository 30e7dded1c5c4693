"""Two policies on the same jobs: what one cycle decides otherwise, and who then waits longer, worked out by hand."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    ActiveJob,
    Budget,
    Evict,
    JobState,
    PastUse,
    Policy,
    Pool,
    Project,
    Rule,
    Settings,
    Snapshot,
    Start,
    WaitingJob,
    WaitReason,
    plan,
)
from job_queue.simulation.forecast_input import ForecastInput
from job_queue.simulation.what_if.comparison import PolicyComparison, compare
from job_queue.simulation.what_if.futures import MOST_PAIRED_FUTURES, PairedFutures
from job_queue.simulation.workload import Overheads, SimulatedJob

NOW = 1_000_000.0
HOUR = 3600.0
OVERHEADS = Overheads(provisioning=0, stopping=60, checkpoint_every=None)


def a_policy(capacity: int = 1, *projects: Project, **more: float | None) -> Policy:
    shared = projects or (Project("all", quota={"p5": capacity}),)
    return Policy((Pool("p5", capacity),), shared, settings=Settings(**more))  # type: ignore[arg-type]


def runs(name: str, project: str = "all", priority: int = 1, slots: int = 1, since: float = 0) -> ActiveJob:
    return ActiveJob(name, project, priority, {"p5": slots}, JobState.RUNNING, NOW - since, NOW - since)


def waits(name: str, project: str = "all", priority: int = 1, slots: int = 1, since: float = 0) -> WaitingJob:
    return WaitingJob(name, project, priority, ({"p5": slots},), NOW - since)


def compared(
    before: Policy,
    after: Policy,
    *jobs: ActiveJob | WaitingJob,
    runtimes: dict[str, float] | None = None,
    horizon: float = 8 * HOUR,
    may_go_on: Callable[[], bool] = lambda: True,
    inputs: ForecastInput | None = None,
    past_use: Mapping[str, PastUse] | None = None,
) -> PolicyComparison:
    snapshot = Snapshot(
        before,
        NOW,
        tuple(job for job in jobs if isinstance(job, ActiveJob)),
        tuple(job for job in jobs if isinstance(job, WaitingJob)),
        past_use=past_use or {},
    )
    likely = {name: (seconds,) for name, seconds in (runtimes or {}).items()}
    one = replace(inputs or ForecastInput(snapshot, likely, overheads=OVERHEADS), snapshot=snapshot)
    return compare(one, replace(one, snapshot=replace(snapshot, policy=after)), horizon, may_go_on)


def changes(found: PolicyComparison) -> dict[str, tuple[float, float]]:
    """Of each job that waits otherwise: hours from now, before and after."""
    return {it.job: ((it.before - NOW) / HOUR, (it.after - NOW) / HOUR) for it in found.waits}


def test_more_instances_let_jobs_start_now_and_others_sooner() -> None:
    jobs = runs("a"), waits("b", since=20), waits("c", since=10)
    found = compared(a_policy(1), a_policy(2), *jobs, runtimes={"a": 2 * HOUR, "b": 1 * HOUR, "c": 1 * HOUR})
    assert found.starts == (Start("b", {"p5": 1}),)
    assert not (found.evictions or found.unstartable or found.kept_waiting)
    assert changes(found) == {"c": (3, 1)}  # b is among those that start now
    assert (found.waiting, found.known, found.futures) == (2, 2, MOST_PAIRED_FUTURES)


def test_fewer_instances_stop_nobody_and_let_others_wait_longer() -> None:
    jobs = runs("a"), runs("b"), waits("c")
    found = compared(a_policy(2), a_policy(1), *jobs, runtimes={"a": 1 * HOUR, "b": 3 * HOUR, "c": 1 * HOUR})
    assert not (found.starts or found.evictions)
    assert changes(found) == {"c": (1, 3)}


def test_another_quota_makes_a_job_leave_for_another_projects() -> None:
    mine, theirs = Project("mine", quota={"p5": 0}), Project("theirs", quota={"p5": 2})
    swapped = replace(mine, quota={"p5": 2}), replace(theirs, quota={"p5": 0})
    jobs = runs("old", "theirs"), runs("new", "theirs"), waits("claim", "mine", slots=2)
    found = compared(a_policy(2, mine, theirs), a_policy(2, *swapped), *jobs)
    assert {(it.job, it.claimant, it.rule) for it in found.evictions} == {
        ("old", "claim", Rule.RECLAIM),
        ("new", "claim", Rule.RECLAIM),
    }
    assert found.starts == ()  # only once they have stopped
    figures = {it.project: (it.used_before, it.used_after) for it in found.projects}
    assert figures == {"mine": ({}, {"p5": 2}), "theirs": ({"p5": 2}, {})}


def test_who_could_start_and_can_no_more_is_named_with_the_reason() -> None:
    limited = Project("all", quota={"p5": 1}, limit={"p5": 2})
    jobs = runs("a", slots=4), waits("gang", slots=3), waits("another", slots=3), waits("giant", slots=9), waits("b")
    found = compared(a_policy(4), a_policy(4, limited), *jobs)
    assert [(it.job, it.reason) for it in found.unstartable] == [
        ("gang", WaitReason.OVER_LIMIT),
        ("another", WaitReason.OVER_LIMIT),
    ]
    assert "2" in found.unstartable[0].message
    smaller = compared(a_policy(4), a_policy(2), *jobs)
    assert {(it.job, it.reason) for it in smaller.unstartable} == {
        ("gang", WaitReason.NEVER_FITS),
        ("another", WaitReason.NEVER_FITS),
    }


def test_jobs_that_cannot_start_are_found_whatever_delays_them() -> None:
    now = replace(waits("now"), preemptible=False)
    later = replace(now, name="later", not_before=NOW + 9999)
    found = compared(a_policy(1), a_policy(1, Project("all")), runs("a"), later, now)
    assert {it.job: it.reason for it in found.unstartable} == dict.fromkeys(
        ("later", "now"), WaitReason.OVER_QUOTA_NON_PREEMPTIBLE
    )


def test_a_spent_budget_of_an_owner_concerns_only_the_jobs_of_this_owner() -> None:
    jobs = replace(waits("a1"), owner="ada"), replace(waits("b1"), owner="bob"), replace(waits("a2"), owner="ada")
    limited = Project("all", quota={"p5": 1}, owner_budget=Budget(1, "month"))
    past_use = {"all": PastUse(spent_by_owner={"bob": 1e9})}
    found = compared(a_policy(1), a_policy(1, limited), runs("a"), *jobs, past_use=past_use)
    assert [(it.job, it.reason) for it in found.unstartable] == [("b1", WaitReason.OVER_BUDGET)]


def test_a_job_that_has_reached_its_own_limit_of_preemptions_needs_quota() -> None:
    jobs = waits("free"), waits("limited"), waits("below its limit")
    limits = {"limited": {"max_preemptions": 1, "preempted_in_all": 1}, "below its limit": {"max_preemptions": 1}}
    waiting = (replace(job, **limits.get(job.name, {})) for job in jobs)  # type: ignore[arg-type]
    found = compared(a_policy(1), a_policy(1, Project("all")), runs("a"), *waiting)
    assert [(it.job, it.reason) for it in found.unstartable] == [("limited", WaitReason.OVER_QUOTA_NON_PREEMPTIBLE)]


def test_a_held_job_is_not_said_to_be_kept_from_starting_by_the_policy() -> None:
    found = compared(a_policy(1), a_policy(1), replace(waits("held"), held=True), runs("a"), runtimes={"a": HOUR})
    assert found.unstartable == ()
    (project,) = found.projects
    assert (project.waiting, project.known, project.wait_before) == (1, 0, None)


def test_a_start_within_the_time_looked_at_by_one_policy_alone_is_a_change() -> None:
    jobs = runs("a"), waits("b")
    found = compared(a_policy(1), a_policy(1, min_runtime=0), *jobs, runtimes={"a": 9 * HOUR, "b": 1 * HOUR})
    assert found.waits == ()  # beyond the horizon by both
    kept = a_policy(1), a_policy(2, Project("all", quota={"p5": 2}, limit={"p5": 1}))
    assert compared(*kept, *jobs, runtimes={"a": 2 * HOUR}).waits == ()
    later = compared(a_policy(2), a_policy(1), runs("a"), runs("c"), waits("b"), runtimes={"a": 9 * HOUR, "c": HOUR})
    assert changes(later) == {"b": (1, inf)}


def test_mean_waits_count_who_does_not_start_in_time_with_the_whole_time() -> None:
    jobs = runs("a"), runs("c"), waits("b", since=9), waits("d")
    runtimes = {"a": 20 * HOUR, "c": 2 * HOUR, "b": 20 * HOUR}
    (project,) = compared(a_policy(2), a_policy(3), *jobs, runtimes=runtimes).projects
    assert (project.waiting, project.known) == (2, 2)
    assert project.wait_before == (2 + 8) / 2 * HOUR
    assert project.wait_after == (0 + 2) / 2 * HOUR


def test_who_waits_for_jobs_of_unknown_runtime_is_not_told_of() -> None:
    found = compared(a_policy(2), a_policy(1), runs("a"), runs("c"), waits("b"), runtimes={"c": HOUR})
    assert (found.waits, found.waiting, found.known) == ((), 1, 0)
    assert [(it.known, it.wait_before) for it in found.projects] == [(0, None)]


def test_what_hardly_changes_is_not_told() -> None:
    jobs = runs("a"), runs("c"), waits("b")
    almost = compared(a_policy(2), a_policy(1), *jobs, runtimes={"a": 4 * HOUR, "c": 4 * HOUR - 299})
    assert almost.waits == ()
    far = compared(a_policy(2), a_policy(1), *jobs, runtimes={"a": 4 * HOUR, "c": 4 * HOUR - 1300})
    assert far.waits == ()  # less than a tenth
    assert compared(a_policy(2), a_policy(1), *jobs, runtimes={"a": 4 * HOUR, "c": 3.6 * HOUR}).waits


def test_now_alone_is_looked_at_where_that_is_asked_for() -> None:
    found = compared(a_policy(1), a_policy(2), runs("a"), waits("b"), runtimes={"a": HOUR}, horizon=0)
    assert found.starts == (Start("b", {"p5": 1}),)
    assert (found.futures, found.waits, found.known) == (0, (), 0)


def test_the_same_futures_are_looked_at_under_both() -> None:
    """Runtimes and arrivals are drawn; a job that can start under one policy alone changes neither."""
    spread = {f"j{n}": tuple(HOUR * (1 + part * (n + 1) / 7) for part in range(20)) for n in range(12)}
    seen: list[list[SimulatedJob]] = []

    def comes(random: Random) -> Iterable[SimulatedJob]:
        drawn = [
            SimulatedJob(f"later{n}", "all", 2, ({"p5": 1},), NOW + random.uniform(0, 5 * HOUR), 600.0)
            for n in range(random.randint(1, 6))
        ]
        seen.append(drawn)
        return drawn

    jobs: list[ActiveJob | WaitingJob] = [
        *(runs(f"j{n}") for n in range(3)),
        *(waits(f"j{n}", since=20 - n) for n in range(3, 12)),
    ]
    inputs = ForecastInput(Snapshot(a_policy(3), NOW), spread, comes, OVERHEADS)
    same = compared(a_policy(3), a_policy(3, patience=1801), *jobs, inputs=inputs)
    assert same.waits == ()
    assert seen[0::2] == seen[1::2]
    assert seen[0] != seen[2]
    giant = compared(a_policy(3), a_policy(3, patience=1801), *jobs, replace(waits("giant", slots=9)), inputs=inputs)
    assert giant.waits == ()


def test_who_comes_to_a_project_or_pool_that_is_gone_does_not_come() -> None:
    def comes(_: Random) -> Iterable[SimulatedJob]:
        for name, project, pool in (("x", "gone", "p5"), ("y", "all", "gone"), ("z", "all", "p5")):
            yield SimulatedJob(name, project, 9, ({pool: 1},), NOW + 60, HOUR)

    without = a_policy(1, Project("all", quota={"p5": 1}))
    both = Policy((Pool("p5", 1), Pool("gone", 1)), (Project("all"), Project("gone", quota={"p5": 1})))
    inputs = ForecastInput(Snapshot(both, NOW), {"a": (2 * HOUR,), "b": (HOUR,)}, comes, OVERHEADS)
    found = compared(both, without, replace(runs("a"), preemptible=False), waits("b"), inputs=inputs)
    assert changes(found) == {"b": (4, 3)}  # x goes before z; y is in nobody's way


@pytest.mark.parametrize("looks", [0, 1, 7])
def test_out_of_time_what_is_known_is_told(looks: int) -> None:
    left = iter([True] * looks)
    jobs = runs("a"), waits("b", since=3), waits("c"), waits("gang", slots=2)
    found = compared(a_policy(1), a_policy(2), *jobs, runtimes={"a": HOUR}, may_go_on=lambda: next(left, False))
    assert found.starts == (Start("b", {"p5": 1}),)
    assert found.futures == 0
    assert found.waits == ()
    assert not found.all_examined


def test_futures_that_are_done_count_where_the_next_is_given_up() -> None:
    snapshot = Snapshot(a_policy(1), NOW, (runs("a"),), (waits("b"),))
    inputs = ForecastInput(snapshot, {"a": (HOUR,)}, overheads=OVERHEADS)
    for most in range(200):
        left = iter([True] * most)
        futures = PairedFutures(inputs, inputs, 8 * HOUR, lambda left=left: next(left, False))  # type: ignore[misc]
        futures.simulate()
        starts = futures.starts()
        if 0 < starts.futures < MOST_PAIRED_FUTURES:
            break
    assert starts.before == starts.after == {"b": NOW + HOUR}


PROJECTS = (Project("one", quota={"p5": 2}), Project("two", quota={"p5": 1}))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["one", "two"]), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(0, 4),
    st.permutations([1, 2, 0, 3]),
)
def test_what_is_said_of_now_is_what_the_plans_decide(
    wanted: list[tuple[str, int, int]], capacity: int, quotas: list[int]
) -> None:
    after = a_policy(
        capacity, *(replace(project, quota={"p5": quotas[n]}) for n, project in enumerate(PROJECTS)), patience=None
    )
    jobs = [waits(f"w{n}", *asked, since=n) for n, asked in enumerate(wanted)]
    holder = runs("busy", "two", slots=2)
    before = a_policy(3, *PROJECTS)
    found = compared(before, after, holder, *jobs, horizon=0)
    then = plan(Snapshot(after, NOW, (holder,), tuple(jobs)))
    now = plan(Snapshot(before, NOW, (holder,), tuple(jobs)))
    assert {it.job for it in found.starts} == {it.job for it in then.starts} - {it.job for it in now.starts}
    assert set(found.kept_waiting) == {it.job for it in now.starts} - {it.job for it in then.starts}
    new: list[Evict] = [it for it in then.evictions if it not in now.evictions]
    assert list(found.evictions) == new
    assert not {it.job for it in found.unstartable} & {it.job for it in then.starts}
    used = sum(sum(it.used_after.values()) for it in found.projects)
    assert used <= max(capacity, 2)  # who runs above a new capacity goes on


@given(st.integers(1, 4), st.lists(st.integers(1, 3), max_size=5))
@settings(max_examples=30, deadline=None)
def test_the_same_policy_changes_nothing(capacity: int, sizes: list[int]) -> None:
    jobs = [waits(f"w{n}", slots=size, since=n) for n, size in enumerate(sizes)]
    runtimes = {f"w{n}": HOUR * (n + 1) for n in range(len(sizes))}
    found = compared(a_policy(capacity), a_policy(capacity), runs("a"), *jobs, runtimes={"a": HOUR, **runtimes})
    nothing = (found.starts, found.kept_waiting, found.evictions, found.unstartable, found.waits)
    assert nothing == ((), (), (), (), ())
    assert all((it.wait_before, it.used_before) == (it.wait_after, it.used_after) for it in found.projects)


# --- members -----------------------------------------------------------------------------------------


def shared(instances: int, gpus: int | None = 8) -> Policy:
    policy = a_policy(instances)
    return replace(policy, pools=tuple(replace(pool, gpus=gpus) for pool in policy.pools))


def a_member(name: str, gpus: int, since: float) -> WaitingJob:
    return replace(waits(name, since=since), gpus=gpus * 10)


def test_members_start_on_free_gpus_and_on_carriers_that_are_launched() -> None:
    jobs = a_member("four", 4, 30), a_member("five", 5, 20), a_member("three", 3, 10)
    found = compared(shared(1), shared(2), *jobs, runtimes={"four": HOUR, "five": HOUR, "three": HOUR})
    assert {start.job for start in found.starts} == {"five"}, "four and three share the first one as it is"
    assert not (found.unstartable or found.kept_waiting)
    (figures,) = found.projects
    assert (figures.used_before, figures.used_after) == ({"p5": 1}, {"p5": 2})
    gone = compared(shared(1), shared(1, gpus=4), *jobs)
    assert [(it.job, it.reason) for it in gone.unstartable] == [("five", WaitReason.NEVER_FITS)]
