"""What would let a job start: the trials that advice is made of."""

from dataclasses import replace

import pytest

from job_queue.scheduler import (
    MAX_PRIORITY,
    Carrier,
    GpuAllocation,
    JobState,
    Policy,
    Snapshot,
    WaitingJob,
    WhatIf,
    plan,
)
from job_queue.scheduler.what_if import OutOfTimeError, RaisedAmount, WhatIfOutcome
from tests.builders import a_policy, a_snapshot, active, department, project, stopping, waiting

JOB = waiting("job", priority=5)
AT_ONCE = WhatIfOutcome(at_once=True)


def test_a_higher_priority_stops_another() -> None:
    trial = WhatIf(a_snapshot(active("other", priority=5), JOB, policy=1), JOB)
    assert trial.with_job_changes(priority=6) == WhatIfOutcome(at_once=False, after=("other",))
    assert trial.with_job_changes(priority=5) is None


def test_a_smaller_demand_starts_at_once() -> None:
    job = waiting("job", 2)
    trial = WhatIf(a_snapshot(active("other"), job, policy=2), job)
    assert trial.if_resubmitted(demand=({"p5": 1},)) == AT_ONCE


def test_who_counts_on_a_stop_that_is_under_way_waits_for_no_eviction() -> None:
    trial = WhatIf(a_snapshot(stopping("old"), JOB, policy=1), JOB)
    assert trial.with_job_changes() == WhatIfOutcome(at_once=False)


def test_submitted_anew_it_stands_behind_its_equals() -> None:
    rival, job = waiting("rival", waited=50), waiting("job", waited=60)
    trial = WhatIf(a_snapshot(rival, job, policy=1), job)
    assert trial.with_job_changes() == AT_ONCE
    assert trial.if_resubmitted() is None


def test_priorities_that_bring_it_past_a_rival_up_to_the_ceiling() -> None:
    policy = a_policy(2, [project("a", 2, priority_ceiling=7), project("b")])
    jobs = (active("r", priority=5), waiting("x", priority=7), active("other", priority=9, project="b"))
    assert WhatIf(a_snapshot(*jobs, JOB, policy=policy), JOB).priorities() == [6, 7]
    assert WhatIf(a_snapshot(*jobs[:2], JOB, policy=2), JOB).priorities() == [6, 7, 8]


def test_no_priority_exceeds_the_highest() -> None:
    assert WhatIf(a_snapshot(active("r", priority=MAX_PRIORITY), JOB, policy=1), JOB).priorities() == [MAX_PRIORITY]


def test_a_quota_for_a_job_that_is_not_preemptible_is_compared_with_jobs_like_it() -> None:
    job = waiting("job", preemptible=False)
    others = [active(f"r{number}") for number in range(5)]
    trial = WhatIf(a_snapshot(*others, active("n", preemptible=False), job, policy=a_policy(8, [project("a", 1)])), job)
    assert trial.policy_with_room("quota")[1] == [RaisedAmount("a", "p5", 1, 2)]


def test_a_preemptible_carrier_does_not_count_against_the_quota_of_a_job_that_is_not_preemptible() -> None:
    carrier = Carrier("carrier", "p5", "a", "", 8, JobState.RUNNING, 0.0)
    for preemptible, needed in ((True, 1), (False, 2)):
        job = waiting("job", preemptible=False)
        snapshot = a_snapshot(job, policy=a_policy(8, [project("a", 0)]))
        snapshot = replace(snapshot, carriers=(replace(carrier, preemptible=preemptible),))
        assert WhatIf(snapshot, job).policy_with_room("quota")[1] == [RaisedAmount("a", "p5", 0, needed)]


def test_the_pools_of_its_project() -> None:
    policy = a_policy({"p5": 1, "p4": 1}, [project("a", pools=("p4",))])
    assert list(WhatIf(a_snapshot(JOB, policy=policy), JOB).pools()) == ["p4"]
    assert list(WhatIf(a_snapshot(JOB, policy=a_policy({"p5": 1, "p4": 1})), JOB).pools()) == ["p5", "p4"]
    own = a_policy({"p5": 1, "p4": 1, "g6": 1}, [project("a", pools=("p4",), interactive_pools=("g6",))])
    shell = replace(JOB, interactive=True)
    assert list(WhatIf(a_snapshot(shell, policy=own), shell).pools()) == ["g6"]
    assert list(WhatIf(a_snapshot(JOB, policy=own), JOB).pools()) == ["p4"]


