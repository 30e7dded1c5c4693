"""Compute how much is left of the policy's budgets: subtract the period's finished attempts and the active jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

from sagemaker_queue.jobs.formatting import short_owner

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

MOST_ATTEMPTS = 20_000  # maximum number of attempts to read: forty requests
MOST_OWNERS = 20  # maximum number of reported owners of a project with owner budgets: the owners with the most usage
HOUR = 3600
_HOLDING = ("starting", "running", "stopping")
_DAYS = {"day": 1, "week": 7}
_MONDAY = datetime(1970, 1, 5, tzinfo=timezone.utc)


@dataclass(frozen=True)
class StatedBudget:
    """A budget of a project, or of each owner in the project."""

    project: str
    hours: float  # instance-hours
    period: str  # such as week, or 10 days
    kind: str  # hard or soft
    begins: datetime
    ends: datetime
    each_owner: bool = False


@dataclass(frozen=True)
class RemainingBudget:
    """A budget with the hours that are used and left."""

    budget: StatedBudget
    used: float  # instance-hours
    owner: str | None = None  # the owner, if each owner of the project has a budget

    @property
    def hours(self) -> float:
        """Instance-hours that are left; negative if the budget is overspent."""
        return self.budget.hours - self.used


@dataclass(frozen=True)
class Budgets:
    """All budgets, with the hours that are used and left."""

    remaining: tuple[RemainingBudget, ...] = ()
    complete: bool = True  # False: more attempts ended than were read, so less is left than `remaining` shows


def period_of(period: str | int, now: datetime) -> tuple[datetime, datetime]:
    """Return the start of a budget's present period and the start of its next period, in UTC."""
    if period == "month":
        begins = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return begins, (begins + timedelta(days=32)).replace(day=1)
    length = timedelta(days=_DAYS.get(str(period)) or int(period))
    begins = now - (now - _MONDAY) % length
    return begins, begins + length


def budgets_of(policy: Mapping[str, Any], projects: tuple[str, ...], now: datetime) -> Iterator[StatedBudget]:
    """Yield the budgets in a policy document for projects that match a pattern of ``projects`` (empty: all)."""
    for project in policy.get("projects") or ():
        if projects and not any(fnmatchcase(project["name"], pattern) for pattern in projects):
            continue
        for field in ("budget", "owner_budget"):
            if content := project.get(field):
                period, kind = content["period"], content.get("kind") or "hard"
                text = period if isinstance(period, str) else f"{period} days"
                times = period_of(period, now)
                hours = float(content["instance_hours"])
                yield StatedBudget(project["name"], hours, text, kind, *times, each_owner=field != "budget")


def remaining_budgets(queue: QueueClient, budgets: Iterable[StatedBudget], now: datetime) -> Budgets:
    """Return the used and remaining hours of each budget. Without a budget, no request is sent."""
    known = list(budgets)
    if not known:
        return Budgets()
    names = {budget.project for budget in known}
    only = next(iter(names))
    project = only if len(names) == 1 and only.isprintable() else None
    read = queue.history(min(budget.begins for budget in known), project=project)
    attempts = list(islice(read, MOST_ATTEMPTS + 1))
    uses = [
        _Use(attempt.project, attempt.owner, attempt.instance_count, attempt.began, attempt.ended)
        for attempt in attempts
        if attempt.began and attempt.ended
    ]
    uses += [
        _Use(job.project, job.owner, job.instances, began, now)
        for job in queue.jobs(_HOLDING)
        if (began := job.started or job.state_since) and job.gpus is None  # a job with gpus counts for its carrier
    ]
    left = [each for budget in known for each in _left(budget, uses)]
    return Budgets(tuple(left), complete=len(attempts) <= MOST_ATTEMPTS)


@dataclass(frozen=True)
class _Use:
    project: str | None
    owner: str | None
    instances: int
    began: datetime
    ended: datetime

    def hours_since(self, begins: datetime) -> float:
        seconds = (self.ended - max(self.began, begins)).total_seconds()
        return max(0.0, seconds) * self.instances / HOUR


def _left(budget: StatedBudget, uses: Iterable[_Use]) -> Iterator[RemainingBudget]:
    used: dict[str | None, float] = {} if budget.each_owner else {None: 0.0}
    for use in uses:
        hours = use.hours_since(budget.begins) if use.project == budget.project else 0
        if hours:
            owner = use.owner if budget.each_owner else None
            used[owner] = used.get(owner, 0.0) + hours
    for owner in sorted(used, key=lambda it: (-used[it], it or ""))[:MOST_OWNERS]:
        yield RemainingBudget(budget, used[owner], short_owner(owner))
