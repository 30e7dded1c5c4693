"""Sixty jobs on a local cloud with many faults: `python benchmarks/faults.py [--seeds 10] [--hasty]`.

Every seed has a local cloud of its own. Eight threads submit the jobs. Some jobs are gangs, and later jobs have higher
priorities. At the end SageMaker's records must show the following, or the status is 1:

- each job was completed exactly once
- no two attempts of a job ran at the same time
- the instances in use were never more than the queue may use
- the queue's history has each attempt once, with its times
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

from local_cloud.aws.stack import LocalCloud  # noqa: E402
from local_cloud.faults.injection import Faults, parse  # noqa: E402
from local_cloud.faults.time_warp import TimeWarp  # noqa: E402
from local_cloud.sagemaker.account.past_jobs import PAST  # noqa: E402
from sagemaker_queue import PastAttempt, QueueClient  # noqa: E402
from sagemaker_queue.workflows.usage.sums import PriceList, sum_usage  # noqa: E402

FAULTS = "throttle=0.2,capacity=0.1,duplicate=0.3,late=0.3,lost=0.2,crash=0.05,slow=0.1,unanswered=0.05"
JOBS = 60
THREADS = 8
SLOTS = 12
INSTANCES = (1, 1, 2, 1, 3)  # instances of successive jobs; the sequence repeats
PRIORITIES = 5
SHORT, LONG = 0.3, 3.0  # seconds of training; LONG for the lowest priority, whose jobs also wait for the gate file
PATIENCE = 1800.0  # seconds
KIND = "ml.p5.48xlarge"
# Prefixes of FailureReason if SageMaker, and not the job, has caused the failure.
NOT_ITS_FAULT = ("CapacityError", "InternalServerError")


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    seconds: float
    injected: dict[str, int]
    attempts: int
    preempted: int  # attempts that were stopped
    most_in_use: int
    dead_letters: int
    faults: list[str]  # the queue's own errors, not the injected faults: none are expected


def run(cloud: LocalCloud, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> Outcome:
    """Run the jobs on a local cloud and check the results.

    :param waiting: called repeatedly until all jobs have finished.
    :param patience: maximum seconds to wait until all jobs have finished.
    """
    began, submitted = time.monotonic(), datetime.now(UTC) - timedelta(days=1)
    queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
    cloud.client("s3").create_bucket(Bucket="models")
    names = [f"job{number:02}" for number in range(JOBS)]
    with ThreadPoolExecutor(THREADS) as pool, TemporaryDirectory() as folder:
        gate = Path(folder, "open")
        submissions = [
            pool.submit(queue.submit, request(cloud, name, number, gate)) for number, name in enumerate(names)
        ]
        while not {job.job for job in queue.jobs("finished")}.issuperset(names) and time.monotonic() - began < patience:
            if cloud.training.most_in_use.get(KIND, 0) > SLOTS / 2:
                gate.touch()
            waiting()
            time.sleep(1)
        for each in submissions:
            each.result()
    seconds = time.monotonic() - began
    injected = cloud.fault_counts()
    cloud.faults.end()
    attempts = list(described(cloud.client("sagemaker")))
    most = cloud.training.most_in_use.get(KIND, 0)
    return Outcome(
        seconds=seconds,
        injected=injected,
        attempts=len(attempts),
        preempted=[attempt["TrainingJobStatus"] for attempt in attempts].count("Stopped"),
        most_in_use=most,
        dead_letters=dead_letters(cloud),
        faults=[
            *wrong_states(queue, names),
            *(fault for name in names for fault in wrong_attempts(name, attempts)),
            *([f"{most} instances were in use at once"] if most > SLOTS else []),
            *(f"{it['TrainingJobName']} belongs to no job" for it in attempts if job_of(it) not in names),
            *wrong_history(list(queue.history(submitted)), attempts),
        ],
    )


def request(cloud: LocalCloud, name: str, number: int, gate: Path) -> dict[str, Any]:
    """Return a CreateTrainingJob request for a job that needs almost no processor time.

    :param gate: a file. The long jobs run until the file exists, so that many run at once even on a slow machine.
    """
    priority = number * PRIORITIES // JOBS
    long = f"sleep {LONG}; until [ -e '{gate}' ]; do sleep 0.2; done"
    return {
        "TrainingJobName": name,
        "RoleArn": cloud.role,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sleep", str(SHORT)] if priority else ["sh", "-c", long],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://models/output"},
        "ResourceConfig": {
            "InstanceType": KIND,
            "InstanceCount": INSTANCES[number % len(INSTANCES)],
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "Tags": [{"Key": "priority", "Value": str(priority)}],
    }


def described(sagemaker: Any) -> Iterator[dict[str, Any]]:
    """Yield SageMaker's descriptions of all training jobs, except for the past jobs of a strict account."""
    for page in sagemaker.get_paginator("list_training_jobs").paginate():
        for job in page["TrainingJobSummaries"]:
            if job["TrainingJobName"].startswith(PAST):
                continue
            yield sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])


def job_of(attempt: dict[str, Any]) -> str:
    """Return the name of an attempt's job."""
    return str(attempt["TrainingJobName"]).rpartition("-qstamp-")[0]


def wrong_states(queue: QueueClient, names: Sequence[str]) -> Iterator[str]:
    """Yield an error for each job that the queue has lost, or has not recorded as completed."""
    states = {job.job: job.state for job in queue.jobs("all")}
    for name in names:
        if (state := states.get(name)) != "completed":
            yield f"{name} is {state or 'lost'}"


