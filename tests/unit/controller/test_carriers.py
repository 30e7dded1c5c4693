"""Carriers and members in the controller: who is launched, assigned, stopped, and what becomes of whom at the end."""

import json
from dataclasses import replace
from typing import Any

import pytest

from api_contract import models
from api_contract.models import PlanAnswer
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.api.queue_position import QueuePosition
from job_queue.api.responses import plan_answer, queue_status
from job_queue.controller.carriers import START_SECONDS
from job_queue.controller.cycle import Invocation
from job_queue.domain.errors import Conflict, InvalidRequest
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.job import Job
from job_queue.domain.launching.launch_rate import CreateRate
from job_queue.scheduler import GpuAllocation
from tests.jobs import OWNER, P5, a_request
from tests.queue_harness import Harness


@pytest.fixture
def queue() -> Harness:
    queue = Harness()
    share(queue)
    return queue


def share(queue: Harness, instances: int = 1, *, owners_share: bool = False, **pool: Any) -> None:
    shared = {"name": "p5", "instance_type": P5, "capacity": instances, "shared": True, "keep_warm": 300, **pool}
    project = {"name": "nlp", "quota": {"p5": instances}, "owners_share": owners_share}
    document = {"pools": [shared], "projects": [project]}
    stored = queue.repository.policy()
    queue.repository.apply_policy(json.dumps(document), stored.version if stored else 0, OWNER, queue.now)


def member_request(name: str, gpus: str = "1", priority: int = 0, **changes: Any) -> dict[str, Any]:
    request = a_request(name, priority, **changes)
    request["AlgorithmSpecification"] |= {"ContainerEntrypoint": ["python", "train.py"]}
    request["Tags"] += [{"Key": "gpus", "Value": gpus}, {"Key": "project", "Value": "nlp"}]
    return request


def submit(queue: Harness, name: str, gpus: str = "1", priority: int = 0, **changes: Any) -> None:
    queue.now += 1
    queue.submissions.submit(member_request(name, gpus, priority, **changes), OWNER)
    queue.wake()


def accept_whole(queue: Harness, name: str, priority: int = 0, **changes: Any) -> None:
    queue.now += 1
    request = a_request(name, priority, **changes)
    request["Tags"].append({"Key": "project", "Value": "nlp"})
    queue.submissions.submit(request, OWNER)


def whole(queue: Harness, name: str, priority: int = 0) -> None:
    accept_whole(queue, name, priority)
    queue.wake()


def carriers(queue: Harness) -> list[Job]:
    return [job for job in queue.repository.active() if job.carries is not None]


def carrier(queue: Harness) -> Job:
    (found,) = carriers(queue)
    return found


def allocation(queue: Harness, name: str) -> tuple[int, ...]:
    found = queue.job(name).allocation
    assert found is not None
    return found.gpus


def reported(queue: Harness, name: str, status: str = "Completed", failure: str | None = None) -> None:
    """The agent reports an end, and the event arrives."""
    queue.training.report(queue.job(name).address or "", status, failure)
    queue.now += 1
    queue.hear()


def test_a_carrier_is_launched_and_its_members_are_assigned(queue: Harness) -> None:
    for number in range(3):
        submit(queue, f"m{number}", "2")
    launched = carrier(queue)
    assert launched.state == "running"
    assert (launched.carries, launched.project, launched.slots) == (8, "nlp", {"p5": 1})
    assert [queue.state(f"m{number}") for number in range(3)] == ["running"] * 3
    assert [allocation(queue, f"m{number}") for number in range(3)] == [(0, 1), (2, 3), (4, 5)]
    assert queue.job("m0").address == f"{launched.launched}/m0-qstamp-1"
    request = queue.training.requests[launched.launched or ""]
    settings = request["HyperParameters"]
    assert (settings["mailbox"], settings["gpus"]) == (f"s3://work/carriers/{launched.launched}", "8")
    assert request["ResourceConfig"] == {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30}
    assert request["RoleArn"] == a_request()["RoleArn"]
    assert len([call for call, _ in queue.training.calls if call == "create"]) == 1


