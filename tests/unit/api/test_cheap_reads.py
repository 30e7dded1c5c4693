"""Requests that read run no planner, read few rows, and tell what the last cycle has published."""

import cProfile
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.watching import CountedTables
from job_queue.adapters.records.published_plan import PUBLISHED, to_stored
from job_queue.api.expectations import ask_again_after
from job_queue.scheduler import plan
from tests.jobs import OWNER
from tests.queue_harness import Harness
from tests.unit.queue_api import ADMIN, STRANGER, Api

READS = ["/jobs/waits", "/jobs/runs", "/jobs", "/queue", "/policy", "/policy/history", "/history", "/whoami"]
ROW = ("sagemaker-queue-lines", PUBLISHED, "latest")
LEASE = ("sagemaker-queue-lines", "control", "lease")


def plans(work: Callable[[], Any]) -> int:
    """How often the planner runs."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats() if entry.code is plan.__code__)


@pytest.fixture
def api() -> Api:
    """One slot, which is taken, and a job that waits for it."""
    api = Api(slots=1)
    api.add("runs")
    api.add("waits")
    return api


@pytest.mark.parametrize("path", READS)
def test_no_request_that_reads_runs_the_planner(api: Api, path: str) -> None:
    assert plans(lambda: api.call("GET", path)) == 0


def test_only_a_request_for_advice_plans(api: Api) -> None:
    assert plans(lambda: api.call("GET", "/jobs/waits", advice="true")) >= 1
    assert plans(lambda: api.call("GET", "/jobs/runs", advice="true")) == 0, "it does not wait"


def test_the_answer_to_a_submission_plans_only_in_its_cycles(api: Api) -> None:
    def without_an_answer() -> None:
        accepted = api.queue.accept("one")
        api.queue.controller.wake(api.queue.invocation(), accepted.metadata)

    assert plans(lambda: api.add("another")) == plans(without_an_answer)


def test_a_job_that_waits_is_told_as_the_cycle_has_decided(api: Api) -> None:
    _, job = api.call("GET", "/jobs/waits")
    assert (job["position"], job["reason"]["code"]) == (1, "WAITING_FOR_CAPACITY")
    assert job["why"] == {"ahead": [], "blockers": ["runs"], "advice": []}
    _, advised = api.call("GET", "/jobs/waits", advice="true")
    assert advised["why"]["advice"]
    assert {**advised, "why": None} == {**job, "why": None}
    (listed,) = [it for it in api.call("GET", "/jobs")[1]["jobs"] if it["job"] == "waits"]
    (shown,) = api.call("GET", "/queue")[1]["waiting"]
    assert listed["reason"] == shown["reason"] == job["reason"]


def test_advice_takes_a_slot_of_heavy_requests(api: Api) -> None:
    with api.queue.repository.heavy_requests.permit(OWNER, api.queue.now, ("1", "0")):
        status, refused = api.call("GET", "/jobs/waits", advice="true")
        assert (status, refused["code"]) == (429, "Busy")
        assert api.call("GET", "/jobs/waits")[0] == 200
    assert api.call("GET", "/jobs/waits", advice="true")[0] == 200


def test_a_job_is_as_its_own_row_whatever_was_published(api: Api) -> None:
    published = dict(api.queue.tables.rows[ROW])
    lease = dict(api.queue.tables.rows[LEASE])
    api.call("PATCH", "/jobs/waits", json.dumps({"priority": 0}))
    api.add("new")
    api.queue.tables.rows[ROW], api.queue.tables.rows[LEASE] = published, lease  # no cycle has run since
    assert api.call("GET", "/jobs/waits")[1]["priority"] == 0
    for name in ("new", "waits"):
        _, job = api.call("GET", f"/jobs/{name}")
        assert (job["state"], job["reason"]["code"]) == ("pending", "NOT_PLANNED_YET")
        assert job["reason"]["message"].startswith("The queue has not planned since")
    _, status = api.call("GET", "/queue")
    assert [job["job"] for job in status["waiting"]] == ["waits", "new"], "it follows those that were planned"
    api.queue.wake()
    for name, reason in (("new", "WAITING_FOR_CAPACITY"), ("waits", "BEHIND_HIGHER_PRIORITY")):
        assert api.call("GET", f"/jobs/{name}")[1]["reason"]["code"] == reason


def test_without_a_published_plan_jobs_are_told_all_the_same(api: Api) -> None:
    del api.queue.tables.rows[ROW]
    _, job = api.call("GET", "/jobs/waits")
    assert (job["state"], job["position"], job["why"]) == ("pending", None, None)
    _, status = api.call("GET", "/queue")
    assert [job["job"] for job in status["waiting"]] == ["waits"]
    assert [(pool["capacity"], pool["used"], pool["free"]) for pool in status["pools"]] == [(1, 1, 0)]
    assert api.call("GET", "/jobs")[0] == 200


def test_an_old_plan_says_how_old_it_is(api: Api) -> None:
    api.queue.now += 170
    assert "has not planned" not in api.call("GET", "/jobs/waits")[1]["reason"]["message"]
    api.queue.now += 14 * 60
    _, job = api.call("GET", "/jobs/waits")
    assert job["reason"]["code"] == "WAITING_FOR_CAPACITY"
    assert job["reason"]["message"].endswith("UTC, 16 minutes ago.")
    api.queue.tick()
    assert "has not planned" not in api.call("GET", "/jobs/waits")[1]["reason"]["message"]


@pytest.mark.attack
def test_what_a_program_said_is_kept_from_strangers_also_after_its_owner_has_asked(api: Api) -> None:
    """The published plan, and the rows that a process shares, are the same for all callers."""
    published = api.queue.repository.published
    plan = published.latest()
    told = tuple(replace(hold, message="AlgorithmError: --password=hunter2") for hold in plan.holds)
    published.replace(to_stored(replace(plan, holds=told)), 1_000_000)
    together = Api(queue=api.queue, seconds=lambda: 0.0)
    for caller, sees in ((OWNER, True), (STRANGER, False), (ADMIN, True), (STRANGER, False)):
        for path in ("/jobs/waits", "/jobs", "/queue"):
            status, answer = together.call("GET", path, caller=caller)
            assert status == 200
            text = json.dumps(answer)
            assert ("hunter2" in text, "AlgorithmError: ***" in text) == (sees, not sees)


def test_the_published_plan_has_no_values_of_requests() -> None:
    queue = Harness(slots=1)
    queue.submit("runs", HyperParameters={"api-key": "hunter2"}, Environment={"TOKEN": "hunter2"})
    queue.submit("waits", HyperParameters={"api-key": "hunter2"}, Environment={"TOKEN": "hunter2"})
    assert "hunter2" not in repr(queue.repository.published.latest())


def many(waiting: int) -> tuple[Api, CountedTables, CountedTables]:
    queue = Harness(slots=1)
    for number in range(waiting):
        queue.accept(f"job{number}")
    queue.accept("last", 0)
    queue.tick()
    consistent, eventual = CountedTables(queue.tables, consistent=True), CountedTables(queue.tables, consistent=False)
    return Api(queue=queue, consistent=consistent, eventual=eventual), consistent, eventual


def test_a_look_at_a_job_reads_four_rows_however_many_wait() -> None:
    calls = []
    for waiting in (2, 60):
        api, consistent, eventual = many(waiting)
        assert api.call("GET", "/jobs/last")[1]["position"] == waiting
        calls.append((consistent.calls, eventual.calls))
    assert calls == [(1, 3), (1, 3)], "its own row consistently; lease, plan and outlook not"


def test_lists_are_read_eventually_consistently() -> None:
    for path in ("/jobs", "/queue"):
        api, consistent, eventual = many(3)
        assert api.call("GET", path)[0] == 200
        assert consistent.calls == 0 < eventual.calls


def test_looks_at_the_queue_within_seconds_share_their_reads() -> None:
    api, _, eventual = many(20)
    api = Api(queue=api.queue, eventual=eventual, seconds=lambda: 0.0)
    api.call("GET", "/queue")
    first = eventual.calls
    for _ in range(50):
        assert api.call("GET", "/queue")[0] == 200
    assert eventual.calls - first == 50, "one row each, which tells whether a cycle has run"


def test_a_change_is_seen_at_once_and_a_flood_of_changes_is_no_flood_of_reads() -> None:
    api, _, eventual = many(3)
    api = Api(queue=api.queue, eventual=eventual, seconds=lambda: 0.0)
    api.call("GET", "/queue")
    whole = eventual.calls
    api.add("mine", 0)
    assert "mine" in {job["job"] for job in api.call("GET", "/queue")[1]["waiting"]}
    before = eventual.calls
    for number in range(30):
        api.add(f"flood{number}", 0)
        assert api.call("GET", "/queue")[0] == 200
    assert eventual.calls - before <= 30 + 5 * (whole + 5)


def test_followers_of_a_job_far_from_its_start_may_ask_later() -> None:
    assert ask_again_after(0, 10_000, 100) == 60, "a tenth of what is left, a minute at most"
    assert ask_again_after(0, 550, 100) == 45
    assert ask_again_after(0, 200, 100) is None, "soon"
    assert ask_again_after(0, 50, 100) is None, "overdue"
    assert ask_again_after(0, None, 100) is None, "it has not waited for long"
    assert ask_again_after(0, None, 400) == 40
    api = Api(slots=1)
    api.add("runs")
    api.add("waits")
    assert api.call("GET", "/jobs/waits")[1]["askAgainAfter"] is None
    api.queue.now += 3600
    api.queue.tick()
    assert api.call("GET", "/jobs/waits")[1]["askAgainAfter"] == 60
    assert api.call("GET", "/jobs/runs")[1]["askAgainAfter"] is None


def test_advice_is_asked_for_by_a_word_that_says_so(api: Api) -> None:
    assert api.call("GET", "/jobs/waits", advice="perhaps")[0] == 400
