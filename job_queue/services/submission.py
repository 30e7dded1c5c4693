"""Submit jobs: validate requests, rights and places in S3, store new jobs, and recognise a repeated request."""

import json
import math
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.sagemaker import SageMakerTraining
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain.access.places import MOST_PLACES, Claim, in_each_bucket, lies_in, places_of
from job_queue.domain.access.resources import check_resources
from job_queue.domain.access.rights import Action
from job_queue.domain.carriers.members import TAG, kind_of
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.errors import Conflict, Forbidden, InvalidRequest, NameTaken, TooLarge, TooMany
from job_queue.domain.fleet.sites import has_other_sites
from job_queue.domain.identity import acts_for, owner_of
from job_queue.domain.job import Dependency, Job, JobRecord, StartByAction, iso, of_sizes, waiting_queue
from job_queue.domain.names import CARRIER_PREFIX, RESERVED_TAG_PREFIX, is_stamped
from job_queue.domain.policy import further_pools, needs_one_known_type, project_of
from job_queue.domain.requests.deadline_tags import deadline_issues
from job_queue.domain.requests.portability import portability_of
from job_queue.domain.requests.scheduling_tags import After, SchedulingOptions, named_dependencies, scheduling_options
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import JobState, Policy, time_text
from job_queue.validation import ValidationIssue, against_model, against_sagemaker, preflight
from job_queue.validation.issue import first

MAX_REQUEST_BYTES = 256 * 1024  # limit on a stored request: a row has at most 400 KB, including the history

MOST_CLAIMS_CHECKED = 20  # enough, because one live claim refuses a job, and only restored tables have stale claims
_WITHOUT_PREFLIGHT = "To queue it all the same: smq submit --no-preflight, or preflight=False in Python."


def one_by_one(calls: Sequence[Callable[[], Any]], /) -> list[Any]:
    """Run calls one after the other: a `Parallel` without threads."""
    return [call() for call in calls]


@dataclass(frozen=True, slots=True)
class ValidatedSubmission:
    """A valid request, and the job that it would become."""

    request: TrainingRequest
    job: Job
    preflight_issues: tuple[ValidationIssue, ...]
    start_issues: tuple[ValidationIssue, ...]  # dependencies and deadlines with which the job would never start
    advice: tuple[str, ...]  # warnings that never refuse the request
    metadata: Metadata  # as read before the job is stored

    @property
    def warnings(self) -> list[str]:
        """Messages for the owner of the job."""
        return [*(issue.message for issue in self.preflight_issues), *self.advice]


