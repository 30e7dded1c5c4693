"""Budgets of instance-hours in a period, and the past use of a project: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

HOUR = 3600
DAY = 86400
FIRST_MONDAY = 4  # days from the epoch to the first Monday, 1970-01-05

NAMED_PERIODS: Mapping[str, int | None] = {"day": 1, "week": 7, "month": None}
"""Length in days; None: a calendar month."""


class BudgetKind(StrEnum):
    """The effect of a spent budget on waiting jobs. Running jobs continue in both cases."""

    HARD = "hard"  # no job starts before the next period
    SOFT = "soft"  # its jobs come last, and get slots that no other job needs


@dataclass(frozen=True, slots=True)
class Budget:
    """Instance-hours in a period. Periods begin and end at midnight UTC; periods of days are counted from a Monday."""

    instance_hours: float
    days: int | None = None  # length of a period; None: a calendar month
    kind: BudgetKind = BudgetKind.HARD

    @property
    def seconds(self) -> float:
        """The budget in instance-seconds."""
        return self.instance_hours * HOUR

    @property
    def period(self) -> str:
        """The period in words: `month`, `week`, `day`, or `14 days`."""
        named = {days: name for name, days in NAMED_PERIODS.items()}
        return named.get(self.days, f"{self.days} days")

    def begins(self, now: float) -> float:
        """Return the start of the period that contains `now`, in seconds since the epoch."""
        if self.days is None:
            month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            return month.timestamp()
        day = int(now // DAY) - FIRST_MONDAY
        return float((day - day % self.days + FIRST_MONDAY) * DAY)

    def ends(self, now: float) -> float:
        """Return the start of the next period, in seconds since the epoch."""
        if self.days is None:
            return self.begins(self.begins(now) + 32 * DAY)
        return self.begins(now) + self.days * DAY


@dataclass(frozen=True, slots=True)
class PastUse:
    """Use by a project's finished attempts, in instance-seconds."""

    lately: Mapping[str, float] = field(default_factory=dict)  # by pool; halves with each `usage_half_life` that passes
    lately_by_owner: Mapping[str, float] = field(default_factory=dict)  # by owner, of all pools; halves likewise
    spent: float = 0.0  # in the present period of the project's budget
    # by owner, in the present period of the owner budget
    spent_by_owner: Mapping[str, float] = field(default_factory=dict)
