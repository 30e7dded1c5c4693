"""The examples of checkpoints: each resumes after a preemption and after a failure, on a local cloud."""

import re
import signal

import psutil
import pytest

from local_cloud.aws.stack import PROJECT
from sagemaker_queue.cli import main
from sagemaker_queue.jobs import checkpoint_layouts as layouts
from tests.system.conftest import System
from tests.waiting import processes

pytestmark = pytest.mark.thorough

STEPS = 40
EXAMPLES = [  # script, library, layout, instances, whether a step has the same loss in each attempt
    ("plain", "torch", layouts.PLAIN, 1, True),
    ("lightning_trainer", "lightning", layouts.LIGHTNING, 1, False),  # the data of an epoch begins again
    ("hugging_face", "transformers", layouts.TRAINER, 1, False),  # prints no loss
    ("fsdp", "torch", layouts.DISTRIBUTED, 2, True),
]


def saved(system: System, name: str) -> int:
    """Return the step from which the job would resume; 0 if there is none."""
    return max((one.step or 0 for one in system.queue.checkpoints(name) if one.resumes), default=0)


def kill_one(system: System, attempt: str, script: str) -> None:
    """End one training process of an attempt by a signal that no program handles."""
    own = {**system.cloud.mark, "TRAINING_JOB_NAME": attempt}
    running = processes(lambda environment: own.items() <= environment.items())
    training = [process for process in running if f"{script}.py" in process.cmdline() and not process.children()]
    psutil.Process(training[0].pid).send_signal(signal.SIGKILL)


def steps_of(system: System, attempt: str) -> dict[int, str]:
    """Return what an attempt has printed for each step."""
    lines = (re.fullmatch(r"step (\d+): (?:loss )?(.+)", line) for line in system.log(attempt))
    return {int(line[1]): line[2] for line in lines if line}


@pytest.mark.parametrize(("script", "library", "layout", "instances", "repeats"), EXAMPLES)
def test_an_example_resumes_after_a_preemption_and_a_failure(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    library: str,
    layout: str,
    instances: int,
    repeats: bool,
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install '.[frameworks]'")
    for variable, value in system.cloud.environment().items():
        monkeypatch.setenv(variable, value)
    name = script.replace("_", "-")
    launcher = ["-n", "2", "--launcher", "torchrun"] if instances == 2 else []
    options = ["--folder", str(PROJECT / "examples" / "checkpoints"), "-t", "ml.p5.48xlarge", "--name", name]
    # Half a second: the job must still run when the test has noticed one of its lines, on a busy machine as well.
    command = ["python", f"{script}.py", "--steps", str(STEPS), "--seconds-per-step", "0.5"]
    assert main(["submit", *options, *launcher, "--checkpoint", "--retries", "1", "--", *command]) == 0

    with system.frozen(f"{name}-qstamp-1", "step 12: "):
        system.wait("step 10 to be in S3", lambda: saved(system, name) >= 10)
        first_saved = saved(system, name)
        system.submit(f"urgent-{name}", "pass", priority=9, instances=2)
        system.wait_state(name, "stopping")
    system.wait(f"{name} to be back", lambda: system.job(name).training_job_name == f"{name}-qstamp-2")
    with system.frozen(f"{name}-qstamp-2", "step 22: "):
        system.wait("step 20 to be in S3", lambda: saved(system, name) >= 20)
        second_saved = saved(system, name)
        kill_one(system, f"{name}-qstamp-2", script)
    system.wait_state(name, "completed", "failed", "stopped")

    job = system.job(name)
    logs = [steps_of(system, f"{name}-qstamp-{number}") for number in (1, 2, 3)]
    assert [attempt.outcome for attempt in job.attempts] == ["preempted", "failed", "completed"], job.reason
    first, second, third = logs
    assert min(first) == 1 and max(third) == STEPS
    assert first_saved < min(second) <= max(first) + 1 and second_saved < min(third) <= max(second) + 1
    if repeats:
        for again, before in ((second, first), (third, second)):
            for step in again.keys() & before.keys():
                assert float(again[step]) == pytest.approx(float(before[step]), rel=1e-4)
    kept = system.queue.checkpoints(name)
    assert {one.layout for one in kept} == {layout} and saved(system, name) == STEPS
