"""What a program sees of SageMaker through the proxy: the queue's jobs under its own names, and all else as it is."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from sagemaker_queue.integrations.proxy import gateway, protocol
from tests.client.conftest import Scripted
from tests.client.integrations.boto.hooked_clients import ARN, OWNER, REQUEST, WAITING, refusal, twice_run
from tests.client.integrations.proxy.proxied import Proxied, said
from tests.client.samples import refused
from tests.waiting import PATIENCE, until

NOT_FOUND = {"__type": "ValidationException", "message": "Requested resource not found."}


def job(proxied: Proxied, **facts: Any) -> None:
    """Let the queue answer once that it knows job1."""
    known = {"job": "job1", "owner": OWNER, "request": REQUEST, "stateSince": "2026-11-21T10:00:00.250Z"}
    proxied.queue.answers(200, {**known, "entryTime": "2026-11-21T10:00:00Z", "instances": 2, **facts})


def unknown(proxied: Proxied) -> None:
    proxied.queue.answers(404, refused("NotFound", "There is no such job."))


class TestJobsOfTheQueue:
    def test_created(self, proxied: Proxied) -> None:
        proxied.queue.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        assert proxied.client.create_training_job(**REQUEST)["TrainingJobArn"] == f"{ARN}/job1"
        (asked,) = proxied.queue.received
        assert json.loads(asked.body) == REQUEST
        assert "Credential=AKIDEXAMPLE/" in asked.headers["Authorization"]
        assert not proxied.sagemaker.received

    def test_described_while_it_waits(self, proxied: Proxied) -> None:
        job(proxied, **WAITING)
        described = proxied.client.describe_training_job(TrainingJobName="job1")
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Pending")
        assert described["LastModifiedTime"] == datetime(2026, 11, 21, 10, 0, 0, 250_000, timezone.utc)

    def test_times_are_numbers(self, proxied: Proxied) -> None:
        job(proxied, **WAITING)
        answer = proxied.send(proxied.signed("DescribeTrainingJob", b'{"TrainingJobName": "job1"}'))
        assert answer.headers["Content-Type"] == "application/x-amz-json-1.1"
        assert answer.headers["x-amzn-RequestId"]
        body = answer.json()
        assert "ResponseMetadata" not in body
        assert body["LastModifiedTime"] == 1795255200.25
        assert body["SecondaryStatusTransitions"][0]["StartTime"] == 1795255200.25

    def test_described_by_its_attempt(self, proxied: Proxied) -> None:
        """What the hooks ask SageMaker instead goes there, signed with the caller's key."""
        job(proxied, **twice_run("running"))
        attempt = {"TrainingJobName": "job1-qstamp-2", "TrainingJobArn": f"{ARN}/job1-qstamp-2"}
        proxied.sagemaker.answers(200, {**attempt, "TrainingJobStatus": "InProgress", "TrainingEndTime": 1795255201.5})
        described = proxied.client.describe_training_job(TrainingJobName="job1")
        assert (described["TrainingJobName"], described["TrainingJobArn"]) == ("job1", f"{ARN}/job1")
        assert described["TrainingEndTime"].timestamp() == 1795255201.5
        asked = [json.loads(received.body)["TrainingJobName"] for received in proxied.sagemaker.received]
        assert sorted(asked) == ["job1-qstamp-1", "job1-qstamp-2"], "the first attempt tells when the job began"

    def test_stopped_and_nothing_is_said(self, proxied: Proxied) -> None:
        job(proxied, state="running")
        proxied.queue.answers(202, {"job": "job1", "state": "stopping"})
        answer = proxied.send(proxied.signed("StopTrainingJob", b'{"TrainingJobName": "job1"}'))
        assert (answer.status_code, answer.content) == (200, b"")

    @pytest.mark.parametrize(
        ("status", "code", "seen"),
        [
            (409, "NameTaken", (400, "ResourceInUse")),
            (403, "Forbidden", (403, "AccessDeniedException")),
            (400, "InvalidRequest", (400, "ValidationException")),
        ],
    )
    def test_refused_in_sagemakers_words(self, proxied: Proxied, status: int, code: str, seen: tuple[int, str]) -> None:
        proxied.queue.answers(status, refused(code, "No, because."))
        answer = proxied.send(proxied.signed("CreateTrainingJob", json.dumps(REQUEST).encode()))
        assert said(answer) == seen
        assert "No, because." in answer.json()["message"]

    def test_members_that_are_null_are_not_there(self, proxied: Proxied) -> None:
        proxied.queue.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        body = json.dumps({**REQUEST, "HyperParameters": None, "VpcConfig": None}).encode()
        assert proxied.send(proxied.signed("CreateTrainingJob", body)).status_code == 200
        assert json.loads(proxied.queue.received[0].body) == REQUEST

    def test_the_sdk_raises_what_it_would(self, proxied: Proxied) -> None:
        proxied.queue.answers(409, refused("NameTaken", "job1 is there."))
        with pytest.raises(proxied.client.exceptions.ResourceInUse):
            proxied.client.create_training_job(**REQUEST)


