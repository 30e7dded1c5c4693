"""Submission: a request becomes a stored job, or is refused with the field that is wrong."""

import json
import math
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.sagemaker import SageMakerTraining, demand_of, plans_of
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain.access.places import MOST_PLACES, Claim, lies_in, places_of
from job_queue.domain.access.resources import check_resources
from job_queue.domain.access.rights import Action
from job_queue.domain.carriers.members import TAG, kind_of
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.errors import Conflict, Forbidden, InvalidRequest, NameTaken, TooLarge, TooMany
from job_queue.domain.fleet.warm_matching import footprint
from job_queue.domain.identity import acts_for, owner_of
from job_queue.domain.job import Dependency, Job, JobRecord, iso, of_sizes, waiting_queue
from job_queue.domain.names import CARRIER_PREFIX, RESERVED_TAG_PREFIX, is_stamped
from job_queue.domain.policy import is_plain, project_of
from job_queue.domain.scheduling_tags import After, SchedulingOptions, named_dependencies, scheduling_options
from job_queue.scheduler import JobState
from job_queue.validation import ValidationIssue, against_model, against_sagemaker, preflight
from job_queue.validation.issue import first

MAX_REQUEST_BYTES = 256 * 1024  # of the request as the queue keeps it: a row holds 400 KB, and a history besides

CLAIMS_LOOKED_AT = 20  # the first that stands is told; others there are only in tables that were restored
_GO_ON = "To queue it all the same: smq submit --no-preflight, or preflight=False in Python."


def one_by_one(calls: Sequence[Callable[[], Any]], /) -> list[Any]:
    """The simplest Parallel."""
    return [call() for call in calls]


@dataclass(frozen=True, slots=True)
class Examined:
    """A request that SageMaker would take, and the job that it would become."""

    request: dict[str, Any]
    job: Job
    preflight_issues: tuple[ValidationIssue, ...]
    never_starts: tuple[ValidationIssue, ...]  # as the jobs that it waits for have ended otherwise, or there are none
    metadata: Metadata  # as it was before the job

    @property
    def warnings(self) -> list[str]:
        """Messages for its owner."""
        return [*(issue.message for issue in self.preflight_issues), *_advisory_warnings(self.request, self.job)]


