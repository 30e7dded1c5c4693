"""A job by boto3, from a program that does not know the queue and has its own session, client and waiter."""

import json
import sys
from pathlib import Path

import boto3

request = json.loads(Path(sys.argv[1]).read_text())
client = boto3.Session().client("sagemaker")
if "--install" in sys.argv:
    # The client exists before the installation.
    import sagemaker_queue

    sagemaker_queue.install(everywhere=True)
arn = client.create_training_job(**request)["TrainingJobArn"]
client.get_waiter("training_job_completed_or_stopped").wait(
    TrainingJobName=request["TrainingJobName"], WaiterConfig={"Delay": 1, "MaxAttempts": 1000}
)
described = client.describe_training_job(TrainingJobName=request["TrainingJobName"])
assert (described["TrainingJobArn"], described["TrainingJobStatus"]) == (arn, "Completed"), described
