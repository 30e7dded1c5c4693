"""The account that the suite works in: what it makes there, and how all of it goes away again."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from sagemaker_queue import JobDetail, PolicyAnswer, QueueClient, QueueError
from tests.acceptance.plan import CAPACITY, LONGEST_SECONDS, TRAINING_JOBS

ROOT = Path(__file__).parents[2]
ENDED = ("Completed", "Failed", "Stopped")
POOL = "acceptance"
PROJECT = "acceptance"


@dataclass(frozen=True)
class Settings:
    """Where the suite runs, from the environment that `python -m tests.acceptance` has made."""

    instance_type: str
    image: str
    role: str
    bucket: str
    patience_seconds: float
    look_seconds: float  # between two looks

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read what the suite's own command has put there."""
        return cls(**json.loads(os.environ["ACCEPTANCE_SETTINGS"]))


@dataclass
class Account:
    """A user of the queue, who is its administrator, and remembers everything that they make."""

    settings: Settings
    folder: Path
    queue: QueueClient = field(default_factory=QueueClient)
    run: str = field(default_factory=lambda: f"acc-{uuid.uuid4().hex[:8]}")
    external: list[str] = field(default_factory=list)
    started: dict[str, list[int]] = field(default_factory=dict)  # by check: instances of each training job
    check: str = ""
    _policy: PolicyAnswer | None = None

    def __post_init__(self) -> None:
        self.session = boto3.Session(region_name=self.queue.region)
        make: Any = self.session.client
        self.sagemaker: Any = make("sagemaker")
        self.s3: Any = make("s3")

    # --- before and after ----------------------------------------------------------------------------

    def make_bucket(self) -> None:
        """Create the bucket of the settings unless it exists."""
        with suppress(self.s3.exceptions.BucketAlreadyOwnedByYou):
            region = self.queue.region
            where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            self.s3.create_bucket(Bucket=self.settings.bucket, **where)

    def prepare(self) -> None:
        """Take the queue over: its policy is this suite's until `tidy`. A queue in use is left alone."""
        live = [job.job for job in self.queue.jobs()]
        if live:
            pytest.exit(f"The queue has live jobs ({', '.join(live[:5])}): the suite needs it for itself.", 1)
        if not self.queue.whoami().applies_policies:
            pytest.exit("The suite applies policies, and these credentials may not: see the parameter AdminArns.", 1)
        self.make_bucket()
        self._policy = self.queue.policy()
        self.apply(self.policy_of(CAPACITY))

    def tidy(self) -> list[str]:
        """End every job, remove every object, restore the policy; returns what could not be done."""
        left: list[str] = []
        for name in self.external:
            with suppress(ClientError):  # it has ended
                self.sagemaker.stop_training_job(TrainingJobName=name)
        steps: tuple[Callable[[], object], ...] = (self._end_jobs, self._remove_objects, self._restore_policy)
        for step in steps:
            try:
                step()
            except (QueueError, ClientError, TimeoutError) as error:
                left.append(f"{step.__name__.strip('_').replace('_', ' ')}: {error}")
        return left

    def _end_jobs(self) -> None:
        for job in self.mine():
            self.queue.cancel(job)
        self.wait("all jobs to end", lambda: not self.mine())
        self.wait("jobs past the queue to end", lambda: all(self.status(name) in ENDED for name in self.external))

    def mine(self) -> list[str]:
        """Live jobs of this run."""
        return [job.job for job in self.queue.jobs() if job.job.startswith(self.run)]

    def _remove_objects(self) -> None:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.settings.bucket, Prefix=f"{self.run}/")
        for page in pages:
            for stored in page.get("Contents", []):
                self.s3.delete_object(Bucket=self.settings.bucket, Key=stored["Key"])

    def _restore_policy(self) -> None:
        if self._policy:
            self.queue.apply_policy(self._policy.policy, self.queue.policy().version, force=True)

    # --- jobs ----------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        """A name of this run."""
        return f"{self.run}-{what}"

    def uri(self, *parts: str) -> str:
        """An address of this run in S3."""
        return "/".join([f"s3://{self.settings.bucket}", self.run, *parts])

    def uses(self, *instances: int) -> None:
        """Note that the check starts training jobs; not more than the plan says."""
        noted, planned = self.started.setdefault(self.check, []), TRAINING_JOBS[self.check]
        noted += instances
        assert len(noted) <= len(planned) and sum(noted) <= sum(planned), "tests/acceptance/plan.py says less"

    def request(self, what: str, script: str, *, instances: int = 1, priority: int = 0, **tags: str) -> dict[str, Any]:
        """A request for a Python script, with a checkpoint folder of its own."""
        all_tags = {"priority": str(priority), "project": PROJECT, **tags}
        return {
            "TrainingJobName": self.name(what),
            "RoleArn": self.settings.role,
            "AlgorithmSpecification": {
                "TrainingImage": self.settings.image,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python3", "-c", "import os; exec(os.environ['SCRIPT'])"],
            },
            "Environment": {"SCRIPT": script},
            "OutputDataConfig": {"S3OutputPath": self.uri("output")},
            "ResourceConfig": {
                "InstanceType": self.settings.instance_type,
                "InstanceCount": instances,
                "VolumeSizeInGB": 10,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": LONGEST_SECONDS},
            "CheckpointConfig": {"S3Uri": self.uri("checkpoints", what)},
            "Tags": [{"Key": key, "Value": value} for key, value in all_tags.items()],
        }

    def submit(self, what: str, script: str, **options: Any) -> str:
        """Queue a script; returns the job's name."""
        return self.queue.submit(self.request(what, script, **options)).job

    def start_past_the_queue(self, what: str, script: str, instances: int = 1) -> str:
        """Start a training job without the queue, by CreateTrainingJob; return its name."""
        request = self.request(what, script, instances=instances)
        self.external.append(request["TrainingJobName"])
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def policy_of(self, capacity: int, **project: Any) -> dict[str, Any]:
        """A policy with one pool."""
        return {
            "pools": [{"name": POOL, "instance_type": self.settings.instance_type, "capacity": capacity}],
            "projects": [{"name": PROJECT, "quota": {POOL: capacity}, **project}],
        }

    def apply(self, document: Mapping[str, Any]) -> PolicyAnswer:
        """Apply a policy in the place of the one that is."""
        return self.queue.apply_policy(document, self.queue.policy().version)

    # --- looking -------------------------------------------------------------------------------------

    def wait(self, what: str, reached: Callable[[], Any]) -> Any:
        """Look until it is so; raises TimeoutError."""
        deadline = time.monotonic() + self.settings.patience_seconds
        while not (found := reached()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {self.settings.patience_seconds:.0f} s for {what}")
            time.sleep(self.settings.look_seconds)
        return found

    def wait_state(self, name: str, *states: str) -> JobDetail:
        """Wait for one of the states; a job that ends otherwise fails the check at once."""

        def reached() -> JobDetail | None:
            job = self.queue.job(name)
            if job.state in states:
                return job
            assert not job.finished, f"{name} is {job.state}: {job.reason}"
            return None

        found: JobDetail = self.wait(f"{name} to be {' or '.join(states)}", reached)
        return found

    def wait_line(self, name: str, text: str) -> None:
        """Wait for a line in the job's log, as `smq logs` shows it."""
        self.wait(f"{text!r} in the log of {name}", lambda: text in self.smq("logs", name, check=False))

    def status(self, training_job: str) -> str:
        """What SageMaker says of it."""
        return str(self.sagemaker.describe_training_job(TrainingJobName=training_job)["TrainingJobStatus"])

    def external_jobs(self) -> set[str]:
        """Names of the training jobs that were started past the queue, as it sees them."""
        return {job.training_job_name for job in self.queue.queue().external}

    # --- programs ------------------------------------------------------------------------------------

    def smq(self, *arguments: str, check: bool = True) -> str:
        """Run the command as a person would; returns what it prints."""
        return self.program([sys.executable, "-m", "sagemaker_queue", *arguments], check=check)

    def program(self, command: Sequence[str], *, check: bool = True, **variables: str) -> str:
        """Run a program in the folder; returns what it prints."""
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout
