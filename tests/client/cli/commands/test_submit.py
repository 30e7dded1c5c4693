"""``smq submit`` and ``sweep``: what is looked at before anything is uploaded, and what is said of a refusal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.cli import main
from tests.client.conftest import ScriptedServer
from tests.client.samples import refused

JOB = [
    "--role",
    "arn:aws:iam::123456789012:role/training",
    "--image",
    "train:1",
    "-t",
    "ml.m5.large",
    "--bucket",
    "own",
]
TAKEN = refused("NameTaken", "Another request already has the name lr-lr-1.", remedy="Give it another name.")
MISSING = "s3://sets/none"


@pytest.fixture
def s3(tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    with mock_aws():
        client = boto3.Session(region_name="us-east-1").client("s3")
        for bucket in ("own", "sets"):
            client.create_bucket(Bucket=bucket)
        yield client


def uploaded(s3: Any) -> list[str]:
    return [one["Key"].rpartition("/")[2] for one in s3.list_objects_v2(Bucket="own").get("Contents", [])]


@pytest.mark.parametrize("command", [["submit"], ["sweep", "--grid", "lr=1,2"]])
def test_data_are_looked_for_before_the_code_is_uploaded(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([*command, *JOB, "--data", f"x={MISSING}", "--", "train", "{lr}"]) == 1
    assert f"{MISSING}/, where nothing is" in capsys.readouterr().err
    assert (uploaded(s3), server.received) == ([], [])
    server.always_answers(202, {"job": "job1", "state": "pending"})
    s3.put_object(Bucket="sets", Key="none/1")
    assert main([*command, *JOB, "--data", f"x={MISSING}", "--", "train", "{lr}"]) == 0
    assert sorted(uploaded(s3)) == ["run.py", "source.tar.gz"]


def test_an_option_in_a_command_without_dashes_before_it_is_not_guessed_at(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--priority", "--name=x", "-n", "--wait"]
    for option in options:
        assert main(["submit", *JOB, "python", "train.py", option, "5"]) == 2
        assert f"Is {option} for smq or for the command?" in capsys.readouterr().err
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main(["submit", *JOB, "--", "python", "train.py", *options, "5"]) == 0
    assert main(["submit", *JOB, "sh", "-c", "ls -n"]) == 0
    commands = [json.loads(json.loads(one.body)["HyperParameters"]["command"]) for one in server.received]
    assert commands == [["python", "train.py", *options, "5"], ["sh", "-c", "ls -n"]]


def test_another_sweep_of_the_name_is_told_to_take_another_one(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(409, TAKEN)
    server.answers(409, TAKEN)
    command = ["sweep", *JOB, "--name", "lr", "--grid", "lr=1,2", "--", "train", "{lr}"]
    assert main(command) == 1
    message = capsys.readouterr().err
    assert "another --name" in message and "submits what is missing" not in message
    assert message.count("another name") == 2
    server.answers(409, TAKEN)
    server.answers(413, refused("TooLarge", "It is too large."))
    assert main(command) == 1
    message = capsys.readouterr().err
    assert "another --name" in message and "submits what is missing" in message


def test_waiting_for_a_job_prints_its_lines_and_nothing_else(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(202, {"job": "job1", "state": "pending", "warnings": ["No checkpoints."]})
    server.always_answers(200, {"job": "job1", "state": "completed"})
    assert main(["submit", *JOB, "--wait", "--json", "--", "train"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "smq: warning: No checkpoints." in err and err.endswith("job1 is completed\n")


def test_jobs_that_are_named_come_first_as_a_tag(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--after", "prepare", "--after", "clean-up:any"]
    assert main(["submit", *JOB, *names, "--dry-run", "--", "true"]) == 0
    tags = {tag["Key"]: tag["Value"] for tag in json.loads(capsys.readouterr().out)["Tags"]}
    assert tags["after"] == "prepare clean-up:any"
    assert main(["submit", *JOB, "--after", "a b", "--dry-run", "--", "true"]) == 2
    assert "'a b' is no job" in capsys.readouterr().err


def test_the_numbers_of_instances_that_it_accepts_come_as_a_tag(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def request(*options: str) -> Any:
        assert main(["submit", *JOB, *options, "--dry-run", "--", "true"]) == 0
        sent = json.loads(capsys.readouterr().out)
        tags = {tag["Key"]: tag["Value"] for tag in sent.get("Tags", [])}
        return sent["ResourceConfig"]["InstanceCount"], tags.get("instances")

    assert request("-n", "8,4,2") == (8, "8 4 2")  # SageMaker takes no comma in a tag
    assert request("--instances", "8, 4") == (8, "8 4")
    assert request("-n", "3") == (3, None)
    assert request() == (1, None)


@pytest.mark.parametrize("text", ["0", "-1", "x", "8,", "8,0", "8,8", "4,8", "8 4", ""])
def test_numbers_of_instances_that_are_none_are_refused(s3: Any, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["submit", *JOB, f"--instances={text}", "--dry-run", "--", "true"]) == 2
    assert "--instances" in capsys.readouterr().err
