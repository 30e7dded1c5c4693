"""What a queue answers, as samples."""

from __future__ import annotations

from typing import Any

Job = dict[str, object]


def job(name: str, state: str, priority: int, **more: object) -> Job:
    return {"job": name, "state": state, "priority": priority, **more}


SEE = "smq: see docs/reference/errors.md#"
"""The line below an error of the queue, without the code in lower case."""


def refused(code: str, message: str, field: str | None = None, remedy: str | None = None) -> Any:
    """The body of a refusal."""
    return {"errors": [{"code": code, "message": message, "field": field, "remedy": remedy}]}


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
            "instances": 1,
            "carrier": None,
            "failureClass": None,
            "region": None,
            "account": None,
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

FAILURE: dict[str, Any] = {
    **{"failureClass": "gpu_memory", "attempt": 1, "rank": "algo-2 rank 3", "exitCode": 1, "freshInstances": False},
    **{"sentence": "CUDA ran out of memory.", "remedy": "Use a smaller batch."},
    "lines": ["step 41", "torch.OutOfMemoryError: CUDA out of memory."],
    **{"action": "fail", "rule": "built-in: gpu_memory, fail", "instanceCheck": False},
    **{"gpuUuids": [], "returnedGpus": []},
    **{"actionNow": "retry", "ruleNow": "failure_rules 1 of the policy: failure_class gpu_memory, retry"},
}
FAILED: dict[str, Any] = {
    **{**DETAIL, "state": "failed", "position": None, "failureClass": "gpu_memory", "failure": FAILURE},
    "reason": {"code": "FAILED", "message": "CUDA ran out of memory."},
    "attempts": [{"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "failed", "failureClass": "gpu_memory"}],
}
"""A job that has failed, with the class of its failure."""

ON_DEMAND = {"warm": 0, "market": "on_demand", "trainingPlan": None, "opens": None, "closes": None}
P5 = {
    "name": "p5",
    "instanceType": "ml.p5.48xlarge",
    "capacity": 8,
    "used": 6,
    "external": 1,
    "free": 1,
    "stopping": 2,
    **ON_DEMAND,
}
C6 = {
    "name": "c6",
    "instanceType": None,
    "capacity": 4,
    "used": 0,
    "external": 0,
    "free": 4,
    "stopping": 0,
    **ON_DEMAND,
}
STATUS: dict[str, Any] = {
    "pools": [P5, C6],
    "active": [{"job": "job1", "state": "running"}],
    "waiting": [{"job": "job2", "state": "pending"}, {"job": "job3", "state": "pending"}],
    "departments": [
        {
            "name": "research",
            "quota": {"p5": 5},
            "limit": {},
            "share": {"p5": 5},
            "used": {"p5": 4},
            "waiting": 2,
            "moreWaiting": False,
        }
    ],
    "projects": [
        {
            "name": "ops",
            "department": None,
            "quota": {},
            "limit": {"p5": 0},
            "share": {"p5": 0, "c6": 0},
            "used": {},
            "waiting": 0,
            "moreWaiting": False,
        },
        {
            "name": "vision",
            "department": "research",
            "quota": {"c6": 2, "p5": 3},
            "limit": {"p5": 6},
            "share": {"p5": 4, "c6": 0},
            "used": {"p5": 4},
            "waiting": 2,
            "moreWaiting": False,
        },
        {"name": "idle", "department": None},
    ],
    "policyVersion": 3,
}

ATTEMPT: dict[str, Any] = {
    **{"job": "job1", "attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": "preempted"},
    **{"project": "vision", "department": "research", "group": "lr", "priority": -1},
    "owner": "arn:aws:iam::123456789012:user/ann",
    **{"slots": {"p5": 2}, "instances": {"ml.p5.48xlarge": 2}, "instanceCount": 2, "gpus": 16, "market": "on_demand"},
    **{"submitted": "2026-11-21T10:00:00Z", "waitingSince": "2026-11-21T10:00:00Z"},
    **{"launched": "2026-11-21T11:40:00Z", "began": "2026-11-21T11:41:35Z", "ended": "2026-11-21T13:41:35Z"},
    **{"waitedSeconds": 6000.0, "provisionedSeconds": 95.0, "ranSeconds": 7200.0, "maxRuntimeSeconds": 86400},
    **{"madeRoomFor": "urgent", "borrowed": 1, "lostSeconds": 600, "image": "train:1"},
    **{"hungSeconds": None, "idleSeconds": None, "failureClass": None, "gpuUuids": []},
    "carrier": None,
    "carries": None,
    **{"gpuMeanPercent": None, "gpuP95Percent": None, "gpuMemoryMeanPercent": None, "gpuMemoryP95Percent": None},
    **{"memoryMeanPercent": None, "memoryP95Percent": None},
    **{"region": None, "account": None},
}
