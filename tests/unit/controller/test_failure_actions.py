"""The action after a failed attempt: the class from the reason and the log, the rules, the limits, and one notice."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from job_queue.adapters.eventbridge import Notifier
from job_queue.controller.cycle import Controller
from job_queue.domain.domain_events import DomainEvent
from job_queue.domain.failures import LoggedLine
from job_queue.domain.state_machine import JobTransition, failure_class_in
from tests.jobs import OWNER
from tests.queue_harness import Harness
from tests.unit.queue_api import STRANGER, Api
from tests.waiting import PATIENCE

PROGRAM = "AlgorithmError: ExecuteUserScriptError: exit code 1"
IMPORT = "ModuleNotFoundError: No module named 'nosuch'"
NCCL = "[rank1]: Watchdog caught collective operation timeout: WorkNCCL ran for 600000 milliseconds before timing out."
LATE = 301  # seconds after which a failure is not early


class Logged(Harness):
    """A queue that reads logs; the test says what is in them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.lines: list[tuple[str, str]] = []  # (instance, text)
        self.reads: list[tuple[str, str | None]] = []
        super().__init__(*args, **options)

    def read(self, attempt: str, carrier: str | None, ended: float, site: Any) -> list[LoggedLine]:
        self.reads.append((attempt, carrier))
        return [LoggedLine(f"{attempt}/{host}-17", number, text) for number, (host, text) in enumerate(self.lines)]

    def new_controller(self, training: Any, **more: Any) -> Controller:
        return super().new_controller(training, failure_log=self.read, **more)

    def fail(self, attempt: str, why: str | None = PROGRAM, after: float = 0) -> None:
        self.now += after
        self.end(attempt, "Failed", failure=why)


def notifying() -> tuple[Logged, Notifier, list[dict[str, Any]]]:
    """A queue of two slots, its notifier, and the entries that the notifier has put on its bus."""
    sent: list[dict[str, Any]] = []

    class Bus:
        def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            sent.extend(Entries)
            return {"Entries": [{} for _ in Entries]}

    notifier = Notifier(Bus(), ThreadPoolExecutor(1), lambda count: None)  # type: ignore[arg-type]
    return Logged(slots=2, notify=notifier.notify), notifier, sent


def tags(**values: Any) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": str(value)} for key, value in values.items()]}


def test_a_user_error_is_not_retried_and_the_reason_names_the_module() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-1", "step 1"), ("algo-1", IMPORT)]
    queue.submit("job1", **tags(retries=3))
    queue.fail("job1-qstamp-1")
    record = queue.record("job1")
    assert (record.job.state, record.job.retried) == ("failed", 0)
    assert "[user_error: The module nosuch is not installed.]" in (record.job.reason or "")
    assert failure_class_in(record.job.reason) == "user_error"
    assert record.history[-1].cause.startswith("failed, not tried again (built-in: user_error, fail): AlgorithmError")
    assert record.job.failure is not None
    assert (record.job.failure.rank, record.job.failure.lines) == ("algo-1", ("step 1", IMPORT))
    assert [it.failure_class for it in record.attempts] == ["user_error"]
    assert queue.reads == [("job1-qstamp-1", None)]
    (account,) = queue.repository.attempts.ended_since(queue.now - 60, queue.now)
    assert account.failure_class == "user_error"


def test_a_lost_connection_is_retried_free_but_not_for_ever() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-2", NCCL), ("algo-1", "[rank0]: waiting")]
    queue.submit("job1")
    for attempt in range(1, 6):
        queue.fail(f"job1-qstamp-{attempt}", after=LATE)
        job = queue.job("job1")
        assert (job.state, job.attempt, job.retried, job.free_retried) == ("running", attempt + 1, 0, attempt)
    assert queue.record("job1").history[-3].cause.startswith("failed, retried free: AlgorithmError")
    queue.fail("job1-qstamp-6", after=LATE)
    assert queue.state("job1") == "failed"
    failure = queue.job("job1").failure
    assert failure is not None
    assert (failure.failure_class, failure.rank) == ("communication", "algo-2 rank 1")
    assert failure.rule.endswith("5 free retries in a row are used")


def test_the_same_early_failure_twice_ends_the_retries() -> None:
    queue = Logged(slots=1)
    queue.submit("job1", **tags(retries=9))
    queue.fail("job1-qstamp-1", "AlgorithmError: exit code: 137")
    assert (queue.state("job1"), queue.job("job1").retried) == ("running", 1)
    queue.fail("job1-qstamp-2", "AlgorithmError: exit code: 137")
    assert queue.state("job1") == "failed"
    assert (
        "two attempts in a row failed with the same class, each within 5 minutes"
        in queue.record("job1").history[-1].cause
    )


def test_a_rule_of_the_job_comes_before_the_built_in_action() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-1", IMPORT)]
    queue.submit("job1", **tags(retry_on="text:no_module=retry"))
    assert queue.job("job1").retries == 3, "without the tag retries"
    queue.fail("job1-qstamp-1")
    assert (queue.state("job1"), queue.job("job1").retried) == ("running", 1)


def test_a_rule_can_end_a_job_after_an_error_of_sagemaker() -> None:
    queue = Logged(slots=1)
    queue.submit("job1", **tags(retry_on="internal=fail"))
    queue.fail("job1-qstamp-1", "InternalServerError: try again")
    assert queue.state("job1") == "failed"
    assert queue.reads == [], "the program has not failed"


