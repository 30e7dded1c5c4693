"""`usage_half_life`: who has used less lately comes first, and quotas stay."""

from dataclasses import replace
from fractions import Fraction
from math import log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler import Department, PastUse, Policy, Project, Snapshot, WaitReason, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from job_queue.scheduler.sharing.division import Past, Recipient, divide, divide_by_past
from tests.builders import NOW, a_policy, a_snapshot, active, department, line, many, project, waiting
from tests.unit.scheduler.decided import evicted, final, reasons, started
from tests.unit.scheduler.snapshots import SMALL, shuffled, snapshots

HALF_LIFE = 86400.0
OWNERS = ("ada", "bob", "eve")


def held(slots: float) -> float:
    """The instance-seconds of who has held so many instances ever since."""
    return slots * HALF_LIFE / log(2)


def used(**slots: float) -> dict[str, PastUse]:
    """What projects have held lately, in p5."""
    return {name: PastUse({"p5": held(count)}) for name, count in slots.items()}


def owned(**slots: float) -> dict[str, PastUse]:
    """What owners in the project a have held lately."""
    return {"a": PastUse({}, {owner: held(count) for owner, count in slots.items()})}


def remembering(pools: int, *projects: object, **changes: object) -> Policy:
    return a_policy(pools, projects, usage_half_life=HALF_LIFE, **changes)  # type: ignore[arg-type]


# --- the division ------------------------------------------------------------------------------------


def test_without_a_past_it_is_the_usual_division() -> None:
    recipients = [Recipient(2, Fraction(3), 9), Recipient(0, Fraction(1), 9), Recipient(1, Fraction(1), 1)]
    fresh = [Past(0.0, 0)] * 3
    steady = [Past(float(part), 0) for part in divide_by_past(10, recipients, fresh)[1]]
    assert divide_by_past(10, recipients, steady)[0] == divide(10, recipients)


@pytest.mark.parametrize(
    ("lately", "due"),
    [
        ((4, 4), [4, 4]),
        ((0, 0), [4, 4]),
        ((6, 2), [2, 6]),
        ((8, 0), [0, 8]),
        ((90, 0), [0, 8]),
        ((9, 9), [4, 4]),  # both had more: from a time when the fleet was larger
    ],
)
def test_who_had_less_gets_more_until_it_has_caught_up(lately: tuple[float, float], due: list[int]) -> None:
    recipients = [Recipient(0, Fraction(1), 8)] * 2
    assert divide_by_past(8, recipients, [Past(count, 0) for count in lately])[0] == due


def test_what_the_others_do_not_ask_for_is_for_who_had_more() -> None:
    recipients = [Recipient(0, Fraction(1), 8), Recipient(0, Fraction(1), 3)]
    assert divide_by_past(8, recipients, [Past(8, 8), Past(0, 0)])[0] == [5, 3]


def test_who_has_no_weight_gets_nothing_though_it_had_nothing() -> None:
    recipients = [Recipient(2, Fraction(0), 8), Recipient(0, Fraction(1), 8)]
    assert divide_by_past(8, recipients, [Past(0, 0), Past(8, 8)])[0] == [2, 6]


def test_who_holds_an_odd_slot_keeps_it() -> None:
    recipients = [Recipient(0, Fraction(1), 3)] * 2
    assert divide_by_past(3, recipients, [Past(1.7, 2), Past(1.3, 1)])[0] == [2, 1]
    assert divide_by_past(3, recipients, [Past(1.7, 1), Past(1.3, 1)])[0] == [1, 2]
    assert divide_by_past(3, recipients, [Past(2.7, 2), Past(0.3, 1)])[0] == [1, 2]  # that is more than an odd one


@given(
    st.integers(0, 40),
    st.lists(
        st.tuples(
            st.integers(0, 9), st.sampled_from([0, 1, 2, 5]), st.integers(0, 20), st.floats(0, 50), st.integers(0, 20)
        ),
        max_size=6,
    ),
)
def test_no_past_touches_a_quota(have: int, drawn: list[tuple[int, int, int, float, int]]) -> None:
    recipients = [Recipient(quota, Fraction(weight), request) for quota, weight, request, _, _ in drawn]
    pasts = [Past(lately, holds) for *_, lately, holds in drawn]
    parts, fair = divide_by_past(have, recipients, pasts)
    usual = divide(have, recipients)
    assert sum(parts) == sum(usual)  # nothing is left over that would not be without a past
    assert sum(fair) == sum(usual)
    if sum(min(recipient.quota, recipient.request) for recipient in recipients) > have:
        assert parts == usual
        return
    for recipient, part, without in zip(recipients, parts, usual, strict=True):
        assert min(recipient.quota, recipient.request) <= part <= recipient.request
        assert recipient.weight or part == without


# --- projects ----------------------------------------------------------------------------------------


