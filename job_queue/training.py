"""SageMaker: create, stop, list and describe training jobs, and what its errors mean for us."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from job_queue.errors import Unavailable
from job_queue.names import ATTEMPT_TAG, JOB_TAG, QUEUE_NAME, QUEUE_TAG, SUBMISSION_TAG
from job_queue.records import Job

LISTED_PAGES = 5  # per status and reconciliation: ListTrainingJobs allows two calls a second
ALIVE = ("InProgress", "Stopping")
ENDED = frozenset({"Completed", "Failed", "Stopped"})

# What SageMaker says of a request that it will never accept. Any other refusal may be the account's, the operator's or
# the hour's: limits, throttling, permissions, expired credentials.
_REFUSED = frozenset({"ValidationException", "ResourceNotFound", "ResourceNotFoundException"})


class Answer(Enum):
    """What SageMaker made of a CreateTrainingJob."""

    LAUNCHED = auto()  # accepted
    NAME_TAKEN = auto()  # a training job of that name exists; it may be ours
    REFUSED = auto()  # the request itself is wrong: it will never be accepted
    NOT_NOW = auto()  # refused, but may be accepted later
    UNKNOWN = auto()  # no answer: it may or may not have taken effect, now or later


class Stopping(Enum):
    """What SageMaker made of a StopTrainingJob."""

    ASKED = auto()
    ENDED_ALREADY = auto()  # or it is not known at all
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as SageMaker describes it."""

    name: str
    arn: str
    status: str
    secondary: str
    failure: str | None
    demand: Mapping[str, int]  # instance type -> instances
    tags: Mapping[str, str]

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


class TrainingService:
    """SageMaker's training API.

    :param client: a boto3 SageMaker client with ordinary retries, for reading and stopping.
    :param launcher: one without any retry and with short timeouts: a launch is tried once, because each
        try must be recorded before it is made.
    """

    def __init__(self, client: Any, launcher: Any) -> None:
        self._client = client
        self._launcher = launcher

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
        return TrainingJob(
            name=name,
            arn=job["TrainingJobArn"],
            status=job["TrainingJobStatus"],
            secondary=job.get("SecondaryStatus", ""),
            failure=job.get("FailureReason"),
            demand=demand_of(job.get("ResourceConfig", {}))[0],
            tags=tags,
        )

    def alive(self) -> Iterator[str]:
        """Names of training jobs that hold instances, newest first; not all of them where there are very many.

        :raises Unavailable: SageMaker gave no usable answer.
        """
        pages = self._client.get_paginator("list_training_jobs")
        try:
            for status in ALIVE:
                listing = pages.paginate(
                    StatusEquals=status,
                    SortBy="CreationTime",
                    SortOrder="Descending",
                    PaginationConfig={"PageSize": 100},
                )
                for number, page in enumerate(listing, start=1):
                    yield from (job["TrainingJobName"] for job in page["TrainingJobSummaries"])
                    if number == LISTED_PAGES:
                        break
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"SageMaker did not list its training jobs: {error}") from error


def _meaning(error: ClientError) -> Answer:
    if _code(error) == "ResourceInUse":
        return Answer.NAME_TAKEN
    if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return Answer.UNKNOWN
    return Answer.REFUSED if _code(error) in _REFUSED else Answer.NOT_NOW


def _code(error: ClientError) -> str:
    return str(error.response["Error"].get("Code", ""))


def _words(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"
