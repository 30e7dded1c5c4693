"""The real API on the local cloud: bad input, unsigned requests, permissions, and the client's commands."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from local_cloud.commands.up_and_exec import without_account
from tests.system.conftest import FOREVER, System, line_of, send, stored_rows
from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent.parent


def rows(system: System) -> list[Any]:
    """All that the tables hold, but for what cycles and ticks move by themselves, and counts of submissions."""
    steady = [row for row in stored_rows(system.cloud) if line_of(row) not in UNSTEADY]
    return sorted(json.dumps(row, sort_keys=True) for row in steady)


UNSTEADY = ("control", "owners", "outlook")


def changed(**changes: Any) -> Any:
    return lambda request: json.dumps({name: value for name, value in {**request, **changes}.items() if value != "-"})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        pytest.param(lambda _: "this is no JSON", 400, None, id="not JSON"),
        pytest.param(lambda _: "", 400, None, id="empty"),
        pytest.param(lambda _: "[1, 2]", 400, None, id="no object"),
        pytest.param(changed(Priority=5), 400, "Priority", id="an unknown field"),
        pytest.param(changed(OutputDataConfig="-"), 400, "OutputDataConfig", id="a missing field"),
        pytest.param(changed(TrainingJobName="a" * 64), 400, "TrainingJobName", id="a name of 64 characters"),
        pytest.param(
            changed(Tags=[{"Key": "priority", "Value": "soon"}]),
            400,
            "Tags[0].Value",
            id="a priority that is no integer",
        ),
        pytest.param(
            changed(RoleArn="arn:aws:iam::000000000000:role/other"), 403, "RoleArn", id="a role that is not allowed"
        ),
        pytest.param(changed(Environment={"A": "x" * 700_000}), 413, None, id="a body over the limit"),
    ],
)
def test_bad_input_gets_a_sentence_and_changes_nothing(
    system: System, body: Any, status: int, field: str | None
) -> None:
    before = rows(system)
    answer = send(system, "POST", "/add-job", body(system.request("bad-input", "pass")))
    assert answer.status_code == status
    error = answer.json()["errors"][0]
    assert error["message"].endswith(".")
    assert error["field"] == field
    assert rows(system) == before


def test_an_unsigned_request_is_refused(system: System) -> None:
    before = rows(system)
    body = json.dumps(system.request("unsigned", "pass"))
    answer = send(system, "POST", "/add-job", body, sign=False)
    assert answer.status_code == 403
    assert answer.json()["message"]
    for method, path in [("GET", "/jobs"), ("GET", "/queue"), ("DELETE", "/jobs/x")]:
        assert send(system, method, path, sign=False).status_code == 403
    assert rows(system) == before


def test_a_caller_needs_permission_and_owns_what_it_submits(system: System) -> None:
    """Two people: only the one who may invoke the API is answered, and only the owner cancels."""
    iam = system.cloud.client("iam")
    sessions = {}
    for name in ("ada", "eve", "mallory"):
        iam.create_user(UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        sessions[name] = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
        if name != "mallory":
            policy = {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}],
            }
            iam.put_user_policy(UserName=name, PolicyName="queue", PolicyDocument=json.dumps(policy))
    body = json.dumps(system.request("adas", FOREVER))
    assert send(system, "POST", "/add-job", body, session=sessions["mallory"]).status_code == 403
    assert send(system, "POST", "/add-job", body, session=sessions["ada"]).status_code == 202
    assert str(system.job("adas").owner).endswith(":user/ada")
    refused = send(system, "DELETE", "/jobs/adas", session=sessions["eve"])
    assert refused.status_code == 403
    assert "only its owner" in refused.json()["errors"][0]["message"]
    assert send(system, "DELETE", "/jobs/adas", session=sessions["ada"]).status_code == 202
    system.wait_state("adas", "stopped")


def smq(system: System, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **without_account(os.environ),
        **system.cloud.environment(),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
    }
    command = [sys.executable, "-m", "sagemaker_queue", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.thorough
def test_smq_shows_and_cancels(system: System) -> None:
    system.run("one", priority=2)
    system.run("two", priority=1)
    system.submit("three", FOREVER, priority=1)
    system.gives_reason("three", "WAITING_FOR_CAPACITY")
    header = ["Job", "Name", "State", "Priority"]
    expected = [header, ["one", "running", "2"], ["two", "running", "1"], ["three", "pending", "1"]]

    def table() -> list[list[str]]:
        heading, _, *lines = smq(system, "ls").stdout.splitlines()
        return [line.split() for line in (heading, *lines)]

    def listed() -> list[str]:
        return [job["job"] for job in json.loads(smq(system, "ls", "--json").stdout)]

    system.settles(table, expected)
    system.settles(listed, ["one", "two", "three"])
    shown = smq(system, "show", "three")
    assert shown.returncode == 0
    assert "2 are used by" in shown.stdout
    cancelled = smq(system, "cancel", "three", "two", "nobody")
    assert cancelled.returncode == 3
    assert system.state("three") == "stopped"
    system.wait_state("two", "stopped")
    assert smq(system, "show", "nobody").returncode == 3
