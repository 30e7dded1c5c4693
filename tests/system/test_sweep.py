"""A search on a local cloud: its process is killed and interrupted, its trials are preempted, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from local_cloud.commands.up_and_exec import without_account
from sagemaker_queue import QueueTuner
from sagemaker_queue.tuning.samplers import distributions, sampler_of
from sagemaker_queue.tuning.space import Interval, Space
from tests.system.conftest import System
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SEED = 3
SPACE: Space = {"x": Interval(-1, 1), "y": Interval(0.01, 10, log=True)}
# Its own way to a known optimum; the first trials wait at the gate, and know when they are resumed.
TRAIN = """
import os, pathlib, sys, time
x, y = float(sys.argv[1]), float(os.environ["Y"])
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "begun")
print("resumed" if kept.exists() else "begun", flush=True)
kept.write_text("")
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.1)
print("loss:", (x - 0.3) ** 2 + (y - 1) ** 2)
"""
# Writes figures until it is stopped, if its figure is bad.
STEPS = """
import os, sys, time
bad = float(os.environ["SM_HP_BAD"])
step = 0
while step < 3 or bad:
    print("step", step, "loss", bad + 1, flush=True)
    step += 1
    time.sleep(0.1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(system: System, tmp_path: Path) -> dict[str, str]:
    own = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
    return {**without_account(os.environ), **system.cloud.environment(), **own, "SAGEMAKER_SUPPRESS_V2_WARNING": "1"}


class Sweep:
    """``smq sweep`` in a process of its own."""

    def __init__(self, environment: dict[str, str], folder: Path, *arguments: str) -> None:
        self._errors = folder.parent / "errors"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sagemaker_queue", "sweep", *arguments],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def told(self) -> str:
        return self._errors.read_text()

    def end(self, code: int = 0) -> str:
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code, f"{out}\n{self.told}"
        return out


@pytest.fixture
def started(environment: dict[str, str], folder: Path) -> Iterator[Any]:
    sweeps: list[Sweep] = []

    def start(*arguments: str) -> Sweep:
        sweeps.append(Sweep(environment, folder, *arguments))
        return sweeps[-1]

    yield start
    for sweep in sweeps:
        sweep.process.kill()
        sweep.process.communicate()


def alone(trials: int) -> list[dict[str, Any]]:
    """What Optuna proposes with the same seed, without any queue."""
    import optuna

    study = optuna.create_study(sampler=sampler_of("tpe", SEED, SPACE))
    return [study.ask(distributions(SPACE)).params for _ in range(trials)]


def jobs_of(system: System, group: str) -> list[str]:
    return sorted(job.job for job in system.queue.jobs("all") if job.group == group)


@pytest.mark.slow
def test_a_search_that_is_killed_interrupted_and_preempted_finds_what_optuna_finds_alone(
    system: System, started: Any, folder: Path
) -> None:
    """Up to its tenth trial, TPE proposes by its seed alone: in whatever order they end, the trials are the same."""
    (folder / "train.py").write_text(TRAIN)
    gate = folder.parent / "gate"
    command = [
        *["--study", "lost", "--space", "x=-1..1", "--space", "y=log:0.01..10", "--metric", r"loss=loss: (\S+)"],
        *["--minimize", "--trials", "8", "--parallel", "2", "--seed", str(SEED), "--poll", "0.3", "--json"],
        *["--checkpoint", "--env", "Y={y}", "--env", f"GATE={gate}", "--", "python", "train.py", "{x}"],
    ]
    names = [f"lost-{number:03}" for number in range(8)]
    first = started(*command)

    def begun(name: str) -> bool:
        return "begun" in system.log(f"{name}-qstamp-1")

    for name in names[:2]:
        system.wait(f"{name} to begin", partial(begun, name))
    until(lambda: "lost-001" in first.told)
    first.process.kill()
    first.end(-signal.SIGKILL)

    system.submit("urgent", "pass", priority=9)
    system.wait_state("urgent", "completed")
    second = started(*command)
    until(lambda: all(re.search(rf"trial \d is \w+: {name}", second.told) for name in names[:2]))
    second.process.send_signal(signal.SIGINT)
    second.end(130)
    assert "To continue the search, repeat the command with --study lost" in second.told
    assert "to cancel the jobs: smq cancel --group lost" in second.told
    assert jobs_of(system, "lost") == names[:2]

    gate.touch()
    result = json.loads(started(*command).end())
    assert jobs_of(system, "lost") == names
    attempts = [[attempt.outcome for attempt in system.job(name).attempts] for name in names]
    assert sorted(attempts) == [["completed"]] * 7 + [["preempted", "completed"]]
    trials = result["trials"]
    assert [(trial["job"], trial["state"]) for trial in trials] == [(name, "completed") for name in names]
    assert [trial["params"] for trial in trials] == alone(8)
    values = [(params["x"] - 0.3) ** 2 + (params["y"] - 1) ** 2 for params in alone(8)]
    assert [trial["value"] for trial in trials] == values
    assert result["best"]["value"] == min(values)
    again = started(*command)
    assert json.loads(again.end()) == result
    assert "submitted" not in again.told


@pytest.mark.slow
def test_a_hopeless_trial_is_cancelled(system: System, started: Any, folder: Path) -> None:
    """The values go by variables, since the command has no placeholder."""
    (folder / "steps.py").write_text(STEPS)
    command = ["--study", "hopeless", "--grid", "bad=0,0.0,0.00,0e0,0e1,7", "--parallel", "1", "--prune", "median"]
    metric = ["--metric", r"loss=step (?P<step>\d+) loss (\S+)", "--minimize", "--poll", "0.3"]
    sweep = started(*command, *metric, "--json", "--", "python", "steps.py")
    result = json.loads(sweep.end())
    assert [trial["state"] for trial in result["trials"]] == ["completed"] * 5 + ["pruned"]
    assert system.job("hopeless-005").state == "stopped"
    assert "SM_HP_BAD" in sweep.told
    told = started("--study", "hopeless", "--status").end()
    assert "The best of hopeless: loss 1, trial 0 (hopeless-000): bad=0\n" in told


@pytest.mark.slow
def test_the_example_of_a_search(system: System, started: Any) -> None:
    """As examples/README.md has it."""
    (row,) = re.findall(r"smq sweep (--space.*?)`", (ROOT / "examples/README.md").read_text())
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", row)]
    options = ["--folder", str(ROOT / "examples/sweep"), "--study", "root", "--poll", "0.3", "--seed", "1"]
    told = started(*options, *words).end()
    assert re.search(r"The best of root: error \S+, trial \d+", told)
    assert len(jobs_of(system, "root")) == int(words[words.index("--trials") + 1])


@pytest.mark.slow
def test_the_example_of_a_tuner(system: System, environment: dict[str, str], folder: Path) -> None:
    script = str(ROOT / "examples/tuner.py")
    ended = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert re.search(r"^root-of-two-00\d is the best$", ended.stdout, re.MULTILINE)
    assert jobs_of(system, "root-of-two") == [f"root-of-two-{number:03}" for number in range(4)]


TUNED = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--layers", type=int)
parser.add_argument("--opt")
parser.add_argument("--fixed")
given = parser.parse_args()
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("")
print("score:", -abs(given.rate) - abs(given.layers - 3) - (given.opt == "sgd") + (given.fixed == "yes"))
"""


@pytest.mark.slow
def test_a_tuner_runs_trials_with_an_estimator_of_the_sdk_and_goes_on(
    system: System, folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimator's session knows nothing of a queue: the tuner sees to that."""
    from sagemaker.pytorch import PyTorch
    from sagemaker.session import Session
    from sagemaker.tuner import CategoricalParameter, ContinuousParameter, IntegerParameter

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda settings: None)
    (folder / "train.py").write_text(TUNED)
    session = Session(boto_session=system.cloud.boto_session(), default_bucket="system")
    estimator = PyTorch(
        role=system.cloud.role,
        entry_point="train.py",
        source_dir=str(folder),
        hyperparameters={"fixed": "yes"},
        instance_type="ml.p5.48xlarge",
        instance_count=1,
        framework_version="2.0.1",
        py_version="py310",
        checkpoint_s3_uri="s3://system/kept",
        tags=[{"Key": "team", "Value": "vision"}],
        sagemaker_session=session,
    )

    def tuner(max_jobs: int) -> QueueTuner:
        return QueueTuner(
            estimator,
            "score",
            {
                "rate": ContinuousParameter(-1, 1),
                "layers": IntegerParameter(1, 8),
                "opt": CategoricalParameter(["adam", "sgd"]),
            },
            [{"Name": "score", "Regex": r"score: (\S+)"}],
            max_jobs=max_jobs,
            max_parallel_jobs=2,
            base_tuning_job_name="tuned",
            random_seed=5,
        )

    tuner(2).fit(poll=0.3)
    assert jobs_of(system, "tuned") == ["tuned-000", "tuned-001"]
    second = tuner(4)
    second.fit(poll=0.3)
    names = [f"tuned-{number:03}" for number in range(4)]
    assert jobs_of(system, "tuned") == names
    trials = second.trials()
    for trial in trials:
        params: Any = trial.params
        score = -abs(params["rate"]) - abs(params["layers"] - 3) - (params["opt"] == "sgd") + 1
        assert trial.value == score
        request = system.job(trial.job).request
        assert request["CheckpointConfig"]["S3Uri"] == f"s3://system/kept/{trial.job}"
        assert {"Key": "team", "Value": "vision"} in request["Tags"]
    best = max(trials, key=lambda trial: trial.value or 0)
    assert second.best_training_job() == best.job
    assert second.best_estimator().latest_training_job.name == best.job
    table = second.analytics().dataframe()
    assert {trial.params["opt"] for trial in trials} == {"adam", "sgd"}
    assert list(table["TrainingJobName"]) == names
    assert list(table["FinalObjectiveValue"]) == [trial.value for trial in trials]
    assert set(table.columns) >= {"rate", "layers", "opt", "TrainingJobStatus"}
    assert "rate" not in estimator.hyperparameters()


def test_what_a_tuner_does_not_have_is_said() -> None:
    ranges = {"x": Interval(0, 1)}
    definitions: Sequence[dict[str, str]] = [{"Name": "loss", "Regex": "(.)"}]
    for settings, words in (
        ({"strategy": "Hyperband"}, "strategy is 'Hyperband': it must be Bayesian, Random, Grid"),
        ({"objective_type": "Max"}, "objective_type"),
        ({"metric_definitions": None}, "The pattern of loss in the log is missing"),
        ({"hyperparameter_ranges": {"x": 3}}, "x is 3"),
        ({"max_jobs": None}, "max_jobs"),
    ):
        given: Any = {"hyperparameter_ranges": ranges, "metric_definitions": definitions, "max_jobs": 1, **settings}
        estimator = type("Estimator", (), {"metric_definitions": None})()
        with pytest.raises(Exception, match=re.escape(words)):
            QueueTuner(estimator, "loss", **given)
