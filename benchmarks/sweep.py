"""A search with 30 trials on three slots, and Optuna alone: `python benchmarks/sweep.py [--seeds 1] [--alone 100]`.

`smq sweep` runs the trials on a local cloud. In the middle, a job that needs all slots preempts the running trials, and
the process of the search is killed and started again. The minimised function has a known optimum, 0. For comparison,
Optuna alone calls the same function 30 times, one trial or three trials at a time, with its own sampler and with ours.
TPE's proposals depend on the trials that have ended. So a search with several trials at a time has other trials than
Optuna alone. Only the best values can be compared, over many seeds. The status is 1 if a trial is lost or ran twice.
The status is also 1 if the search is worse than 95 of 100 runs of Optuna alone.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

from local_cloud.aws.stack import LocalCloud  # noqa: E402
from sagemaker_queue import QueueClient  # noqa: E402
from sagemaker_queue.tuning.samplers import distributions, sampler_of  # noqa: E402
from sagemaker_queue.tuning.space import Choice, Interval, Space  # noqa: E402

TRIALS, SLOTS = 30, 3
HELD = 12  # number of the trial whose first attempt runs until it is preempted
PATIENCE = 900.0  # seconds
SPACE: Space = {"lr": Interval(1e-5, 1, log=True), "x": Interval(-1, 1), "opt": Choice(("adam", "sgd"))}
OPTIONS = ["--space", "lr=log:1e-5..1", "--space", "x=-1..1", "--space", "opt=adam,sgd"]
TRAIN = f"""
import math, os, pathlib, sys, time
lr, x, opt = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "begun")
resumed = kept.exists()
kept.write_text("")
while "-{HELD:03}-" in os.environ["TRAINING_JOB_NAME"] and not resumed:
    time.sleep(0.1)
print("loss:", (math.log10(lr) + 2) ** 2 + 4 * (x - 0.3) ** 2 + (opt == "sgd"))
"""


def loss(params: dict[str, Any]) -> float:
    """Return the value of the minimised function, the same as in TRAIN."""
    away: float = (math.log10(params["lr"]) + 2) ** 2 + 4 * (params["x"] - 0.3) ** 2 + (params["opt"] == "sgd")
    return away


def alone(seed: int, *, ours: bool, at_once: int = 1) -> float:
    """Return the best value that Optuna alone finds.

    :param ours: whether to use the sampler of `smq sweep`; otherwise Optuna's own.
    :param at_once: trials at a time.
    """
    sampler = sampler_of("tpe", seed, SPACE) if ours else optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    live: deque[optuna.Trial] = deque()
    for _ in range(TRIALS):
        live.append(study.ask(distributions(SPACE)))
        if len(live) == at_once:
            study.tell(live[0], loss(live.popleft().params))
    for trial in live:
        study.tell(trial, loss(trial.params))
    return float(study.best_value)


def search(cloud: LocalCloud, seed: int, folder: Path) -> tuple[float, list[str]]:
    """Run a search that is preempted, killed and started again; return its best value and its errors.

    :param folder: working folder of the search.
    """
    name = f"bench{seed}"
    (folder / "train.py").write_text(TRAIN)
    queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
    command = [sys.executable, "-m", "sagemaker_queue", "sweep", "--study", name, *OPTIONS, "--checkpoint", "--json"]
    command += ["--metric", r"loss=loss: (\S+)", "--minimize", "--trials", str(TRIALS), "--parallel", str(SLOTS)]
    command += ["--seed", str(seed), "--poll", "0.5", "--", "python", "train.py", "{lr}", "{x}", "{opt}"]
    environment = {**os.environ, **cloud.environment(), "XDG_DATA_HOME": str(folder), "HOME": str(folder)}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'client'}"

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)

    def wait(job: str, state: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(one.job == job and one.state == state for one in queue.jobs("all")):
            assert time.monotonic() < deadline, f"{job} is not {state}"
            time.sleep(0.3)

    held = f"{name}-{HELD:03}"
    process = start()
    try:
        wait(held, "running")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        queue.submit(urgent(cloud, f"urgent{seed}"))
        wait(f"urgent{seed}", "completed")
        process = start()
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    wrong = [] if process.returncode == 0 else [f"it ended with {process.returncode}"]
    jobs = sorted(job.job for job in queue.jobs("all") if job.group == name)
    wrong += [] if jobs == [f"{name}-{number:03}" for number in range(TRIALS)] else [f"its jobs are {jobs}"]
    outcomes = {job: [attempt.outcome for attempt in queue.job(job).attempts] for job in jobs}
    wrong += [f"{job}: {ended}" for job, ended in outcomes.items() if ended.count("completed") != 1]
    preempted = sum("preempted" in ended for ended in outcomes.values())
    wrong += [] if preempted else ["nothing was preempted"]
    result = json.loads(out)
    wrong += [f"{trial}" for trial in result["trials"] if trial["value"] != loss(trial["params"])]
    print(f"seed {seed}: {len(jobs)} jobs, {preempted} preempted, best {result['best']['value']:.4f}", flush=True)
    return float(result["best"]["value"]), wrong


def urgent(cloud: LocalCloud, name: str) -> dict[str, Any]:
    """Return the request for a job that needs all slots for half a second."""
    return {
        "TrainingJobName": name,
        "RoleArn": cloud.role,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sleep", "0.5"],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://models/output"},
        "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": SLOTS, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "Tags": [{"Key": "priority", "Value": "9"}],
    }


def main() -> int:
    """Run the searches, compare them and print the results; return the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=1, metavar="N", help="searches on the local cloud (default 1)")
    arguments.add_argument("--alone", type=int, default=100, metavar="N", help="runs of Optuna alone (default 100)")
    options = arguments.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = {
        f"Optuna alone, {whose}, {often}": sorted(alone(seed, ours=ours, at_once=at) for seed in range(options.alone))
        for at, often in ((1, "one at a time"), (SLOTS, "three at a time"))
        for ours, whose in ((False, "its own seeds"), (True, "our seeds"))
    }
    print("| best of 30 trials | median | 5 of 100 are worse than |\n|---|---|---|")
    for name, bests in kinds.items():
        print(f"| {name} | {statistics.median(bests):.4f} | {bests[int(len(bests) * 0.95)]:.4f} |", flush=True)
    own = kinds["Optuna alone, its own seeds, three at a time"]
    bound = own[int(len(own) * 0.95)]
    status = 0
    with LocalCloud(SLOTS) as cloud:
        cloud.client("s3").create_bucket(Bucket="models")
        for seed in range(options.seeds):
            with TemporaryDirectory() as folder:
                best, wrong = search(cloud, seed, Path(folder))
            beaten = sum(other < best for other in own)
            print(f"  {beaten} of {len(own)} of Optuna's own, three at a time, are better; with this seed", end=" ")
            print(f"it finds {alone(seed, ours=False, at_once=SLOTS):.4f}", flush=True)
            wrong += [] if best <= bound else [f"its best, {best:.4f}, is worse than {bound:.4f}"]
            for fault in wrong:
                print(f"  WRONG: {fault}", flush=True)
            status = max(status, int(bool(wrong)))
    return status


if __name__ == "__main__":
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    sys.exit(main())
