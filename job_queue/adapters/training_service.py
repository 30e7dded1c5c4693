"""SageMaker: create, stop, list and describe training jobs, and what its errors mean for us."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from job_queue.domain.errors import Unavailable
from job_queue.domain.job import Job
from job_queue.domain.names import ATTEMPT_TAG, JOB_TAG, QUEUE_NAME, QUEUE_TAG, SUBMISSION_TAG

LISTED_PAGES = 5  # per status and reconciliation
LISTS_PER_SECOND = 2  # that ListTrainingJobs allows an account: as many at once, then a second's pause
ALIVE = ("InProgress", "Stopping")
ENDED = frozenset({"Completed", "Failed", "Stopped"})

# What SageMaker says of a request that it will never accept. Any other refusal may be the account's, the operator's or
# the hour's: limits, throttling, permissions, expired credentials.
_REFUSED = frozenset({"ValidationException", "ResourceNotFound", "ResourceNotFoundException"})


# Secondary statuses of a training job that has its instances. Uploading comes after a stop, too.
_ON_INSTANCES = frozenset({"Downloading", "DownloadingTrainingImage", "Training"})


class Answer(Enum):
    """What SageMaker made of a CreateTrainingJob."""

    LAUNCHED = auto()  # accepted
    NAME_TAKEN = auto()  # a training job of that name exists; it may be ours
    REFUSED = auto()  # the request itself is wrong: it will never be accepted
    NO_CAPACITY = auto()  # refused: the account has no such instances left
    NOT_NOW = auto()  # refused, but may be accepted later
    UNKNOWN = auto()  # no answer: it may or may not have taken effect, now or later


class Stopping(Enum):
    """What SageMaker made of a StopTrainingJob."""

    ASKED = auto()
    ENDED_ALREADY = auto()  # or it is not known at all
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as SageMaker describes it, or as an event tells it."""

    name: str
    arn: str
    status: str
    secondary: str
    failure: str | None
    demand: Mapping[str, int]  # instance type -> instances
    tags: Mapping[str, str]
    instances_came: float | None = None  # epoch seconds; None: not yet, or never
    starved: bool = False  # it was stopped because they did not come in time

    @property
    def ended(self) -> bool:
        """Whether it holds instances no more."""
        return self.status in ENDED

    @property
    def of_queue(self) -> bool:
        """Whether this queue launched it."""
        return is_of_queue(self.tags)

    def is_attempt_of(self, job: Job) -> bool:
        """Whether it is the current (or next) attempt of exactly this submission."""
        return is_attempt_of(self.tags, job)


def is_of_queue(tags: Mapping[str, str]) -> bool:
    """Tags, not names, decide whose an attempt is."""
    return tags.get(QUEUE_TAG) == QUEUE_NAME


def is_attempt_of(tags: Mapping[str, str], job: Job) -> bool:
    """Whether tags name this submission and its recorded attempt."""
    return (
        is_of_queue(tags)
        and tags.get(JOB_TAG) == job.name
        and tags.get(SUBMISSION_TAG) == job.submission
        and tags.get(ATTEMPT_TAG) == str(job.attempt)
    )


def attempt_tags(job: Job) -> list[dict[str, str]]:
    """The tags that say whose an attempt is."""
    tags = {
        QUEUE_TAG: QUEUE_NAME,
        JOB_TAG: job.name,
        SUBMISSION_TAG: job.submission,
        ATTEMPT_TAG: str(job.attempt),
    }
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def demand_of(resources: Mapping[str, Any]) -> tuple[dict[str, int], ...]:
    """A ResourceConfig's alternatives, best first, each {instance type: instances}.

    InstancePreferences are alternatives, of which a running job has selected one; InstanceGroups are
    needed all at once.
    """
    if selected := resources.get("SelectedInstanceType"):
        return ({selected: resources["SelectedInstanceCount"]},)
    if preferences := resources.get("InstancePreferences"):
        count = resources.get("InstanceCount", 1)
        return tuple({choice["InstanceType"]: choice.get("InstanceCount", count)} for choice in preferences)
    if groups := resources.get("InstanceGroups"):
        together: dict[str, int] = {}
        for group in groups:
            kind = group["InstanceType"]
            together[kind] = together.get(kind, 0) + group["InstanceCount"]
        return (together,)
    if "InstanceType" not in resources:  # serverless: no instances to count
        return ({},)
    return ({resources["InstanceType"]: resources["InstanceCount"]},)


def training_job(report: Mapping[str, Any], tags: Mapping[str, str]) -> TrainingJob:
    """A training job from the answer of DescribeTrainingJob or the detail of an event: they have the same fields."""
    transitions = report.get("SecondaryStatusTransitions", ())
    came = [_seconds(it["StartTime"]) for it in transitions if it["Status"] in _ON_INSTANCES]
    job = TrainingJob(
        name=report["TrainingJobName"],
        arn=report.get("TrainingJobArn", ""),
        status=report["TrainingJobStatus"],
        secondary=report.get("SecondaryStatus", ""),
        failure=report.get("FailureReason"),
        demand=demand_of(report.get("ResourceConfig", {}))[0],
        tags=tags,
        instances_came=min(came, default=None),
    )
    return replace(job, starved=_starved(job, report))


