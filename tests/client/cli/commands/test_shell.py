"""``smq shell`` and ``submit --interactive``: what is refused, what is sent, and what is said at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.workflows.remote_shell import job_sessions
from tests.client.conftest import ScriptedServer
from tests.client.samples import DETAIL, Job

TRAINING = {"SecondaryStatus": "Training"}
ATTEMPT = {"attempt": 1, "trainingJobName": "job1-qstamp-1", "started": "2026-11-21T10:00:05Z", "instances": 2}
OPENED = {"SessionId": "ann-1", "TokenValue": "secret", "StreamUrl": "wss://x"}


def open_job(**more: Any) -> Job:
    """A job that runs and can be entered."""
    request = {**DETAIL["request"], "RemoteDebugConfig": {"EnableRemoteDebug": True}}  # type: ignore[dict-item]
    return {**DETAIL, "state": "running", "position": None, "attempts": [ATTEMPT], "request": request, **more}


class Aws(ThreadingHTTPServer):
    """SageMaker and Session Manager, with an answer for each operation."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: dict[str, list[tuple[int, dict[str, Any]]]] = {
            "DescribeTrainingJob": [(200, TRAINING)],
            "StartSession": [(200, OPENED)],
            "TerminateSession": [(200, {})],
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []


class _Answer(BaseHTTPRequestHandler):
    server: Aws

    def do_POST(self) -> None:
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        self.server.asked.append((operation, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        answers = self.server.answers[operation]
        status, content = answers.pop(0) if len(answers) > 1 else answers[0]
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output clean."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    with Aws() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for service in ("SSM", "SAGEMAKER"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setattr(job_sessions, "POLL_SECONDS", 0.01)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: None) -> Path:
    """A plugin that writes down how it was called, and ends with 0."""
    path = tmp_path / "plugin"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 1.2.764.0\necho "$5" > {tmp_path}/called\n')
    path.chmod(0o755)
    monkeypatch.setenv("SAGEMAKER_QUEUE_SESSION_PLUGIN", str(path))
    return path


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ({**DETAIL, "state": "failed"}, 1, "job1 has finished (failed), so no shell can be opened in it."),
        (DETAIL, 1, "job1 does not run: it is preempted. To wait for it: --follow"),
        (
            {**DETAIL, "gpus": 0.5, "carrier": "carrier--nlp--ann--x1"},
            2,
            "job1 shares an instance, and a shell in it would also give access to other jobs, so no shell can be"
            " opened. Its log: smq logs job1. A job with a whole instance can be entered:"
            " smq submit --interactive, without --gpus.",
        ),
        (open_job(gpus=1), 2, "job1 shares an instance"),
        (
            {**DETAIL, "carries": 8},
            2,
            "job1 is an instance that jobs share, and a shell would give access to all of them, so no shell can be"
            " opened. A job with a whole instance",
        ),
        (open_job(state="pending", attempts=[]), 1, "job1 does not run: it is pending. To wait for it: --follow"),
        (
            open_job(request={"RemoteDebugConfig": {"EnableRemoteDebug": True}, "EnableNetworkIsolation": True}),
            2,
            "EnableNetworkIsolation, which isolates its container",
        ),
    ],
)
def test_who_cannot_be_entered(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], answer: Job, code: int, said: str
) -> None:
    server.always_answers(200, answer)
    assert main(["shell", "job1"]) == code
    assert said in capsys.readouterr().err


