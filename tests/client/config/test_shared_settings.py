"""Export and import of a queue's settings: exported settings are imported unchanged, and bad input loses nothing."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import tomlkit
from moto import mock_aws

from sagemaker_queue.cli import main
from sagemaker_queue.errors import ConfigError, InvalidDocument
from sagemaker_queue.queue.config.queue_config import find_config, find_defaults
from sagemaker_queue.queue.config.shared_settings import (
    LARGEST_TEXT,
    SHARED_SETTINGS,
    check_settings,
    parse_settings,
    setting_changes,
    settings_text,
)
from tests.client.terminal import Terminal

URL = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"
ROLE = "arn:aws:iam::123456789012:role/training"
SETTINGS = {
    "url": URL,
    "api_id": "a1b2c3d4e5",
    "region": "us-east-1",
    "account": "123456789012",
    "bucket_owners": "datasets=111122223333",
    "role": ROLE,
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.8",
    "bucket": "ml-training-123456789012",
    "instance_type": "ml.p5.48xlarge",
    "project": "vision",
    "max_run": "12h",
    "volume": 100,
    "checkpoint": True,
    "data": {"data/imagenet": "s3://datasets/imagenet"},
}
PERSONAL = (
    'aws_profile = "ann"\ncolumns = "job,state"\nnotify_webhook = "https://hooks.example/s3cret"\n'
    'env = {TOKEN = "s3cret"}\nrequest = {Environment = {TOKEN = "s3cret"}}\n'
)
OWN = f'default = "mine"\n\n[profiles.mine]\nurl = "{URL}"  # ours\nproject = "nlp"\ncolumns = "job,state"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / ".config" / "sagemaker-queue" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def own(path: Path) -> Path:
    path.write_text(OWN)
    return path


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A file from the operator."""
    sent = tmp_path / "queue.toml"
    sent.write_text(settings_text(SETTINGS))
    return sent


@pytest.fixture
def bucket(sent: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of this account with the operator's file."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="ml-training")
        s3.put_object(Bucket="ml-training", Key="queue.toml", Body=sent.read_bytes())
        s3.put_object(Bucket="ml-training", Key="large.toml", Body=b"#" * (LARGEST_TEXT + 1))
        yield "ml-training"


def test_exported_settings_are_imported_unchanged(
    path: Path, sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(SETTINGS) == set(SHARED_SETTINGS)
    assert main(["config", "import", str(sent)]) == 0
    shown = capsys.readouterr().out
    assert "data.data/imagenet" in shown and "smq doctor" in shown
    assert find_config().url == URL and find_defaults().role == ROLE
    assert main(["config", "export"]) == 0
    exported = capsys.readouterr().out
    assert tomlkit.parse(exported).unwrap() == SETTINGS
    assert exported.startswith("# Settings of a training job queue.")
    again = tmp_path / "again.toml"
    again.write_text(exported)
    before = path.read_text()
    assert main(["config", "import", str(again)]) == 0
    assert "Nothing to change" in capsys.readouterr().out
    assert path.read_text() == before


def test_personal_and_secret_settings_are_not_exported(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f'default = "mine"\n[profiles.mine]\nurl = "{URL}"\n{PERSONAL}')
    assert main(["config", "export"]) == 0
    out, err = capsys.readouterr()
    assert tomlkit.parse(out).unwrap() == {"url": URL}
    assert "env, request" in err and "s3cret" not in out + err


def test_settings_of_the_environment_are_exported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", URL)
    monkeypatch.setenv("SAGEMAKER_QUEUE_ROLE", ROLE)
    assert main(["config", "export"]) == 0
    assert tomlkit.parse(capsys.readouterr().out).unwrap() == {"url": URL, "role": ROLE}


def test_an_export_that_an_import_would_refuse_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f'default = "mine"\n[profiles.mine]\nurl = "{URL}"\nrole = "training"\n')
    assert main(["config", "export"]) == 2
    assert "role must be the ARN of a role" in capsys.readouterr().err


def test_without_a_queue_there_is_nothing_to_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "export"]) == 2
    assert "No queue is configured" in capsys.readouterr().err


