"""``smq ls``: which jobs, in what order, with what columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.tables import COLUMNS
from tests.client.samples import Job, job

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

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
        assert server.received[0].path == "/prod/jobs?state=live&limit=500"

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
        assert server.received[0].path == f"/prod/jobs?state={query}&limit=500"
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
