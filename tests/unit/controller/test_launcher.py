"""Launching exactly once: whatever becomes of the call, one attempt runs, and its slot is held while it may."""

import re

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.controller.launcher import RELAUNCH_SECONDS, SIGNATURE_SECONDS
from job_queue.domain.backoff import FIRST_SECONDS, LONGEST_SECONDS, backoff_seconds
from job_queue.domain.launching.launch_rate import CreateRate
from tests.jobs import a_request
from tests.queue_harness import Harness

DEAD = SIGNATURE_SECONDS + 120  # seconds after which no call of a first cycle can land


def creates(queue: Harness) -> list[str]:
    return [name for verb, name in queue.training.calls if verb == "create"]


def test_an_attempt_carries_the_queues_tags_and_the_users_request() -> None:
    queue = Harness()
    queue.submit("job1", 3, HyperParameters={"lr": "0.1"})
    request = queue.training.requests["job1-qstamp-1"]
    job = queue.job("job1")
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    assert re.fullmatch("1-[0-9a-f]{64}", tags.pop("queue-proof"))
    assert tags == {
        "priority": "3",
        "queue-name": "sagemaker-queue",
        "queue-job": "job1",
        "queue-submission": job.submission,
        "queue-attempt": "1",
    }
    same = a_request("job1", 3, HyperParameters={"lr": "0.1"})
    assert {**request, "TrainingJobName": "job1", "Tags": same["Tags"]} == same


def test_a_request_of_an_earlier_version_with_46_tags_has_room_for_the_proof() -> None:
    queue = Harness()
    queue.submit("job1", None, Tags=[{"Key": f"k{number}", "Value": "v"} for number in range(46)])
    tags = queue.training.jobs["job1-qstamp-1"].tags
    assert (len(tags), "queue-proof" in tags, "queue-attempt" in tags) == (50, True, False)
    queue.end("job1-qstamp-1")
    assert queue.state("job1") == "completed"


def test_the_intent_is_recorded_before_the_call() -> None:
    queue = Harness()
    create, seen = queue.training.create, []

    def look(request: dict[str, object]) -> object:
        job = queue.job("job1")
        seen.append((job.state, job.launched, len(job.calls), queue.repository.active() == [job]))
        return create(request)

    queue.training.create = look  # type: ignore[method-assign, assignment]
    queue.submit("job1", 1)
    assert seen == [("starting", "job1-qstamp-1", 1, True)]


def test_a_killed_process_between_intent_and_call_is_made_good() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["never"]
    queue.submit("job1", 1)
    assert queue.state("job1") == "starting"
    queue.tick()
    assert queue.state("job1") == "running"
    assert creates(queue) == ["job1-qstamp-1"] * 2
    assert len(queue.training.jobs) == 1


def test_a_killed_process_between_call_and_record_is_made_good() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    assert queue.state("job1") == "starting"
    queue.tick()
    assert queue.state("job1") == "running"
    assert list(queue.training.jobs) == ["job1-qstamp-1"]


def test_a_launch_without_an_answer_holds_its_slot() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["late", "late"]
    queue.submit("job1", 1)
    queue.submit("job2", 9)
    queue.tick()
    assert queue.states() == {"job1": "starting", "job2": "pending"}
    queue.training.land()
    queue.tick()
    assert queue.training.in_use() == 1
    assert queue.states() == {"job1": "stopping", "job2": "pending"}


@pytest.mark.parametrize("seconds", [60, DEAD])
def test_a_launch_that_was_in_doubt_makes_room_as_soon_as_it_is_certain(seconds: float) -> None:
    queue = Harness(slots=1)
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    queue.accept("job2", 9)
    queue.tick(seconds)
    assert queue.states() == {"job1": "stopping", "job2": "pending"}


def test_an_unanswered_launch_is_not_asked_for_again_at_once() -> None:
    queue = Harness()
    queue.training.script = ["never"]
    queue.submit("job1", 1)
    queue.now += RELAUNCH_SECONDS - 1
    queue.wake()
    assert creates(queue) == ["job1-qstamp-1"]
    queue.now += 1
    queue.wake()
    assert creates(queue) == ["job1-qstamp-1"] * 2


