"""A forwarded port of the local cloud's Session Manager: no byte is lost, however fast the server answers."""

import socket
import threading

from local_cloud.sagemaker.remote_debug.ends import DATA, OPEN, Forwarding, FrameConnection
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
