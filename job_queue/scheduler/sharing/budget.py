"""Budgets of instance-hours in a period, and what a project has used: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

HOUR = 3600
DAY = 86400
MONDAY = 4  # 1970-01-05 was one: so many days after the epoch

NAMED_PERIODS: Mapping[str, int | None] = {"day": 1, "week": 7, "month": None}
"""Days; None: a calendar month."""


class BudgetKind(StrEnum):
    """What becomes of jobs that wait once a budget is spent. Jobs that run go on either way."""

    HARD = "hard"  # none starts before the next period
    SOFT = "soft"  # they come last, and get what nobody else wants


@dataclass(frozen=True, slots=True)
class Budget:
    """Instance-hours in a period. Periods are whole days in UTC; those of days are counted from a Monday."""

    instance_hours: float
    days: int | None = None  # of a period; None: a calendar month
    kind: BudgetKind = BudgetKind.HARD

    @property
    def seconds(self) -> float:
        """Instance-seconds."""
        return self.instance_hours * HOUR

    @property
    def period(self) -> str:
        """`month`, `week`, `day`, or `14 days`."""
        named = {days: name for name, days in NAMED_PERIODS.items()}
        return named.get(self.days, f"{self.days} days")

    def begins(self, now: float) -> float:
        """When the present period began, in seconds since the epoch."""
        if self.days is None:
            month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            return month.timestamp()
        day = int(now // DAY) - MONDAY
        return float((day - day % self.days + MONDAY) * DAY)

    def ends(self, now: float) -> float:
        """When the next one begins."""
        if self.days is None:
            return self.begins(self.begins(now) + 32 * DAY)
        return self.begins(now) + self.days * DAY


@dataclass(frozen=True, slots=True)
class PastUse:
    """What attempts of a project have used that have ended, in instance-seconds."""

    lately: Mapping[str, float] = field(default_factory=dict)  # by pool; halves with each `usage_half_life` gone by
    lately_by_owner: Mapping[str, float] = field(default_factory=dict)  # the same of each owner, in all pools
    spent: float = 0.0  # in the present period of its budget
    spent_by_owner: Mapping[str, float] = field(default_factory=dict)  # in that of its budget for each owner
