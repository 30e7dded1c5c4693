"""A flow of Metaflow, whose step runs a job by boto3."""

import json
from pathlib import Path
from typing import Any

import boto3
from metaflow import FlowSpec, Parameter, step


class TrainingFlow(FlowSpec):
    """A flow that trains and keeps the address of the model."""

    job = Parameter("job", required=True, help="the file with the request")

    @step
    def start(self) -> None:
        """Run the job."""
        request = json.loads(Path(self.job).read_text())
        client: Any = boto3.client("sagemaker")
        client.create_training_job(**request)
        client.get_waiter("training_job_completed_or_stopped").wait(
            TrainingJobName=request["TrainingJobName"], WaiterConfig={"Delay": 1, "MaxAttempts": 1000}
        )
        described = client.describe_training_job(TrainingJobName=request["TrainingJobName"])
        assert described["TrainingJobStatus"] == "Completed", described
        self.model = described["ModelArtifacts"]["S3ModelArtifacts"]
        self.next(self.end)

    @step
    def end(self) -> None:
        """Check that the model exists."""
        bucket, _, key = self.model.removeprefix("s3://").partition("/")
        boto3.client("s3").head_object(Bucket=bucket, Key=key)


if __name__ == "__main__":
    TrainingFlow()