def _starved(job: TrainingJob, report: Mapping[str, Any]) -> bool:
    """Whether it was stopped because it waited too long for its instances.

    Nothing in a report says so of MaxPendingTimeInSeconds: the status is Stopped, as after a stop by hand. But such a
    stop comes before that time is over, or after the instances have come.
    """
    told = bool(report.get("SecondaryStatusTransitions"))  # else the instances may have come
    if job.status != "Stopped" or not told or job.instances_came is not None or "TrainingStartTime" in report:
        return False
    if job.secondary == "MaxWaitTimeExceeded":  # managed spot training
        return True
    limit: int | None = report.get("StoppingCondition", {}).get("MaxPendingTimeInSeconds")
    if limit is None or job.secondary == "MaxRuntimeExceeded":
        return False
    return _seconds(report["LastModifiedTime"]) - _seconds(report["CreationTime"]) >= limit


def _seconds(time: datetime | float | str) -> float:
    """A time since the epoch. boto3 gives datetimes, events give milliseconds as a number or a text."""
    return time.timestamp() if isinstance(time, datetime) else float(time) / 1000


class TrainingService:
    """SageMaker's training API.

    :param client: a boto3 SageMaker client with ordinary retries, for reading and stopping.
    :param launcher: one without any retry and with short timeouts: a launch is tried once, because each
        try must be recorded before it is made.
    :param sleep: waits so many seconds, where calls would follow each other too fast.
    """

    def __init__(self, client: Any, launcher: Any, sleep: Callable[[float], None] = lambda seconds: None) -> None:
        self._client = client
        self._launcher = launcher
        self._sleep = sleep

    @property
    def request_shape(self) -> Any:
        """The service model's shape of a CreateTrainingJob request."""
        return self._client.meta.service_model.operation_model("CreateTrainingJob").input_shape

    def create(self, request: Mapping[str, Any]) -> tuple[Answer, str]:
        """Ask once for a training job; gives the answer and SageMaker's words, if it had any."""
        try:
            self._launcher.create_training_job(**request)
        except ClientError as error:
            return _meaning(error), _words(error)
        except ParamValidationError as error:
            return Answer.REFUSED, str(error)
        except BotoCoreError as error:
            return Answer.UNKNOWN, str(error)
        return Answer.LAUNCHED, ""

    def stop(self, name: str) -> Stopping:
        """Ask for a stop. Asking again, or asking of one that has ended, is no error."""
        try:
            self._client.stop_training_job(TrainingJobName=name)
        except ClientError as error:
            # SageMaker has one code for "not found" and "not in a state that can be stopped".
            return Stopping.ENDED_ALREADY if _code(error) == "ValidationException" else Stopping.UNKNOWN
        except BotoCoreError:
            return Stopping.UNKNOWN
        return Stopping.ASKED

    def describe(self, name: str) -> TrainingJob | None:
        """A training job with its tags, or None if SageMaker does not know it.

        :raises Unavailable: SageMaker gave no usable answer.
        """
        try:
            job = self._client.describe_training_job(TrainingJobName=name)
            tags: dict[str, str] = {}
            for page in self._client.get_paginator("list_tags").paginate(ResourceArn=job["TrainingJobArn"]):
                tags |= {tag["Key"]: tag["Value"] for tag in page["Tags"]}
        except ClientError as error:
            if _code(error) in {"ValidationException", "ResourceNotFound"}:  # the name is a valid one, so: not found
                return None
            raise Unavailable(f"SageMaker could not describe {name}: {_words(error)}") from error
        except BotoCoreError as error:
            raise Unavailable(f"SageMaker did not describe {name}: {error}") from error
        return training_job({"TrainingJobName": name, **job}, tags)

    def alive(self) -> Iterator[str]:
        """Names of training jobs that hold instances, newest first; not all of them where there are very many.

        Asks SageMaker at most twice a second.

        :raises Unavailable: SageMaker gave no usable answer.
        """
        try:
            asked = 0
            for status in ALIVE:
                token: dict[str, str] = {}
                for _ in range(LISTED_PAGES):
                    if asked and asked % LISTS_PER_SECOND == 0:
                        self._sleep(1)
                    asked += 1
                    page = self._client.list_training_jobs(
                        StatusEquals=status, SortBy="CreationTime", SortOrder="Descending", MaxResults=100, **token
                    )
                    yield from (job["TrainingJobName"] for job in page["TrainingJobSummaries"])
                    if "NextToken" not in page:
                        break
                    token = {"NextToken": page["NextToken"]}
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"SageMaker did not list its training jobs: {error}") from error


def _meaning(error: ClientError) -> Answer:
    if _code(error) == "ResourceInUse":
        return Answer.NAME_TAKEN
    if _code(error) == "ResourceLimitExceeded":
        return Answer.NO_CAPACITY
    if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return Answer.UNKNOWN
    return Answer.REFUSED if _code(error) in _REFUSED else Answer.NOT_NOW


def _code(error: ClientError) -> str:
    return str(error.response["Error"].get("Code", ""))


def _words(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"