def test_nine_of_one_gpu_and_one_waits(queue: Harness) -> None:
    for number in range(9):
        submit(queue, f"m{number}")
    assert [queue.state(f"m{number}") for number in range(9)] == ["running"] * 8 + ["pending"]
    assert {allocation(queue, f"m{number}") for number in range(8)} == {(gpu,) for gpu in range(8)}
    reported(queue, "m3")
    assert queue.state("m3") == "completed"
    assert allocation(queue, "m8") == (3,)


def test_four_make_room_for_a_job_of_four_and_come_back(queue: Harness) -> None:
    for number in range(8):
        submit(queue, f"m{number}")
    submit(queue, "big", "4", priority=5)
    leaving = [name for name in (f"m{number}" for number in range(8)) if queue.state(name) == "stopping"]
    assert leaving == ["m4", "m5", "m6", "m7"]
    assert queue.training.stopped == {queue.job(name).address for name in leaving}
    for name in leaving:
        reported(queue, name, "Stopped", "the queue asked for it")
    assert queue.state("big") == "running"
    assert [queue.state(f"m{number}") for number in range(8)] == ["running"] * 4 + ["preempted"] * 4
    reported(queue, "big")
    assert [queue.state(f"m{number}") for number in range(8)] == ["running"] * 8
    assert queue.job("m4").attempt == 2
    assert len(carriers(queue)) == 1


def test_a_requeued_member_leaves_alone_and_the_first_in_order_gets_its_gpu(queue: Harness) -> None:
    for number in range(9):
        submit(queue, f"m{number}")
    queue.change("m3", priority=-1, requeue=True)
    assert queue.training.stopped == {queue.job("m3").address}
    assert (queue.state("m3"), queue.state("m8")) == ("stopping", "pending"), "its GPU is taken until its report"
    reported(queue, "m3", "Stopped", "the queue asked for it")
    assert (queue.state("m3"), queue.state("m8"), allocation(queue, "m8")) == ("preempted", "running", (3,))
    assert [it.outcome for it in queue.record("m3").attempts] == ["requeued"]
    reported(queue, "m0")
    assert (queue.state("m3"), queue.job("m3").attempt, allocation(queue, "m3")) == ("running", 2, (0,))
    queue.change("m3", requeue=True)
    reported(queue, "m3", "Stopped", "the queue asked for it")
    assert (queue.state("m3"), queue.job("m3").attempt) == ("running", 3), "no other job waits for its GPU"
    assert [queue.job(f"m{number}").attempt for number in (1, 2, 4, 5, 6, 7, 8)] == [1] * 7


def test_a_requeued_member_whose_carrier_ends_has_been_stopped(queue: Harness) -> None:
    submit(queue, "m0")
    queue.change("m0", held=True, now=True)
    queue.end(carrier(queue).launched or "", "Stopped")  # nothing is heard of the member
    assert (queue.state("m0"), queue.job("m0").held, queue.job("m0").refusals) == ("preempted", True, 0)
    assert [it.outcome for it in queue.record("m0").attempts] == ["requeued"]


def test_the_members_of_a_drained_pool_are_stopped_and_then_their_carrier(queue: Harness) -> None:
    submit(queue, "m0")
    submit(queue, "m1")
    first = carrier(queue)
    queue.drain("p5")
    assert [queue.state(name) for name in ("m0", "m1")] == ["stopping", "stopping"]
    assert carrier(queue).state == "running", "it ends when its members have ended"
    reported(queue, "m0", "Stopped", "the queue asked for it")
    submit(queue, "late")
    assert [queue.state(name) for name in ("m0", "m1", "late")] == ["preempted", "stopping", "pending"]
    reported(queue, "m1", "Stopped", "the queue asked for it")
    assert carrier(queue).state == "stopping", "it is released at once, although its pool keeps instances warm"
    queue.end(first.launched or "", "Stopped")
    assert carriers(queue) == []
    assert [it.outcome for it in queue.record("m0").attempts] == ["drained"]
    queue.undrain("p5")
    assert [queue.state(name) for name in ("m0", "m1", "late")] == ["running"] * 3


