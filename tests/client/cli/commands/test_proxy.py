"""``smq proxy``: what it says, when it ends, and the program that it runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.run import environment_for, serve
from sagemaker_queue.integrations.proxy.server import Server
from tests.programs import signal_handlers, started
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

SMQ = [sys.executable, "-m", "sagemaker_queue", "proxy"]
# Asks SageMaker through the proxy, as a program that knows nothing of it.
ASK = """
import boto3
print(boto3.client("sagemaker").list_models()["Models"])
"""

pytestmark = pytest.mark.usefixtures("address")


def proxy(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SMQ, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **settings},
    )


def terminate_served(port: int) -> None:
    """Send SIGTERM to this process as soon as a server without an answer has served a connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert connection.recv(1) == b""
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


class TestByItself:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_says_where_it_is_and_ends_when_it_is_told_to(self, number: int) -> None:
        with started([*SMQ, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout and process.stderr
            variable, _, url = process.stdout.readline().strip().partition("=")
            assert variable == "export AWS_ENDPOINT_URL_SAGEMAKER"
            host, _, port = url[len("http://") :].partition(":")
            with socket.create_connection(
                (host, int(port)), timeout=PATIENCE
            ) as connection:  # which it does not wait for
                connection.sendall(b"POST / HTTP/1.1\r\n")
                process.send_signal(number)
                assert process.wait(PATIENCE) == 0
            lines = process.stderr.read().splitlines()
            assert lines == [
                "smq: the proxy is ready. In the environment of your program:",
                "smq: the proxy has ended",
            ]

    def test_it_restores_the_signal_handlers_of_its_caller(self, capsys: pytest.CaptureFixture[str]) -> None:
        before = signal_handlers()
        with Server(0) as server:
            Thread(target=terminate_served, args=(server.server_address[1],)).start()
            assert serve(server) == 0
        assert capsys.readouterr().err.endswith("smq: the proxy has ended\n")
        assert signal_handlers() == before

    def test_a_port_that_is_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = proxy("--port", str(port))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"smq: Port {port} cannot be used: ")
        assert "--port 0 uses any free port" in done.stderr

    def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        done = proxy("--port", "0")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("smq: No AWS credentials were found")

    def test_no_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
        done = proxy("--port", "0")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("smq: No queue is configured")


class TestWithACommand:
    def test_the_command_asks_the_proxy(self, sts: ScriptedServer) -> None:
        """SageMaker is where the proxy's environment says; the program's environment says it is the proxy."""
        sts.answers(200, {"Models": []})
        done = proxy("--", sys.executable, "-c", ASK, AWS_ENDPOINT_URL_SAGEMAKER=sts.url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
        (received,) = sts.received
        assert received.headers["X-Amz-Target"] == "SageMaker.ListModels"

    def test_its_exit_code_and_arguments(self) -> None:
        done = proxy("sh", "-c", 'echo "$@"; exit 7', "sh", "--port", "-h")
        assert (done.returncode, done.stdout, done.stderr) == (7, "--port -h\n", "")

    def test_its_end_by_a_signal(self) -> None:
        assert proxy("--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_signals_reach_it(self, number: int) -> None:
        program = (
            f"import signal, sys; signal.signal({int(number)}, lambda *_: sys.exit(9)); print('on', flush=True); "
            "signal.pause()"
        )
        with started([*SMQ, "--", sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline() == "on\n"
            process.send_signal(number)
            assert process.wait(PATIENCE) == 9

    @pytest.mark.parametrize(("line", "code"), [("#!/bin/sh", 7), ("#!/no/such/interpreter", 126)])
    def test_the_signal_handlers_of_the_caller_are_restored(self, line: str, code: int, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_text(f"{line}\nexit 7\n")
        program.chmod(0o755)
        before = signal_handlers()
        assert main(["proxy", "--", str(program)]) == code
        assert signal_handlers() == before

    def test_no_such_command(self) -> None:
        done = proxy("--", "no-such-command")
        assert (done.returncode, done.stderr) == (127, "smq: there is no command no-such-command\n")

    @pytest.mark.parametrize(
        ("given", "direct"),
        [
            ({}, None),
            ({"NO_PROXY": "internal"}, "internal"),
            ({"HTTP_PROXY": "http://p"}, "127.0.0.1"),
            ({"http_proxy": "http://p", "no_proxy": "internal"}, "internal,127.0.0.1"),
        ],
    )
    def test_another_proxy_is_not_asked_for_this_one(self, given: dict[str, str], direct: str | None) -> None:
        changed = environment_for("127.0.0.1:9", given)
        assert changed["AWS_ENDPOINT_URL_SAGEMAKER"] == "http://127.0.0.1:9"
        assert changed["SAGEMAKER_QUEUE_INSTALL"] == "0", "hooks that ask the proxy would show jobs twice"
        assert changed.get("NO_PROXY") == direct
