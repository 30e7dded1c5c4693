"""The deployed API under requests that nobody should send: no 5xx, no stack trace, nothing changed by what is refused.

Schemathesis makes requests from docs/openapi.yaml, such as fit it and such as do not, and compares the answers with it.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import requests
from hypothesis import HealthCheck, given, settings

from local_cloud.aws.stack import LocalCloud
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.queue.transport import Signature
from tests.documents import read_openapi
from tests.system.conftest import System, line_of, stored_rows
from tests.waiting import PATIENCE

OPENAPI = read_openapi()
EXAMPLES = 12  # of each operation and kind
LONG = "import time; time.sleep(86400)"
UNSTEADY = ("control", "outlook")


class Attacked(System):
    """A queue of one slot, with a job that runs, and others that never fit: by itself, nothing happens in it."""

    def __init__(self, cloud: LocalCloud) -> None:
        super().__init__(cloud)
        self.signature = self.signature_of(cloud.boto_session())
        self.submit("adas", LONG)
        self.wait_training("adas")
        for name in ("cancelled", "changed"):
            self.queue.submit(self.request(name, "pass", instances=2), preflight=False)

    def signature_of(self, session: boto3.Session) -> Signature:
        return Signature(QueueConfig(url=self.cloud.queue_url, region="us-east-1"), session)

    def rows(self) -> list[str]:
        """All that the tables hold, but for what cycles and ticks move by themselves."""
        steady = [row for row in stored_rows(self.cloud) if line_of(row) not in UNSTEADY]
        return sorted(json.dumps(row, sort_keys=True) for row in steady)

    def accepted(self, method: str, path: str) -> Any:
        """A body that the route accepts, if it takes one, and that leaves what other tests need."""
        policy = self.queue.policy()
        bodies = {
            ("post", "/add-job"): self.request("another", LONG),
            ("post", "/plan"): self.request("another-one", LONG),
            ("put", "/policy"): {"policy": policy.policy, "version": policy.version},
            ("post", "/policy/rollback"): {"to": policy.version, "version": policy.version},
            ("post", "/policy/preview"): {"policy": policy.policy},
            ("post", "/drain"): {"pool": "default", "at": (datetime.now(UTC) + timedelta(days=60)).isoformat()},
            ("post", "/undrain"): {"pool": "default"},
        }
        return bodies.get((method, path))

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One signed request, its path as it stands: other clients than this one would put it in order first."""
        base = urlsplit(self.cloud.queue_url)
        request = requests.Request(method, self.cloud.queue_url, data=body, headers=dict(headers or {})).prepare()
        request.url = f"{self.cloud.queue_url}{path}"
        request = self.signature(request)
        connection = http.client.HTTPConnection(base.netloc, timeout=PATIENCE)
        try:
            connection.request(method, base.path + path, body=body, headers=dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with LocalCloud(slots=1) as cloud:
        yield Attacked(cloud)
        assert "Traceback" not in cloud.function_logs()


# --- the contract ------------------------------------------------------------------------------------


def operations() -> Iterator[Any]:
    """Each operation with each kind of requests that there are for it; without parameters, none are wrong."""
    for path, methods in OPENAPI["paths"].items():
        for method, operation in methods.items():
            if method == "parameters":
                continue
            can_be_wrong = {"parameters", "requestBody"} & {*operation, *methods}
            modes = ["positive", *(["negative"] if can_be_wrong else [])]
            yield from (pytest.param(path, method, mode, id=f"{method} {path} {mode}") for mode in modes)


@pytest.fixture(scope="module")
def schema() -> Any:
    """The file, as Schemathesis reads it; it takes two seconds."""
    import schemathesis

    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    return schemathesis.openapi.from_dict(OPENAPI, config=config)


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "method", "mode"), list(operations()))
def test_every_answer_is_one_that_the_openapi_file_promises(
    attacked: Attacked, schema: Any, path: str, method: str, mode: str
) -> None:
    from schemathesis import Case, GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    conformance = [
        checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance
    ]  # fmt: skip
    operation = schema[path][method]
    generated = GenerationMode(mode)
    cases = operation.as_strategy(generation_mode=generated)
    if "{name}" in path:  # a name that is drawn is nobody's
        there = {"get": "adas", "delete": "cancelled", "patch": "changed"}[method]
        cases |= operation.as_strategy(generation_mode=generated, path_parameters={"name": there})
    accepted = attacked.accepted(method, path)
    if accepted is not None and generated is GenerationMode.POSITIVE:  # the file knows little of what SageMaker takes
        cases |= operation.as_strategy(body=accepted)

    statuses = set()

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(cases)
    def promised(case: Case[Any]) -> None:
        before = attacked.rows()
        response = case.call(base_url=attacked.cloud.queue_url, auth=attacked.signature, timeout=PATIENCE)
        case.validate_response(response, checks=[not_a_server_error, *conformance])
        statuses.add(response.status_code)
        if response.status_code >= 400:
            said = response.json()
            assert said["errors"][0]["message"] if "errors" in said else said["message"]  # the queue, or API Gateway
            assert attacked.rows() == before

    promised()
    assert generated is GenerationMode.NEGATIVE or statuses & {200, 202}, "what is accepted is compared, too"


