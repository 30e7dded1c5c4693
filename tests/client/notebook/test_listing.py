"""Lists of jobs and attempts: iterators as ever, and tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from api_contract.models import PoolStatus
from sagemaker_queue import Forbidden, InvalidOption, QueueClient, to_frame
from sagemaker_queue.jobs.packaging.command import tags_with_options
from sagemaker_queue.queue import client
from sagemaker_queue.workflows.usage import budgets
from tests.client.samples import ATTEMPT, P5, job, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

FAILED = job(
    "b", "failed", 2, reason={"code": "AlgorithmError", "message": "exit code 1"}, lastSlots={"p5": 2, "c6": 1}
)
BUDGET = {"projects": [{"name": "vision", "budget": {"instance_hours": 100, "period": "month"}}]}


@pytest.fixture
def two_pages(server: ScriptedServer) -> None:
    server.answers(200, {"jobs": [job("a", "running", 1, entryTime="2026-11-21T10:00:00Z")], "next": "more"})
    server.answers(200, {"jobs": [FAILED], "next": None})


def test_it_is_the_api_of_before(queue: QueueClient) -> None:
    assert isinstance(queue, client.QueueClient)


@pytest.mark.usefixtures("two_pages")
def test_pages_are_read_as_they_are_asked_for(server: ScriptedServer, queue: QueueClient) -> None:
    jobs = queue.jobs()
    assert iter(jobs) is jobs
    assert (repr(jobs).count("0 read"), len(server.received)) == (1, 0)
    assert (next(jobs).job, len(server.received)) == ("a", 1)
    assert ([one.job for one in jobs], len(server.received)) == (["b"], 2)
    assert list(jobs) == []
    assert [one.job for one in jobs.all()] == ["a", "b"]  # those that were taken from it as well
    assert len(server.received) == 2


@pytest.mark.usefixtures("two_pages")
def test_what_is_looked_at_can_be_taken_all_the_same(queue: QueueClient) -> None:
    jobs = queue.jobs()
    assert len(jobs.all()) == 2
    assert [one.job for one in jobs] == ["a", "b"]


def test_an_incomplete_list_does_not_look_complete(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, {"jobs": [job("a", "running", 1)], "next": "more"})
    server.answers(403, refused("Forbidden", "You may not look."))
    jobs = queue.jobs()
    for read in (jobs.all, lambda: list(jobs), jobs.all, lambda: str(jobs)):
        with pytest.raises(Forbidden, match="You may not look"):
            read()
    assert len(server.received) == 2


@pytest.mark.usefixtures("two_pages")
def test_jobs_are_printed_as_a_table(queue: QueueClient) -> None:
    jobs = queue.jobs("all")
    headers, *rows = str(jobs).splitlines()
    assert headers.split()[:4] == ["Job", "Name", "User", "State"]
    assert [row.split()[0] for row in rows] == ["a", "b"]
    one = next(jobs)
    assert len(repr(one)) < 200 and "job='a'" in repr(one) and "None" not in repr(one)


def test_attempts_are_printed_as_a_table(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, {"attempts": [ATTEMPT], "next": None})
    assert "Outcome" in str(queue.history()).splitlines()[0]
    server.answers(200, {"jobs": [], "next": None})
    assert str(queue.jobs()) == "No jobs."


@pytest.mark.usefixtures("two_pages")
def test_jobs_as_a_frame(queue: QueueClient) -> None:
    pytest.importorskip("pandas")
    frame = queue.jobs("all").to_frame().set_index("job")
    assert list(frame.index) == ["a", "b"]
    assert frame.loc["b", ["state", "reason", "reason_code", "last_slots"]].tolist() == [
        *("failed", "exit code 1", "AlgorithmError", "p5=2 c6=1"),
    ]
    assert frame["priority"].sum() == 3
    assert str(frame["entry_time"].dt.tz) == "UTC" and frame["entry_time"].isna().tolist() == [False, True]


def test_an_empty_frame_has_no_columns_to_trip_over(server: ScriptedServer, queue: QueueClient) -> None:
    pytest.importorskip("pandas")
    server.answers(200, {"jobs": [], "next": None})
    assert queue.jobs().to_frame().empty


def test_any_answers_are_a_frame() -> None:
    pytest.importorskip("pandas")
    frame = to_frame([PoolStatus.from_json(P5)])
    assert frame[["name", "capacity", "free"]].values.tolist() == [["p5", 8, 1]]


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        to_frame([])


def test_history_takes_times_as_smq_does(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, {"attempts": [ATTEMPT], "next": None})
    (past,) = queue.history("2026-11-01", "2026-12-01T10:00", project="vision")
    assert past.job == "job1"
    assert "since=2026-11-01T00%3A00%3A00Z" in server.received[0].path
    assert "until=2026-12-01T10%3A00%3A00Z" in server.received[0].path
    with pytest.raises(InvalidOption, match="not a time"):
        queue.history("yesterday")


@pytest.fixture
def local_time() -> Iterator[None]:
    """A local time that is nine hours ahead of UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