def test_a_carrier_is_not_requeued(queue: Harness) -> None:
    submit(queue, "m0")
    with pytest.raises(Conflict, match="is a carrier"):
        queue.change(carrier(queue).name, requeue=True)
    with pytest.raises(Conflict, match="is a carrier"):
        queue.change(carrier(queue).name, held=True, now=True)


def test_a_whole_instance_job_gets_the_instance_and_gives_it_back(queue: Harness) -> None:
    submit(queue, "m0")
    submit(queue, "m1")
    first = carrier(queue)
    whole(queue, "whole", priority=9)
    assert carrier(queue).state == "stopping"
    assert [queue.state(name) for name in ("m0", "m1")] == ["stopping", "stopping"]
    queue.training.report(f"{first.launched}/m0-qstamp-1", "Stopped")  # of the other nothing is heard
    queue.end(first.launched or "", "Stopped")
    assert queue.state("whole") == "running"
    assert [queue.state(name) for name in ("m0", "m1")] == ["preempted", "preempted"]
    assert queue.state(first.name) == "stopped"
    queue.end("whole-qstamp-1")
    assert [queue.state(name) for name in ("m0", "m1", "whole")] == ["running", "running", "completed"]
    assert carrier(queue).name != first.name


def test_an_empty_carrier_is_kept_for_a_while_and_closed(queue: Harness) -> None:
    submit(queue, "m0")
    first = carrier(queue)
    reported(queue, "m0")
    assert carrier(queue).empty_since is not None
    queue.tick()
    submit(queue, "m1")
    assert queue.job("m1").carrier_attempt == first.launched
    assert carrier(queue).empty_since is None
    reported(queue, "m1")
    for _ in range(5):
        queue.tick()
    assert carrier(queue).state == "stopping"
    queue.end(first.launched or "", "Stopped")
    assert carriers(queue) == []
    assert queue.state(first.name) == "stopped"


def test_a_report_of_which_no_event_told_is_found_by_the_tick(queue: Harness) -> None:
    submit(queue, "m0")
    queue.training.report(queue.job("m0").address or "")
    queue.training.bucket.written.clear()
    queue.tick()
    assert queue.state("m0") == "completed"


def test_a_silent_carrier_is_stopped_and_its_members_start_elsewhere(queue: Harness) -> None:
    submit(queue, "m0")
    first = carrier(queue)
    queue.training.silent.add(first.launched)
    queue.tick(200)
    assert carrier(queue).state == "running"
    queue.tick(200)
    assert carrier(queue).state == "stopping"
    queue.end(first.launched or "", "Stopped")
    assert "nothing was heard of its agent" in (queue.job(first.name).reason or "")
    assert queue.state("m0") == "pending"
    for _ in range(20):
        queue.tick()
    assert queue.state("m0") == "running"
    assert queue.job("m0").carrier_attempt != first.launched


def test_members_of_a_carrier_that_fails_are_tried_again_later(queue: Harness) -> None:
    submit(queue, "m0")
    queue.end(carrier(queue).launched or "", "Failed", failure="AlgorithmError: , exit code: 137")
    assert queue.state("m0") == "pending"
    assert queue.job("m0").backoff_until is not None
    queue.tick(60)
    assert queue.state("m0") == "running"
    assert queue.job("m0").attempt == 2


def test_the_end_of_an_earlier_submission_is_no_end_of_the_next_one() -> None:
    queue = Harness(history_seconds=60)
    share(queue)
    submit(queue, "m0")
    reported(queue, "m0")
    assert queue.state("m0") == "completed"
    queue.now += 120
    queue.training.script = ["never"]  # of the same name and carrier, and never assigned
    submit(queue, "m0")
    assert queue.state("m0") == "starting"
    queue.end(carrier(queue).launched or "", "Failed", failure="AlgorithmError: , exit code: 137")
    assert (queue.state("m0"), queue.job("m0").attempt) == ("pending", 2)
    queue.tick(60)
    assert queue.state("m0") == "running"


