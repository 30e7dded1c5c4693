"""The API's definition: docs/openapi.yaml is made of it, and the queue answers as it says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_schema_validator import OAS31Validator

from api_contract import models, preview, routes
from api_contract.error_codes import ErrorCode, Refusal
from api_contract.routes import OPERATIONS, Operation
from api_contract.shape import Answer, Body
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.api import error_mapping
from job_queue.domain import errors, job
from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import ExternalTrainingJob
from job_queue.domain.policy_validation import parse_policy
from job_queue.domain.requests import scheduling_tags
from job_queue.scheduler import Rule, model
from job_queue.scheduler.documents import policy_schema
from tests.jobs import NOW, OWNER, P5, a_body
from tests.payloads import api_event
from tests.unit.queue_api import ADMIN, Api, a_policy
from tools import openapi

ROOT = Path(__file__).parents[3]
DOCUMENT = openapi.document()

# Calls that bring the operation to each of its statuses, on a queue that `busy` has prepared.
CALLS: dict[tuple[str, int], tuple[str, str | None, str]] = {
    ("addJob", 202): ("/add-job", a_body("new"), OWNER),
    ("addJob", 200): ("/add-job", a_body("runs"), OWNER),
    ("listJobs", 200): ("/jobs", None, OWNER),
    ("listHistory", 200): ("/history", None, OWNER),
    ("describeJob", 200): ("/jobs/preempted", None, OWNER),
    ("cancelJob", 202): ("/jobs/runs", None, OWNER),
    ("cancelJob", 200): ("/jobs/done", None, OWNER),
    ("changeJob", 200): ("/jobs/waits", '{"priority": 2}', OWNER),
    ("planJob", 200): ("/plan", a_body("urgent", 9), OWNER),
    ("describeQueue", 200): ("/queue", None, OWNER),
    ("describePolicy", 200): ("/policy", None, OWNER),
    ("policyHistory", 200): ("/policy/history", None, OWNER),
    ("previewPolicy", 200): ("/policy/preview", json.dumps({"policy": a_policy()}), OWNER),
    ("rollBackPolicy", 200): ("/policy/rollback", '{"to": 0, "version": 0}', ADMIN),
    ("applyPolicy", 200): ("/policy", json.dumps({"policy": a_policy(), "version": 0, "force": True}), ADMIN),
    ("drainPool", 200): ("/drain", '{"pool": "default", "reason": "new disks"}', ADMIN),
    ("undrainPool", 200): ("/undrain", '{"pool": "default"}', ADMIN),
    ("whoAmI", 200): ("/whoami", None, OWNER),
}


def busy() -> Api:
    """A queue with jobs in most states."""
    api = Api(slots=1)
    api.add("done")
    api.queue.end("done-qstamp-1")
    api.add("preempted", 0)
    api.add("runs", 1)
    api.queue.end("preempted-qstamp-1", "Stopped")
    api.add("waits", 1)
    return api


def sent(api: Api, method: str, path: str, body: str | None, caller: str) -> tuple[int, Any]:
    answer = api.resolver.resolve(api_event(method, path, body=body, caller=caller), {})  # type: ignore[arg-type]
    return answer["statusCode"], json.loads(answer["body"])


def validated(kind: type[Answer], content: Any) -> None:
    """It is what the type and the document say, and nothing else."""
    assert kind.from_json(content).to_json() == content
    schema = {"$ref": f"#/components/schemas/{kind.__name__}", "components": DOCUMENT["components"]}
    OAS31Validator(json.loads(msgspec.json.encode(schema))).validate(content)


def test_the_committed_document_is_what_the_definitions_give() -> None:
    assert (ROOT / "docs/openapi.yaml").read_text() == openapi.text(), "make docs brings it up to date"


def test_every_status_of_every_operation_is_called() -> None:
    assert set(CALLS) == {(operation.id, status) for operation in OPERATIONS for status in operation.statuses}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_every_answer_is_of_the_declared_type(operation: Operation[Answer]) -> None:
    for status in operation.statuses:
        path, body, caller = CALLS[operation.id, status]
        answered, content = sent(busy(), operation.method, path, body, caller)
        assert answered == status
        validated(operation.answer, content)


def test_an_external_job_and_a_pool_that_backs_off_are_of_the_declared_type() -> None:
    api = Api()
    api.queue.training.script = [LaunchResult.NO_CAPACITY]
    api.add("refused")
    api.queue.repository.add_external(ExternalTrainingJob("theirs", {P5: 1}, job.iso(NOW)))
    _, content = sent(api, "GET", "/queue", None, OWNER)
    assert content["external"] and content["pauses"]
    validated(models.QueueStatus, content)


REFUSALS: dict[ErrorCode, Callable[[Api], tuple[int, Any]]] = {
    ErrorCode.INVALID_REQUEST: lambda api: sent(api, "POST", "/add-job", "{}", OWNER),
    ErrorCode.FORBIDDEN: lambda api: sent(api, "DELETE", "/jobs/runs", None, "arn:aws:iam::123456789012:user/eve"),
    ErrorCode.NOT_FOUND: lambda api: sent(api, "GET", "/jobs/nobody", None, OWNER),
    ErrorCode.NAME_TAKEN: lambda api: sent(api, "POST", "/add-job", a_body("runs", 7), OWNER),
    ErrorCode.CONFLICT: lambda api: sent(api, "PATCH", "/jobs/done", '{"held": true}', OWNER),
    ErrorCode.STALE_POLICY: lambda api: sent(
        api, "PUT", "/policy", json.dumps({"policy": a_policy(), "version": 8}), ADMIN
    ),
    ErrorCode.IN_USE: lambda api: sent(api, "PUT", "/policy", json.dumps({"policy": a_policy(), "version": 0}), ADMIN),
    ErrorCode.TOO_LARGE: lambda api: sent(api, "POST", "/plan", " " * 600_000, OWNER),
}


@pytest.mark.parametrize("code", REFUSALS, ids=str)
def test_every_refusal_is_of_the_declared_type(code: ErrorCode) -> None:
    status, content = REFUSALS[code](busy())
    assert status == code.status
    assert {error["code"] for error in content["errors"]} == {code.value}
    validated(Refusal, content)


def test_each_issue_of_a_request_is_an_error_with_its_field() -> None:
    wrong = a_body(OutputDataConfig={}, ResourceConfig={"InstanceType": 7, "InstanceCount": 1}, Unknown=1)
    _, content = sent(Api(), "POST", "/add-job", wrong, OWNER)
    fields = {error["field"] for error in content["errors"]}
    assert {"OutputDataConfig.S3OutputPath", "ResourceConfig.InstanceType", "Unknown"} <= fields


def test_each_fault_of_a_body_and_each_loss_by_a_policy_is_an_error() -> None:
    _, content = sent(Api(), "PUT", "/policy", '{"version": "1", "force": 1, "more": 2}', ADMIN)
    assert {error["field"] for error in content["errors"]} == {"policy", "version", "force", "more"}
    _, content = sent(busy(), "PUT", "/policy", json.dumps({"policy": a_policy(), "version": 0}), ADMIN)
    assert len(content["errors"]) == 2  # its project is gone, and its pool
    assert all("--force" in error["remedy"] for error in content["errors"])


def test_there_are_no_more_errors_than_anybody_reads() -> None:
    _, content = sent(Api(), "PATCH", "/jobs/x", json.dumps({f"field{number}": 1 for number in range(500)}), OWNER)
    assert len(content["errors"]) == 21
    assert "480 more" in content["errors"][-1]["message"]


def subclasses(kind: type[errors.QueueError]) -> set[type[errors.QueueError]]:
    return {kind}.union(*(subclasses(one) for one in kind.__subclasses__()))


def test_every_error_has_its_code_and_every_code_its_error() -> None:
    codes = {kind.__name__: error_mapping.code_of(kind).value for kind in subclasses(errors.QueueError)}
    assert codes.pop("QueueError") == "InternalError"
    assert codes.pop("Unwritable") == codes.pop("SiteSilent") == "Unavailable"
    assert codes == {code.value: code.value for code in ErrorCode if code is not ErrorCode.INTERNAL_ERROR}


def test_bounds_and_words_are_those_of_the_queue() -> None:
    assert (models.MAX_PRIORITY, models.MAX_RETRIES) == (policy_schema.MAX_PRIORITY, scheduling_tags.MAX_RETRIES)
    assert preview.MOST_INSTANCES == policy_schema.MOST_INSTANCES
    states = {state.value for state in model.JobState}
    assert states == models.WAITING | models.ACTIVE | models.FINISHED
    rule = DOCUMENT["components"]["schemas"]["Eviction"]["properties"]["rule"]
    assert set(rule["enum"]) == {rule.value for rule in Rule}


def test_a_policy_that_the_document_allows_is_read_the_same_by_both() -> None:
    schema = {"$ref": "#/components/schemas/Policy", "components": DOCUMENT["components"]}
    document = OAS31Validator(json.loads(msgspec.json.encode(schema)))
    assert document.is_valid(a_policy())
    assert parse_policy(a_policy()).pools[0].name == "p5"
    wrong = a_policy(projects=[{"name": "a", "colour": "red"}])
    assert not document.is_valid(wrong)
    with pytest.raises(InvalidRequest, match="colour"):
        parse_policy(wrong)


def test_what_callers_send_is_read_strictly_and_what_they_get_is_not() -> None:
    for kind in (models.JobChange, models.PolicyChange, models.SubmitOptions, models.JobFilter):
        assert issubclass(kind, Body)
        assert kind.__struct_config__.forbid_unknown_fields
    assert models.Reason.from_json({"code": "NEW", "colour": "red"}) == models.Reason("NEW")


def test_paths_are_unique_and_every_operation_has_a_name() -> None:
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    declared = [value for value in vars(routes).values() if isinstance(value, Operation)]
    assert len(declared) == len(OPERATIONS)
