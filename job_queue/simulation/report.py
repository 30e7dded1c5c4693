"""Format the outcomes of a simulation: as text, as JSON, and as an HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from tabulate import tabulate

from job_queue.scheduler import Policy
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.metrics import Metrics, by, gpus_at_work, metrics_of, size_class
from job_queue.simulation.options import SimulationOptions

HEADERS = (
    "", "jobs", "wait", "median", "95 %", "longest", "slowdown", "worst", "preempted", "most", "lost work", "restarts",
)  # fmt: skip


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
        priorities = by(lambda run: run.job.priority, self.runs)
        found = {
            "priority": {str(priority): priorities[priority] for priority in sorted(priorities, reverse=True)},
            "size": dict(sorted(by(size_class, self.runs).items())),
        }
        if len(self.policy.projects) > 1:
            found["project"] = dict(sorted(by(lambda run: run.job.project, self.runs).items()))
        return found


def as_json(options: SimulationOptions, outcomes: Sequence[PolicyOutcome]) -> dict[str, Any]:
    """Return the outcomes as plain data. Durations are seconds, and parts are numbers between 0 and 1."""
    return {
        "trace": str(options.trace),
        "seed": options.seed,
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


def text_page(options: SimulationOptions, outcomes: Sequence[PolicyOutcome]) -> str:
    """Return the outcomes as text for a terminal."""
    lines = [_conditions(options)]
    if len(outcomes) > 1:
        lines.append(_table([(outcome.label, outcome.overall()) for outcome in outcomes]))
    for outcome in outcomes:
        lines.append(f"{_title(outcome)}\n{_table(_rows(outcome))}")
        if outcome.fairness:
            lines.append(_fairness(outcome))
        if unfinished := outcome.overall().unfinished:
            lines.append(f"{unfinished} jobs never ended: they need more than there is.")
    lines.append(
        "wait: seconds from submission to end without work and the first provisioning.\n"
        "slowdown: time in all, per time of work.\n"
        "preempted: times a job, on average. lost work and restarts: part of the useful instance-seconds.\n"
        "GPUs at work: those that jobs need and train on, mean from the first submission to the last."
    )
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
    priorities = ":".join(f"{part:g}" for part in options.priorities)
    drawn = f"priorities drawn {priorities} with seed {options.seed}" if priorities else "priorities as in the trace"
    checkpoints = "none" if options.checkpoint_every is None else f"each {options.checkpoint_every:g} s"
    order = f"; order: {options.order}" if options.order else ""
    return (
        f"{options.trace.name}: {drawn}; provisioning {options.provisioning:g} s, stopping {options.stopping:g} s, "
        f"checkpoints {checkpoints}; known of runtimes: {options.runtimes}{order}"
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


def _table(rows: Sequence[tuple[str, Metrics]]) -> str:
    cells = [[name, *_cells(metrics)] for name, metrics in rows]
    return tabulate(cells, HEADERS, disable_numparse=True, colalign=("left", *["right"] * (len(HEADERS) - 1)))


def _cells(metrics: Metrics) -> list[str]:
    return [
        f"{metrics.jobs:,}",
        f"{metrics.wait:,.0f}",
        f"{metrics.wait_median:,.0f}",
        f"{metrics.wait_p95:,.0f}",
        f"{metrics.wait_longest:,.0f}",
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
        f"rho, the time that jobs take here per time that they would take alone on their project's quota: "
        f"{outcome.fairness[worst]:.2f} for {worst}, which is the worst of {len(outcome.fairness)}."
    )


def _curve(outcome: PolicyOutcome, width: int = 900, height: int = 120) -> str:
    """Draw, as SVG, the number of instances that submitted and unfinished jobs request over time."""
    changes = sorted(
        change
        for run in outcome.runs
        if run.ended is not None
        for change in ((run.job.submitted, run.job.instances), (run.ended, -run.job.instances))
    )
    if not changes:
        return ""
    last, asked, points = changes[-1][0] or 1, 0, [(0.0, 0)]
    for time, change in changes:
        points += [(time, asked), (time, asked := asked + change)]
    most = max(level for _, level in points) or 1
    line = " ".join(f"{time / last * width:.1f},{height - level / most * height:.1f}" for time, level in points)
    return (
        f'<svg width="{width}" height="{height + 20}"><polyline fill="none" stroke="#357" points="{line}"/>'
        f'<text x="0" y="{height + 15}">instances asked for, at most {most:,}, over {last / 86400:.1f} days</text>'
        "</svg>\n"
    )
