"""One submitted request becomes one stored job, or is refused with the field that is at fault."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job_queue import preflight
from job_queue.bodies import json_object
from job_queue.errors import Forbidden, InvalidRequest, NameTaken, TooLarge
from job_queue.names import RESERVED_TAG_PREFIX, is_stamped
from job_queue.options import Options, scheduling_options
from job_queue.policy import Policies
from job_queue.records import Job, JobRecord, iso, waiting_line
from job_queue.scheduler import JobState
from job_queue.settings import Settings
from job_queue.store import Store
from job_queue.training import TrainingService, demand_of
from job_queue.validation import Problem, against_model, against_sagemaker

MAX_REQUEST_BYTES = 256 * 1024  # of the request as the queue keeps it: a row holds 400 KB, and a history besides

_SHOWN_PROBLEMS = 5
_GO_ON = "To queue it all the same: smq submit --no-preflight, or preflight=False in Python."


@dataclass(frozen=True, slots=True)
class Examined:
    """A request that SageMaker would take, and the job that it would become."""

    request: dict[str, Any]
    job: Job
    doubts: tuple[Problem, ...]  # what pre-flight has against it

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


class Intake:
    """Takes requests in."""

    def __init__(
        self,
        store: Store,
        training: TrainingService,
        policies: Policies,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._training = training
        self._policies = policies
        self._settings = settings
        self._clock = clock

    def submit(self, body: str, owner: str, *, preflight: bool = True) -> Accepted:
        """Keep a request as a job.

        :param body: a CreateTrainingJob request as JSON text.
        :param owner: ARN of the caller.
        :param preflight: whether to refuse what would come to nothing; otherwise that is a warning.
        :raises InvalidRequest, Forbidden, NameTaken, TooMany, TooLarge: nothing is stored.
        """
        examined = self.examine(body, owner)
        request, job = examined.request, examined.job
        details = json.dumps(request, separators=(",", ":"))
        if len(details) > MAX_REQUEST_BYTES:
            raise TooLarge(
                f"The request takes {len(details):,} bytes as JSON; the queue keeps at most {MAX_REQUEST_BYTES:,}. "
                "Move large hyperparameters or environment variables to a file in S3."
            )
        if preflight and examined.doubts and not self._is_known(examined):
            refuse(examined.doubts, _GO_ON)
        existing = self._store.add(job, details, self._clock())
        warnings = tuple(examined.warnings)
        if existing is None:
            return Accepted(JobRecord(job, details), known=False, warnings=warnings)
        if json.loads(existing.details) != request:
            raise NameTaken(
                f"Another request already has the name {job.name} (state {existing.job.state}). "
                "Give this job another TrainingJobName.",
                field="TrainingJobName",
            )
        return Accepted(existing, known=True, warnings=warnings)

    def _is_known(self, examined: Examined) -> bool:
        """Whether the very same request was taken before, perhaps under another policy: it is not judged again."""
        existing = self._store.record(examined.job.name)
        return existing is not None and json.loads(existing.details) == examined.request

    def examine(self, body: str, owner: str) -> Examined:
        """The request in a body, and the job that it would become; nothing is stored.

        :raises InvalidRequest, Forbidden: it cannot be one.
        """
        request = json_object(body, "a CreateTrainingJob request")
        refuse(against_model(request, self._training.request_shape))
        doubts = preflight.of_request(request)
        if problems := against_sagemaker(request):
            refuse([*problems, *doubts])  # all at once
        refuse_serverless(request)
        self._check_reserved(request)
        self._check_role(request)
        applied = self._policies.of(self._store.policy())
        job = new_job(request, owner, scheduling_options(request, owner, applied.policy), self._clock())
        return Examined(request, job, (*doubts, *preflight.of_policy(request, job, applied)))

    def _check_role(self, request: Mapping[str, Any]) -> None:
        role = request["RoleArn"]
        if not self._settings.allows_role(role):
            raise Forbidden(
                f"The queue may not start jobs under the role {role}. Use one that its operator has allowed "
                "(the stack's parameter AllowedRoleArns).",
                field="RoleArn",
            )

    def _check_reserved(self, request: Mapping[str, Any]) -> None:
        name = request["TrainingJobName"]
        if is_stamped(name):
            raise InvalidRequest(
                f"{name} ends in -qstamp-<number>, like the attempts that the queue itself names. Choose another name.",
                field="TrainingJobName",
            )
        for place, tag in enumerate(request.get("Tags", [])):
            if tag["Key"].lower().startswith(RESERVED_TAG_PREFIX):
                raise InvalidRequest(
                    f"Tags that begin with {RESERVED_TAG_PREFIX} are the queue's own; rename {tag['Key']}.",
                    field=f"Tags[{place}].Key",
                )


def refuse(problems: Sequence[Problem], *more: str) -> None:
    """Refuse a request with problems; the first names the field, all are told, and what else there is to say.

    :raises InvalidRequest: there are problems.
    """
    if not problems:
        return
    told = [problem.message for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > len(told):
        told.append(f"There are {len(problems) - len(told)} more faults.")
    raise InvalidRequest(" ".join([*told, *more]), field=problems[0].field or None)


def refuse_serverless(request: Mapping[str, Any]) -> None:
    """A serverless job leaves the instances to SageMaker, so there is nothing to count.

    :raises InvalidRequest: it is one.
    """
    if "ServerlessJobConfig" in request:
        raise InvalidRequest(
            "A serverless job runs on no instances of yours, so there is nothing to queue for; "
            "send it to SageMaker directly.",
            field="ServerlessJobConfig",
        )


def new_job(request: Mapping[str, Any], owner: str, options: Options, now: float) -> Job:
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
