"""Figure of the fleet over time: past, running and expected attempts on the instances of each pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import plotly.graph_objects as go

from api_contract.history import PastAttempt
from api_contract.models import PoolStatus, QueueStatus
from sagemaker_queue.jobs.formatting import age, instances, moment, short_owner
from sagemaker_queue.ui.figures.lanes import EXPECTED, EXTERNAL, GOES_ON, RAN, RUNS, Span, adjacent_lanes, spans
from sagemaker_queue.ui.figures.style import NOBODY, Paint, Theme, figure, paints, plain

_LANE = 22  # pixels
_NAME = 0.04  # minimum width of a bar that shows its name, as a fraction of the figure's width
_MEMBERS_SHOWN = 8
_GAP = 0.6  # lanes between two pools
_EXTERNAL = Paint("#999999")
_KINDS = {
    RUNS: "running",
    GOES_ON: "expected to continue",
    EXPECTED: "expected to start",
    EXTERNAL: "started outside the queue",
}
_MARKS = {
    "preempted": ("x", "Preempted"),
    "requeued": ("x-open", "Requeued"),
    "drained": ("triangle-down-open", "Drained"),
    "hung": ("x-open", "Stopped, as it hung"),
    "failed": ("circle-cross-open", "Failed"),
}
NOTHING = "No instances: the policy has no pools yet."


def fleet_figure(
    status: QueueStatus, past: Sequence[PastAttempt], now: datetime, theme: Theme, *, hours: float = 6
) -> go.Figure:
    """Return a figure of the attempts on all pools' instances, from ``hours`` ago to ``hours`` from now."""
    begin, until = now - timedelta(hours=hours), now + timedelta(hours=hours)
    found = spans(status, past, begin, now, until)
    rows = _Rows(status.pools, found)
    made = figure(theme, height=int(rows.bottom * _LANE) + 110, placeholder="" if rows.pools else NOTHING)
    for pool in status.pools:
        if pool.training_plan and pool.opens and pool.closes:
            _add_reservation(made, pool, rows, max(pool.opens, begin), min(pool.closes, until), theme)
    shows_name = _names_fit(found, (until - begin) * _NAME)
    groups = _span_groups(found, [project.name for project in status.projects])
    for (name, paint, kind), group in groups.items():
        made.add_trace(
            _bars(name, paint, kind, group, rows, theme, shows_name, in_legend=_is_first_kind(name, kind, groups))
        )
    for outcome, (symbol, title) in _MARKS.items():
        ended = [span for span in found if span.outcome == outcome and begin < span.end < until]
        if ended:
            made.add_trace(_marks(ended, rows, symbol, title, theme))
    made.add_vline(x=now, line={"color": theme.text, "width": 1, "dash": "dot"})
    made.add_annotation(x=now, y=1, yref="paper", text="now", showarrow=False, xanchor="left", yanchor="top")
    made.update_xaxes(type="date", range=[begin, until], title={"text": "UTC"})
    made.update_yaxes(
        range=[rows.bottom, -_GAP],
        tickmode="array",
        tickvals=list(rows.ticks),
        ticktext=[plain(text) for text in rows.ticks.values()],
        showgrid=False,
        fixedrange=True,
    )
    return made


class _Rows:
    """The vertical positions of each pool's lanes, from the top."""

    def __init__(self, pools: Sequence[PoolStatus], found: Iterable[Span]) -> None:
        lanes = {pool.name: max(pool.capacity, 1) for pool in pools}
        for span in found:
            lanes[span.pool] = max(lanes.get(span.pool, 0), *(lane + 1 for lane in span.lanes), 1)
        self.pools = lanes
        self._tops: dict[str, float] = {}
        self.ticks: dict[float, str] = {}
        self.bottom = 0.0
        for pool, count in lanes.items():
            self._tops[pool] = self.bottom
            # A pool has one label: no row stands for a certain machine, so rows have no numbers.
            self.ticks[self.bottom + count / 2] = f"{pool}: {count}" if count > 1 else pool
            self.bottom += count + _GAP

    def centre(self, pool: str, first: int, count: int) -> float:
        """Return the vertical centre of ``count`` lanes from ``first`` on."""
        return self._tops[pool] + first + count / 2


def _span_groups(found: Sequence[Span], projects: Iterable[str]) -> dict[tuple[str, Paint, str], list[Span]]:
    """Group the spans by name, paint and kind; the bars of a group look alike."""
    all_paints = paints(projects, gone=(span.project for span in found if not span.is_external))
    groups: dict[tuple[str, Paint, str], list[Span]] = {}
    for span in found:
        if span.is_external:
            name, paint = "Outside the queue", _EXTERNAL
        else:
            name = span.project or NOBODY
            paint = all_paints[name]
        groups.setdefault((name, paint, span.kind), []).append(span)
    return groups


