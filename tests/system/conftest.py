"""A local cloud to run the whole system on, and what the tests say to it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from api_contract.models import ACTIVE, WAITING
from local_cloud.aws.stack import LocalCloud
from local_cloud.sagemaker.account.past_jobs import PAST
from sagemaker_queue import JobDetail, NotFound, QueueClient, QueueError
from tests.waiting import PATIENCE, processes

FOREVER = "import time\nwhile True: time.sleep(0.1)"  # a script that runs until it is stopped
WAIT = "import os, time\nwhile not os.path.exists({file!r}): time.sleep(0.05)"  # ... until a file is there
TABLES = ("sagemaker-queue", "sagemaker-queue-lines", "sagemaker-queue-history")
_STAMPS = {"published-plan": ("at", "token")}  # what a cycle that publishes the same plan again changes, by partition


class System:
    """A user's view of a local cloud, and SageMaker's truth besides."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
        self.sagemaker = cloud.client("sagemaker")
        cloud.client("s3").create_bucket(Bucket="system")

    def request(self, name: str, script: str, priority: int = 0, instances: int = 1, **changes: Any) -> dict[str, Any]:
        """A request for a Python script, with a checkpoint folder of its own."""
        return {
            "TrainingJobName": name,
            "RoleArn": self.cloud.role,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python", "-c", "import os; exec(os.environ['SCRIPT'])"],
            },
            "Environment": {"SCRIPT": script or "pass"},
            "OutputDataConfig": {"S3OutputPath": "s3://system/output"},
            "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": instances, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
            "CheckpointConfig": {"S3Uri": f"s3://system/checkpoints/{name}"},
            "Tags": [{"Key": "priority", "Value": str(priority)}],
            **changes,
        }

    def submit(self, name: str, script: str = "", **options: Any) -> str:
        """Submit, and give the state that the answer tells."""
        return self.queue.submit(self.request(name, script, **options)).state

    def job(self, name: str) -> JobDetail:
        return self.queue.job(name)

    def state(self, name: str) -> str | None:
        try:
            return self.job(name).state
        except NotFound:
            return None

    def wait(self, what: str, reached: Callable[[], Any], each_time: Callable[[], object] = lambda: None) -> None:
        began = time.monotonic()
        while not reached():
            each_time()
            waited = time.monotonic() - began
            if waited > PATIENCE:
                live = {job.job: job.state for job in self.queue.jobs()}
                pytest.fail(f"waited {PATIENCE:.0f} s for {what}; live jobs: {live}")
            time.sleep(min(1.0, 0.2 + waited / 20))  # each look is an invocation of the function

    def settles(self, read: Callable[[], Any], expected: Any) -> None:
        """Wait until a reading is as expected: what a listing and the status show may be some seconds old."""
        self.wait(str(expected), lambda: read() == expected)

    def empty(self, each_time: Callable[[], object] = lambda: None) -> None:
        """Cancel all jobs, and wait until none is left."""

        def emptied() -> bool:
            live = self._live_jobs()
            for name in live:
                with suppress(QueueError):
                    self.queue.cancel(name)
            return not live and not list(self.queue.jobs())  # the next test may list, too

        self.wait("the queue to be empty", emptied, each_time)

    def _live_jobs(self) -> list[str]:
        """Return the jobs that the table has as live: a listing may lack a job that was added some seconds ago."""
        pages = self.cloud.client("dynamodb").get_paginator("scan")
        rows = [
            row for page in pages.paginate(TableName="sagemaker-queue", ConsistentRead=True) for row in page["Items"]
        ]
        return [row["jobName"]["S"] for row in rows if row["jobState"]["S"] in WAITING | ACTIVE]

    def gives_reason(self, name: str, *codes: str, message: str | None = None) -> None:
        """Wait until a job gives one of these reasons, which may be some seconds late."""

        def given() -> bool:
            reason = self.job(name).reason
            return reason is not None and reason.code in codes and message in (None, reason.message)

        self.wait(f"{name} to give the reason {' or '.join(codes)} {message or ''}", given)

    def wait_state(self, name: str, *states: str) -> None:
        self.wait(f"{name} to be {' or '.join(states)}", lambda: self.state(name) in states)

    def wait_training(self, name: str) -> None:
        """Wait until the container of a job runs. No event follows before the job ends, so its row stays the same."""
        self.wait(f"{name} to train", lambda: self.job(name).secondary_status == "Training")

    @contextmanager
    def frozen(self, attempt: str, line: str, instances: int = 1) -> Iterator[None]:
        """Suspend a training job once each of its instances has written a line that begins so; resume it at the end."""
        self.wait(
            f"{instances} instances of {attempt} to write: {line}",
            lambda: sum(said.startswith(line) for said in self.log(attempt)) >= instances,
        )
        own = {**self.cloud.mark, "TRAINING_JOB_NAME": attempt}
        running = processes(lambda environment: own.items() <= environment.items())
        assert running, f"{attempt} has ended already"
        try:
            for process in running:
                with suppress(psutil.NoSuchProcess):  # a child process may have ended meanwhile
                    process.suspend()
            yield
        finally:
            for process in running:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def run(self, name: str, script: str = FOREVER, **options: Any) -> None:
        """Submit, and wait until it runs."""
        self.submit(name, script, **options)
        self.wait_state(name, "running")

    def attempts(self) -> list[dict[str, Any]]:
        """Return all training jobs as SageMaker describes them, without the past of a strict account.

        A training job that is deleted between the listing and its description is not part of the result.
        """
        pages = self.sagemaker.get_paginator("list_training_jobs").paginate()
        names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
        described = []
        for name in names:
            if name.startswith(PAST):
                continue
            try:
                described.append(self.sagemaker.describe_training_job(TrainingJobName=name))
            except ClientError as error:
                if "not found" not in str(error):
                    raise
        return described

    def most_at_once(self) -> int:
        """The most instances that SageMaker ever had in use, from its own times."""
        changes = []
        for job in self.attempts():
            count = job["ResourceConfig"]["InstanceCount"]
            end = job.get("TrainingEndTime") or job["LastModifiedTime"]
            changes.append((job["CreationTime"], count))
            if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
                changes.append((end, -count))
        in_use = most = 0
        for _, change in sorted(changes):
            in_use += change
            most = max(most, in_use)
        return most

    def log(self, attempt: str) -> list[str]:
        return self.cloud.training_log(attempt)


