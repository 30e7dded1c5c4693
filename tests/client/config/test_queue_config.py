"""Where the client looks for the queue, and what it says when it finds none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagemaker_queue import ConfigError, QueueClient, QueueConfig, find_config
from sagemaker_queue.cli.entry import main
from sagemaker_queue.queue.config.queue_config import find_defaults

PROFILES = """
default = "home"

[profiles.home]
url = "https://abc.execute-api.eu-west-1.amazonaws.com/prod/"

[profiles.vpc]
url = "https://vpce-1.execute-api.us-east-1.vpce.amazonaws.com/prod"
api_id = "a1b2c3"
region = "us-east-1"
aws_profile = "research"
"""
HOME = QueueConfig("https://abc.execute-api.eu-west-1.amazonaws.com/prod")
VPC = QueueConfig("https://vpce-1.execute-api.us-east-1.vpce.amazonaws.com/prod", "a1b2c3", "us-east-1", "research")


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    path = tmp_path / ".config/sagemaker-queue/config.toml"  # HOME is tmp_path
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES)
    return path


@pytest.fixture
def profile_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "other.toml"
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(path))
    return path


class TestPrecedence:
    def test_an_address_beats_everything(self, profiles: Path) -> None:
        environ = {"SAGEMAKER_QUEUE_URL": "https://env/prod", "SAGEMAKER_QUEUE_PROFILE": "vpc"}
        assert find_config(url="https://arg/prod", environ=environ) == QueueConfig("https://arg/prod")

    def test_a_profile_that_is_asked_for_beats_the_environment(self, profiles: Path) -> None:
        environ = {"SAGEMAKER_QUEUE_URL": "https://env/prod", "SAGEMAKER_QUEUE_API_ID": "env-id"}
        assert find_config(profile="vpc", environ=environ) == VPC
        assert find_config(profile="home", environ=environ) == HOME

    def test_the_environments_address_beats_its_profile(self, profiles: Path) -> None:
        environ = {
            "SAGEMAKER_QUEUE_URL": "https://env/prod",
            "SAGEMAKER_QUEUE_API_ID": "env-id",
            "SAGEMAKER_QUEUE_PROFILE": "vpc",
        }
        assert find_config(environ=environ) == QueueConfig("https://env/prod", "env-id")

    def test_the_environments_profile_beats_the_default(self, profiles: Path) -> None:
        assert find_config(environ={"SAGEMAKER_QUEUE_PROFILE": "vpc"}) == VPC

    def test_the_default_is_last(self, profiles: Path) -> None:
        assert find_config(environ={"SAGEMAKER_QUEUE_PROFILE": "", "SAGEMAKER_QUEUE_URL": ""}) == HOME

    def test_the_files_place_can_be_given(self, profiles: Path, profile_file: Path) -> None:
        profile_file.write_text('[profiles.x]\nurl = "https://x/prod"\n')
        assert find_config(profile="x") == QueueConfig("https://x/prod")

    def test_an_argument_replaces_one_setting_of_a_profile(self, profiles: Path) -> None:
        found = find_config(profile="vpc", api_id="other", region="us-west-1")
        assert (found.api_id, found.region, found.aws_profile) == ("other", "us-west-1", "research")

    def test_the_environments_api_id_belongs_to_the_environments_address(self, profile_file: Path) -> None:
        profile_file.write_text('[profiles.x]\nrole = "arn"\n[profiles.y]\nurl = "https://y/prod"\n')
        environ = {
            "SAGEMAKER_QUEUE_CONFIG": str(profile_file),
            "SAGEMAKER_QUEUE_URL": "https://env/prod",
            "SAGEMAKER_QUEUE_API_ID": "env-id",
        }
        assert find_config(profile="x", environ=environ) == QueueConfig("https://env/prod", "env-id")
        assert find_config(profile="x", api_id="own", environ=environ) == QueueConfig("https://env/prod", "own")
        assert find_config(profile="y", environ=environ) == QueueConfig("https://y/prod")

    def test_a_configuration_keeps_the_profile_of_its_defaults(
        self, profile_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile_file.write_text(
            'default = "a"\n[profiles.a]\nrole = "role-a"\n[profiles.b]\nurl = "http://localhost/b"\nrole = "role-b"\n'
        )

        def role(config: QueueConfig | None, **named: str) -> str | None:
            return find_defaults(*QueueClient(config, region="eu-west-1", **named).named).role  # type: ignore[arg-type]

        assert role(find_config(profile="b")) == role(None, profile="b") == "role-b"
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://localhost/env")
        assert role(find_config(profile="b")) == role(None, profile="b") == "role-b"
        assert role(find_config()) == role(None) == "role-a"
        assert role(QueueConfig("http://localhost/c")) is None
        assert role(find_config(url="http://localhost/c")) is role(None, url="http://localhost/c") is None
        assert find_defaults(*QueueClient(find_config()).impatient(1).named).role == "role-a"

    def test_a_file_cannot_name_the_profile_of_its_defaults(self, profile_file: Path) -> None:
        profile_file.write_text('default = "x"\n[profiles.x]\nurl = "https://x/prod"\nprofile = "y"\n')
        with pytest.raises(ConfigError, match="unknown setting 'profile'"):
            find_config()

    def test_address_and_profile_together_are_a_contradiction(self) -> None:
        with pytest.raises(ConfigError, match="not both"):
            find_config(url="https://x/prod", profile="vpc")


class TestComplaints:
    def test_nothing_is_configured(self) -> None:
        with pytest.raises(ConfigError, match=r"smq config import FILE.*local_cloud exec"):
            find_config()

    def test_a_file_that_was_named_must_exist(self, profile_file: Path) -> None:
        with pytest.raises(ConfigError, match=r"other\.toml does not exist"):
            find_config()

    def test_an_unknown_profile(self, profiles: Path) -> None:
        with pytest.raises(ConfigError, match="no profile 'work' in .*; its profiles: home, vpc"):
            find_config(profile="work")

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("default = ", "not valid TOML"),
            ("profiles = 1", "profiles must be tables"),
            ('default = "x"', "no profile 'x' in .*; its profiles: none"),
            ("default = 7", "no profile 7 in"),
            ('[default]\nurl = "https://y"', "default must be the name of a profile"),
            ('[[default]]\nurl = "https://y"', "default must be the name of a profile"),
            (f"x = {'9' * 5000}", "a number with too many digits"),
            ('default = "x"\n[profiles]\nx = 1', "profile 'x' must be a table with: url, api_id"),
            ('default = "x"\n[profiles.x]\napi_id = "y"', "profile 'x' has no url"),
            (
                'default = "x"\n[profiles.x]\nurl = "https://y"\napiid = "z"',
                "unknown setting 'apiid'; known settings: url",
            ),
            ('default = "x"\n[profiles.x]\nurl = 5', "url must be a string"),
            ('default = "x"\n[profiles.x]\nurl = "ftp://y"', "profile 'x': 'ftp://y' is not the address"),
        ],
    )
    def test_a_file_that_is_wrong(self, profile_file: Path, text: str, complaint: str) -> None:
        profile_file.write_text(text)
        with pytest.raises(ConfigError, match=complaint) as error:
            find_config()
        assert str(profile_file) in str(error.value)

    def test_a_default_that_is_a_table_is_refused_wherever_it_is_read(
        self, profile_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        profile_file.write_text('[default]\nurl = "https://y"\n')
        assert main(["config", "list"]) == 2
        assert "default must be the name of a profile" in capsys.readouterr().err
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "https://env/prod")
        with pytest.raises(ConfigError, match="default must be the name of a profile"):
            find_defaults()

    @pytest.mark.parametrize("text", [b"\xff", None])
    def test_a_file_that_cannot_be_read(self, profile_file: Path, text: bytes | None) -> None:
        if text is None:
            profile_file.mkdir()
        else:
            profile_file.write_bytes(text)
        with pytest.raises(ConfigError, match="cannot be read"):
            find_config()

    @pytest.mark.parametrize(
        "url",
        [
            "abc",
            "ftp://x/prod",
            "http://",
            "https:///prod",
            "https://x:port/",
            "https://x/prod?a=b",
            "http://[x",
            "https://abc..execute-api.eu-west-1.amazonaws.com/prod",
            f"https://{'a' * 64}.example/prod",
        ],
    )
    def test_an_address_that_is_none(self, url: str) -> None:
        with pytest.raises(ConfigError, match="is not the address of a queue"):
            find_config(url=url)

    def test_an_unknown_aws_profile(self) -> None:
        with pytest.raises(ConfigError, match="nobody"):
            QueueClient(QueueConfig("https://x/prod", aws_profile="nobody"))


@pytest.mark.attack
class TestAnAddressInClear:
    """Whoever can change a setting must not get a signed request, a session token or a password in clear."""

    ADDRESSES = (
        "http://a1b2c3.execute-api.eu-west-1.amazonaws.com/prod",
        "HTTP://example.com/prod",
        "http://127.0.0.1.example.com/prod",
        "http://localhost.example.com/prod",
        "http://0.0.0.0/prod",
        "http://[::ffff:8.8.8.8]/prod",
        "http://2130706433/prod",
        "https://ann:s3cret@example.com/prod",
        "https://example.com@evil.test/prod",
        "http://127.0.0.1@evil.test/prod",
        "https://@example.com/prod",
        "https://evil.test\\@example.com/prod",
        "https://exa\tmple.com/prod",
    )

    @pytest.mark.parametrize("url", ADDRESSES)
    def test_it_is_refused_wherever_it_comes_from(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        profile_file = tmp_path / "config.toml"
        monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(profile_file))
        refused = []
        for name in (
            lambda: QueueConfig(url),
            lambda: QueueClient(url=url),
            lambda: find_config(environ={"SAGEMAKER_QUEUE_URL": url}),
        ):
            with pytest.raises(ConfigError) as caught:
                name()
            refused.append(str(caught.value))
        assert main(["config", "set", "url", url]) == 2
        assert not profile_file.exists()
        assert main(["--url", url, "ls"]) == 2
        assert not any("s3cret" in text for text in [*refused, capfd.readouterr().err])

    @pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:80", "127.9.9.9"])
    def test_this_machine_may_be_asked_in_clear(self, host: str) -> None:
        assert QueueConfig(f"http://{host}/prod").url == f"http://{host}/prod"
