"""Pools where SageMaker lacks instances: they back off as a whole, and one job at a time tries again."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.backoff import LONGEST_SECONDS, backoff_seconds
from job_queue.domain.capacity_backoff import (
    FORGOTTEN_SECONDS,
    LAG_SECONDS,
    SILENT_SECONDS,
    CapacityBackoff,
    after_refusal,
    after_success,
    backoffs_of_silent_site,
)
from job_queue.scheduler import WaitReason
from tests.jobs import P5
from tests.queue_harness import Harness

G5 = "ml.g5.48xlarge"
LIMIT = LaunchResult.NO_CAPACITY


def a_queue(p5: int = 4, g5: int = 2) -> Harness:
    """Two pools of one type each, one project."""
    queue = Harness()
    pools = [
        {"name": "p5", "instance_type": P5, "capacity": p5},
        {"name": "g5", "instance_type": G5, "capacity": g5},
    ]
    projects = [{"name": "default", "quota": {"p5": p5, "g5": g5}}]
    queue.repository.apply_policy(json.dumps({"pools": pools, "projects": projects}), 0, "ada", queue.now)
    return queue


def on(kind: str, count: int = 1) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 30}}


def backoff(queue: Harness, place: str = "p5") -> CapacityBackoff:
    return queue.repository.metadata().capacity_backoffs[place]


def tick_to(queue: Harness, until: float) -> None:
    queue.tick(until - queue.now + 1)


def creates(queue: Harness) -> list[str]:
    return [name for verb, name in queue.training.calls if verb == "create"]


def refuse_p5(queue: Harness) -> None:
    """SageMaker's account limit for p5 is 0."""
    create = queue.training.create

    def refusing(request: Any) -> Any:
        if request["ResourceConfig"]["InstanceType"] == P5:
            queue.training.calls.append(("create", request["TrainingJobName"]))
            return LIMIT, "ResourceLimitExceeded: the limit is 0"
        return create(request)

    queue.training.create = refusing  # type: ignore[method-assign]


# --- how a pause begins -----------------------------------------------------------------------------


def refused_at_once(queue: Harness) -> None:
    queue.training.script = [LIMIT]
    queue.submit("job1", 9)


def failed_for_capacity(queue: Harness) -> None:
    queue.submit("job1", 9)
    queue.end("job1-qstamp-1", "Failed", failure="CapacityError: Unable to provision requested ML compute capacity.")


def failed_without_its_plan(queue: Harness) -> None:
    queue.submit("job1", 9)
    queue.end("job1-qstamp-1", "Failed", failure="InsufficientCapacityError: The training plan has no instances.")


def pending_for_too_long(queue: Harness) -> None:
    queue.submit("job1", 9)
    queue.training.starve("job1-qstamp-1")
    queue.event("job1-qstamp-1")


def without_spot_capacity(queue: Harness) -> None:
    queue.submit("job1", 9)
    queue.training.starve("job1-qstamp-1", secondary="MaxWaitTimeExceeded")
    queue.event("job1-qstamp-1")


def failed_for_capacity_and_the_event_is_lost(queue: Harness) -> None:
    queue.submit("job1", 9)
    queue.training.end("job1-qstamp-1", "Failed", failure="CapacityError: no p5 left")
    queue.tick()


@pytest.mark.parametrize(
    ("happens", "attempt"),
    [
        (refused_at_once, 1),
        (failed_for_capacity, 2),
        (failed_without_its_plan, 2),
        (pending_for_too_long, 2),
        (without_spot_capacity, 2),
        (failed_for_capacity_and_the_event_is_lost, 2),
    ],
)
def test_lack_of_capacity_backoffs_the_pool_and_is_nobodys_failure(happens: Any, attempt: int) -> None:
    queue = a_queue()
    happens(queue)
    job = queue.job("job1")
    assert (job.state, job.attempt, job.tries, job.retried, job.backoff_until) == ("pending", attempt, 0, 0, None)
    assert backoff(queue).failures == 1
    calls = len(creates(queue))
    queue.submit("job2", 1)
    assert queue.state("job2") == "pending"
    assert len(creates(queue)) == calls
    _, decided = queue.forecast()
    assert [(hold.job, hold.reason) for hold in decided.holds] == [
        ("job1", WaitReason.BACKOFF),
        ("job2", WaitReason.BACKOFF),
    ]


