"""A queue that answers by script, on a real socket, and an environment that holds no one's AWS settings."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.jobs import formatting
from sagemaker_queue.queue.client import QueueClient

ROOT = Path(__file__).parents[2]
# Tests that compare the client with the queue's code, which needs Python 3.11. The client also runs on older versions.
collect_ignore = (
    []
    if sys.version_info >= (3, 11)
    else [
        str(path)
        for path in Path(__file__).parent.rglob("test_*.py")
        if re.search(r"^from job_queue", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
)
NOBODY = "http://127.0.0.1:9"  # refuses connections


@dataclass(frozen=True)
class Received:
    """One request as it came over the wire; ``path`` has the query."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Scripted:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def scripted(status: int, body: object, headers: Mapping[str, str] | None = None) -> Scripted:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Scripted(status, raw, headers or {})


class ScriptedServer(ThreadingHTTPServer):
    """Gives the scripted answers in turn, and keeps every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Received] = []
        self.script: list[Scripted | str] = []
        self.otherwise: Scripted | str = Scripted(418, b'{"message": "script is over"}')
        self.closing = threading.Event()
        self.choosing = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/prod"

    def answers(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        self.script.append(scripted(status, body, headers))

    def always_answers(self, status: int, body: object) -> None:
        """When the script is over."""
        self.otherwise = scripted(status, body)

    def always_hangs_up(self) -> None:
        self.otherwise = "hang up"

    def hangs_up(self) -> None:
        self.script.append("hang up")

    def keeps_silent(self) -> None:
        self.script.append("keep silent")

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of some tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the header's acknowledgement
    server: ScriptedServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.choosing:  # a request is in `received` only when its answer is no longer in the script
            answer = self.server.script.pop(0) if self.server.script else self.server.otherwise
            self.server.received.append(Received(self.command, self.path, self.headers, body))
        if isinstance(answer, str):
            if answer == "keep silent":
                self.server.closing.wait()
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output clean."""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, tmp_path)


def set_environment(patch: pytest.MonkeyPatch, home: Path) -> None:
    """An AWS account that does not exist, and nothing of a real one."""
    for name in os.environ:
        if name.startswith(("AWS_", "SAGEMAKER_")):
            patch.delenv(name)
    settings = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(home),
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",  # for the commands that tests start
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }
    for name, value in settings.items():
        patch.setenv(name, value)


@contextmanager
def serving() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving() as server:
        yield server


@pytest.fixture
def queue(server: ScriptedServer) -> QueueClient:
    return QueueClient(url=server.url, pause_seconds=0)


@pytest.fixture
def address(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)


class _ClockType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Stop the clock of texts such as "2h05m", so that they do not depend on the speed of the machine."""
    stopped = datetime.now(timezone.utc)

    class Clock(datetime, metaclass=_ClockType):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return stopped

    monkeypatch.setattr(formatting, "datetime", Clock)
    return stopped


@pytest.fixture
def s3(tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a client of an S3 with the empty buckets `own` and `sets`, beside the queue and in a folder of the test."""
    import boto3  # noqa: PLC0415  # only where it is asked for: it takes time
    from moto import mock_aws  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    with mock_aws():
        client = boto3.Session(region_name="us-east-1").client("s3")
        for bucket in ("own", "sets"):
            client.create_bucket(Bucket=bucket)
        yield client


@pytest.fixture
def refused_role(sts: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Select an AWS profile whose role the caller may not assume."""
    config = tmp_path / "aws_config"
    config.write_text(
        "[profile ann]\naws_access_key_id = AKIDANN\naws_secret_access_key = secret\n"
        "[profile research]\nrole_arn = arn:aws:iam::123456789012:role/research\nsource_profile = ann\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "research")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    message = "User: ann is not authorized to perform: sts:AssumeRole"
    sts.always_answers(
        403, f"<ErrorResponse><Error><Code>AccessDenied</Code><Message>{message}</Message></Error></ErrorResponse>"
    )


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """AWS's service that says who one is."""
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server
