"""The examples whose scripts save when they are stopped, through a preemption, with both SageMaker SDKs."""

import shutil
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


def longer(folder: Path, until: Path) -> Path:
    """The examples, training until a file is there: how fast the machine is decides nothing."""
    shutil.copytree(EXAMPLES, folder)
    for program, short, long in (
        ("estimator.py", '{"steps": 100}', f'{{"until": "{until}"}}'),
        ("model_trainer.py", "--steps 100", f"--until {until}"),
    ):
        text = (EXAMPLES / program).read_text()
        assert text.count(short) == 1
        (folder / program).write_text(text.replace(short, long))
    return folder


@pytest.mark.thorough
def test_what_is_saved_when_the_job_is_stopped_is_not_done_twice(system: System, tmp_path: Path) -> None:
    assert PYTHON_OF_SDK3.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
    finish = tmp_path / "finish"
    examples = longer(tmp_path / "examples", finish)
    with ExitStack() as stack:
        scripts = []
        for base, python in PYTHONS.items():
            program = examples / ("estimator.py" if base == "saved-by-estimator" else "model_trainer.py")
            scripts.append(Script(system.cloud, ROOT, python, str(program)))
            stack.callback(scripts[-1].kill)

        def jobs() -> list[str]:
            return [job.job for job in system.queue.jobs() if job.job.startswith("saved-by-")]

        system.wait("two jobs that train", lambda: sum(last_step(system, job) > 3 for job in jobs()) == 2)
        names = jobs()
        system.submit("gang", "pass", priority=9, instances=2)
        system.wait_state("gang", "completed")
        finish.touch()
        for script in scripts:
            script.end()
            assert script.lines[-1].endswith("has completed")
    for name in names:
        assert [attempt.outcome for attempt in system.job(name).attempts] == ["preempted", "completed"]
        done = last_step(system, name)
        first, second = (system.log(f"{name}-qstamp-{number}") for number in (1, 2))
        assert f"saved at step {done}" in first
        assert f"starting at step {done}" in second