@pytest.mark.parametrize(
    ("status", "why"),
    [("Completed", None), ("Stopped", None), ("Failed", "CapacityError: none"), ("Failed", "InternalServerError: x")],
)
def test_only_a_failed_program_costs_a_look_into_its_log(status: str, why: str | None) -> None:
    queue = Logged(slots=1)
    queue.submit("job1")
    queue.end("job1-qstamp-1", status, failure=why)
    assert queue.reads == []


def test_an_evicted_job_that_fails_is_not_classified() -> None:
    queue = Logged(slots=1)
    queue.submit("job1", **tags(priority=1))
    queue.submit("high", 9)
    queue.fail("job1-qstamp-1")
    assert (queue.state("job1"), queue.job("job1").failure, queue.reads) == ("preempted", None, [])


def test_a_lost_event_does_not_lose_the_class() -> None:
    """The tick reads the log once; a later event of the same end reads nothing and changes nothing."""
    queue = Logged(slots=1)
    queue.lines = [("algo-1", IMPORT)]
    queue.submit("job1", **tags(retries=3))
    queue.training.end("job1-qstamp-1", "Failed", "", PROGRAM)
    queue.tick()
    failure = queue.job("job1").failure
    assert (queue.state("job1"), failure and failure.failure_class) == ("failed", "user_error")
    queue.event("job1-qstamp-1")
    queue.tick()
    assert (queue.job("job1").failure, len(queue.reads)) == (failure, 1)


def test_a_tick_reads_few_logs() -> None:
    queue = Logged(slots=8)
    queue.lines = [("algo-1", IMPORT)]
    for number in range(8):
        queue.submit(f"job{number}", **tags(retries=0))
        queue.training.end(f"job{number}-qstamp-1", "Failed", "", PROGRAM)
    queue.tick()
    assert len(queue.reads) == 5
    assert {queue.state(f"job{number}") for number in range(8)} == {"failed"}


# --- notices and answers -----------------------------------------------------------------------------


def test_similar_failures_of_an_owner_have_one_notice() -> None:
    seen: list[DomainEvent] = []
    queue = Logged(slots=9, notify=seen.append)
    queue.lines = [("algo-1", IMPORT)]
    for name in ("a", "b", "c"):
        queue.submit(name)
    queue.submit("other")
    for name in ("a", "b", "c"):
        queue.fail(f"{name}-qstamp-1")
    queue.fail("other-qstamp-1", "AlgorithmError: exit code: 137")

    def covered() -> dict[str, str | None]:
        ends = (it for it in seen if isinstance(it, JobTransition) and it.new.state == "failed")
        return {it.new.name: it.covered_by for it in ends}

    assert covered() == {"a": None, "b": "a", "c": "a", "other": None}
    queue.submit("d")
    queue.fail("d-qstamp-1", after=LATE)
    assert covered()["d"] is None


def test_the_event_of_a_covered_failure_has_no_notice() -> None:
    queue, notifier, sent = notifying()
    queue.lines = [("algo-1", IMPORT)]
    for name in ("a", "b"):
        queue.submit(name)
    for name in ("a", "b"):
        queue.fail(f"{name}-qstamp-1")
    notifier.flush(PATIENCE)
    ends = [json.loads(it["Detail"]) for it in sent if it["DetailType"] == "Training Job Finished"]
    assert [(it["job"], it["failureClass"], it.get("noticeOf")) for it in ends] == [
        ("a", "user_error", None),
        ("b", "user_error", "a"),
    ]
    assert ends[0]["failure"] == "The module nosuch is not installed."
    assert "has failed (user_error). smq logs a shows its log. Correct the program" in ends[0]["notice"]
    assert "nosuch" not in ends[0]["notice"], "the notice is for readers who may not see the program's output"
    assert "notice" not in ends[1]


def test_the_answer_has_the_failure_and_strangers_see_no_output() -> None:
    api = Api(queue=Logged(slots=1))
    assert isinstance(api.queue, Logged)
    api.queue.lines = [("algo-1", IMPORT)]
    api.queue.submit("job1", **tags(retries=3))
    api.queue.fail("job1-qstamp-1")
    _, shown = api.call("GET", "/jobs/job1", caller=OWNER)
    assert shown["failureClass"] == "user_error"
    assert shown["attempts"][0]["failureClass"] == "user_error"
    assert shown["failure"] == {
        "failureClass": "user_error",
        "attempt": 1,
        "sentence": "The module nosuch is not installed.",
        "remedy": "Correct the program or its arguments, and submit the job again.",
        "rank": "algo-1",
        "lines": [IMPORT],
        "exitCode": 1,
        "action": "fail",
        "rule": "built-in: user_error, fail",
        "freshInstances": False,
        "instanceCheck": False,
        "gpuUuids": [],
        "returnedGpus": [],
        "actionNow": "fail",
        "ruleNow": "built-in: user_error, fail",
    }
    _, strange = api.call("GET", "/jobs/job1", caller=STRANGER)
    assert (strange["failure"]["sentence"], strange["failure"]["lines"]) == ("***", [])
    assert "nosuch" not in str(strange)
    _, page = api.call("GET", "/jobs", caller=STRANGER, state="finished")
    assert [it["failureClass"] for it in page["jobs"]] == ["user_error"], "the index of finished jobs has the reason"
