"""Sum the past use of projects and owners: with decay (`usage_half_life`), and in the period of a budget.

Use that is one half-life `H` old counts half. So at time `t`, an attempt from `b` to `e` counts for the integral of
`2^-((t - x) / H)` over `x` from `b` to `e`. The decayed totals are exact for any order in which attempts are entered. A
total can be read only for times that are not before the latest entered end.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, expm1, inf, log

from job_queue.scheduler.documents.policy_schema import Budget, Policy, Project
from job_queue.scheduler.model import PastUse, Slots
from job_queue.scheduler.sharing.spending import period_start

MOST_OWNERS = 10_000  # if a project has more than twice as many owners, only this many with the most use are kept
LN2 = log(2)


def decay(seconds: float, half_life: float) -> float:
    """Return the factor by which use counts when it is this many seconds old."""
    return exp(-LN2 * max(0.0, seconds) / half_life)


def decayed(duration: float, half_life: float) -> float:
    """Return the decayed use, in seconds, of an instance that was used for the last `duration` seconds."""
    return -expm1(-LN2 * max(0.0, duration) / half_life) * half_life / LN2


def depends_on_past_use(policy: Policy) -> bool:
    """Return whether plans under this policy depend on past use."""
    return policy.settings.usage_half_life is not None or any(it.budget or it.owner_budget for it in policy.projects)


def oldest_counted_time(policy: Policy, now: float, half_lives: float = 10) -> float:
    """Return the time before which ended attempts no longer count, in seconds since the epoch.

    :param half_lives: age in half-lives at which use no longer counts; after 10 half-lives, a thousandth is left.
    """
    half_life = policy.settings.usage_half_life
    times = [now if half_life is None else now - half_lives * half_life]
    for project in policy.projects:
        times += [period_start(budget, now) for budget in (project.budget, project.owner_budget) if budget]
    return min(times)


@dataclass(slots=True)
class _DecayedUse:
    """Decayed instance-seconds at a point in time."""

    value: float = 0.0
    at: float = -inf

    def enter(self, instances: int, began: float, ended: float, half_life: float) -> None:
        until = max(self.at, ended)
        used = instances * decayed(ended - began, half_life) * decay(until - ended, half_life)
        self.value, self.at = self.as_of(until, half_life) + used, until

    def as_of(self, now: float, half_life: float) -> float:
        return self.value * decay(now - self.at, half_life) if self.value else 0.0


@dataclass(slots=True)
class _PeriodUse:
    """Instance-seconds in one period of a budget."""

    budget: Budget
    began: float = -inf  # start of the period
    by_owner: dict[str, float] = field(default_factory=dict)

    def enter(self, owner: str, instances: int, began: float, ended: float) -> None:
        self._begin_period(ended)
        in_period = max(0.0, ended - max(began, self.began))
        if in_period:
            self.by_owner[owner] = self.by_owner.get(owner, 0.0) + instances * in_period

    def as_of(self, now: float) -> Mapping[str, float]:
        return self.by_owner if period_start(self.budget, now) <= self.began else {}

    def _begin_period(self, time: float) -> None:
        if (began := period_start(self.budget, time)) > self.began:
            self.began, self.by_owner = began, {}


class _ProjectUse:
    """Use of one project."""

    def __init__(self, project: Project, half_life: float | None, known: Container[str]) -> None:
        self._half_life = half_life
        self._known = known
        self._pools: dict[str, _DecayedUse] = {}
        self._owners: dict[str, _DecayedUse] = {}
        self._spent = _PeriodUse(project.budget) if project.budget else None
        self._spent_by_owner = _PeriodUse(project.owner_budget) if project.owner_budget else None

    def load(self, past: PastUse, now: float) -> None:
        if self._half_life is not None:
            self._pools = {pool: _DecayedUse(value, now) for pool, value in past.lately.items()}
            self._owners = {owner: _DecayedUse(value, now) for owner, value in past.lately_by_owner.items()}
        if self._spent:
            self._spent.began, self._spent.by_owner = period_start(self._spent.budget, now), {"": past.spent}
        if self._spent_by_owner:
            owners = self._spent_by_owner
            owners.began, owners.by_owner = period_start(owners.budget, now), dict(past.spent_by_owner)

    def enter(self, owner: str, slots: Slots, began: float, ended: float) -> None:
        total = sum(slots.values())
        if self._half_life is not None:
            for pool, count in slots.items():
                if pool in self._known:
                    self._pools.setdefault(pool, _DecayedUse()).enter(count, began, ended, self._half_life)
            self._owners.setdefault(owner, _DecayedUse()).enter(total, began, ended, self._half_life)
            if len(self._owners) > 2 * MOST_OWNERS:
                half_life, owners = self._half_life, self._owners
                now = max(it.at for it in owners.values())
                most = sorted(owners, key=lambda it: (-owners[it].as_of(now, half_life), it))[:MOST_OWNERS]
                self._owners = {it: owners[it] for it in most}
        if self._spent:
            self._spent.enter("", total, began, ended)
        if self._spent_by_owner:
            self._spent_by_owner.enter(owner, total, began, ended)
            spent = self._spent_by_owner.by_owner
            if len(spent) > 2 * MOST_OWNERS:
                most = sorted(spent, key=lambda it: (-spent[it], it))[:MOST_OWNERS]
                self._spent_by_owner.by_owner = {it: spent[it] for it in most}

    def past_use(self, now: float) -> PastUse:
        lately: dict[str, float] = {}
        owners: dict[str, float] = {}
        if self._half_life is not None:
            lately = {pool: it.as_of(now, self._half_life) for pool, it in sorted(self._pools.items())}
            owners = {owner: it.as_of(now, self._half_life) for owner, it in sorted(self._owners.items())}
        spent = self._spent.as_of(now).get("", 0.0) if self._spent else 0.0
        of_owners = dict(sorted(self._spent_by_owner.as_of(now).items())) if self._spent_by_owner else {}
        return PastUse(lately, owners, spent, of_owners)


class UseLedger:
    """Use by the finished attempts of a policy's projects. Times are seconds since the epoch.

    For each project, the ledger stores one number per pool and one per owner, for any number of attempts. Projects
    that are not in the policy are ignored. Pools that are not in the policy count only for owners and budgets.

    :param past: the past use to begin with, as of `now`.
    """

    def __init__(self, policy: Policy, past: Mapping[str, PastUse] | None = None, now: float = 0.0) -> None:
        half_life = policy.settings.usage_half_life
        pools = {pool.name for pool in policy.pools}
        self._accounts = {
            project.name: _ProjectUse(project, half_life, pools)
            for project in policy.projects
            if half_life is not None or project.budget or project.owner_budget
        }
        for name, use in (past or {}).items():
            if name in self._accounts:
                self._accounts[name].load(use, now)

    def enter(self, project: str, owner: str, slots: Slots, began: float, ended: float) -> None:
        """Add the use of these slots by an attempt."""
        if ended > began and project in self._accounts:
            self._accounts[project].enter(owner, slots, began, ended)

    def past_use(self, now: float) -> dict[str, PastUse]:
        """Return the past use for a snapshot at `now`, which must not be before the latest entered end."""
        return {name: account.past_use(now) for name, account in self._accounts.items()}


def past_use_after(
    policy: Policy, past: Mapping[str, PastUse], now: float, ended: Iterable["Attempt"]
) -> Mapping[str, PastUse]:
    """Return the past use as if these active attempts ended at `now`."""
    attempts = list(ended)
    if not attempts or not depends_on_past_use(policy):
        return past
    ledger = UseLedger(policy, past, now)
    for project, owner, slots, began in attempts:
        ledger.enter(project, owner, slots, began, now)
    return ledger.past_use(now)


Attempt = tuple[str, str, Slots, float]
"""Project, owner, slots, and start in seconds since the epoch."""
