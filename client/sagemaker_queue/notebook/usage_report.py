"""Reports of usage and of failures, which notebooks show as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import did_you_mean
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.frames import frame_of
from sagemaker_queue.presentation.tables.failure_tables import failure_rows
from sagemaker_queue.workflows.usage.budgets import RemainingBudget, budgets_of, remaining_budgets
from sagemaker_queue.workflows.usage.cause_sums import GROUPINGS, CauseUsage, ProjectCauses, usage_sums
from sagemaker_queue.workflows.usage.failure_sums import FAILURE_KEYS, FailureSum, sum_failures
from sagemaker_queue.workflows.usage.sums import PriceList, Usage

if TYPE_CHECKING:
    import pandas as pd

    from api_contract.history import PastAttempt
    from sagemaker_queue.queue.client import QueueClient


@dataclass(frozen=True)
class UsageReport:
    """The usage by project, owner or another key. docs/reference/history.md defines each figure."""

    by: str
    """The key of the sums, such as ``project``."""
    parts: Mapping[str, Usage] | Mapping[str, CauseUsage]
    """The usage by key, the largest first; days are sorted by date, and causes have a fixed order. ``hours()`` returns
    the figures."""
    total: Usage | CauseUsage
    """The total usage."""
    budgets: tuple[RemainingBudget, ...]
    """The remaining budgets of the policy."""
    priced: bool
    """Whether the policy has prices; without prices, cost is 0."""
    projects: Mapping[str, ProjectCauses] = field(default_factory=dict)
    """Filled only for the key ``cause``: the instance time of each project by cause. ``useful_percent`` is the
    percentage of this time that was useful."""
    budgets_complete: bool = True
    """False if not all ended attempts were read: less of the budgets remains than ``budgets`` shows."""

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each key. Raises ImportError if pandas is not installed."""
        rows = [{self.by: key, **used.hours()} for key, used in self.parts.items()]
        return frame_of([dict(row) for row in rows], [self.by, *self.total.hours()])

    def _repr_html_(self) -> str:
        return html.usage(
            self.by,
            self.parts,
            self.total,
            self.budgets,
            self.projects,
            priced=self.priced,
            complete=self.budgets_complete,
        )


@dataclass(frozen=True)
class FailureReport:
    """The failed attempts by class or another key."""

    by: str
    """The key of the sums, such as ``class``."""
    parts: Mapping[str, FailureSum]
    """The failed attempts by key, the most failures first."""
    total: FailureSum
    """All failed attempts."""

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each key. Raises ImportError if pandas is not installed."""
        rows = [{self.by: key, **part.to_json()} for key, part in self.parts.items()]
        return frame_of(rows, [self.by, *self.total.to_json()])

    def _repr_html_(self) -> str:
        return html.table(*failure_rows(self.by, self.parts, self.total))


def failure_report(by: str, attempts: Iterable[PastAttempt]) -> FailureReport:
    """Return the sums of failed attempts. Raises InvalidOption for an unknown ``by``."""
    if by not in FAILURE_KEYS:
        known = ", ".join(FAILURE_KEYS)
        raise InvalidOption(f"Failures are not summed up by {by!r}, but by {known}.{did_you_mean(by, FAILURE_KEYS)}")
    return FailureReport(by, *sum_failures(attempts, by))


def usage_report(
    queue: QueueClient, by: str, attempts: Iterable[PastAttempt], projects: tuple[str, ...]
) -> UsageReport:
    """Return the sums of attempts and the remaining budgets. Raises InvalidOption for an unknown ``by``."""
    if by not in GROUPINGS:
        known = ", ".join(GROUPINGS)
        raise InvalidOption(f"Usage is not summed up by {by!r}, but by {known}.{did_you_mean(by, GROUPINGS)}")
    policy, now = queue.policy().policy, datetime.now(timezone.utc)
    prices = PriceList(policy.get("prices") or {})
    sums = usage_sums(attempts, by, prices)
    budgets = remaining_budgets(queue, budgets_of(policy, projects, now), now)
    return UsageReport(
        by, sums.parts, sums.total, budgets.remaining, bool(prices), sums.projects, budgets_complete=budgets.complete
    )
