"""What would let a waiting job start: the right sentence is there, and whatever is promised is true."""

import re
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given

from job_queue.scheduler import REMEDIES, Hold, Snapshot, WaitingJob, WaitReason, plan
from job_queue.services.advice import advise
from tests.builders import NOW, a_policy, a_snapshot, active, department, project, stopping, waiting
from tests.unit.scheduler.snapshots import Kind, snapshots

FLEET = a_policy({"p5": 1, "c6": 1}, ["a"])


@pytest.mark.parametrize(
    ("snapshot", "advice"),
    [
        pytest.param(
            a_snapshot(active("x", priority=5), active("y", priority=7), waiting("job", priority=3)),
            "With a priority of 6 it would start as soon as x has stopped: smq set-priority job 6.",
            id="a higher priority",
        ),
        pytest.param(
            a_snapshot(active("x", 1), waiting("job", 2)),
            "Submitted with 1 instance of p5 instead of 2 it would start at once.",
            id="fewer instances",
        ),
        pytest.param(
            a_snapshot(waiting("job", 3)),
            "Submitted with 2 instances of p5 instead of 3 it would start at once.",
            id="as many as the pool has",
        ),
        pytest.param(
            a_snapshot(active("x"), waiting("job", priority=1), policy=FLEET),
            "Submitted with the tag pools=p5+c6 it would start at once, on 1 instance of c6.",
            id="another pool",
        ),
        pytest.param(
            a_snapshot(waiting("job", {"gone": 1}), policy=FLEET),
            "Submitted with the tag pools=p5 it would start at once, on 1 instance of p5.",
            id="a pool that exists",
        ),
        pytest.param(
            a_snapshot(waiting("job", preemptible=False), policy=a_policy(2, [project("a", 0)])),
            "Submitted as a job that may be stopped (tag preemptible=true) it would start at once.",
            id="preemptible",
        ),
        pytest.param(
            a_snapshot(
                active("x", 3, max_runtime=9000),
                waiting("gang", 4, waited=7200),
                waiting("job"),
                policy=a_policy(4, patience=1800),
            ),
            "Submitted with a MaxRuntimeInSeconds of at most 3600 (1 h 0 min) it would start at once, without a "
            "delay for the job that comes first.",
            id="a shorter runtime",
        ),
        pytest.param(
            a_snapshot(active("x", 2), waiting("job"), policy=a_policy(4, [project("a", 2, limit=2)])),
            "With a limit of 3 of p5 for a (now 2) in the policy it would start at once.",
            id="a higher limit",
        ),
        pytest.param(
            a_snapshot(
                active("x", 1),
                *[active(f"y{n}", project="b") for n in range(3)],
                waiting("job"),
                policy=a_policy(
                    4, [project("a", 1, department="d"), project("b", 0, over_quota=100)], [department("d", 1)]
                ),
            ),
            "With a quota of 2 of p5 for a (now 1) and a quota of 2 of p5 for d (now 1) in the policy it would start "
            "as soon as y0 has stopped.",
            id="a higher quota",
        ),
        pytest.param(
            a_snapshot(active("x"), waiting("job", held=True)),
            "Release it: smq release job. It would start at once.",
            id="held",
        ),
        pytest.param(
            a_snapshot(active("x", 2), waiting("job", held=True)),
            "Release it: smq release job. It would still wait.",
            id="held, and no room",
        ),
        pytest.param(
            a_snapshot(stopping("x", 2), waiting("job")),
            "Nothing to do: it starts when the jobs that make room have stopped, within a few minutes.",
            id="slots are being freed",
        ),
    ],
)
def test_the_advice(snapshot: Snapshot, advice: str) -> None:
    assert advice in advise(snapshot, hold_of(snapshot))


@pytest.mark.parametrize("reason", WaitReason)
def test_there_is_advice_for_every_reason(reason: WaitReason) -> None:
    snapshot = a_snapshot(active("x", 2), waiting("job"))
    assert advise(snapshot, replace(hold_of(snapshot), reason=reason)), "write a remedy for the new reason"


def test_a_job_that_sagemaker_refuses_each_time_is_not_told_to_do_nothing() -> None:
    """A quota of 0, for instance: the reason names the cause, and waiting does not help."""
    quota = "No quota of this account allows the job. Ask AWS for 1 or more, or change the job."
    job = waiting("job", refusal=quota, on_free_slots_only=True, backoff_until=NOW + 300)
    snapshot = a_snapshot(job)
    hold = hold_of(snapshot)
    assert hold.reason is WaitReason.BACKOFF
    assert quota in hold.message
    (advice,) = advise(snapshot, hold)
    assert advice.startswith("The queue tries again, but each launch fails. Remove the cause")
    once = a_snapshot(replace(job, on_free_slots_only=False))
    assert advise(once, hold_of(once)) == ["Nothing to do: the queue tries again."]


