"""Waiting, logs and results in Python."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue import InvalidOption, NotFound, QueueClient, QueueError, StorageError
from tests.client.notebook.conftest import Screen
from tests.client.samples import DETAIL, job, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

RUNNING, DONE = job("a", "running", 1), job("a", "completed", 1)


def test_it_returns_the_jobs_in_the_order_given(
    server: ScriptedServer, queue: QueueClient, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, RUNNING)
    server.answers(200, job("b", "failed", 1, reason={"code": "AlgorithmError", "message": "exit code\x1b[2J 1"}))
    server.answers(503, refused("Unavailable", "Soon again."))
    server.answers(200, DONE)
    waited = QueueClient(url=server.url, tries=1).wait("a", ["b"], poll=0)
    assert [(one.job, one.state) for one in waited] == [("a", "completed"), ("b", "failed")]
    assert "✗ failed" in waited._repr_html_()
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["b failed: exit code?[2J 1", "a completed"]


def test_jobs_are_given_as_what_submit_and_sweep_return(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(202, {"job": "a", "state": "pending"})
    submission = queue.submit({"TrainingJobName": "a"})
    server.always_answers(200, DONE)
    assert queue.wait(submission, silent=True) == queue.wait([submission], silent=True)


def test_patterns_and_groups_mean_ended_jobs_too(server: ScriptedServer, queue: QueueClient) -> None:
    members = [job(name, "completed", 1, group="lr") for name in ("lr-1", "lr-2")]
    every: list[Any] = [{"group": "lr"}, {}]
    for options in every:
        server.answers(200, {"jobs": [*members, DONE], "next": None})
        server.answers(200, members[0])
        server.answers(200, members[1])
        names = () if options else ("lr-*",)
        assert [one.job for one in queue.wait(*names, silent=True, **options)] == ["lr-1", "lr-2"]
        assert "state=all" in server.received[-3].path


def test_it_is_told_which(queue: QueueClient) -> None:
    with pytest.raises(InvalidOption, match="Name the jobs"):
        queue.wait()


def test_a_job_that_is_not_there(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(404, refused("NotFound", "There is no job a."))
    with pytest.raises(NotFound):
        queue.wait("a", silent=True)


def test_its_patience_has_an_end(server: ScriptedServer, queue: QueueClient) -> None:
    server.always_answers(200, RUNNING)
    with pytest.raises(TimeoutError, match="0 of 1 job ended"):
        queue.wait("a", timeout=0, silent=True)


def test_on_a_terminal_a_line_says_where_the_job_stands(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, job("a", "pending", 1, position=2))
    server.answers(200, DONE)
    with redirect_stderr(Screen()) as screen:
        queue.wait("a", poll=0)
    assert "a is pending, 2nd in the queue" in screen.getvalue()
    assert screen.getvalue().count("\n") < 4


def test_silent_it_says_nothing(server: ScriptedServer, queue: QueueClient, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, RUNNING)
    server.answers(200, DONE)
    queue.wait("a", poll=0, silent=True)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        session.client("s3").create_bucket(Bucket="bucket")
        yield session


def write_log(session: boto3.Session, *lines: str) -> None:
    logs: Any = session.client("logs")
    group, stream = "/aws/sagemaker/TrainingJobs", "job1-qstamp-1/algo-1-1700000000"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    begin = int(time.time() * 1000)  # moto, like CloudWatch, drops lines that are older than 14 days
    events = [{"timestamp": begin + at, "message": line} for at, line in enumerate(lines)]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


@pytest.mark.parametrize("follow", [False, True])
def test_logs_are_lines(aws: Any, server: ScriptedServer, queue: QueueClient, follow: bool) -> None:
    write_log(aws, "loss 2", "\x1b[31mloss 1\x1b[0m", "<script>")
    server.always_answers(200, {**DETAIL, "state": "completed"})
    lines = list(queue.logs("job1", follow=follow, poll=0, silent=True))
    assert [str(line) for line in lines] == ["loss 2", "loss 1", "<script>"]
    assert (lines[1].message, lines[1].attempt, lines[1].instance) == ("\x1b[31mloss 1\x1b[0m", 1, "algo-1")
    assert [str(line) for line in queue.logs("job1", tail=1)] == ["<script>"]
    assert queue.logs("job1", tail=2)._repr_html_() == "<pre>loss 1\n&lt;script&gt;</pre>"


def test_log_lines_are_selected_by_a_datetime_without_a_zone_and_by_the_number_of_an_instance(
    aws: Any, server: ScriptedServer, queue: QueueClient
) -> None:
    write_log(aws, "loss 2")
    server.always_answers(200, {**DETAIL, "state": "completed"})
    (line,) = queue.logs("job1")
    written = line.time.astimezone().replace(tzinfo=None)
    times = (written, written + timedelta(seconds=1))
    found = [len(list(queue.logs("job1", since=since, instance=1))) for since in times]
    assert found == [1, 0] and not list(queue.logs("job1", instance=2))


def test_following_says_where_the_job_stands(aws: Any, server: ScriptedServer, queue: QueueClient) -> None:
    write_log(aws, "loss 2")
    server.answers(200, {**DETAIL, "state": "pending", "attempts": []})
    server.always_answers(200, {**DETAIL, "state": "completed"})
    with redirect_stderr(Screen()) as screen:
        for line in queue.logs("job1", follow=True, poll=0):
            screen.write(f"{line}\n")
    assert "job1 is pending, 2nd in the queue" in screen.getvalue()
    assert "\r\x1b[Kloss 2\n" in screen.getvalue()  # on a line of its own


def test_results_are_files_of_a_folder(aws: Any, server: ScriptedServer, queue: QueueClient) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("weights.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"7"))
    s3 = aws.client("s3")
    s3.put_object(Bucket="bucket", Key="out/job1-qstamp-1/output/model.tar.gz", Body=archive.getvalue())
    s3.put_object(Bucket="bucket", Key="job1/step", Body=b"12")
    request = {**DETAIL["request"], "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"}}  # type: ignore[dict-item]
    server.answers(200, {**DETAIL, "request": request})
    with pytest.raises(QueueError, match="its results are uploaded at its end"):
        queue.results("job1", silent=True)
    server.always_answers(200, {**DETAIL, "state": "completed", "request": request})
    fetched = queue.results("job1", silent=True)
    assert (fetched.folder, fetched.files, fetched.size, fetched.refused) == (Path("job1"), 1, 1, ())
    assert Path(fetched, "model", "weights.txt").read_text() == "7"
    with pytest.raises(StorageError, match="already"):
        queue.results("job1")
    kept = queue.results("job1", "kept", checkpoints=True)
    assert Path(kept, "step").read_text() == "12"
