"""``smq``: what it prints, and how it ends."""

from __future__ import annotations

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
Time (UTC)           State        Attempt  Cause
-------------------  ---------  ---------  -------------------
2026-11-21 10:00:00  pending            0  submitted
2026-11-21 10:04:00  preempted          1  job4 has priority 3

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
