"""Arguments with bytes that are not UTF-8: clear errors, no stack trace, and no broken file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.queue.data_links import S3Address
from tests.client.conftest import ScriptedServer

OTHER = os.fsdecode(b"a\xffb")  # as Python reads an argument with these bytes
URL = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "set", "env.NAME", OTHER),
        ("config", "set", f"env.{OTHER}", "value"),
        ("config", "set", "role", OTHER),
        ("-c", OTHER, "config", "set", "url", URL),
    ],
)
def test_a_profile_keeps_its_settings(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "set", "url", URL]) == 0
    file = tmp_path / ".config" / "sagemaker-queue" / "config.toml"
    before = file.read_bytes()
    assert main(list(arguments)) == 2
    assert "must be UTF-8 text" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("command", ["ls", "get", "rm", "url"])
def test_an_address_in_s3_is_refused(command: str, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", command, f"s3://sets/{OTHER}"]) == 2
    assert capsys.readouterr().err == "smq: 's3://sets/a\\udcffb' is not UTF-8 text, as addresses in S3 are.\n"


def test_files_with_such_names_are_left_out_of_an_upload(
    s3: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set" / OTHER).mkdir(parents=True)
    (tmp_path / "set" / OTHER / "file").write_text("one")
    (tmp_path / "set" / f"{OTHER}.txt").write_text("one")
    (tmp_path / "set" / "file").write_text("one")
    assert main(["data", "put", "set", "s3://sets/a"]) == 1
    out, err = capsys.readouterr()
    assert out == "1 file, 3 bytes, uploaded to s3://sets/a\n"
    assert sorted(err.splitlines()) == [
        "smq: not uploaded: set/a\\udcffb.txt: its name is not UTF-8 text",
        "smq: not uploaded: set/a\\udcffb: its name is not UTF-8 text",
    ]
    assert main(["data", "put", f"set/{OTHER}.txt", "s3://sets/b"]) == 0, "the address is given"
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="sets")["Contents"]] == ["a/file", "b"]


@pytest.mark.parametrize("command", ["history", "failures"])
def test_a_query_of_the_queue_is_refused(
    command: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    server.always_answers(200, {"attempts": []})
    assert main([command, "--project", OTHER]) == 2
    assert "'a\\udcffb' is not UTF-8 text" in capsys.readouterr().err
    assert not server.received


def test_addresses_with_any_letters_are_addresses() -> None:
    assert S3Address.parse("s3://sets/größe/数据").name == "数据"
