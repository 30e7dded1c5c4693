"""Events of our own: what they say, in what order, how many calls they cost, and that EventBridge may fail."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from api_contract.notices import LONGEST_NOTICE, notice
from job_queue.adapters.eventbridge import Notifier
from job_queue.domain import state_machine
from job_queue.domain.domain_events import JobEvent, PolicyApplied, UnsavedJob
from job_queue.domain.job import STOP_DENIED_SECONDS, StartByAction, iso
from job_queue.domain.policy import StoredPolicy
from job_queue.domain.state_machine import announce_cut_off, start_missed
from tests.jobs import NOW, OWNER
from tests.payloads import EVENTS, payload
from tests.queue_harness import ADMIN, Harness
from tests.waiting import PATIENCE

Json = dict[str, Any]


class EventBridge:
    """Takes events, unless it is told not to."""

    def __init__(self) -> None:
        self.calls: list[list[Json]] = []
        self.refuse = 0  # so many entries, of the next calls
        self.broken = False

    def put_events(self, Entries: list[Json]) -> Json:  # noqa: N803  (boto3's name)
        assert 0 < len(Entries) <= 10
        self.calls.append(Entries)
        if self.broken:
            raise TimeoutError("no answer")
        refused, self.refuse = min(self.refuse, len(Entries)), max(0, self.refuse - len(Entries))
        results = [{"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}] * refused
        return {"FailedEntryCount": refused, "Entries": results + [{"EventId": "1"}] * (len(Entries) - refused)}


class NotifyingQueue:
    """A queue, and what it tells EventBridge."""

    def __init__(self, background: ThreadPoolExecutor, notice_after: float = 600) -> None:
        self.background = background
        self.bridge = EventBridge()
        self.lost: list[int] = []
        self.notifier = Notifier(cast(Any, self.bridge), background, self.lost.append, notice_after)
        self.queue = Harness(slots=1, notify=self.notifier.notify)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """EventBridge answers nothing meanwhile."""
        over = threading.Event()
        self.background.submit(over.wait, PATIENCE)
        try:
            yield
        finally:
            over.set()

    def events(self) -> list[tuple[str, Json]]:
        """All that arrived, as (detail-type, detail)."""
        self.notifier.flush(PATIENCE)
        entries = [entry for call in self.bridge.calls for entry in call]
        assert {entry["Source"] for entry in entries} <= {"sagemaker-queue"}
        assert not [entry for entry in entries if "EventBusName" in entry], "the default bus"
        return [(entry["DetailType"], json.loads(entry["Detail"])) for entry in entries]


@pytest.fixture
def notifying() -> Iterator[NotifyingQueue]:
    with ThreadPoolExecutor(1) as background:
        yield NotifyingQueue(background)


def live_through(queue: Harness) -> None:
    """A job cannot be stopped at first, is preempted, late, requeued, told that its plan ends, and completed."""
    queue.submit("job1", 1)
    queue.now += 60
    queue.training.untagged.add("job1-qstamp-1")
    queue.submit("job4", 3)
    queue.training.untagged.clear()
    queue.tick(STOP_DENIED_SECONDS)
    queue.end("job1-qstamp-1", "Stopped")
    queue.repository.apply(start_missed(queue.job("job1"), ("p5", "p4"), queue.now), queue.now)
    queue.end("job4-qstamp-1")
    queue.change("job1", requeue=True)
    queue.end("job1-qstamp-2", "Stopped")
    told = announce_cut_off(queue.job("job1"), int(queue.now) + 3600, "winter", queue.now)
    queue.repository.apply(told, queue.now)
    queue.end("job1-qstamp-3")


def fail_twice_on_a_gpu(queue: Harness) -> None:
    """Let a job live through two hardware failures of one GPU."""
    queue.submit("job1", 1)
    for attempt in (1, 2):
        queue.now += 301
        why = "AlgorithmError: NVRM: Xid 79, GPU-5a1f0c6e-8c54-4a57-9c1c-0d4f5e9d8a11 has fallen off the bus"
        queue.end(f"job1-qstamp-{attempt}", "Failed", failure=why)


def hang(queue: Harness) -> None:
    """A job hangs, so the queue stops its attempt, and it waits again."""
    job = queue.submit("job1").job
    queue.repository.apply(state_machine.record_hang(job, queue.now - 1800, queue.now, requeue=True), queue.now)
    queue.tick()
    queue.end("job1-qstamp-1", "Stopped")


def be_drained(queue: Harness) -> None:
    queue.submit("job1", 1)
    queue.drain("default", reason="new disks")
    queue.end("job1-qstamp-1", "Stopped")
    queue.undrain("default")


def test_a_preempted_jobs_whole_life(notifying: NotifyingQueue) -> None:
    live_through(notifying.queue)
    events = notifying.events()
    assert [what.removeprefix("Training Job ") for what, detail in events if detail["job"] == "job1"] == [
        "Queued", "Started", "Unstoppable", "Preempted", "Late", "Resumed", "Requeued", "Resumed", "Expiring",
        "Finished",
    ]  # fmt: skip
    queued, started, unstoppable, preempted, late, resumed, requeued, again, expiring, finished = (
        detail for _, detail in events if detail["job"] == "job1"
    )
    assert queued["state"] == "pending"
    assert (started["trainingJobName"], started["waitSeconds"]) == ("job1-qstamp-1", 0)
    assert started["slots"] == {"default": 1}
    assert (unstoppable["claimant"], unstoppable["state"]) == ("job4", "running")
    assert (preempted["claimant"], preempted["rule"]) == ("job4", "preempt")
    assert (preempted["trainingJobName"], preempted["state"]) == ("job1-qstamp-1", "preempted")
    assert (late["state"], late["startBy"], late["action"]) == ("preempted", "1970-01-01T00:00:00.000000Z", "notify")
    assert late["notice"] == "job1 (ada, project default) has not started by 1970-01-01 00:00:00 UTC."
    assert resumed["trainingJobName"] == "job1-qstamp-2"
    assert (requeued["requeuedBy"], requeued["held"], requeued["state"]) == (OWNER, False, "preempted")
    assert (requeued["trainingJobName"], again["trainingJobName"]) == ("job1-qstamp-2", "job1-qstamp-3")
    assert "was requeued by ada, and continues from its checkpoint when it starts again" in requeued["notice"]
    assert expiring["cutOff"] == iso(int(notifying.queue.now) + 3600 - 1)
    assert (finished["state"], finished["reason"]) == ("completed", None)
    assert finished["trainingJobName"] == "job1-qstamp-3"
    versions = [detail["version"] for _, detail in events if detail["job"] == "job1"]
    assert versions == sorted(set(versions)), "receivers put them in order by it"


def notices(notifying: NotifyingQueue) -> list[str]:
    return [detail["notice"] for _, detail in notifying.events() if "notice" in detail]


@pytest.mark.parametrize(
    ("further", "told"),
    [
        ((), "has not started by 1970-01-01 00:00:00 UTC, and its project has no further pools in which it could run"),
        (("p5", "p4"), "has not started by 1970-01-01 00:00:00 UTC, and may now run in the pools p5, p4"),
    ],
)
def test_a_late_start_tells_of_further_pools(notifying: NotifyingQueue, further: tuple[str, ...], told: str) -> None:
    queue = notifying.queue
    queue.submit("job1", 1)
    late = start_missed(replace(queue.job("job1"), start_by_action=StartByAction.NEXT_POOL), further, queue.now)
    queue.repository.notify(late)
    (event,) = [detail for what, detail in notifying.events() if what == "Training Job Late"]
    assert (event["action"], event["pools"]) == ("next_pool", list(further))
    assert event["notice"] == f"job1 (ada, project default) {told}."


def test_people_are_told_in_a_sentence_of_what_they_want_to_hear(notifying: NotifyingQueue) -> None:
    queue = notifying.queue
    queue.submit("job1", 1)
    queue.now += 3600
    queue.submit("job4", 3)
    queue.training.end("job1-qstamp-1", "Stopped")
    queue.event("job1-qstamp-1")
    queue.submit("job5", 2)
    queue.now += 700
    queue.end("job4-qstamp-1")
    queue.end("job5-qstamp-1", "Failed", failure="AlgorithmError: no such file")
    queue.cancel("job1")
    queue.training.end("job1-qstamp-2", "Stopped")
    queue.event("job1-qstamp-2")
    told = notices(notifying)
    assert told[:4] == [
        "job1 (ada, project default) was preempted for job4, and continues from its checkpoint when it starts again.",
        "job4 (ada, project default) is completed, 12 min after it was submitted.",
        "job5 (ada, project default) has started, after 12 min in the queue.",
        "job5 (ada, project default) has failed by an error of its own; smq logs job5 shows it.",
    ]
    assert told[4].startswith("job1 (ada, project default) was stopped: ")
    assert len(told) == 5, "neither a start at once nor a resumed one is news"


@pytest.mark.parametrize(("after", "news"), [(0, True), (600, True), (700, False)])
def test_a_start_is_news_after_so_long_in_the_queue(after: float, news: bool) -> None:
    with ThreadPoolExecutor(1) as background:
        notifying = NotifyingQueue(background, after)
        notifying.queue.submit("job1", 1)
        notifying.queue.submit("job2", 1)
        notifying.queue.now += 600
        notifying.queue.end("job1-qstamp-1")
        assert any("job2 (ada, project default) has started" in told for told in notices(notifying)) is news


def test_what_others_say_of_its_end_orders_nobody_about_and_what_its_program_said_is_not_told(
    notifying: NotifyingQueue,
) -> None:
    failure = "ClientError: <!channel>\n\x1b[2Jwipe " + "x" * 9000
    for name, words in (("job1", failure), ("job2", "AlgorithmError: the password is hunter2")):
        notifying.queue.submit(name, 1)
        notifying.queue.end(f"{name}-qstamp-1", "Failed", failure=words)
    first, second = notices(notifying)
    assert first.startswith("job1 (ada, project default) has failed (user_error): ClientError: ‹!channel› [2Jwipe xxx")
    assert (len(first) <= LONGEST_NOTICE, first.isprintable()) == (True, True)
    assert second == "job2 (ada, project default) has failed by an error of its own; smq logs job2 shows it."


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("queue-*.json")))
def test_the_examples_have_the_fields_that_are_sent(notifying: NotifyingQueue, name: str) -> None:
    lives = {
        "queue-drained": be_drained,
        "queue-gpu-returned": fail_twice_on_a_gpu,
        "queue-hangs": hang,
        "queue-hung": hang,
    }
    lives.get(name, live_through)(notifying.queue)
    notifying.notifier.notify(UnsavedJob(notifying.queue.job("job1"), has_folder=True, at=notifying.queue.now))
    example = payload(name)
    assert example["source"] == "sagemaker-queue"
    sent = next(
        detail for what, detail in notifying.events() if (what, detail.get("job")) == (example["detail-type"], "job1")
    )
    shape = {field: type(value) for field, value in example["detail"].items()}
    assert shape == {field: type(value) for field, value in sent.items()}


def test_there_is_an_example_of_every_event_that_is_sent() -> None:
    examples = {payload(path.stem)["detail-type"] for path in EVENTS.glob("queue-*.json")}
    assert examples == {what.value for what in JobEvent} - {JobEvent.BACKED_OFF.value}


def test_a_drain_its_end_and_the_jobs_that_it_stops_are_told_of(notifying: NotifyingQueue) -> None:
    be_drained(notifying.queue)
    events = notifying.events()
    assert [what.removeprefix("Training Job ") for what, _ in events] == [
        "Queued", "Started", "Pool Drained", "Drained", "Pool Undrained", "Resumed",
    ]  # fmt: skip
    _, _, pool, job, ended, _ = (detail for _, detail in events)
    drain = {"pool": "default", "drainedBy": ADMIN, "reason": "new disks", "stops": "preemptible", "at": iso(NOW + 1)}
    assert pool == {**drain, "requested": iso(NOW + 1)}
    assert ended == {**pool, "undrainedBy": ADMIN}
    assert (job["drainedBy"], job["slots"], job["state"]) == (ADMIN, {"default": 1}, "preempted")
    assert "was stopped because ops drains its pool, and continues from its checkpoint" in job["notice"]


def test_a_policy_that_is_applied_is_told_of(notifying: NotifyingQueue) -> None:
    notifying.notifier.notify(PolicyApplied(StoredPolicy(4, "{}", "ada", "2026-11-20T10:16:12Z"), 2))
    detail = {"version": 4, "appliedBy": "ada", "appliedAt": "2026-11-20T10:16:12Z", "restored": 2}
    assert notifying.events() == [("Training Job Policy Changed", detail)]


@pytest.mark.parametrize(
    ("has_folder", "remedy"),
    [
        (True, "its script must write to the checkpoint folder ($SM_CHECKPOINT_DIR)."),
        (False, "it needs a checkpoint folder (smq submit --checkpoint, or checkpoint_s3_uri)."),
    ],
)
def test_people_are_told_that_a_job_saves_nothing(notifying: NotifyingQueue, has_folder: bool, remedy: str) -> None:
    notifying.queue.submit("job1", 1)
    at = notifying.queue.now + 4000
    notifying.notifier.notify(UnsavedJob(notifying.queue.job("job1"), has_folder, at))
    what, detail = notifying.events()[-1]
    assert what == "Training Job Unsaved"
    assert (detail["trainingJobName"], detail["ranSeconds"], detail["at"]) == ("job1-qstamp-1", 4000, iso(at))
    assert detail["notice"] == (
        "job1 (ada, project default) has run for 1 h 7 min without a checkpoint, and a preemption would lose this "
        f"work; {remedy}"
    )


def test_a_forged_attempt_is_told_of(notifying: NotifyingQueue) -> None:
    notifying.queue.start_outside("mine", queue_name="sagemaker-queue", queue_job="x" * 200)
    notifying.queue.tick()
    assert notifying.events() == [("Training Job Forged", {"trainingJobName": "mine", "job": "x" * 63})]


def test_a_failure_tells_its_reason_briefly(notifying: NotifyingQueue) -> None:
    notifying.queue.submit("job1")
    notifying.queue.end("job1-qstamp-1", "Failed", failure="AlgorithmError: " + "x" * 5000)
    what, detail = notifying.events()[-1]
    assert what == "Training Job Finished"
    assert detail["state"] == "failed"
    assert detail["reason"].startswith("AlgorithmError: xxx")
    assert len(detail["reason"]) <= 1000


def test_a_job_cancelled_while_waiting_had_no_training_job(notifying: NotifyingQueue) -> None:
    notifying.queue.submit("first")
    notifying.queue.submit("second")
    notifying.queue.cancel("second")
    what, detail = notifying.events()[-1]
    assert (what, detail["state"], detail["trainingJobName"]) == ("Training Job Finished", "stopped", None)


def test_backing_off_sends_no_event(notifying: NotifyingQueue) -> None:
    notifying.queue.submit("job1")
    notifying.queue.end("job1-qstamp-1", "Failed", failure="CapacityError: none left")
    assert [what.removeprefix("Training Job ") for what, _ in notifying.events()] == ["Queued", "Started"]


def test_a_job_that_backed_off_is_started_and_not_resumed(notifying: NotifyingQueue) -> None:
    notifying.queue.submit("job1")
    notifying.queue.end("job1-qstamp-1", "Failed", failure="CapacityError: none left")
    notifying.queue.tick(3600)
    what, detail = notifying.events()[-1]
    assert (what, detail["trainingJobName"]) == ("Training Job Started", "job1-qstamp-2")
    assert detail["waitSeconds"] > 3600


# --- how they are sent -------------------------------------------------------------------------------


def test_nobody_waits_for_eventbridge_and_what_gathers_meanwhile_is_sent_in_batches(notifying: NotifyingQueue) -> None:
    with notifying.slow():
        for number in range(24):
            notifying.queue.submit(f"job{number}")
        notifying.notifier.flush(0.01)
        assert notifying.bridge.calls == []
    assert len(notifying.events()) == 25
    assert [len(call) for call in notifying.bridge.calls] == [10, 10, 5]


def test_what_eventbridge_refuses_is_sent_once_more(notifying: NotifyingQueue) -> None:
    notifying.bridge.refuse = 1
    with notifying.slow():
        notifying.queue.submit("job1")
    notifying.notifier.flush(PATIENCE)
    assert [[entry["DetailType"] for entry in call] for call in notifying.bridge.calls] == [
        ["Training Job Queued", "Training Job Started"],
        ["Training Job Queued"],
    ]
    assert notifying.lost == []


def test_what_stays_refused_is_lost_and_counted(notifying: NotifyingQueue) -> None:
    notifying.bridge.refuse = 100
    notifying.queue.submit("job1")
    notifying.notifier.flush(PATIENCE)
    assert sum(notifying.lost) == 2
    assert notifying.queue.state("job1") == "running"


def test_a_broken_eventbridge_fails_nothing_and_later_events_arrive(notifying: NotifyingQueue) -> None:
    notifying.bridge.broken = True
    notifying.queue.submit("job1")
    notifying.notifier.flush(PATIENCE)
    assert notifying.queue.state("job1") == "running"
    assert sum(notifying.lost) == 2
    notifying.bridge.broken = False
    notifying.queue.end("job1-qstamp-1")
    assert notifying.events()[-1][0] == "Training Job Finished"


@pytest.mark.parametrize("length", range(1, 60))
def test_a_notice_is_never_longer_than_it_may_be(length: int) -> None:
    assert len(notice("job", "o", "p", "x" * length, longest=40)) <= 40
