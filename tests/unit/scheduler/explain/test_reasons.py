"""Why a job waits: the reason and the sentence."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Order, Plan, Project, WaitingJob, WaitReason, plan
from tests.builders import NOW, a_policy, a_snapshot, active, department, line, many, project, starting, waiting
from tests.unit.scheduler.decided import evicted_by, reasons

# --- in one project ------------------------------------------------------------------------------------------------


def test_the_sentence_has_the_figures() -> None:
    jobs = (active("job-a", 1, priority=5), active("job-b", 1, priority=3, project="b"))
    snapshot = a_snapshot(*jobs, waiting("job", 2, priority=5), policy=a_policy(4, ["a", "b"]), external={"p5": 1})
    (hold,) = plan(snapshot).holds
    assert hold.reason is WaitReason.WAITING_FOR_CAPACITY
    assert hold.message == (
        "It needs 2 instances of p5; 1 of 4 is free, 2 are used by job-a (priority 5) and job-b (priority 3), "
        "1 by jobs outside the queue. No job of its project runs there with a lower priority than 5. "
        "Other projects keep their instances: b holds 1 of p5 and is entitled to 4."
    )
    assert hold.blockers == ("job-a", "job-b")
    assert hold.ahead == ()


def test_the_one_pool_without_a_policy_needs_no_name() -> None:
    jobs = (active("other", {"default": 2}), waiting("job", {"default": 1}))
    (hold,) = plan(a_snapshot(*jobs, policy=a_policy({"default": 2}))).holds
    assert hold.message.startswith("It needs 1 instance; 0 of 2 are free, 2 are used by other (priority 1).")


def test_who_waits_behind_another_of_its_project_is_told_behind_whom() -> None:
    jobs = [waiting(f"job{place}", waited=99 - place) for place in range(4)]
    other = waiting("other", project="b", waited=50)
    decided = plan(a_snapshot(active("busy", 2), *jobs, other, policy=a_policy(2, ["a", "b"])))
    holds = {hold.job: hold for hold in decided.holds}
    assert [hold.job for hold in decided.holds] == ["other", "job0", "job1", "job2", "job3"]
    assert holds["job0"].reason is WaitReason.WAITING_FOR_CAPACITY
    assert holds["other"].reason is WaitReason.WAITING_FOR_CAPACITY
    assert holds["job0"].ahead == ("other",)
    assert holds["job3"].reason is WaitReason.BEHIND_OTHERS
    assert holds["job3"].message.startswith(
        "Waits behind job0 (same priority, submitted earlier) and 2 more jobs, which also wait for instances."
    )
    assert holds["job3"].ahead == ("other", "job0", "job1", "job2")


@pytest.mark.parametrize(
    ("first", "reason", "words"),
    [
        ({"priority": 3}, WaitReason.BEHIND_HIGHER_PRIORITY, "Waits behind first (priority 3), which also waits"),
        ({"waited": 99}, WaitReason.BEHIND_OTHERS, "Waits behind first (same priority, submitted earlier), which"),
    ],
)
def test_the_code_agrees_with_the_priorities(first: dict[str, Any], reason: WaitReason, words: str) -> None:
    decided = plan(
        a_snapshot(active("busy", priority=9), waiting("first", **first), waiting("job"), policy=a_policy(1))
    )
    hold = next(hold for hold in decided.holds if hold.job == "job")
    assert hold.reason is reason
    assert hold.message.startswith(words)


@pytest.mark.parametrize(
    ("long", "short", "words"),
    [
        (
            {"waited": 600, "expected": 7200},
            {"waited": 60, "expected": 300},
            "Waits behind short (same priority), which also waits for instances. short was submitted later and is "
            "expected to run for 5 min, this job for 2 h 0 min. Jobs submitted in 19 h 50 min or later do not pass it. "
            "It needs",
        ),
        (
            {"waited": 600},
            {"waited": 60, "max_runtime": 600},
            "short was submitted later and is expected to run for 10 min, this job for 24 h 0 min (its runtime is not "
            "known). Jobs",
        ),
        (
            {"waited": 80_000, "expected": 7200},
            {"waited": 9000, "expected": 60},
            "this job for 2 h 0 min. Jobs submitted from now on do not pass it.",
        ),
        (
            {"waited": 60, "expected": 7200},
            {"waited": 600, "expected": 300},
            "which also waits for instances. It needs",
        ),
        ({"priority": 0, "waited": 600}, {"waited": 60}, "(priority 1), which also waits for instances. It needs"),
    ],
)
def test_who_waits_behind_a_shorter_one_is_told_of_both_and_until_when(
    long: dict[str, Any], short: dict[str, Any], words: str
) -> None:
    policy = a_policy(1, order=Order.SHORTEST, stretch=10)
    decided = plan(
        a_snapshot(active("busy", priority=9), waiting("long", **long), waiting("short", **short), policy=policy)
    )
    holds = {hold.job: hold for hold in decided.holds}
    assert [hold.job for hold in decided.holds] == ["short", "long"]
    assert words in holds["long"].message


def test_a_job_of_another_pool_is_not_in_the_way() -> None:
    policy = a_policy({"p5": 1, "p4": 1})
    jobs = (active("x"), active("y", {"p4": 1}), waiting("first", waited=99), waiting("second", {"p4": 1}))
    assert set(reasons(plan(a_snapshot(*jobs, policy=policy))).values()) == {WaitReason.WAITING_FOR_CAPACITY}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (active("low", ran=60), "low (guaranteed to run until 1970-01-12 14:35:40 UTC)."),
        (active("low", preemptible=False), "low (may not be stopped)."),
        (active("low"), "low (stopping every job that may be stopped would not free enough)."),
        (starting("low"), "low (still being launched)."),
    ],
)
def test_why_a_lower_priority_stays(other: ActiveJob, words: str) -> None:
    policy = a_policy(2, min_runtime=3000)
    decided = plan(a_snapshot(other, active("top", priority=99), waiting("job", 2, priority=9), policy=policy))
    assert decided.holds[0].message.endswith(words)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            waiting("job", held=True),
            "It is on hold: it keeps its place in the queue and starts only after it is released.",
        ),
        (
            waiting("job", backoff_until=NOW + 300),
            "It could not be launched. The next try is at 1970-01-12 13:51:40 UTC, in 5 min.",
        ),
        (waiting("job", {"none": 1}), "It requests none, but its project may use the pools p4 and p5."),
        (
            waiting("job", 3, {"p4": 2}),
            "It needs 3 instances of p5, or 2 instances of p4, but there are only 2 of p5 and 1 of p4 in total, so it "
            "can never start.",
        ),
    ],
)
def test_the_sentence_of_who_is_not_served_at_all(job: WaitingJob, words: str) -> None:
    (hold,) = plan(a_snapshot(job, policy=a_policy({"p5": 2, "p4": 1}))).holds
    assert hold.message == words


def test_the_sentence_of_who_waits_for_a_stop() -> None:
    jobs = (active("low", 2), waiting("job", 3, priority=9))
    (hold,) = plan(a_snapshot(*jobs, policy=3)).holds
    assert hold.message == (
        "3 instances of p5 are set aside for it. It starts when low (priority 1) has stopped. "
        "It needs 3 instances of p5; 1 of 3 is free (1 set aside for job), 2 are being freed by low (priority 1)."
    )


# --- among projects ------------------------------------------------------------------------------------------------


def reason_of(decided: Plan, name: str) -> tuple[WaitReason, str]:
    return next((hold.reason, hold.message) for hold in decided.holds if hold.job == name)


def test_behind_fair_share() -> None:
    policy = a_policy(3, [project("a", 1), project("b", 2)])
    jobs = (*many(1, "a", project="a"), *many(2, "b", project="b"))
    decided = plan(a_snapshot(*jobs, waiting("w", project="a"), policy=policy))
    assert reason_of(decided, "w") == (
        WaitReason.BEHIND_FAIR_SHARE,
        "The project a holds 1 instance of p5 and is entitled to 1 (quota 1), so no other project has to give way: "
        "b holds 2 and is entitled to 2. It needs 1 instance of p5; 0 of 3 are free, 3 are used by "
        "a0 (priority 1), b0 (priority 1) and b1 (priority 1).",
    )


def test_at_its_share_alone_it_waits_for_capacity() -> None:
    decided = plan(a_snapshot(*many(2, "a"), waiting("w"), policy=a_policy(2)))
    assert reasons(decided) == {"w": WaitReason.WAITING_FOR_CAPACITY}


def test_behind_fair_share_comes_before_behind_a_higher_priority() -> None:
    policy = a_policy(2, [project("a", 1), project("b", 1)])
    jobs = (*many(1, "a", project="a"), *many(1, "b", project="b"), *line(2, "w", project="a"))
    assert set(reasons(plan(a_snapshot(*jobs, policy=policy))).values()) == {WaitReason.BEHIND_FAIR_SHARE}


def test_over_its_limit() -> None:
    policy = a_policy(4, [project("a", 1, limit=2)])
    decided = plan(a_snapshot(*many(2, "a"), waiting("w"), policy=policy))
    assert reason_of(decided, "w") == (
        WaitReason.OVER_LIMIT,
        "It needs 1 instance of p5. The project a holds 2 instances of p5, and its limit is 2.",
    )


def test_over_its_departments_quota() -> None:
    policy = a_policy(4, [project("a", 2, department="x")], [department("x", 1)])
    decided = plan(a_snapshot(active("r", preemptible=False), waiting("w", preemptible=False), policy=policy))
    assert reason_of(decided, "w") == (
        WaitReason.OVER_QUOTA_NON_PREEMPTIBLE,
        "It needs 1 instance of p5 and is not preemptible, so it may use only quota. The department x has a quota of "
        "1 instance of p5, and jobs that are not preemptible hold 1 of it.",
    )


def test_over_the_limit_only_if_every_alternative_is() -> None:
    pools = {"p5": 2, "p4": 1}
    policy = a_policy(pools, [Project("a", quota=pools, limit={"p5": 1})])
    jobs = (active("x"), active("y", {"p4": 1}), waiting("w", {"p5": 1}, {"p4": 1}))
    assert reasons(plan(a_snapshot(*jobs, policy=policy))) == {"w": WaitReason.WAITING_FOR_CAPACITY}


def test_a_project_that_is_no_longer_there() -> None:
    policy = a_policy(2, [project("b", 2)])
    decided = plan(
        a_snapshot(active("r", 2, project="a"), waiting("w", project="a"), waiting("v", project="b"), policy=policy)
    )
    assert reasons(decided)["w"] is WaitReason.NO_SUCH_POOL
    assert evicted_by(decided) == {"r": ("v", "reclaim")}


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
