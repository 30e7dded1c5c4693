"""Budgets: the instance-hours spent in the present period, and whether a spent budget forbids a job to start."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import fsum, inf

from job_queue.scheduler.documents.policy_schema import HOUR, Budget, BudgetKind, Project
from job_queue.scheduler.model import ActiveJob, Snapshot, WaitingJob

Account = tuple[str, str | None]
"""A project and the owner of jobs in it; with None instead of an owner, the project itself."""

_DAY = 86400
_FIRST_MONDAY = 4  # days from the epoch to the first Monday, 1970-01-05


def period_start(budget: Budget, now: float) -> float:
    """Return the start of the budget's period that contains `now`, in seconds since the epoch."""
    if (days := budget.days) is None:
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return month.timestamp()
    day = int(now // _DAY) - _FIRST_MONDAY
    return float((day - day % days + _FIRST_MONDAY) * _DAY)


def period_end(budget: Budget, now: float) -> float:
    """Return the start of the budget's next period, in seconds since the epoch."""
    if (days := budget.days) is None:
        return period_start(budget, period_start(budget, now) + 32 * _DAY)
    return period_start(budget, now) + days * _DAY


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The spent part of a budget."""

    budget: Budget
    seconds: float = 0.0  # instance-seconds
    instances: int = 0  # active instances, which continue to spend

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent."""
        return self.seconds >= self.budget.seconds

    @property
    def hours(self) -> float:
        """The spent instance-hours."""
        return self.seconds / HOUR

    def next_change(self, now: float) -> float:
        """Return the time at which the budget will be spent or its next period begins, in seconds since the epoch.

        Return infinity if the budget is not spent and no instance is active.
        """
        ends = period_end(self.budget, now)
        if self.is_spent:
            return ends
        return min(ends, now + (self.budget.seconds - self.seconds) / self.instances) if self.instances else inf


class Spending:
    """The spending of each budget that applies to jobs of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._projects = {it.name: it for it in snapshot.policy.projects if it.budget or it.owner_budget}
        self._computed: dict[Account, BudgetUse] = {}
        self._active: dict[Account, list[ActiveJob]] = defaultdict(list)
        for job in snapshot.active if self._projects else ():
            self._active[job.project, None].append(job)
            self._active[job.project, job.owner].append(job)

    def __bool__(self) -> bool:
        """Return whether the policy has a budget."""
        return bool(self._projects)

    @property
    def overspent(self) -> frozenset[str]:
        """The projects whose soft budget is spent, which are served last."""
        return frozenset(name for name in self._projects if self._is_spent((name, None), BudgetKind.SOFT))

    def is_owner_overspent(self, project: str, owner: str) -> bool:
        """Return whether an owner comes last in a project, because the owner's soft budget is spent."""
        return project in self._projects and self._is_spent((project, owner), BudgetKind.SOFT)

    def forbidding_account(self, job: WaitingJob | ActiveJob) -> Account | None:
        """Return the account whose spent hard budget forbids the job to start, or None if there is none."""
        if job.project in self._projects:
            for account in ((job.project, None), (job.project, job.owner)):
                if self._is_spent(account, BudgetKind.HARD):
                    return account
        return None

    def spent(self, account: Account) -> BudgetUse | None:
        """Return the spent part of a project's or an owner's budget, or None if there is no such budget."""
        if account not in self._computed:
            budget = _budget(self._projects.get(account[0]), account)
            if budget is None:
                return None
            self._computed[account] = self._compute(account, budget)
        return self._computed[account]

    def changes(self) -> Iterator[float]:
        """Yield the times at which relevant budgets will be spent or begin a new period, in seconds since the epoch."""
        waiting = [(job.project, owner) for job in self._snapshot.waiting for owner in (None, job.owner)]
        for account in dict.fromkeys((*self._active, *waiting)):
            if spent := self.spent(account):
                yield spent.next_change(self._snapshot.now)

    def _is_spent(self, account: Account, kind: BudgetKind) -> bool:
        spent = self.spent(account)
        return spent is not None and spent.budget.kind is kind and spent.is_spent

    def _compute(self, account: Account, budget: Budget) -> BudgetUse:
        (project, owner), now = account, self._snapshot.now
        began, seconds, jobs = period_start(budget, now), 0.0, self._active.get(account, [])
        if past := self._snapshot.past_use.get(project):
            seconds = past.spent if owner is None else past.spent_by_owner.get(owner, 0.0)
        running = [
            sum(job.slots.values()) * max(0.0, now - max(job.charged_since, began))
            for job in jobs
            if job.charged_since is not None
        ]
        return BudgetUse(budget, fsum((seconds, *running)), sum(sum(job.slots.values()) for job in jobs))


def _budget(project: Project | None, account: Account) -> Budget | None:
    if project is None:
        return None
    return project.budget if account[1] is None else project.owner_budget
