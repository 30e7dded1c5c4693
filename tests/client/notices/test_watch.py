"""What is told of jobs, look by look, to whoever watches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api_contract import notices
from api_contract.models import FINISHED, JobDetail, JobSummary
from api_contract.notices import LONGEST_NOTICE, finished, notice
from sagemaker_queue.errors import NotFound
from sagemaker_queue.queue.config.notice_settings import NoticeFilter
from sagemaker_queue.workflows.notices.watch import JobWatch
from tests.client.samples import FAILURE


class Queue:
    """Jobs whose histories a test writes: ``(minute, state, cause)`` each."""

    def __init__(self) -> None:
        self.histories: dict[str, list[tuple[int, str, str]]] = {}
        self.reasons: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, str] = {}
        self.more: dict[str, dict[str, Any]] = {}  # further attributes
        self.forgotten: set[str] = set()
        self.listed_before = 0  # the latest transitions that lists do not have yet

    def jobs(self, states: str = "live") -> Iterator[JobSummary]:
        ended = states == "finished"
        details = [self.job(name) for name in self.histories if name not in self.forgotten]
        if self.listed_before:
            details = [self._job(name, self.histories[name][: -self.listed_before]) for name in self.histories]
        found = [job for job in details if (job.state in FINISHED) == ended]
        return iter(sorted(found, key=lambda job: str(job.state_since), reverse=ended))

    def job(self, name: str) -> JobDetail:
        if name in self.forgotten:
            raise NotFound("There is no such job.")
        return self._job(name, self.histories[name])

    def _job(self, name: str, history: list[tuple[int, str, str]]) -> JobDetail:
        moments = [f"2026-11-21T{10 + minute // 60}:{minute % 60:02}:00Z" for minute, _, _ in history]
        answer: dict[str, Any] = {
            "job": name,
            "state": history[-1][1],
            "owner": f"arn:aws:iam::123456789012:user/{self.owners.get(name, 'ann')}",
            "failure": self.failures.get(name),
            "failureClass": self.failures.get(name, {}).get("failureClass"),
            "project": "vision",
            "attempt": 1,
            "entryTime": moments[0],
            "stateSince": moments[-1],
            "reason": {"code": "X", "message": self.reasons[name]} if name in self.reasons else None,
            **self.more.get(name, {}),
            "history": [
                {"at": at, "state": state, "attempt": 1, "cause": cause}
                for at, (_, state, cause) in zip(moments, history)  # noqa: B905  # Python 3.9 has no strict
            ],
        }
        return JobDetail.from_json(answer)


def watching(queue: Queue, *kinds: str, waited: float = 0, meant: str = "") -> JobWatch:
    wanted = NoticeFilter(frozenset(kinds), waited) if kinds else NoticeFilter(waited=waited)
    return JobWatch(queue, lambda job: job.job.startswith(meant), wanted)  # type: ignore[arg-type]


def told(watch: JobWatch) -> list[str]:
    return [notice.text for notice in watch.poll()]


def test_what_was_before_is_no_news_and_nothing_is_told_twice() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (5, "running", "")], "old": [(0, "pending", ""), (1, "completed", "")]}
    watch = watching(queue)
    assert told(watch) == [] and watch.live == {"a"}
    queue.histories["a"].append((65, "completed", ""))
    assert told(watch) == ["a (ann, project vision) is completed, 1h05m after it was submitted."]
    assert told(watch) == [] and not watch.live


def test_all_that_happened_between_two_looks_is_told_in_its_order() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "submitted")]}
    watch = watching(queue)
    watch.poll()
    queue.histories["a"] += [
        (20, "starting", ""),
        (20, "running", ""),
        (30, "stopping", "preempted by b"),
        (31, "preempted", "made room for b"),
        (33, "starting", ""),
        (34, "running", ""),
    ]
    assert told(watch) == [
        "a (ann, project vision) has started, after 20m00s in the queue.",
        "a (ann, project vision) was preempted, and continues from its checkpoint when it starts again: "
        "made room for b.",
        "a (ann, project vision) has started again, after 3m00s in the queue.",
    ]


def fail(queue: Queue, *names: str, owner: str = "ann", failure: Any = FAILURE) -> None:
    """Let jobs fail that were submitted after the latest poll. Without ``failure``, the failure has no class."""
    for name in names:
        queue.histories[name] = [(0, "pending", ""), (1, "running", ""), (5, "failed", "")]
        queue.owners[name] = owner
        queue.reasons[name] = "AlgorithmError: , exit code: 1 [gpu_memory: CUDA ran out of memory.]"
        if failure:
            queue.failures[name] = failure


def watching_from_now(queue: Queue) -> JobWatch:
    watch = watching(queue, "failed", "finished")
    watch.poll()
    return watch


def test_a_failure_is_told_with_class_cause_and_remedy() -> None:
    queue = Queue()
    watch = watching_from_now(queue)
    fail(queue, "a", failure={**FAILURE, "remedy": "Use a smaller batch <!channel>."})
    assert told(watch) == [
        "a (ann, project vision) has failed (gpu_memory): CUDA ran out of memory. Use a smaller batch ‹!channel›."
    ]


def test_three_jobs_of_one_owner_with_one_class_give_one_notice() -> None:
    queue = Queue()
    watch = watching_from_now(queue)
    fail(queue, "a", "b", "c")
    fail(queue, "d", owner="bob")
    fail(queue, "e", failure={**FAILURE, "failureClass": "disk_full"})
    queue.histories["f"] = [(0, "pending", ""), (1, "running", ""), (6, "completed", "")]
    texts = sorted(told(watch))
    assert texts[0] == "3 jobs of ann have failed (gpu_memory): a, b, c. Use a smaller batch."
    assert [text.split()[0] for text in texts[1:]] == ["d", "e", "f"]
    assert told(watch) == []


def test_two_jobs_or_jobs_without_a_class_give_a_notice_each() -> None:
    queue = Queue()
    watch = watching_from_now(queue)
    fail(queue, "a", "b")
    fail(queue, "c", "d", "e", failure=None)
    assert sorted(text.split()[0] for text in told(watch)) == ["a", "b", "c", "d", "e"]


def test_of_many_jobs_the_first_are_named() -> None:
    queue = Queue()
    watch = watching_from_now(queue)
    fail(queue, *"abcdefgh")
    assert told(watch) == ["8 jobs of ann have failed (gpu_memory): a, b, c, d, e and 3 more. Use a smaller batch."]


def test_a_long_reason_does_not_displace_the_remedy() -> None:
    news = finished("failed", "1h", "a", "x" * 2000, "gpu_memory", "Use a smaller batch.")
    assert notice("a", "arn:aws:iam::1:user/ann", "vision", news, LONGEST_NOTICE).endswith("x. Use a smaller batch.")


def test_output_that_not_all_may_see_is_left_out() -> None:
    news = finished("failed", "1h", "a", None, "user_error", "Correct the program.")
    assert news == "has failed (user_error). smq logs a shows its log. Correct the program."
    assert finished("failed", "1h", "a", "", "user_error", "") == "has failed (user_error)."


def test_a_requeue_is_told_with_the_person() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (1, "running", "")]}
    watch = watching(queue)
    watch.poll()
    by = "arn:aws:iam::123456789012:user/lea"
    queue.histories["a"] += [(30, "preempted", f"requeued by {by}; it failed while it was being stopped: exit 143")]
    assert told(watch) == [
        "a (ann, project vision) was requeued by lea, and continues from its checkpoint when it starts again."
    ]


def test_changes_of_a_job_that_waits_again_are_no_preemptions() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (1, "running", "")]}
    watch = watching(queue)
    watch.poll()
    by = "arn:aws:iam::123456789012:user/ann"
    queue.histories["a"] += [(9, "preempted", "made room for b"), (10, "preempted", f"held by {by}")]
    assert told(watch) == [
        "a (ann, project vision) was preempted, and continues from its checkpoint when it starts again: "
        "made room for b."
    ]
    queue.histories["a"] += [(11, "preempted", f"released by {by}"), (12, "running", "")]
    assert told(watch) == ["a (ann, project vision) has started again, after 3m00s in the queue."]


LATE = {"startBy": "2026-11-21T10:05:00Z", "startByAction": "notify", "startMissed": True}
MISSED = "it had not started by 2026-11-21 10:05:00 UTC (tag start_by)"
NOT_STARTED = "a (ann, project vision) has not started by 2026-11-21 10:05:00 UTC"


def test_a_late_start_is_told_once_although_the_job_only_waits() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "submitted")]}
    watch = watching(queue)
    watch.poll()
    queue.more["a"] = LATE
    assert told(watch) == [f"{NOT_STARTED}."]
    assert told(watch) == []
    queue.histories["a"].append((20, "running", ""))
    assert told(watch) == ["a (ann, project vision) has started, after 20m00s in the queue."]


@pytest.mark.parametrize(
    ("cause", "pools", "told_too"),
    [
        (f"{MISSED}; it may now run in p5 and p4", ["p5", "p4"], ", and may now run in the pools p5, p4"),
        (MISSED, [], ", and its project has no further pools in which it could run"),
        (MISSED, ["p5"], ", and its project has no further pools in which it could run"),
    ],
)
def test_a_late_start_tells_the_further_pools(cause: str, pools: list[str], told_too: str) -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "submitted")]}
    watch = watching(queue)
    watch.poll()
    queue.histories["a"].append((5, "pending", cause))
    queue.more["a"] = {**LATE, "startByAction": "next_pool", "pools": pools}
    assert told(watch) == [f"{NOT_STARTED}{told_too}."]


def test_a_late_start_that_was_known_or_ended_the_job_is_no_news() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "submitted")], "b": [(0, "pending", "submitted")]}
    queue.more["a"] = LATE
    watch = watching(queue)
    watch.poll()
    queue.histories["a"].append((20, "running", ""))
    queue.histories["b"].append((5, "stopped", f"stopped: {MISSED}"))
    queue.more["b"] = {**LATE, "startByAction": "cancel"}
    assert sorted(told(watch)) == [
        "a (ann, project vision) has started, after 20m00s in the queue.",
        f"b (ann, project vision) was stopped: {MISSED}.",
    ]


def test_work_without_a_checkpoint_is_told_once_for_each_attempt() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (1, "running", "")]}
    watch = watching(queue, "unsaved", "late")
    watch.poll()
    queue.more["a"] = {"unsavedSince": "2026-11-21T10:01:00Z"}
    (first,) = told(watch)
    assert first.startswith("a (ann, project vision) has run for ")
    assert "without a checkpoint" in first and "smq submit --checkpoint" in first
    assert told(watch) == []
    first_attempt = queue.more["a"]
    for more in ({}, first_attempt):  # the folder is emptied later
        queue.more["a"] = more
        assert told(watch) == []
    queue.more["a"] = {"unsavedSince": "2026-11-21T12:01:00Z", "request": {"CheckpointConfig": {"S3Uri": "s3://b/a"}}}
    (second,) = told(watch)
    assert "$SM_CHECKPOINT_DIR" in second


@pytest.mark.parametrize(
    ("cause", "action"),
    [("", "; look at it, or requeue it"), ("; it is going to be stopped", "; the queue stops it")],
)
def test_a_hang_is_told_once_for_each_attempt(cause: str, action: str) -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (1, "running", "")]}
    watch = watching(queue, "hangs", "preempted")
    watch.poll()
    silent = "hangs: no log line, no checkpoint and idle GPUs since 2026-11-21 10:30:00 UTC at the latest"
    queue.histories["a"].append((61, "running", f"{silent}{cause}"))
    hung = {"hungSince": "2026-11-21T10:30:00Z"}
    queue.more["a"] = hung
    (news,) = told(watch)
    assert news.startswith("a (ann, project vision) seems to hang: no log line, no checkpoint and idle GPUs for ")
    assert action in news
    for more in ({}, hung):  # its GPUs work for a moment
        queue.more["a"] = more
        assert told(watch) == []
    queue.more["a"] = {}
    queue.histories["a"].append((70, "preempted", "stopped because it hung"))
    assert told(watch) == [
        f"a (ann, project vision) {notices.hung()}.",
    ]


def test_a_job_that_goes_on_after_it_was_listed_is_told_once() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "")]}
    watch = watching(queue)
    watch.poll()
    queue.histories["a"] += [(20, "starting", ""), (21, "running", "")]
    queue.listed_before = 1
    assert told(watch) == ["a (ann, project vision) has started, after 21m00s in the queue."]
    queue.listed_before = 0
    assert told(watch) == []


def test_only_starts_after_a_long_wait_are_told() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "")], "b": [(15, "pending", "")]}
    watch = watching(queue, waited=600)
    watch.poll()
    for name in ("a", "b"):
        queue.histories[name] += [(20, "running", "")]
    assert told(watch) == ["a (ann, project vision) has started, after 20m00s in the queue."]


def test_the_reason_of_a_failure_stays_on_its_line() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", ""), (5, "running", "")]}
    queue.reasons = {"a": "AlgorithmError: no\nsuch \x1b[31mdataset"}
    watch = watching(queue)
    watch.poll()
    queue.histories["a"].append((6, "failed", ""))
    assert told(watch) == ["a (ann, project vision) has failed: AlgorithmError: no such [31mdataset."]


def test_a_job_that_came_and_ended_between_two_looks_is_told() -> None:
    queue = Queue()
    watch = watching(queue)
    watch.poll()
    queue.histories["quick"] = [(1, "pending", ""), (2, "failed", "refused")]
    assert told(watch) == ["quick (ann, project vision) has failed: refused."]
    assert told(watch) == []


def test_only_kinds_and_jobs_that_are_meant_are_told() -> None:
    queue = Queue()
    queue.histories = {"mine": [(0, "pending", "")], "other": [(0, "pending", "")]}
    watch = watching(queue, "finished", meant="mine")
    watch.poll()
    for name in queue.histories:
        queue.histories[name] += [(20, "running", ""), (21, "stopped", "stopped: cancelled by ann")]
    assert told(watch) == ["mine (ann, project vision) was stopped: cancelled by ann."]


def test_a_job_that_is_forgotten_meanwhile_is_no_error() -> None:
    queue = Queue()
    queue.histories = {"a": [(0, "pending", "")]}
    watch = watching(queue)
    watch.poll()
    queue.forgotten.add("a")
    assert told(watch) == [] and not watch.live


def test_a_gpu_that_returned_is_told_of_once_while_the_job_is_tried_again() -> None:
    queue, gpu = Queue(), {"uuid": "GPU-5a1f0c6e-8c54-4a57-9c1c-0d4f5e9d8a11", "failures": 1, "latest": None}
    watch = watching(queue, "hardware")
    queue.histories = {"a": [(0, "pending", ""), (5, "running", "")]}
    assert told(watch) == []
    queue.histories["a"].append((6, "pending", "failed, retried free: AlgorithmError"))
    queue.failures["a"] = {**FAILURE, "failureClass": "hardware"}
    assert told(watch) == [], "no GPU has returned"
    queue.histories["a"] += [(7, "running", ""), (8, "preempted", "failed, retried free: AlgorithmError")]
    queue.failures["a"] |= {"returnedGpus": [gpu], "remedy": "Open a case."}
    assert told(watch) == ["a (ann, project vision) had a hardware failure, and is tried again. Open a case."]
    queue.histories["a"].append((9, "running", ""))
    assert told(watch) == []


def test_a_retry_of_a_job_that_was_preempted_before_is_no_preemption() -> None:
    queue = Queue()
    watch = watching(queue, "preempted")
    queue.histories = {"a": [(0, "pending", ""), (5, "running", "")]}
    assert told(watch) == []
    queue.histories["a"].append((6, "preempted", "failed, retry 1 of 3: AlgorithmError"))
    assert told(watch) == []
