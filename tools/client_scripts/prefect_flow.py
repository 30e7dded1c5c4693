"""A job by the client of prefect-aws, from its AwsCredentials block."""

import json
import sys
from pathlib import Path

from prefect_aws import AwsCredentials

request = json.loads(Path(sys.argv[1]).read_text())
client = AwsCredentials().get_client("sagemaker")
client.create_training_job(**request)
client.get_waiter("training_job_completed_or_stopped").wait(
    TrainingJobName=request["TrainingJobName"], WaiterConfig={"Delay": 1, "MaxAttempts": 1000}
)
described = client.describe_training_job(TrainingJobName=request["TrainingJobName"])
assert described["TrainingJobStatus"] == "Completed", described
