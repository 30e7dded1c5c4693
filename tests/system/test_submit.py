"""`smq submit` and its relatives, as a person types them, on a local cloud: any command runs there as it does here."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.stack import PROJECT
from sagemaker_queue.cli import main
from tests.client.terminal import Terminal
from tests.system.conftest import FOREVER, System

# Tells all that it can see in its folder, and in what it imports.
TRAIN = """
import argparse, hashlib, os, pathlib
import greeting
parser = argparse.ArgumentParser()
parser.add_argument("--data")
chosen = parser.parse_args().data
print(greeting.HELLO, chosen)
found = [pathlib.Path(at, name) for at, _, names in os.walk(".", followlinks=True) for name in names]
for path in sorted(found):
    if "__pycache__" not in path.parts and "out" not in path.parts:
        print(path, hashlib.sha256(path.read_bytes()).hexdigest()[:12], oct(path.stat().st_mode & 0o100))
for path in sorted(pathlib.Path("data", chosen).rglob("*")):
    print(path, path.is_file() and path.read_text())
"""

# Counts, a step in a tenth of a second, and goes on from its checkpoint; a SIGTERM has it write where it is. The first
# attempt does not end by itself, the second one ends after 30 steps.
COUNT = """
import os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "count")
begin = count = int(kept.read_text()) if kept.exists() else 0
def save(*_):
    kept.write_text(str(count))
    print("saved", count, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("from", count, flush=True)
while not begin or count < begin + 30:
    time.sleep(0.1)
    count += 1
    print("count", count, "in this job", flush=True)
"""


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Smq = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def smq(system: System, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Smq:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(folder.parent))

    def smq(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(list(arguments))
        return Answer(code, *capsys.readouterr())

    return smq


def log(system: System, name: str, attempt: int = 1) -> list[str]:
    return system.log(f"{name}-qstamp-{attempt}")


def ended(system: System, name: str, state: str = "completed") -> list[str]:
    """The log of the first attempt, once the job has ended so."""
    system.wait_state(name, "completed", "failed", "stopped")
    job = system.job(name)
    assert job.state == state, (job.reason, log(system, name))
    return log(system, name)


def is_told(name: str, line: str) -> bool:
    """Return whether a line says that a new job runs, or that another invocation plans it at the moment."""
    unplanned = rf"{name} is (starting|pending: The queue has not planned since) .*{name}\)"
    return re.fullmatch(rf"{name} is running \(smq logs -f {name}\)|{unplanned}", line) is not None


def wheel(path: Path) -> None:
    """A package to install, which no network is needed for."""
    path.parent.mkdir()
    about = "greeting-1.0.dist-info"
    files = {
        "greeting.py": "HELLO = 'hello from the requirement'\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]))


def test_a_command_runs_there_as_it_does_here(system: System, smq: Smq, folder: Path) -> None:
    wheel(folder / "wheels" / "greeting-1.0-py3-none-any.whl")
    (folder / "requirements.txt").write_text("./wheels/greeting-1.0-py3-none-any.whl\n")
    (folder / "train.py").write_text(TRAIN)
    (folder / "tools").mkdir()
    (folder / "tools" / "run").write_text("#!/bin/sh\n")
    (folder / "tools" / "run").chmod(0o755)
    (folder / "tools" / "train").symlink_to("../train.py")
    (folder / ".gitignore").write_text("out/\n")
    (folder / "out").mkdir()
    (folder / "out" / "huge").write_text("not needed there")
    (folder / "data" / "imagenet" / "val").mkdir(parents=True)
    (folder / "data" / "imagenet" / "train.csv").write_text("1,2,3")
    (folder / "data" / "imagenet" / "val" / "val.csv").write_text("4,5,6")
    (folder / "data" / "classes.txt").write_text("cat dog")
    assert smq("data", "put", "data/imagenet", "s3://system/sets/imagenet").code == 0
    assert smq("data", "put", "data/classes.txt", "s3://system/sets/classes.txt").code == 0
    assert smq("data", "put", "data/classes.txt", "s3://system/sets/imagenet-other/classes.txt").code == 0

    here = subprocess.run(
        [sys.executable, "train.py", "--data", "imagenet"],
        env={**os.environ, "PYTHONPATH": str(folder / "wheels" / "greeting-1.0-py3-none-any.whl")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    answer = smq(
        *["submit", "-t", "ml.p5.48xlarge", "--name", "same"],
        *[
            "--data",
            "data/imagenet=s3://system/sets/imagenet",
            "--data",
            "data/classes.txt=s3://system/sets/classes.txt",
        ],
        *["--", "python", "train.py", "--data", "imagenet"],
    )
    assert answer.code == 0, answer.err
    assert is_told("same", answer.out.removesuffix("\n"))
    lines = ended(system, "same")
    start = lines.index("[smq] python train.py --data imagenet")
    assert lines[start + 1 :] == here
    assert "hello from the requirement imagenet" in here
    assert any("pip install" in line for line in lines[:start])
    assert importlib.util.find_spec("greeting") is None  # what a job installs stays its own


def test_code_is_uploaded_once_for_the_same_content(system: System, smq: Smq, folder: Path) -> None:
    (folder / "hello.py").write_text("print('hello')")
    first = smq("submit", "-t", "ml.p5.48xlarge", "--name", "once1", "--", "python", "hello.py")
    os.utime(folder / "hello.py", (1, 1))
    second = smq("submit", "-t", "ml.p5.48xlarge", "--name", "once2", "--", "python", "hello.py")
    assert "1 file, 14 bytes, uploaded to s3://sagemaker-us-east-1-000000000000/sagemaker-queue/code/" in first.err
    assert "already in s3://" in second.err
    assert "A preemption loses all work: add --checkpoint" in first.err
    assert first.err.splitlines()[0].split()[-1] == second.err.splitlines()[0].split()[-1]
    assert ended(system, "once2")[-1] == "hello"
    again = smq("submit", "-t", "ml.p5.48xlarge", "--name", "once2", "--", "python", "hello.py")
    assert again.out.startswith("once2-r2 is "), again
    assert ended(system, "once2-r2")[-1] == "hello"


def test_on_a_terminal_it_is_one_line(system: System, smq: Smq, folder: Path) -> None:
    (folder / "short.py").write_text("print('short')")
    options = ["submit", "-t", "ml.p5.48xlarge", "--name", "short", "--checkpoint", "--", "python", "short.py"]
    with Terminal([sys.executable, "-m", "sagemaker_queue", *options]) as terminal:
        assert terminal.end() == 0
        (line,) = [row for row in terminal.rows if row]
        assert is_told("short", line)
    assert ended(system, "short")[-1] == "short"


def test_what_the_queue_refuses_is_not_uploaded(system: System, smq: Smq, folder: Path) -> None:
    (folder / "refused.py").write_text(f"print({str(folder)!r})")  # no other test has this content
    options = ["-t", "ml.p5.48xlarge", "--bucket", "system"]
    refused = smq("submit", *options, "--project", "defualt", "--", "python", "refused.py")
    assert refused.code == 1
    link = "smq: see docs/reference/errors.md#invalidrequest"
    assert refused.err == f"smq: No project 'defualt'. Did you mean default? Projects: default.\n{link}\n"
    folded = smq("submit", *options, "--retries", "1000", "--", "python", "refused.py")
    assert folded.err.startswith("smq: --retries must be a whole number from 0 to ")
    request = smq("submit", *options, "--dry-run", "--", "python", "refused.py").json
    assert smq("data", "ls", request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]).code == 3


def test_nothing_of_the_command_is_lost_on_the_way(system: System, smq: Smq, folder: Path) -> None:
    odd = ["two words", "", "'\"$HOME\\", "--", "-n", "line\nbreak", "ünï", "{lr}", "x" * 6000]
    code = "import sys, json, os; print(json.dumps(sys.argv[1:])); print(os.environ['ODD'])"
    answer = smq(
        "submit", "-t", "ml.p5.48xlarge", "--name", "odd", "--env", "ODD=a b=c", "--", "python", "-c", code, *odd
    )
    assert answer.code == 0, answer.err
    lines = ended(system, "odd")
    assert json.loads(lines[-2]) == odd
    assert lines[-1] == "a b=c"


def test_the_exit_code_is_the_commands(system: System, smq: Smq, folder: Path) -> None:
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "seven", "--", "sh", "-c", "echo so; exit 7")
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "killed", "--", "sh", "-c", "kill -9 $$")
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "nowhere", "--", "no-such-program")
    assert ended(system, "seven", "failed")[-1] == "so"
    assert "exit code: 7" in reason(system, "seven")
    assert "command -v" not in reason(system, "seven")  # how a command is started is nobody's business
    ended(system, "killed", "failed")
    assert "exit code: 137" in reason(system, "killed")
    assert ended(system, "nowhere", "failed")[-1] == "[smq] no-such-program cannot be run: No such file or directory"
    assert "exit code: 127" in reason(system, "nowhere")


def reason(system: System, name: str) -> str:
    job = system.job(name)
    assert job.reason
    return job.reason.message


def test_compile_sh_runs_first_and_its_failure_is_the_jobs(system: System, smq: Smq, folder: Path) -> None:
    (folder / "compile.sh").write_text("echo built > built.txt\necho compiled in $(basename $PWD)\n")
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "compiled", "--", "cat", "built.txt")
    assert ended(system, "compiled") == ["[smq] sh compile.sh", "compiled in work", "[smq] cat built.txt", "built"]
    (folder / "compile.sh").write_text("#!/usr/bin/env python3\nprint('no compiler')\nraise SystemExit(3)\n")
    (folder / "compile.sh").chmod(0o755)
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "uncompiled", "--", "echo", "never")
    assert ended(system, "uncompiled", "failed") == [
        "[smq] ./compile.sh",
        "no compiler",
        "[smq] ./compile.sh ended with exit code 3: the command is not started",
    ]
    assert "exit code: 3" in reason(system, "uncompiled")


def test_document_004_compile_aml_sh_runs_where_there_is_no_compile_sh(system: System, smq: Smq, folder: Path) -> None:
    (folder / "compile.aml.sh").write_text("echo built > built.txt\n")
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "of-act", "cat", "built.txt")
    assert ended(system, "of-act") == ["[smq] sh compile.aml.sh", "[smq] cat built.txt", "built"]


def test_document_004_a_placeholder_is_the_path_where_data_is_mounted(system: System, smq: Smq, folder: Path) -> None:
    (folder / "a.txt").write_text("of cluster A")
    assert smq("data", "put", "a.txt", "s3://system/placed/blob_data/a.txt").code == 0
    smq(
        *["submit", "-t", "ml.p5.48xlarge", "--name", "placed", "--data", "blob_data=s3://system/placed/blob_data"],
        *["sh", "-c", 'cd / && cat "$1" && echo && echo "$1"', "sh", "{data:blob_data}/a.txt"],
    )
    content, path = ended(system, "placed")[-2:]
    assert content == "of cluster A"
    assert path.startswith("/") and path.endswith("/input/data/blob-data/a.txt")
    assert "{data:blob_data}/a.txt" in smq("show", "placed").out


def test_all_hosts_of_a_gang_run_it(system: System, smq: Smq, folder: Path) -> None:
    (folder / "who.py").write_text(
        "import os; print(os.environ['SM_CURRENT_HOST'], os.environ['SM_HOSTS'], os.environ['MASTER_PORT'] > '0')"
    )
    smq("submit", "-n", "2", "-t", "ml.p5.48xlarge", "--name", "gang", "python", "who.py")  # without dashes, too
    lines = ended(system, "gang")
    assert sorted(line for line in lines if "[smq]" not in line) == [
        f'algo-{number} ["algo-1","algo-2"] True' for number in (1, 2)
    ]


def test_torchrun_makes_one_world_of_all_hosts(system: System, smq: Smq, folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "world.py").write_text(
        "import os, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "os.write(1, f'rank {d.get_rank()} of {d.get_world_size()}\\n'.encode())  # in one piece\n"
        "d.barrier(); d.destroy_process_group()\n"
    )
    answer = smq(
        *["submit", "-n", "2", "-t", "ml.p5.48xlarge", "--name", "world", "--launcher", "torchrun"],
        *["--env", "GLOO_SOCKET_IFNAME=lo", "--", "python", "world.py"],
    )
    assert answer.code == 0, answer.err
    ranks = sorted(line for line in ended(system, "world") if line.startswith("rank"))
    assert ranks == [f"rank {rank} of 2" for rank in range(2)]


@pytest.mark.thorough
def test_a_preempted_command_saves_on_sigterm_and_goes_on(system: System, smq: Smq, folder: Path) -> None:
    (folder / "count.py").write_text(COUNT)
    options = ["-n", "2", "-t", "ml.p5.48xlarge"]
    # A shell in between must not keep the signal from the program.
    smq("submit", *options, "--name", "low", "--checkpoint", "--", "sh", "-c", "python count.py; true")
    with system.frozen("low-qstamp-1", "count 3 in", instances=2):
        assert smq("submit", *options, "--name", "high", "--priority", "5", "--", "true").code == 0
        system.wait_state("low", "stopping")
    ended(system, "high")
    system.wait_state("low", "completed")
    first, second = log(system, "low"), log(system, "low", 2)
    saved = max(int(line.split()[1]) for line in first if line.startswith("saved"))
    assert saved >= 3
    (begin,) = {int(line.split()[1]) for line in second if line.startswith("from")}
    assert 3 <= begin <= saved
    assert second.count(f"count {begin + 30} in this job") == 2
    shown = smq("logs", "low").out
    assert shown.index(f"saved {saved}") < shown.index(f"from {begin}")  # one log of both attempts
    uri = system.job("low").request["CheckpointConfig"]["S3Uri"]
    assert uri.startswith("s3://sagemaker-us-east-1-000000000000/sagemaker-queue/checkpoints/low-")


@pytest.mark.thorough
def test_waiting_for_a_command_shows_what_it_writes_and_how_it_ended(system: System, smq: Smq, folder: Path) -> None:
    failed = smq("submit", "-t", "ml.p5.48xlarge", "--name", "fails", "--wait", "--", "sh", "-c", "echo oh; exit 5")
    assert (failed.code, "oh" in failed.out.splitlines()) == (4, True), failed


def test_a_request_is_looked_at_without_uploading_anything(
    system: System, smq: Smq, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "new.py").write_text(f"print({str(folder)!r})")  # no other test has this content
    options = ["-t", "ml.p5.48xlarge", "--priority", "3", "--bucket", "system", "--max-run", "2h"]
    plan = smq("plan", *options, "--", "python", "new.py", "--lr", "0.1")
    assert plan.code == 0 and "would start at once" in plan.out, plan.err
    assert "A preemption loses all work: add --checkpoint" in plan.out
    request = smq("submit", *options, "--dry-run", "--", "python", "new.py").json
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200}
    assert request["Tags"] == [{"Key": "priority", "Value": "3"}]
    (folder / "request.json").write_text(json.dumps(request))
    assert "would start at once" in smq("plan", "request.json").out
    assert smq("plan", "--", "true").code == 0 and smq("plan").code == 2  # as the environment says; nothing at all
    monkeypatch.delenv("SAGEMAKER_QUEUE_INSTANCE_TYPE")
    assert "SAGEMAKER_QUEUE_INSTANCE_TYPE" in smq("plan", "--", "true").err
    assert smq("data", "ls", request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]).code == 3
    assert not [job.job for job in system.queue.jobs("all") if job.job.startswith("new")]


@pytest.mark.thorough
def test_a_sweep_is_one_thing(system: System, smq: Smq, folder: Path) -> None:
    (folder / "train.py").write_text("import sys, time; print(*sys.argv[1:], flush=True); time.sleep(86400)")
    sweep = ["sweep", "--grid", "lr=0.1,0.01", "-t", "ml.p5.48xlarge", "--name", "rates", "--checkpoint"]
    command = ["--", "python", "train.py", "--lr", "{lr}"]
    assert "rates-lr-0-01" in smq(*sweep, "--dry-run", *command).out
    assert smq(*sweep, *command).code == 0
    wider = smq(*sweep[:2], "lr=0.1,0.01,0.001", *sweep[3:], *command)
    assert wider.code == 0 and "1 job submitted, 2 there already" in wider.out, wider
    names = ["rates-lr-0-001", "rates-lr-0-01", "rates-lr-0-1"]
    assert sorted(job["job"] for job in smq("ls", "--group", "rates", "--json").json) == names
    system.wait("the first to start", lambda: "--lr 0.1" in log(system, "rates-lr-0-1"))
    folders = {system.job(name).request["CheckpointConfig"]["S3Uri"] for name in names}
    assert len(folders) == 3
    system.submit("other", FOREVER)
    assert smq("cancel", "--group", "rates").code == 0
    for name in names:
        system.wait_state(name, "stopped")
    assert system.state("other") in ("pending", "running", "starting")


def test_a_sweep_tells_what_is_missing_and_is_completed_by_the_same_command(
    system: System, smq: Smq, folder: Path
) -> None:
    taken = smq("submit", "-t", "ml.p5.48xlarge", "--name", "parts-x-2", "--", "true")
    assert taken.code == 0
    sweep = ["sweep", "--grid", "x=1,2,3", "-t", "ml.p5.48xlarge", "--name", "parts", "--", "echo", "{x}"]
    answer = smq(*sweep)
    assert answer.code == 1
    assert "1 of 3 jobs are not submitted:\n  parts-x-2: Another request already has the name" in answer.err
    assert smq(*sweep[:1], "--grid", "x=1,3", *sweep[3:]).code == 0
    assert "2 there already" in smq(*sweep).out


def test_a_large_sweep_is_asked_for_twice(system: System, smq: Smq, folder: Path) -> None:
    many = ",".join(map(str, range(51)))
    answer = smq("sweep", "--grid", f"x={many}", "-t", "ml.p5.48xlarge", "--", "echo", "{x}")
    assert answer.code == 2 and "51 jobs" in answer.err
    assert not list(system.queue.jobs())


def test_a_job_is_submitted_again(system: System, smq: Smq, folder: Path) -> None:
    (folder / "step.py").write_text(
        "import os, pathlib\n"
        "kept = pathlib.Path(os.environ['SM_CHECKPOINT_DIR'], 'steps')\n"
        "steps = (kept.read_text() if kept.exists() else '') + 'x'\n"
        "kept.write_text(steps); print(steps)\n"
    )
    smq("submit", "-t", "ml.p5.48xlarge", "--name", "step", "--checkpoint", "--", "python", "step.py")
    assert ended(system, "step")[-1] == "x"
    assert smq("resubmit", "step", "--priority", "4").out.startswith("step-r2 is ")
    assert ended(system, "step-r2")[-1] == "x"  # a job of its own, from the beginning
    assert system.job("step-r2").priority == 4
    assert smq("resubmit", "step", "--name", "further", "--resume").code == 0
    assert ended(system, "further")[-1] == "xx"
    assert smq("resubmit", "no-such-job").code == 3


def test_data_goes_to_s3_and_back(system: System, smq: Smq, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config.toml").write_text(
        f'default = "here"\n[profiles.here]\nurl = "{system.cloud.queue_url}"\n'
        '[profiles.here.data]\n"data/set" = "s3://system/linked"\n'
        f'[profiles.there]\nurl = "{system.cloud.queue_url}"\n[profiles.there.data]\n"data/set" = "s3://system/copied"\n'
    )
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(folder / "config.toml"))
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    (folder / "data" / "set" / "deep").mkdir(parents=True)
    (folder / "data" / "set" / "one.txt").write_text("1")
    (folder / "data" / "set" / "deep" / "two.txt").write_text("22")
    assert "s3://system/linked" in smq("data", "ls").out
    assert smq("data", "put", "data/set").out == "2 files, 3 bytes, uploaded to s3://system/linked\n"
    assert "; 2 files already there" in smq("data", "put", "data/set").out
    listed = smq("data", "ls", "data/set", "--json").json
    assert [{"uri": entry["uri"], "size": entry["size"]} for entry in listed] == [
        {"uri": "s3://system/linked/deep/", "size": None},
        {"uri": "s3://system/linked/one.txt", "size": 1},
    ]
    (folder / "data" / "set" / "one.txt").write_text("changed here")
    assert smq("data", "get", "data/set").code == 0
    assert (folder / "data" / "set" / "one.txt").read_text() == "1"
    assert smq("data", "get", "s3://system/linked/deep/two.txt", "here.txt").code == 0
    assert (folder / "here.txt").read_text() == "22"
    url = smq("data", "url", "data/set/one.txt", "--expires", "1m").out
    assert url.startswith("http") and "linked/one.txt" in url and "Expires" in url
    assert smq("-c", "there", "data", "put", "data/set", "--from", "here").code == 0
    assert len(smq("-c", "there", "data", "ls", "-r", "data/set", "--json").json) == 2
    refused = smq("data", "rm", "data/set")
    assert refused.code == 2 and "a folder with 2 files" in refused.err
    assert smq("data", "rm", "data/set/one.txt").code == 0
    assert smq("data", "rm", "-r", "data/set").out == "1 file removed from s3://system/linked/\n"
    assert smq("data", "ls", "data/set").code == 3 and smq("data", "rm", "data/set").code == 3
    assert smq("data", "rm", "-r", "s3://system").code == 2  # never a whole bucket
    assert len(smq("data", "ls", "-r", "s3://system/copied", "--json").json) == 2


@pytest.mark.thorough
def test_the_example_of_any_command_finds_here_what_it_finds_there(
    system: System, smq: Smq, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = PROJECT / "examples" / "any_command"
    command = ["python", "train.py", "--data", "points"]
    monkeypatch.setenv("SM_CHECKPOINT_DIR", str(folder))
    here = subprocess.run(
        [sys.executable, *command[1:]], cwd=example, capture_output=True, text=True, check=True
    ).stdout
    target = "s3://sagemaker-us-east-1-000000000000/points"
    assert smq("data", "put", str(example / "data" / "points"), target).code == 0
    options = ["--folder", str(example), "-t", "ml.p5.48xlarge", "--data", f"data/points={target}", "--checkpoint"]
    assert smq("submit", *options, "--name", "points", "--", *command).code == 0
    assert ended(system, "points")[-2:] == here.splitlines()
    assert "y = 1.9" in here


@pytest.mark.thorough
def test_the_example_of_a_sweep(system: System, smq: Smq, folder: Path) -> None:
    options = ["--folder", str(PROJECT / "examples" / "sweep"), "-t", "ml.p5.48xlarge", "--name", "root"]
    answer = smq("sweep", "--grid", "lr=0.5,0.1,0.01", *options, "--", "python", "train.py", "--lr", "{lr}")
    assert answer.code == 0, answer.err
    found = [ended(system, f"root-lr-0-{value}")[-1] for value in ("5", "1", "01")]
    assert [line.partition(",")[0] for line in found] == ["lr 0.5", "lr 0.1", "lr 0.01"]
