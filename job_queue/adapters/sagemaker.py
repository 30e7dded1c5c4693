"""SageMaker's API for training jobs: create, stop, list and describe; also its events and error codes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from msgspec import convert

from job_queue.adapters.lookups.plan_lookup import plan_parts
from job_queue.adapters.lookups.training_list import TrainingJobList
from job_queue.adapters.sites.clients import SiteUnreachableError, is_service_failure
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.sites import HomeSite, Origin, Site, key_of, same_place
from job_queue.domain.fleet.training_plans import PlanPart
from job_queue.domain.job import Job, JobRecord, WarmPool, epoch
from job_queue.domain.launching.proof import (
    ended_attempt,
    has_proof_of_any_call,
    has_valid_proof,
    is_current_attempt_of,
    is_ended_attempt,
    is_of_queue,
)
from job_queue.domain.launching.refusals import is_temporary, quota_exceeded
from job_queue.domain.names import apply_qstamp, is_name
from job_queue.domain.requests.training_request import Resources, TrainingJobFields
from job_queue.scheduler import JobState

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient

CLOCK_SECONDS = 60  # the largest difference between SageMaker's clock and the queue's
LONGEST_TEXT = 1024  # characters of an event's text: SageMaker's limit of a FailureReason
ENDED = frozenset({"Completed", "Failed", "Stopped"})
DELETING = "Deleting"  # SageMaker deletes an ended training job, and no longer reports how it ended
WARM = frozenset({"Available", "InUse"})  # warm pool statuses of an ended training job that keeps its instances

# SageMaker has the same error codes for a training job that does not exist and for a request that it will never accept.
# Other refusals can be temporary: permissions, credentials.
_NOT_FOUND = frozenset({"ValidationException", "ResourceNotFound", "ResourceNotFoundException"})
_REFUSED = _NOT_FOUND
_THROTTLED = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"})

_FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException"})

# Secondary statuses of a training job that has its instances. Uploading is not included, because a training job that is
# stopped before it has instances can report Uploading too.
_ON_INSTANCES = frozenset({"Downloading", "DownloadingTrainingImage", "Training"})


# Secondary status of an ended training job -> the status with which it ended.
_ENDED_AS = {
    "Completed": "Completed",
    "Failed": "Failed",
    "Stopped": "Stopped",
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
}


class LaunchResult(Enum):
    """The result of a CreateTrainingJob call."""

    LAUNCHED = auto()  # accepted
    NAME_TAKEN = auto()  # a training job of that name exists; it may be the attempt
    REFUSED = auto()  # the request itself is wrong: it will never be accepted
    NO_CAPACITY = auto()  # refused: the account's quota of this instance type is used up
    NO_QUOTA = auto()  # refused: another quota is used up, or the whole quota of the type is too small for the request
    POOL_AT_FAULT = auto()  # refused because of the fields that the pool added to the request
    CHECK_AT_FAULT = auto()  # refused, perhaps because of the health check that the queue added to the request
    THROTTLED = auto()  # refused: too many calls in this second
    UNREACHABLE = auto()  # not sent: the pool's region or account does not respond
    NOT_NOW = auto()  # refused, but may be accepted later: no permission, or expired credentials
    UNKNOWN = auto()  # no answer: the call may or may not take effect, now or later


class StopResult(Enum):
    """The result of a StopTrainingJob call."""

    ASKED = auto()
    ENDED_ALREADY = auto()  # the attempt has ended, or SageMaker does not know it
    DENIED = auto()  # the queue may not stop the attempt, because its tags or the queue's permission were removed
    UNKNOWN = auto()  # no answer


class UpdateResult(Enum):
    """The result of an UpdateTrainingJob call."""

    UPDATED = auto()
    REFUSED = auto()  # the training job is not in a status in which SageMaker permits the change
    DENIED = auto()  # the queue may not update the training job


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as DescribeTrainingJob or an event reports it."""

    name: str
    arn: str
    status: str
    secondary: str
    failure: str | None
    instance_counts: Mapping[str, int]  # instance type -> instances
    tags: Mapping[str, str]
    provisioned_at: float | None = None  # epoch seconds at which it got its instances; None: not yet, or never
    starved: bool = False  # stopped because its instances were not available in time
    plan: str | None = None  # ARN of the training plan that it runs on
    ended_at: float | None = None  # epoch seconds, if it has ended and the time is known
    keep_alive: int = 0  # seconds for which the instances may be kept warm
    warm: WarmPool | None = None  # present if it has ended and its instances are kept
    created: float | None = None  # epoch seconds, if known
    modified: float | None = None  # epoch seconds of its last change, if known
    began: float | None = None  # epoch seconds from which SageMaker bills it, if known
    carrier: str | None = None  # the carrier's attempt whose agent has reported the attempt; None: SageMaker reports it
    site: Site | None = None  # where the training job is; None: the home site

    @property
    def key(self) -> str:
        """The name, with the site if the site is not the home site."""
        return key_of(self.name, self.site)

    @property
    def ended(self) -> bool:
        """Whether the training job has ended and released its instances. SageMaker deletes only ended training jobs."""
        return self.outcome_known or self.status == DELETING

    @property
    def outcome_known(self) -> bool:
        """Whether the training job has ended, and the way in which it ended is known."""
        return self.status in ENDED

    @property
    def of_queue(self) -> bool:
        """Whether the tags say that this queue launched the training job. Other callers can set the same tags."""
        return is_of_queue(self.tags)

    def is_current_attempt_of(self, job: Job) -> bool:
        """Return whether the training job is the current (or next) attempt of this submission, in the recorded place.

        The place is SageMaker or a carrier. A member's attempt is only in reports of its carrier, any other attempt
        only in SageMaker's answers and events.
        """
        placed = self.carrier == job.carrier_attempt and (job.state.waits or same_place(self.site, job.site))
        if self.is_older_than_launch_of(job) or self.is_newer_than_launch_of(job):
            return False
        return placed and is_current_attempt_of(self.name, self.tags, job)

    def is_older_than_launch_of(self, job: Job) -> bool:
        """Return whether a job is starting, but the training job was created before the first call for the attempt.

        Such a training job is not the attempt, whatever its tags: tags can be added later, but the time of creation
        cannot be changed.
        """
        launching = job.state is JobState.STARTING and self.created is not None
        return launching and (self.created or 0) + CLOCK_SECONDS < epoch(job.since)

    def is_newer_than_launch_of(self, job: Job) -> bool:
        """Return whether SageMaker created the training job after the queue had recorded that the attempt was accepted.

        In that case the attempt was deleted, and its name was free. An external job has taken the name, or a late call
        has launched the attempt again.
        """
        accepted = job.state in (JobState.RUNNING, JobState.STOPPING) and job.carrier_attempt is None
        return accepted and self._is_newer_than(job.started)

    def has_valid_proof_of(self, job: Job) -> bool:
        """Return whether this queue launched the training job for this submission."""
        placed = self.carrier == job.carrier_attempt and self._is_at_site_of(job)
        return placed and has_valid_proof(self.name, self.tags, job)

    def _is_at_site_of(self, job: Job) -> bool:
        """Return whether the training job is at the job's site. Any site will do for a job that holds no slots."""
        return not job.state.holds_slots or same_place(self.site, job.site)

    def may_be_stopped_as_ended(self, record: JobRecord) -> bool:
        """Return whether the training job may be stopped: this queue launched it, and has recorded its end.

        The name of an attempt that was deleted is free, and other callers can copy the tags of the attempt. So a
        training job that is newer than the attempt counts only while a late call of the queue can have launched it.
        """
        job, ended = record.job, ended_attempt(self.name, record, self.site)
        # A time at which SageMaker certainly had the attempt.
        existed_at = (ended.started or ended.ended) if ended else None
        is_newer = self.is_newer_than_launch_of(job) or self._is_newer_than(existed_at)
        if is_newer:
            return self._may_be_of_late_call(job) and has_proof_of_any_call(self.name, self.tags, job)
        return self.has_valid_proof_of(job) or is_ended_attempt(self.name, self.tags, record, self.site)

    def _may_be_of_late_call(self, job: Job) -> bool:
        if job.late is None or self.name != apply_qstamp(job.name, job.late.attempt):
            return False
        if not same_place(self.site, job.late.site):
            return False
        return self.created is None or self.created <= job.late.until + CLOCK_SECONDS

    def _is_newer_than(self, started: str | None) -> bool:
        """Return whether the training job was created later than an attempt of its name.

        :param started: a time at which SageMaker had the attempt, ISO format; None: unknown.
        """
        if started is None or self.created is None:
            return False
        return self.created > epoch(started) + CLOCK_SECONDS


