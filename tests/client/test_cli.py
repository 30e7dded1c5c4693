"""``smq``: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.tables import COLUMNS
from sagemaker_queue.text import age

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

Job = dict[str, object]


def job(name: str, state: str, priority: int, **more: object) -> Job:
    return {"job": name, "state": state, "priority": priority, **more}


@pytest.fixture(autouse=True)
def address(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)


# The tables of the article "A Priority Based Scheduler for Amazon SageMaker Training Jobs".
ARTICLE = [
    (
        [job("job2", "running", 2), job("job1", "running", 1), job("job3", "pending", 1)],
        """\
Job Name    State      Priority
----------  -------  ----------
job2        running           2
job1        running           1
job3        pending           1
""",
    ),
    (
        [
            job("job4", "running", 3),
            job("job2", "running", 2),
            job("job1", "preempted", 1),
            job("job3", "pending", 1),
        ],
        """\
Job Name    State        Priority
----------  ---------  ----------
job4        running             3
job2        running             2
job1        preempted           1
job3        pending             1
""",
    ),
    (
        [job("job4", "running", 3), job("job1", "running", 1), job("job3", "pending", 1)],
        """\
Job Name    State      Priority
----------  -------  ----------
job4        running           3
job1        running           1
job3        pending           1
""",
    ),
]


class TestLs:
    @pytest.mark.parametrize(("jobs", "table"), ARTICLE)
    def test_the_articles_tables(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], jobs: list[Job], table: str
    ) -> None:
        server.answers(200, {"jobs": jobs, "next": None})
        assert main(["ls"]) == 0
        assert capsys.readouterr() == (table, "")
        assert server.received[0].path == "/prod/jobs?state=live&limit=100"

    def test_names_that_look_like_numbers_stay_as_they_are(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {"jobs": [job("007", "pending", 1), job("1e3", "pending", 1)], "next": None})
        assert main(["ls"]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["007", "1e3"]

    def test_columns_in_the_order_given(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        reason = {"code": "Full", "message": "2 of 2 instances\nare\x1b[31m used"}
        waiting = job("job3", "pending", 1, position=1, reason=reason, owner="arn:aws:sts::1:assumed-role/Research/ann")
        server.answers(200, {"jobs": [job("job1", "running", 1), waiting], "next": None})
        assert main(["ls", "-o", "position,job, owner,reason"]) == 0
        assert capsys.readouterr().out == (
            "  Position  Job Name    Owner         Reason\n"
            "----------  ----------  ------------  -------------------------------\n"
            "            job1\n"
            "         1  job3        Research/ann  2 of 2 instances are?[31m used\n"
        ).replace("-------------------------------", "------------------------------")

    def test_every_column_can_be_shown(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [job("job1", "running", 1)], "next": None})
        assert main(["ls", "--columns", ",".join(COLUMNS)]) == 0
        header = capsys.readouterr().out.splitlines()[0]
        assert all(title in header for title, _ in COLUMNS.values())

    def test_wide(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        entry = (datetime.now(UTC) - timedelta(hours=2, minutes=5, seconds=9)).isoformat()
        server.answers(200, {"jobs": [job("job1", "running", 1, attempt=2, entryTime=entry)], "next": None})
        assert main(["ls", "--wide"]) == 0
        header, _, row = capsys.readouterr().out.splitlines()
        assert header.split()[:4] == ["Job", "Name", "State", "Priority"]
        assert "Position" in header and "Reason" in header
        assert "2h05m" in row

    @pytest.mark.parametrize(
        ("options", "query"), [(["--all"], "all"), (["--state", "running,pending"], "running%2Cpending")]
    )
    def test_other_jobs(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], options: list[str], query: str
    ) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls", *options]) == 0
        assert server.received[0].path == f"/prod/jobs?state={query}&limit=100"
        assert capsys.readouterr() == ("", "There are no such jobs.\n")

    def test_an_empty_queue(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls"]) == 0
        assert capsys.readouterr() == ("", "The queue is empty.\n")

    def test_an_empty_queue_for_a_program(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls", "--json"]) == 0
        assert capsys.readouterr() == ("[]\n", "")

    def test_what_the_policy_says_of_a_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        held = job("job2", "pending", 1, held=True, preemptible=False, pools=["p5", "p4"], slots={})
        runs = job("job1", "running", 1, held=False, preemptible=True, pools=[], slots={"p5": 1, "c6": 2})
        server.answers(200, {"jobs": [runs, held], "next": None})
        assert main(["ls", "-o", "job,held,preemptible,pools,slots"]) == 0
        assert capsys.readouterr().out == (
            "Job Name    Held    Preemptible    Pools    Slots\n"
            "----------  ------  -------------  -------  ----------\n"
            "job1                yes                     1 p5, 2 c6\n"
            "job2        yes     no             p5, p4\n"
        )

    def test_json_has_the_apis_members(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        entry = "2026-11-21T10:00:00Z"
        server.answers(200, {"jobs": [job("job1", "running", 1, entryTime=entry, trainingJobName="job1-qstamp-1")]})
        assert main(["ls", "--json"]) == 0
        (printed,) = json.loads(capsys.readouterr().out)
        assert printed["entryTime"] == entry
        assert printed["trainingJobName"] == "job1-qstamp-1"
        assert printed["reason"] is None


DETAIL = {
    **job("job1", "preempted", 1, position=2, project="default", instances=1, attempt=1),
    "owner": "arn:aws:iam::123456789012:user/ann",
    "entryTime": "2026-11-21T10:00:00Z",
    "trainingJobName": "job1-qstamp-1",
    "reason": {"code": "PoolFull", "message": "2 of 2 instances are used by jobs of higher priority"},
    "history": [
        {"at": "2026-11-21T10:00:00Z", "state": "pending", "attempt": 0, "cause": "submitted"},
        {"at": "2026-11-21T10:04:00Z", "state": "preempted", "attempt": 1, "cause": "job4 has priority 3"},
    ],
    "attempts": [
        {
            "attempt": 1,
            "trainingJobName": "job1-qstamp-1",
            "started": "2026-11-21T10:00:05Z",
            "ended": "2026-11-21T10:04:00Z",
            "outcome": "preempted",
        }
    ],
    "cancelRequested": False,
    "request": {
        "TrainingJobName": "job1",
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1},
        "CheckpointConfig": {"S3Uri": "s3://bucket/job1"},
        "Tags": [{"Key": "priority", "Value": "1"}],
    },
}

PAGE = """\
job1
  State         preempted
  Priority      1
  Position      2
  Reason        2 of 2 instances are used by jobs of higher priority (PoolFull)
  Project       default
  Owner         arn:aws:iam::123456789012:user/ann
  Instances     1
  Submitted     2026-11-21 10:00:00
  Training job  job1-qstamp-1

