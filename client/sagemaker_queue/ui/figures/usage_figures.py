"""Figure of usage by project, owner or another key."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from sagemaker_queue.ui.figures.style import Theme, figure, plain
from sagemaker_queue.workflows.usage.causes import TITLES, Cause

_ROW = 30  # pixels
# The figure shows only this many keys: those with the largest usage, or the latest days. The table has all keys.
_MOST = 40
NOTHING = "No attempt has ended in this period."


def usage_figure(hours: Mapping[str, Mapping[str, float]], theme: Theme, *, by_day: bool = False) -> go.Figure:
    """Return a figure of each key's instance hours: within the quota, borrowed, and lost by preemptions.

    The caller sorts ``hours``: by day with ``by_day``, otherwise with the largest usage first.
    """
    keys = list(hours.items())
    shown = dict(keys[-_MOST:] if by_day else keys[:_MOST])
    made = figure(theme, height=len(shown) * _ROW + 120, placeholder="" if shown else NOTHING, barmode="stack")
    names = [plain(name) for name in shown]
    edge = {"color": theme.text, "width": 1}
    for title, field, colour, pattern in (
        ("Within the quota", "in_quota_hours", "#0072B2", {}),
        ("Borrowed", "borrowed_hours", "#E69F00", {"shape": "/", "size": 7}),
    ):
        made.add_bar(
            orientation="h",
            name=title,
            y=names,
            x=[each[field] for each in shown.values()],
            marker={"color": colour, "line": edge, "pattern": pattern},
            hovertemplate="%{x:.2f} instance hours<extra>%{y}</extra>",
        )
    made.add_scatter(
        mode="markers",
        name="Included: lost by preemptions",
        y=names,
        x=[each["lost_hours"] for each in shown.values()],
        marker={"symbol": "x", "size": 10, "color": theme.text, "line": {"width": 1, "color": theme.paper}},
        hovertemplate="%{x:.2f} instance hours lost<extra>%{y}</extra>",
    )
    made.update_xaxes(title={"text": "instance hours"}, rangemode="tozero")
    made.update_yaxes(autorange="reversed", type="category", fixedrange=True)
    made.update_layout(legend_traceorder="normal")
    return made


# Colours of Okabe and Ito; patterns distinguish the causes without colours.
_CAUSES: Mapping[Cause, tuple[str, dict[str, object]]] = {
    Cause.USEFUL: ("#0072B2", {}),
    Cause.PROVISIONING: ("#56B4E9", {"shape": ".", "size": 7}),
    Cause.PREEMPTION: ("#E69F00", {"shape": "/", "size": 7}),
    Cause.FAILURE: ("#D55E00", {"shape": "x", "size": 7}),
    Cause.HUNG: ("#CC79A7", {"shape": "\\", "size": 7}),
    Cause.IDLE: ("#999999", {"shape": "-", "size": 7}),
}


def causes_figure(projects: Mapping[str, Mapping[Cause, float]], theme: Theme) -> go.Figure:
    """Return a figure of each project's instance hours by cause. The projects are in descending order of their sum."""
    shown = dict(list(projects.items())[:_MOST])
    placeholder = "" if shown else NOTHING
    made = figure(theme, height=len(shown) * _ROW + 120, placeholder=placeholder, barmode="stack")
    names = [plain(name) for name in shown]
    known = {cause for hours in shown.values() for cause in hours}
    for cause, (colour, pattern) in _CAUSES.items():
        if cause in known:
            made.add_bar(
                orientation="h",
                name=TITLES[cause].capitalize(),
                y=names,
                x=[hours.get(cause, 0.0) for hours in shown.values()],
                marker={"color": colour, "line": {"color": theme.text, "width": 1}, "pattern": pattern},
                hovertemplate=f"%{{x:.2f}} instance hours {TITLES[cause]}<extra>%{{y}}</extra>",
            )
    made.update_xaxes(title={"text": "instance hours"}, rangemode="tozero")
    made.update_yaxes(autorange="reversed", type="category", fixedrange=True)
    made.update_layout(legend_traceorder="normal")
    return made
