"""Jobs that accept several sizes: alternatives of the same pools with fewer instances, best first."""

import pytest

from job_queue.scheduler import Backfill, PausedPool, Slots, WaitReason, WhatIf, plan
from job_queue.scheduler.candidates import smallest_alternatives
from job_queue.scheduler.model import is_larger
from job_queue.services.advice import advise
from tests.builders import NOW, a_policy, a_snapshot, active, project, stopping, stopping_for, waiting
from tests.unit.scheduler.decided import evicted, evicted_by, next_snapshot, reasons, started

SIZES = (8, 4, 2)
TWO_POOLS: tuple[Slots, ...] = ({"p5": 4}, {"p4": 4}, {"p5": 2}, {"p4": 2})


@pytest.mark.parametrize(("busy", "size"), [(0, 8), (1, 4), (4, 4), (5, 2), (6, 2)])
def test_it_starts_with_the_largest_size_that_is_free(busy: int, size: int) -> None:
    others = [active("other", busy)] if busy else []
    assert started(plan(a_snapshot(*others, waiting("e", *SIZES), policy=8))) == {"e": {"p5": size}}


def test_the_size_comes_before_the_pool() -> None:
    policy = a_policy({"p5": 2, "p4": 4})
    assert started(plan(a_snapshot(waiting("e", *TWO_POOLS), policy=policy))) == {"e": {"p4": 4}}


def test_it_never_fits_only_if_the_smallest_does_not() -> None:
    decided = plan(a_snapshot(waiting("e", *SIZES), waiting("small"), policy=1))
    assert reasons(decided)["e"] is WaitReason.NEVER_FITS
    assert decided.holds[0].message == (
        "It needs 8, 4 or 2 instances of p5, but there are only 1 of p5 in total, so it can never start."
    )
    assert started(plan(a_snapshot(waiting("e", *SIZES), policy=3))) == {"e": {"p5": 2}}


def test_one_that_runs_is_not_made_to_grow() -> None:
    assert plan(a_snapshot(active("e", 2, demand=_sizes()), policy=8)).evictions == ()


def test_nobody_makes_one_that_runs_shrink() -> None:
    """As consolidation would: it would fit in another pool with fewer instances."""
    running, claimant = active("e", {"p5": 4}, demand=TWO_POOLS), waiting("x", {"p5": 4})
    assert evicted(plan(a_snapshot(running, claimant, policy=a_policy({"p5": 4, "p4": 2})))) == {}
    moved = plan(a_snapshot(running, claimant, policy=a_policy({"p5": 4, "p4": 4})))
    assert evicted_by(moved) == {"e": ("x", "consolidate")}


def test_one_that_runs_asks_for_its_largest_size_as_while_it_waited() -> None:
    """So nothing changes for others with each start and stop, and it may come back with what is its project's due."""
    policy = a_policy(8, projects=[project("a", 4), project("b", 4)])
    small = active("e", 2, demand=_sizes())
    asked = plan(a_snapshot(small, waiting("other", 8, project="b"), policy=policy))
    assert asked.shares["p5"]["a"] == 4
    again = plan(a_snapshot(waiting("e", *SIZES), waiting("other", 8, project="b"), policy=policy))
    assert again.shares["p5"]["a"] == 4


def test_others_leave_for_the_best_size_that_its_priority_and_share_allow() -> None:
    low = [active(f"low{n}", 2, priority=0) for n in range(4)]
    assert len(evicted(plan(a_snapshot(*low, waiting("e", *SIZES), policy=8)))) == 4
    protected = [active("high", 4, priority=9), *low[:2]]
    assert len(evicted(plan(a_snapshot(*protected, waiting("e", *SIZES), policy=8)))) == 2
    policy = a_policy(8, projects=[project("a", 4), project("b", 4)])
    borrowed = [active(f"b{n}", 1, project="b") for n in range(8)]
    reclaimed = plan(a_snapshot(*borrowed, waiting("e", *SIZES, project="a"), policy=policy))
    assert len(evicted(reclaimed)) == 4


def test_nobody_leaves_while_a_smaller_size_is_free() -> None:
    decided = plan(a_snapshot(active("low", 6, priority=0), waiting("e", *SIZES, priority=9), policy=8))
    assert started(decided) == {"e": {"p5": 2}}
    assert not decided.evictions


def test_it_waits_for_the_size_for_which_others_are_being_stopped() -> None:
    """On the first slots that come free it could start with fewer: the other would have been stopped for nothing."""
    stops = [stopping_for("e", "gone", 4)]
    snapshot = a_snapshot(*stops, waiting("e", 8, 4, 2), policy=8, reserved={"e": {"p5": 8}})
    decided = plan(snapshot)
    assert not started(decided)
    assert decided.reservations == {"e": {"p5": 8}}
    assert started(plan(next_snapshot(snapshot))) == {"e": {"p5": 8}}


