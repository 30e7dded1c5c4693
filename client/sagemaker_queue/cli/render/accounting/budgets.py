"""What is left of budgets, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from sagemaker_queue.cli.render.layout import table

_HEADERS = ("Project", "Owner", "Budget-h", "Used-h", "Left-h", "Period", "Kind", "Until (UTC)")
_EXACT = 6


class _Left(Protocol):
    """What is left of a budget."""

    @property
    def budget(self) -> Any:
        """Return the budget."""

    @property
    def used(self) -> float:
        """Return instance-hours."""

    @property
    def owner(self) -> str | None:
        """Return whose it is, where each owner has one."""

    @property
    def hours(self) -> float:
        """Return what is left, in instance-hours."""


def budgets_page(left: Iterable[_Left], width: int | None, *, complete: bool) -> str:
    """Return a line for each."""
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
        for it in left
    ]
    page = table(_HEADERS, rows, width=width, right=("Budget-h", "Used-h", "Left-h"))
    return page if complete else f"{page}\n\nMore attempts have ended than were read: less is left."


def budgets_json(left: Iterable[_Left]) -> list[dict[str, Any]]:
    """Return the figures of each."""
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
        for it in left
    ]
