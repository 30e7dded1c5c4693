"""Sixty members on two carriers with many faults: `python benchmarks/shared_faults.py [--seeds 10] [--first 1]`.

Every seed has a local cloud of its own, with the kinds of faults of benchmarks/faults.py except `capacity` and `crash`.
In addition, agents are killed, a carrier is stopped directly in SageMaker, events about members' reports are lost, and
some members ignore signals. At the end the agents' reports must show that each job was completed exactly once. The
processes are checked repeatedly: the members on a GPU must never have more than one whole GPU together.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

import psutil  # noqa: E402

from local_cloud.aws.deployment import WORK_BUCKET  # noqa: E402
from local_cloud.aws.stack import LocalCloud  # noqa: E402
from local_cloud.faults.injection import Faults, parse  # noqa: E402
from local_cloud.faults.time_warp import TimeWarp  # noqa: E402
from local_cloud.sagemaker.job_processes.process import MARK  # noqa: E402
from sagemaker_queue import QueueClient  # noqa: E402

FAULTS = "throttle=0.1,duplicate=0.3,late=0.3,lost=0.2,slow=0.1,unanswered=0.05"
JOBS = 60
GPUS = ("1", "1", "2", "0.5", "0.3", "4", "1", "0.5")  # values of the tag of successive jobs; the sequence repeats
PRIORITIES = 5
KIND = "ml.p5.48xlarge"
PATIENCE = 1800.0  # seconds
KILLED_AT = (8, 20, 40)  # numbers of finished jobs at which an agent is killed
STOPPED_AT = 50  # number of finished jobs at which a carrier is stopped in SageMaker, not by the queue
NO_EVENTS_FROM, NO_EVENTS_TO = 10, 30  # numbers of finished jobs between which the queue gets no events about reports
POLICY = {
    "pools": [{"name": "p5", "instance_type": KIND, "capacity": 2, "shared": True, "keep_warm": 30}],
    "projects": [{"name": "nlp", "quota": {"p5": 2}}],
}


@dataclass
class Run:
    """The run of one seed."""

    cloud: LocalCloud
    seed: int
    killed: int = 0  # number of killed agents
    stopped: int = 0  # number of carriers that were stopped in SageMaker
    looks: int = 0  # checks of the processes
    wrong: list[str] = field(default_factory=list)

    def go(self) -> float:
        """Run the jobs with all faults, and check the results; return the seconds."""
        began, rng, warp = time.monotonic(), random.Random(self.seed), TimeWarp(self.cloud)
        queue = QueueClient(url=self.cloud.queue_url, boto_session=self.cloud.boto_session())
        self.cloud.client("s3").create_bucket(Bucket="models")
        names = [f"job{number:02}" for number in range(JOBS)]
        for number, name in enumerate(names):
            queue.submit(self.request(name, number))
        enabled = True
        while (done := finished(queue, names)) < JOBS and time.monotonic() - began < PATIENCE:
            if self.killed < len(KILLED_AT) and done >= KILLED_AT[self.killed]:
                self.kill_an_agent(rng)
            if done >= STOPPED_AT and not self.stopped:
                self.stop_a_carrier()
            if enabled == (NO_EVENTS_FROM <= done < NO_EVENTS_TO):
                enabled = not enabled
                self.set_report_events(enabled=enabled)
            self.check_gpus()
            warp()
            time.sleep(0.3)
        self.cloud.faults.end()
        self.wrong += self.wrong_ends(queue, names)
        return time.monotonic() - began

    def request(self, name: str, number: int) -> dict[str, Any]:
        """Return the request for a member that needs almost no processor time. Every twelfth job ignores SIGTERM."""
        ignoring = "trap '' TERM; " if number % 12 == 5 else ""
        return {
            "TrainingJobName": name,
            "RoleArn": self.cloud.role,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["sh", "-c", f"{ignoring}sleep {1 + number % 4}"],
            },
            "OutputDataConfig": {"S3OutputPath": "s3://models/output"},
            "ResourceConfig": {"InstanceType": KIND, "InstanceCount": 1, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "Tags": [
                {"Key": "priority", "Value": str(number * PRIORITIES // JOBS)},
                {"Key": "gpus", "Value": GPUS[number % len(GPUS)]},
            ],
        }

    # --- faults ------------------------------------------------------------------------------------------

    def kill_an_agent(self, rng: random.Random) -> None:
        """Kill a random agent with SIGKILL, the signal that Linux sends when memory runs out."""
        agents = [process for process, env in self.processes() if "SMQ_MEMBER" not in env and is_agent(process)]
        if agents:
            rng.choice(agents).kill()
            self.killed += 1

    def stop_a_carrier(self) -> None:
        """Stop a carrier's training job, as an operator could in SageMaker's console."""
        sagemaker = self.cloud.client("sagemaker")
        running = sagemaker.list_training_jobs(StatusEquals="InProgress")["TrainingJobSummaries"]
        for job in running[:1]:
            with suppress(sagemaker.exceptions.ClientError):  # the job has ended meanwhile
                sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])
                self.stopped += 1

    def set_report_events(self, *, enabled: bool) -> None:
        """Enable or disable the events by which the queue learns of members' reports."""
        events = self.cloud.client("events")
        (rule,) = [it["Name"] for it in events.list_rules()["Rules"] if "aws.s3" in it.get("EventPattern", "")]
        (events.enable_rule if enabled else events.disable_rule)(Name=rule)

    # --- checks ------------------------------------------------------------------------------------------

    def check_gpus(self) -> None:
        """Record an error for each GPU of which the members together have more than the whole."""
        self.looks += 1
        members = {env["SMQ_MEMBER"]: env for _, env in self.processes() if "SMQ_MEMBER" in env}
        taken: Counter[tuple[str, str]] = Counter()
        for env in members.values():
            part = round(float(env.get("SMQ_GPU_MEMORY_FRACTION", "1")) * 10)
            taken.update({(env[MARK], gpu): part for gpu in env["CUDA_VISIBLE_DEVICES"].split(",")})
        self.wrong += [
            f"GPU {gpu} of {carrier} is given {tenths}/10" for (carrier, gpu), tenths in taken.items() if tenths > 10
        ]

    def wrong_ends(self, queue: QueueClient, names: list[str]) -> Iterator[str]:
        """Yield an error for each job that was not completed by exactly one attempt, and for too many instances."""
        states = {job.job: job.state for job in queue.jobs("all")}
        ends: Counter[str] = Counter()
        s3 = self.cloud.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=WORK_BUCKET, Prefix="carriers/"):
            for it in page.get("Contents", []):
                if it["Key"].endswith("/ended.json"):
                    message = json.loads(s3.get_object(Bucket=WORK_BUCKET, Key=it["Key"])["Body"].read())
                    report = json.loads(message["report"])
                    name = it["Key"].split("/")[3].rpartition("-qstamp-")[0]
                    ends[name] += report["status"] == "Completed"
        for name in names:
            if states.get(name) != "completed":
                yield f"{name} is {states.get(name) or 'lost'}"
            if ends[name] != 1:
                yield f"{name} was completed {ends[name]} times"
        if self.cloud.training.most_in_use.get(KIND, 0) > 2:
            yield f"{self.cloud.training.most_in_use[KIND]} instances were in use at once"

    def processes(self) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
        """Yield the processes of this cloud's jobs, with their environments."""
        for process in psutil.process_iter():
            try:
                env = process.environ()
                if self.cloud.mark.items() <= env.items() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process, env
            except psutil.Error:
                continue


