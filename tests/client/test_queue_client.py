"""QueueClient over real HTTP: signature, retries, pages, errors."""

from __future__ import annotations

import json
import socket
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tenacity import RetryCallState, Retrying

from api_contract.error_codes import Error, ErrorCode
from sagemaker_queue import (
    ConfigError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    QueueClient,
    QueueConfig,
    QueueError,
    StalePolicy,
    TooLarge,
    Unavailable,
)
from sagemaker_queue.queue.transport import ATTEMPTS, Signature, _Wait
from tests.client.samples import refused
from tests.waiting import until

if TYPE_CHECKING:
    from tests.client.conftest import Received, ScriptedServer

JOB1 = {"job": "job1", "state": "running", "priority": 1}


def recomputed_signature(server: ScriptedServer, received: Received, secret: str = "not-a-secret") -> str:
    """Sign what arrived, with the headers that the sender says it signed."""
    authorization = received.headers["Authorization"]
    fields = dict(part.strip().split("=", 1) for part in authorization.removeprefix("AWS4-HMAC-SHA256 ").split(","))
    access_key, _, region, service, _ = fields["Credential"].split("/")
    request = AWSRequest(
        method=received.method,
        url=server.url.removesuffix("/prod") + received.path,
        data=received.body,
        headers={name: received.headers[name] for name in fields["SignedHeaders"].split(";")},
    )
    request.context["timestamp"] = received.headers["X-Amz-Date"]
    auth = SigV4Auth(Credentials(access_key, secret), service, region)
    signature: str = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return f"Signature={signature}"