@dataclass(frozen=True, slots=True)
class _CheckedWithoutTables:
    """A request that has passed all checks without tables, and the names to look up for the other checks."""

    request: TrainingRequest
    preflight_issues: tuple[ValidationIssue, ...]
    places: Mapping[str, str]  # places in S3 that the job writes to -> the field of the request
    after: tuple[After, ...]  # jobs that the job waits for


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a submission."""

    record: JobRecord
    known: bool  # whether the same request was accepted before
    warnings: tuple[str, ...]
    metadata: Metadata  # as read before the job was stored


class SubmissionService:
    """The service that validates requests and stores them as jobs.

    :param clock: seconds since the epoch.
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
        """Store a request as a job. If the same request was accepted before, return the existing job.

        :param request: a CreateTrainingJob request, as decoded from JSON.
        :param owner: ARN of the caller.
        :param preflight: whether pre-flight issues refuse the request; otherwise they are warnings.
        :raises InvalidRequest, Forbidden, Conflict, NameTaken, TooMany, TooLarge: nothing is stored.
        """
        checked = self._check_without_tables(request)
        counting = partial(self._repository.submissions_of, owner_of(owner))
        count, *found = self._parallel([counting, *self._reads(checked, owner)])
        validated = self._check_with_tables(checked, owner, *found)
        job = validated.job
        if validated.start_issues:
            known = self._accepted_before(validated, owner)
            if known is None or (known.expires or math.inf) < self._clock():
                refuse(validated.start_issues)
            else:
                return Accepted(known, known=True, warnings=tuple(validated.warnings), metadata=validated.metadata)
        details = json.dumps(request, separators=(",", ":"))
        if len(details) > MAX_REQUEST_BYTES:
            raise TooLarge(
                f"The request takes {len(details):,} bytes as JSON; the queue stores at most {MAX_REQUEST_BYTES:,}.",
                remedy="Move large hyperparameters or environment variables to a file in S3, and pass its address.",
            )
        if preflight and validated.preflight_issues and self._accepted_before(validated, owner) is None:
            refuse([replace(issue, remedy=_WITHOUT_PREFLIGHT) for issue in validated.preflight_issues])
        policy = self._policies.of(validated.metadata.policy).policy
        limit = policy.settings.max_waiting
        try:
            self._repository.check_waiting(job.owner, count, limit, self._clock(), validated.metadata)
        except TooMany:
            if self._accepted_before(validated, owner) is None:
                raise
        existing, _ = self._parallel(
            [
                partial(
                    self._repository.add,
                    job,
                    details,
                    self._clock(),
                    validated.metadata,
                    plain=needs_one_known_type(job, policy),
                ),
                partial(self._repository.count_submission, owner_of(owner), self._clock()),
            ]
        )
        warnings = tuple(validated.warnings)
        if existing is None:
            return Accepted(JobRecord(job, details), known=False, warnings=warnings, metadata=validated.metadata)
        if not _is_same(existing, request, owner):
            raise NameTaken(
                f"Another request already has the name {job.name} (state {existing.job.state}).",
                field="TrainingJobName",
                remedy="Give this job another TrainingJobName.",
            )
        return Accepted(existing, known=True, warnings=warnings, metadata=validated.metadata)

    def _accepted_before(self, validated: ValidatedSubmission, owner: str) -> JobRecord | None:
        """Return the record of the same request of the same owner; None if no such request was accepted before.

        A repeated request is not refused because of pre-flight, dependencies or the limit of waiting jobs. These may
        have changed since the request was accepted.
        """
        existing = self._repository.record(validated.job.name)
        return existing if existing is not None and _is_same(existing, validated.request.content, owner) else None

    def validate(self, request: dict[str, Any], owner: str) -> ValidatedSubmission:
        """Validate a request like `submit`, but store nothing. Pre-flight issues are only warnings.

        The size of the request, the use of its name and the limit of waiting jobs are not checked.

        :raises InvalidRequest, Forbidden, Conflict: `submit` would refuse the request.
        """
        checked = self._check_without_tables(request)
        validated = self._check_with_tables(checked, owner, *self._parallel(self._reads(checked, owner)))
        refuse(validated.start_issues)
        return validated

    def _check_without_tables(self, content: dict[str, Any]) -> _CheckedWithoutTables:
        """Make all checks of a request that need no table."""
        refuse(against_model(content, self._training.request_shape))
        request = TrainingRequest.read(content)
        preflight_issues = preflight.request_issues(request)
        if issues := against_sagemaker(content):
            refuse([*issues, *preflight_issues])  # all issues in one error
        refuse_serverless(request)
        if len(places := places_of(request)) > MOST_PLACES:
            raise InvalidRequest(
                f"The job would write to {len(places)} places in S3; the queue supports {MOST_PLACES} for each job.",
                field=list(places.values())[MOST_PLACES],
                remedy="Give outputs of debugger and profiler one address: each job has a folder of its own there.",
            )
        _check_reserved(request)
        self._check_role(request.role)
        return _CheckedWithoutTables(request, tuple(preflight_issues), places, named_dependencies(request))

    def _reads(self, checked: _CheckedWithoutTables, owner: str) -> list[Callable[[], Any]]:
        """Return the reads that validation needs: metadata, the dependencies, and other claims on the job's places."""
        lookups = self._lookups(checked.places, owner)
        dependencies = [partial(self._repository.record, it.job) for it in checked.after]
        return [self._repository.metadata, *dependencies, *lookups]

    def _lookups(self, places: Iterable[str], owner: str) -> list[Callable[[], list[Claim]]]:
        return self._repository.claimed_places.lookups(places, lambda other: acts_for(owner, other))

    def _check_with_tables(
        self, checked: _CheckedWithoutTables, owner: str, metadata: Metadata, *reads: Any
    ) -> ValidatedSubmission:
        request = checked.request
        applied = self._policies.of(metadata.policy)
        options = scheduling_options(request, owner, applied.policy)
        if options.gpus is not None:
            self._check_shared(request)
        project = project_of(applied.policy, options.project)
        if project:
            check_resources(request, project, applied.policy, interactive=options.interactive)
        records, claims = reads[: len(checked.after)], reads[len(checked.after) :]
        after, dependency_issues = dependencies_of(checked.after, records)
        start_issues = (
            *dependency_issues,
            *deadline_issues(options.deadlines, request.tag_values, self._clock(), self._settings.finished_job_days),
        )
        owners_share = project is not None and project.owners_share
        by_place = {place: in_each_bucket(place, applied.policy) for place in checked.places}
        places = tuple(dict.fromkeys(names[0] for names in by_place.values()))
        new = new_job(request, owner, options, self._clock(), places, owners_share=owners_share)
        portability = portability_of(request) if has_other_sites(applied.policy) else None
        job = replace(new, after=after, portability=portability)
        fields = {name: checked.places[place] for place, names in by_place.items() for name in names}
        if other_places := fields.keys() - checked.places.keys():
            claims = (*claims, *self._parallel(self._lookups(sorted(other_places), owner)))
        self._check_places(fields, job, list(chain.from_iterable(claims)))
        issues = (*checked.preflight_issues, *preflight.policy_issues(request, job, applied, checked.preflight_issues))
        advice = (*_lost_work_warnings(request, job), *_next_pool_warnings(job, applied.policy))
        return ValidatedSubmission(request, job, issues, start_issues, advice, metadata)

    def _check_places(self, places: Mapping[str, str], job: Job, claims: Sequence[Claim]) -> None:
        """Check that no live job of another owner writes to the same places, or to places above or below them.

        :param places: places that the job writes to -> the field of the request.
        :raises Conflict: a live job of another owner writes there.
        """
        for claim in claims[:MOST_CLAIMS_CHECKED]:
            other = self._repository.record(claim.job)
            if claim.job == job.name or other is None or other.job.state.finished:
                continue  # a claim of the same request, accepted before; or a stale claim in a restored table
            field = next(field for place, field in places.items() if lies_in(place, claim.place))
            visible = self._settings.rights.may(Action.SHOW_JOB, job.owner, owner=claim.owner)
            claimant = (
                f"{claim.job}, a live job of {owner_of(claim.owner)}," if visible else "A live job of another owner"
            )
            raise Conflict(
                f"{claimant} writes to the address in {field}, to a folder below it, or to a folder above it.",
                field=field,
                remedy="Use a separate folder for this job.",
            )

    def _check_shared(self, request: TrainingRequest) -> None:
        if not self._settings.work_bucket:
            raise InvalidRequest(
                "This queue shares no instances between jobs: its stack has no WorkBucket.",
                field=request.tag_values[TAG].field,
                remedy="Leave out the tag gpus to get a whole instance, or ask the operator to set that parameter.",
            )

    def _check_role(self, role: str) -> None:
        if not self._settings.allows_role(role):
            raise Forbidden(
                f"The queue may not start jobs under the role {role}.",
                field="RoleArn",
                remedy="Use a role that the operator allows (the stack's parameter AllowedRoleArns).",
            )