def test_in_another_pool_it_does_not_start_smaller_either() -> None:
    policy = a_policy({"p5": 4, "p4": 2})
    promised = a_snapshot(
        stopping_for("e", "gone", {"p5": 4}), waiting("e", *TWO_POOLS), policy=policy, reserved={"e": {"p5": 4}}
    )
    assert not started(plan(promised))
    policy = a_policy({"p5": 4, "p4": 4})
    promised = a_snapshot(
        stopping_for("e", "gone", {"p5": 4}), waiting("e", *TWO_POOLS), policy=policy, reserved={"e": {"p5": 4}}
    )
    assert started(plan(promised)) == {"e": {"p4": 4}}


def test_it_starts_smaller_where_what_was_promised_will_not_come() -> None:
    """The stop was denied, or capacity has gone."""
    snapshot = a_snapshot(active("stays", 4), waiting("e", 8, 4, 2), policy=8, reserved={"e": {"p5": 8}})
    assert started(plan(snapshot)) == {"e": {"p5": 4}}


def test_a_patient_one_keeps_slots_for_the_smallest_size() -> None:
    """With that it starts: what it keeps stands idle for no longer than until then."""
    patient, rigid = waiting("e", *SIZES, waited=3600), waiting("e", 8, waited=3600)
    bounded = a_policy(8, backfill=Backfill.BOUNDED)
    decided = plan(a_snapshot(active("long", 7), patient, waiting("small", 1), policy=bounded))
    assert reasons(decided)["small"] is WaitReason.KEPT_FOR_PATIENT_JOB
    # The first that ends leaves it enough: only who has ended by then may pass.
    soon, later = active("soon", 1, ran=0, max_runtime=3600), active("later", 6, ran=0, max_runtime=86400)
    short, longer = waiting("short", 1, max_runtime=1800), waiting("longer", 1, max_runtime=7200)
    assert started(plan(a_snapshot(soon, later, patient, short, policy=8))) == {"short": {"p5": 1}}
    assert started(plan(a_snapshot(soon, later, patient, longer, policy=8))) == {}
    assert started(plan(a_snapshot(soon, later, rigid, longer, policy=8))) == {"longer": {"p5": 1}}


def test_a_pool_that_lacks_the_large_size_is_asked_for_the_small_one() -> None:
    paused = {"p5": PausedPool(until=NOW + 60, instances=3)}
    assert started(plan(a_snapshot(waiting("e", *SIZES), policy=8, paused=paused))) == {"e": {"p5": 2}}


def test_a_limit_that_leaves_room_for_the_small_size() -> None:
    policy = a_policy(8, projects=[project("a", 0, limit=3)])
    assert started(plan(a_snapshot(waiting("e", *SIZES), policy=policy))) == {"e": {"p5": 2}}
    busy = a_snapshot(active("other", 2), waiting("e", *SIZES), policy=policy)
    (hold,) = plan(busy).holds
    assert hold.reason is WaitReason.OVER_LIMIT
    _, raises = WhatIf(busy, busy.waiting[0]).policy_with_room("limit")
    assert [(it.now, it.needed) for it in raises] == [(3, 4)]


def test_advice_counts_from_the_smallest_size() -> None:
    snapshot = a_snapshot(active("other", 7), waiting("e", *SIZES), policy=8)
    (hold,) = plan(snapshot).holds
    advice = advise(snapshot, hold)
    assert "Submitted with 1 instance of p5 instead of 2 it would start at once." in advice


def test_the_message_names_the_sizes() -> None:
    snapshot = a_snapshot(stopping("s", 4), active("other", 4), waiting("e", 8, 6), policy=8)
    (hold,) = plan(snapshot).holds
    assert "needs 8 or 6 instances of p5" in hold.message.lower()


def test_which_of_the_alternatives_are_sizes() -> None:
    assert is_larger({"p5": 2}, {"p5": 1})
    assert not is_larger({"p5": 2}, {"p5": 2})
    assert not is_larger({"p5": 2}, {"p4": 1})
    assert not is_larger({"p5": 2, "c6": 1}, {"p5": 1})
    assert smallest_alternatives(TWO_POOLS) == ({"p5": 2}, {"p4": 2})
    assert smallest_alternatives(({"p5": 1, "c6": 2}, {"p5": 2, "c6": 1})) == ({"p5": 1, "c6": 2}, {"p5": 2, "c6": 1})


def _sizes() -> tuple[Slots, ...]:
    return tuple({"p5": size} for size in SIZES)