def full_limits() -> Policy:
    return a_policy(4, [project("a", 1, department="x", limit=1)], [department("x", 1, limit=1)])


def test_limits_are_raised_at_every_level_where_they_stand_in_its_way() -> None:
    job = waiting("job")
    trial = WhatIf(a_snapshot(active("r"), stopping("s"), job, policy=full_limits()), job)
    policy, raises = trial.policy_with_room("limit")
    assert raises == [RaisedAmount("a", "p5", 1, 2), RaisedAmount("x", "p5", 1, 2)]
    assert (policy.projects[0].limit, policy.departments[0].limit) == ({"p5": 2}, {"p5": 2})
    no_limits = a_snapshot(active("r"), job, policy=4)
    assert WhatIf(no_limits, job).policy_with_room("limit")[1] == []


def test_under_a_policy_with_higher_limits_it_starts() -> None:
    job = waiting("job")
    trial = WhatIf(a_snapshot(active("r"), job, policy=full_limits()), job)
    assert trial.under_policy(full_limits()) is None
    assert trial.under_policy(trial.policy_with_room("limit")[0]) == AT_ONCE


def test_quotas_are_not_raised_over_what_the_pool_holds() -> None:
    job = waiting("job", preemptible=False)
    jobs = (active("r", preemptible=False), job)
    owners = [project("a", 1), project("b", 1)]
    assert WhatIf(a_snapshot(*jobs, policy=a_policy(2, owners)), job).policy_with_room("quota")[1] == []
    assert WhatIf(a_snapshot(*jobs, policy=a_policy(3, owners)), job).policy_with_room("quota")[1] == [
        RaisedAmount("a", "p5", 1, 2)
    ]
    over = a_policy(2, owners, allow_oversubscription=True)
    assert WhatIf(a_snapshot(*jobs, policy=over), job).policy_with_room("quota")[1] == [RaisedAmount("a", "p5", 1, 2)]


def test_out_of_time_nothing_more_is_tried() -> None:
    with pytest.raises(OutOfTimeError):
        WhatIf(a_snapshot(JOB), JOB, lambda: False).with_job_changes()


def test_trying_leaves_the_snapshot_as_it_is() -> None:
    snapshot = a_snapshot(active("other", priority=5), JOB, policy=1)
    before = plan(snapshot)
    WhatIf(snapshot, JOB).with_job_changes(priority=9)
    assert plan(snapshot) == before


# --- members -----------------------------------------------------------------------------------------


def with_a_carrier(*members: WaitingJob, priority: int = 0) -> Snapshot:
    """All eight GPUs of the only instance are taken, four of them by each of two."""
    policy = a_policy(1, [project("a", 1, limit=1)])
    shared = replace(policy, pools=(replace(policy.pools[0], gpus=8),))
    there = [
        replace(
            active(name, priority=priority), slots={}, allocation=GpuAllocation("carrier", gpus), demand=({"p5": 1},)
        )
        for name, gpus in (("left", (0, 1, 2, 3)), ("right", (4, 5, 6, 7)))
    ]
    snapshot = a_snapshot(*there, *members, policy=shared)
    return replace(snapshot, carriers=(Carrier("carrier", "p5", "a", "", 8, JobState.RUNNING, snapshot.now - 600),))


def test_a_member_would_start_if_others_made_room_or_it_were_smaller() -> None:
    member = replace(waiting("member", priority=0), gpus=40)
    trial = WhatIf(with_a_carrier(member), member)
    assert trial.with_job_changes() is None
    outcome = trial.with_job_changes(priority=1)
    assert outcome is not None and not outcome.at_once and len(outcome.after) == 1
    emptier = with_a_carrier(member)
    emptier = replace(emptier, active=emptier.active[:1])
    assert WhatIf(emptier, member).with_job_changes() == AT_ONCE
    nobody = replace(emptier, active=(), carriers=())
    assert WhatIf(nobody, member).with_job_changes() == AT_ONCE, "its carrier is launched"


def test_a_carrier_counts_against_its_projects_limit() -> None:
    job = waiting("job")
    policy, raises = WhatIf(with_a_carrier(job), job).policy_with_room("limit")
    assert raises == [RaisedAmount("a", "p5", 1, 2)]
    assert policy.projects[0].limit == {"p5": 2}
