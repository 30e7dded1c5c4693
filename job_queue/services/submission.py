"""One submitted request becomes one stored job, or is refused with the field that is at fault."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.settings import Settings
from job_queue.adapters.training_service import TrainingService, demand_of
from job_queue.domain.errors import Forbidden, InvalidRequest, NameTaken, TooLarge
from job_queue.domain.job import Job, JobRecord, iso, waiting_line
from job_queue.domain.names import RESERVED_TAG_PREFIX, is_stamped
from job_queue.domain.policy import Policies
from job_queue.domain.scheduling_tags import SchedulingOptions, scheduling_options
from job_queue.scheduler.model import JobState
from job_queue.validation import ValidationIssue, against_model, against_sagemaker, preflight
from job_queue.validation.issue import first

MAX_REQUEST_BYTES = 256 * 1024  # of the request as the queue keeps it: a row holds 400 KB, and a history besides

_GO_ON = "To queue it all the same: smq submit --no-preflight, or preflight=False in Python."


@dataclass(frozen=True, slots=True)
class Examined:
    """A request that SageMaker would take, and the job that it would become."""

    request: dict[str, Any]
    job: Job
    doubts: tuple[ValidationIssue, ...]  # what pre-flight has against it

    @property
    def warnings(self) -> list[str]:
        """What its owner may want to know."""
        return [*(doubt.message for doubt in self.doubts), *_regrets(self.request, self.job)]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a submission."""

    record: JobRecord
    known: bool  # the very same request was there already
    warnings: tuple[str, ...]


class SubmissionService:
    """Takes requests in."""

    def __init__(
        self,
        repository: JobRepository,
        training: TrainingService,
        policies: Policies,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._repository = repository
        self._training = training
        self._policies = policies
        self._settings = settings
        self._clock = clock

    def submit(self, request: dict[str, Any], owner: str, *, preflight: bool = True) -> Accepted:
        """Keep a request as a job.

        :param request: of CreateTrainingJob, with the content that JSON can have.
        :param owner: ARN of the caller.
        :param preflight: whether to refuse what would come to nothing; otherwise that is a warning.
        :raises InvalidRequest, Forbidden, NameTaken, TooMany, TooLarge: nothing is stored.
        """
        examined = self.examine(request, owner)
        job = examined.job
        details = json.dumps(request, separators=(",", ":"))
        if len(details) > MAX_REQUEST_BYTES:
            raise TooLarge(
                f"The request takes {len(details):,} bytes as JSON; the queue keeps at most {MAX_REQUEST_BYTES:,}.",
                remedy="Move large hyperparameters or environment variables to a file in S3, and pass its address.",
            )
        if preflight and examined.doubts and not self._is_known(examined):
            refuse([replace(doubt, remedy=_GO_ON) for doubt in examined.doubts])
        existing = self._repository.add(job, details, self._clock())
        warnings = tuple(examined.warnings)
        if existing is None:
            return Accepted(JobRecord(job, details), known=False, warnings=warnings)
        if json.loads(existing.details) != request:
            raise NameTaken(
                f"Another request already has the name {job.name} (state {existing.job.state}).",
                field="TrainingJobName",
                remedy="Give this job another TrainingJobName.",
            )
        return Accepted(existing, known=True, warnings=warnings)

    def _is_known(self, examined: Examined) -> bool:
        """Whether the very same request was taken before, perhaps under another policy: it is not judged again."""
        existing = self._repository.record(examined.job.name)
        return existing is not None and json.loads(existing.details) == examined.request

    def examine(self, request: dict[str, Any], owner: str) -> Examined:
        """A request, and the job that it would become; nothing is stored.

        :raises InvalidRequest, Forbidden: it cannot be one.
        """
        refuse(against_model(request, self._training.request_shape))
        doubts = preflight.of_request(request)
        if problems := against_sagemaker(request):
            refuse([*problems, *doubts])  # all at once
        refuse_serverless(request)
        self._check_reserved(request)
        self._check_role(request)
        applied = self._policies.of(self._repository.policy())
        job = new_job(request, owner, scheduling_options(request, owner, applied.policy), self._clock())
        return Examined(request, job, (*doubts, *preflight.of_policy(request, job, applied)))

    def _check_role(self, request: Mapping[str, Any]) -> None:
        role = request["RoleArn"]
        if not self._settings.allows_role(role):
            raise Forbidden(
                f"The queue may not start jobs under the role {role}.",
                field="RoleArn",
                remedy="Use one that its operator has allowed (the stack's parameter AllowedRoleArns).",
            )

    def _check_reserved(self, request: Mapping[str, Any]) -> None:
        name = request["TrainingJobName"]
        if is_stamped(name):
            raise InvalidRequest(
                f"{name} ends in -qstamp-<number>, like the attempts that the queue itself names.",
                field="TrainingJobName",
                remedy="Choose another name.",
            )
        for place, tag in enumerate(request.get("Tags", [])):
            if tag["Key"].lower().startswith(RESERVED_TAG_PREFIX):
                raise InvalidRequest(
                    f"Tags that begin with {RESERVED_TAG_PREFIX} are the queue's own, and {tag['Key']} does.",
                    field=f"Tags[{place}].Key",
                    remedy="Rename it.",
                )


def refuse(issues: Sequence[ValidationIssue]) -> None:
    """Refuse a request with issues; of very many the first are told.

    :raises InvalidRequest: there are issues.
    """
    if issues:
        raise InvalidRequest.of(first(issues))


def refuse_serverless(request: Mapping[str, Any]) -> None:
    """A serverless job leaves the instances to SageMaker, so there is nothing to count.

    :raises InvalidRequest: it is one.
    """
    if "ServerlessJobConfig" in request:
        raise InvalidRequest(
            "A serverless job runs on no instances of yours, so there is nothing to queue for.",
            field="ServerlessJobConfig",
            remedy="Send it to SageMaker directly.",
        )


def new_job(request: Mapping[str, Any], owner: str, options: SchedulingOptions, now: float) -> Job:
    """The job that a valid request asks for."""
    demand = demand_of(request["ResourceConfig"])
    return Job(
        name=request["TrainingJobName"],
        submission=uuid.uuid4().hex,
        state=JobState.PENDING,
        priority=options.priority,
        entered=iso(now),
        since=iso(now),
        owner=owner,
        demand=demand,
        line=waiting_line(options.project, demand, options.pools),
        project=options.project,
        group=options.group,
        preemptible=options.preemptible,
        pools=options.pools,
        retries=options.retries,
        max_runtime=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
    )


def _regrets(request: Mapping[str, Any], job: Job) -> Iterator[str]:
    """What is allowed but likely to be regretted."""
    if "CheckpointConfig" in request:
        return
    if job.preemptible or request.get("EnableManagedSpotTraining"):
        yield (
            "The job has no CheckpointConfig: if it is preempted, it starts again from the beginning. "
            "Give the estimator a checkpoint_s3_uri (smq submit: --checkpoint), and let the script resume from its "
            "checkpoint directory."
        )
