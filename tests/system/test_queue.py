"""The whole system on a local cloud: the article's example, gangs, faults of users, and the fleet's limit."""

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from sagemaker_queue import Conflict, InvalidRequest, NameTaken, boto_session
from sagemaker_queue.cli import main
from tests.system.conftest import System

# Counts to a number, one each tenth of a second, and goes on where its checkpoint is. Ends when it may. What is kept is
# told, too: a SIGTERM waits until both are done.
COUNT = """
import os, pathlib, signal, time
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "count")
count = int(kept.read_text()) if kept.exists() else 0
stop = []
signal.signal(15, lambda *_: stop.append(1))
while count < {to} or not os.path.exists({gate!r}):
    time.sleep(0.1)
    if count < {to}:
        count += 1
        kept.write_text(str(count))
        print("count", count, flush=True)
    if stop: break
"""
P5 = "ml.p5.48xlarge"
SHORT = "import time; time.sleep(0.3)"


def count(to: int, gate: Path | str = "/") -> str:
    """A script that counts, and ends once the file is there; / always is."""
    return COUNT.format(to=to, gate=str(gate))


def test_the_article_example(system: System, tmp_path: Path) -> None:
    gate2, gate = tmp_path / "job2", tmp_path / "others"
    system.run("job1", count(20, gate), priority=1)
    system.run("job2", count(20, gate2), priority=2)
    assert system.submit("job3", SHORT, priority=1) == "pending"
    table = lambda: [(job.job, job.state, job.priority) for job in system.queue.jobs()]  # noqa: E731
    system.settles(table, [("job2", "running", 2), ("job1", "running", 1), ("job3", "pending", 1)])
    with system.frozen("job1-qstamp-1", "count 4"):
        system.submit("job4", count(20, gate), priority=3)
        system.wait_state("job1", "stopping")
    system.wait_state("job4", "running")
    system.settles(
        table, [("job4", "running", 3), ("job2", "running", 2), ("job1", "preempted", 1), ("job3", "pending", 1)]
    )
    gate2.touch()
    system.wait_state("job2", "completed")
    system.wait_state("job1", "running")
    assert system.state("job3") == "pending"
    gate.touch()
    for name in ("job4", "job1", "job3"):
        system.wait_state(name, "completed")
    counted = [line for attempt in (1, 2) for line in system.log(f"job1-qstamp-{attempt}") if "count" in line]
    assert counted == [f"count {number}" for number in range(1, 21)]  # nothing lost, nothing twice
    assert [attempt.outcome for attempt in system.job("job1").attempts] == ["preempted", "completed"]
    assert system.most_at_once() <= 2


