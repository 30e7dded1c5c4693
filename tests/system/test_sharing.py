"""Jobs that share an instance, from their submission to their results: the real agent, real processes, real events."""

import json
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws.deployment import WORK_BUCKET
from local_cloud.aws.stack import LocalCloud
from sagemaker_queue import boto_session
from sagemaker_queue.cli import main
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP
from sagemaker_queue.workflows.selection import Selection
from sagemaker_queue.workflows.usage.sums import PriceList, sum_usage
from tests.system.conftest import System
from tests.system.test_shell import Person
from tests.waiting import PATIENCE, until

EXAMPLES = Path(__file__).parents[2] / "examples/iam"
POLICY = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 1, "shared": True, "keep_warm": 0}],
    "projects": [{"name": "nlp", "quota": {"p5": 1}}],
}

# Writes into a book what it has and does, counts its steps in its checkpoint, and ends when it may.
SCRIPT = """
import os, pathlib, signal, sys, time
name, book, go = {name!r}, open({book!r}, "a", buffering=1), pathlib.Path({go!r})
shown, part = os.environ.get("CUDA_VISIBLE_DEVICES", "all"), os.environ.get("SMQ_GPU_MEMORY_FRACTION", "1")
saved = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"]) / "step"
step = int(saved.read_text()) if saved.exists() else 0
def note(what):
    book.write(f"{{what}} {{name}} {{shown}} {{part}} {{step}}\\n")
def leave(*_):
    saved.write_text(str(step + 1))
    note("leave")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
note("begin")
while not go.exists():
    time.sleep(0.05)
pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text(name)
note("end")
"""


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=1, policy=POLICY) as cloud:
        yield cloud


class Book:
    """What the jobs have written down."""

    def __init__(self, folder: Path) -> None:
        self.path, self.go, self.whole = folder / "book", folder / "go", folder / "whole"
        self.path.touch()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()]

    def names(self, what: str) -> list[str]:
        return [line[1] for line in self.lines() if line[0] == what]

    def script(self, name: str, go: Path) -> str:
        """What a request can hold of it: a variable has 512 characters at most."""
        file = self.path.with_name(f"{name}.py")
        file.write_text(SCRIPT.format(name=name, book=str(self.path), go=str(go)))
        return f"exec(open({str(file)!r}).read())"

    def check(self) -> None:
        """At no time had two more than a whole GPU, and everybody ended once."""
        taken: Counter[str] = Counter()
        for what, _, shown, part, _ in self.lines():
            for gpu in range(8) if shown == "all" else shown.split(","):
                taken[str(gpu)] += round(float(part) * 10) * (1 if what == "begin" else -1)
                assert 0 <= taken[str(gpu)] <= 10
        assert set(Counter(self.names("end")).values()) == {1}


def submit(system: System, book: Book, name: str, gpus: str | None, priority: int = 0, go: Path | None = None) -> None:
    tags = [{"Key": "priority", "Value": str(priority)}]
    if gpus is not None:
        tags.append({"Key": "gpus", "Value": gpus})
    request: dict[str, Any] = system.request(name, book.script(name, go or book.go), Tags=tags)
    system.queue.submit(request)


@pytest.mark.thorough
def test_ten_and_two_halves_then_four_then_all(system: System, tmp_path: Path) -> None:
    book = Book(tmp_path)
    names = [f"one{number}" for number in range(10)]
    for name in names:
        submit(system, book, name, "1")
    for name in ("half1", "half2"):
        submit(system, book, name, "0.5")
    system.wait("eight to begin", lambda: len(book.names("begin")) == 8)
    assert sorted(line[2] for line in book.lines()) == [str(gpu) for gpu in range(8)]
    assert sorted(book.names("begin")) == names[:8]
    assert all(system.state(name) == "pending" for name in (*names[8:], "half1", "half2"))

    submit(system, book, "four", "4", priority=5)
    system.wait("four to begin", lambda: "four" in book.names("begin"))
    left = book.names("leave")
    assert sorted(left) == names[4:8]
    undisturbed = names[:4]
    assert [system.job(name).attempt for name in undisturbed] == [1] * 4
    assert all(system.state(name) == "running" for name in undisturbed)

    submit(system, book, "whole", None, priority=9, go=book.whole)
    system.wait("the whole instance", lambda: "whole" in book.names("begin"))
    assert sorted(book.names("leave")) == sorted([*left, *undisturbed, "four"])
    book.whole.touch()

    book.go.touch()
    for name in (*names, "half1", "half2", "four", "whole"):
        system.wait_state(name, "completed")
    book.check()
    for line in book.lines():  # who had left goes on from where it was
        if line[0] == "end":
            assert int(line[4]) == book.names("leave").count(line[1])
    assert system.most_at_once() == 1
    until(lambda: not [job for job in system.queue.jobs() if job.carries])
    check_usage(system, names)