Attempts
  No.  Training Job    Started              Ended                Outcome
-----  --------------  -------------------  -------------------  ---------
    1  job1-qstamp-1   2026-11-21 10:00:05  2026-11-21 10:04:00  preempted

History
Time (UTC)             Attempt  State      Cause
-------------------  ---------  ---------  -------------------
2026-11-21 10:00:00          0  pending    submitted
2026-11-21 10:04:00          1  preempted  job4 has priority 3

Request
  Instances    1 x ml.p5.48xlarge
  Role         arn:aws:iam::123456789012:role/training
  Checkpoints  s3://bucket/job1
  Tags         priority=1
"""


class TestShow:
    def test_a_page_for_people(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, DETAIL)
        assert main(["show", "job1"]) == 0
        assert capsys.readouterr() == (PAGE, "")
        assert server.received[0].path == "/prod/jobs/job1"

    def test_little_is_known(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"job": "job1", "state": "running", "cancelRequested": True})
        assert main(["show", "job1"]) == 0
        assert "running (cancelled, being stopped)" in capsys.readouterr().out

    def test_json_for_programs(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, DETAIL)
        assert main(["show", "job1", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert {name: printed[name] for name in DETAIL} == DETAIL

    def test_no_such_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(404, {"message": "There is no job job9.", "code": "NotFound"})
        assert main(["show", "job9"]) == 3
        assert capsys.readouterr() == ("", "smq: There is no job job9.\n")


LONG = "failed, retry 1 of 3: AlgorithmError: " + "word " * 40

EVENTS = {
    **DETAIL,
    "history": [
        {"at": "2026-11-21T10:00:00Z", "state": "pending", "attempt": 1, "cause": "submitted"},
        {"at": "2026-11-21T10:04:00Z", "state": "pending", "attempt": 1, "cause": LONG},
    ],
}


class TestEvents:
    def test_each_transition_with_the_whole_of_its_cause(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, EVENTS)
        assert main(["events", "job1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["Time", "(UTC)", "Attempt", "State", "Cause"]
        assert lines[2].split() == ["2026-11-21", "10:00:00", "1", "pending", "submitted"]
        assert lines[3].startswith(
            "2026-11-21 10:04:00          1  pending  failed, retry 1 of 3: AlgorithmError: word"
        )
        assert len(lines) > 5
        assert max(map(len, lines)) < 120
        assert " ".join(lines).count("word") == 40
        assert server.received[0].path == "/prod/jobs/job1"

    def test_the_same_for_programs(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, EVENTS)
        assert main(["events", "job1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == EVENTS["history"]

    def test_no_such_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(404, {"message": "There is no job named job9.", "code": "NotFound"})
        assert main(["events", "job9"]) == 3
        assert "job9" in capsys.readouterr().err

    def test_the_page_about_a_job_shows_the_latest_and_says_where_the_others_are(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        many = [{"at": f"2026-11-21T10:{minute:02}:00Z", "state": "pending", "cause": "x"} for minute in range(30)]
        server.answers(200, {**DETAIL, "history": many, "retries": 3, "retried": 1})
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert "History (the latest 10; smq events job1 tells all)" in page
        assert "10:20:00" in page and "10:19:00" not in page
        assert "Retries       1 of 3 used" in page


class TestCancel:
    def test_each_job_is_told_of(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(202, job("job1", "running", 1, cancelRequested=True))
        server.answers(202, job("job2", "stopped", 1))
        server.answers(200, job("job3", "completed", 1))
        assert main(["cancel", "job1", "job2", "job3"]) == 0
        assert capsys.readouterr() == (
            "job1 is being stopped\njob2 is stopped\njob3 had already ended: completed\n",
            "",
        )

    def test_one_that_cannot_be_cancelled_does_not_keep_the_others(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(404, {"message": "There is no job job1.", "code": "NotFound"})
        server.answers(403, {"message": "job2 is ann's.", "code": "Forbidden"})
        server.answers(202, job("job3", "stopped", 1))
        assert main(["cancel", "job1", "job2", "job3"]) == 3
        assert capsys.readouterr() == ("job3 is stopped\n", "smq: There is no job job1.\nsmq: job2 is ann's.\n")

    def test_held_jobs_and_their_pools(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, job("job1", "pending", 1, held=True, preemptible=False, pools=["p5", "p4"], instances=2))
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert "Held         yes: it starts only once it is released" in page
        assert "Preemptible  no: it may use quota only" in page
        assert "Pools        p5, p4" in page
        assert "Instances    2" in page


WAITING = job(
    "job3",
    "pending",
    1,
    position=2,
    reason={"code": "WAITING_FOR_CAPACITY", "message": "Needs 2 instances of p5; 1 of 4 is free."},
    why={
        "ahead": ["job2"],
        "blockers": [f"train-{number}" for number in range(12)],
        "advice": ["Ask for 1 instance instead of 2.", "Wait for train-0, which\nends at 14:00 at the latest."],
    },
)

WHY = """\
job3 waits, number 2 of all that wait.
  Needs 2 instances of p5; 1 of 4 is free. (WAITING_FOR_CAPACITY)