def test_a_refusal_does_not_give_up_while_an_older_call_may_land() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["late", LaunchResult.REFUSED]
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    queue.training.script = [LaunchResult.REFUSED]
    queue.tick()
    assert queue.states() == {"job1": "starting", "job2": "pending"}
    queue.training.land()
    queue.tick()
    assert queue.states() == {"job1": "running", "job2": "pending"}
    assert queue.training.in_use() == 1


@pytest.mark.parametrize("answer", [LaunchResult.REFUSED, LaunchResult.NO_CAPACITY, LaunchResult.NAME_TAKEN])
def test_a_launch_in_doubt_that_is_refused_leaves_the_rate_to_others(answer: LaunchResult) -> None:
    queue = Harness(slots=2, create_rate=CreateRate(1, 1))
    queue.training.script = ["never", answer, LaunchResult.LAUNCHED, answer]
    queue.submit("job1", 9)
    queue.now += RELAUNCH_SECONDS
    queue.wake()
    queue.submit("job2", 1)
    queue.now += 5
    queue.wake()
    assert creates(queue) == ["job1-qstamp-1"] * 2 + ["job2-qstamp-1"]
    queue.tick()
    assert creates(queue)[3:] == ["job1-qstamp-1"]


def test_after_the_older_calls_time_only_a_later_refusal_counts() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["never"]
    queue.submit("job1", 1)
    queue.training.script = [LaunchResult.REFUSED]
    queue.tick()  # refused, but the first call might still land
    assert queue.state("job1") == "starting"
    queue.now += DEAD
    queue.training.script = [LaunchResult.REFUSED]
    queue.tick()
    assert queue.state("job1") == "failed"


@pytest.mark.parametrize("answer", [LaunchResult.NOT_NOW, LaunchResult.REFUSED])
def test_a_refusal_does_not_hide_an_attempt_that_was_launched_long_ago_unheard(answer: LaunchResult) -> None:
    queue = Harness(slots=1)
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    queue.now += DEAD
    queue.training.script = [answer]  # SageMaker throttles before it looks at the name
    queue.tick()
    assert queue.state("job1") == "running"


def test_a_refusal_in_doubt_stays_in_doubt_while_sagemaker_cannot_be_asked() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    queue.now += DEAD
    queue.training.script = [LaunchResult.NOT_NOW]
    queue.training.down = True
    queue.tick()
    assert queue.state("job1") == "starting"
    queue.training.down = False
    queue.tick()
    assert queue.state("job1") == "running"


def test_a_refused_request_leaves_the_queue_with_its_reason_and_blocks_nobody() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.REFUSED]
    queue.accept("bad", 9)
    queue.accept("good", 1)
    queue.wake()
    assert queue.states() == {"good": "running"}
    bad = queue.job("bad")
    assert (bad.state, bad.reason) == ("failed", "REFUSED: scripted")


def test_a_refusal_for_now_backs_off_and_lets_others_pass() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.NOT_NOW]
    queue.accept("unlucky", 9)
    queue.accept("lucky", 1)
    queue.wake()
    assert queue.states() == {"unlucky": "pending", "lucky": "running"}
    assert queue.job("unlucky").attempt == 1
    assert queue.repository.metadata().capacity_backoffs == {}, "it is the job's own backoff, and not its pool's"
    queue.end("lucky-qstamp-1")
    queue.tick()
    assert queue.states() == {"unlucky": "running"}


def test_backing_off_grows_and_has_an_end() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.NOT_NOW] * 12
    queue.submit("job1", 1)
    waits = []
    for _ in range(11):
        job = queue.job("job1")
        assert job.backoff_until is not None
        waits.append(job.backoff_until - int(queue.now))
        queue.tick(waits[-1] + 1)
    assert waits == [backoff_seconds("job1", tries) for tries in range(1, 12)]
    assert FIRST_SECONDS / 2 <= waits[0] <= FIRST_SECONDS < waits[4] < waits[-1] <= LONGEST_SECONDS


