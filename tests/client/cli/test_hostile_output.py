"""What others have chosen (names, reasons, keys, log lines) makes no terminal do anything, whatever the command."""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.cli import main
from sagemaker_queue.cli.entry import build_parser
from sagemaker_queue.cli.reference import commands
from sagemaker_queue.jobs.formatting import log_line, one_line, visible
from tests.client.samples import ATTEMPT, DETAIL, FAILED, FAILURE, STATUS, refused
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.attack

EVIL = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x1b\\\x9b31m\x90q\x9c\x08\x7f\u202etxt\u2066\u200f\r\ud800"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
KEPT = {  # else the client would not understand the answer
    *("at", "entryTime", "started", "ended", "state", "outcome", "market", "opens", "closes", "until", "lastRefusal"),
    *("stateSince", "S3Uri", "instanceType", "submitted", "waitingSince", "launched", "began", "unsavedSince"),
}
BUCKET = "shared"
IN_XML = "\x9b31m\u202e"  # may be in the request that removes objects


def poisoned(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        return {key: poisoned(below, key) for key, below in value.items()}
    if isinstance(value, list):
        return [poisoned(below, field) for below in value]
    return value + EVIL if isinstance(value, str) and field not in KEPT else value


JOB = poisoned(
    {
        **DETAIL,
        "failureClass": "x",
        "failure": FAILURE,
        "why": {"ahead": ["a"], "blockers": ["b"], "advice": ["c"]},
        "group": "g",
        "warnings": ["w"],
    }
)
RETURNED = {"uuid": EVIL, "failures": 1, "latest": "2026-11-21T10:00:00Z"}
BROKEN = {**poisoned(ATTEMPT), "outcome": "failed", "failureClass": EVIL, "gpuUuids": [EVIL]}
SUBMISSION = {**JOB, "known": False}
SAVING = {**JOB, "request": {"TrainingJobName": "job1", "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/saved"}}}
XML_PLACE = {"S3Uri": f"s3://{BUCKET}/in-xml"}
POLICY = {"version": 3, "policy": {"pools": [{"name": "p" + EVIL}]}, "appliedBy": EVIL, "warnings": [EVIL]}
BUDGET = {"instance_hours": 1, "period": "month", "kind": "hard" + EVIL}
BUDGETED = {**POLICY, "policy": {"projects": [{"name": "p" + EVIL, "budget": BUDGET, "owner_budget": BUDGET}]}}
PLAN = {
    **{"wouldStart": False, "evicts": [{"job": EVIL, "rule": "priority"}], "slots": {EVIL: 1}, "position": 2},
    **{"reason": {"code": EVIL, "message": EVIL}, "ahead": [EVIL], "blockers": [EVIL], "advice": [EVIL]},
    "warnings": [EVIL],
}
PREVIEW = {
    **{"policyVersion": 3, "at": "2026-11-21T10:00:00Z", "until": "2026-11-21T18:00:00Z"},
    **{"starts": [{"job": EVIL, "slots": {EVIL: 1}}], "keptWaiting": [EVIL]},
    "evictions": [{"job": EVIL, "claimant": EVIL, "rule": EVIL}],
    "unstartable": [{"job": EVIL, "reason": {"code": EVIL, "message": EVIL}}],
    **{"sooner": [{"job": EVIL}], "later": [{"job": EVIL}]},
    "projects": [{"project": EVIL, "waitNow": 1.0, "usedNow": {EVIL: 1}}],
    **{"inUse": [EVIL], "warnings": [EVIL], "notLookedAt": [EVIL]},
}
DRAIN = {"at": "2026-11-21T10:05:30Z", "inForce": True, "by": EVIL, "reason": EVIL, "stops": "all"}
DRAINED = {"pool": EVIL, "drain": {**DRAIN, "inForce": False}, "wasDrained": True, "stopping": 2, "staying": 1}
QUEUE = {
    **poisoned(STATUS),
    "pools": [{**pool, "drain": DRAIN} for pool in poisoned(STATUS)["pools"]],
    "active": [JOB],
    "waiting": [JOB],
    "external": [{"trainingJobName": EVIL, "slots": {EVIL: 1}, "since": None, "stopping": False}],
    "pauses": [
        {"pool": EVIL, "until": "2026-11-21T10:05:30Z", "atFault": EVIL, "instances": 1, "refusals": 1},
        {"pool": EVIL, "until": "2026-11-21T10:05:30Z", "quotaLag": EVIL},
    ],
}
IDENTITY = {
    **{"owner": EVIL, "admin": False, "appliesPolicies": False, "allowedRoleArns": [EVIL], "queueVersion": EVIL},
}
RUN = ["--image", "i", "--role", "arn:aws:iam::123456789012:role/training", "-t", "ml.m5.large", "--bucket", BUCKET]

