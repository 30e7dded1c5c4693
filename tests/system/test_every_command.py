"""Every ``smq`` command once, for real, on a local cloud: a day of two jobs, a policy and a profile."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.cli import build_parser, main
from sagemaker_queue.cli.reference import commands
from sagemaker_queue.workflows.notices.watch import JobWatch, Notice
from tests.system.conftest import System
from tests.waiting import until

pytestmark = pytest.mark.thorough

FOREVER = "import time\nprint('at work', flush=True)\nwhile True: time.sleep(0.1)"
LEAVES = (
    "while [ ! -e {gate} ]; do sleep 0.1; done;"
    " echo hello; echo 7 > $SM_MODEL_DIR/weights.txt; echo 9 > $SM_OUTPUT_DATA_DIR/log.txt;"
    " for step in 4 5 6; do echo $step > $SM_CHECKPOINT_DIR/step-$step.pt; done"
)
POLICY = """
pools:
- {name: p5, instance_type: ml.p5.48xlarge, capacity: 2}
projects:
- {name: default, quota: {p5: 2}}
"""


class Smq:
    """Runs commands in a folder, and remembers which."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.used: set[str] = set()
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        ended = main(list(arguments))
        out, errors = self._capsys.readouterr()
        assert (ended, "Traceback" in errors) == (code, False), (arguments, out, errors)
        words = " ".join(arguments)
        self.used |= {name for name in every_command() if f"{words} ".startswith(f"{name} ")}
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def shows(self, text: str, *arguments: str) -> None:
        """Repeat a command until it shows a text: what a listing and the status show may be some seconds old."""
        until(lambda: text in self(*arguments))


def every_command() -> set[str]:
    """Those that do something: ``policy`` alone does nothing, ``policy show`` does."""
    names = {command.name for command in commands(build_parser())}
    return {name for name in names if not any(other.startswith(f"{name} ") for other in names)}


@pytest.fixture
def smq(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Smq]:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SAGEMAKER_QUEUE_INSTANCE_TYPE", "ml.p5.48xlarge")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Smq(capsys)
    for number, handler in before.items():  # `smq proxy` sets them until its process ends
        signal.signal(number, handler)


