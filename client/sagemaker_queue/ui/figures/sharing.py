"""Figures of the projects' quotas, fair shares and use of the pools, now and over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import plotly.graph_objects as go

from api_contract.history import PastAttempt
from api_contract.models import QueueStatus
from sagemaker_queue.ui.figures.style import NOBODY, Theme, figure, paints, plain

_ROW = 34  # pixels
_POINTS = 240  # points on the time axis
_FEW = 12  # up to this number of instances, the axis has a tick for each instance
NO_PROJECTS = "No projects yet. Define projects in a policy: smq policy apply FILE"


def shares_figure(status: QueueStatus, theme: Theme) -> go.Figure:
    """Return a figure of each project's used instances in each pool, and of the quotas and fair shares."""
    rows = [
        (project, pool)
        for project in status.projects
        for pool in [pool.name for pool in status.pools]
        if any(slots.get(pool) for slots in (project.quota, project.used, project.share))
    ]
    painted = paints(project.name for project in status.projects)
    made = figure(theme, height=len(rows) * _ROW + 110, placeholder="" if rows else NO_PROJECTS, barmode="stack")
    names = [plain(f"{project.name} on {pool}") for project, pool in rows]
    within = [min(project.used.get(pool, 0), project.quota.get(pool, 0)) for project, pool in rows]
    beyond = [project.used.get(pool, 0) - kept for (project, pool), kept in zip(rows, within)]
    colours = [painted[project.name].colour for project, _ in rows]
    edge = {"color": theme.text, "width": 1}
    made.add_bar(
        orientation="h", name="Used, within the quota", y=names, x=within, marker={"color": colours, "line": edge}
    )
    made.add_bar(
        orientation="h",
        name="Borrowed",
        y=names,
        x=beyond,
        marker={"color": colours, "line": edge, "pattern": {"shape": "/", "size": 7}},
    )
    for title, symbol, figures in (
        ("Quota", "line-ns", [project.quota.get(pool, 0) for project, pool in rows]),
        ("Fair share", "diamond-open", [project.share.get(pool, 0) for project, pool in rows]),
    ):
        made.add_scatter(
            mode="markers",
            name=title,
            y=names,
            x=figures,
            marker={"symbol": symbol, "size": 13, "color": theme.text, "line": {"width": 3, "color": theme.text}},
        )
    made.update_xaxes(title={"text": "instances"}, rangemode="tozero", tickformat="d", **_whole(within, beyond))
    made.update_layout(legend_traceorder="normal")
    made.update_yaxes(autorange="reversed", fixedrange=True)
    return made


def _whole(within: Sequence[int], beyond: Sequence[int]) -> dict[str, int]:
    """Return axis options with a tick for each instance if no bar has more than ``_FEW`` instances."""
    return {"dtick": 1} if max([0, *(sum(both) for both in zip(within, beyond))]) <= _FEW else {}


def use_figure(
    status: QueueStatus, past: Iterable[PastAttempt], begin: datetime, now: datetime, theme: Theme
) -> go.Figure:
    """Return a figure of the number of instances that each project held, from ``begin`` to ``now``."""
    held: dict[str, list[tuple[datetime, datetime, int]]] = defaultdict(list)
    for one in past:
        if one.launched and one.ended:
            held[one.project or NOBODY].append((one.launched, one.ended, sum(one.slots.values())))
    for job in status.active:
        if job.started:
            held[job.project or NOBODY].append((job.started, now, sum(job.slots.values())))
    painted = paints([*held, *(project.name for project in status.projects)])
    made = figure(theme, height=280, placeholder="" if held else "No instance was used in this period.")
    step = (now - begin) / _POINTS
    times = [begin + step * index for index in range(_POINTS + 1)]
    for project in sorted(held):
        made.add_scatter(
            name=plain(project),
            x=times,
            y=_levels(held[project], times, step),
            stackgroup="all",
            mode="lines",
            line={"shape": "hv", "width": 1, "color": painted[project].colour},
            fillpattern={"shape": painted[project].texture, "fgcolor": theme.paper, "size": 5},
            hovertemplate="%{y:.1f} instances<extra>%{fullData.name}</extra>",
        )
    made.update_xaxes(type="date", title={"text": "UTC"}, range=[begin, now])
    made.update_yaxes(title={"text": "instances"}, rangemode="tozero")
    return made


def _levels(held: Iterable[tuple[datetime, datetime, int]], times: Sequence[datetime], step: timedelta) -> list[float]:
    """Return the average number of held instances in the step after each time."""
    levels = [0.0] * len(times)
    for start, end, count in held:
        first = max(0, int((start - times[0]) / step))
        for index in range(first, len(times)):
            covered = min(end, times[index] + step) - max(start, times[index])
            if covered <= timedelta():
                break
            levels[index] += count * (covered / step)
    return levels
