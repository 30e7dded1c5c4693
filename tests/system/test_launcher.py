"""The examples whose scripts save when they are stopped, through a preemption, with both SageMaker SDKs."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import System
from tests.system.test_sdk import PYTHON_OF_SDK3, ROOT, Script

EXAMPLES = ROOT / "examples/saved_when_stopped"
PYTHONS: dict[str, Path | str] = {"saved-by-estimator": sys.executable, "saved-by-trainer": PYTHON_OF_SDK3}


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with LocalCloud(slots=2) as cloud:
        yield System(cloud)


def last_step(system: System, job: str) -> int:
    steps = [line for line in system.log(f"{job}-qstamp-1") if line.startswith("step ")]
    return int(steps[-1].removeprefix("step ")) if steps else 0


def test_what_is_saved_when_the_job_is_stopped_is_not_done_twice(system: System) -> None:
    assert PYTHON_OF_SDK3.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
    with ExitStack() as stack:
        scripts = []
        for base, python in PYTHONS.items():
            program = EXAMPLES / ("estimator.py" if base == "saved-by-estimator" else "model_trainer.py")
            scripts.append(Script(system.cloud, ROOT, python, str(program)))
            stack.callback(scripts[-1].kill)

        def jobs() -> list[str]:
            return [job.job for job in system.queue.jobs() if job.job.startswith("saved-by-")]

        system.wait("two jobs that train", lambda: sum(last_step(system, job) > 3 for job in jobs()) == 2)
        names = jobs()
        system.submit("gang", "pass", priority=9, instances=2)
        for script in scripts:
            script.end()
            assert script.lines[-1].endswith("has completed")
    for name in names:
        assert [attempt.outcome for attempt in system.job(name).attempts] == ["preempted", "completed"]
        done = last_step(system, name)
        first, second = (system.log(f"{name}-qstamp-{number}") for number in (1, 2))
        assert f"saved at step {done}" in first
        assert f"starting at step {done}" in second