def test_a_member_that_failed_has_failed(queue: Harness) -> None:
    submit(queue, "m0")
    reported(queue, "m0", "Failed", "AlgorithmError: , exit code: 1")
    assert (queue.state("m0"), queue.job("m0").reason) == ("failed", "AlgorithmError: , exit code: 1")
    assert carrier(queue).state == "running"


def test_a_cancelled_member_is_stopped_alone(queue: Harness) -> None:
    submit(queue, "m0")
    submit(queue, "m1")
    queue.cancel("m0")
    assert queue.training.stopped == {queue.job("m0").address}
    reported(queue, "m0", "Stopped")
    assert [queue.state(name) for name in ("m0", "m1")] == ["stopped", "running"]


@pytest.mark.parametrize("turn", ["lost", "never"])
def test_an_assignment_without_an_answer_is_made_again_and_meets_itself(queue: Harness, turn: str) -> None:
    submit(queue, "m0")
    queue.training.script = [turn]
    submit(queue, "m1")
    assert queue.state("m1") == "starting"
    queue.tick()
    assert queue.state("m1") == "running"
    agent = queue.training.agents[carrier(queue).launched or ""]
    assert [attempt for attempt in agent.assignments if attempt.startswith("m1-")] == ["m1-qstamp-1"]


def test_a_carrier_without_an_answer_is_launched_once(queue: Harness) -> None:
    queue.training.script = ["lost"]
    submit(queue, "m0")
    assert carrier(queue).state == "starting"
    assert queue.state("m0") == "pending"
    queue.tick()
    assert (carrier(queue).state, queue.state("m0")) == ("running", "running")
    assert len(queue.training.jobs) == 1


def test_a_pool_without_capacity_is_left_alone_for_a_while(queue: Harness) -> None:
    queue.training.script = [LaunchResult.NO_CAPACITY]
    submit(queue, "m0")
    assert carriers(queue) == []
    queue.wake()
    queue.wake()
    assert len([call for call, _ in queue.training.calls if call == "create"]) == 1
    for _ in range(20):
        queue.tick()
    assert (carrier(queue).state, queue.state("m0")) == ("running", "running")


def test_who_founded_a_carrier_that_was_refused_waits_longer_each_time(queue: Harness) -> None:
    queue.training.script = [(LaunchResult.NOT_NOW, "AccessDenied: no")] * 3
    submit(queue, "m0")
    for _ in range(3):
        queue.wake()
    assert len([call for call, _ in queue.training.calls if call == "create"]) == 1
    assert queue.job("m0").refusals == 1
    assert "AccessDenied" in (queue.job("m0").reason or "")
    for _ in range(30):
        queue.tick()
    assert queue.state("m0") == "running"
    waiting = [job for key in queue.repository.metadata().waiting_queues for job in queue.repository.waiting(key)]
    assert waiting == []


def creates(queue: Harness) -> int:
    return sum(call == "create" for call, _ in queue.training.calls)


def without_agents(queue: Harness) -> None:
    """Two members wait for their carrier, whose agent does not start."""
    queue.training.agents_start = False
    queue.submissions.submit(member_request("m0"), OWNER)
    submit(queue, "m1")


def test_a_carrier_that_is_refused_for_good_fails_the_member_whose_request_it_had(queue: Harness) -> None:
    queue.training.script = [(LaunchResult.REFUSED, "ValidationException: no such image")]
    queue.submissions.submit(member_request("m0"), OWNER)
    submit(queue, "m1")
    m0 = queue.record("m0")
    assert (m0.job.state, m0.job.reason) == ("failed", "ValidationException: no such image")
    assert m0.history[-1].cause == "refused by SageMaker: ValidationException: no such image"
    assert (queue.state("m1"), creates(queue)) == ("running", 2), "it has a carrier of its own"


