"""Which keys are the user's, and in whose name a request is answered: that of the key that signed it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

from sagemaker_queue.errors import NotAuthenticated
from sagemaker_queue.integrations.proxy import gateway
from sagemaker_queue.integrations.proxy.keys import CredentialsByKey
from sagemaker_queue.queue.config.queue_config import QueueConfig
from tests.client.integrations.boto.hooked_clients import OWNER, REQUEST
from tests.client.integrations.proxy.proxied import Proxied, said

if TYPE_CHECKING:
    pass


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    """~/.aws, of a home that is the test's."""
    (tmp_path / ".aws/cli/cache").mkdir(parents=True)
    return tmp_path / ".aws"


def kept_by_the_cli(aws: Path, name: str, key: str) -> None:
    kept = {"AccessKeyId": key, "SecretAccessKey": f"secret of {key}", "SessionToken": f"token of {key}"}
    (aws / f"cli/cache/{name}.json").write_text(json.dumps({"Credentials": {**kept, "Expiration": "2030-01-01"}}))


class Renewed:
    """A session whose credentials are another key each time that they are asked for."""

    def __init__(self, method: str = "assume-role") -> None:
        self.count = 0
        self.method = method

    def fetch(self) -> dict[str, Any]:
        self.count += 1
        soon = datetime.now(timezone.utc) + timedelta(seconds=1)  # to be renewed before it is used again
        return {
            "access_key": f"ASIA{self.count}",
            "secret_key": f"secret{self.count}",
            "token": f"token{self.count}",
            "expiry_time": soon.isoformat(),
        }

    def session(self) -> boto3.Session:
        session: Any = botocore.session.get_session()
        session._credentials = RefreshableCredentials.create_from_metadata(self.fetch(), self.fetch, self.method)
        return boto3.Session(botocore_session=session)


def secret_of(keys: CredentialsByKey, access_key: str) -> tuple[str | None, str | None] | None:
    found = keys.find(access_key)
    return (found.secret_key, found.token) if found else None


class TestWhichAreKnown:
    def test_the_proxys_own(self) -> None:
        assert secret_of(CredentialsByKey(boto3.Session), "AKIDEXAMPLE") == ("not-a-secret", None)

    def test_those_that_it_had_before(self) -> None:
        """A program that got its key an hour ago has the older one."""
        role = Renewed()
        keys = CredentialsByKey(role.session)
        older, newer = keys.proxy_credentials(), keys.proxy_credentials()
        assert older is not None and newer is not None and older != newer
        assert [keys.find(str(one.access_key)) for one in (older, newer)] == [older, newer]
        assert keys.find("ASIA99") is None

    @pytest.mark.parametrize(("method", "known"), [("iam-role", True), ("container-role", True), ("sso", False)])
    def test_what_the_instance_has_now(self, method: str, known: bool) -> None:
        """A program that has just started has a newer one. Nothing that could ask somebody for a code is begun."""

        class Lasting(Renewed):
            def fetch(self) -> dict[str, Any]:
                later = datetime.now(timezone.utc) + timedelta(hours=6)
                return {**super().fetch(), "expiry_time": later.isoformat()}

        role = Lasting(method)
        keys = CredentialsByKey(role.session)
        assert (keys.find("ASIA2") is not None) is known
        assert role.count == (2 if known else 1)

    def test_those_in_the_users_files(self, aws: Path) -> None:
        keys = CredentialsByKey(boto3.Session)
        assert keys.find("AKIDOTHER") is None
        (aws / "credentials").write_text(
            "[other]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = s\naws_session_token = t\n"
            "[without]\naws_access_key_id = AKIDHALF\n"
        )
        assert secret_of(keys, "AKIDOTHER") == ("s", "t")
        assert keys.find("AKIDHALF") is None

    def test_those_that_the_aws_cli_keeps(self, aws: Path) -> None:
        (aws / "cli/cache/a.json").write_text("being writ")
        (aws / "cli/cache/b.json").write_text("[]")
        (aws / "cli/cache/c.json").write_text('{"accessToken": "no key at all"}')
        (aws / "cli/cache/d.json").mkdir()
        keys = CredentialsByKey(boto3.Session)
        assert keys.find("ASIAROLE") is None
        kept_by_the_cli(aws, "e", "ASIAROLE")
        assert secret_of(keys, "ASIAROLE") == ("secret of ASIAROLE", "token of ASIAROLE")

    @pytest.mark.parametrize("text", ["[broken", "aws_access_key_id = x"])
    def test_files_that_cannot_be_read(self, aws: Path, text: str) -> None:
        keys = CredentialsByKey(boto3.Session)
        (aws / "credentials").write_text(text)
        assert keys.find("AKIDOTHER") is None
        assert keys.find("AKIDEXAMPLE") is not None

    @pytest.mark.usefixtures("refused_role")
    def test_a_role_that_aws_refuses(self, aws: Path) -> None:
        """The proxy does not start; a proxy that has started answers programs with other keys of the user."""
        with pytest.raises(NotAuthenticated, match="sts:AssumeRole. Log in to AWS again"):
            gateway.proxy(QueueConfig("http://127.0.0.1:9", region="eu-west-1"), 0)
        kept_by_the_cli(aws, "role", "ASIAROLE")
        assert secret_of(CredentialsByKey(boto3.Session), "ASIAROLE") == ("secret of ASIAROLE", "token of ASIAROLE")

    def test_none_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(NotAuthenticated, match="No AWS credentials were found"):
            gateway.proxy(QueueConfig("http://127.0.0.1:9", region="eu-west-1"), 0)


