"""What the pages know, and in how many questions; and the same as files."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.ui.view import Viewer
from tests.client.conftest import ScriptedServer

NOW = datetime.now(timezone.utc)
JOB = {
    "job": "job1",
    "state": "running",
    "attempt": 1,
    "project": "vision",
    "owner": "arn:aws:iam::123456789012:user/=ann",
    "slots": {"p5": 1},
    "started": f"{NOW - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
}
POOL = {"name": "p5", "capacity": 1, "used": 1}
PAST = {
    "job": "job0",
    "attempt": 1,
    "outcome": "completed",
    "project": "vision",
    "slots": {"p5": 1},
    "instanceCount": 1,
    "ranSeconds": 3600.0,
    "launched": f"{NOW - timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}",
    "ended": f"{NOW - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}",
}
ME: dict[str, Any] = {"owner": JOB["owner"]}


def paths(server: ScriptedServer) -> list[str]:
    found = [request.path.partition("?")[0].removeprefix("/prod") for request in server.received]
    server.received.clear()
    return found


def test_a_look_takes_one_question_where_nothing_has_ended(server: ScriptedServer, queue: QueueClient) -> None:
    viewer = Viewer(queue)
    server.answers(200, ME)
    server.answers(200, {"pools": [POOL], "active": [JOB]})
    server.answers(200, {"attempts": [PAST]})
    view = viewer()
    assert [job.job for job in view.live] == ["job1"] and [one.job for one in view.past] == ["job0"]
    assert paths(server) == ["/whoami", "/queue", "/history"]

    server.answers(200, {"pools": [POOL], "active": [JOB]})
    assert viewer().past == view.past
    assert paths(server) == ["/queue"]

    server.answers(200, {"pools": [POOL]})
    server.answers(200, {"attempts": [PAST, {**PAST, "job": "job1"}]})
    assert [one.job for one in viewer().past] == ["job0", "job1"]
    assert paths(server) == ["/queue", "/history"]


def test_all_jobs_are_asked_for_where_the_queue_tells_the_first(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, ME)
    server.answers(200, {"pools": [POOL], "active": [JOB], "moreWaiting": True})
    server.answers(200, {"jobs": [JOB, {**JOB, "job": "job2", "state": "pending"}]})
    server.answers(200, {"attempts": []})
    assert [job.job for job in Viewer(queue)().live] == ["job1", "job2"]


def exported(server: ScriptedServer, folder: Path) -> int:
    server.answers(200, ME)
    server.answers(200, {"pools": [POOL], "active": [JOB], "projects": [{"name": "vision", "used": {"p5": 1}}]})
    server.answers(200, {"attempts": [PAST]})
    server.answers(200, {"version": 1, "policy": {}})
    server.answers(200, {"attempts": [PAST]})
    return main(["ui", "--url", server.url, "--export", str(folder)])


def test_the_pages_are_written_to_files(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "report"
    assert exported(server, folder) == 0
    assert str(folder / "index.html") in capsys.readouterr().out
    page = (folder / "index.html").read_text()
    assert "job1" in page and "vision uses 1 instance of p5 beyond its quota" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    assert (folder / "queue.csv").read_text().splitlines()[1].startswith("job1,running,")
    assert "'=ann" in (folder / "queue.csv").read_text()  # no formula
    assert (folder / "usage.csv").read_text().startswith("project,jobs,")
    server.script.clear()
    assert exported(server, folder) == 0  # again, in place of the former


def test_words_of_others_are_no_html(server: ScriptedServer, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    server.always_answers(
        200,
        {
            "owner": evil,
            "pools": [{**POOL, "name": evil}],
            "active": [{**JOB, "job": evil, "project": evil, "reason": {"message": evil}, "slots": {evil: 1}}],
            "projects": [{"name": evil, "quota": {evil: 1}, "used": {evil: 2}}],
            "attempts": [{**PAST, "job": evil, "project": evil, "slots": {evil: 1}}],
            "version": 1,
            "policy": {},
        },
    )
    assert main(["ui", "--url", server.url, "--export", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "alert(1)" in page and "<script>alert" not in page and "</script>alert" not in page.replace("\\/", "/")


def test_nothing_of_others_is_overwritten(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["ui", "--url", server.url, "--export", str(tmp_path)]) == 1
    assert "thesis.tex" in capsys.readouterr().err and not server.received