def training_job(report: Mapping[str, Any], tags: Mapping[str, str], site: Site | None = None) -> TrainingJob:
    """Return a training job from an answer of DescribeTrainingJob or an event's detail. Both have the same fields."""
    transitions = report.get("SecondaryStatusTransitions", ())
    instance_times = [_seconds(entry["StartTime"]) for entry in transitions if entry["Status"] in _ON_INSTANCES]
    fields = convert(report, TrainingJobFields)
    job = TrainingJob(
        name=report["TrainingJobName"],
        arn=report.get("TrainingJobArn", ""),
        status=_status(report),
        secondary=report.get("SecondaryStatus", ""),
        failure=report.get("FailureReason"),
        instance_counts=fields.resources.demand[0],
        tags=tags,
        provisioned_at=min(instance_times, default=None),
        plan=_plan_of(fields.resources),
        ended_at=_ended_at(report),
        keep_alive=fields.resources.keep_alive_seconds or 0,
        warm=_warm_pool(report, fields),
        created=_seconds(report["CreationTime"]) if report.get("CreationTime") else None,
        modified=_seconds(report["LastModifiedTime"]) if report.get("LastModifiedTime") else None,
        began=_seconds(report["TrainingStartTime"]) if report.get("TrainingStartTime") else None,
        site=site,
    )
    return replace(job, starved=_starved(job, report))