@pytest.mark.thorough
def test_requeued_and_held_jobs_resume_from_their_checkpoints(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    gate = tmp_path / "gate"
    system.run("moved", count(100, gate), priority=2)
    with system.frozen("moved-qstamp-1", "count"):
        assert main(["requeue", "moved"]) == 0
        assert "Stopping moved, which then waits again" in capsys.readouterr().out
        assert main(["requeue", "moved"]) == 0, "the same again changes nothing"
    system.wait("the second attempt", lambda: (system.job("moved").attempt, system.state("moved")) == (2, "running"))
    with system.frozen("moved-qstamp-2", "count"):
        with pytest.raises(Conflict, match="only a waiting job can be held"):
            system.queue.change("moved", held=True)
        assert main(["hold", "--now", "moved"]) == 0
        assert "Stopping moved, which is then on hold" in capsys.readouterr().out
    system.wait_state("moved", "preempted")
    with pytest.raises(Conflict, match="waits already"):
        system.queue.requeue("moved")
    system.cloud.tick()
    assert (system.state("moved"), system.job("moved").held) == ("preempted", True)
    assert main(["release", "moved"]) == 0
    gate.touch()
    system.wait_state("moved", "completed")
    counted = [line for attempt in (1, 2, 3) for line in system.log(f"moved-qstamp-{attempt}") if "count" in line]
    assert counted == [f"count {number}" for number in range(1, 101)]  # nothing lost, nothing twice
    assert [attempt.outcome for attempt in system.job("moved").attempts] == ["requeued", "requeued", "completed"]
    who = system.queue.whoami().owner
    causes = [it.cause for it in system.job("moved").history if it.state == "preempted"]
    assert causes == [f"requeued by {who}", f"requeued by {who}", f"released by {who}"]


@pytest.mark.thorough
def test_a_scheduled_drain_stops_a_job_which_resumes_from_its_checkpoint_after_it(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    gate = tmp_path / "gate"
    system.run("emptied", count(100, gate))

    def drain(seconds: float) -> None:
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        assert main(["drain", "default", "--at", at.isoformat(), "--reason", "new disks"]) == 0

    drain(3600)
    assert "1 job is at that time stopped and waits again" in capsys.readouterr().out
    system.submit("late", SHORT)
    assert system.state("late") == "pending"
    why = system.job("late").reason
    assert why is not None
    assert (why.code, "will be drained" in why.message, "(new disks)" in why.message) == ("DRAINED", True, True)
    drain(5)  # in place of the first drain, which leaves time to look at what it announces
    with system.frozen("emptied-qstamp-1", "count"):
        system.wait("the stop", lambda: system.state("emptied") == "stopping", each_time=system.cloud.tick)
    system.wait_state("emptied", "preempted")
    system.cloud.tick()
    assert (system.state("emptied"), system.state("late")) == ("preempted", "pending")
    (pool,) = system.queue.queue().pools
    assert pool.drain is not None
    assert (pool.drain.in_force, pool.capacity, pool.used) == (True, 0, 0)
    assert main(["undrain", "default"]) == 0
    gate.touch()
    for name in ("emptied", "late"):
        system.wait_state(name, "completed")
    counted = [line for attempt in (1, 2) for line in system.log(f"emptied-qstamp-{attempt}") if "count" in line]
    assert counted == [f"count {number}" for number in range(1, 101)]  # nothing lost, nothing twice
    assert [attempt.outcome for attempt in system.job("emptied").attempts] == ["drained", "completed"]


def test_a_gang_runs_on_all_its_instances_at_once(system: System, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    gang = f"""
import os, json, pathlib, time
hosts, me = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
folder = pathlib.Path({str(meeting)!r})
(folder / me).write_text("here")
while not all((folder / host).exists() for host in hosts):
    time.sleep(0.05)
print(me, "met", len(hosts), flush=True)
"""
    system.run("one", count(1, tmp_path / "go"), priority=5)
    assert system.submit("gang", gang, priority=5, instances=2) == "pending"
    (tmp_path / "go").touch()
    system.wait_state("gang", "completed")
    system.wait("their words", lambda: sorted(system.log("gang-qstamp-1")) == ["algo-1 met 2", "algo-2 met 2"])


@pytest.mark.thorough
def test_who_waits_is_told_when_it_is_expected_to_start(system: System) -> None:
    for number in range(6):
        system.submit(f"like-{number}", SHORT)
    system.wait("all to end", lambda: all(system.state(f"like-{number}") == "completed" for number in range(6)))
    system.run("like-90")
    system.run("like-91")
    assert system.submit("like-92") == "pending"

    def told() -> bool:
        expected = system.job("like-92").expected_start
        return expected is not None and expected.start is not None

    system.wait("the queue to look ahead", told, each_time=system.cloud.tick)
    expected = system.job("like-92").expected_start
    assert expected is not None
    assert "(a guess). The simulations start it at about 20" in expected.message
    system.wait("the list to tell it", lambda: {it.job: it for it in system.queue.jobs()}["like-92"].expected_start)
    sagemaker = boto_session(system.cloud.boto_session(), queue=system.queue).client("sagemaker")
    described = sagemaker.describe_training_job(TrainingJobName="like-92")
    assert "Expected wait: " in described["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert system.job("like-90").expected_start is None


def test_a_faulty_script_fails_with_its_error_and_blocks_nobody(system: System) -> None:
    for number in range(2):
        system.submit(f"broken{number}", "raise SystemExit('no such dataset')", priority=9)
    system.submit("good", SHORT, priority=1)
    system.wait_state("good", "completed")
    for number in range(2):
        system.wait_state(f"broken{number}", "failed")
        job = system.job(f"broken{number}")
        assert job.reason is not None
        reason = job.reason.message  # as on AWS: the error is in the log only
        assert reason.startswith("AlgorithmError: , exit code: 1")
        assert job.training_job_name
        assert system.cloud.training_log(job.training_job_name)[-1] == "no such dataset"


def test_a_second_submission_of_the_same_name(system: System, tmp_path: Path) -> None:
    script = count(1, tmp_path / "go")
    system.run("twice", script)
    assert system.submit("twice", script) == "running"
    with pytest.raises(NameTaken):
        system.submit("twice", count(2))
    (tmp_path / "go").touch()
    system.wait_state("twice", "completed")
    assert system.submit("twice", script) == "completed"
    assert [job["TrainingJobName"] for job in system.attempts()].count("twice-qstamp-1") == 1


def test_two_slots_are_never_exceeded_while_twelve_jobs_pass_through(system: System) -> None:
    names = [f"pass{number}" for number in range(12)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: system.submit(names[n], SHORT, priority=n % 4, instances=1 + n % 2), range(12)))
    system.wait("all to end", lambda: all(system.state(name) == "completed" for name in names))
    assert system.most_at_once() == 2
    by_job: dict[str, list[str]] = {}
    for attempt in system.attempts():
        by_job.setdefault(attempt["TrainingJobName"].rpartition("-qstamp-")[0], []).append(attempt["TrainingJobStatus"])
    for name in names:
        assert by_job[name].count("Completed") == 1


def test_cancelling(system: System) -> None:
    system.run("run", priority=5)
    system.run("run2", priority=5)
    assert system.submit("wait", SHORT) == "pending"
    system.queue.cancel("wait")
    assert system.state("wait") == "stopped"
    system.queue.cancel("run")
    system.wait_state("run", "stopped")
    assert system.state("run2") == "running"


def test_a_bad_request_leaves_the_queue_as_it_was(system: System) -> None:
    with pytest.raises(InvalidRequest) as error:
        system.submit("bad", ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 0, "VolumeSizeInGB": 1})
    assert error.value.field == "ResourceConfig.InstanceCount"
    assert system.state("bad") is None
    assert list(system.queue.jobs()) == []


def test_the_model_is_uploaded(system: System) -> None:
    system.submit("model", "import os, pathlib; pathlib.Path(os.environ['SM_MODEL_DIR'], 'weights').write_text('42')")
    system.wait_state("model", "completed")
    described = system.sagemaker.describe_training_job(TrainingJobName="model-qstamp-1")
    bucket, _, key = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    body = system.cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as packed:
        weights = packed.extractfile("weights")
        assert weights is not None
        assert weights.read() == b"42"


@pytest.mark.thorough
def test_jobs_wait_for_others_and_for_places_in_their_group(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.run("prepare", count(3, gate))

    def submit(name: str, script: str = SHORT, **tags: str) -> str:
        request = system.request(name, script)
        request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return system.queue.submit(request).state

    for number in range(3):
        assert submit(f"part{number}", after="prepare", group="parts", max_parallel="1") == "pending"
    assert submit("broken", "raise SystemExit(1)", after="part0 part1 part2") == "pending"
    assert submit("never", after="broken") == "pending"
    assert submit("tidy-up", after="never:any", group="parts") == "pending"
    system.gives_reason("part0", "DEPENDENCY", message="Waits for prepare (running) to complete.")
    gate.touch()
    for number in range(3):
        system.wait_state(f"part{number}", "completed")
    system.wait_state("broken", "failed")
    system.wait_state("tidy-up", "completed")
    never = system.job("never")
    assert (never.state, never.attempts) == ("stopped", ())
    assert never.reason is not None
    assert never.reason.message == "broken has failed, and this job was to start once that had completed"
    runs = sorted(
        (str(run.started), str(run.ended)) for number in range(3) for run in system.job(f"part{number}").attempts
    )
    assert all(ended <= started for (_, ended), (started, _) in pairwise(runs))


@pytest.mark.thorough
def test_a_job_that_accepts_several_sizes_starts_small_and_comes_back_larger(system: System, tmp_path: Path) -> None:
    parts = {
        "HOSTS": "import json\nprint('hosts', len(json.loads(os.environ['SM_HOSTS'])), flush=True)",
        "FIRST": "if os.environ['SM_CURRENT_HOST'] != 'algo-1': raise SystemExit",
        "COUNT": count(40, tmp_path / "elastic"),
    }
    script = "".join(f"exec(os.environ['{part}'])\n" for part in parts)
    began, busy, urgent, gate = datetime.now(UTC), tmp_path / "busy", tmp_path / "urgent", tmp_path / "elastic"
    system.run("busy", count(1, busy), priority=5)
    request = system.request("elastic", "", instances=2, Environment={"SCRIPT": script, **parts})
    request["Tags"] = [{"Key": "instances", "Value": "2 1"}]
    assert system.queue.submit(request).sizes == (2, 1)
    system.wait_state("elastic", "running")
    assert system.job("elastic").instances == 1
    system.wait("elastic to count", lambda: "count 3" in system.log("elastic-qstamp-1"))
    busy.touch()
    system.wait_state("busy", "completed")
    assert system.state("elastic") == "running", "an idle instance is no reason to stop it"
    system.run("urgent", count(1, urgent), priority=9, instances=2)
    assert system.state("elastic") == "preempted"
    gate.touch()
    urgent.touch()
    system.wait_state("elastic", "completed")
    attempts = [(it.outcome, it.instances) for it in system.job("elastic").attempts]
    assert attempts == [("preempted", 1), ("completed", 2)]
    past = sorted(
        (it.attempt, it.outcome, dict(it.instances)) for it in system.queue.history(began) if it.job == "elastic"
    )
    assert past == [(1, "preempted", {P5: 1}), (2, "completed", {P5: 2})]
    given = [system.sagemaker.describe_training_job(TrainingJobName=f"elastic-qstamp-{n}") for n in (1, 2)]
    assert [described["ResourceConfig"]["InstanceCount"] for described in given] == [1, 2]
    counted = [line for n in (1, 2) for line in system.log(f"elastic-qstamp-{n}") if "count" in line]
    assert counted == [f"count {number}" for number in range(1, 41)]  # nothing lost, nothing twice
    said = [[line for line in system.log(f"elastic-qstamp-{n}") if "hosts" in line] for n in (1, 2)]
    assert said == [["hosts 1"], ["hosts 2", "hosts 2"]]
    assert system.most_at_once() <= 2
