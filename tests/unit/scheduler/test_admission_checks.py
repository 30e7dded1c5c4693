"""Who may start, and who is not served at all (sections 3 and 6), each rule with its counter-case."""

import pytest

from job_queue.scheduler import Policy, Project, WaitingJob, WaitReason, plan
from tests.builders import (
    NOW,
    a_policy,
    a_snapshot,
    active,
    department,
    line,
    many,
    project,
    stopping,
    stopping_for,
    waiting,
)
from tests.unit.scheduler.decided import evicted, evicted_by, final, reasons, started

# --- slots ---------------------------------------------------------------------------------------------------------


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
    decided = plan(a_snapshot(job, holder, active("low"), stopping_for("holder", "old", {"p4": 1}), policy=policy))
    assert (evicted(decided), decided.reservations) == ({}, {"job": {"p4": 1}})


def test_external_jobs_use_slots_and_are_left_alone() -> None:
    decided = plan(a_snapshot(waiting("job", priority=9), policy=2, external={"p5": 2}))
    assert reasons(decided) == {"job": WaitReason.WAITING_FOR_CAPACITY}
    assert not decided.evictions
    assert started(plan(a_snapshot(waiting("job"), policy=2, external={"p5": 1}))) == {"job": {"p5": 1}}


def test_a_pool_that_was_made_smaller_starts_nothing_until_it_has_room() -> None:
    decided = plan(a_snapshot(active("a", 2), active("b", 2), waiting("job", priority=9), policy=1))
    assert evicted(decided) == {"a": "job", "b": "job"}  # one alone would leave the pool full
    decided = plan(a_snapshot(active("a", 2), active("b", 2, priority=9), waiting("job", priority=9), policy=1))
    assert (decided.starts, decided.evictions) == ((), ())


# --- limits, and quota for jobs that are not preemptible -----------------------------------------------------------


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
        assert reasons(decided) == {"w": WaitReason.OVER_LIMIT}


def test_stopping_slots_count_until_they_are_gone() -> None:
    policy = a_policy(4, [project("a", 1, limit=1)])
    snapshot = a_snapshot(stopping("s"), waiting("w"), policy=policy)
    decided = plan(snapshot)
    assert (started(decided), reasons(decided)) == ({}, {"w": WaitReason.WAITING_FOR_STOPPING})
    assert final(snapshot) == {"w"}


def test_to_get_under_its_limit_a_project_preempts_though_slots_are_free() -> None:
    policy = a_policy(4, [project("a", 1, limit=1)])
    assert evicted_by(plan(a_snapshot(active("low"), waiting("high", priority=9), policy=policy))) == {
        "low": ("high", "preempt")
    }
    assert not evicted_by(plan(a_snapshot(active("low"), waiting("equal"), policy=policy)))


def test_to_get_under_a_departments_limit_victims_come_from_it() -> None:
    projects = [project("a", 1, over_quota=0, department="x"), project("b", 1, department="x"), project("c", 0)]
    policy = a_policy(6, projects, [department("x", 2, limit=2)])
    jobs = (*many(2, "a", project="a"), *many(3, "c", project="c"), waiting("wb", project="b"))
    assert evicted_by(plan(a_snapshot(*jobs, policy=policy))) == {"a1": ("wb", "reclaim")}


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
        assert reasons(decided) == {"w": WaitReason.OVER_QUOTA_NON_PREEMPTIBLE}


def test_preemptible_jobs_of_the_project_do_not_count_as_fixed() -> None:
    policy = a_policy(4, [project("a", 1), project("b", 2)])
    assert list(started(plan(a_snapshot(active("r"), waiting("w", preemptible=False), policy=policy)))) == ["w"]


def test_two_jobs_that_are_not_preemptible_do_not_share_one_slot_of_quota() -> None:
    policy = a_policy(4, [project("a", 1), project("b", 2)])
    decided = plan(a_snapshot(*line(2, "w", preemptible=False), policy=policy))
    assert list(started(decided)) == ["w0"]


# --- who is not served at all --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (waiting("job", 9, held=True), WaitReason.HELD_BY_USER),
        (waiting("job", 9, held=True, after=(("other", False),)), WaitReason.HELD_BY_USER),
        (waiting("job", 9, after=(("other", False),), backoff_until=NOW + 1), WaitReason.DEPENDENCY),
        (waiting("job", 9, backoff_until=NOW + 1), WaitReason.BACKOFF),
        (waiting("job", {"none": 1}), WaitReason.NO_SUCH_POOL),
        (waiting("job", {"p5": 1, "none": 1}), WaitReason.NO_SUCH_POOL),
        (waiting("job", {"none": 1}, {"p5": 3}), WaitReason.NEVER_FITS),
        (waiting("job", 3), WaitReason.NEVER_FITS),
    ],
)
def test_who_cannot_be_served_is_told_so_and_blocks_nobody(job: WaitingJob, reason: WaitReason) -> None:
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
    assert reasons(plan(a_snapshot(waiting("job"), policy=policy))) == {"job": WaitReason.NO_SUCH_POOL}
    assert list(started(plan(a_snapshot(waiting("job", {"p4": 1}), policy=policy)))) == ["job"]