def check_usage(system: System, names: list[str]) -> None:
    """The instance counts for its carriers and for who had it whole; GPUs for those who had them."""
    attempts = list(system.queue.history())
    members = [it for it in attempts if it.carrier is not None]
    outcomes = Counter(it.outcome for it in members)
    assert outcomes["completed"] == len(names) + 2 + 1, "ten, two halves and four"
    assert outcomes["preempted"] >= 4 + 5, "four had made room for one, all five for the whole instance"
    assert {it.gpus for it in members} == {0.5, 1, 4}
    assert {it.instance_count for it in members} == {0}
    assert {tuple(it.slots) for it in members} == {("p5",)}
    assert {it.job for it in attempts if it.carries} == {it.carrier for it in members}
    parts, total = sum_usage(attempts, "pool", PriceList({}))
    hours = total.hours()
    whole = [it for it in attempts if it.carrier is None]
    assert hours["instance_hours"] == pytest.approx(sum(it.ran_seconds for it in whole) / 3600)
    assert hours["jobs"] == len(names) + 2 + 1 + 1
    assert list(parts) == ["p5"]
    assert 0 < hours["gpu_hours"] <= 8 * hours["instance_hours"]


@pytest.mark.thorough
def test_a_members_log_and_results_are_its_own(system: System, tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.go.touch()
    for name in ("first", "second"):
        submit(system, book, name, "0.5")
    for name in ("first", "second"):
        system.wait_state(name, "completed")
        job = system.job(name)
        assert (job.gpus, job.attempts[-1].carrier is not None) == (0.5, True)
        key = f"output/{job.attempts[-1].training_job_name}/output/model.tar.gz"
        assert system.cloud.client("s3").head_object(Bucket="system", Key=key)["ContentLength"] > 0


@pytest.mark.thorough
def test_no_shell_opens_in_a_member_nor_in_its_carrier(system: System, tmp_path: Path) -> None:
    book = Book(tmp_path)
    submit(system, book, "closed", "0.5")
    system.wait("it to begin", lambda: "closed" in book.names("begin"))
    job, person = system.job("closed"), Person(system, tmp_path)
    said = person.smq("shell", "closed", code=2).stderr
    assert "closed shares an instance, and a shell in it would also give access to other jobs" in said
    assert job.carrier and "an instance that jobs share" in person.smq("shell", job.carrier, code=2).stderr
    for name in (job.attempts[-1].training_job_name, job.attempts[-1].carrier):
        with pytest.raises(ClientError, match="TargetNotConnected"):
            system.cloud.client("ssm").start_session(Target=f"sagemaker-training-job:{name}_algo-1")
    book.go.touch()
    system.wait_state("closed", "completed")


@pytest.mark.thorough
def test_programs_that_know_sagemaker_alone_see_a_member_as_a_training_job(system: System) -> None:
    """Describe, lists and logs, by boto3 and over the client's hooks: its own lines, and no carrier."""
    session = boto_session(system.cloud.boto_session(), queue=system.queue)
    sagemaker, logs = session.client("sagemaker"), session.client("logs")
    for name in ("ours", "theirs"):
        request = system.request(
            name, f"print('a word of {name}')\nprint('done')", Tags=[{"Key": "gpus", "Value": "2"}]
        )
        sagemaker.create_training_job(**request)
    for name in ("ours", "theirs"):
        sagemaker.get_waiter("training_job_completed_or_stopped").wait(
            TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": round(PATIENCE)}
        )
    described = sagemaker.describe_training_job(TrainingJobName="ours")
    assert described["TrainingJobStatus"] == "Completed"
    assert described["TrainingStartTime"] <= described["TrainingEndTime"]
    assert described["TrainingTimeInSeconds"] >= 0 and "BillableTimeInSeconds" not in described
    listed = {job["TrainingJobName"] for job in sagemaker.list_training_jobs(MaxResults=100)["TrainingJobSummaries"]}
    assert {"ours", "theirs"} <= listed
    assert not [name for name in listed if name.startswith("carrier")]
    group = {"logGroupName": LOG_GROUP}
    (stream,) = logs.describe_log_streams(**group, logStreamNamePrefix="ours/")["logStreams"]
    assert stream["logStreamName"].startswith("ours/algo-1")

    def lines() -> list[str]:
        found = logs.get_log_events(**group, logStreamName=stream["logStreamName"], startFromHead=True)
        return [event["message"] for event in found["events"]]

    system.wait("its lines", lambda: "done" in lines())
    assert "a word of ours" in lines()
    assert not [line for line in lines() if "theirs" in line]
    filtered = logs.filter_log_events(**group, logStreamNamePrefix="ours/", filterPattern="word")["events"]
    assert [event["message"] for event in filtered] == ["a word of ours"]
    assert [job.job for job in Selection().of(system.queue.jobs("all")) if job.job.startswith("carrier")] == []


@pytest.mark.thorough
def test_trials_are_members_and_what_they_have_found_is_read(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    # No trial ends before all have begun: a carrier without members ends, and the next trial gets another one.
    (begun := tmp_path / "begun").mkdir()
    (tmp_path / "train.py").write_text(
        f"import pathlib, sys, time\nbegun = pathlib.Path({str(begun)!r})\n(begun / sys.argv[1]).touch()\n"
        "while len(list(begun.iterdir())) < 3:\n    time.sleep(0.05)\n"
        "print('loss', (float(sys.argv[1]) - 0.5) ** 2)\n"
    )
    search = ["sweep", "--name", "search", "--gpus", "0.5", "--metric", "loss=loss ([0-9.e-]+)", "--minimize"]
    where = ["--instance-type", "ml.p5.48xlarge", "--space", "lr=0..1", "--trials", "3", "--parallel", "3"]
    assert main([*search, *where, "--", "python", "train.py", "{lr}"]) == 0
    told = capsys.readouterr().out
    assert told.count("completed") >= 3 and "failed" not in told
    trials = [job for job in system.queue.jobs("all") if job.group == "search"]
    assert len(trials) == 3
    assert {system.job(job.job).gpus for job in trials} == {0.5}
    assert len({system.job(job.job).attempts[-1].carrier for job in trials}) == 1


@pytest.mark.thorough
def test_the_example_of_a_role_has_all_that_carriers_leave(system: System, tmp_path: Path) -> None:
    """The local S3 looks at no rights of containers, so this looks at the objects that there are."""
    book = Book(tmp_path)
    book.go.touch()
    submit(system, book, "seen", "1")
    system.wait_state("seen", "completed")
    owner = system.queue.whoami().carrier_owner or ""
    text = (EXAMPLES / "training_shared.json").read_text().replace("WORK_BUCKET", WORK_BUCKET)
    statements = {
        it["Sid"]: it for it in json.loads(text.replace("PROJECT", "nlp").replace("OWNER", owner))["Statement"]
    }
    pages = system.cloud.client("s3").get_paginator("list_objects_v2").paginate(Bucket=WORK_BUCKET)
    keys = [f"arn:aws:s3:::{WORK_BUCKET}/{it['Key']}" for page in pages for it in page["Contents"]]
    for folder, statement in (("out", "WriteReports"), ("carrier-agents", "RunTheAgent")):
        inside = [key for key in keys if f"/{folder}/" in key]
        assert inside and all(fnmatchcase(key, statements[statement]["Resource"]) for key in inside)
    carrier = system.cloud.client("sagemaker").describe_training_job(
        TrainingJobName=system.job("seen").attempts[-1].carrier or ""
    )
    output = f"arn:aws:s3:::{carrier['OutputDataConfig']['S3OutputPath'].removeprefix('s3://')}"
    left = f"{output}/{carrier['TrainingJobName']}/output/output.tar.gz"
    assert fnmatchcase(left, statements["LeaveNothingElse"]["Resource"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, "open to shells"),
        ({"EnableNetworkIsolation": True}, "has no network"),
        (
            {"Tags": [{"Key": "gpus", "Value": "1"}, {"Key": "interactive", "Value": "true"}]},
            "where a shell would also open the other jobs",
        ),
    ],
)
def test_what_cannot_share_is_refused_with_the_field(
    system: System, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    request = system.request("alone", "pass", **{"Tags": [{"Key": "gpus", "Value": "1"}], **changes})
    with pytest.raises(Exception, match=words):
        system.queue.submit(request)
