"""The built function, alone: the genuine Lambda runtime client invokes it where nothing else is installed."""

import importlib.metadata
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

pytestmark = pytest.mark.thorough

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
RUNTIME_CLIENT = ("awslambdaric", "simplejson", "snapshot-restore-py")
HOST_ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())


def build(artifact: Path, function: str = "QueueFunction", **variables: str) -> Path:
    """Run the makefile as `sam build` does."""
    settings = {"ARTIFACTS_DIR": str(artifact), "PYTHON": sys.executable, **variables}
    subprocess.run(
        ["make", "--makefile", str(ROOT / "job_queue/Makefile"), f"build-{function}"],
        cwd=ROOT,
        env={**os.environ, **settings},
        check=True,
    )
    return artifact


def files(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The function, built for the Python that runs the tests."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return build(tmp_path_factory.mktemp("artifact"), ARCH=HOST_ARCHITECTURE, PYTHON_VERSION=version)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without packages, not even pip."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def runtime_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with awslambdaric and what it needs itself, as Lambda's own image has it."""
    folder = tmp_path_factory.mktemp("runtime-client")
    for name in RUNTIME_CLIENT:
        for file in importlib.metadata.files(name) or []:
            if ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), folder / file)
    return folder


@dataclass
class RuntimeApi:
    """Lambda's Runtime API: gives out events one by one, and takes what becomes of them."""

    events: "queue.Queue[Json | None]" = field(default_factory=queue.Queue)  # None: there will be no more
    outcomes: "queue.Queue[tuple[str, Json]]" = field(default_factory=queue.Queue)  # path it was sent to, JSON

    def handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # noqa: N802  (the name is the base class's)
                event = api.events.get()
                if event is None:  # and nobody is there any more
                    self.close_connection = True
                    return
                deadline = str(int((time.time() + PATIENCE) * 1000))
                function = "arn:aws:lambda:us-east-1:123456789012:function:queue"
                self.answer(
                    200,
                    event,
                    {
                        "Lambda-Runtime-Aws-Request-Id": "request-1",
                        "Lambda-Runtime-Deadline-Ms": deadline,
                        "Lambda-Runtime-Invoked-Function-Arn": function,
                        # The runtime client crashes without these.
                        "Lambda-Runtime-Trace-Id": "Root=1-6740b3a0-000000000000000000000001",
                        "Content-Type": "application/json",
                    },
                )

            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                api.outcomes.put((self.path, json.loads(body)))
                self.answer(202, {"status": "OK"})

            def answer(self, status: int, content: Json, headers: dict[str, str] | None = None) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@dataclass
class Function:
    """The function's process, waiting for events."""

    api: RuntimeApi
    process: "subprocess.Popen[bytes]"

    def invoke(self, event: Json) -> Json:
        """The function's answer to the event."""
        self.api.events.put(event)
        deadline = time.monotonic() + PATIENCE  # a cold start takes about two seconds
        while True:
            try:
                path, outcome = self.api.outcomes.get(timeout=0.2)
                break
            except queue.Empty:
                assert self.process.poll() is None, f"the runtime client ended with {self.process.returncode}"
                assert time.monotonic() < deadline, "no answer"
        assert path.endswith("/invocation/request-1/response"), outcome
        return outcome


@pytest.fixture
def function(artifact: Path, bare_python: Path, runtime_client: Path, tmp_path: Path) -> Iterator[Function]:
    api = RuntimeApi()
    log = tmp_path / "log"
    with ThreadingHTTPServer(("127.0.0.1", 0), api.handler()) as server, log.open("wb") as output:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        process = subprocess.Popen(
            [bare_python, "-m", "awslambdaric", "job_queue.lambda_function.lambda_handler"],
            cwd=artifact,
            env=function_environment(runtime_client, server.server_port),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Function(api, process)
        finally:
            process.kill()
            process.wait()
            api.events.put(None)
            server.shutdown()
            serving.join()
            sys.stdout.write(log.read_text(errors="replace"))  # pytest shows it where a test fails


def function_environment(runtime_client: Path, port: int) -> dict[str, str]:
    return {
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}",
        "AWS_LAMBDA_FUNCTION_NAME": "queue",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/queue",
        "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nobody is there: no call is needed for these answers
        "ALLOWED_ROLE_ARNS": "arn:aws:iam::123456789012:role/training",
        "JOBS_TABLE": "sagemaker-queue",
        "LINES_TABLE": "sagemaker-queue-lines",
        "POWERTOOLS_SERVICE_NAME": "queue",
        "PYTHONPATH": str(runtime_client),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def add_job(body: str) -> Json:
    event: Json = json.loads((ROOT / "events/api-add-job.json").read_text())
    return {**event, "body": body, "isBase64Encoded": False}


def test_there_is_nothing_but_the_runtime_client_to_lean_on(bare_python: Path, runtime_client: Path) -> None:
    for module in ("boto3", "msgspec", "regex", "aws_lambda_powertools", "api_contract", "job_queue"):
        done = subprocess.run(
            [bare_python, "-c", f"import {module}"],
            cwd=runtime_client,
            env={"PYTHONPATH": str(runtime_client)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"No module named '{module}'" in done.stderr


def test_a_body_that_is_not_json_is_refused_by_the_built_function(function: Function) -> None:
    answer = function.invoke(add_job("not JSON"))
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["errors"][0]["code"] == "InvalidRequest"


def test_the_built_function_has_sagemakers_model_of_a_request(function: Function) -> None:
    answer = function.invoke(add_job('{"TrainingJobName": "no name"}'))
    assert answer["statusCode"] == 400
    refusal = json.loads(answer["body"])["errors"][0]
    assert refusal["code"] == "InvalidRequest"
    assert refusal["field"]


def test_what_is_built_is_the_package_and_its_declared_dependencies(artifact: Path) -> None:
    for package in ("api_contract", "job_queue"):
        sources = {path for path in files(ROOT / package) if "__pycache__" not in path.parts}
        assert set(files(artifact / package)) == sources - {Path("Makefile"), Path("requirements.txt")}
    found = {path.name.partition("-")[0] for path in artifact.glob("*.dist-info")}
    assert {"aws_lambda_powertools", "boto3", "msgspec", "regex"} <= found
    assert not found & {"ministack", "moto", "pytest", "requests", "sagemaker", "tabulate"}
    assert not [path for path in files(artifact) if "__pycache__" in path.parts or path.parts[0] == "tests"]


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path, ARCH="sparc")
    assert not files(tmp_path)
