"""``smq get``: which results, to where, and what is left alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.cli import main
from tests.client.other_account import session_of_profile
from tests.client.samples import DETAIL, Job

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

ATTEMPTS = [
    {"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "preempted"},
    {"attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": "completed"},
]
REQUEST = {
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
    "CheckpointConfig": {"S3Uri": "s3://bucket/saved/job1"},
}
ENDED: Job = {**DETAIL, "state": "completed", "attempts": ATTEMPTS, "request": REQUEST}


@pytest.fixture
def s3(address: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield client


def packed(*names: str, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc"
            tar.addfile(info)
    return buffer.getvalue()


def put(s3: Any, **objects: bytes) -> None:
    for name, body in objects.items():
        s3.put_object(Bucket="bucket", Key=f"out/job1-qstamp-2/output/{name}.tar.gz", Body=body)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_the_results_of_the_last_attempt_are_unpacked(
    s3: Any, server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(s3, model=packed("weights", "deep/er"), output=packed("log"))
    s3.put_object(Bucket="bucket", Key="out/job1-qstamp-1/output/model.tar.gz", Body=packed("of the first attempt"))
    server.always_answers(200, ENDED)
    assert main(["get", "job1"]) == 0
    assert files(tmp_path) == {"job1/model/weights", "job1/model/deep/er", "job1/data/log"}
    assert capsys.readouterr() == ("3 files, 15 bytes, now in job1\n", "")


POLICY = {
    "version": 1,
    "policy": {"projects": [{"name": "default", "bucket_by_region": {"eu-west-1": "bucket", "us-east-2": "ohio"}}]},
}


def ran_there(**place: str) -> Job:
    """The job, whose second attempt ran elsewhere."""
    return {**ENDED, "attempts": [ATTEMPTS[0], {**ATTEMPTS[1], **place}]}


@pytest.mark.parametrize("option", ["results", "checkpoints"])
def test_what_an_attempt_left_in_another_region_is_in_the_bucket_of_that_region(
    s3: Any, server: ScriptedServer, tmp_path: Path, option: str
) -> None:
    create: Any = boto3.client
    ohio = create("s3", region_name="us-east-2")
    ohio.create_bucket(Bucket="ohio", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    for client, bucket, name in ((s3, "bucket", "old"), (ohio, "ohio", "weights")):
        client.put_object(Bucket=bucket, Key="out/job1-qstamp-2/output/model.tar.gz", Body=packed(name))
        client.put_object(Bucket=bucket, Key=f"saved/job1/{name}", Body=b"hello")
    server.answers(200, ran_there(region="us-east-2"))
    server.answers(200, POLICY)
    assert main(["get", "job1", "to", *(["--checkpoints"] if option == "checkpoints" else [])]) == 0
    assert files(tmp_path / "to") == {"model/weights" if option == "results" else "weights"}


def test_in_the_queue_s_region_no_policy_is_read(s3: Any, server: ScriptedServer) -> None:
    put(s3, model=packed("weights"))
    server.answers(200, ran_there())
    assert main(["get", "job1"]) == 0
    assert [request.path for request in server.received] == ["/prod/jobs/job1"]


def test_the_bucket_of_another_account_is_read_with_the_profile_of_that_account(
    s3: Any, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = session_of_profile("222222222222", "lab", tmp_path, monkeypatch)
    create: Any = there.client
    ohio = create("s3", region_name="us-east-2")
    ohio.create_bucket(Bucket="ohio", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    ohio.put_object(Bucket="ohio", Key="out/job1-qstamp-2/output/model.tar.gz", Body=packed("weights"))
    for _ in range(2):
        server.answers(200, ran_there(region="us-east-2", account="222222222222"))
        server.answers(200, POLICY)
    assert main(["get", "job1"]) == 2
    assert "job1 is in account 222222222222, and no AWS profile of that account is set" in capsys.readouterr().err
    monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", "222222222222=lab")
    assert main(["get", "job1"]) == 0
    assert files(tmp_path / "job1") == {"model/weights"}


def test_archives_without_files_are_explained(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    put(s3, model=packed())
    server.always_answers(200, ENDED)
    assert main(["get", "job1"]) == 0
    assert capsys.readouterr().out == (
        "job1 has left no model and no other output. Its checkpoints: smq get job1 --checkpoints\n"
    )


def test_nothing_is_overwritten(
    s3: Any, server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(s3, model=packed("weights"))
    (tmp_path / "job1/model").mkdir(parents=True)
    (tmp_path / "job1/model/weights").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    server.always_answers(200, ENDED)
    for taken in ([], ["file"], ["link"]):
        assert main(["get", "job1", *taken]) == 1
        assert "exists already, and no file is overwritten" in capsys.readouterr().err
    assert main(["get", "job1", "empty"]) == 0
    assert files(tmp_path / "empty") == {"model/weights"} and (tmp_path / "job1/model/weights").read_text() == "mine"


def test_an_archive_of_which_not_all_was_unpacked_stays(
    s3: Any, server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(s3, model=packed("weights", "../out", link="latest"))
    server.always_answers(200, ENDED)
    assert main(["get", "job1"]) == 1
    assert files(tmp_path) == {"job1/model/weights", "job1/model.tar.gz"}
    complaints = capsys.readouterr().err.splitlines()
    assert complaints == [
        "smq: not downloaded: job1/model.tar.gz: ../out: its path is outside the folder",
        "smq: not downloaded: job1/model.tar.gz: latest: links and devices are not unpacked",
    ]


def test_checkpoints_also_of_a_job_that_lives(s3: Any, server: ScriptedServer, tmp_path: Path) -> None:
    s3.put_object(Bucket="bucket", Key="saved/job1/step-7/model.tar.gz", Body=b"as it is")
    server.always_answers(200, {**ENDED, "state": "running"})
    assert main(["get", "job1", "--checkpoints"]) == 0
    assert files(tmp_path) == {"job1-checkpoints/step-7/model.tar.gz"}


@pytest.mark.parametrize(
    ("changes", "arguments", "code", "said"),
    [
        ({"state": "running"}, [], 1, "job1 is running: its results are uploaded at its end."),
        ({"state": "stopped", "attempts": []}, [], 3, "job1 was stopped before it ran, and has left nothing."),
        ({}, [], 3, "job1 has left nothing at s3://bucket/out/job1-qstamp-2/output."),
        ({"request": {}}, ["--checkpoints"], 3, "job1 saves no checkpoints"),
    ],
)
def test_why_there_is_nothing(
    s3: Any,
    server: ScriptedServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: Job,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    server.always_answers(200, {**ENDED, **changes})
    assert main(["get", "job1", *arguments]) == code
    assert said in capsys.readouterr().err
    assert files(tmp_path) == set()
