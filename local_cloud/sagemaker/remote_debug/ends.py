"""The two ends of a remote debug session: the process in the container and the plugin on the user's side.

`python ends.py worker FD SESSION` runs in the container, in place of a process of AWS's SSM agent. SESSION is JSON, see
`worker`. `python ends.py plugin ...` runs on the user's side, in place of AWS's session-manager-plugin and with its
arguments.

One connection joins the two ends. Each end sends frames: a kind, a number (of the connection to a forwarded port) and
bytes. The protocol is our own, because AWS's protocol is private to its agent and its plugin. As on AWS, exit codes are
not passed on.

The module is run by its path, in other Python environments than ours. Therefore the module imports only the standard
library.
"""

import ctypes
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

DATA, RESIZE, OPEN, CLOSE = range(4)
VERSION = "1.2.764.0"  # the version of AWS's plugin whose behaviour is emulated
WORKER = b"ssm-session-worker"  # the name of AWS's process
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
PR_SET_NAME = 15
_HEAD = struct.Struct(">BII")
_BLOCK = 65536
_CANNOT_RUN = 127


class FrameConnection:
    """A connection that carries frames on a socket. Several threads may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()

    def send(self, kind: int, content: bytes = b"", number: int = 0) -> None:
        """Send a frame. Do nothing if the connection is closed, because `frames` ends then."""
        with self._lock, suppress(OSError):
            self._socket.sendall(_HEAD.pack(kind, number, len(content)) + content)

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, number and content of each frame, until the other end closes the connection."""
        while head := self._read(_HEAD.size):
            kind, number, size = _HEAD.unpack(head)
            content = self._read(size)
            if content is None:
                return
            yield kind, number, content

    def close(self) -> None:
        """Close the connection for both ends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytes | None:
        content = b""
        while len(content) < size:
            try:
                block = self._socket.recv(size - len(content))
            except OSError:
                return None
            if not block:
                return None
            content += block
        return content


class Forwarding:
    """Connections to a forwarded port, each with its number."""

    def __init__(self, other: FrameConnection) -> None:
        self._other = other
        self._open: dict[int, socket.socket] = {}

    def add(self, number: int, connected: socket.socket, *, announce: bool) -> None:
        """Start to pass on the bytes of a connection. With `announce`, send an OPEN frame for the connection first.

        The connection is registered before it is announced: the answer may come at once, and would otherwise be lost.
        """
        self._open[number] = connected
        if announce:
            self._other.send(OPEN, b"", number)
        threading.Thread(target=self._copy, args=(number, connected), daemon=True).start()

    def take(self, kind: int, number: int, content: bytes) -> None:
        """Write the content of a frame to its connection, or close the connection. Ignore unknown connections."""
        connected = self._open.get(number)
        if connected is None:
            return
        with suppress(OSError):
            if kind == CLOSE:
                self._open.pop(number).shutdown(socket.SHUT_RDWR)
            else:
                connected.sendall(content)

    def _copy(self, number: int, connected: socket.socket) -> None:
        with connected, suppress(OSError):
            while block := connected.recv(_BLOCK):
                self._other.send(DATA, block, number)
        self._other.send(CLOSE, b"", number)


# --- in the container ---------------------------------------------------------------------------------


def worker(connection: FrameConnection, session: dict[str, Any]) -> int:
    """Serve a session until it ends or the user's side closes the connection. Return the exit code of this process.

    :param session: `kind`, and `port` for the kind `Port` or `command` for any other kind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, WORKER, 0, 0, 0)
    os.environ["TERM"] = "xterm-256color"
    if session["kind"] == "Port":
        return _serve_port(connection, session["port"])
    if session["kind"] == "NonInteractiveCommands":
        return _serve_command(connection, session["command"])
    return _serve_terminal(connection, session["command"])


def _serve_terminal(connection: FrameConnection, command: list[str]) -> int:
    process, terminal = pty.fork()
    if process == 0:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(_CANNOT_RUN)

    def receive() -> None:
        for kind, _, content in connection.frames():
            if kind == RESIZE:
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, content)
            else:
                with suppress(OSError):
                    os.write(terminal, content)
        with suppress(ProcessLookupError):  # as when a terminal hangs up
            os.killpg(process, signal.SIGHUP)
            os.killpg(process, signal.SIGKILL)

    threading.Thread(target=receive, daemon=True).start()
    with suppress(OSError):  # raised when the last process has closed the terminal
        while block := os.read(terminal, _BLOCK):
            connection.send(DATA, block)
    os.waitpid(process, 0)
    return 0