@pytest.mark.parametrize(
    "message",
    [
        "ValidationException: Value at 'resourceConfig.instanceType' failed to satisfy constraint",
        "ValidationException: No S3 objects found under s3://work/carrier-agents/abc",
        "ValidationException: s3://work/carriers-output cannot be written",
    ],
)
def test_no_member_fails_for_fields_that_the_pool_or_the_queue_has_written(queue: Harness, message: str) -> None:
    queue.training.script = [(LaunchResult.REFUSED, message)]
    queue.submissions.submit(member_request("m0"), OWNER)
    queue.wake()
    assert queue.state("m0") == "pending"
    assert message in (queue.job("m0").reason or "")
    queue.tick(60)
    assert queue.state("m0") == "running"


def test_a_member_that_ran_once_is_not_failed_by_a_refused_carrier(queue: Harness) -> None:
    submit(queue, "m0")
    queue.training.script = [(LaunchResult.REFUSED, "ValidationException: no such role")]
    queue.end(carrier(queue).launched or "", "Failed", failure="AlgorithmError: , exit code: 137")
    queue.tick(60)
    assert (queue.state("m0"), queue.job("m0").refusals, creates(queue)) == ("pending", 1, 2)
    assert "no such role" in (queue.job("m0").reason or "")
    queue.tick(60)
    assert queue.state("m0") == "running"


def test_members_of_carriers_that_fail_before_their_agents_start_wait_longer_each_time(queue: Harness) -> None:
    without_agents(queue)
    waits = []
    for number in (1, 2, 3):
        failed = carrier(queue)
        queue.end(failed.launched or "", "Failed", failure="ClientError: no such image")
        assert creates(queue) == number, "no other carrier is launched at once"
        for name in ("m0", "m1"):
            job = queue.job(name)
            assert (job.state, job.refusals, job.tries) == ("pending", number, number)
            assert job.reason == (
                f"Its carrier {failed.name} failed before its agent had started: ClientError: no such image"
            )
        until = [queue.job(name).backoff_until or 0 for name in ("m0", "m1")]
        waits.append(max(until) - queue.now)
        queue.tick(waits[-1] + 1)
    assert waits == sorted(waits)
    assert (creates(queue), queue.job("m0").is_refused_for_long) == (4, False), "SageMaker has refused nothing"
    queue.training.agents_start = True
    queue.end(carrier(queue).launched or "", "Failed", failure="ClientError: no such image")
    queue.tick(600)
    assert [(queue.state(name), queue.job(name).refusals) for name in ("m0", "m1")] == [("running", 0)] * 2


def test_a_member_is_told_that_its_carrier_failed(queue: Harness) -> None:
    without_agents(queue)
    queue.end(carrier(queue).launched or "", "Failed", failure="ClientError: no such image")
    reason = QueuePosition(PublishedPlan.of(*queue.forecast(), queue.now)).reason(queue.job("m0"))
    assert reason is not None and "SageMaker refused" not in reason.message
    assert "ClientError: no such image" in reason.message


def test_members_back_off_if_the_agent_of_their_carrier_never_starts(queue: Harness) -> None:
    without_agents(queue)
    queue.tick(START_SECONDS + 60)
    assert carrier(queue).state == "stopping"
    queue.end(carrier(queue).launched or "", "Stopped")
    assert (creates(queue), queue.job("m0").tries, queue.job("m1").tries) == (1, 1, 1)
    assert "nothing was heard of its agent" in (queue.job("m0").reason or "")


@pytest.mark.parametrize(("status", "failure"), [("Failed", "CapacityError: none left"), ("Stopped", None)])
def test_members_do_not_back_off_if_their_carrier_itself_is_not_at_fault(
    queue: Harness, status: str, failure: str | None
) -> None:
    without_agents(queue)
    queue.end(carrier(queue).launched or "", status, failure=failure)
    assert [(job.tries, job.refusals, job.backoff_until) for job in (queue.job("m0"), queue.job("m1"))] == [
        (0, 0, None)
    ] * 2


