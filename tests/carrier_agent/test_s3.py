"""The agent's S3: its signatures beside botocore's, and a server that answers as S3 does on a bad day."""

import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from job_queue.carrier_agent import s3 as agent_s3
from job_queue.carrier_agent.s3 import S3, Credentials, CredentialSource, S3Error, signed
from tests.carrier_agent.carrier import BUCKET
from tests.carrier_agent.conftest import KEYS
from tests.waiting import PATIENCE

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


def s3(url: str) -> S3:
    environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": url}
    return S3(CredentialSource(environment), environment)


@pytest.mark.parametrize("token", ["", "a/token+with=signs"])
@pytest.mark.parametrize("key", ["plain", "with space/and+plus/ä~x", "a//b", "in/x-qstamp-1/assign.json"])
@pytest.mark.parametrize("query", ["", "list-type=2&prefix=carriers%2Fa%20b%2F"])
def test_signatures_are_botocores(monkeypatch: pytest.MonkeyPatch, key: str, query: str, token: str) -> None:
    now = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
    seen: list[dict[str, str]] = []

    client = S3(CredentialSource(ENVIRONMENT), ENVIRONMENT)
    _, host, path = client._address("bucket", key)
    headers = {"x-amz-content-sha256": agent_s3.EMPTY, "if-none-match": "*"}
    seen.append(signed("PUT", host, path, query, headers, Credentials("AKID", "secret", token, 0), "us-east-1", now))
    theirs = AWSRequest("PUT", f"https://{host}{path}{'?' + query if query else ''}", headers=headers, data=b"")
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *args, **kwargs: now, raising=False)
    signer = S3SigV4Auth(BotoCredentials("AKID", "secret", token or None), "s3", "us-east-1")
    theirs.context["timestamp"] = "20261120T120000Z"
    theirs.headers["host"] = host
    theirs.headers["x-amz-date"] = "20261120T120000Z"
    if token:
        theirs.headers["x-amz-security-token"] = token
    canonical = signer.canonical_request(theirs)
    signature = signer.signature(signer.string_to_sign(theirs, canonical), theirs)
    assert seen[0]["authorization"].endswith(f"Signature={signature}")


@pytest.fixture
def folder() -> str:
    return uuid4().hex


def test_what_is_there_is_not_written_over(s3_url: str, folder: str) -> None:
    store = s3(s3_url)
    assert store.get(BUCKET, f"{folder}/x", 100) is None
    assert store.put(BUCKET, f"{folder}/x", b"one", new=True)
    assert not store.put(BUCKET, f"{folder}/x", b"two", new=True)
    assert store.get(BUCKET, f"{folder}/x", 100) == b"one"
    with pytest.raises(S3Error):
        store.get(BUCKET, f"{folder}/x", 2)
    store.delete(BUCKET, f"{folder}/x")
    store.delete(BUCKET, f"{folder}/x")
    assert store.get(BUCKET, f"{folder}/x", 100) is None


@pytest.mark.thorough
def test_a_list_has_all_pages_and_strange_names(s3_url: str, folder: str) -> None:
    store = s3(s3_url)
    client = boto3.client("s3", endpoint_url=s3_url, **KEYS)
    names = [f"{folder}/{number:04d}" for number in range(1003)] + [
        f"{folder}/ä b+c&d<e>%20",
        f"{folder}/\x1b[1m\x01\n",
    ]
    for name in names:
        client.put_object(Bucket=BUCKET, Key=name, Body=b"12")
    found = list(store.objects(BUCKET, f"{folder}/"))
    assert sorted(it.key for it in found) == sorted(names)
    assert {it.size for it in found} == {2}


def test_large_files_go_in_parts(s3_url: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_s3, "PART", 5 << 20)
    content = bytes(range(256)) * 45_000  # 11 MiB
    (tmp_path / "large").write_bytes(content)
    store = s3(s3_url)
    assert store.put(BUCKET, f"{folder}/large", tmp_path / "large")
    store.download(BUCKET, f"{folder}/large", tmp_path / "back" / "large")
    assert (tmp_path / "back" / "large").read_bytes() == content
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["large"]


