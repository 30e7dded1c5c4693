"""``smq checkpoints`` and ``smq resubmit --from``: which checkpoints are listed, removed and copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue import InvalidOption, QueueClient, StorageError
from sagemaker_queue.cli import main
from sagemaker_queue.jobs import checkpoint_layouts
from sagemaker_queue.jobs.packaging.command import resubmission
from sagemaker_queue.workflows import saved_checkpoints
from sagemaker_queue.workflows.saved_checkpoints import copy_step, list_checkpoints
from tests.client.samples import DETAIL, Job, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

REAL: dict[str, Any] = json.loads(Path(__file__).parents[2].joinpath("checkpoint_layouts.json").read_text())
REQUEST = {"TrainingJobName": "job1", "CheckpointConfig": {"S3Uri": "s3://bucket/saved/job1"}}
RUNNING: Job = {**DETAIL, "state": "running", "request": REQUEST}


@pytest.fixture
def s3(address: None, server: ScriptedServer) -> Iterator[Any]:
    server.always_answers(200, RUNNING)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        client.create_bucket(Bucket="other")
        yield client


def put(s3: Any, name: str, below: str = "saved/job1/") -> None:
    """Store the checkpoints that a library has written."""
    for path, size, _ in sorted(REAL[name]["files"], key=lambda file: file[2]):
        text = REAL[name]["texts"].get(path, "x" * min(size, 100))
        s3.put_object(Bucket="bucket", Key=f"{below}{path}", Body=text.encode())


def keys(s3: Any, prefix: str) -> set[str]:
    found = s3.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return {entry["Key"][len(prefix) :] for entry in found}


@pytest.mark.parametrize("arguments", [["checkpoints"], ["checkpoints", "list"]])
def test_the_checkpoints_of_a_job(s3: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "deepspeed")
    assert main([*arguments, "job1"]) == 0
    header, *rows, total, others = capsys.readouterr().out.splitlines()
    assert header.split() == ["Step", "Layout", "Files", "Size", "Age", "Name"]
    assert [row.split()[:3] for row in rows] == [[str(step), "DeepSpeed", "2"] for step in (2, 4, 6)]
    assert [row.endswith("resumes from it") for row in rows] == [False, False, True]
    assert total == "3 checkpoints, 600 bytes, in s3://bucket/saved/job1/"
    assert others.startswith("3 other files, 212 bytes; the newest is ")


def test_checkpoints_for_programs(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "orbax-interrupted")
    s3.put_object(Bucket="bucket", Key="saved/job1/empty/", Body=b"")
    assert main(["checkpoints", "job1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["address"]) == ("job1", "s3://bucket/saved/job1/")
    first, second = found["checkpoints"]
    assert first["modified"] and (first["step"], first["complete"], first["resumes"]) == (2, True, True)
    assert (second["name"], second["incomplete"]) == ("4.orbax-checkpoint-tmp", "its folder is temporary")
    assert found["others"] == {"files": 0, "bytes": 0}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "request_", "code", "said"),
    [
        (["checkpoints", "job1"], {}, 3, "job1 saves no checkpoints"),
        (["checkpoints", "prune", "job1"], REQUEST, 2, "Missing option '--keep'"),
        (["checkpoints", "prune", "job1", "--keep", "0"], REQUEST, 2, "0 is not in the range x>=1"),
        (
            ["resubmit", "job1", "--from", "7", "--no-preflight"],
            REQUEST,
            3,
            "job1 has no checkpoint of step 7 in s3://bucket/saved/job1/.",
        ),
        (["resubmit", "job1", "--from", "2", "--resume"], REQUEST, 2, "--resume cannot be given together with --from"),
        (["resubmit", "job1", "--from", "7"], {"TrainingJobName": "job1"}, 2, "job1 keeps no checkpoints"),
    ],
)
def test_complaints(
    s3: Any,
    server: ScriptedServer,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    request_: object,
    code: int,
    said: str,
) -> None:
    server.answers(200, {**RUNNING, "request": request_})
    server.answers(404, refused("NotFound", "There is no job job1-r2."))
    assert main([*arguments]) == code
    assert said in capsys.readouterr().err


def test_nothing_is_removed_without_consent(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "torch-distributed")
    before = keys(s3, "saved/job1/")
    assert main(["checkpoints", "prune", "job1", "--keep", "1"]) == 2
    assert "This would remove 1 checkpoint of job1 (300 bytes): --yes removes" in capsys.readouterr().err
    assert main(["checkpoints", "prune", "job1", "--keep", "1", "--dry-run"]) == 0
    assert "1 checkpoint of job1 would be removed, 300 bytes; 2 checkpoints left" in capsys.readouterr().out
    assert keys(s3, "saved/job1/") == before


@pytest.mark.parametrize("name", list(REAL))
def test_a_library_resumes_from_the_same_step_after_a_removal(
    s3: Any, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint_layouts, "SETTLED", timedelta())
    put(s3, name)
    queue = QueueClient()
    before = [one.name for one in queue.checkpoints("job1") if one.resumes]
    assert main(["checkpoints", "prune", "job1", "--keep", "1", "--yes", "--json"]) == 0
    removed = {one["name"] for one in json.loads(capsys.readouterr().out)["removed"]}
    after = queue.checkpoints("job1")
    assert [one.name for one in after if one.resumes] == before
    assert not removed & {one.name for one in after}
    assert len([one for one in after if one.step is not None and not one.incomplete]) == 1


def test_more_files_than_one_call_removes(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_checkpoints, "REMOVED_AT_ONCE", 3)
    for step in (1, 2, 3):
        for number in range(7 if step == 1 else 1):
            s3.put_object(Bucket="bucket", Key=f"saved/job1/step-{step}/shard-{number}", Body=b"x")
    s3.put_object(Bucket="bucket", Key="saved/job1-other/step-1/shard-0", Body=b"x")
    gone = QueueClient().prune_checkpoints("job1", 1, silent=True)
    assert [(one.step, len(one.files)) for one in gone] == [(1, 7)]
    assert keys(s3, "saved/") == {"job1/step-2/shard-0", "job1/step-3/shard-0", "job1-other/step-1/shard-0"}


def test_a_dry_run_in_python_removes_nothing(s3: Any) -> None:
    put(s3, "plain")
    queue = QueueClient()
    assert [one.step for one in queue.prune_checkpoints("job1", 1, dry_run=True)] == [2]
    assert len(queue.checkpoints("job1")) == 3
    with pytest.raises(InvalidOption, match="At least one checkpoint must be kept"):
        queue.prune_checkpoints("job1", 0)


def test_the_owner_of_the_bucket_is_named_in_each_call(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, "plain")
    calls = []

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        calls.append((model.name, params["headers"].get("x-amz-expected-bucket-owner")))

    queue = QueueClient(boto_session=(session := boto3.Session(region_name="us-east-1")))
    session.events.register("before-call.s3", note)
    queue.prune_checkpoints("job1", 1, silent=True)
    assert {name for name, _ in calls} >= {"ListObjectsV2", "DeleteObjects"}
    assert {owner for _, owner in calls} == {"123456789012"}


@pytest.mark.parametrize(
    ("name", "step", "expected"),
    [
        ("lightning", 4, {"epoch=0-step=4.ckpt", "last.ckpt"}),
        (
            "lightning-fsdp",
            2,
            {f"epoch=0-step=2.ckpt/{file}" for file in (".metadata", "__0_0.distcp", "__1_0.distcp")},
        ),
        ("transformers", 4, {"checkpoint-4/trainer_state.json", "checkpoint-4/model.safetensors"}),
        ("deepspeed", 4, {"global_step4/mp_rank_00_model_states.pt", "latest"}),
        ("torch-distributed", 4, {f"step-4/{file}" for file in (".metadata", "__0_0.distcp", "__1_0.distcp")}),
        ("orbax", 4, {"4/_CHECKPOINT_METADATA", "4/default/manifest.ocdbt"}),
        ("plain", 4, {"step-4.pt"}),
    ],
)
def test_a_job_resumes_from_the_step_that_was_copied(s3: Any, name: str, step: int, expected: set[str]) -> None:
    put(s3, name)
    queue = QueueClient()
    request = resubmission(REQUEST, "job1-r2", from_step=step)
    assert request["CheckpointConfig"]["S3Uri"] == f"s3://bucket/saved/job1-r2-from-{step}"
    for _ in range(2):  # the second time continues a copy of which nothing is missing
        copy_step(queue, list_checkpoints(queue, "job1"), step, request, Transfer)
        assert expected <= keys(s3, f"saved/job1-r2-from-{step}/")
    texts = {}
    if name == "deepspeed":
        stored = s3.get_object(Bucket="bucket", Key=f"saved/job1-r2-from-{step}/latest")
        texts["latest"] = stored["Body"].read().decode()
    now = datetime.now(timezone.utc)
    files = [checkpoint_layouts.CheckpointFile(key, 1, now) for key in keys(s3, f"saved/job1-r2-from-{step}/")]
    found = checkpoint_layouts.recognise(files, texts)
    numbered = [one for one in found.checkpoints if one.step is not None]
    assert [(one.step, one.incomplete) for one in numbered] == [(step, "")]
    assert len([one for one in found.checkpoints if one.resumes]) == 1


class Transfer:
    """A transfer that is not shown. Its progress ends at the total, unless an error ends it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.moved = 0

    def __enter__(self) -> Any:
        return self.add

    def add(self, moved: int) -> None:
        self.moved += moved

    def __exit__(self, error: object, *_: object) -> None:
        assert error or self.moved == self.total


