"""`smq config` and the settings of jobs in profiles: what is written, what is refused, and that nothing gets lost."""

import json
from pathlib import Path

import pytest
import tomlkit

from sagemaker_queue.cli import main
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.profiles import ProfileFile
from sagemaker_queue.queue.config.queue_config import find_config, find_defaults
from sagemaker_queue.queue.data_links import S3Address

URL = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"
WRITTEN_BY_HAND = f"""\
# Our queues.
default = "research"   # not production

[profiles.research]
url = "{URL}"
region = "us-east-1"      # where the GPUs are
role = "arn:aws:iam::123456789012:role/training"

[profiles.research.data]
"data/imagenet" = "s3://datasets/imagenet"  # 150 GB

[profiles.research.request.VpcConfig]
Subnets = ["subnet-1"]
SecurityGroupIds = ["sg-1"]

# The careful one.
[profiles.prod]
url = "{URL}"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".config" / "sagemaker-queue" / "config.toml"


@pytest.fixture
def by_hand(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(WRITTEN_BY_HAND)
    return path


def content(path: Path) -> dict[str, object]:
    return tomlkit.parse(path.read_text())


def test_defaults_of_a_queue_that_the_environment_names(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:8000/prod")
    assert main(["config", "set", "instance_type", "ml.p5.48xlarge"]) == 0
    assert capsys.readouterr().err == ""
    assert find_config().url == "http://127.0.0.1:8000/prod"
    assert find_config(profile="default").url == "http://127.0.0.1:8000/prod"
    assert find_defaults().instance_type == "ml.p5.48xlarge"
    assert main(["config", "list"]) == 0
    assert "default" in capsys.readouterr().out
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    with pytest.raises(ConfigError, match="has no url; set it first"):
        find_config()
    assert main(["config", "set", "url", URL]) == 0
    assert (find_config().url, find_defaults().instance_type) == (URL, "ml.p5.48xlarge")
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:8000/prod")
    assert find_defaults().instance_type is None, "the profile is for another queue"


def test_a_first_profile_is_made_and_used(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert main(["config", "set", "role", "arn:x"]) == 2  # the url comes first
    assert "has no url" in capsys.readouterr().err
    assert not path.exists()
    assert main(["-c", "research", "config", "set", "url", URL]) == 0
    assert main(["config", "set", "data.data/images", "s3://datasets/images"]) == 0
    assert main(["config", "set", "env.NCCL_DEBUG", "INFO"]) == 0
    assert main(["config", "set", "volume", "100"]) == 0
    assert main(["config", "set", "checkpoint", "true"]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_config().url == URL
    defaults = find_defaults()
    assert (defaults.data, defaults.env) == ({"data/images": S3Address("datasets", "images")}, {"NCCL_DEBUG": "INFO"})
    assert (defaults.volume, defaults.checkpoint) == (100, True)


def test_what_people_wrote_stays(by_hand: Path) -> None:
    assert main(["config", "set", "image", "repo/image:1"]) == 0
    assert main(["-c", "prod", "config", "set", "project", "ops"]) == 0
    assert main(["config", "unset", "role"]) == 0
    assert main(["config", "use", "prod"]) == 0
    expected = WRITTEN_BY_HAND.replace('default = "research"', 'default = "prod"')
    expected = expected.replace('role = "arn:aws:iam::123456789012:role/training"\n', 'image = "repo/image:1"\n')
    assert by_hand.read_text().split() == f'{expected}project = "ops"\n'.split()


def test_a_link_to_the_file_stays_a_link(by_hand: Path, tmp_path: Path) -> None:
    dotfile = tmp_path / "dotfiles.toml"
    by_hand.rename(dotfile)
    by_hand.symlink_to(dotfile)
    assert main(["config", "use", "prod"]) == 0
    assert by_hand.is_symlink() and content(dotfile)["default"] == "prod"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "password", "x"], "There is no setting 'password'; there are url, api_id, region"),
        (["set", "request", "x"], "There is no setting 'request'"),
        (["set", "url", "not-an-address"], "is not the address of a queue"),
        (["set", "volume", "large"], "volume must be a whole number"),
        (["set", "max_run", "soon"], "not a time: it must look like"),
        (["set", "checkpoint", "maybe"], "checkpoint must be true or false"),
        (["set", "data./etc", "s3://b/x"], "must be a path inside the working folder"),
        (["set", "data.data/x", "/tmp"], "not an S3 address"),
        (["unset", "url"], "has no url"),
        (["use", "nobody"], "There is no profile 'nobody'"),
    ],
)
def test_what_would_not_work_is_not_written(
    by_hand: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["config", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert by_hand.read_text() == WRITTEN_BY_HAND


def test_a_broken_file_is_left_alone(by_hand: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_hand.write_text("[profiles")
    for arguments in (["config", "use", "prod"], ["config", "list"], ["config", "show"]):
        assert main(arguments) == 2
        assert str(by_hand) in capsys.readouterr().err
    assert by_hand.read_text() == "[profiles"


def test_a_failed_write_leaves_no_file_behind(path: Path) -> None:
    file = ProfileFile(path)
    path.mkdir(parents=True)  # a file cannot replace a folder
    with pytest.raises(ConfigError, match="cannot be written"):
        file.set("research", "url", URL)
    assert list(path.parent.iterdir()) == [path]


def test_what_holds_is_shown(
    by_hand: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", "show"]) == 0
    text = capsys.readouterr().out
    assert "data.data/imagenet  s3://datasets/imagenet" in text and "role/training" in text
    monkeypatch.setenv("SAGEMAKER_QUEUE_IMAGE", "from/environment:1")
    monkeypatch.setenv("SAGEMAKER_QUEUE_INSTANCE_TYPE", "ml.m5.large")
    assert main(["-c", "prod", "config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["url"], shown["image"], shown["role"]) == (URL, "from/environment:1", None)
    assert shown["instance_type"] == "ml.m5.large"
    assert main(["config", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["default"]) for one in listed] == [("research", True), ("prod", False)]


def test_who_sets_something_that_is_not_used_is_told(
    by_hand: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", "set", "volume", "50"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:1")
    assert main(["config", "set", "volume", "60"]) == 0
    assert "SAGEMAKER_QUEUE_URL is set" in capsys.readouterr().err


def test_a_queue_that_is_given_by_its_address_has_no_profile(by_hand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_defaults().role
    assert find_defaults(url="http://127.0.0.1:1").role is None
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:1")
    assert find_defaults().role is None
    assert find_defaults(profile="research").role
    assert find_defaults(profile="research").request["VpcConfig"]["Subnets"] == ["subnet-1"]


@pytest.mark.parametrize(
    "line",
    ["role = 1", "volume = true", "volume = '5'", "checkpoint = 1", "data = 'x'", "env = {A = 1}", "colour = 'red'"],
)
def test_settings_of_the_wrong_kind_are_refused(by_hand: Path, line: str) -> None:
    by_hand.write_text(f'[profiles.one]\nurl = "{URL}"\n{line}\n')
    with pytest.raises(ConfigError, match="profile 'one'"):
        find_defaults(profile="one")
