"""Who leaves is chosen by the work that would be lost, which S3 tells."""

from collections.abc import Callable
from typing import Any

import pytest

from job_queue.controller.cycle import Controller
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.checkpoints import LOOKUP_SECONDS, MOST_LOOKUPS
from tests.jobs import NOW, OWNER, a_request
from tests.queue_harness import Harness


class Bucket:
    """Checkpoints of jobs, by their addresses, and who has asked."""

    def __init__(self) -> None:
        self.written: dict[str, float] = {}
        self.asked: list[str] = []
        self.broken = False

    def newest(self, address: str) -> float | None:
        self.asked.append(address.rpartition("/")[-1])
        if self.broken:
            raise Unavailable("scripted")
        return self.written.get(address)


class CheckpointedQueue(Harness):
    def __init__(self, slots: int) -> None:
        self.bucket = Bucket()
        super().__init__(slots)

    def new_controller(self, training: Any, **more: Any) -> Controller:
        newest: Callable[[str], float | None] = self.bucket.newest
        return Controller(
            self.repository, training, self.policies, self.clock, self.parallel, newest_object_at=lambda site: newest
        )

    def wrote(self, name: str, ago: float) -> None:
        self.bucket.written[f"s3://bucket/checkpoints/{name}"] = self.now - ago

    def stopping(self) -> set[str]:
        return {name for name, state in self.states().items() if state == "stopping"}


def a_queue(slots: int = 2) -> CheckpointedQueue:
    """Jobs that run, the last one for the shortest time."""
    queue = CheckpointedQueue(slots)
    for number in range(slots):
        queue.submit(f"job{number}", 1)
        queue.now += 600
    return queue


def test_the_freshest_checkpoint_goes_first() -> None:
    queue = a_queue()
    queue.wrote("job0", ago=60)
    queue.submit("urgent", 9)
    assert queue.stopping() == {"job0"}


def test_without_a_checkpoint_the_work_counts_from_the_start() -> None:
    queue = a_queue()
    queue.submit("urgent", 9)
    assert queue.stopping() == {"job1"}
    assert queue.bucket.asked == ["job1", "job0"]


def test_a_checkpoint_of_an_earlier_attempt_saves_nothing_of_this_one() -> None:
    queue = a_queue()
    queue.bucket.written["s3://bucket/checkpoints/job0"] = NOW - 5
    queue.submit("urgent", 9)
    assert queue.stopping() == {"job1"}


def test_nobody_is_looked_at_while_nobody_has_to_leave() -> None:
    queue = a_queue()
    queue.submit("patient", 1)
    queue.tick()
    assert queue.bucket.asked == []


def test_only_those_among_whom_is_chosen_are_looked_at() -> None:
    queue = CheckpointedQueue(5)
    queue.submit("low", 0)
    queue.submit("more", 1)
    queue.submit("fixed", 1, Tags=[{"Key": "priority", "Value": "1"}, {"Key": "preemptible", "Value": "false"}])
    queue.submit("high", 5)
    queue.submit("last", 1)
    queue.submit("urgent", 9)
    assert queue.stopping() == {"low"}
    assert queue.bucket.asked == [], "there is but one of its priority"
    queue.submit("urgent-too", 9)
    assert sorted(queue.bucket.asked) == ["last", "more"]


def test_each_is_looked_at_once_a_minute_and_few_in_a_cycle() -> None:
    queue = a_queue(15)
    queue.submit("urgent", 9)
    assert len(queue.bucket.asked) == len(set(queue.bucket.asked)) == MOST_LOOKUPS
    queue.submit("urgent-too", 9)
    assert len(queue.bucket.asked) == len(set(queue.bucket.asked)) == 15, "the others"
    queue.submit("urgent-as-well", 9)
    assert len(queue.bucket.asked) == 15
    queue.now += LOOKUP_SECONDS
    queue.submit("late", 9)
    assert len(queue.bucket.asked) == 15 + MOST_LOOKUPS


def test_another_invocation_knows_what_one_has_seen() -> None:
    queue = a_queue()
    queue.wrote("job0", ago=60)
    queue.submit("urgent", 9)
    seen = queue.repository.metadata().checkpoints
    assert seen["job0"].at == int(queue.bucket.written["s3://bucket/checkpoints/job0"])
    assert seen["job1"].at is None


@pytest.mark.parametrize("trouble", ["S3", "the tables"])
def test_what_cannot_be_seen_keeps_nobody_waiting(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = a_queue()

    def failing(*_: object) -> None:
        raise Unavailable("scripted")

    if trouble == "S3":
        queue.bucket.broken = True
    else:
        monkeypatch.setattr(queue.repository, "note_checkpoints", failing)
    queue.submit("urgent", 9)
    assert queue.stopping() == {"job1"}


def test_a_known_checkpoint_outlives_a_failed_look_up() -> None:
    queue = a_queue(3)
    queue.wrote("job0", ago=10)
    queue.wrote("job1", ago=60)
    queue.submit("urgent", 9)
    assert queue.stopping() == {"job0"}
    queue.now += LOOKUP_SECONDS
    queue.bucket.broken = True
    queue.submit("urgent-too", 9)
    assert queue.stopping() == {"job0", "job1"}
    assert queue.repository.metadata().checkpoints["job2"].at is None


def test_who_has_no_checkpoints_is_not_looked_for_in_s3() -> None:
    queue = CheckpointedQueue(2)
    for name in ("a", "b"):
        request = a_request(name)
        del request["CheckpointConfig"]
        queue.submissions.submit(request, OWNER)
    queue.wake()
    queue.submit("urgent", 9)
    assert queue.bucket.asked == []
    assert len(queue.stopping()) == 1
