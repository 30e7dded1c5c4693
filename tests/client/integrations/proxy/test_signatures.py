"""Whom the proxy answers: programs of its own user, and nobody else on the machine or on the web."""

from __future__ import annotations

import hashlib
import http.client
import socket
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials

from sagemaker_queue.integrations.proxy.messages import ProxyRefusal, Request
from sagemaker_queue.integrations.proxy.server import MOST_BYTES
from sagemaker_queue.integrations.proxy.signature import verified
from tests.client.integrations.proxy.proxied import KEY, SECRET, Proxied, said
from tests.waiting import PATIENCE

pytestmark = pytest.mark.attack


@pytest.fixture(autouse=True)
def nothing_is_passed_on(proxied: Proxied) -> Any:
    yield
    assert not proxied.sagemaker.received and not proxied.queue.received


class TestTheSignature:
    def test_none(self, proxied: Proxied) -> None:
        request = proxied.signed()
        del request.headers["Authorization"]
        assert said(proxied.send(request)) == (403, "MissingAuthenticationTokenException")

    @pytest.mark.parametrize(
        "authorization",
        [
            "Basic YWRtaW46YWRtaW4=",
            "AWS4-ECDSA-P256-SHA256 Credential=A/20261122/sagemaker/aws4_request, SignedHeaders=host, Signature=00",
            "AWS4-HMAC-SHA256 Credential=A/20261122/eu-west-1/sagemaker/aws4_request, SignedHeaders=, Signature=00",
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 ,,,",
        ],
    )
    def test_another_kind(self, proxied: Proxied, authorization: str) -> None:
        sent = proxied.send(proxied.signed(), Authorization=authorization)
        assert said(sent) == (400, "IncompleteSignatureException")

    def test_a_key_that_is_not_the_users(self, proxied: Proxied) -> None:
        sent = proxied.send(proxied.signed(key="AKIDOTHER"))
        assert said(sent) == (400, "UnrecognizedClientException")
        assert "does not know the key AKIDOTHER" in sent.json()["message"]

    def test_the_users_key_without_its_secret(self, proxied: Proxied) -> None:
        sent = proxied.send(proxied.signed(secret="guessed"))
        assert said(sent) == (400, "InvalidSignatureException")
        assert sent.json()["message"].startswith("The request signature we calculated does not match the signature")

    def test_a_session_token_that_does_not_belong_to_the_key(self, proxied: Proxied) -> None:
        assert said(proxied.send(proxied.signed(token="T"))) == (400, "UnrecognizedClientException")

    def test_another_body(self, proxied: Proxied) -> None:
        request = proxied.signed("StopTrainingJob", b'{"TrainingJobName": "job1"}')
        request.data = b'{"TrainingJobName": "job2"}'
        assert said(proxied.send(request)) == (400, "InvalidSignatureException")

    def test_another_body_than_the_hash_that_was_signed(self, proxied: Proxied) -> None:
        digest = hashlib.sha256(b"{}").hexdigest()
        request = proxied.signed(headers={"X-Amz-Content-SHA256": digest})
        request.data = b'{"MaxResults": 1}'
        assert said(proxied.send(request)) == (400, "InvalidSignatureException")

    def test_a_body_that_is_not_signed(self, proxied: Proxied) -> None:
        request = proxied.signed(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
        assert said(proxied.send(request)) == (400, "InvalidSignatureException")

    @pytest.mark.parametrize("header", ["X_Amz_Target", "Content_Type"])
    def test_another_header(self, proxied: Proxied, header: str) -> None:
        sent = proxied.send(proxied.signed(), **{header: "SageMaker.DeleteModel"})
        assert said(sent) == (400, "InvalidSignatureException")

    def test_a_header_that_is_not_signed(self, proxied: Proxied) -> None:
        sent = proxied.send(proxied.signed(), **{"x-amz-more": "1"})
        assert said(sent) == (400, "InvalidSignatureException")
        assert sent.json()["message"] == "The header x-amz-more must be signed."

    def test_another_path(self, proxied: Proxied) -> None:
        request = proxied.signed()
        request.url = f"{proxied.url}elsewhere"
        assert said(proxied.send(request)) == (400, "InvalidSignatureException")

    def test_for_another_service(self, proxied: Proxied) -> None:
        sent = proxied.send(proxied.signed(service="s3"))
        assert said(sent) == (400, "InvalidSignatureException")
        assert sent.json()["message"] == "Credential should be scoped to correct service: 'sagemaker'."

    def test_for_another_proxy_of_the_user(self, proxied: Proxied) -> None:
        """Who listens at the port that a program was told by mistake cannot have this one do what it asked for."""
        request = proxied.signed(url="http://127.0.0.1:9/")
        request.url = proxied.url
        assert said(proxied.send(request, Host=proxied.server.address)) == (400, "InvalidSignatureException")


def request_of(sent: datetime) -> Request:
    made = AWSRequest("POST", "http://127.0.0.1:8762/", data=b"{}", headers={"Host": "127.0.0.1:8762"})
    credentials: Any = Credentials(KEY, SECRET)
    signer: Any = SigV4Auth(credentials, "sagemaker", "eu-west-1")
    made.context["timestamp"] = made.headers["X-Amz-Date"] = sent.strftime("%Y%m%dT%H%M%SZ")
    signature = signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)
    signer._inject_signature_to_request(made, signature)
    return Request("POST", "/", made.headers, b"{}")


