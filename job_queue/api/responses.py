"""Conversion of the queue's records to the API's answers."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

import msgspec

from api_contract.models import (
    Attempt,
    DepartmentStatus,
    DrainAnswer,
    Eviction,
    Expectation,
    ExternalJob,
    GpuReturn,
    JobDetail,
    JobFailure,
    JobSummary,
    PastPolicy,
    Pause,
    PlanAnswer,
    PolicyAnswer,
    PolicyHistory,
    PoolDrain,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
    Transition,
    Why,
)
from job_queue.adapters.items import stored_request
from job_queue.api.queue_position import QueuePosition
from job_queue.api.redaction import redacted
from job_queue.api.sizes import MOST_BYTES, bytes_of, take_fitting
from job_queue.domain.access.program_output import REDACTED, without_program_output
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.failures import FailureAction, chosen_again, remedy_of
from job_queue.domain.fleet.sites import account_of, region_of, site_of_pool
from job_queue.domain.identity import owner_of
from job_queue.domain.job import (
    EndedAttempt,
    ExternalTrainingJob,
    FailedAttempt,
    HistoryEntry,
    Job,
    JobRecord,
    StartByAction,
    iso,
    live_position,
)
from job_queue.domain.launching.instance_check import is_check_due
from job_queue.domain.policy import AppliedPolicy, PolicyVersion, further_pools, project_of, slots_of
from job_queue.domain.state_machine import failure_class_in
from job_queue.scheduler import WHOLE, Calendar, Department, Drain, JobState, Plan, Policy, Pool, Project, time_text
from job_queue.services.drains import DrainChange

Summary = TypeVar("Summary", bound=JobSummary)
Share = TypeVar("Share", bound=DepartmentStatus)
ShowsValues = Callable[[Job], bool]
"""Function: job -> whether the caller may see values of this job that can be secret."""


def summary(kind: type[Summary], job: Job, positions: QueuePosition, shows_values: ShowsValues, **more: Any) -> Summary:
    """Return the summary of a job.

    :param kind: the type of the summary: JobSummary, or a type with further fields.
    :param more: the further fields.
    """
    reason = positions.reason(job)
    if reason and not shows_values(job):
        reason = msgspec.structs.replace(reason, message=without_program_output(reason.message))
    return kind(
        job=job.name,
        state=job.state.value,
        priority=job.priority,
        project=job.project,
        group=job.group,
        owner=owner_of(job.owner),
        instances=job.instances,
        sizes=job.sizes,
        entry_time=_time(job.entered),
        state_since=_time(job.since),
        attempt=job.attempt,
        training_job_name=job.launched,
        position=positions.position(job),
        expected_start=positions.expectation(job),
        expected_end=positions.expected_end(job),
        reason=reason,
        cancel_requested=job.cancelled,
        held=job.held,
        preemptible=job.preemptible,
        interactive=job.interactive,
        pools=job.pools,
        slots=job.slots,
        last_slots=job.last_slots,
        instance_types=tuple(dict.fromkeys(it for alternative in job.demand for it in alternative)),
        started=_time(job.started),
        secondary_status=job.stage if job.state is JobState.RUNNING else None,
        secondary_status_since=_stage_since(job),
        retries=job.retries,
        retried=job.retried,
        free_retries=job.free_retried,
        failure_class=job.failure.failure_class if job.failure else failure_class_in(job.reason),
        on_hang=job.on_hang,
        hung_since=_time(iso(job.hung)) if job.hung is not None and positions.idle_since(job) else None,
        hangs=job.hangs,
        idle_since=positions.idle_since(job),
        unsaved_since=positions.unsaved_since(job),
        cut_off=_time(iso(job.cut_off)) if job.cut_off else None,
        gpus=None if job.gpus is None else job.gpus / WHOLE,
        carrier=job.allocation.carrier if job.allocation else None,
        carries=job.carries,
        not_before=_at(job.not_before),
        start_by=_at(job.start_by),
        start_by_action=job.start_by_action.value if job.start_by is not None else None,
        start_missed=job.start_missed,
        max_total_runtime=job.max_total_runtime,
        run_seconds=job.run_seconds,
        max_preemptions=job.max_preemptions,
        preemptions=job.preemptions_in_all,
        region=region_of(job.site),
        account=account_of(job.site),
        **more,
    )


def _stage_since(job: Job) -> datetime | None:
    """Return the time since which a running attempt is in its present stage; None if the stage is not known."""
    if job.stage is None or job.state is not JobState.RUNNING:
        return None
    return _time(iso(job.stage_at / 1000)) if job.stage_at else _time(job.started)


def _at(seconds: int | None) -> datetime | None:
    return None if seconds is None else _time(iso(seconds))


def detail(
    record: JobRecord,
    positions: QueuePosition,
    advice: Sequence[str],
    shows_values: ShowsValues,
    policy: Policy | None = None,
) -> JobDetail:
    """Return the full description of a job: its summary, request, history, attempts and reasons to wait.

    :param policy: the policy in force. With it, the answer shows which action its rules would choose for the job's
        failure now. None: this is not shown.
    """
    job, request = record.job, json.loads(record.details)
    full = shows_values(job)
    attempts = [_attempt(attempt) for attempt in record.attempts]
    if job.state.holds_slots:
        instances = job.instances if job.allocation is None else None
        attempts.append(
            Attempt(
                job.attempt,
                job.launched,
                _time(job.started),
                instances=instances,
                carrier=job.carrier_attempt,
                region=region_of(job.site),
                account=account_of(job.site),
            )
        )
    return summary(
        JobDetail,
        job,
        positions,
        shows_values,
        history=tuple(_transition(entry, full=full) for entry in record.history),
        attempts=tuple(attempts),
        request=request if full else redacted(request),
        why=positions.why(job, advice),
        failure=_failure(record, job.failure, policy, full=full) if job.failure else None,
        ask_again_after=positions.ask_again_after(job),
    )


def _failure(record: JobRecord, failed: FailedAttempt, policy: Policy | None, *, full: bool) -> JobFailure:
    chosen_now = chosen_again(record.job, failed, _retry_on(record), policy) if policy else None
    return JobFailure(
        failure_class=failed.failure_class,
        attempt=failed.attempt,
        sentence=failed.sentence if full else REDACTED,
        remedy=remedy_of(failed),
        rank=failed.rank,
        lines=failed.lines if full else (),
        exit_code=failed.exit_code,
        action=failed.action,
        rule=failed.rule,
        fresh_instances=failed.fresh_instances,
        instance_check=failed.action != FailureAction.FAIL and is_check_due(failed),
        gpu_uuids=failed.gpu_uuids,
        returned_gpus=tuple(GpuReturn(gpu.uuid, gpu.failures, _at(gpu.latest)) for gpu in failed.returned_gpus),
        action_now=chosen_now.action if chosen_now else None,
        rule_now=chosen_now.rule if chosen_now else None,
    )


def _retry_on(record: JobRecord) -> str | None:
    tag = stored_request(record.details).tag_values.get("retry_on")
    return tag.text if tag else None


def _attempt(ended: EndedAttempt) -> Attempt:
    started = _time(ended.started)
    return Attempt(
        ended.attempt,
        ended.training_job_name,
        started,
        _time(ended.ended),
        ended.outcome,
        ended.instances,
        ended.carrier,
        ended.failure_class,
        region_of(ended.site),
        account_of(ended.site),
    )


def _transition(entry: HistoryEntry, *, full: bool) -> Transition:
    cause = entry.cause if full or entry.cause is None else without_program_output(entry.cause)
    return Transition(entry.state, _time(entry.at), entry.attempt, cause)


def queue_status(
    cluster: ClusterState, plan: PublishedPlan, now: float, shows_values: ShowsValues, room: int = MOST_BYTES
) -> QueueStatus:
    """Return the status of the queue: pools, departments, projects, active jobs, waiting jobs and external jobs.

    Active jobs are sorted by priority and entry time. Waiting jobs are in the order of the plan.

    :param plan: the last published plan. Waiting jobs that are not in the plan come last.
    :param now: epoch seconds.
    :param room: bytes for the answer. Pools, departments and projects are always complete. External jobs get at most a
        quarter of the remaining bytes. Then waiting jobs and active jobs get half of the rest each, and the bytes that
        the other list does not need.
    """
    positions, policy = QueuePosition(plan, cluster.outlook), cluster.policy
    external, pools = cluster.external_slots(), cluster.pools_at(now)
    capacities = {pool.name: pools.capacity(pool) for pool in pools.policy.pools}
    children = {
        department.name: {project.name for project in policy.projects if project.department == department.name}
        for department in policy.departments
    }
    status = QueueStatus(
        pools=tuple(
            _pool_status(
                pool, cluster, capacities[pool.name], pools.calendars.get(pool.name), external.get(pool.name, 0), now
            )
            for pool in policy.pools
        ),
        departments=tuple(
            _share(DepartmentStatus, department, children[department.name], cluster, plan)
            for department in policy.departments
        ),
        projects=tuple(
            _share(ProjectStatus, project, {project.name}, cluster, plan, department=project.department)
            for project in policy.projects
        ),
        policy_version=cluster.applied.version,
        pauses=tuple(
            _pause(backoff, policy) for backoff in cluster.metadata.capacity_backoffs.values() if backoff.until > now
        ),
    )
    room -= bytes_of(status)
    external_jobs = [job for job in cluster.external if job.warm is None or job.warm.fixed]
    listed_external, _ = take_fitting((_external_job(job, policy) for job in external_jobs), room // 4)
    room -= sum(map(bytes_of, listed_external))
    active = [summary(JobSummary, job, positions, shows_values) for job in in_order(cluster.active.values())]
    planned = dict.fromkeys(hold.job for hold in plan.holds if hold.job in cluster.waiting)
    others = [job for job in in_order(cluster.waiting.values()) if job.name not in planned]
    waiting = [
        summary(JobSummary, job, positions, shows_values)
        for job in [*(cluster.waiting[name] for name in planned), *others]
    ]
    needed = sum(map(bytes_of, waiting))
    listed_active, left = take_fitting(active, room - min(needed, room // 2))
    listed_waiting, _ = take_fitting(waiting, min(needed, room // 2) + left)
    return msgspec.structs.replace(
        status,
        active=listed_active,
        waiting=listed_waiting,
        external=listed_external,
        more_active=len(listed_active) < len(active),
        more_waiting=bool(cluster.truncated_queues) or len(listed_waiting) < len(waiting),
        more_external=len(listed_external) < len(external_jobs),
    )


def _pool_status(
    pool: Pool, cluster: ClusterState, capacity: int, calendar: Calendar | None, external: int, now: float
) -> PoolStatus:
    known = calendar is not None and isfinite(calendar.opens)
    holders = [job for job in cluster.active.values() if pool.name in job.slots]
    used = sum(job.slots[pool.name] for job in holders)
    return PoolStatus(
        name=pool.name,
        capacity=capacity,
        used=used,
        external=external,
        stopping=sum(job.slots[pool.name] for job in holders if job.state is JobState.STOPPING),
        free=max(0, capacity - used - external),
        warm=cluster.warm().get(pool.name, 0),
        instance_type=pool.instance_type,
        market=pool.market,
        region=pool.region,
        account=account_of(site_of_pool(pool)),
        training_plan=pool.plan_name or None,
        opens=_time(iso(calendar.opens)) if calendar and known else None,
        closes=_time(iso(calendar.closes)) if calendar and known else None,
        gpus=None if pool.gpus is None else pool.gpus * capacity,
        gpus_used=_gpus_used(pool, cluster),
        drain=_pool_drain(cluster.drains.get(pool.name), now),
    )


def drain_answer(changed: DrainChange, now: float) -> DrainAnswer:
    """Return the answer to a request that drains a pool or ends a drain.

    :param now: epoch seconds.
    """
    return DrainAnswer(
        changed.pool, _pool_drain(changed.drain, now), changed.was_drained, changed.stopping, changed.staying
    )


def _pool_drain(drain: Drain | None, now: float) -> PoolDrain | None:
    if drain is None:
        return None
    return PoolDrain(
        at=datetime.fromtimestamp(drain.at, UTC),
        in_force=drain.is_in_force(now),
        by=drain.by,
        requested=_time(iso(drain.requested)),
        reason=drain.reason,
        stops=drain.stops.value,
    )


def _gpus_used(pool: Pool, cluster: ClusterState) -> float:
    """Return the GPUs in use in a shared pool; 0 for other pools.

    A member counts with the GPUs that it holds; any other job counts with all GPUs of its instances. Carriers do not
    count.
    """
    if pool.gpus is None:
        return 0.0
    in_pool = {name for name, job in cluster.active.items() if pool.name in job.slots}
    whole_instances = sum(
        cluster.active[name].slots[pool.name] for name in in_pool if cluster.active[name].carries is None
    )
    member_tenths = sum(
        job.allocation.size
        for job in cluster.active.values()
        if job.allocation is not None and job.allocation.carrier in in_pool
    )
    return whole_instances * pool.gpus + member_tenths / WHOLE


def _pause(backoff: CapacityBackoff, policy: Policy) -> Pause:
    pool, instance_type = backoff.capacity_key, None
    if policy.pools[0].instance_type is None:
        pool, _, instance_type = backoff.capacity_key.rpartition("/")
    return Pause(
        pool=pool,
        instance_type=instance_type,
        instances=backoff.min_instances,
        refusals=backoff.failures,
        last_refusal=_time(iso(backoff.since)),
        until=_time(iso(backoff.until)),
        at_fault=backoff.at_fault,
        quota_lag=backoff.lag if backoff.is_lag else None,
        unreachable=backoff.unreachable is not None,
    )


def _external_job(job: ExternalTrainingJob, policy: Policy) -> ExternalJob:
    slots = slots_of(job.instance_counts, policy, job.plan, job.site)
    return ExternalJob(
        job.training_job_name,
        slots,
        _time(job.since),
        job.orphan,
        job.forged,
        region_of(job.site),
        account_of(job.site),
    )


def _share(
    kind: type[Share],
    part: Project | Department,
    projects: set[str],
    cluster: ClusterState,
    plan: PublishedPlan,
    **more: Any,
) -> Share:
    used: dict[str, int] = {}
    for job in cluster.active.values():
        for pool, count in job.slots.items() if job.project in projects else ():
            used[pool] = used.get(pool, 0) + count
    return kind(
        name=part.name,
        quota=part.quota,
        limit=part.limit,
        share={pool: shares[part.name] for pool, shares in plan.shares.items() if shares.get(part.name)},
        used=used,
        waiting=sum(job.project in projects for job in cluster.waiting.values()),
        more_waiting=cluster.more_wait(projects),
        **more,
    )


def policy_answer(applied: AppliedPolicy, warnings: Sequence[str] = ()) -> PolicyAnswer:
    """Return a version of the policy in the form of the API."""
    return PolicyAnswer(
        version=applied.version,
        policy=applied.document,
        applied_by=applied.applied_by,
        applied_at=_time(applied.applied_at),
        warnings=tuple(warnings),
    )


def policy_history(versions: Iterable[PolicyVersion]) -> PolicyHistory:
    """Return versions of the policy, without their documents, in the form of the API."""
    return PolicyHistory(
        tuple(PastPolicy(it.version, it.applied_by, _time(it.applied_at), it.restored) for it in versions)
    )


def plan_answer(
    job: Job,
    cluster: ClusterState,
    decided: Plan,
    now: float,
    advice: Sequence[str],
    warnings: Sequence[str],
    ahead: Outlook | None,
) -> PlanAnswer:
    """Return a plan's decision about one waiting job, and the plan's evictions for this job.

    :param cluster: the planned cluster state, which contains the job.
    :param now: epoch seconds of the plan.
    :param ahead: the outlook with the expected start of the job; None if it was not computed.
    """
    positions = QueuePosition(PublishedPlan.of(cluster, decided, now), ahead)
    started = decided.started
    evictions = [evict for evict in decided.evictions if evict.claimant == job.name]
    why = positions.why(job, advice) or Why()
    expected = positions.expectation(job)
    slots = started.get(job.name, decided.reservations.get(job.name) if evictions else None)
    project = project_of(cluster.policy, job.project)
    return PlanAnswer(
        would_start=job.name in started or bool(evictions),  # now, or as soon as its victims have stopped
        slots=slots or None,
        evicts=tuple(Eviction(evict.job, evict.rule.value) for evict in evictions),
        position=positions.position(job),
        expected_start=expected,
        reason=None if job.name in started else positions.reason(job),
        ahead=why.ahead,
        blockers=why.blockers,
        advice=why.advice,
        warnings=(*warnings, *_late_start(job, expected, has_further_pools=bool(further_pools(job, cluster.policy)))),
        bucket_by_region=project.bucket_by_region if project else {},
    )


def _late_start(job: Job, expected: Expectation | None, *, has_further_pools: bool) -> Iterator[str]:
    """Yield a warning if a job is expected to start after its `start_by`."""
    start = (expected.likely or expected.start) if expected else None
    if job.start_by is None or start is None or start.timestamp() <= job.start_by:
        return
    consequence = {
        StartByAction.NOTIFY: "you would get a notice",
        StartByAction.CANCEL: "it would be stopped then",
        StartByAction.NEXT_POOL: "it could then run in the further pools of its project"
        if has_further_pools
        else "you would get a notice",
    }[job.start_by_action]
    yield (
        f"The job is to start by {time_text(job.start_by)}, and is expected to start at about "
        f"{time_text(start.timestamp())}: {consequence}. Let it accept more pools or fewer instances, raise its "
        "priority, or name a later time."
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs sorted by `order_of`."""
    return sorted(jobs, key=order_of)


def order_of(job: Job) -> str:
    """Return the sort key of lists: priority (descending), entry time, name. Parked jobs come last.

    The key of the last job on a page is the position after which the next page begins.
    """
    return live_position(job)