Ahead of it
  job2

In its way (they hold what it needs)
  train-0, train-1, train-2, train-3, train-4, train-5, train-6, train-7, train-8, train-9 and 2 more

What would change that
  - Ask for 1 instance instead of 2.
  - Wait for train-0, which ends at 14:00 at the latest.
"""


class TestWhy:
    def test_a_job_that_waits(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, WAITING)
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == (WHY, "")
        assert server.received[0].path == "/prod/jobs/job3"

    def test_an_older_queue_gives_the_reason_alone(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {name: value for name, value in WAITING.items() if name != "why"})
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == ("\n".join(WHY.splitlines()[:2]) + "\n", "")

    @pytest.mark.parametrize(
        ("state", "reason", "text"),
        [
            ("running", None, "job3 does not wait: it is running.\n"),
            (
                "failed",
                {"code": "FAILED", "message": "Out of memory"},
                "job3 does not wait: it is failed.\n  Out of memory (FAILED)\n",
            ),
        ],
    )
    def test_a_job_that_does_not_wait(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], state: str, reason: object, text: str
    ) -> None:
        server.answers(200, job("job3", state, 1, reason=reason, why=None))
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == (text, "")

    def test_json(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, WAITING)
        assert main(["why", "job3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {name: WAITING[name] for name in WAITING if name != "priority"}

    def test_no_such_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(404, {"message": "There is no job job9.", "code": "NotFound"})
        assert main(["why", "job9"]) == 3


REQUEST = {"TrainingJobName": "job5", "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2}}
PLANS = [
    (
        {"wouldStart": True, "slots": {"p5": 2}, "evicts": [], "warnings": ["It writes no checkpoints."]},
        """\