class TestSignature:
    def test_the_service_can_verify_it(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(202, JOB1)
        queue.submit({"TrainingJobName": "job1", "Environment": {"GREETING": "grüß dich"}})
        received = server.received[0]
        assert received.headers["Authorization"].endswith(recomputed_signature(server, received))
        assert not received.headers["Authorization"].endswith(recomputed_signature(server, received, "wrong"))
        assert "/eu-west-1/execute-api/aws4_request" in received.headers["Authorization"]
        assert json.loads(received.body)["Environment"] == {"GREETING": "grüß dich"}

    @pytest.mark.attack
    def test_a_request_to_this_machine_does_not_leave_it_for_a_proxy(
        self, server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "elsewhere.example")
        server.answers(202, JOB1)
        queue.submit({"TrainingJobName": "job1"})
        assert len(server.received) == 1

    def test_it_covers_the_query(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {"jobs": [], "next": "a+b/c= d"})
        server.answers(200, {"jobs": [], "next": None})
        list(queue.jobs(["running", "pending"]))
        for received in server.received:
            assert received.headers["Authorization"].endswith(recomputed_signature(server, received))
        assert server.received[1].path == "/prod/jobs?state=running%2Cpending&limit=500&next=a%2Bb%2Fc%3D%20d"

    def test_it_covers_the_api_id_and_the_session_token(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
        server.answers(200, {"pools": [], "active": [], "waiting": []})
        QueueClient(url=server.url, api_id="a1b2c3").queue()
        received = server.received[0]
        assert received.headers["x-apigw-api-id"] == "a1b2c3"
        assert received.headers["X-Amz-Security-Token"] == "a-token"
        assert "SignedHeaders=host;x-amz-date;x-amz-security-token;x-apigw-api-id" in received.headers["Authorization"]
        assert received.headers["Authorization"].endswith(recomputed_signature(server, received))

    def test_it_is_not_replaced_by_a_password_from_netrc(self, server: ScriptedServer, tmp_path: Path) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login someone password secret\n")
        server.answers(200, {"jobs": []})
        list(QueueClient(url=server.url).jobs())
        assert server.received[0].headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")

    def test_a_given_boto_session_signs(self, server: ScriptedServer) -> None:
        session = boto3.Session("AKIDOTHER", "another", region_name="us-west-2")
        server.answers(200, {"jobs": []})
        list(QueueClient(url=server.url, boto_session=session).jobs())
        assert "Credential=AKIDOTHER/" in server.received[0].headers["Authorization"]
        assert "/us-west-2/execute-api/" in server.received[0].headers["Authorization"]

    def test_without_credentials_nothing_is_sent(self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(NotAuthenticated, match="log in to AWS"):
            QueueClient(url=server.url).job("job1")
        assert server.received == []

    def test_an_api_is_signed_for_its_own_region(self) -> None:
        url = "https://vpce-1.execute-api.ap-south-1.vpce.amazonaws.com/prod"
        signed = Signature(QueueConfig(url), None)(requests.Request("GET", f"{url}/jobs").prepare())
        assert "/ap-south-1/execute-api/" in signed.headers["Authorization"]

    def test_an_unknown_region_is_a_question_of_configuration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        with pytest.raises(ConfigError, match="AWS_DEFAULT_REGION"):
            QueueClient(url="http://127.0.0.1:9/prod")


class TestCalls:
    def test_submit_posts_the_request(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(202, {**JOB1, "state": "pending", "position": 3, "warnings": ["no checkpoints"]})
        submission = queue.submit({"TrainingJobName": "job1"})
        assert (submission.job, submission.state, submission.position) == ("job1", "pending", 3)
        assert submission.warnings == ("no checkpoints",)
        received = server.received[0]
        assert (received.method, received.path, received.body) == (
            "POST",
            "/prod/add-job",
            b'{"TrainingJobName": "job1"}',
        )
        assert received.headers["Content-Type"] == "application/json"

    def test_jobs_come_from_all_pages_each_once(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {"jobs": [{"job": "a", "state": "running"}, {"job": "b", "state": "pending"}], "next": "t"})
        server.answers(
            200, {"jobs": [{"job": "b", "state": "pending"}, {"job": "c", "state": "pending"}], "next": None}
        )
        assert [job.job for job in queue.jobs()] == ["a", "b", "c"]
        assert [request.path for request in server.received] == [
            "/prod/jobs?state=live&limit=500",
            "/prod/jobs?state=live&limit=500&next=t",
        ]

    def test_a_page_is_asked_for_only_when_it_is_needed(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {"jobs": [{"job": "a", "state": "running"}], "next": "t"})
        assert next(queue.jobs("all")).job == "a"
        assert len(server.received) == 1

    def test_job(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(
            200,
            {
                **JOB1,
                "reason": {"code": "Full", "message": "2 of 2 instances are used"},
                "entryTime": "2026-11-21T10:00:00Z",
                "history": [
                    {"at": "2026-11-21T10:00:00+00:00", "state": "pending", "attempt": 0, "cause": "submitted"}
                ],
                "attempts": [{"attempt": 1, "trainingJobName": "job1-qstamp-1", "started": None}],
                "request": {"TrainingJobName": "job1"},
            },
        )
        job = queue.job("job1")
        assert server.received[0].path == "/prod/jobs/job1"
        assert job.reason is not None and job.reason.message == "2 of 2 instances are used"
        assert job.entry_time == job.history[0].at == datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
        assert job.attempts[0].training_job_name == "job1-qstamp-1"
        assert job.request == {"TrainingJobName": "job1"}

    def test_cancel_tells_a_live_job_from_a_finished_one(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(202, {**JOB1, "cancelRequested": True})
        server.answers(202, {**JOB1, "state": "stopped"})
        server.answers(200, {**JOB1, "state": "completed"})
        live, waiting, finished = (queue.cancel("job1") for _ in range(3))
        assert server.received[0].method == "DELETE"
        assert live.cancel_requested and not live.finished and not live.was_finished
        assert waiting.finished and not waiting.was_finished
        assert finished.was_finished

    def test_change_sends_what_is_to_change_and_nothing_else(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {**JOB1, "priority": 0})
        server.answers(200, {**JOB1, "held": False})
        assert queue.change("job1", priority=0).priority == 0
        assert queue.change("job1", held=False).held is False
        assert [(one.method, one.path, json.loads(one.body)) for one in server.received] == [
            ("PATCH", "/prod/jobs/job1", {"priority": 0}),
            ("PATCH", "/prod/jobs/job1", {"held": False}),
        ]

    def test_requeue_and_hold_now(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {**JOB1, "state": "stopping"})
        server.answers(200, {**JOB1, "state": "stopping", "held": True})
        assert queue.requeue("job1").state == "stopping"
        assert queue.change("job1", held=True, now=True).held
        assert [(one.method, json.loads(one.body)) for one in server.received] == [
            ("PATCH", {"requeue": True}),
            ("PATCH", {"held": True, "now": True}),
        ]

    def test_plan(self, server: ScriptedServer, queue: QueueClient) -> None:
        evicts = [{"job": "job2", "rule": "reclaim"}]
        server.answers(
            200, {"wouldStart": True, "slots": {"p5": 2}, "evicts": evicts, "position": None, "reason": None}
        )
        plan = queue.plan({"TrainingJobName": "job1"})
        assert (plan.would_start, plan.slots, plan.evicts[0].rule) == (True, {"p5": 2}, "reclaim")
        received = server.received[0]
        assert (received.method, received.path, json.loads(received.body)) == (
            "POST",
            "/prod/plan",
            {"TrainingJobName": "job1"},
        )
        assert received.headers["Authorization"].endswith(recomputed_signature(server, received))

    def test_apply_policy(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(200, {"version": 4, "policy": {"pools": []}, "warnings": ["mind"]})
        applied = queue.apply_policy({"pools": []}, 3, force=True)
        assert (applied.version, applied.warnings) == (4, ("mind",))
        received = server.received[0]
        assert (received.method, received.path) == ("PUT", "/prod/policy")
        assert json.loads(received.body) == {"policy": {"pools": []}, "version": 3, "force": True}

    @pytest.mark.parametrize(
        ("version", "policy", "ours"), [(4, {"pools": []}, True), (4, {"pools": [1]}, False), (5, {"pools": []}, False)]
    )
    def test_a_policy_whose_answer_was_lost_is_not_taken_for_somebody_elses(
        self, server: ScriptedServer, queue: QueueClient, version: int, policy: dict[str, Any], ours: bool
    ) -> None:
        server.hangs_up()
        server.answers(409, refused("StalePolicy", f"Version {version} is applied.", remedy="Compare yours with it."))
        server.answers(200, {"version": version, "policy": policy})
        if ours:
            assert queue.apply_policy({"pools": []}, 3).version == 4
        else:
            with pytest.raises(StalePolicy, match="is applied. Compare yours with it.$"):
                queue.apply_policy({"pools": []}, 3)

    @pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a" * 64, "é"])
    def test_a_name_that_no_job_can_have_is_not_asked_for(
        self, server: ScriptedServer, queue: QueueClient, name: str
    ) -> None:
        with pytest.raises(NotFound):
            queue.job(name)
        assert server.received == []

    def test_any_mapping_is_an_object(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(202, JOB1)
        queue.submit(MappingProxyType({"TrainingJobName": "job1", "Environment": MappingProxyType({"A": "b"})}))
        assert json.loads(server.received[0].body) == {"TrainingJobName": "job1", "Environment": {"A": "b"}}

    def test_a_proxy_of_an_impossible_name_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy..example:80")
        with pytest.raises(ConfigError, match="correct HTTPS_PROXY"):
            QueueClient(url="https://queue.example/prod", region="eu-west-1").queue()

    @pytest.mark.parametrize(
        ("value", "field"),
        [
            ({"Tags": [{"Key": "day", "Value": datetime(2026, 1, 1)}]}, "Tags[0].Value"),
            ({"HyperParameters": {"rate": Decimal("0.1")}}, "HyperParameters.rate"),
            ({"Environment": {1: "x"}}, "Environment.1"),
            ({"X": float("nan")}, "X"),
            ({"X": b"bytes"}, "X"),
        ],
    )
    def test_what_json_cannot_carry_is_named(
        self, server: ScriptedServer, queue: QueueClient, value: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidRequest, match="JSON cannot carry") as refused:
            queue.submit(value)
        assert refused.value.field == field
        assert str(refused.value).startswith(field)
        with pytest.raises(InvalidRequest):
            queue.plan(value)
        with pytest.raises(InvalidRequest):
            queue.apply_policy(value, 0)
        assert server.received == []


class TestRetries:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_passing_failure_is_not_seen(self, server: ScriptedServer, queue: QueueClient, status: int) -> None:
        server.answers(status, {"message": "not now"})
        server.hangs_up()
        server.answers(202, JOB1)
        assert queue.submit({"TrainingJobName": "job1"}).job == "job1"
        assert [request.body for request in server.received] == [b'{"TrainingJobName": "job1"}'] * 3
        for received in server.received:
            assert received.headers["Authorization"].endswith(recomputed_signature(server, received))

    def test_a_lasting_failure_ends_with_the_queues_words(self, server: ScriptedServer, queue: QueueClient) -> None:
        for _ in range(ATTEMPTS):
            server.answers(503, refused("Unavailable", "The table is busy"), {"x-amzn-RequestId": "r-1"})
        with pytest.raises(Unavailable, match=r"status 503, request id r-1\): The table is busy\. Try again later\."):
            queue.job("job1")
        assert len(server.received) == ATTEMPTS

    def test_asked_too_often_it_waits_and_says_so(
        self, server: ScriptedServer, queue: QueueClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.answers(429, {"message": "Too Many Requests"})
        server.answers(202, JOB1)
        assert queue.submit({"TrainingJobName": "job1"}).job == "job1"
        (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert told.startswith("Too many requests to the queue (status 429); trying again in")

    def test_asked_too_often_in_the_end_it_says_what_to_do(self, server: ScriptedServer, queue: QueueClient) -> None:
        for _ in range(ATTEMPTS):
            server.answers(429, {"message": "Too Many Requests"})
        with pytest.raises(
            Unavailable, match=r"status 429.*limits the requests of all callers .* or send fewer requests\."
        ):
            queue.job("job1")
        assert len(server.received) == ATTEMPTS

    def test_a_refusal_is_final(self, server: ScriptedServer, queue: QueueClient) -> None:
        server.answers(400, refused("InvalidRequest", "no"))
        with pytest.raises(InvalidRequest):
            queue.job("job1")
        assert len(server.received) == 1

    def test_silence_ends_by_timeout(self, server: ScriptedServer) -> None:
        queue = QueueClient(url=server.url, pause_seconds=0, timeout_seconds=(1, 0.05))
        for _ in range(ATTEMPTS):
            server.keeps_silent()
        with pytest.raises(Unavailable, match="cannot be reached"):
            queue.job("job1")
        until(lambda: len(server.received) >= ATTEMPTS)  # the server may be later than the time-out
        assert len(server.received) == ATTEMPTS

    def test_nobody_there(self) -> None:
        with socket.socket() as bound_but_deaf:
            bound_but_deaf.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound_but_deaf.getsockname()[1]}/prod"
            with pytest.raises(Unavailable, match=f"{url} cannot be reached") as error:
                QueueClient(url=url, pause_seconds=0).job("job1")
        assert "Traceback" not in str(error.value) and "object at 0x" not in str(error.value)


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "code", "kind"),
        [
            (409, "Later", Conflict),
            (418, "Teapot", QueueError),
        ],
    )
    def test_what_a_newer_queue_refuses(
        self, server: ScriptedServer, queue: QueueClient, status: int, code: str, kind: type[QueueError]
    ) -> None:
        server.answers(status, refused(code, "It is so"))
        with pytest.raises(QueueError, match="It is so") as error:
            queue.submit({})
        assert type(error.value) is kind

    @pytest.mark.parametrize("code", ErrorCode)
    def test_every_code_of_the_queue_has_its_error(
        self, server: ScriptedServer, queue: QueueClient, code: ErrorCode
    ) -> None:
        for _ in range(ATTEMPTS):
            server.answers(code.status, refused(code, "It is so.", "Tags[0].Key", "Do this."))
        with pytest.raises(QueueError, match=r"It is so\. Do this\.$") as error:
            queue.submit({})
        shared = {ErrorCode.INTERNAL_ERROR: "Unavailable", ErrorCode.BUSY: "Unavailable"}
        assert type(error.value).__name__ == shared.get(code, code.value)
        assert error.value.field == "Tags[0].Key"

    def test_several_errors_are_kept_and_told_one_a_line_and_each_remedy_once(
        self, server: ScriptedServer, queue: QueueClient
    ) -> None:
        first = Error("InvalidRequest", "A is too small.", "A", "Change that.")
        second = Error("InvalidRequest", "B is missing.", "B", "Change that.")
        server.answers(400, {"errors": [first.to_json(), second.to_json()]})
        with pytest.raises(InvalidRequest) as error:
            queue.submit({})
        assert str(error.value) == "A is too small.\nB is missing.\nChange that."
        assert error.value.errors == (first, second)
        assert error.value.field == "A"

    @pytest.mark.parametrize(
        ("status", "error_type", "expected"),
        [
            (403, "MissingAuthenticationTokenException", (ConfigError, "stage")),
            (403, "ForbiddenException", (ConfigError, "api_id")),
            (403, "AccessDeniedException", (Forbidden, "execute-api:Invoke")),
            (403, "ExpiredTokenException", (NotAuthenticated, "Log in")),
            (403, "UnrecognizedClientException:http://internal", (NotAuthenticated, "credentials")),
            (403, "InvalidSignatureException", (NotAuthenticated, "clock")),
            (403, "", (Forbidden, "Says no")),
            (413, "", (TooLarge, "S3")),
            (404, "", (ConfigError, "is the address right")),
            (301, "", (ConfigError, "is the address right")),
        ],
    )
    def test_api_gateways_refusals(
        self,
        server: ScriptedServer,
        queue: QueueClient,
        status: int,
        error_type: str,
        expected: tuple[type[QueueError], str],
    ) -> None:
        kind, advice = expected
        headers = {"x-amzn-ErrorType": error_type, "Location": "http://127.0.0.1:9/"}
        server.answers(status, {"message": "Says no"}, headers)
        with pytest.raises(QueueError, match=advice) as error:
            queue.job("job1")
        assert type(error.value) is kind
        assert "Says no" in str(error.value)
        assert len(server.received) == 1

    @pytest.mark.parametrize("body", ["<html>hello</html>", "[]", '"text"', "{}", '{"job": "job1"}', '{"jobs": 1}'])
    @pytest.mark.parametrize("call", ["job", "jobs"])
    def test_something_that_is_no_queue(self, server: ScriptedServer, queue: QueueClient, body: str, call: str) -> None:
        server.answers(200, body)
        with pytest.raises(QueueError):
            queue.job("job1") if call == "job" else list(queue.jobs())


def answered(status: int, **headers: str) -> RetryCallState:
    """A try that got this answer."""
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    state = RetryCallState(Retrying(), None, (), {})
    state.set_result(response)
    return state


def test_the_next_try_waits_as_long_as_the_answer_asks() -> None:
    wait = _Wait(0.001)
    assert wait(answered(429)) < 1, "API Gateway names no time: a random pause"
    assert 7 <= wait(answered(503, Retry_After="7")) < 8
    assert 30 <= wait(answered(429, Retry_After="99999")) < 31, "no answer keeps a caller for hours"
    assert wait(answered(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")) < 1


def test_an_error_says_for_how_long_not_to_ask_again(server: ScriptedServer) -> None:
    server.answers(429, {"message": "Too Many Requests"}, {"Retry-After": "12"})
    with pytest.raises(Unavailable) as error:
        QueueClient(url=server.url, tries=1).job("job1")
    assert error.value.retry_after == 12
