"""Format advice on a policy's settings: as text, and as JSON."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from job_queue.simulation.experiments.advice import (
    FEWEST_DAYS,
    FEWEST_JOBS,
    FEWEST_WAITS,
    LONG_WAIT,
    Insufficient,
    SettingsAdvice,
    SettingsTrial,
)
from job_queue.simulation.experiments.candidates import SettingChange
from job_queue.simulation.metrics import Metrics
from job_queue.simulation.report import LEAST_WIDTH, fitting_table, readable

IN_FORCE = "as in force"
HEADERS = ("setting", "wait", "95 %", "highest", "preempted", "lost work", "rho", "not advised, as")
LEAVE_OUT = ("not advised, as", "lost work", "preempted", "highest", "rho")
CLASS_HEADERS = ("", "jobs", "wait", "then", "95 %", "then")
CLASS_LEAVE_OUT = ("jobs",)
COMBINATIONS = 5  # combinations in the table
NOTHING_ADVISED = "No change of the settings is advised: none reduces the mean wait by 5 % without an objection."
LEGEND = (
    "wait: from submission to end, without work and the first provisioning; mean. 95 %: longest wait of 95 of 100 "
    "jobs. highest: mean wait of the highest priority. preempted: preemptions of a job. lost work: part of the "
    "useful instance-seconds. rho: mean time of the jobs of a project, divided by their mean time on its "
    "quota without other jobs; the largest of all projects."
)


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """The parts of advice as text, which the terminal and the page show."""

    basis: str
    conclusion: str
    rows: tuple[tuple[str, ...], ...] = ()  # the policy in force and the tried settings, with the cells of HEADERS
    remarks: tuple[str, ...] = ()
    classes: tuple[tuple[str, ...], ...] = ()  # classes of jobs, with the cells of CLASS_HEADERS
    settings: Mapping[str, Any] = field(default_factory=dict)  # the advised settings
    lines: tuple[str, ...] = ()  # the advised settings as lines of a policy in YAML


def report_of(advice: SettingsAdvice) -> AdviceReport:
    """Return the parts of advice as text."""
    in_force, chosen = advice.in_force, advice.chosen
    if advice.insufficient is not None or in_force is None:
        return AdviceReport(_basis(advice), _what_is_missing(advice))
    shown = _shown(advice)
    numbers = {trial.changes[0]: number for number, trial in enumerate(shown, start=1) if len(trial.changes) == 1}
    rows = (_row(IN_FORCE, in_force), *(_row(_name(trial, numbers), trial) for trial in shown))
    remarks = tuple(_remarks(advice, len(advice.trials) - len(shown)))
    if chosen is None:
        return AdviceReport(_basis(advice), NOTHING_ADVISED, rows, remarks)
    before, after = readable(in_force.overall.wait), readable(chosen.overall.wait)
    return AdviceReport(
        _basis(advice),
        f"Mean wait {before} now, {after} with these lines in the policy ({advice.gain:.0%} less):",
        rows,
        remarks,
        tuple(_classes(in_force, chosen)),
        {change.setting: change.plain for change in chosen.changes},
        ("settings:", *(f"  {change.line}" for change in chosen.changes)),
    )


def advice_page(advice: SettingsAdvice, width: int | None = None) -> str:
    """Return advice as text for a terminal.

    :param width: columns of the terminal; None: no limit.
    """
    return "\n\n".join(_fitted(part, width) for part in _parts(report_of(advice), width))


def advice_as_json(advice: SettingsAdvice) -> dict[str, Any]:
    """Return advice as plain data. Durations are seconds, and ratios are numbers instead of percentages."""
    report = report_of(advice)
    return {
        "jobs": advice.jobs,
        "days": advice.days,
        "jobsInHistory": advice.of_jobs,
        "insufficient": advice.insufficient,
        "settings": report.settings,
        "lines": list(report.lines),
        "gain": advice.gain,
        "inForce": _trial_as_json(advice.in_force) if advice.in_force else None,
        "tried": [_trial_as_json(trial) for trial in advice.trials],
        "untried": [change.line for change in advice.untried],
    }


def _trial_as_json(trial: SettingsTrial) -> dict[str, Any]:
    return {
        "settings": {change.setting: change.plain for change in trial.changes},
        "overall": asdict(trial.overall),
        "by": {
            kind: {name: asdict(metrics) for name, metrics in classes.items()}
            for kind, classes in trial.classes.items()
        },
        "rho": dict(trial.rho),
        "waitByHalf": list(trial.halves),
        "objection": trial.objection,
    }


def _parts(report: AdviceReport, width: int | None) -> Iterator[str]:
    yield report.basis
    if report.rows:
        table, columns = fitting_table(HEADERS, report.rows, width, LEAVE_OUT)
        yield table
        if left_out := [header for header in HEADERS if header not in columns]:
            yield f"Left out, as the terminal is narrow: {', '.join(left_out)}; --json has all."
    yield from report.remarks
    if report.classes:
        yield fitting_table(CLASS_HEADERS, report.classes, width, CLASS_LEAVE_OUT)[0]
    yield report.conclusion
    if report.lines:
        yield "\n".join(report.lines)
    if report.rows:
        yield LEGEND


def _remarks(advice: SettingsAdvice, left_out: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out} more combinations were tried."
    if advice.untried:
        yield f"No time was left to try {', '.join(change.line for change in advice.untried)}: allow more minutes."


def _basis(advice: SettingsAdvice) -> str:
    jobs = f"{advice.jobs:,} job{'' if advice.jobs == 1 else 's'} in {advice.days:.1f} days"
    if advice.jobs < advice.of_jobs:
        jobs = f"the latest {jobs} (of {advice.of_jobs:,} jobs; more take too long: allow more minutes)"
    return f"Simulated: {jobs}." if advice.in_force else f"History: {jobs}."


def _what_is_missing(advice: SettingsAdvice) -> str:
    if advice.insufficient is Insufficient.WAITING:
        assert advice.in_force is not None
        waits = advice.in_force.long_waits
        jobs = "no job waits" if not waits else f"{waits} job waits" if waits == 1 else f"{waits} jobs wait"
        return (
            f"Too little waiting for advice: {jobs} for more than {readable(LONG_WAIT)} under the policy in force, and "
            f"{FEWEST_WAITS} must. Settings cannot reduce such waits."
        )
    if advice.insufficient is Insufficient.TIME:
        return "Too little time for advice: even a part of the history takes longer. Allow more minutes."
    return (
        f"Too little history for advice: {FEWEST_JOBS} finished jobs over {FEWEST_DAYS:g} days at least are needed. "
        "Ask again later, or about a longer time."
    )


def _shown(advice: SettingsAdvice) -> list[SettingsTrial]:
    """Return the single changes by mean wait, then the best combinations and the chosen combination by mean wait."""
    ordered = sorted(advice.trials, key=lambda trial: trial.overall.wait)
    several = [trial for trial in ordered if len(trial.changes) > 1]
    best = [trial for trial in several if trial is advice.chosen or trial in several[:COMBINATIONS]]
    return [trial for trial in ordered if len(trial.changes) == 1] + best


def _name(trial: SettingsTrial, numbers: Mapping[SettingChange, int]) -> str:
    """Return the label of a trial: for a single change its number and line, for a combination only the numbers."""
    together = " + ".join(str(numbers[change]) for change in trial.changes)
    return f"{together}  {trial.changes[0].line}" if len(trial.changes) == 1 else together


def _row(name: str, trial: SettingsTrial) -> tuple[str, ...]:
    overall = trial.overall
    return (
        name,
        readable(overall.wait),
        readable(overall.wait_p95),
        readable(trial.highest.wait),
        f"{overall.preemptions:.2f}",
        f"{overall.lost_work:.2%}",
        "-" if trial.worst_rho is None else f"{trial.worst_rho:.2f}",
        str(trial.objection or ""),
    )


def _classes(before: SettingsTrial, after: SettingsTrial) -> Iterator[tuple[str, ...]]:
    """Yield a row for all jobs, each priority and each project."""
    yield _compared("all", before.overall, after.overall)
    for kind in ("priority", "project"):
        for name, figures in before.classes.get(kind, {}).items():
            yield _compared(f"{kind} {name}", figures, after.classes[kind][name])


def _compared(name: str, before: Metrics, after: Metrics) -> tuple[str, ...]:
    waits = (before.wait, after.wait, before.wait_p95, after.wait_p95)
    return (name, f"{before.jobs:,}", *map(readable, waits))


def _fitted(text: str, width: int | None) -> str:
    """Wrap a sentence; leave a table and the lines of a policy as they are."""
    if width is None or "\n" in text:
        return text
    return textwrap.fill(text, max(width, LEAST_WIDTH), break_on_hyphens=False)