class Paced(Harness):
    """A queue that may launch one training job a second. It counts cycles, and a busy loop ends after some of them."""

    def __init__(self, instances: int) -> None:
        super().__init__(create_rate=CreateRate(1, 1))
        self.cycles = 0
        share(self, instances)

    def invocation(self, *args: Any, **options: Any) -> Invocation:
        last = self.cycles + 30

        def may_go_on() -> bool:
            self.cycles += 1
            return self.cycles < last

        return replace(super().invocation(*args, **options), may_go_on=may_go_on)


def finished(queue: Harness) -> list[str]:
    """Carriers that have ended or were given up."""
    return [job.name for job in queue.repository.finished(100, None)[0] if job.carries is not None]


def test_carriers_are_launched_in_the_order_of_the_plan() -> None:
    queue = Paced(4)
    for name, priority in (("first", 5), ("last", 1)):
        queue.submissions.submit(member_request(name, "8", priority), OWNER)
    for name, priority in (("second", 4), ("third", 3)):
        accept_whole(queue, name, priority)
    for _ in range(4):
        queue.wake()
        queue.now += 1
    one, other = (queue.job(name).carrier_attempt for name in ("first", "last"))
    launched = [name for call, name in queue.training.calls if call == "create"]
    assert launched == [one, "second-qstamp-1", "third-qstamp-1", other]
    assert finished(queue) == [], "no carrier is stored before it may be launched"


def test_a_carrier_that_has_to_wait_for_the_rate_is_not_stored_and_keeps_its_slot() -> None:
    queue = Paced(2)
    queue.submissions.submit(member_request("m0", "8"), OWNER)
    queue.submissions.submit(member_request("m1", "8"), OWNER)
    queue.wake()
    queue.wake()
    assert ([job.first_members for job in carriers(queue)], queue.state("m1")) == ([("m0",)], "pending")
    cluster, _ = queue.forecast()
    assert [job.name for job in cluster.waiting.values()] == ["m1"]
    assert cluster.metadata.reservations == {"m1": {"p5": 1}}


def test_carriers_that_wait_for_the_rate_make_no_busy_loop() -> None:
    queue = Paced(3)
    for number in range(3):
        queue.submissions.submit(member_request(f"m{number}", "8"), OWNER)
    began = queue.now
    queue.controller.wake(queue.invocation(may_wait=True))
    assert (creates(queue), queue.now - began) == (3, 2), "it sleeps until the next launch"
    assert queue.cycles < 15


def test_no_carrier_is_stored_while_a_warm_pool_is_in_its_way(queue: Harness) -> None:
    larger = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 50}  # so no carrier fits the warm pool
    accept_whole(queue, "whole", ResourceConfig=larger)
    accept_whole(queue, "same", ResourceConfig=larger)  # for which the instance is kept warm
    queue.wake()
    queue.training.releases = False  # not at once
    queue.cancel("same")
    queue.end("whole-qstamp-1")
    submit(queue, "m0")
    assert list(queue.training.warm_pools) == ["whole-qstamp-1"]
    queue.wake()
    assert (carriers(queue), finished(queue)) == ([], [])
    assert queue.repository.metadata().reservations == {"m0": {"p5": 1}}
    queue.training.warm_pools.clear()
    queue.event("whole-qstamp-1")
    assert queue.state("m0") == "running"


def test_other_images_and_owners_ride_apart(queue: Harness) -> None:
    share(queue, 3)
    submit(queue, "m0")
    submit(queue, "m1", RoleArn=a_request()["RoleArn"])
    other = member_request("m2")
    other["AlgorithmSpecification"]["TrainingImage"] += "2"
    queue.submissions.submit(other, OWNER)
    queue.submissions.submit(member_request("m3"), OWNER.replace("ada", "bob"))
    queue.wake()
    on_carrier = [queue.job(f"m{number}").carrier_attempt for number in range(4)]
    assert on_carrier[0] == on_carrier[1]
    assert len(set(on_carrier)) == 3
    assert None not in on_carrier