def test_every_command_does_its_work(system: System, smq: Smq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_url = system.cloud.queue_url
    configure(smq, queue_url, tmp_path)
    share_the_fleet(smq)
    system.submit("busy", FOREVER, priority=5, instances=2)
    system.wait_state("busy", "running")
    bring_data(smq)
    assert "busy" in smq("plan", "--name", "later", "--", "echo", "hello")
    gate = tmp_path / "gate"
    smq("submit", "--name", "later", "--checkpoint", "--", "sh", "-c", LEAVES.format(gate=gate))
    smq("sweep", "--name", "many", "--grid", "x=1,2", "--", "echo", "{x}")
    until(lambda: [job["job"] for job in smq.json("ls", "--waiting")] == ["later", "many-x-1", "many-x-2"])
    assert "busy" in smq("why", "later")
    assert "2 jobs would start now: later, many-x-1." in smq("plan", "--capacity", "p5=4")
    assert "later is on hold" in smq("hold", "later")
    assert smq.json("show", "later")["reason"]["code"] == "HELD_BY_USER"
    assert "later is no longer on hold" in smq("release", "later")
    assert "p5" in smq("status") and "later" in smq("top", "--once")
    smq("ui", "--export", "report")
    assert "later" in Path("report/index.html").read_text()
    assert "✓ access" in smq("doctor")
    assert "complete" in smq("completion", "bash")
    Path("trace.csv").write_text("job_id,submit_s,duration_s,gpus\none,0,60,8\n")
    assert smq.json("simulate", "trace.csv")["policies"][0]["overall"]["jobs"] == 1
    look = "import boto3; boto3.client('sagemaker').describe_training_job(TrainingJobName='later')"
    smq("proxy", "--", sys.executable, "-c", look)
    smq("run", "--", "no-such-program", code=127)  # another would take this process's place: test_clients.py

    smq("set-priority", "later", "9")
    open_after_a_poll(monkeypatch, gate)
    assert "is completed" in smq("notify", "later", "--after", "0", "--interval", "1")
    assert "hello" in smq("logs", "later").splitlines()
    until(lambda: smq("ls", "later", "--all", "-o", "slots").split() == ["Slots", "-" * 16, "1", "ml.p5.48xlarge"])
    assert "1 instance of p5" in smq("show", "later")
    fetch_results(smq)
    assert [event["state"] for event in smq.json("events", "later")][-1] == "completed"
    (ended,) = smq.json("history", "later")
    assert "Too little history" in smq("policy", "advise", code=1)
    assert (ended["outcome"], ended["project"], ended["instances"]) == ("completed", "default", {"ml.p5.48xlarge": 1})
    assert smq.json("usage", "--by", "project")["total"]["instance_hours"] > 0
    assert [each["project"] for each in smq.json("usage", "--by", "cause")["projects"]] != []
    assert smq.json("failures", "--by", "owner")["failures"] == []
    smq("failures", "check", "later", code=3)  # no attempt has failed
    smq("submit", "--interactive", "--name", "lab", "--no-shell")
    smq("shell", "lab", "--follow", "--", "sh", "-c", "exit 5", code=5)
    smq("requeue", "later", code=1)  # it has ended; tests/system/test_queue.py requeues one that runs
    submit_again(smq)
    assert every_command() == smq.used


def open_after_a_poll(monkeypatch: pytest.MonkeyPatch, gate: Path) -> None:
    """Let `later` end only once `smq notify` has seen it live: a job that has ended before gives no notice."""
    poll = JobWatch.poll

    def poll_and_open(watch: JobWatch) -> list[Notice]:
        found = poll(watch)
        gate.touch()
        return found

    monkeypatch.setattr(JobWatch, "poll", poll_and_open)


def submit_again(smq: Smq) -> None:
    """From the beginning, and from a step."""
    smq("drain", "p5", "--stop", "none")  # else the job may start, and write its own checkpoints before it is listed
    smq("resubmit", "later")
    smq("resubmit", "later", "--from", "5", "--name", "later-five")
    assert [one["step"] for one in smq.json("checkpoints", "list", "later-five")["checkpoints"]] == [5]
    smq("cancel", "later-r2", "later-five", "--yes")
    smq("undrain", "p5")


def bring_data(smq: Smq) -> None:
    """To S3 and back."""
    Path("words.txt").write_text("hello")
    assert "1 file" in smq("data", "put", "words.txt", "s3://system/words/words.txt")
    assert "words.txt" in smq("data", "ls", "s3://system/words/")
    assert "https" in smq("data", "url", "s3://system/words/words.txt").replace("http:", "https:")
    smq("data", "get", "s3://system/words/words.txt", "again.txt")
    assert Path("again.txt").read_text() == "hello"
    smq("data", "rm", "s3://system/words/words.txt")


def fetch_results(smq: Smq) -> None:
    """As a script does: once all have ended."""
    smq("cancel", "busy")  # else it may keep the others from starting for ever
    assert "stopped" in smq("wait", "busy", code=4)
    assert smq("wait", "later", "many-x-*").count("completed") == 3
    assert "2 files" in smq("get", "later")
    assert (Path("later/model/weights.txt").read_text(), Path("later/data/log.txt").read_text()) == ("7\n", "9\n")
    assert "3 files" in smq("get", "later", "--checkpoints", "saved")
    assert Path("saved/step-5.pt").read_text() == "5\n"
    assert [one["step"] for one in smq.json("checkpoints", "list", "later")["checkpoints"]] == [4, 5, 6]
    assert "1 checkpoint of later removed" in smq("checkpoints", "prune", "later", "--keep", "1", "--yes")
    assert smq("checkpoints", "later").count("step-") == 2  # of checkpoints this new, two stay


def drain_a_pool(smq: Smq) -> None:
    assert "p5 is drained from" in smq("drain", "p5", "--at", "7d", "--reason", "new disks")
    smq.shows("new disks", "status")
    assert "p5 is no longer drained" in smq("undrain", "p5")


def configure(smq: Smq, queue_url: str, folder: Path) -> None:
    smq("config", "set", "--profile", "home", "url", queue_url)
    smq("config", "set", "--profile", "home", "project", "default")
    smq("config", "unset", "--profile", "home", "project")
    smq("config", "use", "home")
    assert "home" in smq("config", "list")
    assert queue_url in smq("config", "show")
    exported = folder / "queue.toml"
    exported.write_text(smq("config", "export"))
    assert "Changes of the profile team" in smq("config", "import", "--profile", "team", str(exported))
    assert Path(smq("config", "path").strip()).read_text().count("url = ") == 2


def share_the_fleet(smq: Smq) -> None:
    """All that there is about policies."""
    Path("policy.yaml").write_text(POLICY)
    assert "+" in smq("policy", "diff", "policy.yaml", code=1)
    assert "by the queue, compared with version 0" in smq("policy", "check", "policy.yaml")
    Path("wrong.yaml").write_text(POLICY.replace("{p5: 2}", "{p6: 2}"))
    assert "the pool p6, which does not exist" in smq("policy", "check", "wrong.yaml", code=1)
    assert "p6" in smq("policy", "diff", "wrong.yaml", code=2)
    Path("large.yaml").write_text(POLICY.replace("capacity: 2", "capacity: 9000"))
    assert "MaxCapacity" in smq("policy", "check", "large.yaml", code=1).splitlines()[0]
    assert "Compared with version 0" in smq("policy", "preview", "policy.yaml")
    assert "is applied" in smq("policy", "apply", "policy.yaml")
    assert smq.json("policy", "show")["policy"]["pools"][0]["name"] == "p5"
    assert smq.json("policy", "history")["versions"][0]["version"] == 1
    assert "Nothing to change" in smq("policy", "rollback", "1")
    drain_a_pool(smq)
