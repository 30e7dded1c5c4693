"""The training emulator, as a test talks to it: through boto3."""

import http.client
import io
import json
import tarfile
import textwrap
from typing import Any

import boto3
import psutil
from botocore.config import Config

from local_cloud.sagemaker.job_processes.process import MARK
from local_cloud.sagemaker.training_service import TrainingService
from tests.waiting import PATIENCE, processes, until

BUCKET = "training-data"
ROLE = "arn:aws:iam::000000000000:role/training"
NOT_ITS_OWN = ("[local cloud] ", "bash: cannot set terminal process group", "bash: no job control in this shell")
"""What the emulator says, and what the shell of SageMaker's images says in every log on AWS, too."""
ENDED = ("Completed", "Failed", "Stopped")

Request = dict[str, Any]


def client(service: str, url: str) -> Any:
    create: Any = boto3.client
    return create(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
    )


def request(name: str, *command: str, **changes: Any) -> Request:
    """A CreateTrainingJob request that runs the command."""
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "image",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": list(command[:1]) or ["true"],
            **({"ContainerArguments": list(command[1:])} if command[1:] else {}),
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    } | changes


class Emulator:
    """A running service, and the clients for it and for what is around it."""

    def __init__(self, service: TrainingService, aws_url: str) -> None:
        self.service = service
        self.aws_url = aws_url
        self.sagemaker = client("sagemaker", service.url)
        self.s3 = client("s3", aws_url)
        self.logs = client("logs", aws_url)

    def create(self, name: str, *command: str, **changes: Any) -> str:
        arn: str = self.sagemaker.create_training_job(**request(name, *command, **changes))["TrainingJobArn"]
        return arn

    def post(self, operation: str, body: object) -> tuple[int, dict[str, Any]]:
        """A request that boto3 would not send: status and answer."""
        connection = http.client.HTTPConnection(self.service.url.removeprefix("http://"), timeout=PATIENCE)
        try:
            connection.request("POST", "/", json.dumps(body), {"X-Amz-Target": f"SageMaker.{operation}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def script(self, name: str, code: str, hyperparameters: dict[str, Any] | None = None, **changes: Any) -> None:
        """Run `code` in script mode, as the SDK asks for it."""
        self.put(f"{name}/sourcedir.tar.gz", packed({"train.py": textwrap.dedent(code)}))
        toolkit = {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{BUCKET}/{name}/sourcedir.tar.gz",
            "sagemaker_container_log_level": 20,
        }
        encoded = {key: json.dumps(value) for key, value in (toolkit | (hyperparameters or {})).items()}
        changes.setdefault("AlgorithmSpecification", {"TrainingImage": "image", "TrainingInputMode": "File"})
        self.create(name, HyperParameters=encoded, **changes)

    def describe(self, name: str) -> dict[str, Any]:
        described: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return described

    def ended(self, name: str) -> dict[str, Any]:
        """The job's description, as soon as it has ended."""
        until(lambda: self.describe(name)["TrainingJobStatus"] in ENDED)
        return self.describe(name)

    def stop(self, name: str) -> None:
        self.sagemaker.stop_training_job(TrainingJobName=name)

    def log(self, name: str, host: str = "algo-1") -> list[str]:
        """The job's own lines in CloudWatch Logs until now."""
        return [line for line in self.whole_log(name, host) if not line.startswith(NOT_ITS_OWN)]

    def whole_log(self, name: str, host: str = "algo-1") -> list[str]:
        """With what the emulator and the image say."""
        try:
            streams = self.logs.describe_log_streams(
                logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/{host}-"
            )["logStreams"]
        except self.logs.exceptions.ResourceNotFoundException:  # no job has had anything to say yet
            return []
        return [
            event["message"]
            for stream in streams
            for event in self.logs.get_log_events(
                logGroupName="/aws/sagemaker/TrainingJobs", logStreamName=stream["logStreamName"], startFromHead=True
            )["events"]
        ]

    def processes(self, name: str | None = None) -> list[psutil.Process]:
        """The processes of a job, or of all jobs, of this emulator."""
        folder = str(self.service._machine.workdir)
        return processes(
            lambda environment: (
                environment.get(MARK, "").startswith(f"{folder}/")
                and name in (None, environment.get("TRAINING_JOB_NAME"))
            )
        )

    def says(self, name: str, line: str, host: str = "algo-1") -> None:
        """Wait until the job's log has the line."""
        until(lambda: line in self.log(name, host))

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def read(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    def keys(self, prefix: str) -> list[str]:
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for item in listed.get("Contents", [])]

    def unpacked(self, key: str) -> dict[str, bytes]:
        """The files in an archive in S3."""
        with tarfile.open(fileobj=io.BytesIO(self.read(key))) as archive:
            files = ((member.name, archive.extractfile(member)) for member in archive.getmembers())
            return {name: file.read() for name, file in files if file is not None}


def packed(files: dict[str, str]) -> bytes:
    """A .tar.gz of text files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()