def test_a_name_that_an_old_training_job_has_is_passed_over() -> None:
    queue = Harness()
    queue.training.create({**a_request("job1"), "TrainingJobName": "job1-qstamp-1"})
    queue.training.end("job1-qstamp-1")
    queue.submit("job1", 1)
    assert queue.state("job1") == "running"
    assert queue.job("job1").launched == "job1-qstamp-2"


def test_who_has_the_name_and_no_proof_is_counted_and_left_alone() -> None:
    queue = Harness(slots=2)
    tags = [
        {"Key": k, "Value": v}
        for k, v in [
            ("queue-name", "sagemaker-queue"),
            ("queue-job", "job1"),
            ("queue-submission", "old"),
            ("queue-attempt", "1"),
        ]
    ]
    queue.training.create({**a_request("job1"), "TrainingJobName": "job1-qstamp-1", "Tags": tags})
    queue.submit("job1", 1)
    assert queue.job("job1").launched == "job1-qstamp-2"
    assert queue.training.stopped == set()
    assert [job.name for job in queue.repository.external()] == ["job1-qstamp-1"]
    queue.submit("job2", 1)
    assert queue.state("job2") == "pending", "two instances are in use"
    queue.end("job1-qstamp-1", "Stopped")
    assert queue.states() == {"job1": "running", "job2": "running"}


def test_nothing_is_concluded_from_a_taken_name_that_is_not_found() -> None:
    queue = Harness()
    queue.training.script = [LaunchResult.NAME_TAKEN]
    queue.submit("job1", 1)
    assert queue.state("job1") == "starting"
    queue.tick()
    assert queue.state("job1") == "running"


def test_an_attempt_that_ended_before_its_answer_was_recorded_has_ended() -> None:
    queue = Harness()
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    queue.training.end("job1-qstamp-1", "Failed", failure="AlgorithmError: boom")
    queue.tick()
    job = queue.job("job1")
    assert (job.state, job.reason) == ("failed", "AlgorithmError: boom")
    assert len(queue.training.jobs) == 1


def test_an_event_may_be_faster_than_the_answer() -> None:
    queue = Harness()
    create = queue.training.create

    def run_at_once(request: dict[str, object]) -> object:
        answer = create(request)
        queue.training.end("job1-qstamp-1")
        assert queue.controller.reconciler.handle_event(queue.training.event("job1-qstamp-1"))
        return answer

    queue.training.create = run_at_once  # type: ignore[method-assign, assignment]
    queue.submit("job1", 1)
    assert queue.state("job1") == "completed"


def test_a_launch_of_a_job_cancelled_meanwhile_is_finished_and_then_stopped() -> None:
    queue = Harness()
    create = queue.training.create

    def cancelled_meanwhile(request: dict[str, object]) -> object:
        queue.cancel("job1")
        return create(request)

    queue.training.create = cancelled_meanwhile  # type: ignore[method-assign, assignment]
    queue.submit("job1", 1)
    assert queue.state("job1") == "stopping"
    assert queue.training.stopped == {"job1-qstamp-1"}
    queue.end("job1-qstamp-1", "Stopped")
    assert queue.state("job1") == "stopped"


def test_a_launch_in_doubt_of_a_cancelled_job_keeps_its_slot_until_it_is_certain() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["late"]
    queue.submit("job1", 1)
    queue.cancel("job1")
    queue.submit("job2", 1)
    assert queue.state("job1") == "starting"
    queue.training.land()
    queue.tick()
    assert queue.states() == {"job1": "stopping", "job2": "pending"}
    queue.end("job1-qstamp-1", "Stopped")
    assert queue.states() == {"job2": "running"}
    assert queue.state("job1") == "stopped"


def test_a_preempted_job_starts_under_the_next_number() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Stopped")
    queue.end("high-qstamp-1")
    record = queue.record("low")
    assert (record.job.state, record.job.launched) == ("running", "low-qstamp-2")
    assert [attempt.outcome for attempt in record.attempts] == ["preempted"]