def test_a_folder_with_other_files_is_no_place_for_a_copy(s3: Any) -> None:
    put(s3, "plain")
    s3.put_object(Bucket="bucket", Key="saved/job1-r2-from-4/step-9.pt", Body=b"")
    queue = QueueClient()
    request = resubmission(REQUEST, "job1-r2", from_step=4)
    with pytest.raises(
        StorageError, match=r"has 1 other file already, such as s3://bucket/saved/job1-r2-from-4/step-9"
    ):
        copy_step(queue, list_checkpoints(queue, "job1"), 4, request, Transfer)


def test_an_incomplete_step_is_not_copied(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "orbax-interrupted")
    server.answers(200, RUNNING)
    server.answers(404, refused("NotFound", "There is no job job1-r2."))
    assert main(["resubmit", "job1", "--from", "4", "--no-preflight"]) == 1
    assert "The checkpoint of step 4 of job1 is incomplete: its folder is temporary." in capsys.readouterr().err


def test_a_name_that_is_taken_gets_no_copy(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "plain")
    for _ in range(2):
        server.answers(200, RUNNING)
    server.answers(409, refused("NameTaken", "taken"))
    assert main(["resubmit", "job1", "--from", "4", "--no-preflight"]) != 0
    assert keys(s3, "saved/job1-r2") == set()


def test_notebooks_show_checkpoints_as_a_table(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="saved/job1/<b>/step-5.pt", Body=b"")
    page = QueueClient().checkpoints("job1")._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;b&gt;/step-5.pt" in page and "resumes from it" in page