job5 would start at once on 2 instances of p5. Nobody would be stopped for it.

Warnings
  - It writes no checkpoints.
""",
    ),
    (
        {
            "wouldStart": True,
            "slots": {"p5": 1, "c6": 2},
            "evicts": [
                {"job": "job1", "rule": "preempt"},
                {"job": "job2", "rule": "reclaim"},
                {"job": "job3", "rule": "consolidate"},
                {"job": "job4", "rule": "lottery"},
            ],
        },
        """\
job5 would start on 1 instance of p5 and 2 instances of c6 as soon as 4 jobs have stopped.

To be stopped for it, and put back into the queue
  - job1, by preempt: it has a lower priority in the same project
  - job2, by reclaim: its project holds more than it is entitled to
  - job3, by consolidate: it can go on in another pool that it accepts
  - job4, by lottery
""",
    ),
    (
        {"wouldStart": False, "slots": None, "evicts": [{"job": "job1", "rule": "preempt"}]},
        """\
job5 would start as soon as 1 job has stopped.

To be stopped for it, and put back into the queue
  - job1, by preempt: it has a lower priority in the same project
""",
    ),
    (
        {
            "wouldStart": False,
            "slots": None,
            "evicts": [],
            "position": 3,
            "reason": {"code": "OVER_LIMIT", "message": "vision may hold 3 instances of p5 and holds 2."},
            "ahead": ["job2", "job3"],
            "blockers": ["job1"],
            "warnings": [],
        },
        """\
job5 would wait as number 3 of all that wait.
  vision may hold 3 instances of p5 and holds 2. (OVER_LIMIT)

Ahead of it
  job2, job3

In its way (they hold what it needs)
  job1