def _check_reserved(request: TrainingRequest) -> None:
    """Refuse names and tags that the queue itself uses."""
    if is_stamped(request.name):
        raise InvalidRequest(
            f"{request.name} ends in -qstamp-<number>, which only the names of attempts may.",
            field="TrainingJobName",
            remedy="Choose another name.",
        )
    if request.name.startswith(CARRIER_PREFIX):
        raise InvalidRequest(
            f"{request.name} begins with {CARRIER_PREFIX}, which only the queue's own jobs for shared instances may.",
            field="TrainingJobName",
            remedy="Choose another name.",
        )
    for index, tag in enumerate(request.tags):
        if tag.key.lower().startswith(RESERVED_TAG_PREFIX):
            raise InvalidRequest(
                f"Tags that begin with {RESERVED_TAG_PREFIX} are reserved for the queue: {tag.key}.",
                field=f"Tags[{index}].Key",
                remedy="Rename the tag.",
            )


def dependencies_of(
    named: Sequence[After], records: Sequence[JobRecord | None]
) -> tuple[tuple[Dependency, ...], tuple[ValidationIssue, ...]]:
    """Return a new job's unfinished dependencies, and an issue for each that is unknown or did not end as required.

    Only existing jobs can be named, so dependencies have no cycles.

    :param records: the records of the named jobs; None for an unknown job.
    """
    after: list[Dependency] = []
    issues: list[ValidationIssue] = []
    for it, record in zip(named, records, strict=True):
        if record is None:
            message = f"There is no job named {it.job} that this one could run after."
            remedy = "Submit that job first. The queue stores finished jobs only for some time."
            issues.append(ValidationIssue(it.field, message, remedy))
        elif not record.job.state.finished:
            after.append(Dependency(it.job, record.job.submission, it.any_outcome))
        elif not it.any_outcome and record.job.state is not JobState.COMPLETED:
            message = f"{it.job} has {record.job.state}, and this job is to run once it has completed: it never would."
            remedy = f"Name another job, or write {it.job}:any to accept every outcome of that job."
            issues.append(ValidationIssue(it.field, message, remedy))
    return tuple(after), tuple(issues)


