"""AWS clients in the regions and accounts of attempts, and the setting of profiles for accounts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api_contract.models import Attempt
from sagemaker_queue import QueueClient
from sagemaker_queue.cli import main
from sagemaker_queue.errors import ConfigError, NoAccountProfile
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.queue.config.queue_config import QueueConfig, find_config
from sagemaker_queue.workflows.remote_shell.plugin import Plugin
from sagemaker_queue.workflows.remote_shell.session import SessionOpener, SessionTarget
from tests.client.conftest import ScriptedServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

LAB = "222222222222"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A server in place of AWS, and a profile ``lab`` with a key of its own."""
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AKIDLAB\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def signed_for(server: ScriptedServer) -> list[tuple[str, str]]:
    """Return the access key and the region of each request."""
    scopes = [
        re.search(r"Credential=(\w+)/\d+/([\w-]+)/", request.headers["Authorization"]) for request in server.received
    ]
    return [(scope[1], scope[2]) for scope in scopes if scope]


def with_profile(server: ScriptedServer) -> QueueClient:
    return QueueClient(QueueConfig(server.url, region="eu-west-1", account_profiles=f"{LAB}=lab"))


@pytest.mark.parametrize(
    ("place", "key", "region"),
    [
        ({}, "AKIDEXAMPLE", "eu-west-1"),
        ({"region": "us-east-2"}, "AKIDEXAMPLE", "us-east-2"),
        ({"account": LAB}, "AKIDLAB", "eu-west-1"),
        ({"region": "us-east-2", "account": LAB}, "AKIDLAB", "us-east-2"),
    ],
)
def test_a_client_is_of_the_region_and_account_that_are_named(
    aws: ScriptedServer, server: ScriptedServer, place: dict[str, str], key: str, region: str
) -> None:
    queue = with_profile(server)
    aws.always_answers(200, {"logStreams": []})
    queue.aws_client("logs", **place).describe_log_streams(logGroupName="g")
    clients = AttemptClients(queue, "logs")
    attempt = Attempt(1, region=place.get("region"), account=place.get("account"))
    assert clients.of(attempt, "job1") is clients.of(attempt, "job2")
    clients.of(attempt, "job1").describe_log_streams(logGroupName="g")
    assert signed_for(aws) == [(key, region)] * 2


def test_without_a_profile_the_error_says_how_to_set_one(queue: QueueClient) -> None:
    with pytest.raises(NoAccountProfile, match=f"^job1 is in account {LAB}, and no AWS profile .* account_profiles"):
        queue.aws_client("logs", account=LAB, job="job1")
    with pytest.raises(NoAccountProfile, match=f"^The client is to be one of account {LAB}, and no AWS profile"):
        queue.aws_client("logs", "us-east-2", LAB)


def test_a_profile_that_does_not_exist_is_named(server: ScriptedServer) -> None:
    with pytest.raises(NoAccountProfile, match=f"AWS profile 'lab' of account {LAB} cannot be used"):
        with_profile(server).aws_client("logs", account=LAB)


@pytest.mark.parametrize("text", ["lab", "222=lab", f"{LAB}=", f"{LAB}=lab other"])
def test_a_setting_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="account_profiles must look like"):
        QueueConfig("https://q.example/prod", account_profiles=text)


def test_the_variable_is_used_with_an_address_and_in_place_of_a_profile_s_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("")
    for setting in (["url", "https://q.example/prod"], ["account_profiles", f"{LAB}=lab, 333333333333=shared"]):
        assert main(["config", "set", "--profile", "p", *setting]) == 0, capsys.readouterr().err
    assert find_config(profile="p").profile_by_account == {LAB: "lab", "333333333333": "shared"}
    assert find_config(url="https://q.example/prod").profile_by_account == {}
    monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", f"{LAB}=mine")
    assert find_config(profile="p").profile_by_account == {LAB: "mine"}
    assert find_config(url="https://q.example/prod").profile_by_account == {LAB: "mine"}
    monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", "mine")
    with pytest.raises(ConfigError, match="SAGEMAKER_QUEUE_ACCOUNT_PROFILES: account_profiles must look like"):
        find_config(profile="p")


def test_a_shell_is_opened_in_the_region_and_account_of_the_attempt(
    aws: ScriptedServer, server: ScriptedServer, tmp_path: Path
) -> None:
    aws.always_answers(200, {"SessionId": "ann-1", "TokenValue": "token", "StreamUrl": "wss://x"})
    plugin = tmp_path / "plugin"
    plugin.write_text(f'#!/bin/sh\necho "$2 $4 $6" > {tmp_path}/called\n')
    plugin.chmod(0o755)
    attempt = Attempt(1, training_job_name="job1-qstamp-1", region="us-east-2", account=LAB)
    opener = SessionOpener(with_profile(server), Plugin(str(plugin), "1.2.764.0"))
    opener.open(SessionTarget("job1", attempt, 1), None).run(lambda: True)
    assert (tmp_path / "called").read_text().split() == ["us-east-2", "lab", aws.url]
    assert signed_for(aws) == [("AKIDLAB", "us-east-2")]


def test_a_shell_without_a_profile_is_refused_before_any_call(aws: ScriptedServer, queue: QueueClient) -> None:
    attempt = Attempt(1, training_job_name="job1-qstamp-1", account=LAB)
    with pytest.raises(NoAccountProfile, match=f"job1 is in account {LAB}"):
        SessionOpener(queue, Plugin("/bin/true", "")).open(SessionTarget("job1", attempt, 1), None)
    assert not aws.received