def is_agent(process: psutil.Process) -> bool:
    """Return whether a process runs the agent of a carrier."""
    return "carrier_agent.agent" in " ".join(process.cmdline())


def finished(queue: QueueClient, names: list[str]) -> int:
    """Return the number of finished jobs."""
    return len({job.job for job in queue.jobs("finished")} & set(names))


def one(seed: int) -> int:
    """Run one seed and print its line; return the exit status."""
    with TemporaryDirectory(), LocalCloud(2, policy=POLICY, faults=Faults(parse(FAULTS), seed)) as cloud:
        run = Run(cloud, seed)
        seconds = run.go()
        carriers = len({it["TrainingJobName"] for it in described(cloud)})
    print(f"| {seed} | {seconds:.0f} | {carriers} | {run.killed} | {run.looks} | {len(run.wrong)} |", flush=True)
    for fault in run.wrong:
        print(f"  seed {seed}: {fault}", flush=True)
    return 1 if run.wrong else 0


def described(cloud: LocalCloud) -> Iterator[dict[str, Any]]:
    """Yield the summaries of all training jobs."""
    for page in cloud.client("sagemaker").get_paginator("list_training_jobs").paginate():
        yield from page["TrainingJobSummaries"]


def main() -> int:
    """Run the seeds and print a table; return the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=10, metavar="N", help="how many seeds (default 10)")
    arguments.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of them (default 1)")
    options = arguments.parse_args()
    if options.seeds == 1:
        return one(options.first)
    print("| seed | seconds | carriers | agents killed | looks | wrong |\n|---:|---:|---:|---:|---:|---:|", flush=True)
    status = 0
    for seed in range(options.first, options.first + options.seeds):
        done = subprocess.run([sys.executable, __file__, "--seeds", "1", "--first", str(seed)], check=False)
        status = max(status, abs(done.returncode))
    return status


if __name__ == "__main__":
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    sys.exit(main())
