"""Commands as jobs in Python: the requests are those of ``smq``."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue import FolderError, InvalidOption, InvalidRequest, NameTaken, QueueClient
from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.submit import submit
from sagemaker_queue.jobs.packaging.job_options import JobKeywords
from tests.client.samples import DETAIL, job, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

Json = dict[str, Any]
ROLE = "arn:aws:iam::123456789012:role/training"
HERE: Any = {"role": ROLE, "image": "train:1", "instance_type": "ml.m5.large", "bucket": "own"}
OPTIONS = ["--role", ROLE, "--image", "train:1", "-t", "ml.m5.large", "--bucket", "own"]
PENDING = {"job": "job1", "state": "pending"}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')")
    monkeypatch.chdir(folder)


def sent(server: ScriptedServer) -> list[Json]:
    """The submitted requests."""
    return [json.loads(one.body) for one in server.received if one.path.startswith("/prod/add-job")]


def uploaded(s3: Any) -> list[str]:
    return sorted(one["Key"].rpartition("/")[2] for one in s3.list_objects_v2(Bucket="own").get("Contents", []))


def test_the_keywords_are_the_options() -> None:
    sections = ("instances and image", "files and data", "scheduling and settings")
    options = [option for option in submit.params if getattr(option, "section", None) in sections]
    assert [option.name for option in options] == list(JobKeywords.__annotations__)


@pytest.mark.parametrize("method", [QueueClient.submit, QueueClient.sweep, QueueClient.plan])
def test_a_notebook_can_complete_the_keywords(method: Any) -> None:
    assert {"instances", "max_run", "checkpoint"} < set(inspect.signature(method).parameters)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({}, []),
        ({"instances": 2, "priority": -1}, ["-n", "2", "--priority", "-1"]),
        ({"instances": [8, 4], "max_run": "12h", "volume": 50}, ["-n", "8,4", "--max-run", "12h", "--volume", "50"]),
        ({"max_run": 600, "checkpoint": True}, ["--max-run", "600", "--checkpoint"]),
        ({"checkpoint": "s3://own/kept"}, ["--checkpoint", "s3://own/kept"]),
        ({"checkpoint": False}, []),
        ({"data": {"sets/a": "s3://own/sets"}, "fast_file": True}, ["--data", "sets/a=s3://own/sets", "--fast-file"]),
        ({"env": {"A": 1}, "tag": {"team": "x"}}, ["--env", "A=1", "--tag", "team=x"]),
        ({"after": "first", "retries": 2}, ["--after", "first", "--retries", "2"]),
        ({"retry_on": "137 communication=retry free"}, ["--retry-on", "137 communication=retry-free"]),
        ({"retry_on": ["137", "memory=fail"]}, ["--retry-on", "137", "--retry-on", "memory=fail"]),
        ({"after": ["a", "b:any"], "project": "vision"}, ["--after", "a", "--after", "b:any", "--project", "vision"]),
        ({"launcher": "torchrun", "processes": 4}, ["--launcher", "torchrun", "--processes", "4"]),
        ({"more": {"EnableNetworkIsolation": True}}, ["--request", "more.json"]),
        ({"folder": "."}, ["--folder", "."]),
    ],
)
def test_a_command_is_the_job_that_smq_makes_of_it(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], said: Any, options: list[str]
) -> None:
    s3.put_object(Bucket="own", Key="sets/1")
    Path("../more.json").write_text('{"EnableNetworkIsolation": true}')
    options = [f"../{option}" if option == "more.json" else option for option in options]
    command = ["python", "train.py", "--text", "two words"]
    server.answers(404, refused("NotFound", "There is no such job."))
    assert main(["submit", "--dry-run", "--name", "job1", *OPTIONS, *options, "--", *command]) == 0
    expected = json.loads(capsys.readouterr().out)
    server.always_answers(202, PENDING)
    assert QueueClient().submit("python train.py --text 'two words'", name="job1", **HERE, **said).job == "job1"
    QueueClient().submit(command, name="job1", **HERE, **said)
    assert sent(server) == [expected, expected]
    assert uploaded(s3) == ["1", "run.py", "source.tar.gz"]


@pytest.mark.thorough
def test_what_the_profile_says_need_not_be_said(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_ROLE", ROLE)
    monkeypatch.setenv("SAGEMAKER_QUEUE_IMAGE", "theirs:1")
    monkeypatch.setenv("SAGEMAKER_QUEUE_INSTANCE_TYPE", "ml.m5.large")
    server.always_answers(202, PENDING)
    QueueClient().submit("python train.py", bucket="own")
    assert sent(server)[0]["AlgorithmSpecification"]["TrainingImage"] == "theirs:1"


def test_a_request_is_a_request(server: ScriptedServer, queue: QueueClient) -> None:
    server.always_answers(202, PENDING)
    request: Json = {"TrainingJobName": "job1"}
    queue.submit(request)
    queue.submit(request=request, preflight=False)
    queue.plan(request)
    assert sent(server) == [request, request]
    with pytest.raises(TypeError, match="priority is a keyword for commands"):
        queue.submit(request, priority=1)


def test_a_plan_uploads_nothing(s3: Any, server: ScriptedServer) -> None:
    server.answers(200, {"wouldStart": True, "slots": {"p5": 1}})
    assert QueueClient().plan("python train.py", **HERE).would_start
    assert (uploaded(s3), sent(server)) == ([], [])


def test_what_the_queue_refuses_is_not_uploaded(s3: Any, server: ScriptedServer) -> None:
    server.answers(400, refused("InvalidRequest", "There is no project nope.", "Tags"))
    with pytest.raises(InvalidRequest, match="no project nope"):
        QueueClient().submit("python train.py", project="nope", **HERE)
    assert (uploaded(s3), sent(server)) == ([], [])


@pytest.mark.parametrize(
    ("command", "said", "error", "message"),
    [
        ("", {}, InvalidOption, "No command"),
        ("echo it's", {}, InvalidOption, "close the quotation"),
        ("python train.py", {"role": None}, InvalidOption, r"give role=\.\.\."),
        ("python train.py", {"instance": 2}, TypeError, "Did you mean 'instances'"),
        ("python train.py", {"instances": 0}, InvalidOption, "not a number of instances"),
        ("python train.py", {"instances": [2, 4]}, InvalidOption, "must decrease"),
        ("python train.py", {"checkpoint": "python"}, InvalidOption, "not an S3 address"),
        ("python train.py", {"data": {"../x": "s3://own/x"}}, InvalidOption, "data link"),
        ("python train.py", {"after": "a b"}, InvalidOption, "not the name of a job"),
        ("python train.py", {"folder": "nowhere"}, FolderError, "nowhere"),
    ],
)
def test_what_makes_no_job(command: str, said: Json, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        QueueClient().submit(command, **{**HERE, **said})


def test_secret_files_stay_and_are_told_of(server: ScriptedServer) -> None:
    Path(".env").write_text("KEY=1")
    server.always_answers(202, PENDING)
    with pytest.warns(UserWarning, match=r"Not packed.*\.env") as told:
        QueueClient().submit("python train.py", **HERE)
    assert told[0].filename == __file__  # where it was called
    QueueClient().submit("python train.py", include_secrets=[".env"], **HERE)


def test_a_sweep_is_that_of_smq(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--grid", "lr=0.1,0.01", "--grid", "n=2"]
    assert main(["sweep", "--dry-run", "--json", *OPTIONS, *grid, "--", *["python", "train.py", "{lr}", "{n}"]]) == 0
    expected = json.loads(capsys.readouterr().out)
    server.answers(200, {})  # the plan
    for request in expected:
        server.answers(202, job(request["TrainingJobName"], "pending", 0, group="train"))
    sweep = QueueClient().sweep("python train.py {lr} {n}", {"lr": [0.1, 0.01], "n": [2]}, **HERE)
    assert sent(server) == expected
    assert (sweep.group, [one.job for one in sweep]) == ("train", [one["TrainingJobName"] for one in expected])
    assert "○ pending" in sweep._repr_html_()


def test_what_is_missing_of_a_sweep_is_told(server: ScriptedServer) -> None:
    server.answers(200, {})
    server.answers(202, job("lr-x-1", "pending", 0))
    server.answers(409, refused("NameTaken", "Another request has the name."))
    server.answers(413, refused("TooLarge", "It is too large."))
    server.answers(403, refused("Forbidden", "You may not."))
    with pytest.raises(NameTaken, match=r"4 of 5 jobs not submitted: lr-x-2, lr-x-3, lr-x-4, lr-x-5\. Another request"):
        QueueClient().sweep("train {x}", {"x": range(1, 6)}, name="lr", **HERE)
    assert len(sent(server)) == 4  # what forbids one forbids the last as well


def with_earlier_times(request: Json) -> Json:
    """The request as the same call sent it earlier."""
    earlier = {"not_before": "2026-11-21T10:00:00Z", "start_by": "2026-11-21T12:00:00Z:cancel"}
    tags = [{**tag, "Value": earlier.get(tag["Key"], tag["Value"])} for tag in request["Tags"]]
    assert tags != request["Tags"]
    return {**request, "Tags": tags}


LATER: Any = {"not_before": "2h", "start_by": "4h:cancel", "priority": 1, **HERE}
NAME_TAKEN = refused("NameTaken", "Another request has the name.")


def test_a_repeated_call_with_relative_times_finds_its_job(server: ScriptedServer) -> None:
    server.answers(200, {})  # the plan before the upload
    server.answers(202, job("job1", "pending", 1))
    QueueClient().submit("python train.py", name="job1", **LATER)
    stored = with_earlier_times(sent(server)[0])
    server.answers(200, {})
    server.answers(409, NAME_TAKEN)
    server.answers(200, {**DETAIL, "request": stored})
    server.answers(200, job("job1", "running", 1, known=True))
    assert QueueClient().submit("python train.py", name="job1", **LATER).known
    assert sent(server)[-1] == stored
    server.answers(200, {})
    server.answers(409, NAME_TAKEN)
    server.answers(200, {**DETAIL, "request": stored})
    server.answers(409, NAME_TAKEN)
    with pytest.raises(NameTaken):
        QueueClient().submit("python train.py", name="job1", **{**LATER, "start_by": "4h:notify"})
    assert [tag["Value"] for tag in sent(server)[-1]["Tags"] if tag["Key"] == "start_by"] == [
        "2026-11-21T12:00:00Z:notify"
    ]


@pytest.mark.parametrize("answer", [(404, refused("NotFound", "There is no such job.")), (200, DETAIL)])
def test_without_the_times_of_the_job_its_name_is_taken(server: ScriptedServer, answer: tuple[int, Json]) -> None:
    server.answers(200, {})
    server.answers(409, NAME_TAKEN)
    server.answers(*answer)
    with pytest.raises(NameTaken):
        QueueClient().submit("python train.py", name="job1", **LATER)
    server.answers(200, {})
    server.answers(409, NAME_TAKEN)
    with pytest.raises(NameTaken):
        QueueClient().submit("python train.py", name="job1", not_before="2099-01-01", **HERE)
    assert len(sent(server)) == 2


def test_a_repeated_sweep_with_relative_times_has_the_same_jobs(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {})
    server.answers(202, job("train-x-1", "pending", 1))
    sweep = QueueClient().sweep("train {x}", {"x": [1]}, **LATER)
    stored = with_earlier_times(sent(server)[0])
    server.answers(200, {})
    server.answers(409, NAME_TAKEN)
    server.answers(200, {**DETAIL, "request": stored})
    server.answers(200, job("train-x-1", "running", 1, known=True))
    words = ["--not-before", "3h", "--start-by", "5h:cancel", "--priority", "1", "--grid", "x=1", "--", "train", "{x}"]
    assert main(["sweep", "--json", *OPTIONS, *words]) == 0
    assert sent(server)[-1] == stored and len(sweep) == 1

    def group(time: str) -> str:
        words = ["--not-before", time, "--grid", "x=1", "--", "train", "{x}"]
        assert main(["sweep", "--json", "--dry-run", *OPTIONS, *words]) == 0
        return str(json.loads(capsys.readouterr().out)[0]["TrainingJobName"])

    capsys.readouterr()
    assert group("2099-01-01") == group("2099-01-01") != group("2099-01-02")


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "Nothing is varied"),
        ({"lr": []}, "not a grid"),
        ({"lr": "0.1"}, "not a grid"),
        ({"l r": [1]}, "not a grid"),
        ({"lr": [1, "1"]}, "twice"),
        ({"other": [1]}, "placeholder"),
        ({"lr": range(51)}, "yes=True"),
    ],
)
def test_what_makes_no_sweep(server: ScriptedServer, grid: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        QueueClient().sweep("train {lr}", grid, **HERE)
    assert server.received == []
