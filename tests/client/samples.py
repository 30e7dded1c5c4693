"""What a queue answers, as samples."""

from __future__ import annotations

Job = dict[str, object]


def job(name: str, state: str, priority: int, **more: object) -> Job:
    return {"job": name, "state": state, "priority": priority, **more}


DETAIL = {
    **job("job1", "preempted", 1, position=2, project="default", instances=1, attempt=1),
    "owner": "arn:aws:iam::123456789012:user/ann",
    "entryTime": "2026-11-21T10:00:00Z",
    "trainingJobName": "job1-qstamp-1",
    "reason": {"code": "PoolFull", "message": "2 of 2 instances are used by jobs of higher priority"},
    "history": [
        {"at": "2026-11-21T10:00:00Z", "state": "pending", "attempt": 0, "cause": "submitted"},
        {"at": "2026-11-21T10:04:00Z", "state": "preempted", "attempt": 1, "cause": "job4 has priority 3"},
    ],
    "attempts": [
        {
            "attempt": 1,
            "trainingJobName": "job1-qstamp-1",
            "started": "2026-11-21T10:00:05Z",
            "ended": "2026-11-21T10:04:00Z",
            "outcome": "preempted",
        }
    ],
    "cancelRequested": False,
    "request": {
        "TrainingJobName": "job1",
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1},
        "CheckpointConfig": {"S3Uri": "s3://bucket/job1"},
        "Tags": [{"Key": "priority", "Value": "1"}],
    },
}