def test_a_bucket_that_is_not_there_is_told_of(s3_url: str) -> None:
    with pytest.raises(S3Error, match="GET s3://no-such-bucket-1/: 404 NoSuchBucket"):
        list(s3(s3_url).objects("no-such-bucket-1", ""))


class BadDay(http.server.BaseHTTPRequestHandler):
    """Answers with what the test says, then with 200."""

    answers: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = self.answers.pop(0) if self.answers else "fine"
        if what == "hangs up":
            self.connection.close()
            return
        if what == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"too short")
            self.wfile.flush()
            self.close_connection = True
            return
        if what.startswith("<"):
            status, body = 200, what.encode()
        elif what == "fine":
            status, body = 200, b"content"
        else:
            status, body = int(what[:3]), f"<Error><Code>{what[4:]}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def bad_day(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(agent_s3, "pause", lambda number: None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BadDay)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        BadDay.answers = []


@pytest.mark.parametrize(
    "answers",
    [["503 SlowDown", "500 InternalError", "hangs up"], ["400 RequestTimeout"], ["cut", "429 TooManyRequests"]],
)
def test_what_may_pass_is_tried_again(bad_day: str, tmp_path: Path, answers: list[str]) -> None:
    BadDay.answers = list(answers)
    s3(bad_day).download("bucket", "key", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert not BadDay.answers


def test_a_refusal_is_told_without_keys(bad_day: str) -> None:
    BadDay.answers = ["403 AccessDenied"] * 20
    with pytest.raises(S3Error) as told:
        s3(bad_day).get("bucket", "key", 100)
    assert str(told.value) == "GET s3://bucket/key: 403 AccessDenied"
    assert len(BadDay.answers) == 19


@pytest.mark.parametrize("abort", ["204 fine", "403 NotAllowed", "503 SlowDown", "hangs up"])
def test_a_failed_part_is_reported_also_if_the_upload_cannot_be_aborted(
    bad_day: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abort: str
) -> None:
    monkeypatch.setattr(agent_s3, "PART", 5)
    (tmp_path / "large").write_bytes(b"content")
    later = ["403 AccessDenied"] * 3
    BadDay.answers = ["<Upload><UploadId>u</UploadId></Upload>", "403 AccessDenied", abort, *later]
    with pytest.raises(S3Error, match="PUT s3://bucket/key: 403 AccessDenied"):
        s3(bad_day).put("bucket", "key", tmp_path / "large")
    assert BadDay.answers == later  # one try to abort


def test_in_aws_the_bucket_is_the_host() -> None:
    for region, bucket, expected in (
        ("eu-west-1", "plain", "plain.s3.eu-west-1.amazonaws.com"),
        ("cn-north-1", "plain", "plain.s3.cn-north-1.amazonaws.com.cn"),
        ("eu-west-1", "with.dot", "s3.eu-west-1.amazonaws.com"),
    ):
        client = S3(CredentialSource(ENVIRONMENT), {"AWS_REGION": region})
        secure, host, _ = client._address(bucket, "key")
        assert (secure, host) == (True, expected)


def test_credentials_of_a_container_are_asked_for_anew_before_they_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    urlopen = urllib.request.urlopen
    # A second try would get other credentials.
    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: urlopen(request, timeout=PATIENCE))

    class Container(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            year = 2020 if len(asked) == 1 else 2100
            keys = {"AccessKeyId": f"A{len(asked)}", "SecretAccessKey": "s", "Token": "t"}
            body = json.dumps({**keys, "Expiration": f"{year}-01-01T00:00:00Z"})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Container)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        (tmp_path / "token").write_text("secret\n")
        source = CredentialSource(
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_port}/c",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            }
        )
        assert [source.get().key for _ in range(3)] == ["A1", "A2", "A2"]
        assert asked == ["secret", "secret"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert urlsplit(agent_s3.METADATA).hostname == "169.254.170.2"


def test_without_credentials_it_says_so() -> None:
    with pytest.raises(S3Error, match="no credentials"):
        CredentialSource({}).get()