def test_a_reason_without_a_remedy_gives_no_advice() -> None:
    snapshot = a_snapshot(
        active("x", 2, priority=9), waiting("job"), policy=a_policy(2, [project("a", 2, priority_ceiling=0)])
    )
    unknown = cast(WaitReason, "A_NEW_REASON")
    assert advise(snapshot, replace(hold_of(snapshot), reason=unknown)) == []


def test_a_job_that_no_pool_can_run_gets_general_advice() -> None:
    job = replace(waiting("job"), demand=(), unusable="It cannot run in p5: its VpcConfig names a network.")
    snapshot = a_snapshot(job, policy=FLEET)
    hold = hold_of(snapshot)
    assert hold.message == (
        "No pool that it accepts can run it; its project may use the pools c6 and p5. It cannot run in p5: its "
        "VpcConfig names a network."
    )
    assert advise(snapshot, hold) == [REMEDIES[WaitReason.NO_SUCH_POOL]]


def test_a_priority_beyond_what_the_project_may_use_is_not_advised() -> None:
    jobs = active("x", priority=5), waiting("job", priority=3)
    for ceiling, advised in ((6, True), (5, False)):
        snapshot = a_snapshot(*jobs, policy=a_policy(1, [project("a", 1, priority_ceiling=ceiling)]))
        advice = advise(snapshot, hold_of(snapshot))
        assert any("priority" in sentence for sentence in advice) is advised
        assert advice[-1] == "Wait: it starts when enough of the jobs that block it have ended."


def test_advice_before_submission_names_no_command() -> None:
    snapshot = a_snapshot(active("x", 2, priority=5), waiting("job", priority=3))
    advice = advise(snapshot, hold_of(snapshot), submitted=False)
    assert advice[0] == "With a priority of 6 it would start as soon as x has stopped."


def test_a_quota_that_no_policy_may_have_is_not_advised() -> None:
    full = a_policy(2, [project("a", 1), project("b", 1)])
    snapshot = a_snapshot(active("x"), active("y", project="b"), waiting("job"), policy=full)
    assert not any("quota" in sentence for sentence in advise(snapshot, hold_of(snapshot)))


@pytest.mark.parametrize("trials", range(6))
def test_what_was_found_in_time_is_advised(trials: int) -> None:
    snapshot = a_snapshot(active("x", 2, priority=5), waiting("job", 2, priority=3))
    everything = advise(snapshot, hold_of(snapshot))
    left = iter(range(trials))
    advice = advise(snapshot, hold_of(snapshot), may_go_on=lambda: next(left, None) is not None)
    assert advice[-1] == everything[-1]
    assert advice[:-1] == everything[: len(advice) - 1]
    assert (len(advice) > 1) is (trials >= 2), "the first remedy takes two trials"


@given(snapshots(Kind(pools=2, projects=4, departments=2, jobs=6)))
def test_what_is_promised_is_true(snapshot: Snapshot) -> None:
    for hold in plan(snapshot).holds:
        job = next(job for job in snapshot.waiting if job.name == hold.job)
        advice = advise(snapshot, hold)
        assert advice, hold
        for sentence in advice:
            if found := re.match(r"With a priority of (-?\d+) it would start", sentence):
                assert starts(snapshot, replace(job, priority=int(found[1])))
                assert not any(starts(snapshot, replace(job, priority=it)) for it in range(job.priority, int(found[1])))
            if found := re.match(r"Submitted with (\d+) instances? of \S+ instead", sentence):
                smaller = tuple({pool: min(int(found[1]), n) for pool, n in need.items()} for need in job.demand)
                assert starts(snapshot, replace(job, demand=smaller, entered=snapshot.now))
            if found := re.match(r"Submitted with the tag pools=(?:\S+\+)?(\S+) it would", sentence):
                count = max(job.demand[0].values())
                wider = (*job.demand, {found[1]: count})
                assert starts(snapshot, replace(job, demand=wider, entered=snapshot.now))


def hold_of(snapshot: Snapshot) -> Hold:
    return next(hold for hold in plan(snapshot).holds if hold.job == "job")


def starts(snapshot: Snapshot, changed: WaitingJob) -> bool:
    """Whether the job, other than it is, starts or has slots set aside."""
    others = tuple(job for job in snapshot.waiting if job.name != changed.name)
    decided = plan(replace(snapshot, waiting=(*others, changed)))
    return changed.name in decided.reservations or any(start.job == changed.name for start in decided.starts)