def test_a_datetime_without_a_zone_is_local_time(server: ScriptedServer, queue: QueueClient, local_time: None) -> None:
    server.answers(200, {"attempts": [], "next": None})
    server.answers(200, {"pool": "p5"})
    naive = datetime(2026, 11, 22, 10)
    assert queue.history(naive).all() == ()
    queue.drain("p5", at=naive)
    history, drain = server.received
    assert "since=2026-11-22T01%3A00%3A00Z" in history.path
    assert json.loads(drain.body)["at"] == "2026-11-22T01:00:00Z"
    assert tags_with_options({"not_before": naive}, str) == {"not_before": "2026-11-22T01:00:00Z"}
    assert tags_with_options({"not_before": "2026-11-22T10:00"}, str) == {"not_before": "2026-11-22T10:00:00Z"}


def test_usage(server: ScriptedServer, queue: QueueClient) -> None:
    others = {**ATTEMPT, "job": "job2", "project": "speech"}
    policy = {"version": 1, "policy": {"prices": {"ml.p5.48xlarge": 10}, **BUDGET}}
    server.answers(200, policy)
    server.answers(200, {"attempts": [ATTEMPT, others], "next": None})
    server.answers(200, {"attempts": [], "next": None})  # of the budget's period
    server.answers(200, {"jobs": [], "next": None})
    usage = queue.usage(since="2026-11-01", project="vis*")
    assert list(usage.parts) == ["vision"]
    assert (usage.total.hours()["instance_hours"], usage.total.hours()["cost"]) == (4, 40)
    (left,) = usage.budgets
    assert (left.budget.project, left.hours) == ("vision", 100)
    shown = usage._repr_html_()
    assert "vision" in shown and "40.00" in shown and "100.00" in shown
    pytest.importorskip("pandas")
    assert usage.to_frame()[["project", "gpu_hours"]].values.tolist() == [["vision", 32.0]]


@pytest.mark.parametrize("most", [0, 1])
def test_budgets_above_the_limit_of_attempts_say_so(
    server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(budgets, "MOST_ATTEMPTS", most)
    server.answers(200, {"version": 1, "policy": BUDGET})
    server.answers(200, {"attempts": [ATTEMPT], "next": None})
    server.answers(200, {"attempts": [ATTEMPT], "next": None})  # of the budget's period
    server.answers(200, {"jobs": [], "next": None})
    usage = queue.usage()
    assert usage.budgets_complete == ("less is left" not in usage._repr_html_()) == (most == 1)


def test_usage_by_cause(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, {"version": 3, "policy": {"pools": []}})
    server.answers(200, {"attempts": [{**ATTEMPT, "outcome": "failed", "project": "<b>"}], "next": None})
    usage = queue.usage("cause", since="2026-11-01")
    assert list(usage.parts) == ["useful", "provisioning", "preemption", "failure"]
    assert usage.projects["<b>"].useful_percent == pytest.approx(100 * 6600 / 7295)
    shown = usage._repr_html_()
    assert "lost to failures" in shown and "Useful part for each project" in shown
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    pytest.importorskip("pandas")
    assert usage.to_frame()["cause"].tolist() == list(usage.parts)


def test_failures(server: ScriptedServer, queue: QueueClient) -> None:
    failed = {**ATTEMPT, "outcome": "failed", "failureClass": "<b>", "lostSeconds": None}
    server.answers(200, {"attempts": [failed, ATTEMPT], "next": None})
    report = queue.failures(since="2026-11-01", project="vis*")
    assert (list(report.parts), report.total.attempts, report.total.lost_hours) == (["<b>"], 1, 4.0)
    shown = report._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    with pytest.raises(InvalidOption, match="Did you mean 'owner'"):
        queue.failures(by="owners", since="2026-11-01")
    pytest.importorskip("pandas")
    assert report.to_frame()[["class", "failures"]].values.tolist() == [["<b>", 1]]


def test_usage_by_something_else(queue: QueueClient) -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'owner'"):
        queue.usage(by="owners")