class TestInWhoseName:
    @pytest.fixture
    def by_the_cli(self, aws: Path) -> dict[str, Any]:
        kept_by_the_cli(aws, "role", "ASIAROLE")
        return {"key": "ASIAROLE", "secret": "secret of ASIAROLE", "token": "token of ASIAROLE"}

    def test_the_queue_is_asked_with_the_key_that_signed(self, proxied: Proxied, by_the_cli: dict[str, Any]) -> None:
        proxied.queue.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        sent = proxied.signed("CreateTrainingJob", json.dumps(REQUEST).encode(), **by_the_cli)
        assert proxied.send(sent).status_code == 200
        asked = proxied.queue.received[0].headers
        assert "Credential=ASIAROLE/" in asked["Authorization"]
        assert asked["X-Amz-Security-Token"] == "token of ASIAROLE"

    def test_and_so_is_sagemaker(self, proxied: Proxied, by_the_cli: dict[str, Any]) -> None:
        proxied.sagemaker.answers(200, {"Models": []})
        assert proxied.send(proxied.signed("ListModels", **by_the_cli)).status_code == 200
        passed_on = proxied.passed_on().headers
        assert "Credential=ASIAROLE/" in passed_on["Authorization"]
        assert passed_on.get_all("X-Amz-Security-Token") == ["token of ASIAROLE"]

    @pytest.mark.attack
    def test_a_token_alone_is_not_enough(self, proxied: Proxied, by_the_cli: dict[str, Any]) -> None:
        guessed = {**by_the_cli, "secret": "guessed"}
        assert said(proxied.send(proxied.signed(**guessed))) == (400, "InvalidSignatureException")
        without = {**by_the_cli, "token": ""}
        assert said(proxied.send(proxied.signed(**without))) == (400, "UnrecognizedClientException")
        assert not proxied.sagemaker.received

    def test_what_aws_says_of_an_old_key_is_said(self, proxied: Proxied, by_the_cli: dict[str, Any]) -> None:
        expired = {
            "__type": "ExpiredTokenException",
            "message": "The security token included in the request is expired",
        }
        proxied.sagemaker.answers(403, expired)
        assert proxied.send(proxied.signed("ListModels", **by_the_cli)).json() == expired


class TestWhereSageMakerIs:
    def test_the_proxy_is_not_its_own_sagemaker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever has set the variable for all programs, or in ~/.aws/config, has set it for the proxy, too."""
        with gateway.proxy(QueueConfig("http://127.0.0.1:9", region="eu-west-1"), 0) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", f"http://localhost:{server.server_address[1]}")
            answer: Any = server.answer
            client = answer.__self__._client("eu-west-1")
            assert client.meta.endpoint_url == "https://api.sagemaker.eu-west-1.amazonaws.com"

    def test_each_region_has_its_own(self) -> None:
        with gateway.proxy(QueueConfig("http://127.0.0.1:9", region="eu-west-1"), 0) as server:
            answer: Any = server.answer
            client = answer.__self__._client("us-west-2")
            assert client.meta.endpoint_url == "https://api.sagemaker.us-west-2.amazonaws.com"
