"""Figure of one job over time: the states of each attempt."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import plotly.graph_objects as go

from api_contract.models import FINISHED, JobDetail
from sagemaker_queue.jobs.formatting import age, amount, moment
from sagemaker_queue.ui.figures.style import Theme, figure, plain

_ROW = 34  # pixels
_STATES: dict[str, tuple[str, str]] = {  # colour, texture
    "pending": ("#999999", "."),
    "preempted": ("#D55E00", "."),
    "starting": ("#56B4E9", "/"),
    "running": ("#0072B2", ""),
    "stopping": ("#E69F00", "x"),
}
_ENDS = {"completed": "circle", "failed": "circle-cross-open", "stopped": "square"}


def timeline_figure(job: JobDetail, now: datetime, theme: Theme) -> go.Figure:
    """Return a figure of the job's states over time, with a row for each attempt."""
    changes = [change for change in job.history if change.at]
    rows = max([1, *(change.attempt or 1 for change in changes)])
    made = figure(
        theme, height=rows * _ROW + 110, placeholder="" if changes else "The history of this job is not known."
    )
    for state, (colour, texture) in _STATES.items():
        bars = []
        for index, change in enumerate(changes):
            later = changes[index + 1].at if index + 1 < len(changes) else now
            if change.state == state and change.at and later:
                bars.append((change, change.at, later))
        if bars:
            made.add_trace(
                go.Bar(
                    orientation="h",
                    name=state,
                    base=[start for _, start, _ in bars],
                    x=[(end - start).total_seconds() * 1000 for _, start, end in bars],
                    y=[change.attempt or 1 for change, _, _ in bars],
                    width=0.7,
                    marker=_marker(colour, texture, theme),
                    hovertext=[
                        f"<b>{state}</b>, {age(start, end)}<br>from {moment(start)} UTC<br>{plain(change.cause)}"
                        for change, start, end in bars
                    ],
                    hoverinfo="text",
                )
            )
    for change in changes:
        if change.state in FINISHED:
            made.add_trace(
                go.Scatter(
                    mode="markers",
                    name=change.state,
                    x=[change.at],
                    y=[change.attempt or 1],
                    marker={"symbol": _ENDS[change.state], "size": 13, "color": theme.text},
                    hovertext=[f"<b>{change.state}</b><br>{moment(change.at)} UTC<br>{plain(change.cause)}"],
                    hoverinfo="text",
                )
            )
    made.update_xaxes(type="date", title={"text": "UTC"})
    made.update_yaxes(range=[rows + 0.6, 0.4], dtick=1, tickprefix="attempt ", showgrid=False, fixedrange=True)
    return made


def timeline_text(job: JobDetail, now: datetime | None = None) -> str:
    """Return a sentence that replaces the figure for screen readers."""
    ran = amount(len(job.attempts), "attempt")
    until = job.state_since if job.finished else (now or datetime.now(timezone.utc))
    return f"{job.job}: {job.state}, {ran} in {age(job.entry_time, until)} since it was submitted."


def _marker(colour: str, texture: str, theme: Theme) -> dict[str, Any]:
    pattern = {"shape": texture, "fillmode": "overlay", "fgcolor": theme.paper, "size": 5} if texture else {}
    return {"color": colour, "line": {"color": theme.paper, "width": 1}, "pattern": pattern}