def _status(report: Mapping[str, Any]) -> str:
    """Return the status; during deletion, the status with which the training job ended, if the report shows it."""
    status: str = report["TrainingJobStatus"]
    if status != DELETING:
        return status
    statuses = [
        report.get("SecondaryStatus"),
        *(it["Status"] for it in report.get("SecondaryStatusTransitions", ())[::-1]),
    ]
    ended = next((_ENDED_AS[it] for it in statuses if it in _ENDED_AS), None)
    return ended or ("Failed" if report.get("FailureReason") else DELETING)


def _ended_at(report: Mapping[str, Any]) -> float | None:
    if report["TrainingJobStatus"] not in (*ENDED, DELETING):
        return None
    # A deletion changes LastModifiedTime. So LastModifiedTime is the time of the end only before a deletion.
    fields = ("TrainingEndTime", "LastModifiedTime") if report["TrainingJobStatus"] in ENDED else ("TrainingEndTime",)
    times = [_seconds(report[field]) for field in fields if report.get(field)]
    return times[0] if times else None


def _warm_pool(report: Mapping[str, Any], fields: TrainingJobFields) -> WarmPool | None:
    if report["TrainingJobStatus"] not in ENDED or report.get("WarmPoolStatus", {}).get("Status") not in WARM:
        return None
    kept = fields.resources.keep_alive_seconds or 0
    return WarmPool(fields.footprint or "", int(_ended_at(report) or 0) + kept)


def _plan_of(resources: Resources) -> str | None:
    """Return the training plan of a training job: its own, or that of the selected preference."""
    for choice, plan in zip(resources.preferences, resources.plans, strict=False):
        if choice.instance_type == resources.selected_instance_type:
            return plan
    return resources.plans[0] if resources.plans else None


