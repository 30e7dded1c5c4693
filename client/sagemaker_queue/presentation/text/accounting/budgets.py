"""Used and remaining instance-hours of budgets, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from sagemaker_queue.presentation.tables.usage_tables import budget_notes
from sagemaker_queue.presentation.text.layout import table

_HEADERS = ("Project", "Owner", "Budget-h", "Used-h", "Left-h", "Period", "Kind", "Until (UTC)")
_EXACT = 6  # decimals of an hour


class _RemainingBudget(Protocol):
    """A budget with its used and its remaining instance-hours."""

    @property
    def budget(self) -> Any:
        """The budget itself: project, hours, period, kind, begin and end."""

    @property
    def used(self) -> float:
        """Used instance-hours."""

    @property
    def owner(self) -> str | None:
        """The owner of this budget; None if the whole project shares the budget."""

    @property
    def hours(self) -> float:
        """Instance-hours that are left."""


def budgets_page(budgets: Iterable[_RemainingBudget], width: int | None, *, complete: bool) -> str:
    """Return a table with a line for each budget, and a note if the sums are not ``complete``."""
    rows = [
        [
            it.budget.project,
            it.owner or "",
            f"{it.budget.hours:,.2f}",
            f"{it.used:,.2f}",
            f"{it.hours:,.2f}",
            it.budget.period,
            it.budget.kind,
            f"{it.budget.ends:%Y-%m-%d}",
        ]
        for it in budgets
    ]
    page = table(_HEADERS, rows, width=width, right=("Budget-h", "Used-h", "Left-h"))
    return "\n\n".join([page, *budget_notes(complete=complete)])


def budgets_json(budgets: Iterable[_RemainingBudget]) -> list[dict[str, Any]]:
    """Return the figures of each budget as JSON values."""
    return [
        {
            "project": it.budget.project,
            "owner": it.owner,
            "instance_hours": it.budget.hours,
            "used_hours": round(it.used, _EXACT),
            "left_hours": round(it.hours, _EXACT),
            "period": it.budget.period,
            "kind": it.budget.kind,
            "begins": f"{it.budget.begins:%Y-%m-%dT%H:%M:%SZ}",
            "ends": f"{it.budget.ends:%Y-%m-%dT%H:%M:%SZ}",
        }
        for it in budgets
    ]
