"""The local cloud's Session Manager: a forwarded port loses no byte, and a wrong token opens nothing."""

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local_cloud.sagemaker.remote_debug.ends import DATA, OPEN, Forwarding, FrameConnection
from local_cloud.sagemaker.remote_debug.service import SessionService
from tests.local_cloud.emulator import client as client_of
from tests.local_cloud.test_training_container import instance
from tests.waiting import PATIENCE


class AnswersAtOnce(FrameConnection):
    """A connection whose other end sends its first bytes before the announcement of a connection returns."""

    def __init__(self, connected: socket.socket, answer: bytes) -> None:
        super().__init__(connected)
        self.forwarding = Forwarding(self)
        self._answer = answer

    def send(self, kind: int, content: bytes = b"", number: int = 0) -> None:
        super().send(kind, content, number)
        if kind == OPEN:
            answering = threading.Thread(target=self.forwarding.take, args=(DATA, number, self._answer))
            answering.start()
            answering.join(PATIENCE)


def test_bytes_that_a_server_sends_at_once_reach_the_client() -> None:
    ours, theirs = socket.socketpair()
    client, accepted = socket.socketpair()
    with ours, theirs, client:
        client.settimeout(PATIENCE)
        connection = AnswersAtOnce(ours, b"SSH-2.0-server\r\n")
        connection.forwarding.add(1, accepted, announce=True)
        assert client.recv(100) == b"SSH-2.0-server\r\n"


def test_a_token_that_is_not_ascii_closes_the_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = instance(tmp_path, mounted=False)
    with SessionService(lambda job, host: there, None) as service:
        opened = client_of("ssm", service.url).start_session(Target="sagemaker-training-job:job_algo-1")
        port = urlsplit(opened["StreamUrl"]).port
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            connection.sendall("tökén\n".encode())
            assert connection.recv(1) == b""
    assert capsys.readouterr().err == ""