def stored_rows(cloud: LocalCloud) -> list[dict[str, Any]]:
    """Return the rows of all tables, without the stamps of the published plan.

    A cycle of another process of the function publishes the same plan again with new stamps.
    """
    pages = [cloud.client("dynamodb").get_paginator("scan").paginate(TableName=table) for table in TABLES]
    rows = [row for listing in pages for page in listing for row in page["Items"]]
    return [{name: value for name, value in row.items() if name not in _STAMPS.get(line_of(row), ())} for row in rows]


def line_of(row: dict[str, Any]) -> str:
    """Return the partition of a row of the lines table; the rows of other tables have none."""
    return str(row.get("line", {}).get("S", ""))


def send(
    system: System, method: str, path: str, body: str | None = None, *, sign: bool = True, session: Any = None
) -> requests.Response:
    """One request, signed as the client signs it, or not at all."""
    url = system.cloud.queue_url + path
    headers = {"Content-Type": "application/json"}
    if sign:
        request = AWSRequest(method, url, headers=headers, data=body)
        credentials: Any = (session or system.cloud.boto_session()).get_credentials()
        SigV4Auth(credentials, "execute-api", "us-east-1").add_auth(request)
        headers = dict(request.headers)
    return requests.request(method, url, headers=headers, data=body, timeout=PATIENCE)


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=2) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def shared_system(shared_cloud: LocalCloud) -> System:
    return System(shared_cloud)


@pytest.fixture
def system(shared_system: System) -> Iterator[System]:
    """The module's system, with an empty queue before and after."""
    yield shared_system
    shared_system.empty()