def test_among_projects_who_had_less_comes_first_with_gangs_of_all_there_is() -> None:
    policy = remembering(4, project("a"), project("b"))
    jobs = [waiting("a0", 4, waited=90), waiting("b0", 4, project="b", waited=10)]
    assert list(started(plan(a_snapshot(*jobs, policy=policy)))) == ["a0"]
    assert list(started(plan(a_snapshot(*jobs, policy=policy, past_use=used(a=0.5))))) == ["b0"]
    off = replace(policy, settings=replace(policy.settings, usage_half_life=None))
    assert list(started(plan(a_snapshot(*jobs, policy=off, past_use=used(a=3))))) == ["a0"]


def test_what_runs_counts_from_its_start() -> None:
    policy = remembering(5, project("a"), project("b"))
    jobs = [waiting("a0", 2, waited=90), waiting("b0", 2, project="b", waited=10)]
    # a has held 3 for a half-life, which counts for 1.5
    decided = plan(a_snapshot(active("r", 3, ran=HALF_LIFE), *jobs, policy=policy))
    assert list(started(decided)) == ["b0"]
    hold = decided.holds[0]
    assert hold.reason is WaitReason.BEHIND_FAIR_SHARE
    assert "it used 1.5 on average lately, and its share is 3.0" in hold.message


def test_the_used_share_is_compared_with_the_share_that_is_due() -> None:
    # b is due three times as much as a, and had twice as much.
    policy = remembering(4, project("a", over_quota=1), project("b", over_quota=3))
    jobs = [waiting("a0", 4, waited=90), waiting("b0", 4, project="b", waited=10)]
    assert list(started(plan(a_snapshot(*jobs, policy=policy, past_use=used(a=1.3, b=2.6))))) == ["b0"]
    assert list(started(plan(a_snapshot(*jobs, policy=policy, past_use=used(a=0.7, b=2.6))))) == ["a0"]


def test_departments_are_compared_before_their_projects() -> None:
    parts = [department("x"), department("y")]
    projects = [project("a", department="x"), project("b", department="x"), project("c", department="y")]
    policy = a_policy(2, projects, parts, usage_half_life=HALF_LIFE)
    jobs = [waiting(f"{name}0", 2, project=name) for name in "abc"]
    # b itself had nothing, and its department as much as c, and more
    assert list(started(plan(a_snapshot(*jobs, policy=policy, past_use=used(a=1.2, c=0.8))))) == ["c0"]
    assert list(started(plan(a_snapshot(*jobs, policy=policy, past_use=used(a=0.8, c=1.2))))) == ["b0"]


def test_who_had_less_reclaims_whole_slots() -> None:
    policy = remembering(8, project("a"), project("b"))
    snapshot = a_snapshot(*many(8, "r"), *line(8, "b", project="b"), policy=policy, past_use=used(a=6, b=2))
    assert len(evicted(plan(snapshot))) == 6
    assert sum(name.startswith("b") for name in final(snapshot)) == 6


# --- owners ------------------------------------------------------------------------------------------


def owners_jobs(*names: str) -> list[object]:
    """Jobs of one priority, the first named has waited longest; the owner stands before the digit."""
    return [waiting(name, owner=name[:3], waited=100 - place) for place, name in enumerate(names)]


def order_of(snapshot: Snapshot) -> list[str]:
    """In which order they would be served."""
    return [hold.job for hold in plan(snapshot).holds]


def test_equal_owners_take_turns() -> None:
    jobs = owners_jobs("ada0", "ada1", "ada2", "bob0", "bob1")
    snapshot = a_snapshot(active("r", 1, priority=9), *jobs, policy=remembering(1, project("a", 1)))
    assert order_of(replace(snapshot, active=(active("r", 1, priority=9, owner="eve"),))) == [
        "ada0", "bob0", "ada1", "bob1", "ada2"
    ]  # fmt: skip


def test_who_had_more_waits_until_the_others_have_caught_up() -> None:
    jobs = owners_jobs("ada0", "ada1", "bob0", "bob1", "bob2", "bob3")
    full = active("r", 1, priority=9, owner="eve")
    snapshot = a_snapshot(full, *jobs, policy=remembering(1, project("a", 1)), past_use=owned(ada=2.5))
    assert order_of(snapshot) == ["bob0", "bob1", "bob2", "ada0", "bob3", "ada1"]


def test_what_an_owner_holds_counts_at_once() -> None:
    jobs = owners_jobs("ada0", "bob0")
    snapshot = a_snapshot(active("r", 1, priority=9, ran=0, owner="ada"), *jobs, policy=remembering(1, project("a", 1)))
    assert order_of(snapshot) == ["bob0", "ada0"]


def test_priorities_and_aging_come_before_owners() -> None:
    policy = remembering(1, project("a", 1), aging=600.0)
    jobs = [
        waiting("old", owner="ada", waited=660),
        waiting("new", owner="bob", waited=10),
        waiting("urgent", owner="ada", priority=3),
    ]
    snapshot = a_snapshot(active("r", 1, priority=9, owner="eve"), *jobs, policy=policy, past_use=owned(ada=9))
    assert order_of(snapshot) == ["urgent", "old", "new"]


