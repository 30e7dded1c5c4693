"""Emulation of Session Manager: it opens shells, commands and forwarded ports in training jobs' containers."""

import json
import logging
import re
import secrets
import shlex
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from local_cloud.aws.permissions import Permissions
from local_cloud.sagemaker.job_processes.instance import Instance
from local_cloud.sagemaker.job_processes.process import launcher
from local_cloud.sagemaker.wire import Api, AwsJsonServer, EmulatedError

_log = logging.getLogger(__name__)

ENDS = Path(__file__).with_name("ends.py").resolve()
_TARGET = re.compile(r"sagemaker-training-job:(?P<job>[a-zA-Z0-9-]{1,63})_(?P<host>algo-[1-9][0-9]*)")
_LONGEST_TOKEN = 200
_KINDS = {
    "SSM-SessionManagerRunShell": "Standard_Stream",
    "AWS-StartInteractiveCommand": "InteractiveCommands",
    "AWS-StartNonInteractiveCommand": "NonInteractiveCommands",
    "AWS-StartPortForwardingSession": "Port",
}

Find = Callable[[str, str], Instance | None]


@dataclass
class _Session:
    id: str
    instance: Instance
    settings: Mapping[str, Any]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(30))
    ended: threading.Event = field(default_factory=threading.Event)


class SessionService:
    """The part of SSM's API that sessions need, on 127.0.0.1.

    As a context manager, the service answers requests until its exit.

    :param find: `find(training_job, host)` returns the instance if a session can be opened on it now, else None.
    :param permissions: the check of callers' permissions; None allows every caller.
    :param user: the prefix of the names of sessions.
    """

    def __init__(self, find: Find, permissions: Permissions | None, user: str = "root") -> None:
        self._user = user
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.Lock()
        self._number = 0
        self.api = self.api_for(find, permissions)
        self.server = AwsJsonServer(self.api)
        self._streams = _Streams(self._serve)
        self.url = self.server.url

    def __enter__(self) -> Self:
        for server, name in ((self.server, "ssm"), (self._streams, "sessions")):
            threading.Thread(target=server.serve_forever, args=(0.05,), name=name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self._streams.shutdown()
        self._streams.server_close()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.ended.set()

    def api_for(self, find: Find, permissions: Permissions | None) -> Api:
        """Return the API for the training jobs of one site; the arguments are as for this class."""

        def handle(operation: str, request: dict[str, Any]) -> dict[str, Any]:
            return self._handle(operation, request, find)

        return Api(handle, permissions.check) if permissions else Api(handle)

    def _handle(self, operation: str, request: dict[str, Any], find: Find) -> dict[str, Any]:
        if operation == "StartSession":
            return self._start(request, find)
        if operation == "TerminateSession":
            return self._terminate(str(request.get("SessionId")))
        raise EmulatedError("UnknownOperationException", f"{operation} of SSM is not emulated in the local cloud.")

    def _start(self, request: dict[str, Any], find: Find) -> dict[str, Any]:
        target = str(request.get("Target"))
        match = _TARGET.fullmatch(target)
        settings = _session_settings(request)
        instance = find(match["job"], match["host"]) if match else None
        if instance is None:
            raise EmulatedError("TargetNotConnected", f"{target} is not connected.")
        session = _Session(f"{self._user}-{secrets.token_hex(8)}", instance, settings)
        with self._lock:
            self._sessions[session.id] = session
        port = self._streams.server_address[1]
        stream = f"ws://127.0.0.1:{port}/{session.id}"
        return {"SessionId": session.id, "TokenValue": session.token, "StreamUrl": stream}

    def _terminate(self, session_id: str) -> dict[str, Any]:
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session:
            session.ended.set()
        return {"SessionId": session_id}

    def _serve(self, token: bytes, descriptor: int) -> None:
        """Run a session on a connection. Return when the session's process has ended."""
        with self._lock:
            opened = [one for one in self._sessions.values() if secrets.compare_digest(one.token.encode(), token)]
            session = self._sessions.get(opened[0].id) if opened else None
            if session:
                session.token = secrets.token_urlsafe(30)  # a token opens only one connection
        if session is None:
            return
        instance = session.instance
        with self._lock:
            self._number += 1
            stage = instance.stage.with_name(f"{instance.stage.name}-session-{self._number}")
        stage.mkdir(parents=True)
        command = [sys.executable, "-I", "-S", str(ENDS), "worker", str(descriptor), json.dumps(session.settings)]
        process = subprocess.Popen(
            launcher(instance.mounts, stage, instance.cwd, command),
            env=instance.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )
        while process.poll() is None:
            if session.ended.wait(0.05):
                process.kill()
        with self._lock:
            self._sessions.pop(session.id, None)


def write_plugin(folder: Path) -> Path:
    """Write the substitute for AWS's session-manager-plugin into a folder and return the path of the program."""
    folder.mkdir(exist_ok=True)
    program = folder / "session-manager-plugin"
    words = [sys.executable, "-I", "-S", str(ENDS), "plugin"]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    return program


def _session_settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for the session's process in the container; see `ends.worker`."""
    document = request.get("DocumentName") or "SSM-SessionManagerRunShell"
    parameters = request.get("Parameters") or {}
    if document not in _KINDS:
        raise EmulatedError("InvalidDocument", f"Document with name {document} does not exist.")
    kind = _KINDS[document]
    if kind == "Port":
        port = "".join(parameters.get("portNumber", ["80"]))
        if not (port.isdecimal() and 1 <= int(port) <= 65535):
            raise EmulatedError("InvalidParameters", f"Parameter portNumber has an invalid value {port}.")
        return {"kind": kind, "port": int(port)}
    words = shlex.split("".join(parameters.get("command", [])))  # as AWS's agent splits the text
    if kind == "NonInteractiveCommands" and not words:
        raise EmulatedError("InvalidParameters", "Parameter command is required.")
    return {"kind": kind, "command": words or ["sh"]}


class _Streams(socketserver.ThreadingTCPServer):
    """The server to which plugins connect. The first line from each plugin is the token of its session."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, serve: Callable[[bytes, int], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Stream)
        self.serve = serve


class _Stream(socketserver.BaseRequestHandler):
    server: _Streams

    def handle(self) -> None:
        token = b""
        while not token.endswith(b"\n") and len(token) < _LONGEST_TOKEN:
            letter = self.request.recv(1)  # the bytes after the line are for the session's process
            if not letter:
                return
            token += letter
        self.server.serve(token.strip(), self.request.fileno())