class TestItsTime:
    @pytest.mark.parametrize(
        ("minutes", "reason"),
        [
            (-14.9, None),
            (14.9, None),
            (-15.1, "Signature expired: 20261122T114454Z is now earlier than 20261122T114500Z "),
            (15.1, "Signature not yet current: 20261122T121506Z is still later than 20261122T121500Z "),
        ],
    )
    def test_a_quarter_of_an_hour(self, minutes: float, reason: str | None) -> None:
        now = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
        request = request_of(now + timedelta(minutes=minutes))

        def find(key: str) -> ReadOnlyCredentials:
            return ReadOnlyCredentials(key, SECRET, None)

        if reason is None:
            assert verified(request, find, now).region == "eu-west-1"
            return
        with pytest.raises(ProxyRefusal) as refusal:
            verified(request, find, now)
        assert refusal.value.code == "InvalidSignatureException"
        assert str(refusal.value).startswith(reason)

    def test_a_time_that_the_key_was_not_made_for(self, proxied: Proxied) -> None:
        now = datetime.now(timezone.utc)
        sent = proxied.send(proxied.signed(), X_Amz_Date=(now + timedelta(minutes=1)).strftime("%Y%m%dT%H%M%SZ"))
        assert said(sent) == (400, "InvalidSignatureException")

    def test_a_day_that_is_not_the_keys(self, proxied: Proxied) -> None:
        request = proxied.signed()
        day = str(request.headers["X-Amz-Date"])[:8]
        another = str(request.headers["Authorization"]).replace(f"/{day}/", "/20200101/")
        sent = proxied.send(request, Authorization=another)
        assert said(sent) == (400, "InvalidSignatureException")
        assert sent.json()["message"].startswith("Date in Credential scope does not match")

    def test_no_time(self, proxied: Proxied) -> None:
        assert said(proxied.send(proxied.signed(), X_Amz_Date="now")) == (400, "IncompleteSignatureException")


class TestWebPages:
    def test_a_page_that_has_its_name_mean_this_machine(self, proxied: Proxied) -> None:
        """DNS rebinding: the browser believes that the proxy is the page's own server."""
        port = proxied.server.address.partition(":")[2]
        for host in (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{port}.evil.example", ""):
            sent = proxied.send(proxied.signed(), Host=host)
            assert said(sent) == (403, "AccessDeniedException")
            assert sent.headers["Connection"] == "close"

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:8762"])
    @pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
    def test_a_page_that_asks_the_browser_to_send(self, proxied: Proxied, origin: str, method: str) -> None:
        sent = proxied.send(proxied.signed(method=method), Origin=origin)
        assert said(sent) == (403, "AccessDeniedException")
        assert not any(name.lower().startswith("access-control-") for name in sent.headers)

    def test_a_proxy_is_not_for_other_addresses(self, proxied: Proxied) -> None:
        connection = http.client.HTTPConnection(proxied.server.address)
        connection.request("POST", "http://169.254.169.254/latest", headers={"Host": proxied.server.address})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["x-amzn-ErrorType"]) == (403, "AccessDeniedException")
        answer.read()
        connection.close()

    def test_from_the_network(self, proxied: Proxied) -> None:
        assert proxied.server.server_address[0] == "127.0.0.1"
        with socket.socket() as other:
            # What listens on all addresses would have this one, too.
            other.bind(("127.0.0.2", proxied.server.server_address[1]))


class TestSizes:
    def raw(self, proxied: Proxied, *headers: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send headers as they are, and read what comes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", proxied.server.server_address[1]), timeout=PATIENCE) as connection:
            lines = ["POST / HTTP/1.1", f"Host: {proxied.server.address}", *headers, "", ""]
            connection.sendall("\r\n".join(lines).encode() + body)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            content = answer.read()
            assert connection.recv(1) == b"", "it goes on with a connection of which it has not read all"
            return answer.status, content

    def test_a_body_too_large_is_not_read(self, proxied: Proxied) -> None:
        status, body = self.raw(proxied, f"Content-Length: {MOST_BYTES + 1}")
        assert status == 413 and b"RequestEntityTooLargeException" in body
        assert self.raw(proxied, "Content-Length: " + "9" * 5000)[0] == 413

    @pytest.mark.parametrize("length", ["-1", "1e3", "٣", "0x10", "1, 2", ""])
    def test_a_length_that_is_none(self, proxied: Proxied, length: str) -> None:
        assert self.raw(proxied, f"Content-Length: {length}")[0] == 400

    def test_one_request_in_another(self, proxied: Proxied) -> None:
        chunk = b"0\r\n\r\n"
        assert self.raw(proxied, "Transfer-Encoding: chunked", "Content-Length: 5", body=chunk)[0] == 411
        assert self.raw(proxied, "Content-Length: 5", "Content-Length: 6", body=chunk)[0] == 400

    @pytest.mark.parametrize("name", ["Host", "X-Amz-Target", "Authorization", "X-Amz-Security-Token"])
    def test_a_header_twice(self, proxied: Proxied, name: str) -> None:
        assert self.raw(proxied, f"{name}: a", f"{name}: b")[0] == 400

    def test_a_body_that_never_comes(self, proxied: Proxied) -> None:
        with socket.create_connection(("127.0.0.1", proxied.server.server_address[1]), timeout=PATIENCE) as connection:
            connection.sendall(
                f"POST / HTTP/1.1\r\nHost: {proxied.server.address}\r\nContent-Length: 9\r\n\r\n{{".encode()
            )
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
