"""``smq data``: what is sent, and what a list tells."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from sagemaker_queue.cli import main
from tests.client.conftest import ScriptedServer
from tests.client.terminal import Terminal

LARGE = 20_000_000  # bytes: three parts of an upload


@pytest.fixture
def folder(tmp_path: Path, s3: Any) -> Path:
    folder = tmp_path / "set"
    (folder / "deep").mkdir(parents=True)
    (folder / "empty").write_bytes(b"")
    (folder / "deep" / "small").write_text("one")
    (folder / "large").write_bytes(os.urandom(1000) * (LARGE // 1000))
    return folder


def put(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["data", "put", *arguments]) == 0
    return capsys.readouterr().out.strip()


def keys(s3: Any) -> list[str]:
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket="sets").get("Contents", ())]


def test_only_what_changed_is_sent(folder: Path, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    there = "uploaded to s3://sets/a"
    assert put(capsys, "set", "s3://sets/a") == f"3 files, 20.0 MB, {there}"
    assert put(capsys, "set", "s3://sets/a") == f"0 files, 0 bytes, {there}; 3 files already there"
    before = (folder / "deep" / "small").stat()
    (folder / "deep" / "small").write_text("two")  # as long as before, and as old
    os.utime(folder / "deep" / "small", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert put(capsys, "set", "s3://sets/a") == f"1 file, 3 bytes, {there}; 2 files already there"
    assert s3.get_object(Bucket="sets", Key="a/deep/small")["Body"].read() == b"two"
    with (folder / "large").open("r+b") as large:
        large.seek(LARGE - 1)
        last = large.read(1)[0]
        large.seek(LARGE - 1)
        large.write(bytes([last ^ 1]))
    assert put(capsys, "set/large", "s3://sets/a/") == "1 file, 20.0 MB, uploaded to s3://sets/a/large"
    assert put(capsys, "set/large", "s3://sets/a/").endswith("; 1 file already there")


def test_links_in_a_folder_are_followed_or_named(tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("one")
    (tmp_path / "set" / "folder").symlink_to(tmp_path / "other")
    (tmp_path / "set" / "copy").symlink_to(tmp_path / "other" / "file")
    (tmp_path / "set" / "deep" / "up").symlink_to("..")
    (tmp_path / "set" / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "set" / "pipe")
    assert main(["data", "put", "set", "s3://sets/a"]) == 1
    out, err = capsys.readouterr()
    assert out == "2 files, 6 bytes, uploaded to s3://sets/a\n"
    assert sorted(err.splitlines()) == [
        "smq: not uploaded: set/deep/up: a link to a folder that contains it",
        "smq: not uploaded: set/gone: a broken link",
        "smq: not uploaded: set/pipe: not a file or folder",
    ]
    assert keys(s3) == ["a/copy", "a/folder/file"]


def test_links_behind_links_are_followed(tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        (tmp_path / f"part{number}").mkdir()
        (tmp_path / f"part{number}" / "file").write_text("one")
        (tmp_path / f"part{number}" / "next").symlink_to(f"../part{number + 1}")
    (tmp_path / "part6").mkdir()
    (tmp_path / "part6" / "file").write_text("one")
    (tmp_path / "part6" / "next").symlink_to("../part2")
    assert main(["data", "put", "part0", "s3://sets/a"]) == 1
    out, err = capsys.readouterr()
    assert out == "7 files, 21 bytes, uploaded to s3://sets/a\n"
    assert err == f"smq: not uploaded: part0/{'next/' * 6}next: a link to a folder that contains it\n"
    assert keys(s3) == [f"a/{'next/' * depth}file" for depth in range(7)]


UNREADABLE = Path("/proc/sys/vm/compact_memory")  # a file that not even root may read


def test_unreadable_entries_are_left_out_alone(tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set" / "b").mkdir(parents=True)
    (tmp_path / "set" / "b" / "a-long").symlink_to("n" * 300)
    (tmp_path / "set" / "b" / "a-loop").symlink_to("a-loop")
    for name in ("a", "b/file", "c"):
        (tmp_path / "set" / name).write_text("one")
    reasons = {"b/a-long": "File name too long", "b/a-loop": "Too many levels of symbolic links"}
    if UNREADABLE.exists():  # on Linux
        (tmp_path / "set" / "b" / "a-refused").symlink_to(UNREADABLE)
        reasons["b/a-refused"] = "Permission denied"
    assert main(["data", "put", "set", "s3://sets/a"]) == 1
    out, err = capsys.readouterr()
    assert out == "3 files, 9 bytes, uploaded to s3://sets/a\n"
    assert err.splitlines() == [f"smq: not uploaded: set/{name}: {reason}" for name, reason in reasons.items()]
    assert keys(s3) == ["a/a", "a/b/file", "a/c"]


def test_too_many_links_are_not_called_broken(tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "link0").write_text("one")
    for number in range(1, 42):  # Linux follows 40
        (tmp_path / "set" / f"link{number}").symlink_to(f"link{number - 1}")
    assert main(["data", "put", "set", "s3://sets/a"]) == 1
    out, err = capsys.readouterr()
    assert "uploaded to s3://sets/a" in out
    assert "not uploaded: set/link41: Too many levels of symbolic links\n" in err
    for name in ("link41", "n" * 300):
        assert main(["data", "put", f"set/{name}", "s3://sets/b"]) == 2
        assert capsys.readouterr().err.startswith(f"smq: set/{name} cannot be uploaded: ")
    assert main(["data", "put", "set/link0/none", "s3://sets/b"]) == 2
    assert capsys.readouterr().err == "smq: There is no file or folder set/link0/none here.\n"


PUT = """
import sys, boto3
from moto import mock_aws
from sagemaker_queue.cli import main
with mock_aws():
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="sets")
    sys.exit(main(["data", "put", "set/large", "s3://sets/large"]))
