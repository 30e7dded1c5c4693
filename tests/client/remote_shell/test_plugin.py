"""AWS's plugin: how it is found, and run as the AWS CLI runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.workflows.doctor.examination import check_shell
from sagemaker_queue.workflows.doctor.findings import OK, SKIPPED
from sagemaker_queue.workflows.remote_shell.plugin import INSTALL, Plugin, find_plugin

OPENED = {"SessionId": "ann-1", "TokenValue": "secret", "StreamUrl": "wss://x", "ResponseMetadata": {}}
REQUEST = {"Target": "sagemaker-training-job:a_algo-1"}


def program(folder: Path, text: str, name: str = "session-manager-plugin") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "hidden"), [("1.2.764.0", True), ("1.2.497.0", False), ("1.2.30", False), ("", False)]
)
def test_the_token_is_hidden_where_the_plugin_can_take_it_so(version: str, hidden: bool) -> None:
    arguments, environment = Plugin("/bin/plugin", version).command(
        OPENED, REQUEST, region="eu-west-1", profile="research", endpoint="https://ssm.eu-west-1.amazonaws.com"
    )
    opened = {"SessionId": "ann-1", "TokenValue": "secret", "StreamUrl": "wss://x"}
    assert ("secret" in " ".join(arguments)) != hidden
    assert json.loads(environment["AWS_SSM_START_SESSION_RESPONSE"] if hidden else arguments[1]) == opened
    if hidden:
        assert arguments[1] == "AWS_SSM_START_SESSION_RESPONSE"
    assert arguments[2:5] == ["eu-west-1", "StartSession", "research"]
    assert json.loads(arguments[5]) == REQUEST and arguments[6] == "https://ssm.eu-west-1.amazonaws.com"


def test_it_is_found_in_path_or_where_the_variable_says(tmp_path: Path) -> None:
    found = program(tmp_path, "echo 1.2.764.0")
    assert find_plugin({"PATH": str(tmp_path)}) == Plugin(str(found), "1.2.764.0")
    other = program(tmp_path, "echo who knows", "other")
    assert find_plugin({"PATH": "/nowhere", "SAGEMAKER_QUEUE_SESSION_PLUGIN": str(other)}) == Plugin(str(other), "")


def test_who_lacks_it_is_told_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="session-manager-plugin is not on this machine") as error:
        find_plugin({"PATH": str(tmp_path)})
    assert INSTALL in str(error.value)
    with pytest.raises(ConfigError, match="names /no/where, which is no program"):
        find_plugin({"PATH": str(tmp_path), "SAGEMAKER_QUEUE_SESSION_PLUGIN": "/no/where"})


def test_the_doctor_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = check_shell()
    assert missing.status == SKIPPED and "Only smq shell needs it" in missing.message
    program(tmp_path, "echo 1.2.764.0")
    here = check_shell()
    assert (here.status, here.message) == (OK, "session-manager-plugin 1.2.764.0 is here, for smq shell.")
