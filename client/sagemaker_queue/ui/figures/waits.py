"""Figure of the projects' mean waits, under the policy in force and under tried policies."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from api_contract.preview import PreviewAnswer
from sagemaker_queue.jobs.formatting import duration
from sagemaker_queue.ui.figures.style import Theme, figure, plain

_ROW = 52  # pixels
_LOOKS = {"now": ("#999999", ""), "A": ("#0072B2", ""), "B": ("#E69F00", "/")}


def waits_figure(answers: Mapping[str, PreviewAnswer], theme: Theme) -> go.Figure:
    """Return a figure of each project's mean wait from now on, under the policy in force and the tried policies."""
    rows: dict[str, dict[str, float | None]] = {}
    for name, answer in answers.items():
        for project in answer.projects:
            waits = rows.setdefault(project.project, {})
            if project.wait_now is not None:
                waits["now"] = project.wait_now
            waits[name] = project.wait_then
    known = {project: waits for project, waits in rows.items() if any(wait is not None for wait in waits.values())}
    placeholder = "" if known else "No expected wait is known yet." if answers else ""
    made = figure(theme, height=len(known) * _ROW + 110, placeholder=placeholder, barmode="group")
    for name, (colour, texture) in _LOOKS.items():
        if name != "now" and name not in answers:
            continue
        seconds = [known[project].get(name) for project in known]
        made.add_bar(
            orientation="h",
            name="now" if name == "now" else f"under {name}",
            y=[plain(project) for project in known],
            x=[None if wait is None else wait / 3600 for wait in seconds],
            text=["" if wait is None else duration(wait) for wait in seconds],
            marker={
                "color": colour,
                "line": {"color": theme.text, "width": 1},
                "pattern": {"shape": texture, "size": 7},
            },
            hovertemplate="%{y}: %{text}<extra>%{fullData.name}</extra>",
        )
    made.update_xaxes(title={"text": "mean wait from now on, hours"}, rangemode="tozero")
    made.update_yaxes(autorange="reversed", type="category", fixedrange=True)
    made.update_layout(legend_traceorder="normal")
    return made
