"""Training jobs that ended before the emulator started: small objects, because there may be very many."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from local_cloud.sagemaker.training_job import DELETING

MINUTES_APART = 1.0
_DURATION = 30.0  # seconds
_ENDS = ("Completed", "Completed", "Failed", "Completed", "Stopped")
_NO_TAGS: Mapping[str, str] = MappingProxyType({})
_REQUEST: Mapping[str, Any] = MappingProxyType(
    {
        "AlgorithmSpecification": {
            "TrainingImage": "000000000000.dkr.ecr.us-east-1.amazonaws.com/past:1",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::000000000000:role/past",
        "OutputDataConfig": {"KmsKeyId": "", "S3OutputPath": "s3://past/models"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
    }
)


@dataclass(slots=True)
class PastJob:
    """A training job that ended before the emulator started. A past job holds no instances and can only be deleted."""

    name: str
    arn: str
    created: float
    status: str
    ended_as: str = ""  # the final status, while `status` is Deleting

    def begin_deletion(self) -> None:
        """Change the status to Deleting; the registry forgets the job later."""
        self.ended_as, self.status = self.status, DELETING

    @property
    def ended(self) -> bool:
        """Whether the job has ended, which is always true."""
        return True

    @property
    def warm_pool(self) -> None:
        """The warm pool, which is always None: a past job retains no instances."""
        return

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the job: none."""
        return _NO_TAGS

    @property
    def request(self) -> Mapping[str, Any]:
        """The CreateTrainingJob request, which is the same for all past jobs."""
        return _REQUEST

    @property
    def secondary_status(self) -> str:
        """The SecondaryStatus, which is the final status even while the job is being deleted."""
        return self.ended_as or self.status

    @property
    def modified(self) -> float:
        """The time of the last change, which is the end of the job, in epoch seconds."""
        return self.created + _DURATION

    @property
    def training_ended(self) -> float:
        """The end of the job, in epoch seconds."""
        return self.modified

    def describe(self) -> dict[str, Any]:
        """Return the answer of DescribeTrainingJob, with times in epoch seconds."""
        reason = {"FailureReason": "AlgorithmError: , exit code: 1"} if self.secondary_status == "Failed" else {}
        ended = {
            "Status": self.secondary_status,
            "StartTime": self.modified,
            "EndTime": self.modified,
            "StatusMessage": "",
        }
        return {
            **_REQUEST,
            **reason,
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary_status,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
            "TrainingStartTime": self.created,
            "TrainingEndTime": self.modified,
            "SecondaryStatusTransitions": [ended],
        }


PAST = "past-"  # prefix of the names of past jobs


def past_jobs(count: int, arn_prefix: str, now: float) -> Iterator[PastJob]:
    """Yield `count` jobs, the oldest first: one was created in each minute before `now`."""
    for number in range(count):
        name = f"{PAST}{number:06}"
        created = now - (count - number) * MINUTES_APART * 60
        yield PastJob(name, f"{arn_prefix}{name}", created, _ENDS[number % len(_ENDS)])