def test_owners_ride_together_where_their_project_says_so(queue: Harness) -> None:
    share(queue, 1, owners_share=True)
    submit(queue, "m0")
    queue.submissions.submit(member_request("m1"), OWNER.replace("ada", "bob"))
    other = member_request("m2")
    other["AlgorithmSpecification"]["TrainingImage"] += "2"
    queue.submissions.submit(other, OWNER)
    queue.wake()
    assert queue.job("m0").carrier_attempt == queue.job("m1").carrier_attempt is not None
    assert queue.job("m2").carrier_attempt is None, "another image is another carrier, whoever trusts whom"
    assert [queue.job(name).owner for name in ("m0", "m1")] == [OWNER, OWNER.replace("ada", "bob")]


def test_a_name_like_a_carriers_is_refused(queue: Harness) -> None:
    with pytest.raises(InvalidRequest, match="begins with carrier--") as refused:
        submit(queue, "carrier--nlp--1")
    assert refused.value.field == "TrainingJobName"
    submit(queue, "m0")
    assert carrier(queue).name.startswith(models.CARRIER_PREFIX)


def test_a_member_leaves_a_record_without_instances_and_its_carrier_is_charged(queue: Harness) -> None:
    submit(queue, "m0", "0.5")
    first = carrier(queue)
    queue.training.run(first.launched or "", queue.now)
    reported(queue, "m0")
    (attempt,) = queue.record("m0").attempts
    assert (attempt.training_job_name, attempt.carrier) == ("m0-qstamp-1", first.launched)
    records = queue.repository.attempts.ended_since(queue.now - 3600, queue.now + 3600)
    (record,) = records
    assert (record.job, record.instances, record.slots) == ("m0", {}, {"p5": 0})
    assert (record.gpus, record.carrier, record.carries) == (5, first.name, None)


def test_an_allocation_is_kept_in_the_record(queue: Harness) -> None:
    submit(queue, "m0", "0.5")
    assert queue.job("m0").allocation == GpuAllocation(carrier(queue).name, (0,), 5)
    assert queue.job("m0").gpus == 5


def test_the_status_counts_gpus_where_instances_are_shared(queue: Harness) -> None:
    share(queue, 2)
    submit(queue, "m0", "2")
    submit(queue, "m1", "0.5")
    whole(queue, "whole")
    cluster, decided = queue.forecast()
    plan = PublishedPlan.of(cluster, decided, queue.now)
    (pool,) = queue_status(cluster, plan, queue.now, lambda job: True).pools
    assert (pool.used, pool.gpus, pool.gpus_used) == (2, 16, 10.5)


def test_what_a_member_waits_for_is_told_in_gpus(queue: Harness) -> None:
    submit(queue, "m0", "0.5")
    submit(queue, "m1", "8")
    submit(queue, "m2", "0.5", priority=-1)
    _, decided = queue.forecast()
    holds = {hold.job: hold.message for hold in decided.holds}
    assert holds.keys() == {"m1"}
    assert holds["m1"].startswith(
        "No carrier that accepts it has 8 GPUs free, and no other carrier can start. It needs 1 instance"
    )
    (waits,) = decided.holds
    assert waits.blockers == (carrier(queue).name, "m0", "m2"), "who is on board is in its way, too"


def test_a_plan_tells_whether_a_member_would_start(queue: Harness) -> None:
    def answer(gpus: str, priority: int = 0) -> PlanAnswer:
        job = queue.submissions.validate(member_request("new", gpus, priority), OWNER).job
        cluster, decided, advice = queue.dry_run.what_if(job)
        return plan_answer(job, cluster, decided, queue.now, advice, (), None)

    launched = answer("4")
    assert (launched.would_start, launched.slots, launched.reason) == (True, {"p5": 1}, None)
    submit(queue, "m0", "6")
    queue.training.run(carrier(queue).launched or "", queue.now)
    assigned = answer("2")
    assert (assigned.would_start, assigned.slots, assigned.evicts) == (True, None, ())
    waits = answer("4")
    assert (waits.would_start, waits.slots) == (False, None)
    assert any("priority" in advice for advice in waits.advice)
    claims = answer("4", priority=1)
    assert claims.would_start and [it.job for it in claims.evicts] == ["m0"]