def test_the_instances_are_those_of_the_attempt(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.always_answers(200, open_job(instances=8))  # it asked for more than it got
    assert main(["shell", "job1", "--instance", "3"]) == 3
    assert "job1 has no instance algo-3; its instances: algo-1 to algo-2." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        ([], "AWS-StartInteractiveCommand"),
        (["--forward", "8888:9999"], "AWS-StartPortForwardingSession"),
        (["--", "nvidia-smi", "-L"], "AWS-StartNonInteractiveCommand"),
    ],
)
def test_a_session_is_asked_for(
    aws: Aws, server: ScriptedServer, tmp_path: Path, arguments: list[str], document: str
) -> None:
    server.always_answers(200, open_job())
    code = main(["shell", "job1", "--instance", "2", *arguments])
    request = dict(aws.asked)["StartSession"]
    assert (request["Target"], request["DocumentName"]) == ("sagemaker-training-job:job1-qstamp-1_algo-2", document)
    if "--forward" in arguments:
        assert request["Parameters"] == {"portNumber": ["8888"], "localPortNumber": ["9999"]}
    else:
        assert request["Parameters"]["command"][0].startswith("/bin/sh -c ")
    assert (tmp_path / "called").exists()
    assert code == (1 if "--" in arguments else 0)  # that plugin tells no command's exit code


