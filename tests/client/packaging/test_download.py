"""Keys in S3 that others have chosen, fetched into a folder: nothing is written outside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.cli.entry import main
from sagemaker_queue.jobs.packaging.download import Folder, PathRefused, path_parts
from sagemaker_queue.jobs.packaging.storage import S3Storage
from sagemaker_queue.queue.data_links import S3Address

pytestmark = pytest.mark.attack

BUCKET = "shared"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "https://a.execute-api.eu-west-1.amazonaws.com/prod")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


def put(s3: Any, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_no_key_leads_out_of_the_target(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    monkeypatch.chdir(inside)
    put(s3, "r/good", "r/deep/good", f"r/{outside}/a", f"r//{outside}/b", "r/../outside/c", "r/x/../../outside/d")
    put(s3, "r/./e", "r/x//f", "r/..\\..\\outside\\g", "r/x\ny", "r/\x1b]0;owned\x07", f"r/{'n' * 300}")
    assert main(["data", "get", f"s3://{BUCKET}/r", "got"]) == 1
    assert files(tmp_path) == {"inside/got/good", "inside/got/deep/good"}
    captured = capfd.readouterr()
    assert captured.err.count("smq: not downloaded: ") == 10
    assert "2 files" in captured.out


def test_links_in_the_target_are_not_followed(s3: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (outside / "kept").write_text("mine")
    (target / "folder").symlink_to(outside)
    (target / "file").symlink_to(outside / "kept")
    (target / "new").symlink_to(outside / "made")
    put(s3, "r/folder/x", "r/folder/deep/x", "r/file", "r/new", "r/new/x", "r/good")
    assert main(["data", "get", f"s3://{BUCKET}/r", str(target)]) == 1
    assert files(outside) == {"kept"} and (outside / "kept").read_text() == "mine"
    assert (target / "good").read_text() == "r/good"
    assert capfd.readouterr().err.count("not downloaded") == 5


def test_a_file_below_a_file_is_refused(s3: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    put(s3, "r/x")
    (tmp_path / "file").write_text("mine")
    for target in ("file/x", "file/deep/x"):
        assert main(["data", "get", f"s3://{BUCKET}/r/x", str(tmp_path / target)]) == 1
        message = capfd.readouterr().err
        assert message.startswith("smq: ") and str(tmp_path / "file") in message
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("key", ["..", "x/..", "x/\\etc", "x/."])
def test_the_name_of_an_address_is_no_way_out(
    s3: Any, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    put(s3, key, f"{key}/below")
    assert main(["data", "get", f"s3://{BUCKET}/{key}/"]) == 2
    assert main(["data", "get", f"s3://{BUCKET}/{key}", "."]) in (1, 2)
    assert files(tmp_path) in (set(), {"inside/below"})


def test_a_file_is_told_where_another_key_is_the_same_file(s3: Any, tmp_path: Path) -> None:
    """As on a disk that does not tell upper case from lower, which a second name of the file stands for."""
    put(s3, "r/A", "r/a")
    storage = S3Storage(boto3.Session(region_name="us-east-1"))
    found = storage.stored(S3Address(BUCKET, "r/"))

    folder = Folder(tmp_path, storage)
    folder.fetch(found[0], "A")
    os.link(tmp_path / "A", tmp_path / "a")
    with pytest.raises(PathRefused, match="would be the same file as A"):
        folder.fetch(found[1], "a")
    assert (tmp_path / "A").read_bytes() == b"r/A"


@pytest.mark.parametrize(
    "key",
    ["CON", "nul.txt", "deep/Aux", "com1.tar.gz", "LPT9", "C:/x", "file:stream", "dot.", "blank ", "a/b:c/d", "CON .x"],
)
def test_windows_is_given_no_device_drive_or_stream(key: str) -> None:
    with pytest.raises(PathRefused):
        path_parts(key, windows=True)


def test_ordinary_names_are_kept(s3: Any, tmp_path: Path) -> None:
    names = {"con", "2026-01-01T00:00:00.csv", "ä ö.txt", ".hidden", "a/b/c", "..x", "..."}
    put(s3, *(f"r/{name}" for name in names))
    s3.put_object(Bucket=BUCKET, Key="r/empty/")  # marks an empty folder
    assert main(["data", "get", f"s3://{BUCKET}/r", str(tmp_path / "got")]) == 0
    assert files(tmp_path / "got") == names
    for name in ("console", "a.con", "common.txt", "auxiliary"):
        assert path_parts(name, windows=True) == (name,)