@pytest.mark.parametrize(
    ("status", "failure", "tries"),
    [("Failed", "InternalServerError: try again", 1), ("Failed", "AlgorithmError: exit 1", 0), ("Completed", None, 0)],
)
def test_what_is_no_lack_of_capacity_backoffs_nobody(status: str, failure: str | None, tries: int) -> None:
    queue = a_queue()
    queue.submit("job1", 9)
    queue.end("job1-qstamp-1", status, failure=failure)
    assert queue.repository.metadata().capacity_backoffs == {}
    assert queue.job("job1").tries == tries
    queue.submit("job2", 1)
    assert queue.state("job2") == "running"


def test_another_pool_goes_on() -> None:
    queue = a_queue()
    refused_at_once(queue)
    queue.submit("other", 1, **on(G5))
    assert queue.state("other") == "running"


def test_a_refusal_of_a_cluster_of_several_pools_blames_none_of_them() -> None:
    queue = a_queue()
    queue.training.script = [LIMIT]
    groups = [
        {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": 1} for name, kind in [("a", P5), ("b", G5)]
    ]
    queue.submit("both", 9, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    assert queue.repository.metadata().capacity_backoffs == {}
    assert queue.job("both").backoff_until is not None


def test_a_pool_of_any_type_is_backoffd_for_the_type_that_is_lacking() -> None:
    queue = Harness(slots=4)
    refused_at_once(queue)
    assert backoff(queue, f"default/{P5}").failures == 1
    queue.submit("same", 1)
    queue.submit("other", 1, **on(G5))
    assert queue.states() == {"job1": "pending", "same": "pending", "other": "running"}
    _, decided = queue.forecast()
    assert {hold.reason for hold in decided.holds} == {WaitReason.BACKOFF}
    assert all(f"no instances of {P5} at present" in hold.message for hold in decided.holds)
    tick_to(queue, backoff(queue, f"default/{P5}").until)
    assert queue.states()["job1"] == "running"
    assert queue.states()["same"] == "pending"


# --- how it goes on --------------------------------------------------------------------------------


def test_one_job_at_a_time_is_tried_the_first_in_the_waiting_queue() -> None:
    queue = a_queue()
    refused_at_once(queue)
    for name, priority in [("job2", 8), ("job3", 7)]:
        queue.accept(name, priority)
    tick_to(queue, backoff(queue).until)
    queue.now += 3
    queue.wake()  # other news: the first has not been answered yet
    assert queue.states() == {"job1": "running", "job2": "pending", "job3": "pending"}
    tick_to(queue, backoff(queue).until)
    assert queue.states() == {"job1": "running", "job2": "running", "job3": "pending"}


def test_whoever_is_not_tried_goes_elsewhere_at_once() -> None:
    queue = a_queue()
    refused_at_once(queue)
    queue.accept("job2", 1, Tags=[{"Key": "priority", "Value": "1"}, {"Key": "pools", "Value": "p5 g5"}], **on(P5))
    tick_to(queue, backoff(queue).until)
    assert creates(queue) == ["job1-qstamp-1", "job1-qstamp-1", "job2-qstamp-1"]
    assert queue.job("job2").slots == {"g5": 1}


def test_the_backoff_grows_with_each_refusal_and_has_an_end() -> None:
    queue = a_queue()
    refuse_p5(queue)
    for name in "abc":
        queue.accept(name, 1)
    queue.wake()
    waits = []
    for number in range(10):
        assert backoff(queue).failures == number + 1
        waits.append(backoff(queue).until - int(queue.now))
        tick_to(queue, backoff(queue).until)
    assert len(creates(queue)) == 3 + 10
    assert waits[:6] == sorted(waits[:6])
    assert all(LONGEST_SECONDS / 2 <= wait <= LONGEST_SECONDS for wait in waits[6:])


def test_attempts_that_fail_together_later_count_once() -> None:
    queue = a_queue()
    for name in "abc":
        queue.accept(name, 1)
    queue.wake()
    for name in "abc":
        queue.end(f"{name}-qstamp-1", "Failed", failure="CapacityError: no p5 left")
    assert backoff(queue).failures == 1
    assert [queue.job(name).attempt for name in "abc"] == [2, 2, 2]


@pytest.mark.parametrize("queue", [a_queue(), Harness(slots=4)], ids=["a pool of its type", "a pool of any type"])
def test_a_gang_that_was_refused_stops_nobody_while_that_is_remembered(queue: Harness) -> None:
    queue.training.script = [LIMIT]
    queue.submit("gang", 9, instances=4)
    queue.submit("small", 1)
    queue.tick(LONGEST_SECONDS)
    assert queue.states() == {"gang": "pending", "small": "running"}
    assert queue.training.stopped == set()
    queue.tick(FORGOTTEN_SECONDS)
    assert queue.training.stopped == {"small-qstamp-1"}


KNOWN = CapacityBackoff("p5", until=1000, since=900, failures=5, instances=2, largest=3)


@pytest.mark.parametrize(
    ("instances", "asked", "now", "failures", "least", "most"),
    [
        (2, 950, 1200, 6, 2, 3),  # one more
        (4, 950, 1200, 6, 2, 4),  # a larger one says nothing about the smaller
        (1, 950, 1200, 6, 1, 3),  # a smaller one about all
        (2, 900, 920, 5, 2, 3),  # asked before the last refusal was known
        (4, 5000, 1000 + FORGOTTEN_SECONDS + 1, 1, 4, 4),  # that is long ago
    ],
)
def test_what_a_further_refusal_makes_of_a_backoff(
    instances: int, asked: int, now: int, failures: int, least: int, most: int
) -> None:
    (after,) = after_refusal({"p5": KNOWN}, {"p5": instances}, asked, now)
    assert (after.failures, after.instances, after.largest, after.since) == (failures, least, most, now)
    assert after.until >= now + backoff_seconds("p5", failures) - 1


@pytest.mark.parametrize(
    ("got", "came", "left"),
    [(1, 950, "untouched"), (2, 950, 3), (3, 950, None), (9, 950, None), (3, 900, "untouched"), (3, 100, "untouched")],
)
def test_what_a_success_leaves_of_a_backoff(got: int, came: int, left: int | str | None) -> None:
    expected = replace(KNOWN, instances=left) if isinstance(left, int) else None
    found = after_success({"p5": KNOWN}, {"p5": got}, came)
    assert found == ([] if left == "untouched" else [(KNOWN, expected)])


def test_a_small_success_does_not_let_a_gang_stop_others_again() -> None:
    queue = a_queue()
    queue.training.script = [LIMIT, LIMIT]
    queue.accept("gang", 9, instances=4)
    queue.accept("small", 1)
    queue.wake()
    assert (backoff(queue).instances, backoff(queue).largest) == (1, 4)
    queue.cancel("gang")
    tick_to(queue, backoff(queue).until)
    queue.training.give_instances("small-qstamp-1", queue.now + 1)
    queue.event("small-qstamp-1")
    assert (backoff(queue).instances, backoff(queue).largest) == (2, 4)
    queue.submit("other", 1)
    queue.submit("gang2", 9, instances=4)
    assert queue.states() == {"small": "running", "other": "running", "gang2": "pending"}


def test_a_refusal_ends_the_silence_of_a_region_that_others_have_noted() -> None:
    (silent,) = backoffs_of_silent_site({}, ["p5"], 1000, "Could not connect.")
    assert (silent.until, silent.instances, silent.unreachable) == (1000 + SILENT_SECONDS, 1, "Could not connect.")
    (lag,) = after_refusal({"p5": silent}, {"p5": 2}, 1001, 1001, lag="4 of 4 are counted")
    assert (lag.until, lag.unreachable) == (1001 + LAG_SECONDS, None)
    (again,) = backoffs_of_silent_site({"p5": silent}, ["p5"], 1060, "Could not connect.")
    assert again.until == 1060 + SILENT_SECONDS and again.failures > 1
    (lacking,) = after_refusal({"p5": again}, {"p5": 2}, 1070, 1070)
    assert (lacking.failures, lacking.unreachable) == (1, None)
    (still,) = after_refusal({"p5": silent}, {"p5": 2}, 1001, 1001, unreachable="Could not connect.")
    assert still.until == silent.until


def test_a_late_refusal_shortens_no_backoff() -> None:
    (after,) = after_refusal({"p5": replace(KNOWN, failures=1, until=2000)}, {"p5": 2}, 100, 910)
    assert after.until == 2000


# --- how it ends -----------------------------------------------------------------------------------


def test_the_first_that_gets_its_instances_ends_it() -> None:
    queue = a_queue()
    refused_at_once(queue)
    for name in ("job2", "job3"):
        queue.accept(name, 1)
    tick_to(queue, backoff(queue).until)
    queue.training.give_instances("job1-qstamp-1", queue.now + 1)
    queue.event("job1-qstamp-1")
    assert queue.repository.metadata().capacity_backoffs == {}
    assert set(queue.states().values()) == {"running"}


def test_that_sagemaker_accepts_a_launch_ends_nothing() -> None:
    queue = a_queue()
    refused_at_once(queue)
    tick_to(queue, backoff(queue).until)
    queue.event("job1-qstamp-1")
    assert queue.state("job1") == "running"
    assert backoff(queue).failures == 1
    queue.end("job1-qstamp-1", "Failed", failure="CapacityError: no p5 left")
    assert backoff(queue).failures == 2


def test_instances_that_came_before_the_refusal_end_nothing() -> None:
    queue = a_queue()
    queue.submit("running", 1)
    queue.training.give_instances("running-qstamp-1", queue.now)
    refused_at_once(queue)
    queue.event("running-qstamp-1")
    assert backoff(queue).failures == 1


def test_instances_for_a_smaller_job_end_nothing() -> None:
    queue = a_queue()
    queue.training.script = [LIMIT]
    queue.submit("gang", 9, instances=4)
    queue.submit("small", 1)
    queue.training.give_instances("small-qstamp-1", queue.now + 1)
    queue.event("small-qstamp-1")
    assert backoff(queue).instances == 4


def test_a_lost_event_is_made_good_by_the_tick() -> None:
    queue = a_queue()
    refused_at_once(queue)
    tick_to(queue, backoff(queue).until)
    queue.training.give_instances("job1-qstamp-1", queue.now + 1)
    queue.accept("job2", 1)
    queue.tick()
    assert queue.repository.metadata().capacity_backoffs == {}
    assert queue.state("job2") == "running"


def test_the_end_of_a_job_that_had_its_instances_ends_it_too() -> None:
    queue = a_queue()
    refused_at_once(queue)
    tick_to(queue, backoff(queue).until)
    queue.training.give_instances("job1-qstamp-1", queue.now + 1)
    queue.end("job1-qstamp-1", "Completed")
    assert queue.repository.metadata().capacity_backoffs == {}


def test_instances_that_are_given_back_are_tried_for_at_once() -> None:
    queue = a_queue()
    queue.submit("running", 1)
    create = queue.training.create
    refuse_p5(queue)
    queue.submit("job1", 9)
    for _ in range(5):
        tick_to(queue, backoff(queue).until)
    assert backoff(queue).until > queue.now + 60
    queue.accept("job2", 1)
    queue.training.create = create  # type: ignore[method-assign]
    queue.end("running-qstamp-1")
    assert queue.states() == {"job1": "running", "job2": "pending"}


def test_the_end_of_a_job_elsewhere_brings_nobody_forward() -> None:
    queue = a_queue()
    queue.submit("other", 1, **on(G5))
    refused_at_once(queue)
    queue.end("other-qstamp-1")
    assert queue.states() == {"job1": "pending"}


def test_a_backoff_that_is_long_over_is_forgotten() -> None:
    queue = a_queue()
    refused_at_once(queue)
    queue.cancel("job1")
    queue.tick(LONGEST_SECONDS + FORGOTTEN_SECONDS)
    assert queue.repository.metadata().capacity_backoffs == {}


def test_an_event_that_tells_of_instances_costs_one_read_where_nothing_is_backoffd() -> None:
    queue = a_queue()
    queue.submit("job1", 1)
    queue.training.give_instances("job1-qstamp-1", queue.now + 1)
    reads: list[str] = []
    query, get = queue.tables.query, queue.tables.get
    queue.tables.query = lambda *args: reads.append("query") or query(*args)  # type: ignore[method-assign, func-returns-value]
    queue.tables.get = lambda *args: reads.append("get") or get(*args)  # type: ignore[method-assign, func-returns-value]
    queue.event("job1-qstamp-1")
    assert reads == ["query"]


# --- all together ----------------------------------------------------------------------------------


class Short:
    """An account with fewer instances than the policy says, whose launches fail late now and then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.queue = a_queue(p5=6)
        self.limit = self.random.randint(3, 5)
        self.trouble = True
        create = self.queue.training.create

        def limited(request: Any) -> Any:
            wanted = request["ResourceConfig"]["InstanceCount"]
            if self.trouble and self.queue.training.in_use() + wanted > self.limit:
                self.queue.training.calls.append(("create", request["TrainingJobName"]))
                return LIMIT, "ResourceLimitExceeded"
            return create(request)

        self.queue.training.create = limited  # type: ignore[method-assign]

    def step(self) -> None:
        """Something happens to an attempt, and time passes."""
        queue, alive = self.queue, sorted(name for name, job in self.queue.training.jobs.items() if not job.ended)
        if alive:
            name = self.random.choice(alive)
            if queue.training.jobs[name].status == "Stopping":
                queue.end(name, "Stopped")
            elif queue.training.jobs[name].provisioned_at is None:
                if self.trouble and self.random.random() < 0.3:
                    queue.end(name, "Failed", failure="CapacityError: no p5 left")
                else:
                    queue.training.give_instances(name, queue.now)
                    queue.event(name)
            else:
                queue.end(name)
        queue.tick(self.random.choice((5, 60, 60, 300)))


@pytest.mark.parametrize("seed", range(6))
def test_a_short_account_is_used_and_its_jobs_end_once(seed: int) -> None:
    short = Short(seed)
    queue = short.queue
    for number in range(20):
        queue.accept(f"job{number:02}", short.random.randint(0, 3), instances=short.random.choice((1, 1, 2, 3)))
    for _ in range(100):
        short.step()
        assert queue.training.in_use() <= short.limit
    assert len(queue.training.stopped) <= 5  # nobody is stopped again and again for a gang that cannot be placed
    short.trouble = False
    for _ in range(60):
        short.step()
    assert queue.states() == {}
    for number in range(20):
        record = queue.record(f"job{number:02}")
        assert record.job.state == "completed"
        assert [attempt.outcome for attempt in record.attempts].count("completed") == 1
        assert (record.job.retried, record.job.tries) == (0, 0)


# --- what people see -------------------------------------------------------------------------------


def test_the_history_says_when_it_is_tried_again() -> None:
    queue = a_queue()
    refused_at_once(queue)
    figures = "'ml.p5.48xlarge for training job usage' is 1 Instances in this account, and the job requests 1"
    reason = queue.job("job1").reason or ""
    assert reason == f"The quota {figures} while other jobs use it (ResourceLimitExceeded)."
    cause = queue.record("job1").history[-1].cause
    assert cause.startswith("next try at 2026-09-21 ")
    assert cause.endswith(f": {reason}")


def test_what_it_backed_off_from_is_over_when_it_is_launched() -> None:
    queue = a_queue()
    refused_at_once(queue)
    tick_to(queue, backoff(queue).until)
    assert (queue.state("job1"), queue.job("job1").reason) == ("running", None)


def test_a_transition_at_the_end_of_an_attempt_tells_that_attempt() -> None:
    queue = a_queue()
    failed_for_capacity(queue)
    assert queue.job("job1").attempt == 2
    assert queue.record("job1").history[-1].attempt == 1


def test_a_refused_launch_keeps_its_number_and_a_failed_one_does_not() -> None:
    queue = a_queue()
    refused_at_once(queue)
    tick_to(queue, backoff(queue).until)
    assert queue.job("job1").launched == "job1-qstamp-1"
    queue.end("job1-qstamp-1", "Failed", failure="CapacityError: no p5 left")
    tick_to(queue, backoff(queue).until)
    assert queue.job("job1").launched == "job1-qstamp-2"


@pytest.mark.parametrize("queue", [a_queue(), Harness(slots=4)], ids=["a pool of its type", "a pool of any type"])
def test_the_message_says_what_to_do(queue: Harness) -> None:
    queue.training.script = [LIMIT]
    queue.submit("gang", 9, instances=4)
    queue.submit("small", 1)
    _, decided, advice = queue.dry_run.advice("gang")
    assert {hold.job: hold.reason for hold in decided.holds} == {"gang": WaitReason.BACKOFF}
    assert advice == ["Nothing to do: the queue tries again."]
