"""`idle_after`: a job whose GPUs do nothing is the first to make room, among those that may be asked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.scheduler import ActiveJob, JobState, Project, Rule, Snapshot, plan
from tests.builders import NOW, a_policy, a_snapshot, active, waiting
from tests.unit.scheduler.decided import evicted
from tests.unit.scheduler.snapshots import snapshots

HOUR = 3600.0


def idle(name: str, hours: float = 3, **fields: object) -> ActiveJob:
    return active(name, idle_since=NOW - hours * HOUR, **fields)  # type: ignore[arg-type]


def test_who_is_idle_leaves_before_a_lower_priority_that_works() -> None:
    policy = a_policy(2, idle_after=2 * HOUR)
    decided = plan(
        a_snapshot(active("low", ran=60), idle("held", priority=5), waiting("it", priority=9), policy=policy)
    )
    assert evicted(decided) == {"held": "it"}


@pytest.mark.parametrize("idle_after", [None, 3 * HOUR + 1])
def test_without_the_setting_or_before_its_time_nobody_counts_as_idle(idle_after: float | None) -> None:
    policy = a_policy(2, idle_after=idle_after)
    decided = plan(
        a_snapshot(active("low", ran=60), idle("held", priority=5), waiting("it", priority=9), policy=policy)
    )
    assert evicted(decided) == {"low": "it"}


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(idle("held", priority=9), id="its own priority"),
        pytest.param(idle("held", preemptible=False), id="not preemptible"),
        pytest.param(idle("held", stop_denied=True), id="cannot be stopped"),
        pytest.param(idle("held", state=JobState.STARTING, started=None), id="being launched"),
        pytest.param(idle("held", ran=599), id="guaranteed runtime"),
        pytest.param(idle("held", project="b"), id="another project's, within its quota"),
    ],
)
def test_nobody_may_be_asked_for_being_idle_who_might_not_be_otherwise(spared: ActiveJob) -> None:
    projects = [Project("a", quota={"default": 1}), Project("b", quota={"default": 1})]
    policy = a_policy(2, projects, idle_after=2 * HOUR, min_runtime=600)
    decided = plan(a_snapshot(spared, active("works", priority=8), waiting("it", priority=9), policy=policy))
    assert evicted(decided) == {"works": "it"}


def test_of_a_project_that_has_to_give_who_is_idle_leaves() -> None:
    projects = [Project("a", quota={"default": 2}), Project("b")]
    policy = a_policy(2, projects, idle_after=2 * HOUR)
    held = (active("low", project="b", ran=60), idle("held", project="b", priority=5))
    assert evicted(plan(a_snapshot(*held, waiting("it"), policy=policy))) == {"held": "it"}


@given(snapshots(), st.integers(0, 2**12 - 1))
def test_while_nobody_asks_for_it_being_idle_changes_no_plan(snapshot: Snapshot, chosen: int) -> None:
    jobs = tuple(
        replace(job, idle_since=NOW - HOUR) if chosen >> place & 1 else job for place, job in enumerate(snapshot.active)
    )
    assert plan(replace(snapshot, active=jobs)) == plan(snapshot)


def test_who_goes_as_it_is_idle_is_told_from_who_goes_by_its_priority() -> None:
    policy = a_policy(2, idle_after=2 * HOUR)
    both = (idle("held", priority=5), active("low"), waiting("it", priority=9), waiting("too", priority=9))
    assert {it.job: it.idle for it in plan(a_snapshot(*both, policy=policy)).evictions} == {"held": True, "low": False}


def test_who_left_idle_waits_for_what_is_free_and_takes_nothing_from_lower_priorities() -> None:
    left = waiting("held", priority=5, left_idle=True)
    (hold,) = plan(a_snapshot(active("low"), left, policy=a_policy(1))).holds
    assert hold.message.endswith("so it preempts no other job until it has run again.")
    free = plan(a_snapshot(active("low"), left, policy=a_policy(2)))
    assert [it.job for it in free.starts] == ["held"]


def test_its_projects_share_it_may_claim() -> None:
    jobs = (active("b0", project="b"), active("b1", project="b", ran=60))
    policy = a_policy(2, [Project("a", quota={"default": 1}), Project("b", quota={"default": 1})])
    assert evicted(plan(a_snapshot(*jobs, waiting("held", left_idle=True), policy=policy))) == {"b1": "held"}


@given(snapshots(), st.integers(0, 2**12 - 1))
def test_nobody_is_preempted_for_who_left_idle(snapshot: Snapshot, chosen: int) -> None:
    jobs = tuple(
        replace(job, left_idle=True) if chosen >> place & 1 else job for place, job in enumerate(snapshot.waiting)
    )
    left = {job.name for job in jobs if job.left_idle}
    evictions = plan(replace(snapshot, waiting=jobs)).evictions
    assert not [it for it in evictions if it.rule is Rule.PREEMPT and it.claimant in left]