def _starved(job: TrainingJob, report: Mapping[str, Any]) -> bool:
    """Return whether a training job was stopped because it waited too long for its instances.

    No field reports that MaxPendingTimeInSeconds is exceeded: the status is Stopped, as after a stop by a user. But a
    user stops a training job before this time is over, or after the instances have come.
    """
    has_transitions = bool(report.get("SecondaryStatusTransitions"))  # without transitions, the instances may have come
    if (
        job.status != "Stopped"
        or not has_transitions
        or job.provisioned_at is not None
        or "TrainingStartTime" in report
    ):
        return False
    if job.secondary == "MaxWaitTimeExceeded":  # managed spot training
        return True
    limit: int | None = report.get("StoppingCondition", {}).get("MaxPendingTimeInSeconds")
    if limit is None or job.secondary == "MaxRuntimeExceeded":
        return False
    if report["TrainingJobStatus"] == DELETING:
        stopped = max(_seconds(it["StartTime"]) for it in report["SecondaryStatusTransitions"])
    else:
        stopped = _seconds(report["LastModifiedTime"])
    return stopped - _seconds(report["CreationTime"]) >= limit


def _seconds(time: datetime | float | str) -> float:
    """Return seconds since the epoch. boto3 returns datetimes, events have milliseconds as a number or a text."""
    return time.timestamp() if isinstance(time, datetime) else float(time) / 1000