@dataclass(frozen=True, slots=True)
class _Named:
    """What a request names of which the queue may know more."""

    places: Mapping[str, str]  # that the job writes to, with the field of each
    after: tuple[After, ...]  # jobs that it waits for


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a submission."""

    record: JobRecord
    known: bool  # the same request was accepted before
    warnings: tuple[str, ...]
    metadata: Metadata  # as it was before the job


class SubmissionService:
    """Accepts requests.

    :param parallel: runs independent AWS calls.
    """

    def __init__(
        self,
        repository: JobRepository,
        training: SageMakerTraining,
        policies: Policies,
        settings: DeploymentSettings,
        clock: Callable[[], float],
        parallel: Parallel = one_by_one,
    ) -> None:
        self._repository = repository
        self._parallel = parallel
        self._training = training
        self._policies = policies
        self._settings = settings
        self._clock = clock

    def submit(self, request: dict[str, Any], owner: str, *, preflight: bool = True) -> Accepted:
        """Keep a request as a job.

        :param request: of CreateTrainingJob, with the content that JSON can have.
        :param owner: ARN of the caller.
        :param preflight: whether pre-flight issues refuse the request; otherwise they are warnings.
        :raises InvalidRequest, Forbidden, NameTaken, TooMany, TooLarge: nothing is stored.
        """
        named = self._check_request(request)
        counting = partial(self._repository.submissions_of, owner_of(owner))
        count, *seen = self._parallel([counting, *self._reads(named, owner)])
        examined = self._examined(request, owner, named, *seen)
        job = examined.job
        if examined.never_starts:
            known = self._known(examined, owner)
            if known is None or (known.expires or math.inf) < self._clock():
                refuse(examined.never_starts)
            else:
                return Accepted(known, known=True, warnings=tuple(examined.warnings), metadata=examined.metadata)
        details = json.dumps(request, separators=(",", ":"))
        if len(details) > MAX_REQUEST_BYTES:
            raise TooLarge(
                f"The request takes {len(details):,} bytes as JSON; the queue keeps at most {MAX_REQUEST_BYTES:,}.",
                remedy="Move large hyperparameters or environment variables to a file in S3, and pass its address.",
            )
        if preflight and examined.preflight_issues and not self._is_known(examined, owner):
            refuse([replace(issue, remedy=_GO_ON) for issue in examined.preflight_issues])
        policy = self._policies.of(examined.metadata.policy).policy
        limit = policy.settings.max_waiting
        try:
            self._repository.check_waiting(job.owner, count, limit, self._clock(), examined.metadata)
        except TooMany:
            if not self._is_known(examined, owner):  # who sends the same request again is told so
                raise
        existing, _ = self._parallel(
            [
                partial(
                    self._repository.add,
                    job,
                    details,
                    self._clock(),
                    examined.metadata,
                    plain=is_plain(job, policy),
                ),
                partial(self._repository.count_submission, owner_of(owner), self._clock()),
            ]
        )
        warnings = tuple(examined.warnings)
        if existing is None:
            return Accepted(JobRecord(job, details), known=False, warnings=warnings, metadata=examined.metadata)
        if not _is_same(existing, request, owner):
            raise NameTaken(
                f"Another request already has the name {job.name} (state {existing.job.state}).",
                field="TrainingJobName",
                remedy="Give this job another TrainingJobName.",
            )
        return Accepted(existing, known=True, warnings=warnings, metadata=examined.metadata)

    def _is_known(self, examined: Examined, owner: str) -> bool:
        """Whether the same request was accepted before, perhaps under another policy: pre-flight does not refuse it."""
        return self._known(examined, owner) is not None

    def _known(self, examined: Examined, owner: str) -> JobRecord | None:
        existing = self._repository.record(examined.job.name)
        return existing if existing is not None and _is_same(existing, examined.request, owner) else None

    def examine(self, request: dict[str, Any], owner: str) -> Examined:
        """A request, and the job that it would become; nothing is stored.

        :raises InvalidRequest, Forbidden: it cannot be one.
        """
        named = self._check_request(request)
        examined = self._examined(request, owner, named, *self._parallel(self._reads(named, owner)))
        refuse(examined.never_starts)
        return examined

    def _check_request(self, request: dict[str, Any]) -> _Named:
        """What can be said without looking at the queue. Gives what of the queue has to be looked at."""
        refuse(against_model(request, self._training.request_shape))
        if issues := against_sagemaker(request):
            refuse([*issues, *preflight.of_request(request)])  # all at once
        refuse_serverless(request)
        if len(places := places_of(request)) > MOST_PLACES:
            raise InvalidRequest(
                f"The job would write to {len(places)} places in S3; the queue looks after {MOST_PLACES} of a job.",
                field=list(places.values())[MOST_PLACES],
                remedy="Give outputs of debugger and profiler one address: each job has a folder of its own there.",
            )
        self._check_reserved(request)
        self._check_role(request)
        return _Named(places, named_dependencies(request))

    def _reads(self, named: _Named, owner: str) -> list[Callable[[], Any]]:
        """What of the queue a request is examined by: metadata, jobs it waits for, and who writes where it would."""
        lookups = self._repository.claimed_places.lookups(named.places, lambda other: acts_for(owner, other))
        dependencies = [partial(self._repository.record, it.job) for it in named.after]
        return [self._repository.metadata, *dependencies, *lookups]

    def _examined(
        self, request: dict[str, Any], owner: str, named: _Named, metadata: Metadata, *reads: Any
    ) -> Examined:
        preflight_issues = preflight.of_request(request)
        applied = self._policies.of(metadata.policy)
        options = scheduling_options(request, owner, applied.policy)
        if options.gpus is not None:
            self._check_shared(request)
        project = project_of(applied.policy, options.project)
        if project:
            check_resources(request, project, applied.policy)
        records, claims = reads[: len(named.after)], reads[len(named.after) :]
        after, never_starts = dependencies_of(named.after, records)
        owners_share = project is not None and project.owners_share
        new = new_job(request, owner, options, self._clock(), tuple(named.places), owners_share=owners_share)
        job = replace(new, after=after)
        self._check_places(named.places, job, list(chain.from_iterable(claims)))
        issues = (*preflight_issues, *preflight.of_policy(request, job, applied))
        return Examined(request, job, issues, never_starts, metadata)

    def _check_places(self, places: Mapping[str, str], job: Job, claims: Sequence[Claim]) -> None:
        """Whether a live job of somebody else writes where this one would, above or below.

        :param places: with the field of each.
        :raises Conflict: one does.
        """
        for claim in claims[:CLAIMS_LOOKED_AT]:
            other = self._repository.record(claim.job)
            if claim.job == job.name or other is None or other.job.state.finished:
                continue  # its own, of a request that was accepted before; or left of a table that was restored
            field = next(field for place, field in places.items() if lies_in(place, claim.place))
            visible = self._settings.rights.may(Action.SHOW_JOB, job.owner, owner=claim.owner)
            whose = f"{claim.job}, a live job of {owner_of(claim.owner)}," if visible else "A live job of somebody else"
            raise Conflict(
                f"{whose} writes to the address in {field}, to a folder in it, or to one in which it lies.",
                field=field,
                remedy="Give this job a folder of its own.",
            )

    def _check_shared(self, request: Mapping[str, Any]) -> None:
        if not self._settings.work_bucket:
            field = next(f"Tags[{index}].Value" for index, tag in enumerate(request["Tags"]) if tag["Key"] == TAG)
            raise InvalidRequest(
                "This queue shares no instances between jobs: its stack has no WorkBucket.",
                field=field,
                remedy="Leave out the tag gpus to have a whole instance, or ask its operator for that parameter.",
            )

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
        if name.startswith(CARRIER_PREFIX):
            raise InvalidRequest(
                f"{name} begins with {CARRIER_PREFIX}, like the jobs of the queue's own on which others run.",
                field="TrainingJobName",
                remedy="Choose another name.",
            )
        for index, tag in enumerate(request.get("Tags", [])):
            if tag["Key"].lower().startswith(RESERVED_TAG_PREFIX):
                raise InvalidRequest(
                    f"Tags that begin with {RESERVED_TAG_PREFIX} are the queue's own, and {tag['Key']} does.",
                    field=f"Tags[{index}].Key",
                    remedy="Rename it.",
                )


def dependencies_of(
    named: Sequence[After], records: Sequence[JobRecord | None]
) -> tuple[tuple[Dependency, ...], tuple[ValidationIssue, ...]]:
    """The jobs that a new job has to wait for, and why it could never start, where that is so.

    Only jobs that are there can be named, so there are no cycles.
    """
    after: list[Dependency] = []
    issues: list[ValidationIssue] = []
    for it, record in zip(named, records, strict=True):
        if record is None:
            message = f"There is no job named {it.job} that this one could run after."
            remedy = "Submit that one first. Jobs that have ended are known for some time only."
            issues.append(ValidationIssue(it.field, message, remedy))
        elif not record.job.state.finished:
            after.append(Dependency(it.job, record.job.submission, it.any_outcome))
        elif not it.any_outcome and record.job.state is not JobState.COMPLETED:
            message = f"{it.job} has {record.job.state}, and this job is to run once it has completed: it never would."
            remedy = f"Name another job, or write {it.job}:any to run this one however the other has ended."
            issues.append(ValidationIssue(it.field, message, remedy))
    return tuple(after), tuple(issues)


def _is_same(existing: JobRecord, request: Mapping[str, Any], caller: str) -> bool:
    """Whether a caller sends again what they have sent before.

    The same words of somebody else are another job: its owner could cancel it, and its values could be guessed.
    """
    return acts_for(caller, existing.job.owner) and bool(json.loads(existing.details) == request)


def refuse(issues: Sequence[ValidationIssue]) -> None:
    """Refuse a request with issues; of very many the first are shown.

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