"""


def test_on_a_terminal_one_sees_how_much_is_sent(folder: Path) -> None:
    with Terminal([sys.executable, "-c", PUT]) as terminal:
        assert terminal.end() == 0, terminal.text
        assert [row for row in terminal.rows if row] == ["1 file, 20.0 MB, uploaded to s3://sets/large"]
    drawn = terminal.written.decode()
    assert "Uploading" in drawn and "20.0/20.0 MB" in drawn


def test_what_another_program_brought_in_other_parts_is_sent_again(
    folder: Path, s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = TransferConfig(multipart_chunksize=16 << 20)
    s3.upload_file(str(folder / "large"), "sets", "large", Config=parts)
    assert put(capsys, "set/large", "s3://sets/large") == "1 file, 20.0 MB, uploaded to s3://sets/large"


def configure(text: str) -> None:
    """Write the configuration of the person."""
    file = Path.home() / ".config" / "sagemaker-queue" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_a_copy_leaves_out_what_is_there(
    folder: Path, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(f'[profiles.a]\nurl = "{server.url}"\n[profiles.a.data]\n"set" = "s3://sets/a"\n')
    put(capsys, "set/deep", "s3://sets/a")
    assert put(capsys, "set", "s3://sets/b", "--from", "a") == "1 file, 3 bytes, uploaded to s3://sets/b"
    assert put(capsys, "set", "s3://sets/b", "--from", "a").endswith("uploaded to s3://sets/b; 1 file already there")


def test_a_file_is_copied_into_a_folder_under_its_name(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(f'[profiles.a]\nurl = "{server.url}"\n')
    s3.put_object(Bucket="sets", Key="a/small", Body=b"one")
    copied = "1 file, 3 bytes, uploaded to s3://sets/b/small"
    assert put(capsys, "s3://sets/a/small", "s3://sets/b/", "--from", "a") == copied
    assert put(capsys, "s3://sets/a/small", "s3://sets/c", "--from", "a") == "1 file, 3 bytes, uploaded to s3://sets/c"
    s3.put_object(Bucket="sets", Key="empty/")
    put(capsys, "s3://sets/empty/", "s3://sets/d", "--from", "a")
    assert keys(s3) == ["a/small", "b/small", "c", "d/", "empty/"]


def test_markers_of_empty_folders_are_not_downloaded(
    tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.put_object(Bucket="sets", Key="empty/")
    for address in ("s3://sets/empty/", "s3://sets/empty"):
        assert main(["data", "get", address]) == 3
        assert capsys.readouterr().err == f"smq: There is no file at {address}.\n"
    assert not (tmp_path / "empty").exists()
    s3.put_object(Bucket="sets", Key="full/inner/")
    s3.put_object(Bucket="sets", Key="full/file", Body=b"one")
    assert main(["data", "get", "s3://sets/full"]) == 0
    assert capsys.readouterr() == ("1 file, 3 bytes, now in full\n", "")
    s3.put_object(Bucket="sets", Key="full/odd/", Body=b"one")
    assert main(["data", "get", "s3://sets/full"]) == 1
    assert "not downloaded: s3://sets/full/odd/: " in capsys.readouterr().err


def test_a_lone_marker_is_removed_as_a_folder(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    s3.put_object(Bucket="sets", Key="empty/")
    for address in ("s3://sets/empty/", "s3://sets/empty"):
        assert main(["data", "rm", address]) == 2
        refusal = "smq: s3://sets/empty/ is a folder with 1 file, 0 bytes: --recursive removes it.\n"
        assert capsys.readouterr() == ("", refusal)
    assert keys(s3) == ["empty/"]
    assert main(["data", "rm", "-r", "s3://sets/empty/"]) == 0
    assert capsys.readouterr().out == "1 file removed from s3://sets/empty/\n"
    assert keys(s3) == []


def test_an_address_of_another_profile_needs_a_target(
    folder: Path, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(f'[profiles.a]\nurl = "{server.url}"\n')
    put(capsys, "set/deep", "s3://sets/a")
    assert main(["data", "put", "s3://sets/a", "--from", "a"]) == 2
    assert "name as TO where to copy it" in capsys.readouterr().err
    assert put(capsys, "s3://sets/a/", "s3://sets/b", "--from", "a") == "1 file, 3 bytes, uploaded to s3://sets/b"
    assert main(["data", "put", "s3://sets/a", "s3://none/a", "--from", "a"]) == 1
    assert "There is no bucket none" in capsys.readouterr().err
    assert main(["data", "put", "s3://sets/none", "s3://sets/b", "--from", "a"]) == 3


def test_a_list_has_dates_and_a_total(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(capsys, "set", "s3://sets/a")
    assert main(["data", "ls", "s3://sets/a"]) == 0
    deep, empty, large, total = capsys.readouterr().out.splitlines()
    assert deep.split() == ["s3://sets/a/deep/"]
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf" +0 bytes  {date}  s3://sets/a/empty", empty)
    assert re.fullmatch(rf" +20\.0 MB  {date}  s3://sets/a/large", large)
    assert total == "1 folder and 2 files, 20.0 MB"
    assert main(["data", "ls", "-r", "--json", "s3://sets/a/deep"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["uri"], entry["size"]) == ("s3://sets/a/deep/small", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry["modified"])