def training_job_detail(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the detail of a `SageMaker Training Job State Change`; None if it has no valid name or status.

    If other fields are not valid, the result has only the name and the status, so that the caller requests the rest
    from SageMaker.
    """
    detail = event.get("detail")
    if not isinstance(detail, dict):
        return None
    needed = {field: detail.get(field) for field in ("TrainingJobName", "TrainingJobStatus")}
    if not _are_valid(needed):
        return None
    return detail if _are_valid(detail) else needed


def origin_of(event: Mapping[str, Any], function_arn: str) -> Origin | None:
    """Return the region and account of an event; None if the function's own region is not known."""
    home = HomeSite.of_function(function_arn)
    if home is None:
        return None
    return Origin(event.get("region", home.region), event.get("account", home.account), home)


def _are_valid(fields: Mapping[str, object]) -> bool:
    return all(_FIELDS[field](value) for field, value in fields.items() if field in _FIELDS)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_tags(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(part) for tag in value.items() for part in tag)


_FIELDS: Mapping[str, Callable[[object], bool]] = {
    "TrainingJobName": lambda value: isinstance(value, str) and is_name(value),
    "TrainingJobStatus": _is_text,
    "SecondaryStatus": _is_text,
    "FailureReason": _is_text,
    "Tags": _is_tags,
}


class SageMakerTraining:
    """SageMaker's training API.

    :param client: a boto3 SageMaker client with ordinary retries, for reading and stopping.
    :param launcher: a client without retries and with short timeouts, for launches, because each call must be recorded
        before it is made.
    :param sleep: waits for a number of seconds between calls that SageMaker limits.
    :param site: the account and region of the clients; None: the home site.
    """

    def __init__(
        self,
        client: "SageMakerClient",
        launcher: "SageMakerClient",
        sleep: Callable[[float], None] = lambda seconds: None,
        site: Site | None = None,
    ) -> None:
        self._client = client
        self._launcher = launcher
        self._sleep = sleep
        self._site = site

    @property
    def request_shape(self) -> Any:
        """The service model's shape of a CreateTrainingJob request."""
        return self._client.meta.service_model.operation_model("CreateTrainingJob").input_shape

    def create(self, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        """Create a training job in one try. Return the result and SageMaker's message, which may be empty."""
        try:
            self._launcher.create_training_job(**request)
        except ClientError as error:
            return _launch_result(error), _message(error)
        except ParamValidationError as error:
            return LaunchResult.REFUSED, str(error)
        except SiteUnreachableError as error:
            return LaunchResult.UNREACHABLE, str(error)
        except BotoCoreError as error:
            return LaunchResult.UNKNOWN, str(error)
        return LaunchResult.LAUNCHED, ""

    def stop(self, name: str) -> StopResult:
        """Request a stop. A training job that is stopping or has ended is not an error."""
        try:
            self._client.stop_training_job(TrainingJobName=name)
        except ClientError as error:
            if _code(error) in _FORBIDDEN:
                return StopResult.DENIED
            # ValidationException also means "not in a state that can be stopped".
            return StopResult.ENDED_ALREADY if _code(error) in _NOT_FOUND else StopResult.UNKNOWN
        except BotoCoreError:
            return StopResult.UNKNOWN
        return StopResult.ASKED

    def release(self, name: str) -> bool:
        """Release the instances that SageMaker keeps after a training job. Return False if the queue may not do this.

        A training job without kept instances is not an error.

        :raises Unavailable: SageMaker gave no usable answer.
        """
        try:
            self._client.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})
        except ClientError as error:
            if _code(error) in _FORBIDDEN:
                return False
            if _code(error) not in _NOT_FOUND:
                raise Unavailable(f"SageMaker did not release the instances of {name}: {_message(error)}") from error
        except BotoCoreError as error:
            raise Unavailable(f"SageMaker did not release the instances of {name}: {error}") from error
        return True

    def enable_remote_debug(self, name: str) -> tuple[UpdateResult, str]:
        """Request remote debugging in a training job. Return the result and SageMaker's message.

        :raises Unavailable: SageMaker gave no usable answer. The same call may be sent again.
        """
        try:
            self._client.update_training_job(TrainingJobName=name, RemoteDebugConfig={"EnableRemoteDebug": True})
        except ClientError as error:
            if _code(error) in _FORBIDDEN:
                return UpdateResult.DENIED, _message(error)
            if _code(error) in _REFUSED:
                return UpdateResult.REFUSED, _message(error)
            raise Unavailable(f"SageMaker did not update {name}: {_message(error)}") from error
        except BotoCoreError as error:
            raise Unavailable(f"SageMaker did not update {name}: {error}") from error
        return UpdateResult.UPDATED, ""

    def describe(self, name: str) -> TrainingJob | None:
        """Return a training job with its tags; None if SageMaker does not know it.

        :raises Unavailable: SageMaker gave no usable answer.
        """
        try:
            job = self._client.describe_training_job(TrainingJobName=name)
            tags: dict[str, str] = {}
            for page in self._client.get_paginator("list_tags").paginate(ResourceArn=job["TrainingJobArn"]):
                tags |= {tag["Key"]: tag["Value"] for tag in page["Tags"]}
        except ClientError as error:
            if _code(error) in _NOT_FOUND:  # the name is valid, so the training job does not exist
                return None
            raise Unavailable(f"SageMaker could not describe {name}: {_message(error)}") from error
        except BotoCoreError as error:
            raise Unavailable(f"SageMaker did not describe {name}: {error}") from error
        return training_job({"TrainingJobName": name, **job}, tags, self._site)

    def plan_parts(self, arn: str, in_use: Callable[[], int]) -> tuple[PlanPart, ...]:
        """Return the times in which a plan has instances for training jobs; empty if the plan is unknown or failed.

        :param in_use: counts the plan's instances that training jobs use; called only if the plan also serves other
            resources.
        :raises Unavailable: SageMaker gave no usable answer.
        """
        return plan_parts(self._client, arn, in_use)

    def training_jobs(self) -> TrainingJobList:
        """Return SageMaker's list of all training jobs of the account, for one walk."""
        return TrainingJobList(self._client, self._sleep)


def _launch_result(error: ClientError) -> LaunchResult:
    """Return the result for an error of CreateTrainingJob. `Launcher` decides the consequences for the job."""
    code, message = _code(error), _message(error)
    if code == "ResourceInUse":
        return LaunchResult.NAME_TAKEN
    if code == "ResourceLimitExceeded":
        quota = quota_exceeded(message)
        is_out = quota is not None and quota.instance_type is not None and quota.is_full
        return LaunchResult.NO_CAPACITY if is_out else LaunchResult.NO_QUOTA
    if code in _THROTTLED:
        return LaunchResult.THROTTLED
    if is_service_failure(error):
        return LaunchResult.UNKNOWN
    return LaunchResult.REFUSED if code in _REFUSED and not is_temporary(message) else LaunchResult.NOT_NOW


def _code(error: ClientError) -> str:
    return str(error.response["Error"].get("Code", ""))


def _message(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"