def _serve_command(connection: FrameConnection, command: list[str]) -> int:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        connection.send(DATA, f"{command[0]}: {error.strerror}\n".encode())
        return 0

    def kill_at_close() -> None:
        for _ in connection.frames():
            pass
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    threading.Thread(target=kill_at_close, daemon=True).start()
    assert process.stdout is not None
    while block := os.read(process.stdout.fileno(), _BLOCK):
        connection.send(DATA, block)
    process.wait()
    return 0


def _serve_port(connection: FrameConnection, port: int) -> int:
    forwarding = Forwarding(connection)
    for kind, number, content in connection.frames():
        if kind == OPEN:
            try:
                forwarding.add(number, socket.create_connection(("127.0.0.1", port)), announce=False)
            except OSError:
                connection.send(CLOSE, f"Connection to destination port {port} failed".encode(), number)
        else:
            forwarding.take(kind, number, content)
    return 0


# --- on the user's side -------------------------------------------------------------------------------


def plugin(arguments: list[str]) -> int:
    """Run a session with the arguments and output of AWS's plugin. Return 1 if the session cannot begin, else 0."""
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    opened = json.loads(os.environ[RESPONSE] if arguments[0] == RESPONSE else arguments[0])
    request = json.loads(arguments[4])
    place, name = opened["StreamUrl"].partition("://")[2].split("/", 1)
    host, _, port = place.partition(":")
    try:
        connected = socket.create_connection((host, int(port)))
    except OSError as error:
        print(f"Cannot perform start session: {error}")
        return 1
    connected.sendall(f"{opened['TokenValue']}\n".encode())
    connection = FrameConnection(connected)
    print(f"\nStarting session with SessionId: {name}", flush=True)
    document, parameters = request.get("DocumentName"), request.get("Parameters", {})
    if document == "AWS-StartPortForwardingSession":
        code = _forward(connection, int(parameters["localPortNumber"][0]), name)
    else:
        code = _relay(connection, keys=document != "AWS-StartNonInteractiveCommand")
    print(f"\n\nExiting session with sessionId: {name}.\n", flush=True)
    return code


def _relay(connection: FrameConnection, *, keys: bool) -> int:
    """Write the session's output to standard output. With `keys`, also send the input, and make a terminal raw."""
    signal.signal(signal.SIGINT, lambda *_: connection.close())
    restore = _raw(sys.stdin) if keys else None
    output = sys.stdout.buffer

    def resize(*_: object) -> None:
        connection.send(RESIZE, fcntl.ioctl(sys.stdin.fileno(), termios.TIOCGWINSZ, bytes(8)))

    def read() -> None:
        while typed := os.read(sys.stdin.fileno(), _BLOCK):
            connection.send(DATA, typed)

    if keys:
        if restore:
            resize()
            signal.signal(signal.SIGWINCH, resize)
        threading.Thread(target=read, daemon=True).start()
    try:
        for _, _, content in connection.frames():
            output.write(content)
            output.flush()
    finally:
        if restore:
            restore()
    return 0


def _raw(stream: IO[str]) -> Callable[[], None] | None:
    """Make a terminal raw and return a function that restores it. Return None if the stream is not a terminal."""
    if not stream.isatty():
        return None
    before = termios.tcgetattr(stream.fileno())
    tty.setraw(stream.fileno(), termios.TCSADRAIN)  # keeps the input that is already typed, for the shell
    return lambda: termios.tcsetattr(stream.fileno(), termios.TCSADRAIN, before)


def _forward(connection: FrameConnection, port: int, name: str) -> int:
    try:
        server = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        print(f"Unable to start tcp listener: listen tcp 127.0.0.1:{port}: {error.strerror}")
        return 1
    print(f"Port {server.getsockname()[1]} opened for sessionId {name}.\nWaiting for connections...", flush=True)
    forwarding = Forwarding(connection)
    ended, wake = socket.socketpair()

    def listen() -> None:
        for kind, number, content in connection.frames():
            forwarding.take(kind, number, content)
            if kind == CLOSE and content:
                print(content.decode(), flush=True)
        wake.close()

    threading.Thread(target=listen, daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: connection.close())
    number = 0
    with server:
        while ended not in (ready := select.select([server, ended], [], [])[0]):
            if server in ready:
                number += 1
                forwarding.add(number, server.accept()[0], announce=True)
    return 0


def main(arguments: list[str]) -> int:
    """Run as the plugin or as the worker, as the first argument says. Return the exit code."""
    if arguments[0] == "plugin":
        return plugin(arguments[1:])
    connection = FrameConnection(socket.socket(fileno=int(arguments[1])))
    try:
        return worker(connection, json.loads(arguments[2]))
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
