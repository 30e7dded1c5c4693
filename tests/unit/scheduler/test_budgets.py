"""Budgets: instance-hours of a project, or of each owner in it, in a period; hard or soft."""

from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    Budget,
    BudgetKind,
    PastUse,
    Project,
    Rule,
    Snapshot,
    Spending,
    WaitReason,
    period_end,
    period_start,
    plan,
)
from job_queue.scheduler.documents.policy_schema import Period
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import NOW, a_policy, a_snapshot, active, department, line, many, project, stopping, waiting
from tests.unit.scheduler.decided import evicted, evicted_by, reasons, started
from tests.unit.scheduler.snapshots import shuffled, snapshots

HOUR = 3600.0
SOFT = BudgetKind.SOFT


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def budgeted(name: str = "a", quota: int = 2, hours: float = 10, period: Period = "month", **fields: Any) -> Project:
    """A project with a budget of so many hours a month."""
    return project(name, quota, budget=Budget(hours, period, **fields))


def spent(hours: float, name: str = "a", **by_owner: float) -> dict[str, PastUse]:
    return {name: PastUse(spent=hours * HOUR, spent_by_owner={owner: it * HOUR for owner, it in by_owner.items()})}


# --- periods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "now", "begins", "ends"),
    [
        ("month", "2026-02-28T23:59:59", "2026-02-01", "2026-03-01"),
        ("month", "2026-12-01T00:00:00", "2026-12-01", "2027-01-01"),
        ("month", "2028-02-29T12:00:00", "2028-02-01", "2028-03-01"),
        (1, "2026-11-20T12:00:00", "2026-11-20", "2026-11-21"),
        (7, "2026-11-22T23:59:59", "2026-11-16", "2026-11-23"),  # from Monday to Sunday
        (7, "2026-11-23T00:00:00", "2026-11-23", "2026-11-30"),
        (14, "1970-01-05T00:00:00", "1970-01-05", "1970-01-19"),
        (14, "1970-01-01T00:00:00", "1969-12-22", "1970-01-05"),
    ],
)
def test_periods_are_whole_days_in_utc(period: Period, now: str, begins: str, ends: str) -> None:
    budget = Budget(1, period)
    assert (period_start(budget, at(now)), period_end(budget, at(now))) == (at(begins), at(ends))


# --- hard --------------------------------------------------------------------------------------------


def test_nothing_starts_once_it_is_spent_and_the_message_has_the_figures() -> None:
    snapshot = a_snapshot(waiting("w"), policy=a_policy(2, [budgeted(hours=10, period=7)]))
    assert started(plan(replace(snapshot, past_use=spent(9.99)))).keys() == {"w"}
    decided = plan(replace(snapshot, past_use=spent(12)))
    assert reasons(decided) == {"w": WaitReason.OVER_BUDGET}
    assert decided.holds[0].message == (
        "Project a has used 12.0 instance-hours in this week, and a hard budget of 10.0. It waits for the next period, "
        "which begins at "
        "1970-01-19 00:00:00 UTC, in 154 h 13 min."
    )


def test_what_runs_counts_and_goes_on() -> None:
    # two instances for two hours
    snapshot = a_snapshot(active("r", 2, ran=2 * HOUR), waiting("w"), policy=a_policy(9, [budgeted(hours=10)]))
    assert started(plan(replace(snapshot, past_use=spent(5.9)))).keys() == {"w"}
    decided = plan(replace(snapshot, past_use=spent(6.1)))
    assert reasons(decided) == {"w": WaitReason.OVER_BUDGET}
    assert not decided.evictions


def test_of_what_runs_only_this_period_counts() -> None:
    since_midnight = NOW - period_start(Budget(1, 1), NOW)
    long = active("r", 1, ran=since_midnight + 90 * HOUR)
    hours = since_midnight / HOUR
    for budget, reason in ((hours + 0.1, None), (hours - 0.1, WaitReason.OVER_BUDGET)):
        policy = a_policy(9, [budgeted(hours=budget, period=1)])
        assert reasons(plan(a_snapshot(long, waiting("w"), policy=policy))).get("w") is reason