def test_a_container_is_waited_for_and_its_silence_explained(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.always_answers(200, open_job())
    aws.answers["DescribeTrainingJob"] = [(200, {"SecondaryStatus": "Downloading"}), (200, TRAINING)]
    silent = (400, {"__type": "TargetNotConnected", "message": "not connected"})
    aws.answers["StartSession"] = [silent, (200, OPENED)]
    assert main(["shell", "job1"]) == 0
    assert "cannot be entered yet (Downloading)" in capsys.readouterr().err
    aws.answers["StartSession"] = [silent]
    monkeypatch.setattr(job_sessions, "CONNECT_SECONDS", -1.0)
    assert main(["shell", "job1"]) == 1
    said = capsys.readouterr().err
    assert "has not connected" in said and "ssmmessages:CreateControlChannel" in said
    assert "job1-qstamp-1/algo-1-.../ssm" in said


def plain_job(**more: Any) -> Job:
    """A job that runs, and whose request did not ask for remote debugging."""
    return open_job(request=DETAIL["request"], **more)


def changes(server: ScriptedServer) -> list[Any]:
    """The bodies of the requests that change the job."""
    return [json.loads(it.body) for it in server.received if it.method == "PATCH"]


def test_remote_debugging_is_enabled_once_and_said(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.always_answers(200, plain_job())
    early, starting = (200, {"SecondaryStatus": "Pending"}), (200, {"SecondaryStatus": "Starting"})
    aws.answers["DescribeTrainingJob"] = [early, starting, (200, TRAINING)]
    silent = (400, {"__type": "TargetNotConnected", "message": "not connected"})
    aws.answers["StartSession"] = [silent, silent, (200, OPENED)]
    assert main(["shell", "job1"]) == 0
    assert changes(server) == [{"remoteDebug": True}]
    said = capsys.readouterr().err
    assert "a shell cannot be enabled yet (Pending)" in said
    assert "which is now enabled for its running attempt job1-qstamp-1, until the attempt ends" in said
    assert [operation for operation, _ in aws.asked].count("StartSession") == 3


def test_an_attempt_that_has_remote_debugging_already_is_not_changed(aws: Aws, server: ScriptedServer) -> None:
    model: Any = botocore.session.get_session().get_service_model("sagemaker")
    if "RemoteDebugConfig" not in model.operation_model("DescribeTrainingJob").output_shape.members:
        pytest.skip("this version of boto3 does not know RemoteDebugConfig")
    server.always_answers(200, plain_job())
    enabled = {**TRAINING, "RemoteDebugConfig": {"EnableRemoteDebug": True}}
    aws.answers["DescribeTrainingJob"] = [(200, enabled)]
    assert main(["shell", "job1"]) == 0
    assert changes(server) == []


def test_a_refusal_to_enable_it_ends_the_command(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, plain_job())
    message = "job1 belongs to bob; only its owner, an admin of its project vision or an admin of the queue may enable"
    error = {"code": "Forbidden", "field": None, "message": message, "remedy": "Ask one of them."}
    server.always_answers(403, {"errors": [error]})
    assert main(["shell", "job1"]) == 1
    assert message in capsys.readouterr().err
    assert "StartSession" not in dict(aws.asked)


def test_a_job_that_ends_before_it_can_be_enabled(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": "Conflict", "field": None, "message": "SageMaker does not enable it.", "remedy": None}
    server.answers(200, plain_job())
    server.answers(409, {"errors": [error]})
    server.always_answers(200, {**DETAIL, "state": "completed"})
    assert main(["shell", "job1"]) == 1
    assert "job1 has finished (completed), so no shell can be opened in it." in capsys.readouterr().err
    for _ in range(2):
        server.answers(200, plain_job())
        server.answers(409, {"errors": [error]})
    monkeypatch.setattr(job_sessions, "CONNECT_SECONDS", -1.0)
    assert main(["shell", "job1"]) == 1
    assert "SageMaker has not permitted" in capsys.readouterr().err


def test_a_refusal_names_the_right_that_lacks(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.always_answers(200, open_job())
    aws.answers["StartSession"] = [
        (400, {"__type": "AccessDeniedException", "message": "User: ann is not authorized."})
    ]
    assert main(["shell", "job1", "--", "true"]) == 1
    said = capsys.readouterr().err
    assert "You may not open a session in job1: User: ann is not authorized." in said
    assert "the document AWS-StartNonInteractiveCommand" in said


def test_an_attempt_that_ended_meanwhile_is_told(
    aws: Aws, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {**ATTEMPT, "outcome": "preempted", "ended": "2026-11-21T10:04:00Z"}
    server.answers(200, open_job())
    server.always_answers(200, open_job(state="preempted", position=1, attempts=[ended]))
    assert main(["shell", "job1"]) == 4
    assert "job1 was preempted: job4 has priority 3. The job waits, 1st in the queue." in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--forward", "0"], ["--forward", "70000"], ["--forward", "a"], ["--instance", "x"]])
def test_wrong_words_are_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "job1", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_port_and_a_command_are_two_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "job1", "--forward", "8888", "--", "true"]) == 2
    assert "two sessions" in capsys.readouterr().err


JOB = [
    "--role",
    "arn:aws:iam::123456789012:role/t",
    "--image",
    "i",
    "-t",
    "ml.m5.large",
    "--bucket",
    "own",
    "--dry-run",
]


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["submit", *JOB, *arguments]) == 0
    request: dict[str, Any] = json.loads(capsys.readouterr().out)
    return request


def test_an_interactive_job_is_one_that_can_be_entered_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    request = dry_run(capsys, "--interactive")
    assert request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert request["Tags"] == [{"Key": "interactive", "Value": "true"}, {"Key": "preemptible", "Value": "false"}]
    assert request["HyperParameters"]["idle_end"] == "3600" and request["TrainingJobName"].startswith("shell-")
    request = dry_run(capsys, "--interactive", "--tag", "preemptible=true", "--", "jupyter", "lab")
    assert request["Tags"] == [{"Key": "preemptible", "Value": "true"}]
    assert "idle_end" not in request["HyperParameters"]
    assert "RemoteDebugConfig" not in dry_run(capsys, "--", "true")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--idle-end", "1h", "--", "true"], "--idle-end needs --interactive without a command"),
        (["--interactive", "--idle-end", "1h", "--", "true"], "--idle-end needs --interactive without a command"),
        (["--interactive", "--wait"], "--wait and --interactive cannot be given together"),
        (["--interactive", "--launcher", "torchrun"], "--launcher needs a command"),
        ([], "No command is given"),
        (
            ["--interactive", "--gpus", "0.5"],
            "A job with --gpus shares an instance, and a shell in it would also give access to",
        ),
        (["--interactive", "--tag", "gpus=1"], "leave out --gpus, and choose a small instance type (-t) if one GPU is"),
        (
            ["--interactive", "--tag", "preemptible=true", "--gpus", "1", "--", "jupyter", "lab"],
            "or leave out --interactive, and give a command.",
        ),
    ],
)
def test_what_goes_with_interactive(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", *JOB, *arguments]) == 2
    assert said in capsys.readouterr().err
