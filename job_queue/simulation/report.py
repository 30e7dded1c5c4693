"""Format the outcomes of a simulation: as text, as JSON, and as an HTML page."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from tabulate import tabulate

from job_queue.scheduler import Policy
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.metrics import Metrics, gpus_at_work, metrics_by, metrics_of, size_class
from job_queue.simulation.options import SimulationOptions

HEADERS = (
    "", "jobs", "wait", "median", "95 %", "longest", "slowdown", "worst", "preempted", "most", "lost work", "restarts",
)  # fmt: skip
LEAVE_OUT = ("worst", "most", "median", "restarts", "slowdown", "longest", "lost work", "preempted", "95 %")
LEAST_NAME = 12  # names are not cut to fewer characters
LEAST_WIDTH = 40  # columns; text is wrapped at this width if the terminal is narrower
LEGEND = (
    (("wait", "median", "95 %", "longest"), "wait: from submission to end, without work and the first provisioning."),
    (("slowdown", "worst"), "slowdown: the whole time of a job, divided by its time of work."),
    (("preempted", "most"), "preempted: preemptions of a job, on average."),
    (("lost work", "restarts"), "lost work and restarts: parts of the useful instance-seconds."),
)


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The histories of all jobs under one policy."""

    label: str
    policy: Policy
    runs: Sequence[JobRun]
    fairness: Mapping[str, float]  # rho by project; empty if there is only one project
    gpus: int | None = None  # GPUs of the fleet; None: no limit

    def overall(self) -> Metrics:
        """Return the metrics of all jobs."""
        return metrics_of(self.runs)

    def classes(self) -> dict[str, dict[str, Metrics]]:
        """Return metrics by priority (highest first), by size, and by project if there are several."""
        priorities = metrics_by(lambda run: run.job.priority, self.runs)
        found = {
            "priority": {str(priority): priorities[priority] for priority in sorted(priorities, reverse=True)},
            "size": dict(sorted(metrics_by(size_class, self.runs).items())),
        }
        if len(self.policy.projects) > 1:
            found["project"] = dict(sorted(metrics_by(lambda run: run.job.project, self.runs).items()))
        return found


def as_json(options: SimulationOptions, outcomes: Sequence[PolicyOutcome]) -> dict[str, Any]:
    """Return the outcomes as plain data. Durations are seconds, and ratios are numbers instead of percentages."""
    return {
        "trace": str(options.trace),
        "seed": options.seed,
        "priorities": list(options.priorities or ()) or "trace",
        "runtimes": options.runtimes,
        "policies": [
            {
                "policy": outcome.label,
                "capacity": {pool.name: pool.capacity for pool in outcome.policy.pools},
                "overall": asdict(outcome.overall()),
                "by": {
                    kind: {name: asdict(metrics) for name, metrics in classes.items()}
                    for kind, classes in outcome.classes().items()
                },
                "rho": dict(outcome.fairness),
                "gpus": outcome.gpus,
                "gpus_at_work": gpus_at_work(outcome.runs),
            }
            for outcome in outcomes
        ],
    }


def text_page(options: SimulationOptions, outcomes: Sequence[PolicyOutcome], width: int | None = None) -> str:
    """Return the outcomes as text for a terminal.

    :param width: columns of the terminal; columns of tables that do not fit are left out. None: no limit.
    """
    lines = [_wrapped(_conditions(options), width)]
    if len(outcomes) > 1:
        lines.append(_table([(outcome.label, outcome.overall()) for outcome in outcomes], width))
    for outcome in outcomes:
        lines.append(f"{_wrapped(_title(outcome), width)}\n{_table(_rows(outcome), width)}")
        if outcome.fairness:
            lines.append(_wrapped(_fairness(outcome), width))
        if unfinished := outcome.overall().unfinished:
            lines.append(f"{unfinished} jobs never ended: they need more than there is.")
    shown = set().union(*(_columns(rows, width) for rows in map(_rows, outcomes)))
    legend = [text for columns, text in LEGEND if shown.intersection(columns)]
    legend.append("GPUs at work: GPUs that jobs need and train on; mean from the first submission to the last.")
    lines.append("\n".join(_wrapped(text, width) for text in legend))
    if left_out := [header for header in HEADERS[1:] if header not in shown]:
        lines.append(_wrapped(f"Left out, as the terminal is narrow: {', '.join(left_out)}; --json has all.", width))
    return "\n\n".join(lines)


def html_page(options: SimulationOptions, outcomes: Sequence[PolicyOutcome]) -> str:
    """Return the outcomes as an HTML page that loads no other file."""
    parts = []
    for outcome in outcomes:
        rows = [["", *HEADERS[1:]], *([name, *_cells(metrics)] for name, metrics in _rows(outcome))]
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
        fairness = f"<p>{escape(_fairness(outcome))}</p>" if outcome.fairness else ""
        parts.append(f"<h2>{escape(_title(outcome))}</h2>\n<table>\n{cells}</table>\n{_curve(outcome)}{fairness}")
    style = "body{font:14px sans-serif;margin:2em}td{padding:2px 10px;text-align:right}td:first-child{text-align:left}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulation</title><style>{style}</style>\n'
        f"<h1>{escape(options.trace.name)}</h1>\n<p>{escape(_conditions(options))}</p>\n{''.join(parts)}</html>\n"
    )