CASES: list[tuple[list[str], Any]] = [
    (["ls", "--wide"], {"jobs": [JOB], "next": None}),
    (["ls", "--all"], {"jobs": [JOB], "next": None}),
    (["show", "job1"], JOB),
    (["show", "job1", "--json"], json.loads(json.dumps(JOB).replace("\\ud800", ""))),
    (["show", "job1"], {**poisoned(FAILED), "state": "failed"}),
    (["ls", "--failed", "-o", "job,reason,failure"], {"jobs": [{**poisoned(FAILED), "state": "failed"}], "next": None}),
    (["failures"], {"attempts": [BROKEN], "next": None}),
    (["failures", "--by", "owner"], {"attempts": [BROKEN], "next": None}),
    (["failures", "--by", "project", "--csv"], {"attempts": [BROKEN], "next": None}),
    (["failures", "--by", "gpu"], {"attempts": [BROKEN], "next": None}),
    (["failures", "--by", "gpu", "--csv"], {"attempts": [BROKEN], "next": None}),
    (["show", "job1"], {**JOB, "failure": {**JOB["failure"], "gpuUuids": [EVIL], "returnedGpus": [RETURNED]}}),
    (["failures", "check", "job1"], JOB),
    (["failures", "check", "job1"], {**JOB, "failure": {**JOB["failure"], "ruleNow": "built-in: x"}}),
    (["events", "job1"], JOB),
    (["why", "job1"], JOB),
    (["set-priority", "job1", "5"], JOB),
    (["hold", "job1"], JOB),
    (["release", "job1"], JOB),
    (["requeue", "job1"], JOB),
    (["drain", "p5"], DRAINED),
    (["undrain", "p5"], DRAINED),
    (["cancel", "job1"], {**JOB, "wasFinished": False}),
    (["resubmit", "job1", "--no-preflight"], {**SUBMISSION, "request": DETAIL["request"]}),
    (["status"], QUEUE),
    (["top", "--once"], QUEUE),
    (["ui", "--export", "report"], {**QUEUE, **POLICY, "owner": EVIL, "attempts": [poisoned(ATTEMPT)], "next": None}),
    (["notify", "job1"], {"jobs": [], "next": None}),
    (["policy", "show"], POLICY),
    (["policy", "diff", "policy.yaml"], POLICY),
    (["policy", "apply", "policy.yaml"], POLICY),
    (["policy", "apply", "policy.yaml"], {**POLICY, **PREVIEW}),
    (["policy", "check", "policy.yaml"], PREVIEW),
    (["policy", "preview", "policy.yaml"], PREVIEW),
    (["policy", "preview", "policy.yaml"], refused("InvalidRequest", EVIL, "policy", EVIL)),
    (["policy", "rollback", "3"], POLICY),
    (["policy", "history"], {"versions": [{"version": 3, "appliedBy": EVIL, "restored": 1}]}),
    (["policy", "advise"], {**POLICY, "attempts": [poisoned(ATTEMPT)], "next": None}),
    (["history"], {"attempts": [poisoned(ATTEMPT)], "next": None}),
    (["history", "--csv"], {"attempts": [poisoned(ATTEMPT)], "next": None}),
    (["usage", "--by", "group"], {**POLICY, "attempts": [poisoned(ATTEMPT)], "next": None}),
    (["usage"], {**BUDGETED, "attempts": [poisoned(ATTEMPT)], "jobs": [], "next": None}),
    (["usage", "--by", "cause"], {**POLICY, "attempts": [poisoned(ATTEMPT)], "next": None}),
    (["usage", "--by", "pool", "--csv"], {**POLICY, "attempts": [poisoned(ATTEMPT)], "next": None}),
    (["submit", *RUN, "--name", "n", "--no-preflight", "--", "true"], SUBMISSION),
    (["sweep", *RUN, "--grid", "x=1,2", "--no-preflight", "--", "echo", "{x}"], SUBMISSION),
    (["plan", *RUN, "--", "true"], PLAN),
    (["plan", "--capacity", f"{EVIL[:-1]}=1"], PREVIEW),
    (["logs", "job1"], {**JOB, "attempts": DETAIL["attempts"]}),
    (["wait", "job1"], {**JOB, "state": "failed"}),
    (["shell", "job1"], {**JOB, "state": "failed"}),
    (["shell", "job1"], {**JOB, "request": {"RemoteDebugConfig": {"EnableRemoteDebug": True}}}),
    (
        ["get", "job1", "--checkpoints", "fetched"],
        {**JOB, "request": {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}"}}},
    ),
    (["checkpoints", "list", "job1"], SAVING),
    (["checkpoints", "job1", "--json"], SAVING),
    (["checkpoints", "prune", "job1", "--keep", "1", "--dry-run"], SAVING),
    (["checkpoints", "prune", "job1", "--keep", "1", "--yes"], {**SAVING, "request": {"CheckpointConfig": XML_PLACE}}),
    (["resubmit", "job1", "--from", "1", "--no-preflight"], SAVING),
    (["logs", "job1", "--json"], {**JOB, "attempts": DETAIL["attempts"]}),
    (["doctor"], IDENTITY),
    (["data", "ls", "-r", f"s3://{BUCKET}"], None),
    (["data", "ls", f"s3://{BUCKET}"], None),
    (["data", "get", f"s3://{BUCKET}", "got"], None),
    (["data", "url", f"s3://{BUCKET}/{EVIL[:-1]}"], None),
    (["data", "put", "evil", f"s3://{BUCKET}/{EVIL[:-1]}/"], None),
    (["data", "rm", "-r", f"s3://{BUCKET}/{IN_XML}"], None),
    (["config", "set", f"env.{EVIL[:-1]}", EVIL[:-1]], None),
    (["config", "unset", f"env.{EVIL[:-1]}"], None),
    (["config", "show"], None),
    (["config", "list"], None),
    (["config", "use", EVIL[:-1]], None),
    (["config", "path"], None),
    (["config", "export"], None),
    (["config", "import", "evil.toml"], None),
    (["completion", "bash"], None),
    (["simulate", "trace.csv", "--groups"], None),
    (["show", EVIL], refused("NotFound", EVIL, EVIL, EVIL)),
    ([EVIL], None),
]


@pytest.fixture
def world(server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config.toml"
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(config))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    evil = json.dumps(EVIL[:-1]).replace("\x7f", "\\u007f")
    monkeypatch.setenv("SAGEMAKER_QUEUE_SESSION_PLUGIN", "true")
    config.write_text(
        f'default = "p"\n[profiles.p]\nurl = "{server.url}"\nproject = {evil}\n'
        f'[profiles.p.env]\n{evil} = {evil}\n[profiles.p.data]\n{evil} = "s3://x/y"\n'
        f'[profiles.{evil}]\nurl = "{server.url}"\n'
    )
    (tmp_path / "evil.toml").write_text(f"{evil} = {evil}\n")
    (tmp_path / "policy.yaml").write_text("pools: [{name: a}]")
    evil_row, other = [EVIL[:-1], 0, 1, 8, EVIL[:-1]], ["b", 0, 1, 8, "b"]
    with (tmp_path / "trace.csv").open("w", encoding="utf-8", newline="") as trace:
        csv.writer(trace).writerows([["job_id", "submit_s", "duration_s", "gpus", "group"], evil_row, other])
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / EVIL.replace("/", "")[:20]).write_text("x")
    with mock_aws():
        s3, logs = boto3.client("s3"), boto3.client("logs")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key=EVIL[:-1], Body=b"")
        s3.put_object(Bucket=BUCKET, Key=f"{EVIL[:-1]}/below", Body=b"")
        s3.put_object(Bucket=BUCKET, Key=f"{IN_XML}/below", Body=b"")
        for step in (1, 2, 3):
            s3.put_object(Bucket=BUCKET, Key=f"saved/{EVIL[:-1]}/step-{step}.pt", Body=b"")
            s3.put_object(Bucket=BUCKET, Key=f"in-xml/{IN_XML}/step-{step}.pt", Body=b"")
        s3.put_object(Bucket=BUCKET, Key=f"saved/{EVIL[:-1]}", Body=b"")
        s3.put_object(Bucket=BUCKET, Key="saved/latest", Body=EVIL[:-1].encode())
        group, stream = "/aws/sagemaker/TrainingJobs", "job1-qstamp-1/algo-1-1"
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        message = f"a\tb {EVIL[:-1]}"
        event: Any = {"timestamp": int(time.time() * 1000), "message": message}  # moto drops lines older than 14 days
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
        yield


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(("arguments", "answer"), CASES, ids=[" ".join(map(ascii, words[:2])) for words, _ in CASES])
def test_no_command_prints_what_a_terminal_obeys(
    arguments: list[str], answer: Any, server: ScriptedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.always_answers(404 if answer and "errors" in answer else 200, answer)
    main(arguments)
    captured = capfd.readouterr()
    assert captured.out or captured.err
    for text in (captured.out, captured.err):
        assert OBEYED.findall(text) == [], (captured.out, captured.err)
    if "--json" in arguments:
        assert (
            [json.loads(line) for line in captured.out.splitlines()]
            if arguments[0] == "logs"
            else json.loads(captured.out)
        )


def test_every_command_is_tried() -> None:
    names = {command.name for command in commands(build_parser())}
    doing = {name for name in names if not any(other.startswith(f"{name} ") for other in names)}
    tried = {" ".join(arguments[:length]) for arguments, _ in CASES for length in (1, 2)}
    programs = {"run", "proxy"}  # these run others, who print for themselves
    assert doing - tried == programs & doing


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_no_name_becomes_a_command_on_the_command_line(
    shell: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    names = ["job$(touch${IFS}x)", "job;x", "job1\nx", "job\x1b[2J", "job1"]
    server.always_answers(
        200, {"jobs": [{"job": name, "state": "running", "priority": 1} for name in names], "next": None}
    )
    monkeypatch.setenv("_SMQ_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "smq show jo")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main([])
    assert re.findall("job.*", capfd.readouterr().out) == ["job1"]


def test_the_live_screen_draws_escapes_and_obeys_none(server: ScriptedServer) -> None:
    server.always_answers(200, QUEUE)
    command = [sys.executable, "-m", "sagemaker_queue", "--url", server.url, "top"]
    with Terminal(command, columns=160, lines=40) as terminal:
        terminal.shows("p5", "q:quit")
        terminal.press("q")
        assert terminal.end() == 0
        assert b"owned" not in re.findall(rb"\x1b\](.*?)(?:\x07|\x1b)", terminal.written, re.DOTALL)
        assert not any(mark in terminal.written.decode() for mark in ("\u202e", "\u2066", "\x9b", "\x90", "\x1b]"))


def test_the_coloured_list_obeys_no_name(server: ScriptedServer) -> None:
    server.always_answers(200, {"jobs": [JOB], "next": None})
    with Terminal(
        [sys.executable, "-m", "sagemaker_queue", "--url", server.url, "ls", "--wide"], columns=160
    ) as terminal:
        assert terminal.end() == 0
    assert set(re.findall(rb"\x1b[^m]*m?", terminal.written)) <= {b"\x1b[%dm" % number for number in (0, 1, 2, 31, 32)}
    assert not any(mark in terminal.written.decode() for mark in ("\u202e", "\u2066", "\x9b", "\x90", "\x1b]"))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\tb", "a\tb"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]52;c;xx\x1b\\", "text"),
        (" 10%\r 55%\r100%\r", "100%"),
        ("\u202eabc\u2069", "abc"),
        ("grüße 👩‍🔬", "grüße 👩‍🔬"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("", ""),
    ],
)
def test_a_line_of_a_log_keeps_tabs_and_loses_the_rest(line: str, shown: str) -> None:
    assert log_line(line) == shown


@pytest.mark.parametrize("introducer", ["\x90", "\x98", "\x9d", "\x9b", "\x1b]"])
def test_the_time_for_a_line_of_a_log_is_linear(introducer: str) -> None:
    def seconds(size: int) -> float:
        line, fastest = introducer * size, float("inf")
        for _ in range(5):
            begin = time.thread_time()
            assert not OBEYED.search(log_line(line))
            fastest = min(fastest, time.thread_time() - begin)
        return fastest

    assert seconds(64_000) < 64 * seconds(4_000)  # 16 times for linear time, 256 times for quadratic time


def test_a_command_that_is_nested_deeply_is_no_command(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = {"command": "[" * 2500, **{f"command_{number}": "[" * 2500 for number in range(2, 100)}}
    server.always_answers(200, {**DETAIL, "request": {**DETAIL["request"], "HyperParameters": deep}})  # type: ignore[dict-item]
    assert main(["--url", server.url, "show", "job1"]) == 0
    assert "job1" in capsys.readouterr().out


def test_what_is_escaped_is_still_there() -> None:
    each: Callable[[str], str] = visible
    assert each("a\nb\tc\x1b\x7f\u202e") == "a\nb\tc\\u001b\\u007f\\u202e"
    assert one_line("a\nb") == "a\\nb"
    assert json.loads(each(json.dumps("\x7f\x1b", ensure_ascii=False))) == "\x7f\x1b"