def _names_fit(found: Sequence[Span], least: timedelta) -> Callable[[Span], bool]:
    """Return a function that returns whether a span shows its name.

    A running job has a past and an expected part. The past part shows the name if this part is at least ``least`` long.
    Otherwise the expected part shows the name, if that part is long enough. An expected start always shows the name.
    """
    named_in_past = {span.job for span in found if span.kind == RUNS and span.end - span.start >= least}

    def named(span: Span) -> bool:
        if span.kind == GOES_ON:
            return span.job not in named_in_past and span.end - span.start >= least
        return span.kind == EXPECTED or span.end - span.start >= least

    return named


def _is_first_kind(name: str, kind: str, groups: Mapping[tuple[str, Paint, str], object]) -> bool:
    return kind == next(each for other, _, each in groups if other == name)


def _bars(
    name: str,
    paint: Paint,
    kind: str,
    group: Iterable[Span],
    rows: _Rows,
    theme: Theme,
    shows_name: Callable[[Span], bool],
    *,
    in_legend: bool,
) -> go.Bar:
    bars = [(span, first, count) for span in group for first, count in adjacent_lanes(span.lanes)]
    expected = kind in (GOES_ON, EXPECTED)
    return go.Bar(
        orientation="h",
        name=plain(name),
        legendgroup=plain(name),
        showlegend=in_legend,
        base=[span.start for span, _, _ in bars],
        x=[(span.end - span.start).total_seconds() * 1000 for span, _, _ in bars],
        y=[rows.centre(span.pool, first, count) for span, first, count in bars],
        width=[count - 0.12 for _, _, count in bars],
        marker={**_marker(paint, theme, expected=expected), "opacity": 0.55 if kind == RAN else 1.0},
        text=[plain(span.label) if shows_name(span) else "" for span, _, _ in bars],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="none",
        cliponaxis=True,
        textfont={"color": paint.letters if kind in (RUNS, EXTERNAL) else theme.text, "size": 11},
        customdata=[["" if span.is_external else span.job] for span, _, _ in bars],
        hovertext=[_hover(span) for span, _, _ in bars],
        hoverinfo="text",
    )


def _marker(paint: Paint, theme: Theme, *, expected: bool) -> dict[str, Any]:
    if expected:
        return {"color": "rgba(0,0,0,0)", "line": {"color": paint.colour, "width": 2}}
    pattern = (
        {"shape": paint.texture, "fillmode": "overlay", "fgcolor": theme.paper, "size": 5} if paint.texture else {}
    )
    return {"color": paint.colour, "line": {"color": theme.paper, "width": 1}, "pattern": pattern}


def _marks(ended: Sequence[Span], rows: _Rows, symbol: str, title: str, theme: Theme) -> go.Scatter:
    return go.Scatter(
        mode="markers",
        name=title,
        x=[span.end for span in ended],
        y=[rows.centre(span.pool, span.lanes[0], len(span.lanes)) for span in ended],
        marker={"symbol": symbol, "size": 11, "color": theme.text, "line": {"color": theme.paper, "width": 1}},
        customdata=[[span.job] for span in ended],
        hovertext=[_hover(span) for span in ended],
        hoverinfo="text",
    )


def _add_reservation(
    made: go.Figure, pool: PoolStatus, rows: _Rows, opens: datetime, closes: datetime, theme: Theme
) -> None:
    if closes <= opens:
        return
    count = rows.pools[pool.name]
    made.add_trace(
        go.Bar(
            orientation="h",
            name="Reserved (training plan)",
            legendgroup="reserved",
            showlegend=not any(trace.legendgroup == "reserved" for trace in made.data),
            base=[opens],
            x=[(closes - opens).total_seconds() * 1000],
            y=[rows.centre(pool.name, 0, count)],
            width=[count],
            marker={
                "color": theme.paper,
                "line": {"color": theme.text, "width": 1},
                "pattern": {"shape": "/", "fgcolor": theme.faint, "bgcolor": theme.paper, "size": 8, "solidity": 0.4},
            },
            hovertext=[
                f"Reserved: training plan {plain(pool.training_plan)}"
                f"<br>{moment(pool.opens)} to {moment(pool.closes)} UTC"
            ],
            hoverinfo="text",
        )
    )


def _names(members: Sequence[str]) -> str:
    """Return the names of the first jobs that share an instance, and the number of the other jobs."""
    more = f" and {len(members) - _MEMBERS_SHOWN} more" if len(members) > _MEMBERS_SHOWN else ""
    return f"{', '.join(members[:_MEMBERS_SHOWN])}{more}" if members else "no job yet"


def _hover(span: Span) -> str:
    how = span.outcome or _KINDS[span.kind]
    room = f" for {plain(span.made_room_for)}" if span.made_room_for else ""
    took = f" ({age(span.start, span.end)})" if span.end_is_known else ""
    lines = [
        f"<b>{plain(span.job)}</b>",
        "" if span.members is None else f"shared by {plain(_names(span.members))}",
        f"{how}{room}, {instances({span.pool: span.count})}",
        ", ".join(plain(part) for part in (span.project, short_owner(span.owner)) if part),
        f"{moment(span.start)} to {moment(span.end) if span.end_is_known else 'an unknown time'}{took}",
    ]
    return "<br>".join(line for line in lines if line)