def _is_same(existing: JobRecord, request: Mapping[str, Any], caller: str) -> bool:
    """Return whether a caller repeats a request that the same owner sent before.

    An equal request of another owner counts as a different request. Otherwise the caller would rely on a job that the
    other owner can cancel. A caller could also guess secret values of a request and see whether the guess is right.
    """
    return acts_for(caller, existing.job.owner) and bool(json.loads(existing.details) == request)


def refuse(issues: Sequence[ValidationIssue]) -> None:
    """Refuse the request if there are issues. If there are very many, the error names only the first ones.

    :raises InvalidRequest: there are issues.
    """
    if issues:
        raise InvalidRequest.of(first(issues))


def refuse_serverless(request: TrainingRequest) -> None:
    """Refuse a serverless job: SageMaker chooses its instances, so it uses no capacity of a pool.

    :raises InvalidRequest: the job is serverless.
    """
    if request.is_serverless:
        raise InvalidRequest(
            "A serverless job uses no instances of a pool, so the queue does not accept it.",
            field="ServerlessJobConfig",
            remedy="Send it to SageMaker directly.",
        )


def new_job(
    request: TrainingRequest,
    owner: str,
    options: SchedulingOptions,
    now: float,
    places: tuple[str, ...] = (),
    *,
    owners_share: bool = False,
) -> Job:
    """Return the pending job for a valid request.

    :param now: epoch seconds.
    :param places: places in S3 that the job writes to.
    :param owners_share: whether the job may share an instance with jobs of other owners.
    """
    only_owner = None if owners_share else owner_of(owner)
    demand = of_sizes(request.resources.demand, options.sizes)
    return Job(
        name=request.name,
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
        on_hang=options.on_hang,
        max_runtime=request.limits.max_runtime,
        plans=request.resources.plans * max(1, len(options.sizes)),
        footprint=request.footprint if options.gpus is None else None,  # the carrier has the footprint
        secret=secrets.token_hex(16),
        places=places,
        gpus=options.gpus,
        kind=kind_of(request, only_owner, preemptible=options.preemptible) if options.gpus else None,
        max_preemptions=options.max_preemptions,
        not_before=options.deadlines.not_before,
        start_by=options.deadlines.start_by,
        start_by_action=options.deadlines.start_by_action,
        max_total_runtime=options.deadlines.max_total_runtime,
    )


def _lost_work_warnings(request: TrainingRequest, job: Job) -> Iterator[str]:
    """Yield a warning if the job can be interrupted and has no checkpoints, so that it may lose work."""
    if request.checkpoints is None and (job.preemptible or request.spot):
        yield (
            "The job has no CheckpointConfig: if it is preempted, it starts again from the beginning. "
            "Give the estimator a checkpoint_s3_uri (smq submit: --checkpoint), and let the script resume from its "
            "checkpoint directory."
        )


def _next_pool_warnings(job: Job, policy: Policy) -> Iterator[str]:
    """Yield a warning if the job's `start_by_action` is next_pool, but the project has no further pool for the job."""
    if job.start_by is None or job.start_by_action is not StartByAction.NEXT_POOL or further_pools(job, policy):
        return
    yield (
        f"If the job has not started by {time_text(job.start_by)}, it is only announced: start_by_action is "
        f"next_pool, and its project {job.project} has no further pools in which it could run. Have an admin "
        "add pools to the project, or let the action be notify or cancel."
    )