def test_shortest_first_orders_the_jobs_of_one_owner() -> None:
    policy = remembering(1, project("a", 1), order="shortest", stretch=10)
    jobs = [
        waiting("ada-long", owner="ada", waited=90, expected=9000),
        waiting("ada-short", owner="ada", waited=10, expected=60),
        waiting("bob-long", owner="bob", waited=10, expected=90_000),
    ]
    snapshot = a_snapshot(active("r", 1, priority=9, owner="eve"), *jobs, policy=policy, past_use=owned(ada=0.5))
    assert order_of(snapshot) == ["bob-long", "ada-short", "ada-long"]


def test_who_waits_is_told_why_a_later_job_comes_first() -> None:
    jobs = owners_jobs("ada0", "bob0")
    snapshot = a_snapshot(
        active("r", 1, priority=9, owner="eve"), *jobs, policy=remembering(1, project("a", 1)), past_use=owned(ada=1)
    )
    decided = plan(snapshot)
    assert reasons(decided)["ada0"] is WaitReason.BEHIND_OTHERS
    message = next(hold.message for hold in decided.holds if hold.job == "ada0")
    assert "the owner of bob0 has used fewer instances lately" in message


# --- properties --------------------------------------------------------------------------------------


def with_a_past(snapshot: Snapshot, random: Random) -> Snapshot:
    """The same where past use counts, and everybody has some."""

    def owner(job: object) -> object:
        return replace(job, owner=random.choice(OWNERS))  # type: ignore[type-var]

    pools = [pool.name for pool in snapshot.policy.pools]
    past = {
        it.name: PastUse(
            {pool: held(random.choice((0, 0.3, 1, 2, 7))) for pool in pools},
            {name: held(random.choice((0, 1, 3))) for name in OWNERS},
        )
        for it in snapshot.policy.projects
        if random.random() < 0.8
    }
    policy = replace(snapshot.policy, settings=replace(snapshot.policy.settings, usage_half_life=HALF_LIFE))
    return replace(
        snapshot,
        policy=policy,
        past_use=past,
        active=tuple(map(owner, snapshot.active)),  # type: ignore[arg-type]
        waiting=tuple(map(owner, snapshot.waiting)),  # type: ignore[arg-type]
    )


def without_memory(snapshot: Snapshot) -> Snapshot:
    settings = replace(snapshot.policy.settings, usage_half_life=None)
    return replace(snapshot, policy=replace(snapshot.policy, settings=settings))


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_with_it_off_nobody_looks_at_the_past(snapshot: Snapshot, random: Random) -> None:
    off = without_memory(with_a_past(snapshot, random))
    assert plan(off) == plan(replace(off, past_use={}))


@settings(deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_plans_are_stable_and_do_not_depend_on_the_order(snapshot: Snapshot, random: Random) -> None:
    snapshot = with_a_past(snapshot, random)
    past = dict(random.sample(list(snapshot.past_use.items()), len(snapshot.past_use)))
    assert plan(replace(shuffled(snapshot, random), past_use=past)) == plan(snapshot)
    run = ScenarioRun(snapshot)
    assert any(not run.apply(plan(run.snapshot)) for _ in range(20))


GUARANTEED = replace(
    SMALL,
    fixed=False,
    external=False,
    guarantees=False,
    patience=False,
    oversubscribed=False,
    stops=False,
    pauses=False,
)


@settings(deadline=None)
@given(snapshots(GUARANTEED), st.randoms(use_true_random=False))
def test_who_fits_in_its_quota_runs_whatever_it_used(snapshot: Snapshot, random: Random) -> None:
    run = ScenarioRun(with_a_past(snapshot, random))
    for _ in range(20):
        if not run.apply(plan(run.snapshot)):
            break
    stable, policy = run.snapshot, run.snapshot.policy
    holds: dict[tuple[str, str], int] = {}
    paths: dict[str, list[Project | Department]] = {
        it.name: [it, *(up for up in policy.departments if up.name == it.department)] for it in policy.projects
    }
    for held_by in stable.active:
        for queue in paths[held_by.project]:
            for pool, count in held_by.slots.items():
                holds[queue.name, pool] = holds.get((queue.name, pool), 0) + count
    sizes = {pool.name: pool.capacity for pool in policy.pools}
    for job in stable.waiting:
        if job.held or (job.backoff_until or NOW) > NOW:
            continue
        for need in job.demand:
            fits = all(count <= sizes.get(pool, 0) for pool, count in need.items())
            assert not fits or not all(
                holds.get((queue.name, pool), 0) + count <= min(queue.quota.get(pool, 0), queue.limit.get(pool, 99))
                for queue in paths[job.project]
                for pool, count in need.items()
            )