def _conditions(options: SimulationOptions) -> str:
    priorities = ":".join(f"{part:g}" for part in options.priorities or ())
    drawn = f"priorities drawn {priorities} with seed {options.seed}" if priorities else "priorities as in the trace"
    checkpoints = "none" if options.checkpoint_every is None else f"each {readable(options.checkpoint_every)}"
    order = f"; order: {options.order}" if options.order else ""
    return (
        f"{options.trace.name}: {drawn}; provisioning {readable(options.provisioning)}, "
        f"stopping {readable(options.stopping)}, checkpoints {checkpoints}; "
        f"known of runtimes: {options.runtimes}{order}"
    )


def _title(outcome: PolicyOutcome) -> str:
    capacity = ", ".join(f"{pool.capacity} of {pool.name}" for pool in outcome.policy.pools)
    work = gpus_at_work(outcome.runs)
    part = f" ({work / outcome.gpus:.0%})" if outcome.gpus else ""
    return f"{outcome.label} (instances: {capacity}; GPUs at work: {work:,.0f}{part})"


def _rows(outcome: PolicyOutcome) -> list[tuple[str, Metrics]]:
    rows = [("all", outcome.overall())]
    for kind, classes in outcome.classes().items():
        rows += [(f"{kind} {name}", metrics) for name, metrics in classes.items()]
    return rows


def readable(seconds: float) -> str:
    """Return a duration in its two largest units: `3d4h`, `2h05m`, `1m35s`, `41s`."""
    whole = max(0, round(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def fitting_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, leave_out: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """Return a table for a terminal of `width` columns (None: no limit), and the headers of the table.

    If the table is too wide, columns are left out in the order of `leave_out`. If the table is still too wide, the
    names in the first column are cut.
    """
    shown = list(range(len(headers)))
    for header in ("", *leave_out):
        shown = [index for index in shown if not header or headers[index] != header]
        text = _aligned([[row[index] for index in shown] for row in rows], [headers[index] for index in shown])
        beyond = max(map(len, text.splitlines())) - (width or 0) if width else 0
        if beyond <= 0:
            break
    if beyond > 0:
        room = max(LEAST_NAME, max(len(row[0]) for row in rows) - beyond)
        cells = [[row[index] if index else _cut(row[0], room) for index in shown] for row in rows]
        text = _aligned(cells, [headers[index] for index in shown])
    return text, [headers[index] for index in shown]


def _aligned(cells: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    return tabulate(cells, headers, disable_numparse=True, colalign=("left", *["right"] * (len(headers) - 1)))


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _wrapped(text: str, width: int | None) -> str:
    return text if width is None else textwrap.fill(text, max(width, LEAST_WIDTH), break_on_hyphens=False)


def _table(rows: Sequence[tuple[str, Metrics]], width: int | None) -> str:
    return fitting_table(HEADERS, [[name, *_cells(metrics)] for name, metrics in rows], width, LEAVE_OUT)[0]


def _columns(rows: Sequence[tuple[str, Metrics]], width: int | None) -> list[str]:
    return fitting_table(HEADERS, [[name, *_cells(metrics)] for name, metrics in rows], width, LEAVE_OUT)[1]


def _cells(metrics: Metrics) -> list[str]:
    return [
        f"{metrics.jobs:,}",
        readable(metrics.wait),
        readable(metrics.wait_median),
        readable(metrics.wait_p95),
        readable(metrics.wait_longest),
        f"{metrics.slowdown:,.1f}",
        f"{metrics.slowdown_worst:,.0f}",
        f"{metrics.preemptions:.2f}",
        f"{metrics.preemptions_most}",
        f"{metrics.lost_work:.2%}",
        f"{metrics.restart_overhead:.2%}",
    ]


def _fairness(outcome: PolicyOutcome) -> str:
    worst = max(outcome.fairness, key=lambda name: outcome.fairness[name])
    return (
        f"rho, the time that jobs take here per time that they would take on their project's quota without other jobs: "
        f"{outcome.fairness[worst]:.2f} for {worst}, which is the worst of {len(outcome.fairness)}."
    )


def _curve(outcome: PolicyOutcome, width: int = 900, height: int = 120) -> str:
    """Draw, as SVG, the instances that jobs request from submission to end. Jobs that never end are left out."""
    changes = sorted(
        change
        for run in outcome.runs
        if run.ended is not None
        for change in ((run.job.submitted, run.job.instances), (run.ended, -run.job.instances))
    )
    if not changes:
        return ""
    first, asked = changes[0][0], 0
    span, points = changes[-1][0] - first or 1, [(first, 0)]
    for time, change in changes:
        points += [(time, asked), (time, asked := asked + change)]
    most = max(level for _, level in points) or 1
    line = " ".join(
        f"{(time - first) / span * width:.1f},{height - level / most * height:.1f}" for time, level in points
    )
    return (
        f'<svg width="{width}" height="{height + 20}"><polyline fill="none" stroke="#357" points="{line}"/>'
        f'<text x="0" y="{height + 15}">instances asked for, at most {most:,}, over {span / 86400:.1f} days</text>'
        "</svg>\n"
    )