def new_job(
    request: Mapping[str, Any],
    owner: str,
    options: SchedulingOptions,
    now: float,
    places: tuple[str, ...] = (),
    *,
    owners_share: bool = False,
) -> Job:
    """The job that a valid request asks for.

    :param owners_share: whether it may share an instance with jobs of other owners.
    """
    among = None if owners_share else owner_of(owner)
    resources, sizes = request["ResourceConfig"], options.sizes
    demand = of_sizes(demand_of(resources), sizes)
    return Job(
        name=request["TrainingJobName"],
        submission=uuid.uuid4().hex,
        state=JobState.PENDING,
        priority=options.priority,
        entered=iso(now),
        since=iso(now),
        owner=owner_of(owner),
        demand=demand,
        waiting_queue=waiting_queue(options.project, demand, options.pools, interactive=options.interactive),
        project=options.project,
        group=options.group,
        max_parallel=options.max_parallel,
        preemptible=options.preemptible,
        interactive=options.interactive,
        pools=options.pools,
        retries=options.retries,
        max_runtime=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
        plans=plans_of(resources) * max(1, len(sizes)),
        footprint=footprint(request) if options.gpus is None else None,  # its carrier has one
        secret=secrets.token_hex(16),
        places=places,
        gpus=options.gpus,
        kind=kind_of(request, among, preemptible=options.preemptible) if options.gpus else None,
    )


def _advisory_warnings(request: Mapping[str, Any], job: Job) -> Iterator[str]:
    """Warnings about a request that is accepted."""
    if "CheckpointConfig" in request:
        return
    if job.preemptible or request.get("EnableManagedSpotTraining"):
        yield (
            "The job has no CheckpointConfig: if it is preempted, it starts again from the beginning. "
            "Give the estimator a checkpoint_s3_uri (smq submit: --checkpoint), and let the script resume from its "
            "checkpoint directory."
        )