""",
    ),
]


class TestPlan:
    @pytest.mark.parametrize(("answer", "text"), PLANS)
    def test_it_is_told_in_words(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: Job, text: str
    ) -> None:
        (tmp_path / "request.json").write_text(json.dumps(REQUEST))
        server.answers(200, answer)
        assert main(["plan", str(tmp_path / "request.json")]) == 0
        assert capsys.readouterr() == (text, "")
        assert (server.received[0].method, server.received[0].path) == ("POST", "/prod/plan")
        assert json.loads(server.received[0].body) == REQUEST

    def test_from_standard_input_for_a_program(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(REQUEST)))
        server.answers(200, PLANS[1][0])
        assert main(["plan", "-", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["wouldStart"], printed["slots"], printed["reason"]) == (True, {"p5": 1, "c6": 2}, None)

    def test_a_request_that_is_wrong(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
        server.answers(400, {"message": "is missing", "code": "InvalidRequest", "field": "TrainingJobName"})
        assert main(["plan", "-"]) == 1
        assert capsys.readouterr() == ("", "smq: TrainingJobName: is missing\n")

    def test_no_such_file(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", "nowhere.json"]) == 2
        assert capsys.readouterr() == ("", "smq: nowhere.json cannot be read: No such file or directory.\n")
        assert server.received == []


class TestChange:
    @pytest.mark.parametrize("priority", [5, -5])
    def test_set_priority(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], priority: int) -> None:
        server.answers(200, job("job1", "pending", priority))
        assert main(["set-priority", "job1", str(priority)]) == 0
        assert capsys.readouterr() == (f"job1 has priority {priority}\n", "")
        assert (server.received[0].method, server.received[0].path) == ("PATCH", "/prod/jobs/job1")
        assert json.loads(server.received[0].body) == {"priority": priority}

    @pytest.mark.parametrize(("command", "held", "what"), [("hold", True, "held"), ("release", False, "released")])
    def test_one_that_cannot_be_changed_does_not_keep_the_others(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: str, held: bool, what: str
    ) -> None:
        server.answers(409, {"message": "job1 runs.", "code": "Conflict"})
        server.answers(200, job("job2", "pending", 1, held=held))
        assert main([command, "job1", "job2"]) == 1
        assert capsys.readouterr() == (f"job2 is {what}\n", "smq: job1 runs.\n")
        assert [json.loads(one.body) for one in server.received] == [{"held": held}] * 2


class TestEnd:
    def test_refused(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(403, {"message": "You may not look.", "code": "Forbidden"})
        assert main(["ls"]) == 1
        assert capsys.readouterr() == ("", "smq: You may not look.\n")

    def test_no_queue_is_configured(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
        assert main(["ls"]) == 2
        assert capsys.readouterr().err.startswith("smq: No queue is configured")

    def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert main(["cancel", "job1", "job2"]) == 2
        assert capsys.readouterr().err.count("No AWS credentials") == 1

    @pytest.mark.parametrize(
        "argv",
        [
            [],
            ["dance"],
            ["ls", "-o", "shoe-size"],
            ["ls", "--json", "--wide"],
            ["cancel"],
            ["hold"],
            ["why"],
            ["set-priority", "job1", "high"],
            ["policy"],
            ["policy", "dance"],
            ["policy", "apply", "x.yaml", "--version", "new"],
            ["ls", "--all", "--state=x"],
        ],
    )
    def test_wrong_usage(self, argv: list[str], capsys: pytest.CaptureFixture[str], server: ScriptedServer) -> None:
        assert main(argv) == 2
        assert "usage: smq" in capsys.readouterr().err
        assert server.received == []

    def test_an_unknown_column_is_answered_with_those_there_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        main(["ls", "-o", "job,shoe-size"])
        assert "no column 'shoe-size'; there are job, state, priority" in capsys.readouterr().err

    @pytest.mark.parametrize("argv", [["--url", "URL", "ls"], ["ls", "--url", "URL"]])
    def test_the_address_can_stand_before_or_after_the_command(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, argv: list[str]
    ) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:9/prod")
        server.answers(200, {"jobs": []})
        assert main([server.url if word == "URL" else word for word in argv]) == 0

    @pytest.mark.parametrize("option", ["-c", "--profile"])
    def test_an_unknown_profile(self, option: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([option, "research", "ls"]) == 2
        assert "config.toml does not exist" in capsys.readouterr().err

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
        assert capsys.readouterr().out == f"smq {project['version']}\n"

    def test_help_has_examples_and_exit_codes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        text = capsys.readouterr().out
        assert "smq ls -o job,age,reason" in text
        assert "exit codes:" in text

    def test_help_does_not_wait_for_what_only_requests_need(self) -> None:
        program = (
            "import sys; from sagemaker_queue.cli import main; main(['--help'])\n"
            "print(*sorted({'boto3', 'botocore', 'requests', 'sagemaker'} & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
        assert done.stderr == "\n"

    def test_it_runs_as_a_module(self, server: ScriptedServer) -> None:
        server.answers(200, {"jobs": [job("job1", "running", 1)]})
        done = subprocess.run(
            [sys.executable, "-m", "sagemaker_queue", "ls"], capture_output=True, text=True, check=True, timeout=30
        )
        assert "job1" in done.stdout and done.stderr == ""

    def test_a_reader_that_leaves(self, server: ScriptedServer) -> None:
        server.answers(200, {"jobs": [job("job1", "running", 1)]})
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            done = subprocess.run(
                [sys.executable, "-m", "sagemaker_queue", "ls"],
                stdout=pipe,
                stderr=subprocess.PIPE,
                check=False,
                timeout=30,
            )
        assert (done.returncode, done.stderr) == (141, b"")

    def test_ctrl_c(self, server: ScriptedServer) -> None:
        server.keeps_silent()
        # A test runner in the background may have passed on "ignore SIGINT".
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from sagemaker_queue.cli import main; sys.exit(main(['ls']))"
        )
        with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 30
                while not server.received and process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                _, complaint = process.communicate(timeout=30)
            finally:
                process.kill()
        assert (process.returncode, complaint) == (130, b"")


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (timedelta(seconds=41), "41s"),
        (timedelta(minutes=3, seconds=7), "3m07s"),
        (timedelta(hours=26), "1d2h"),
        (timedelta(seconds=-100), "0s"),  # the queue's clock is ahead
    ],
)
def test_age(elapsed: timedelta, text: str) -> None:
    assert age(datetime.now(UTC) - elapsed) == text