def test_other_settings_and_comments_remain(own: Path, sent: Path) -> None:
    assert main(["config", "set", "data.data/mine", "s3://mine/data"]) == 0
    assert main(["config", "import", "--yes", str(sent)]) == 0
    profile = tomlkit.parse(own.read_text()).unwrap()["profiles"]["mine"]
    links = {**SETTINGS["data"], "data/mine": "s3://mine/data"}  # type: ignore[dict-item]
    assert profile == {**SETTINGS, "columns": "job,state", "data": links}
    assert main(["-c", "team", "config", "import", str(sent)]) == 0
    assert tomlkit.parse(own.read_text()).unwrap()["default"] == "mine"


def test_nothing_is_replaced_without_a_yes(own: Path, sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "import", str(sent)]) == 2
    out, err = capsys.readouterr()
    assert own.read_text() == OWN
    assert "To replace project of mine, add --yes." in err
    assert "vision" in out and "nlp" in out


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_on_a_terminal_it_asks_before_it_replaces(own: Path, sent: Path, answer: str, code: int) -> None:
    command = [sys.executable, "-m", "sagemaker_queue", "config", "import", str(sent)]
    with Terminal(command, columns=100, environment=dict(os.environ)) as terminal:
        terminal.shows("Replace project? [y/N]")
        terminal.press(answer)
        assert terminal.end() == code
    assert (own.read_text() == OWN) is (code == 1)


def test_a_pipe_is_read(own: Path, sent: Path) -> None:
    command = [sys.executable, "-m", "sagemaker_queue", "config", "import"]
    done = subprocess.run([*command, "-"], input=sent.read_bytes(), capture_output=True, check=False)
    assert done.returncode == 2 and b"add --yes" in done.stderr
    assert own.read_text() == OWN
    subprocess.run([*command, "-", "--yes"], input=sent.read_bytes(), capture_output=True, check=True)
    assert find_defaults().project == "vision"


def test_an_object_is_read_with_the_users_credentials(path: Path, bucket: str) -> None:
    assert main(["config", "import", f"s3://{bucket}/queue.toml"]) == 0
    assert find_config().url == URL


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("s3://ml-training/none.toml", 1, "aws s3 cp s3://ml-training/none.toml - | smq config import -"),
        ("s3://no-such-bucket/queue.toml", 1, "NoSuchBucket"),
        ("s3://ml-training/large.toml", 1, "has more than 16,384 bytes"),
        ("s3://ml-training", 2, "is not an object"),
        ("s3://ml-training/folder/", 2, "is not an object"),
        ("s3:///queue.toml", 2, "is not an S3 address"),
        ("none.toml", 2, "none.toml cannot be read: No such file or directory."),
        (".", 2, "Is a directory"),
    ],
)
def test_a_source_that_cannot_be_read(
    own: Path, bucket: str, source: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "import", source, "--yes"]) == code
    assert message in capsys.readouterr().err
    assert own.read_text() == OWN