def test_such_a_job_stops_nobody_keeps_nothing_and_asks_for_nothing() -> None:
    policy = a_policy(4, [budgeted(quota=2), project("b", 0), project("c", 0)], patience=60)
    jobs = [waiting("w", 3, priority=9, waited=9000), *line(4, "b", project="b"), *line(4, "c", project="c")]
    low = active("low", 1, priority=0)
    snapshot = a_snapshot(low, *jobs, policy=policy, past_use=spent(99), reserved={"w": {"p5": 1}})
    decided = plan(snapshot)
    assert not evicted(decided) and not decided.reservations
    assert decided.shares["p5"] == {"a": 1, "b": 2, "c": 1}
    assert len(started(decided)) == 3
    assert not any("w" in hold.ahead for hold in decided.holds)


def test_the_first_reason_is_told_that_lasts() -> None:
    policy = a_policy(2, [budgeted()])
    jobs = [waiting("held", held=True), waiting("large", 9), waiting("later", after=(("held", False),))]
    assert reasons(plan(a_snapshot(*jobs, policy=policy, past_use=spent(99)))) == {
        "held": WaitReason.HELD_BY_USER,
        "large": WaitReason.NEVER_FITS,
        "later": WaitReason.DEPENDENCY,
    }


def test_nobody_is_moved_who_could_not_start_again() -> None:
    policy = a_policy({"p5": 1, "p4": 1}, [budgeted(), project("b", {"p5": 1})])
    easy = active("easy", {"p5": 1}, demand=({"p5": 1}, {"p4": 1}))
    snapshot = a_snapshot(easy, waiting("picky", project="b"), policy=policy)
    assert evicted_by(plan(snapshot)) == {"easy": ("picky", Rule.CONSOLIDATE.value)}
    assert evicted_by(plan(replace(snapshot, past_use=spent(99)))) != evicted_by(plan(snapshot))


def test_who_made_room_for_others_waits_until_the_next_period() -> None:
    policy = a_policy(1, [budgeted(quota=1)])
    snapshot = a_snapshot(stopping("gone", 1, comes_back=True), policy=policy, past_use=spent(99))
    run = ScenarioRun(snapshot)
    run.apply(plan(run.snapshot))
    assert reasons(plan(run.snapshot)) == {"gone": WaitReason.OVER_BUDGET}


def test_an_owners_budget_is_the_owners_alone() -> None:
    policy = a_policy(9, [project("a", 9, owner_budget=Budget(10, "month")), project("b")])
    jobs = [waiting("hers", owner="ada"), waiting("his", owner="bob"), waiting("elsewhere", owner="ada", project="b")]
    decided = plan(a_snapshot(*jobs, policy=policy, past_use=spent(0, ada=10, bob=9.9)))
    assert started(decided).keys() == {"his", "elsewhere"}
    assert decided.holds[0].message.startswith(
        "Its owner has, in project a, used 10.0 instance-hours in this month, and a hard budget of 10.0."
    )


def test_an_owners_running_jobs_count_for_the_owner() -> None:
    policy = a_policy(9, [project("a", 9, owner_budget=Budget(10, "month"))])
    jobs = [active("r", 5, ran=2 * HOUR, owner="ada"), waiting("hers", owner="ada"), waiting("his", owner="bob")]
    assert reasons(plan(a_snapshot(*jobs, policy=policy))) == {"hers": WaitReason.OVER_BUDGET}


# --- soft --------------------------------------------------------------------------------------------


def test_once_spent_nothing_beyond_the_quota_is_due() -> None:
    policy = a_policy(8, [budgeted(quota=2, kind=SOFT), project("b", 2)])
    snapshot = a_snapshot(*line(8, "a"), *line(8, "b", project="b"), policy=policy)
    assert plan(snapshot).shares["p5"] == {"a": 4, "b": 4}
    assert plan(replace(snapshot, past_use=spent(10))).shares["p5"] == {"a": 2, "b": 6}


def test_its_department_does_not_ask_for_it_either() -> None:
    parts = [department("x", 2), department("y", 2)]
    projects = [replace(budgeted(quota=2, kind=SOFT), department="x"), project("b", 2, department="y")]
    policy = a_policy(8, projects, parts)
    snapshot = a_snapshot(*many(8, "r"), *line(8, "b", project="b"), policy=policy, past_use=spent(10))
    decided = plan(snapshot)
    assert decided.shares["p5"]["x"] == 2
    assert len(evicted(decided)) == 6


def test_what_nobody_else_wants_is_for_it() -> None:
    policy = a_policy(8, [budgeted(quota=2, kind=SOFT), project("b", 2)])
    snapshot = a_snapshot(*line(8, "a"), waiting("b0", project="b"), policy=policy, past_use=spent(10))
    assert len(started(plan(snapshot))) == 8


