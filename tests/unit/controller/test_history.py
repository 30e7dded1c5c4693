"""Each attempt that has ended is in the history, once, whoever tells of its end and however often."""

import json
from collections.abc import Sequence

from job_queue.adapters.dynamodb import Write
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.errors import Refused
from job_queue.domain.fleet.checkpoints import KnownCheckpoint
from job_queue.domain.job import epoch
from job_queue.domain.state_machine import MISSING_SECONDS
from tests.jobs import NOW, OWNER, P5, a_request
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness

POLICY = {
    "pools": [{"name": "p5", "instance_type": P5, "capacity": 4}],
    "departments": [{"name": "research", "quota": {"p5": 2}}],
    "projects": [{"name": "vision", "department": "research", "quota": {"p5": 1}}],
}


def history(queue: Harness) -> list[AttemptRecord]:
    return queue.repository.attempts.page(NOW - 1, queue.now + 1, 100, queue.now).attempts


def seconds(found: AttemptRecord) -> list[float | None]:
    began = None if found.began is None else epoch(found.began)
    launched, ended = epoch(found.launched), epoch(found.ended)
    waited = launched - epoch(found.waiting_since)
    return [waited, None if began is None else began - launched, None if began is None else ended - began]


def test_an_event_tells_how_long_it_waited_was_provisioned_and_ran() -> None:
    queue = Harness()
    queue.submit("job1", 3, instances=2)
    launched = queue.now
    queue.training.run("job1-qstamp-1", launched + 90, launched + 390)
    queue.now += 400
    queue.end("job1-qstamp-1")
    (found,) = history(queue)
    assert seconds(found) == [launched - epoch(queue.job("job1").entered), 90, 300]
    job = queue.job("job1")
    assert (found.job, found.submission, found.attempt, found.outcome) == ("job1", job.submission, 1, "completed")
    assert (found.instances, found.slots, found.market) == ({P5: 2}, {"default": 2}, "on_demand")
    assert (found.priority, found.owner, found.submitted) == (3, job.owner, job.entered)
    assert found.image == "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"


def test_a_comparison_tells_the_same() -> None:
    queue = Harness()
    queue.submit("job1")
    launched = queue.now
    queue.training.run("job1-qstamp-1", launched + 90, launched + 390)
    queue.now += 400
    queue.training.end("job1-qstamp-1", "Failed", failure="AlgorithmError: no")
    queue.tick()
    (found,) = history(queue)
    assert (seconds(found)[1:], found.outcome) == ([90, 300], "failed")


def test_an_end_that_is_told_twice_is_there_once() -> None:
    queue = Harness()
    queue.submit("job1")
    queue.end("job1-qstamp-1")
    queue.event("job1-qstamp-1")
    queue.tick()
    assert len(history(queue)) == 1


class Jealous(MemoryTables):
    """Somebody else is always faster, so many times."""

    faster = 0

    def transact(self, writes: Sequence[Write]) -> None:
        if self.faster and any(write.table == "sagemaker-queue-history" for write in writes):
            self.faster -= 1
            raise Refused({0: {}})
        super().transact(writes)


def test_a_transaction_that_is_refused_and_repeated_leaves_one() -> None:
    tables = Jealous()
    queue = Harness(tables=tables)
    queue.submit("job1")
    tables.faster = 3
    queue.end("job1-qstamp-1")
    assert not tables.faster
    assert [found.job for found in history(queue)] == ["job1"]


def test_each_attempt_of_a_preempted_job_is_there_and_says_what_it_lost() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    launched = queue.now
    queue.training.run("job1-qstamp-1", launched + 10)
    seen = KnownCheckpoint(1, int(launched) + 60, int(launched) + 50)
    queue.repository.note_checkpoints({"job1": seen})
    queue.now += 60
    queue.submit("urgent", 9)
    queue.now = launched + 110
    queue.training.run("job1-qstamp-1", launched + 10, queue.now)
    queue.end("job1-qstamp-1", "Stopped")
    queue.end("urgent-qstamp-1")
    queue.end("job1-qstamp-2")
    first, urgent, second = history(queue)
    assert (first.outcome, first.made_room_for, first.lost) == ("preempted", "urgent", 60)
    assert (urgent.job, urgent.lost, second.attempt, second.outcome) == ("urgent", None, 2, "completed")
    assert second.waiting_since == queue.record("job1").attempts[0].ended
    assert second.submission == first.submission


def test_a_job_without_checkpoints_loses_all_that_it_ran() -> None:
    queue = Harness(slots=1)
    request = a_request("job1")
    del request["CheckpointConfig"]
    queue.submissions.submit(request, OWNER)
    queue.wake()
    queue.submit("urgent", 9)
    queue.training.run("job1-qstamp-1", queue.now, queue.now + 500)
    queue.now += 500
    queue.end("job1-qstamp-1", "Stopped")
    (found,) = history(queue)
    assert (found.outcome, found.lost) == ("preempted", 500)


def test_an_attempt_that_never_had_instances_has_used_none() -> None:
    queue = Harness()
    queue.submit("job1")
    queue.now += 7200
    queue.training.starve("job1-qstamp-1")
    queue.event("job1-qstamp-1")
    (found,) = history(queue)
    assert (found.began, found.outcome) == (None, "stopped")


def test_what_was_never_launched_is_no_attempt() -> None:
    queue = Harness(slots=1)
    queue.submit("job1")
    queue.submit("job2")
    queue.cancel("job2")
    queue.end("job1-qstamp-1")
    queue.training.script.append(LaunchResult.REFUSED)
    assert queue.submit("job3").job.state == "failed"
    assert [found.job for found in history(queue)] == ["job1"]


def test_an_attempt_that_was_deleted_ends_when_that_is_certain() -> None:
    queue = Harness()
    queue.submit("job1")
    del queue.training.jobs["job1-qstamp-1"]
    queue.tick()
    assert not history(queue)
    queue.tick(MISSING_SECONDS + 1)
    (found,) = history(queue)
    assert (found.outcome, found.instances) == ("stopped", {P5: 1})


def test_it_says_which_department_and_what_was_borrowed() -> None:
    queue = Harness(slots=4)
    queue.repository.apply_policy(json.dumps(POLICY), 0, "ada", queue.now)
    for name in ("job1", "job2"):
        queue.submit(name, Tags=[{"Key": "project", "Value": "vision"}])
    for name in ("job1", "job2"):
        queue.end(f"{name}-qstamp-1")
    first, second = history(queue)
    assert (first.project, first.department, first.slots) == ("vision", "research", {"p5": 1})
    assert (first.borrowed, second.borrowed) == (0, 1)
