"""Hardware failures of real processes: the retry is checked by SageMaker, and a GPU that returns is named."""

import json

import pytest

from sagemaker_queue.cli import main
from tests.system.conftest import System

pytestmark = pytest.mark.thorough

STEPS = """
import pathlib, time
saved = pathlib.Path(os.environ['SM_CHECKPOINT_DIR'], 'step')
step = int(saved.read_text()) if saved.exists() else 0
print('begins at step', step, flush=True)
saved.write_text(str(step + 7))
print('saved', flush=True)
time.sleep(86400)
"""


def strike(system: System, attempt: str) -> None:
    """Let a GPU of an attempt fail once its process has saved a checkpoint."""
    system.wait(f"{attempt} to save", lambda: "saved" in system.log(attempt))
    system.cloud.training.strike(attempt, "hardware")


def checked(system: System, attempt: str) -> bool:
    described = system.sagemaker.describe_training_job(TrainingJobName=attempt)
    return bool(described.get("InfraCheckConfig", {}).get("EnableInfraCheck"))


def test_a_hardware_failure_is_retried_free_with_a_check_and_a_gpu_that_returns_is_named(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    system.submit("job1", STEPS)
    strike(system, "job1-qstamp-1")
    system.wait("the second attempt", lambda: system.job("job1").training_job_name == "job1-qstamp-2")
    job = system.job("job1")
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.action, job.failure.returned_gpus) == ("hardware", "retry free", ())
    assert (job.retried, job.free_retries, job.failure.instance_check) == (0, 1, True)
    (uuid,) = job.failure.gpu_uuids

    strike(system, "job1-qstamp-2")
    assert system.log("job1-qstamp-2")[0] == "begins at step 7", "from the checkpoint"
    assert [checked(system, f"job1-qstamp-{attempt}") for attempt in (1, 2)] == [False, True]
    system.wait_state("job1", "failed")  # the same class twice in a row, each within five minutes of its start
    job = system.job("job1")
    assert job.failure is not None
    (returned,) = job.failure.returned_gpus
    assert (returned.uuid, returned.failures) == (uuid, 1), "the retry got the machine that had failed"
    assert job.failure.remedy.startswith(f"{uuid} returned within a day after another hardware failure.")

    system.submit("job2", STEPS)
    strike(system, "job2-qstamp-1")
    system.wait("the second attempt", lambda: system.job("job2").training_job_name == "job2-qstamp-2")
    other = system.job("job2").failure
    assert other is not None
    assert [(it.uuid, it.failures) for it in other.returned_gpus] == [(uuid, 2)]

    assert main(["show", "job2"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"{uuid}: 2 other hardware failures within a day" in page and "job1" not in page
    system.settles(lambda: len(list(system.queue.history())), 3)
    assert main(["failures", "--by", "gpu", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["failures"]
    assert (found["gpu"], found["failures"], found["jobs"]) == (uuid, 3, 2)
    assert found["training_jobs"] == "job1-qstamp-1 job1-qstamp-2 job2-qstamp-1"


def test_the_health_check_of_a_request_reaches_sagemaker(system: System) -> None:
    system.submit("own", InfraCheckConfig={"EnableInfraCheck": True})
    system.wait_state("own", "completed")
    assert checked(system, "own-qstamp-1")
