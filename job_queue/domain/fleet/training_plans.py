"""Training plans: the periods with instances, the attempts that are cut off, and the notices before an end.

docs/developers/adr/0029-training-plans.md has the reasons.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from job_queue.domain.job import Job, epoch
from job_queue.scheduler import UNLIMITED, Calendar, Policy, Pool

TAKEN_BACK_SECONDS = 30 * 60  # SageMaker takes the instances back this long before the end of a plan, or of a part
DESCRIBE_SECONDS = 5 * 60  # seconds between two requests to SageMaker about a plan
NOTICE_SECONDS = 2 * 3600  # jobs get notice this long before their instances are taken back
LATE_SECONDS = 60  # tolerance for different clocks: a cut-off attempt may seem to end before its instances are taken


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A period in which a plan has instances. A plan may have several periods with gaps between them."""

    instances: int
    starts: int  # epoch seconds
    ends: int  # epoch seconds
    for_others: tuple[str, ...] = ()  # the resources that may use the plan, if training jobs are not among them

    @property
    def closes(self) -> int:
        """The time at which SageMaker takes the instances back."""
        return self.ends - TAKEN_BACK_SECONDS


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """The data of a plan that SageMaker has returned."""

    arn: str
    described_at: int  # epoch seconds of the last request about the plan
    parts: tuple[PlanPart, ...] | None = None  # None: SageMaker has never answered; empty: there is no such plan

    def calendar(self, now: float) -> Calendar | None:
        """Return the calendar of the current part, or of the next part, or of the last part.

        None means that SageMaker has never answered.
        """
        if self.parts is None:
            return None
        parts = sorted(self.parts, key=lambda part: part.starts)
        part = next((part for part in parts if part.closes > now), parts[-1] if parts else PlanPart(0, 0, 0))
        return Calendar(part.instances, part.starts, part.closes, part.for_others)

    def cuts_off(self, started: float, ended: float) -> bool:
        """Return whether the end of a part of the plan has ended an attempt that ran from `started` to `ended`."""
        under_way = [part for part in self.parts or () if part.closes >= started]
        first = min(under_way, key=lambda part: part.closes, default=None)
        return first is not None and first.closes <= ended + LATE_SECONDS


KnownPlans = Mapping[str, KnownPlan]
"""ARN of a plan -> its known data."""


def plan_arns(policy: Policy) -> list[str]:
    """Return the ARNs of the training plans of a policy, each once."""
    return list(dict.fromkeys(arn for _, arn in _pools_with_plans(policy)))


def plans_to_describe(known: KnownPlans, policy: Policy, now: float) -> list[str]:
    """Return the ARNs of the plans about which SageMaker was not asked in the last `DESCRIBE_SECONDS`."""
    return [arn for arn in plan_arns(policy) if arn not in known or known[arn].described_at + DESCRIBE_SECONDS <= now]


def calendars(known: KnownPlans, policy: Policy, now: float) -> dict[str, Calendar]:
    """Return the calendar of each pool that has a training plan.

    Until the first request about a plan, the pool's calendar is never open. If SageMaker has not answered any request,
    a pool with a capacity in the policy gets no calendar, so its capacity counts at any time. A pool without a capacity
    gets a calendar that is never open.
    """
    found = {}
    for pool, arn in _pools_with_plans(policy):
        record = known.get(arn)
        calendar = record.calendar(now) if record else None
        if calendar is not None:
            found[pool.name] = calendar
        elif record is None or pool.capacity == UNLIMITED:
            found[pool.name] = Calendar(UNLIMITED, inf, inf)
    return found


def cut_off_by(job: Job, known: KnownPlans, policy: Policy, ended: float) -> str | None:
    """Return the name of the plan whose end has ended an active job's attempt, or None if there is no such plan."""
    for pool, arn in _pools_with_plans(policy):
        record = known.get(arn)
        if pool.name in job.slots and record and record.cuts_off(epoch(job.started or job.since), ended):
            return pool.plan_name
    return None


def closing(job: Job, known: KnownPlans, policy: Policy, now: float) -> tuple[int, str] | None:
    """Return the time at which a running job will lose its instances (epoch seconds), and the plan's name.

    Return None if the time is more than `NOTICE_SECONDS` away or was already announced. Also return None if the job
    reaches its time limit (`Job.attempt_limit`) before that time.
    """
    found = []
    for pool, arn in _pools_with_plans(policy):
        record = known.get(arn)
        calendar = record.calendar(now) if record and pool.name in job.slots else None
        if calendar and calendar.is_open(now) and calendar.closes - now <= NOTICE_SECONDS:
            found.append((int(calendar.closes), pool.plan_name))
    first = min(found, key=lambda one: one[0], default=None)
    return None if first is None or first[0] == job.cut_off or _ends_before(job, first[0]) else first


def was_extended(job: Job, known: KnownPlans, policy: Policy, now: float) -> bool:
    """Return whether a running job got notice of a cut-off that is no longer due within `NOTICE_SECONDS`."""
    if job.cut_off is None or job.cut_off <= now:
        return False
    records = [known.get(arn) for pool, arn in _pools_with_plans(policy) if pool.name in job.slots]
    calendars = [calendar for record in records if record and (calendar := record.calendar(now))]
    return bool(calendars) and all(calendar.closes - now > NOTICE_SECONDS for calendar in calendars)


def _ends_before(job: Job, at: float) -> bool:
    return job.attempt_limit is not None and epoch(job.started or job.since) + job.attempt_limit <= at


def _pools_with_plans(policy: Policy) -> Iterator[tuple[Pool, str]]:
    """Yield each pool that has a training plan, and the plan's ARN."""
    return ((pool, pool.training_plan) for pool in policy.pools if pool.training_plan)
