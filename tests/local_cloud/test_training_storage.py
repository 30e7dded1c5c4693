"""Files between S3 and a job's folders."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local_cloud.sagemaker.job_processes.storage import CheckpointSync, Storage, TransferError
from tests.local_cloud.emulator import BUCKET, Emulator

LONG_AGO = time.time() - 100


class Bucket(Storage):
    """Notes what is put, and lets a test interfere meanwhile."""

    def __init__(self, meanwhile: Callable[[Path], None] = lambda path: None) -> None:
        self.put_names: list[str] = []
        self._meanwhile = meanwhile

    def upload_changing(self, path: Path, uri: str) -> None:
        self.put_names.append(uri.removeprefix("s3://bucket/"))
        self._meanwhile(path)


def write(path: Path, text: str, changed: float = LONG_AGO) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (changed, changed))


def test_only_what_changed_is_copied_oldest_first(tmp_path: Path) -> None:
    bucket = Bucket()
    sync = CheckpointSync(bucket, [tmp_path], "s3://bucket/")
    write(tmp_path / "a-pointer", "step-1", LONG_AGO + 1)
    write(tmp_path / "steps" / "step-1", "weights", LONG_AGO)
    sync.sync()
    assert bucket.put_names == ["steps/step-1", "a-pointer"]
    sync.sync()
    assert len(bucket.put_names) == 2
    write(tmp_path / "a-pointer", "step-2", LONG_AGO + 2)
    sync.sync()
    assert bucket.put_names[2:] == ["a-pointer"]


def test_a_file_that_is_being_written_is_copied_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    bucket = Bucket(meanwhile=lambda path: write(path, "more", LONG_AGO + 1) if len(bucket.put_names) == 1 else None)
    sync = CheckpointSync(bucket, [tmp_path], "s3://bucket/")
    write(path, "part")
    for _ in range(3):
        sync.sync()
    assert bucket.put_names == ["state", "state"]


def test_a_file_just_written_is_copied_again_as_its_time_may_not_change(tmp_path: Path) -> None:
    bucket = Bucket()
    sync = CheckpointSync(bucket, [tmp_path], "s3://bucket/", clock=lambda: LONG_AGO + 0.02)
    write(tmp_path / "state", "x", LONG_AGO)
    sync.sync()
    sync.sync()
    assert bucket.put_names == ["state", "state"]


def test_a_file_that_vanishes_is_no_error(tmp_path: Path) -> None:
    bucket = Bucket(meanwhile=Path.unlink)
    write(tmp_path / "temporary", "x")
    CheckpointSync(bucket, [tmp_path], "s3://bucket/").sync()
    assert bucket.put_names == ["temporary"]


@pytest.mark.parametrize(
    ("prefix", "files"),
    [
        ("tree/", ["a.txt", "b/c.txt"]),
        ("tree", ["tree/a.txt", "tree/b/c.txt", "tree-2.txt"]),
        ("tree/b", ["c.txt"]),
        ("tree/a.txt", ["a.txt"]),
        ("tree/a", ["a.txt"]),
    ],
)
def test_a_prefix_becomes_a_folder(emulator: Emulator, tmp_path: Path, prefix: str, files: list[str]) -> None:
    for key in ("tree/a.txt", "tree/b/c.txt", "tree-2.txt"):
        emulator.put(f"prefixes/{key}", b"")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/prefixes/{prefix}"}
    Storage(emulator.s3, tmp_path).download_channel(source, tmp_path / "in", 0, 1)
    found = [str(path.relative_to(tmp_path / "in")) for path in (tmp_path / "in").rglob("*.txt")]
    assert sorted(found) == sorted(files)


def test_a_manifest_names_the_objects(emulator: Emulator, tmp_path: Path) -> None:
    emulator.put("listed/x/1", b"one")
    emulator.put("listed/2", b"two")
    emulator.put("manifest", f'[{{"prefix": "s3://{BUCKET}/listed/"}}, "x/1"]'.encode())
    source = {"S3DataType": "ManifestFile", "S3Uri": f"s3://{BUCKET}/manifest"}
    Storage(emulator.s3, tmp_path).download_channel(source, tmp_path / "in", 0, 1)
    assert [path.read_bytes() for path in (tmp_path / "in").rglob("*") if path.is_file()] == [b"one"]
    emulator.put("manifest", b"{}")
    with pytest.raises(TransferError, match="is not a manifest"):
        Storage(emulator.s3, tmp_path).download_channel(source, tmp_path / "in", 0, 1)
