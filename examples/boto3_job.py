"""Queue a training job by plain boto3: what changes for you is where the session comes from.

Try it without an AWS account:

    .venv/bin/python -m local_cloud exec -- python examples/boto3_job.py
"""

import os
import time
from pathlib import Path

import sagemaker_queue

CODE = "${SM_CHANNEL_CODE:-/opt/ml/input/data/code}"

session = sagemaker_queue.boto_session()  # the queue
sagemaker, s3 = session.client("sagemaker"), session.client("s3")

name = f"example-{int(time.time())}"
bucket = "sagemaker-queue-example"
s3.create_bucket(Bucket=bucket)
s3.upload_file(str(Path(__file__).with_name("train.py")), bucket, f"{name}/code/train.py")

sagemaker.create_training_job(
    TrainingJobName=name,
    RoleArn=os.environ["SAGEMAKER_QUEUE_ROLE"],
    AlgorithmSpecification={
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["sh", "-c", f"python {CODE}/train.py --steps 10 --seconds-per-step 0.1"],
    },
    InputDataConfig=[
        {
            "ChannelName": "code",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{name}/code/"}},
        }
    ],
    OutputDataConfig={"S3OutputPath": f"s3://{bucket}/output"},
    ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    StoppingCondition={"MaxRuntimeInSeconds": 3600},
    CheckpointConfig={"S3Uri": f"s3://{bucket}/checkpoints/example"},  # so that it can be preempted
    Tags=[{"Key": "priority", "Value": "100"}],  # the higher, the sooner
)

shown = ""
while True:
    job = sagemaker.describe_training_job(TrainingJobName=name)
    if (message := job["SecondaryStatusTransitions"][-1]["StatusMessage"]) != shown:
        shown = message
        print(f"{job['TrainingJobStatus']}: {message}")
    if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
        break
    time.sleep(1)
print(name, "has", job["TrainingJobStatus"].lower())