@pytest.mark.attack
class TestNothingGoesPastTheQueueUnseen:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"{", "SerializationException"),
            (b"[]", "SerializationException"),
            (b"[" * 100_000, "SerializationException"),
            (b"\xff", "SerializationException"),
            (b"{}", "ValidationException"),
            (json.dumps({**REQUEST, "RoleArn": 1}).encode(), "ValidationException"),
            (json.dumps({**REQUEST, "NewInTheNextRelease": {}}).encode(), "ValidationException"),
            (json.dumps({**REQUEST, "Tags": {"Key": "priority"}}).encode(), "ValidationException"),
        ],
    )
    def test_what_cannot_be_read(self, proxied: Proxied, body: bytes, code: str) -> None:
        answer = proxied.send(proxied.signed("CreateTrainingJob", body))
        assert said(answer) == (400, code)
        assert not proxied.sagemaker.received and not proxied.queue.received

    def test_what_is_wrong_with_it_is_said(self, proxied: Proxied) -> None:
        body = json.dumps({**REQUEST, "NewInTheNextRelease": {}}).encode()
        message = proxied.send(proxied.signed("CreateTrainingJob", body)).json()["message"]
        assert 'The queue cannot take this request: Unknown parameter in input: "NewInTheNextRelease"' in message

    @pytest.mark.parametrize(
        "headers",
        [
            {"Content-Type": "application/cbor"},
            {"Content-Type": "text/plain"},
            {"Content-Encoding": "gzip"},
            {"Content-Type": ""},
        ],
    )
    @pytest.mark.parametrize("body", [b"\xa0", json.dumps(REQUEST).encode()])
    def test_another_kind_of_body(self, proxied: Proxied, headers: dict[str, str], body: bytes) -> None:
        answer = proxied.send(proxied.signed("CreateTrainingJob", body, headers=headers))
        assert said(answer) == (400, "SerializationException")
        assert not proxied.sagemaker.received and not proxied.queue.received

    def test_another_method(self, proxied: Proxied) -> None:
        answer = proxied.send(proxied.signed("CreateTrainingJob", json.dumps(REQUEST).encode(), method="PUT"))
        assert said(answer) == (400, "UnknownOperationException")
        assert not proxied.sagemaker.received and not proxied.queue.received

    def test_another_protocol(self, proxied: Proxied) -> None:
        """As Smithy's RPC v2 has it, to which AWS moves its services."""
        request = proxied.signed(url=f"{proxied.url}service/SageMaker/operation/CreateTrainingJob", body=b"\xa0")
        del request.headers["X-Amz-Target"], request.headers["Authorization"], request.headers["X-Amz-Date"]
        request.headers["Smithy-Protocol"] = "rpc-v2-cbor"
        proxied.sign(request)
        assert said(proxied.send(request)) == (400, "SerializationException")
        assert not proxied.sagemaker.received

    def test_a_queue_that_cannot_be_reached(self, proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sagemaker_queue.queue.transport.LONGEST_PAUSE_SECONDS", 0)
        for _ in range(5):
            proxied.queue.hangs_up()
        answer = proxied.send(proxied.signed("CreateTrainingJob", json.dumps(REQUEST).encode()))
        assert said(answer) == (503, "ServiceUnavailable")
        assert not proxied.sagemaker.received


class TestEverythingElse:
    def test_a_job_that_the_queue_does_not_know(self, proxied: Proxied) -> None:
        unknown(proxied)
        proxied.sagemaker.answers(400, NOT_FOUND)
        with pytest.raises(ClientError) as error:
            proxied.client.describe_training_job(TrainingJobName="other")
        assert refusal(error) == ("ValidationException", 400)

    def test_byte_for_byte(self, proxied: Proxied) -> None:
        """An operation, members and headers that no library here knows."""
        body, answered = b'\x00{"New": ', '{"Old":1e400, "x": "\\u00e4"}'
        headers = {"x-amzn-RequestId": "their-id", "X-New": "yes", "Content-Type": "application/new"}
        proxied.sagemaker.answers(202, answered, headers)
        sent = proxied.send(proxied.signed("InventedNextYear", body, headers={"X-Mine": "1"}))
        assert (sent.status_code, sent.text) == (202, answered)
        assert {name: sent.headers[name] for name in headers} == headers
        received = proxied.passed_on()
        assert (received.body, received.path) == (body, "/prod/")
        assert (received.headers["X-Amz-Target"], received.headers["X-Mine"]) == ("SageMaker.InventedNextYear", "1")

    def test_it_is_signed_anew_for_where_it_goes(self, proxied: Proxied) -> None:
        proxied.sagemaker.answers(200, {"TrainingJobSummaries": []})
        request = proxied.signed("ListModels")
        assert proxied.send(request).status_code == 200
        received = proxied.passed_on().headers
        assert received["Host"] == f"127.0.0.1:{proxied.sagemaker.server_address[1]}"
        assert len(received.get_all("Authorization") or []) == len(received.get_all("X-Amz-Date") or []) == 1
        assert received["Authorization"] != request.headers["Authorization"]
        assert "/eu-west-1/sagemaker/aws4_request" in received["Authorization"]

    def test_pages(self, proxied: Proxied) -> None:
        for token, name in (("a", "m1"), ("b", "m2"), (None, "m3")):
            page = {"Models": [{"ModelName": name, "ModelArn": "arn", "CreationTime": 1795255200.5}]}
            proxied.sagemaker.answers(200, {**page, "NextToken": token} if token else page)
        pages = proxied.client.get_paginator("list_models").paginate()
        assert [model["ModelName"] for page in pages for model in page["Models"]] == ["m1", "m2", "m3"]
        tokens = [json.loads(one.body).get("NextToken") for one in proxied.sagemaker.received]
        assert tokens == [None, "a", "b"]

    def test_compressed_answers(self, proxied: Proxied) -> None:
        proxied.sagemaker.script.append(Scripted(200, gzip.compress(b'{"Models": []}'), {"Content-Encoding": "gzip"}))
        assert proxied.send(proxied.signed("ListModels")).json() == {"Models": []}

    def test_sagemaker_cannot_be_reached(self, proxied: Proxied) -> None:
        proxied.sagemaker.hangs_up()
        assert said(proxied.send(proxied.signed("ListModels"))) == (503, "ServiceUnavailable")

    def test_what_a_request_of_the_queues_operations_has_wrong_sagemaker_says(self, proxied: Proxied) -> None:
        proxied.sagemaker.answers(400, NOT_FOUND)
        sent = proxied.send(proxied.signed("DescribeTrainingJob", b'{"TrainingJobName": 7}'))
        assert sent.json() == NOT_FOUND
        assert not proxied.queue.received

    def test_a_job_of_another_region_is_let_through_with_a_warning(
        self, proxied: Proxied, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", proxied.sagemaker.url)
        proxied.sagemaker.answers(200, {"TrainingJobArn": "arn:there"})
        with caplog.at_level(logging.WARNING):
            sent = proxied.send(proxied.signed("CreateTrainingJob", json.dumps(REQUEST).encode(), region="us-west-2"))
        assert sent.json() == {"TrainingJobArn": "arn:there"}
        assert "/us-west-2/sagemaker/aws4_request" in proxied.passed_on().headers["Authorization"]
        assert "A training job of us-west-2 goes to SageMaker directly" in caplog.text

    @pytest.mark.parametrize("region", ["-", "eu-west-1-" * 10])
    def test_a_region_that_is_none(self, proxied: Proxied, region: str) -> None:
        assert said(proxied.send(proxied.signed(region=region))) == (400, "InvalidSignatureException")

    def test_a_fault_of_ours_is_one_line_and_no_trace(
        self, proxied: Proxied, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(*_: object) -> None:
            raise RuntimeError("secret of ours")

        monkeypatch.setattr(protocol, "operation_of", fails)
        answer = proxied.send(proxied.signed())
        assert said(answer) == (500, "InternalFailure")
        assert "secret of ours" not in answer.text and "Traceback" not in caplog.text
        assert "A request could not be answered: RuntimeError: secret of ours" in caplog.text


class TestAtOnce:
    def test_a_slow_answer_holds_up_nobody(self, proxied: Proxied) -> None:
        proxied.sagemaker.keeps_silent()  # until the test has ended
        slow = threading.Thread(target=lambda: proxied.send(proxied.signed("ListModels")))
        slow.start()
        try:
            until(lambda: proxied.sagemaker.received)  # it has asked
            proxied.sagemaker.always_answers(200, {"Models": []})
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: proxied.send(proxied.signed("ListModels")).status_code, range(24)))
            assert answers == [200] * 24
            assert slow.is_alive()
        finally:
            proxied.sagemaker.closing.set()
            slow.join()
            proxied.sagemaker.closing.clear()

    def test_one_connection_many_requests(self, proxied: Proxied) -> None:
        proxied.sagemaker.always_answers(200, {"Models": []})
        request = proxied.signed("ListModels")
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = ["POST / HTTP/1.1", f"Host: {proxied.server.address}", *lines, "Content-Length: 2", "", "{}"]
        with socket.create_connection(("127.0.0.1", proxied.server.server_address[1]), timeout=PATIENCE) as connection:
            for _ in range(3):
                connection.sendall("\r\n".join(head).encode())
                received = b""
                while not received.endswith(b'{"Models": []}'):
                    received += connection.recv(65536)
                assert received.startswith(b"HTTP/1.1 200 OK\r\n")


class TestTheModel:
    """What the hooks give and take, for every shape that SageMaker has."""

    def test_an_operation_that_this_botocore_does_not_know(
        self, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The oldest that is supported lacks DeleteTrainingJob."""
        monkeypatch.setattr(gateway, "OPERATIONS", {"sagemaker": ("InventedNextYear",)})
        proxied.sagemaker.answers(200, {"New": 1})
        assert proxied.send(proxied.signed("InventedNextYear")).json() == {"New": 1}

    def test_times_and_bytes_are_read_as_python_has_them(self, proxied: Proxied) -> None:
        model = proxied.client.meta.service_model
        read = protocol.parameters({"CreationTimeAfter": 1795255200.5}, model.operation_model("ListTrainingJobs"))
        assert read == {"CreationTimeAfter": datetime(2026, 11, 21, 10, 0, 0, 500_000, timezone.utc)}

    def test_and_written_as_json_has_them(self, proxied: Proxied) -> None:
        model = proxied.client.meta.service_model
        at = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
        described = {
            "TrainingStartTime": "2026-11-21T10:00:00Z",
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.5, "Timestamp": at}],
            "HyperParameters": {"a": "1"},
            "FailureReason": None,
            "Unknown": object(),
        }
        written = json.loads(protocol.serialized(described, model.operation_model("DescribeTrainingJob")))
        assert written == {
            "TrainingStartTime": 1795255200,
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.5, "Timestamp": 1795255200}],
            "HyperParameters": {"a": "1"},
        }

    def test_bytes(self) -> None:
        model = botocore.session.get_session().get_service_model("kinesis").operation_model("GetRecords")
        written = protocol.serialized({"Records": [{"Data": b"\x00x"}]}, model)
        assert json.loads(written)["Records"][0]["Data"] == base64.b64encode(b"\x00x").decode()
