"""The two ends of a session: `python ends.py worker FD WHAT` in the container, where AWS has a process of the SSM
agent, and `python ends.py plugin ...` on the user's side, in place of AWS's session-manager-plugin and with its
arguments.

They are joined by one connection, on which each sends frames: a kind, a number (of the connection to a forwarded port)
and bytes. The protocol is our own: AWS's is between its agent and its plugin. As there, an exit code is not passed on.

It is run by path in other environments than ours: it imports the standard library only.
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
VERSION = "1.2.764.0"  # of the plugin that this one behaves like
WORKER = b"ssm-session-worker"  # what AWS's process is called
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
PR_SET_NAME = 15
_HEAD = struct.Struct(">BII")
_BLOCK = 65536
_CANNOT_RUN = 127


class Connection:
    """Frames on a socket; several threads may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()

    def send(self, kind: int, content: bytes = b"", number: int = 0) -> None:
        """Send a frame; nothing happens where the other end is gone, which `frames` tells."""
        with self._lock, suppress(OSError):
            self._socket.sendall(_HEAD.pack(kind, number, len(content)) + content)

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, number and content of each frame, until the other end is gone."""
        while head := self._read(_HEAD.size):
            kind, number, size = _HEAD.unpack(head)
            content = self._read(size)
            if content is None:
                return
            yield kind, number, content

    def close(self) -> None:
        """End it, for both sides."""
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
    """Connections to a port, each with its number."""

    def __init__(self, other: Connection) -> None:
        self._other = other
        self._open: dict[int, socket.socket] = {}

    def add(self, number: int, connected: socket.socket, *, announce: bool) -> None:
        """Begin to pass on the bytes of a connection; with ``announce``, tell the other end first that it exists.

        The connection is registered before it is announced, because the answer may come at once, and is lost otherwise.
        """
        self._open[number] = connected
        if announce:
            self._other.send(OPEN, b"", number)
        threading.Thread(target=self._copy, args=(number, connected), daemon=True).start()

    def take(self, kind: int, number: int, content: bytes) -> None:
        """Pass on what has come from the other end."""
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


def worker(connection: Connection, what: dict[str, Any]) -> int:
    """Serve a session to its end, or until the user is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, WORKER, 0, 0, 0)
    os.environ["TERM"] = "xterm-256color"
    if what["kind"] == "Port":
        return _serve_port(connection, what["port"])
    if what["kind"] == "NonInteractiveCommands":
        return _serve_command(connection, what["command"])
    return _serve_terminal(connection, what["command"])


def _serve_terminal(connection: Connection, command: list[str]) -> int:
    process, terminal = pty.fork()
    if process == 0:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(_CANNOT_RUN)

    def obey() -> None:
        for kind, _, content in connection.frames():
            if kind == RESIZE:
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, content)
            else:
                with suppress(OSError):
                    os.write(terminal, content)
        with suppress(ProcessLookupError):  # as a terminal that is hung up
            os.killpg(process, signal.SIGHUP)
            os.killpg(process, signal.SIGKILL)

    threading.Thread(target=obey, daemon=True).start()
    with suppress(OSError):  # nobody has the terminal any more
        while block := os.read(terminal, _BLOCK):
            connection.send(DATA, block)
    os.waitpid(process, 0)
    return 0


def _serve_command(connection: Connection, command: list[str]) -> int:
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

    def obey() -> None:
        for _ in connection.frames():
            pass
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    threading.Thread(target=obey, daemon=True).start()
    assert process.stdout is not None
    while block := os.read(process.stdout.fileno(), _BLOCK):
        connection.send(DATA, block)
    process.wait()
    return 0


def _serve_port(connection: Connection, port: int) -> int:
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


# --- where the user is --------------------------------------------------------------------------------


def plugin(arguments: list[str]) -> int:
    """Do what the plugin does, whose exit code says nothing of the command."""
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
    connection = Connection(connected)
    print(f"\nStarting session with SessionId: {name}", flush=True)
    document, parameters = request.get("DocumentName"), request.get("Parameters", {})
    if document == "AWS-StartPortForwardingSession":
        code = _forward(connection, int(parameters["localPortNumber"][0]), name)
    else:
        code = _converse(connection, keys=document != "AWS-StartNonInteractiveCommand")
    print(f"\n\nExiting session with sessionId: {name}.\n", flush=True)
    return code


def _converse(connection: Connection, *, keys: bool) -> int:
    """Pass what is typed there and what is written here, on a raw terminal if this is one."""
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
    """Make a terminal raw; gives what makes it as before."""
    if not stream.isatty():
        return None
    before = termios.tcgetattr(stream.fileno())
    tty.setraw(stream.fileno(), termios.TCSADRAIN)  # what was typed already is for the shell
    return lambda: termios.tcsetattr(stream.fileno(), termios.TCSADRAIN, before)


def _forward(connection: Connection, port: int, name: str) -> int:
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
    """Be one of the two."""
    if arguments[0] == "plugin":
        return plugin(arguments[1:])
    connection = Connection(socket.socket(fileno=int(arguments[1])))
    try:
        return worker(connection, json.loads(arguments[2]))
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
