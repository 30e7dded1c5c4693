"""Requests that AWS might read as CreateTrainingJob and the proxy as something else: none reaches SageMaker."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from tests.client.integrations.boto.hooked_clients import REQUEST
from tests.client.integrations.proxy.proxied import Proxied
from tests.waiting import PATIENCE

pytestmark = pytest.mark.attack

BODY = json.dumps(REQUEST).encode()
JSON = "application/x-amz-json-1.1"
TARGET = "SageMaker.CreateTrainingJob"
FORM = b"Action=CreateTrainingJob&Version=2017-07-24"


def sent(
    proxied: Proxied,
    lines: Sequence[str],
    body: bytes = BODY,
    *,
    path: str = "/",
    method: str = "POST",
    signed: dict[str, str] | None = None,
) -> int:
    """Send a signed request, of which ``lines`` are added as they are; returns the answer's status.

    ``signed`` are the headers as a program signs them, where the lines say them in another way.
    """
    read = dict(line.split(":", 1) for line in lines if ":" in line)
    facts: dict[str, Any] = {name: value.strip() for name, value in read.items()} if signed is None else signed
    proxied.sagemaker.always_answers(200, {"TrainingJobArn": "arn:past-the-queue"})
    request = proxied.signed(body=body, url=f"{proxied.url.rstrip('/')}{path}", method=method)
    for name in ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date"):
        del request.headers[name]
    for name, value in facts.items():
        request.headers[name] = value
    proxied.sign(request)
    own = [f"{name}: {request.headers[name]}" for name in ("Authorization", "X-Amz-Date")]
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {proxied.server.address}",
        *own,
        *lines,
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", proxied.server.server_address[1]), timeout=PATIENCE) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_the_same_way_of_sending_is_understood_otherwise(proxied: Proxied) -> None:
    """Else the others would be refused for nothing."""
    assert sent(proxied, ["X-Amz-Target: SageMaker.ListModels", f"Content-Type: {JSON}"], b"{}") == 200
    assert sent(proxied, ["X-Amz-Target: SageMaker.ListModels", f"Content-Type: {JSON}; charset=utf-8"], b"{}") == 200
    assert sent(proxied, ["X-Amz-Target:SageMaker.InventedNextYear", "Content-Type: application/x-amz-json-1.0"]) == 200
    assert len(proxied.sagemaker.received) == 3


@pytest.mark.parametrize(
    "target",
    [
        f"{TARGET} ",
        f"{TARGET}\t",
        f" {TARGET} ",
        "SageMaker.CreateTrainingJob\x0b",
        "SageMaker.CreateTrainingJob\x00",
        "SageMaker.CreateTrainingJob\x7f",
        "SageMaker.CreateTrainingJob\xa0",
        "SageMaker.CreateTrainingJob\x85",
        "SageMaker. CreateTrainingJob",
        "SageMaker .CreateTrainingJob",
        "SageMaker.Create TrainingJob",
        "SageMaker.createTrainingJob",
        "SageMaker.CREATETRAININGJOB",
        "SageMaker.CreateTrainingjob",
        "sagemaker.CreateTrainingJob ",
        "SAGEMAKER.createtrainingjob",
        "SageMaker.CreateTrainingJob.",
        "SageMaker.CreateTrainingJob.x",
        "SageMaker.CreateTrainingJob/",
        "SageMaker.CreateTrainingJob;",
        "SageMaker.CreateTrainingJob#x",
        "SageMaker.CreateTrainingJob?x=1",
        "SageMaker.CreateTrainingJob,SageMaker.ListModels",
        "SageMaker.ListModels,SageMaker.CreateTrainingJob",
        "SageMaker.ListModels, SageMaker.CreateTrainingJob",
        '"SageMaker.CreateTrainingJob"',
        "SageMaker.CreateTrainingJob=",
        "SageMaker.Create%54rainingJob",
        "SageMaker#CreateTrainingJob",
        "SageMaker/CreateTrainingJob",
        "com.amazonaws.sagemaker#SageMaker.createTrainingJob",
        "CreateTrainingJob ",
        "createTrainingJob",
        ".createTrainingJob",
        "SageMaker.",
        "",
    ],
)
def test_a_target_that_is_not_spelt_as_it_is(proxied: Proxied, target: str) -> None:
    assert sent(proxied, [f"X-Amz-Target: {target}", f"Content-Type: {JSON}"]) in (400, 403)
    assert not proxied.sagemaker.received


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Amz-Target: SageMaker.ListModels", f"X-Amz-Target: {TARGET}"],
        [f"X-Amz-Target : {TARGET}"],
        [f"X-Amz-Target\t: {TARGET}"],
        ["X-Amz-Target: SageMaker.ListModels", f"X-Amz-Target : {TARGET}"],
        ["X-Amz-Target: SageMaker.ListModels", f"X_Amz_Target: {TARGET}"],
        ["X-Amz-Target: SageMaker.ListModels", f"x-amz-target\x00: {TARGET}"],
        ["X-Amz-Target: SageMaker.ListModels", f" X-Amz-Target: {TARGET}"],
        ["X-Amz-Target:", f" {TARGET}"],
        ["X-Amz-Target: SageMaker.ListModels", f"X-New: 1\rX-Amz-Target: {TARGET}"],
        ["X-New: 1", f" X-Amz-Target: {TARGET}"],
        ["no header", f"X-Amz-Target: {TARGET}"],
    ],
    ids=repr,
)
def test_a_target_in_a_header_that_is_read_in_two_ways(proxied: Proxied, lines: list[str]) -> None:
    for signed in ({"X-Amz-Target": "SageMaker.ListModels"}, {"X-Amz-Target": TARGET}, {}):
        facts = {**signed, "Content-Type": JSON}
        assert sent(proxied, [*lines, f"Content-Type: {JSON}"], signed=facts) in (400, 403)
    assert not proxied.sagemaker.received


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/?Action=CreateTrainingJob&Version=2017-07-24", b"", None),
        ("/?Action=CreateTrainingJob&Version=2017-07-24", BODY, JSON),
        ("/?X-Amz-Target=SageMaker.CreateTrainingJob", BODY, JSON),
        ("/", FORM, "application/x-www-form-urlencoded; charset=utf-8"),
        ("/", FORM, None),
        ("/training-jobs", BODY, "application/json"),
        ("/", BODY, JSON),
        ("/CreateTrainingJob", BODY, JSON),
        ("/service/SageMaker/operation/createTrainingJob", BODY, "application/cbor"),
        ("/service/SageMaker/operation/CreateTrainingJob/", BODY, "application/cbor"),
        ("/service/SageMaker/operation/Create%54rainingJob", BODY, "application/cbor"),
        ("/service/SageMaker/operation/CreateTrainingJob%20", BODY, "application/cbor"),
        ("/service/SageMaker/operation/CreateTrainingJob;x", BODY, "application/cbor"),
        ("/service/SageMaker/operation/./CreateTrainingJob", BODY, "application/cbor"),
        ("/service/SageMaker/operation/ListModels/../CreateTrainingJob", BODY, "application/cbor"),
        ("/service/SageMaker/operations/CreateTrainingJob", BODY, "application/cbor"),
        ("/service/SageMaker/Operation/CreateTrainingJob", BODY, "application/cbor"),
        ("/service/com.amazonaws.SageMaker/operation/createtrainingjob", BODY, "application/cbor"),
        ("//service/SageMaker/operation/CreateTrainingJob?x", BODY, "application/cbor"),
    ],
)
def test_an_operation_that_no_target_names(
    proxied: Proxied, method: str, path: str, body: bytes, kind: str | None
) -> None:
    lines = [f"Content-Type: {kind}"] if kind else []
    assert sent(proxied, lines, body, path=path, method=method) in (400, 403)
    assert sent(proxied, [*lines, "smithy-protocol: rpc-v2-cbor"], body, path=path, method=method) in (400, 403)
    assert not proxied.sagemaker.received


@pytest.mark.parametrize(
    ("path", "lines", "body"),
    [
        ("/service/SageMaker/operation/CreateTrainingJob", [f"Content-Type: {JSON}"], BODY),
        ("/service/SageMaker/operation/CreateTrainingJob", ["Content-Type: application/cbor"], BODY),
        ("/?Action=CreateTrainingJob", [f"Content-Type: {JSON}"], BODY),
        ("/", ["Content-Type: application/x-www-form-urlencoded"], FORM),
        ("/", ["Content-Type: application/cbor", "smithy-protocol: rpc-v2-cbor"], BODY),
        ("/", [f"Content-Type: {JSON}", "smithy-protocol: rpc-v2-cbor"], BODY),
        ("/", [f"Content-Type: {JSON},application/cbor"], BODY),
        ("/", [f"Content-Type: {JSON} application/cbor"], BODY),
        ("/", ["Content-Type: application/x-amz-json-1.1x"], BODY),
        ("/", [f"Content-Type: {JSON}", "X-HTTP-Method-Override: POST"], BODY),
        ("/", [], BODY),
    ],
)
def test_a_harmless_target_beside_another_word_for_it(
    proxied: Proxied, path: str, lines: list[str], body: bytes
) -> None:
    assert sent(proxied, ["X-Amz-Target: SageMaker.ListModels", *lines], body, path=path) in (400, 403)
    assert not proxied.sagemaker.received


def test_the_newer_protocol_passes_for_what_the_queue_does_not_answer(proxied: Proxied) -> None:
    lines = ["Content-Type: application/cbor", "smithy-protocol: rpc-v2-cbor"]
    assert sent(proxied, lines, b"\xa0", path="/service/SageMaker/operation/ListModels") == 200
    assert proxied.passed_on().path == "/prod/service/SageMaker/operation/ListModels"
