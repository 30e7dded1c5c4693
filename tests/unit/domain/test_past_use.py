"""The past use that plans look at, from the records of attempts that have ended."""

from dataclasses import replace
from datetime import UTC, datetime
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.accounting.attempts import AttemptRecord, PastUseOfAttempts
from job_queue.domain.job import iso
from job_queue.scheduler import Budget, PastUse, Policy, oldest_counted_time
from job_queue.scheduler.sharing import ledger
from job_queue.scheduler.sharing.ledger import UseLedger
from tests.builders import a_policy, project

HALF_LIFE = 7 * 86400.0
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


def remembering(**fields: object) -> Policy:
    return a_policy({"p5": 8, "p4": 8}, [project("a", **fields), project("b")], usage_half_life=HALF_LIFE)  # type: ignore[arg-type]


def record(began: float | None, ended: float, **fields: object) -> AttemptRecord:
    """An attempt of ada's in the project a on two instances of p5."""
    known = AttemptRecord(
        job="job1",
        submission="s",
        attempt=1,
        training_job_name="job1-1",
        project="a",
        owner="ada",
        outcome="completed",
        priority=0,
        slots={"p5": 2},
        instances={},
        submitted=iso(NOON - 1e6),
        waiting_since=iso(NOON - 1e6),
        launched=iso(NOON - 1e6),
        ended=iso(ended),
        began=None if began is None else iso(began),
    )
    return replace(known, **fields)  # type: ignore[arg-type]


def past(policy: Policy, *records: AttemptRecord, now: float = NOON) -> PastUse:
    uses = PastUseOfAttempts(policy)
    uses.add(records)
    return uses.at(now)["a"]


def counted(began: float, ended: float, now: float = NOON) -> float:
    """What an instance counts for: the integral of the decay, summed up in small steps."""
    steps = 20_000
    width = (ended - began) / steps
    return sum(exp(-log(2) * (now - began - (step + 0.5) * width) / HALF_LIFE) for step in range(steps)) * width


def test_use_decays_by_half_in_a_half_life() -> None:
    moment = past(remembering(), record(NOON - 1, NOON)).lately["p5"]
    assert moment == pytest.approx(2, rel=1e-5)
    long_ago = past(remembering(), record(NOON - 1, NOON), now=NOON + 3 * HALF_LIFE).lately["p5"]
    assert long_ago == pytest.approx(moment / 8)


def test_of_a_long_attempt_the_later_part_counts_more() -> None:
    found = past(remembering(), record(NOON - 2 * HALF_LIFE, NOON - HALF_LIFE / 2)).lately["p5"]
    assert found == pytest.approx(2 * counted(NOON - 2 * HALF_LIFE, NOON - HALF_LIFE / 2), rel=1e-6)


def test_pools_and_owners_are_told_apart_and_who_never_had_instances_used_none() -> None:
    found = past(
        remembering(),
        record(NOON - HOUR, NOON),
        record(NOON - HOUR, NOON, slots={"p4": 1, "p5": 1}, owner="bob"),
        record(None, NOON, owner="eve"),
        record(NOON - HOUR, NOON, project="gone"),
        record(NOON - HOUR, NOON, slots={"gone": 5}, owner="kim"),
    )
    assert found.lately.keys() == {"p4", "p5"}
    assert found.lately["p5"] == pytest.approx(3 * found.lately["p4"])
    assert found.lately_by_owner["bob"] == pytest.approx(found.lately_by_owner["ada"])
    assert found.lately_by_owner.keys() == {"ada", "bob", "kim"}


times = st.floats(0, 4 * HALF_LIFE)


@given(st.lists(st.tuples(times, times, st.sampled_from(["ada", "bob"])), max_size=8), st.randoms())
def test_neither_the_order_of_the_ends_nor_questions_between_change_the_figures(
    drawn: list[tuple[float, float, str]], random: object
) -> None:
    records = [record(NOON - max(one, two), NOON - min(one, two), owner=owner) for one, two, owner in drawn]
    in_order = past(remembering(), *sorted(records, key=lambda it: it.ended))
    random.shuffle(records)  # type: ignore[attr-defined]
    shuffled = past(remembering(), *records)
    carried = UseLedger(remembering(), {"a": in_order}, NOON).past_use(NOON + HALF_LIFE)["a"]
    for pool, seconds in in_order.lately.items():
        assert shuffled.lately[pool] == pytest.approx(seconds)
        assert carried.lately[pool] == pytest.approx(seconds / 2)
    assert shuffled.lately_by_owner == pytest.approx(dict(in_order.lately_by_owner))


def test_of_a_budget_the_seconds_in_its_period_count() -> None:
    policy = remembering(budget=Budget(10, 1), owner_budget=Budget(10, "month"))
    midnight = NOON - 12 * HOUR
    yesterday, across = record(midnight - 2 * HOUR, midnight - 1), record(midnight - HOUR, midnight + 2 * HOUR)
    found = past(policy, yesterday, across, record(NOON - HOUR, NOON, owner="bob"))
    assert found.spent == 2 * 2 * HOUR + 2 * HOUR
    assert found.spent_by_owner == pytest.approx({"ada": 2 * (2 * HOUR - 1) + 2 * 3 * HOUR, "bob": 2 * HOUR})
    assert past(policy, across, now=midnight + 24 * HOUR).spent == 0
    assert past(policy, across, now=midnight + 24 * HOUR).spent_by_owner  # a month


def test_without_half_life_and_budgets_nothing_is_remembered() -> None:
    uses = PastUseOfAttempts(a_policy(8, ["a"]))
    uses.add([record(NOON - HOUR, NOON)])
    assert not uses.at(NOON)


def test_how_far_back_records_matter() -> None:
    policy = a_policy(8, [project("a", budget=Budget(10, "month")), project("b", owner_budget=Budget(1, 7))])
    assert oldest_counted_time(policy, NOON) == datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    assert oldest_counted_time(remembering(), NOON) == NOON - 10 * HALF_LIFE
    assert oldest_counted_time(a_policy(8, ["a"]), NOON) == NOON


def test_of_very_many_owners_those_are_forgotten_that_used_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_OWNERS", 5)
    uses = PastUseOfAttempts(remembering(owner_budget=Budget(10, "month")))
    for number in range(100):
        uses.add([record(NOON - 200 + number, NOON - 100 + number, owner="often")])
        uses.add([record(NOON - 101 + number, NOON - 100 + number, owner=f"once{number}")])
    found = uses.at(NOON)["a"]
    assert "often" in found.lately_by_owner and "often" in found.spent_by_owner
    assert len(found.lately_by_owner) <= 10 and len(found.spent_by_owner) <= 10
    assert found.lately["p5"] == pytest.approx(2 * (100 * 100 + 100), rel=1e-3)  # of the project nothing is forgotten