def wrong_attempts(name: str, attempts: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the errors in the attempts of one job.

    Exactly one attempt must have completed. The others must have been stopped, or have failed because of
    SageMaker. No attempt may begin before the previous one has ended.
    """
    own = sorted((each for each in attempts if job_of(each) == name), key=lambda each: each["CreationTime"])
    statuses = Counter(each["TrainingJobStatus"] for each in own)
    if statuses["Completed"] != 1 or set(statuses) - {"Completed", "Stopped", "Failed"}:
        yield f"the attempts of {name} have ended {dict(statuses)}"
    for each in own:
        if each["TrainingJobStatus"] == "Failed" and not each["FailureReason"].startswith(NOT_ITS_FAULT):
            yield f"{each['TrainingJobName']} has failed: {each['FailureReason']}"
    for earlier, later in zip(own, own[1:], strict=False):
        end = earlier.get("TrainingEndTime")
        if end is None or later["CreationTime"] < end:
            yield f"{later['TrainingJobName']} began before {earlier['TrainingJobName']} had ended"


def wrong_history(history: Sequence[PastAttempt], attempts: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the differences between the queue's history and SageMaker's records of its attempts.

    Each attempt must have one entry, with times that are equal to the second.
    """
    counts = Counter(past.training_job_name for past in history)
    own = {str(attempt["TrainingJobName"]): attempt for attempt in attempts}
    yield from (f"{name} is in the history {number} times" for name, number in counts.items() if number != 1)
    yield from (f"{name} is not in the history" for name in own.keys() - counts.keys())
    yield from (f"{name} is in the history, and SageMaker does not know it" for name in counts.keys() - own.keys())
    for past in history:
        attempt = own.get(past.training_job_name or "")
        if attempt is None:
            continue
        resources, began = attempt["ResourceConfig"], attempt.get("TrainingStartTime")
        told = (resources["InstanceType"], resources["InstanceCount"], attempt["CreationTime"], began)
        known = (*next(iter(past.instances.items()), ("", 0)), past.launched, past.began)
        if any(_differ(one, other) for one, other in zip(told, known, strict=True)):
            yield f"{past.training_job_name}: SageMaker tells {told}, the history {known}"
        if began and _differ(attempt["TrainingEndTime"], past.ended):
            yield f"{past.training_job_name} ended at {attempt['TrainingEndTime']}, not at {past.ended}"
    ran = sum(_instance_seconds(attempt) for attempt in own.values())
    used = sum_usage(history, "project", PriceList({}))[1].ran  # the sum that `smq usage` shows
    if abs(ran - used) >= 1:
        yield f"SageMaker's records have {ran:.3f} instance-seconds, the history has {used:.3f}"


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, datetime) and isinstance(other, datetime):
        return abs((one - other).total_seconds()) >= 1
    return bool(one != other)


def _instance_seconds(attempt: dict[str, Any]) -> float:
    if not attempt.get("TrainingStartTime"):
        return 0.0
    ran: float = (attempt["TrainingEndTime"] - attempt["TrainingStartTime"]).total_seconds()
    return ran * int(attempt["ResourceConfig"]["InstanceCount"])


def dead_letters(cloud: LocalCloud) -> int:
    """Return the number of events in dead-letter queues, which are the events that the function failed to handle."""
    sqs = cloud.client("sqs")
    counts = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
        for url in sqs.list_queues().get("QueueUrls", [])
    ]
    return sum(int(count["ApproximateNumberOfMessages"]) for count in counts)


def main() -> int:
    """Run the seeds and print a table; return the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--faults", default=FAULTS, help=f"default {FAULTS}")
    arguments.add_argument("--seeds", type=int, default=10, metavar="N", help="how many seeds (default 10)")
    arguments.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of them (default 1)")
    arguments.add_argument("--parallel", type=int, default=1, metavar="N", help="how many at once (default 1)")
    arguments.add_argument("--strict", action="store_true", help="an account as AWS makes it: rates, quotas, a history")
    arguments.add_argument("--hasty", action="store_true", help="advance the clock faster than real time")
    options = arguments.parse_args()
    kinds = list(parse(options.faults))
    if options.seeds == 1:
        return one(options.faults, options.first, hasty=options.hasty, strict=options.strict)
    columns = ["seed", "seconds", *kinds, "attempts", "preempted", "in use", "dead letters", "wrong"]
    print(row(*columns), row(*["---:"] * len(columns)), sep="\n", flush=True)
    command = [sys.executable, __file__, "--faults", options.faults, "--seeds", "1"]
    command += [*(["--hasty"] if options.hasty else []), *(["--strict"] if options.strict else []), "--first"]

    def other(seed: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, str(seed)], stdout=subprocess.PIPE, text=True, check=False)

    status = 0
    with ThreadPoolExecutor(options.parallel) as pool:
        for done in pool.map(other, range(options.first, options.first + options.seeds)):
            print(done.stdout, end="", flush=True)
            status = max(status, abs(done.returncode))
    return status


def one(faults: str, seed: int, *, hasty: bool, strict: bool) -> int:
    """Run one seed and print its line; return the exit status."""
    with LocalCloud(SLOTS, faults=Faults(parse(faults), seed), strict=strict) as cloud:
        outcome = run(cloud, TimeWarp(cloud)) if hasty else run(cloud)
    counts = (
        outcome.attempts,
        outcome.preempted,
        f"{outcome.most_in_use}/{SLOTS}",
        outcome.dead_letters,
        len(outcome.faults),
    )
    print(row(seed, f"{outcome.seconds:.0f}", *outcome.injected.values(), *counts), flush=True)
    for fault in outcome.faults:
        print(f"  seed {seed}: {fault}", flush=True)
    return 1 if outcome.faults else 0


def row(*cells: object) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    sys.exit(main())