def test_beyond_quotas_it_comes_after_the_others() -> None:
    # Neither is due the gang of all there is; a holds less.
    policy = a_policy(4, [budgeted(quota=0, kind=SOFT), project("b", 0)])
    jobs = [waiting("a0", 4, waited=99), waiting("b0", 4, project="b")]
    assert started(plan(a_snapshot(*jobs, policy=policy))).keys() == {"a0"}
    assert started(plan(a_snapshot(*jobs, policy=policy, past_use=spent(10)))).keys() == {"b0"}


def test_it_is_the_first_to_give_back() -> None:
    # c is further above what is due to it.
    policy = a_policy(6, [budgeted(quota=0, kind=SOFT), project("b", 3), project("c", 1)])
    jobs = [*many(2, "a"), *many(4, "c", project="c"), *line(2, "b", project="b")]
    snapshot = a_snapshot(*jobs, policy=policy)
    assert {name[0] for name in evicted(plan(snapshot))} == {"c"}
    assert {name[0] for name in evicted(plan(replace(snapshot, past_use=spent(10))))} == {"a"}


def test_an_owner_whose_soft_budget_is_spent_comes_last_among_equals() -> None:
    policy = a_policy(2, [project("a", 2, owner_budget=Budget(10, "month", kind=SOFT))])
    jobs = [
        waiting("urgent", owner="ada", priority=2),
        waiting("hers", owner="ada", waited=99),
        waiting("his", owner="bob"),
    ]
    snapshot = a_snapshot(*jobs, policy=policy)
    assert started(plan(snapshot)).keys() == {"urgent", "hers"}
    assert started(plan(replace(snapshot, past_use=spent(0, ada=10)))).keys() == {"urgent", "his"}


# --- properties --------------------------------------------------------------------------------------


def with_budgets(snapshot: Snapshot, random: Random) -> Snapshot:
    def budget() -> Budget | None:
        return random.choice((None, Budget(5, random.choice(("month", 1, 7)), random.choice(tuple(BudgetKind)))))

    projects = tuple(replace(it, budget=budget(), owner_budget=budget()) for it in snapshot.policy.projects)
    past = {it.name: PastUse(spent=random.choice((0, 5)) * HOUR, spent_by_owner={"ada": 5 * HOUR}) for it in projects}
    owned: dict[str, Any] = {
        field: tuple(replace(job, owner=random.choice(("ada", "bob"))) for job in getattr(snapshot, field))
        for field in ("active", "waiting")
    }
    return replace(snapshot, policy=replace(snapshot.policy, projects=projects), past_use=past, **owned)


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_whose_hard_budget_is_spent_does_nothing_at_all(snapshot: Snapshot, random: Random) -> None:
    snapshot = with_budgets(snapshot, random)
    decided, spending = plan(snapshot), Spending(snapshot)
    forbidden = {job.name for job in snapshot.waiting if spending.forbidding_account(job)}
    assert not forbidden & {start.job for start in decided.starts}
    assert not forbidden & {eviction.claimant for eviction in decided.evictions}
    assert not forbidden & decided.reservations.keys()
    # ... and the others fare as if it were not there.
    moved = {job.name for job in snapshot.active if spending.forbidding_account(job)}
    assert not moved & {eviction.job for eviction in decided.evictions if eviction.rule is Rule.CONSOLIDATE}
    without = plan(replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.name not in forbidden)))
    assert (decided.starts, decided.evictions, decided.shares) == (without.starts, without.evictions, without.shares)
    assert {it.job for it in decided.holds if it.reason is WaitReason.OVER_BUDGET} <= forbidden


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_plans_with_budgets_are_stable_and_do_not_depend_on_the_order(snapshot: Snapshot, random: Random) -> None:
    snapshot = with_budgets(snapshot, random)
    assert plan(shuffled(snapshot, random)) == plan(snapshot)
    run = ScenarioRun(snapshot)
    assert any(not run.apply(plan(run.snapshot)) for _ in range(20))


def test_a_budget_that_is_not_spent_changes_nothing() -> None:
    snapshot = a_snapshot(*many(2, "r", priority=0), *line(3, "w"), policy=a_policy(3, [project("a", 3)]))
    with_budget = replace(snapshot, policy=a_policy(3, [budgeted(quota=3, hours=1000, kind=SOFT)]))
    assert plan(with_budget) == plan(snapshot)
