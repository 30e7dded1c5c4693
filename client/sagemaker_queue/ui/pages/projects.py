"""The page Projects: quotas, fair shares, use, and borrowed instances."""

from __future__ import annotations

from datetime import timedelta

from nicegui import ui

from sagemaker_queue.ui.elements import figure_plot, grid, heading
from sagemaker_queue.ui.figures.sharing import shares_figure, use_figure
from sagemaker_queue.ui.loans import loans
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import HOURS, View


def projects_page(tab: Tab) -> None:
    """Add the elements of the page to a tab; every new view of the tab updates them."""
    heading("Projects")
    shares = figure_plot("Used instances of each project and pool, with quota and fair share")
    heading("Borrowed instances", 2)
    borrowed = ui.column().classes("gap-1").props("role=status")
    heading("Use over the last 24 hours", 2)
    use = figure_plot("Instances that each project had over the last 24 hours")
    table = grid(
        [
            {"field": "project", "headerName": "Project"},
            {"field": "department", "headerName": "Department"},
            {"field": "pool", "headerName": "Pool"},
            {"field": "quota", "headerName": "Quota"},
            {"field": "share", "headerName": "Fair share"},
            {"field": "used", "headerName": "Used"},
            {"field": "limit", "headerName": "Limit"},
            {"field": "waiting", "headerName": "Jobs waiting"},
        ],
        "No projects yet.",
        height="auto",
    )

    def show(view: View) -> None:
        shares.update_figure(shares_figure(view.status, tab.theme))
        begin = view.at - timedelta(hours=HOURS)
        use.update_figure(use_figure(view.status, view.past, begin, view.at, tab.theme))
        borrowed.clear()
        with borrowed:
            sentences = [loan.sentence for loan in loans(view.status)]
            for sentence in sentences or ["No project uses more than its quota."]:
                ui.label(sentence)
        table.rows(list(_rows(view)))

    tab.on_update(show)


def _rows(view: View) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for project in view.status.projects:
        waiting = f"{project.waiting}{'+' if project.more_waiting else ''}"
        for index, pool in enumerate(pool.name for pool in view.status.pools):
            rows.append(
                {
                    "id": f"{project.name} {pool}",
                    "project": project.name,
                    "department": project.department,
                    "pool": pool,
                    "quota": project.quota.get(pool, 0),
                    "share": project.share.get(pool, 0),
                    "used": project.used.get(pool, 0),
                    "limit": project.limit.get(pool),
                    "waiting": waiting if index == 0 else None,
                }
            )
    return rows