# --- addresses, methods, headers, bytes --------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "path",
    [
        "/jobs/%2561das",
        "/jobs/adas%00",
        "/jobs/adas%0d%0aX-Header:%20x",
        "/jobs/x%2f..%2fadas",
        "/jobs/x/../adas",
        "/jobs/../jobs/adas",
        "/jobs/./adas",
        "/jobs//adas",
        "//jobs/adas",
        "/jobs/..;/adas",
        "/jobs/ADAS",
        "/jobs/adas-qstamp-1",
        "/jobs/%ff",
        "/jobs/%ed%a0%80",
        "/jobs/%",
        "/jobs/" + "a" * 7000,
        "/" + "a/" * 3000,
        "/../../../etc/passwd",
        "/add-job/../jobs/adas",
        "/nothing",
        "/",
    ],
    ids=lambda path: path[:30],
)
def test_an_odd_address_is_nobodys(attacked: Attacked, method: str, path: str) -> None:
    before = attacked.rows()
    status, content = attacked.send(method, path, b'{"priority": 9}' if method == "PATCH" else None)
    assert 400 <= status < 500, content
    assert b"Traceback" not in content
    assert attacked.rows() == before


@pytest.mark.parametrize("method", ["PUT", "POST", "OPTIONS", "TRACE", "PROPFIND", "delet"])
def test_an_odd_method_does_nothing(attacked: Attacked, method: str) -> None:
    before = attacked.rows()
    status, content = attacked.send(method, "/jobs/adas", b"{}")
    assert 400 <= status < 500, content
    assert attacked.rows() == before


def test_no_header_makes_another_request_of_one(attacked: Attacked) -> None:
    before = attacked.rows()
    status, content = attacked.send(
        "GET",
        "/jobs/adas?_method=DELETE&_method=PATCH&junk=%00&=&&limit=-1",
        headers={"X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/policy", "X-Amzn-Trace-Id": "x" * 4000},
    )
    assert status in {200, 403}, content  # whether the signature of such a query holds is the gateway's to say
    assert attacked.rows() == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"\x00" * 1000,
        b'{"a": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"[" * 400_000,
        b'{"a":' * 50_000,
        b'{"TrainingJobName": "' + b"a" * 400_000 + b'"}',
        b'{"HyperParameters": {' + b",".join(b'"k%d": "v"' % n for n in range(30_000)) + b"}}",
        b"1" * 400_000,
    ],
    ids=lambda body: repr(body[:20]),
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/add-job"), ("PATCH", "/jobs/adas"), ("PUT", "/policy")])
def test_an_odd_body_is_refused(attacked: Attacked, method: str, path: str, body: bytes) -> None:
    before = attacked.rows()
    status, content = attacked.send(method, path, body, {"Content-Type": "application/json"})
    assert status in {400, 413}, content
    assert json.loads(content)["errors"][0]["message"].endswith(".")
    assert attacked.rows() == before


# --- people ------------------------------------------------------------------------------------------


def test_a_stranger_with_every_right_to_call_changes_nobody_elses_job(attacked: Attacked) -> None:
    iam = attacked.cloud.client("iam")
    iam.create_user(UserName="eve")
    key = iam.create_access_key(UserName="eve")["AccessKey"]
    statement = {"Effect": "Allow", "Action": "execute-api:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="eve", PolicyName="call", PolicyDocument=document)
    signed = attacked.signature_of(boto3.Session(key["AccessKeyId"], key["SecretAccessKey"]))
    before = attacked.rows()
    url = f"{attacked.cloud.queue_url}/jobs/adas"
    assert requests.get(url, auth=signed, timeout=PATIENCE).status_code == 200
    assert requests.delete(url, auth=signed, timeout=PATIENCE).json()["errors"][0]["code"] == "Forbidden"
    for change in ({"priority": 9}, {"held": True}, {"held": False}):
        assert (
            requests.patch(url, json=change, auth=signed, timeout=PATIENCE).json()["errors"][0]["code"] == "Forbidden"
        )
    assert attacked.rows() == before


def test_nobody_can_make_an_event_of_sagemakers(attacked: Attacked) -> None:
    """EventBridge refuses the source, so what an event of ours says is SageMaker's word (docs/developers/adr/0033)."""
    events = attacked.cloud.client("events")
    entry = {"Source": "aws.sagemaker", "DetailType": "SageMaker Training Job State Change", "Detail": "{}"}
    assert events.put_events(Entries=[entry])["FailedEntryCount"] == 1
