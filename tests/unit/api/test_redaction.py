"""Secrets in a request: shown to the job's owner and to admins, and to nobody else."""

import json
from typing import Any

import pytest

from job_queue.adapters.telemetry import log
from job_queue.api.redaction import redacted
from job_queue.scheduler import JobState
from tests.jobs import OWNER
from tests.unit.queue_api import ADMIN, STRANGER, Api

pytestmark = pytest.mark.attack

SECRET = "hunter2-s3cret"
PRIVATE: dict[str, Any] = {
    "Environment": {"WANDB_API_KEY": SECRET},
    "HyperParameters": {"password": SECRET, "command": json.dumps(["train", "--token", SECRET])},
    "DebugHookConfig": {
        "S3OutputPath": "s3://bucket/debug",
        "HookParameters": {"x": SECRET},
        "CollectionConfigurations": [{"CollectionName": "losses", "CollectionParameters": {"y": SECRET}}],
    },
    "DebugRuleConfigurations": [
        {"RuleConfigurationName": "rule", "RuleEvaluatorImage": "image", "RuleParameters": {"z": SECRET}}
    ],
}


def submitted(api: Api) -> None:
    algorithm = {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["train", f"--key={SECRET}"],
        "ContainerArguments": [SECRET],
    }
    status, answer = api.add("job1", 1, preflight="false", AlgorithmSpecification=algorithm, **PRIVATE)
    assert status == 202, answer


@pytest.mark.parametrize("state", ["running", "pending", "completed"])
def test_a_stranger_sees_names_and_no_values(state: str) -> None:
    api = Api(slots=0 if state == "pending" else 2)
    submitted(api)
    if state == "completed":
        api.queue.end("job1-qstamp-1", "Completed")
    status, job = api.call("GET", "/jobs/job1", caller=STRANGER)
    assert (status, job["state"]) == (200, state)
    assert SECRET not in json.dumps(job)
    request = job["request"]
    assert request["Environment"] == {"WANDB_API_KEY": "***"}
    assert request["HyperParameters"] == {"password": "***", "command": "***"}
    assert request["AlgorithmSpecification"]["ContainerEntrypoint"] == ["***", "***"]
    assert request["AlgorithmSpecification"]["TrainingImage"].endswith("image:1")
    assert request["DebugHookConfig"]["S3OutputPath"] == "s3://bucket/debug"


@pytest.mark.parametrize("caller", [OWNER, ADMIN])
def test_owner_and_admin_see_all(caller: str) -> None:
    api = Api()
    submitted(api)
    _, job = api.call("GET", "/jobs/job1", caller=caller)
    assert json.dumps(job).count(SECRET) == 8


def test_nothing_else_that_a_stranger_can_call_tells_it(capfd: pytest.CaptureFixture[str]) -> None:
    api = Api()
    submitted(api)
    for method, path, body in (
        ("GET", "/jobs", None),
        ("GET", "/status", None),
        ("DELETE", "/jobs/job1", None),
        ("PATCH", "/jobs/job1", '{"priority": 5}'),
    ):
        _, answer = api.call(method, path, body, caller=STRANGER)
        assert SECRET not in json.dumps(answer)


FAILURE = f'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nCommand "sh -c train --token {SECRET}"'


@pytest.mark.parametrize("retries", [0, 1], ids=["for good", "and is tried again"])
def test_a_stranger_is_not_told_what_a_program_said_when_it_failed(retries: int) -> None:
    api = Api()
    api.add("job1", 1, Tags=[{"Key": "retries", "Value": str(retries)}])
    api.queue.end("job1-qstamp-1", "Failed", failure=FAILURE)
    answers = [("GET", "/jobs/job1"), ("GET", "/jobs"), ("GET", "/status"), ("DELETE", "/jobs/job1")]
    assert api.queue.job("job1").state is (JobState.RUNNING if retries else JobState.FAILED)
    for caller, told in ((STRANGER, False), (OWNER, True)):
        text = json.dumps([api.call(*answer, caller=caller) for answer in answers])
        assert (SECRET in text, "AlgorithmError" in text) == (told, True), (caller, text)


def test_log_lines_have_no_bodies_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    for level in ("debug", "info", "warning", "error", "exception"):
        monkeypatch.setattr(log, level, lambda *words, **more: lines.append(repr((words, more))))
    api = Api()
    submitted(api)
    api.call("POST", "/add-job", json.dumps({"TrainingJobName": "job2", "Environment": {"KEY": SECRET}, "x": 1}))
    api.call("POST", "/add-job", json.dumps({"TrainingJobName": "job2", "HyperParameters": {"KEY": [SECRET]}}))
    api.call("POST", "/add-job", f'{{"Environment": {{"KEY": "{SECRET}')
    api.queue.end("job1-qstamp-1", "Completed")
    assert lines and not any(SECRET in line for line in lines), lines


def test_what_is_not_as_sagemaker_has_it_is_hidden_as_a_whole() -> None:
    odd = {"Environment": SECRET, "HyperParameters": [[SECRET]], "DebugRuleConfigurations": {"a": SECRET}, "Tags": []}
    assert SECRET not in json.dumps(redacted(odd))
    assert redacted({"DebugHookConfig": None, "RoleArn": "x"}) == {"DebugHookConfig": None, "RoleArn": "x"}