@pytest.mark.attack
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "http://queue.example/prod"}, "begins with http:"),
        ({"url": "https://ann:s3cret@queue.example/prod"}, "has a user or password in it"),
        ({"url": "file:///etc/passwd"}, "is not the address of a queue"),
        ({"url": 1}, "url must be a text"),
        ({"url": ""}, "url must be a text"),
        ({"url": f"https://{'a' * 2000}.example/prod"}, "must have at most 1,024 characters"),
        ({"project": "red\x1b[31m"}, "all of them printable"),
        ({"project": "a\u202eb"}, "all of them printable"),
        ({"env": {"LD_PRELOAD": "x"}}, "'env' is not a setting to share"),
        ({"request": {"RoleArn": ROLE}}, "'request' is not a setting to share"),
        ({"aws_profile": "prod"}, "'aws_profile' is not a setting to share"),
        ({"notify_webhook": "https://hooks.example"}, "'notify_webhook' is not a setting to share"),
        ({"profiles": {"mine": {}}}, "'profiles' is not a setting to share"),
        ({"role": "training"}, "role must be the ARN of a role"),
        ({"role": f"{ROLE}\n"}, "all of them printable"),
        ({"image": "an image"}, "image must be"),
        ({"bucket": "../mine"}, "bucket must be the name of a bucket"),
        ({"instance_type": "p5"}, "instance_type must be an instance type"),
        ({"region": "everywhere"}, "region must be a region"),
        ({"account": "1"}, "account must be the 12 digits"),
        ({"bucket_owners": "datasets"}, "bucket_owners must look like"),
        ({"api_id": "A/B"}, "api_id must be"),
        ({"max_run": "soon"}, "not a time"),
        ({"max_run": 5}, "max_run must be a text"),
        ({"volume": 0}, "volume must be from 1 to"),
        ({"volume": 10**9}, "volume must be from 1 to"),
        ({"volume": True}, "volume must be a whole number"),
        ({"checkpoint": "yes"}, "checkpoint must be true or false"),
        ({"data": {"../up": "s3://datasets/x"}}, "must be a path inside the working folder"),
        ({"data": {"/etc": "s3://datasets/x"}}, "must be a path inside the working folder"),
        ({"data": {"x": "/etc"}}, "is not an S3 address"),
        ({"data": {"x": "s3://a b/c"}}, "must begin with s3:// and a bucket"),
        ({"data": {"x": {"y": "z"}}}, "data.x must be a text"),
        ({"data": "s3://datasets"}, "data must be a table"),
        (
            {"data": {f"{'a' * 80}1": "s3://datasets/red\x1b[31m", f"{'a' * 80}2": "s3://datasets/x"}},
            "all of them printable",
        ),
    ],
)
def test_a_value_that_is_wrong_is_refused(
    own: Path, tmp_path: Path, settings: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.toml"
    # tomlkit writes \e of TOML 1.1, which tomllib of Python 3.11 refuses
    file.write_text(tomlkit.dumps(settings).replace(r"\e", r"\u001b"), encoding="utf-8")
    assert main(["config", "import", "--yes", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error and str(file) in error and "s3cret" not in error
    assert len(error) < 1000
    assert own.read_text() == OWN


@pytest.mark.attack
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no settings"),
        (b"# nothing\n", "has no settings"),
        (b"url = ", "is not TOML"),
        (b"url = 'a'\nurl = 'b'\n", "is not TOML"),
        (b"\xff\xfeu\x00", "is not UTF-8 text"),
        (b"<html>", "is not TOML"),
        (b"volume = " + b"9" * 5000, "a number with too many digits"),
        (b"x = " + b"[" * (LARGEST_TEXT - 10), "is not TOML"),
        (b"#" * (LARGEST_TEXT + 1), "has more than 16,384 bytes"),
        (b".".join([b"a"] * 500) + b" = 1", "'a' is not a setting to share"),
    ],
)
def test_a_text_that_is_not_settings_is_refused(content: bytes, message: str) -> None:
    with pytest.raises((InvalidDocument, ConfigError), match=message):
        parse_settings(content, "queue.toml")


def test_an_endless_source_is_not_read_to_its_end(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "import", "/dev/zero"]) == 2
    assert "has more than 16,384 bytes" in capsys.readouterr().err
    assert own.read_text() == OWN


def test_settings_without_an_address_need_a_profile_that_has_one(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "part.toml"
    file.write_text('image = "repo/image:1"\n')
    assert main(["config", "import", str(file)]) == 2
    assert "has no url" in capsys.readouterr().err
    assert not path.exists()
    path.write_text(OWN)
    assert main(["config", "import", str(file)]) == 0
    assert find_defaults().image == "repo/image:1"


def test_an_address_on_this_machine_may_begin_with_http() -> None:
    check_settings({"url": "http://127.0.0.1:4566/prod"}, "it")


def test_only_changes_are_listed() -> None:
    changes = setting_changes(
        {"url": URL, "checkpoint": False, "data": {"a": "s3://one/a"}},
        {"url": URL, "checkpoint": True, "data": {"a": "s3://two/a", "b": "s3://two/b"}},
    )
    assert [(one.name, one.old, one.new) for one in changes] == [
        ("checkpoint", "false", "true"),
        ("data.a", "s3://one/a", "s3://two/a"),
        ("data.b", None, "s3://two/b"),
    ]


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse_settings(b"\xef\xbb\xbfproject = 'vision'\r\n", "it") == {"project": "vision"}


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#" * 10**6)))
    assert main(["config", "import", "-"]) == 2
    assert "standard input has more than" in capsys.readouterr().err
