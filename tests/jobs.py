"""Jobs and requests for the tests of the shell."""

import json
from dataclasses import replace
from typing import Any

from job_queue.domain.job import Job, iso, waiting_queue
from job_queue.scheduler import JobState

NOW = 1_790_000_000.0
OWNER = "arn:aws:iam::123456789012:user/ada"
ROLE = "arn:aws:iam::123456789012:role/training"
P5 = "ml.p5.48xlarge"


def a_request(name: str = "job1", priority: int | None = 1, instances: int = 1, **changes: Any) -> dict[str, Any]:
    """A CreateTrainingJob request that SageMaker would take."""
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "TrainingInputMode": "File",
        },
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "ResourceConfig": {"InstanceType": P5, "InstanceCount": instances, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "CheckpointConfig": {"S3Uri": f"s3://bucket/checkpoints/{name}"},
    }
    if priority is not None:
        request["Tags"] = [{"Key": "priority", "Value": str(priority)}]
    return request | changes


def a_body(*args: Any, **changes: Any) -> str:
    return json.dumps(a_request(*args, **changes))


def a_job(name: str = "job1", **changes: Any) -> Job:
    """A pending job of one instance."""
    demand = changes.get("demand", ({P5: 1},))
    job = Job(
        name=name,
        submission=f"submission-of-{name}",
        state=JobState.PENDING,
        priority=1,
        entered=iso(NOW),
        since=iso(NOW),
        owner=OWNER,
        demand=demand,
        waiting_queue=waiting_queue("default", demand),
    )
    return replace(job, **changes)
