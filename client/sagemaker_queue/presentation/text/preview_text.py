"""The preview of another policy or other capacities, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from api_contract.preview import ChangedWait, PreviewAnswer, ProjectPreview, Unstartable
from sagemaker_queue.jobs.formatting import amount, clean, duration
from sagemaker_queue.presentation.text.layout import folded, table

NAMED, NAMED_BRIEFLY = 6, 3  # maximum number of jobs in a sentence, of the full and of the brief preview
LISTED, LISTED_BRIEFLY = 4, 2  # maximum number of lines for one kind of change, in the full and in the brief preview
PROJECTS = 6  # maximum number of rows of the table

_NOTHING = "Nothing of note would change."
_NO_WAIT = "No job would start, be stopped or wait longer."  # instead of _NOTHING, if something else would change


def preview_page(preview: PreviewAnswer, width: int | None = None) -> str:
    """Return the jobs that would start, be stopped, or wait longer or shorter, in about 20 lines."""
    preview, span = _each_job_once(preview), _span(preview)
    since = f"Compared with version {preview.policy_version} of the policy"
    parts = [f"{since}, now and over the next {span}:" if span else f"{since}, now:"]
    parts += _changes(preview, width, NAMED, LISTED) or [_no_change(preview)]
    parts += _projects(preview.projects, width)
    return "\n".join(parts + _remarks(preview, width))


def brief_preview(preview: PreviewAnswer, width: int | None = None) -> str:
    """Return the preview in a few lines: fewer jobs than in ``preview_page``, and no table of projects."""
    preview, span = _each_job_once(preview), _span(preview)
    parts = [f"If it is applied, now and over the next {span}:" if span else "If it is applied:"]
    parts += _changes(preview, width, NAMED_BRIEFLY, LISTED_BRIEFLY) or [_no_change(preview)]
    return "\n".join(parts + _remarks(preview, width))


def _each_job_once(preview: PreviewAnswer) -> PreviewAnswer:
    """Return the preview with each job in only one of the lists ``unstartable``, ``later`` and ``kept_waiting``."""
    never = {job.job for job in preview.unstartable}
    later = tuple(wait for wait in preview.later if wait.job not in never)
    mentioned = never | {wait.job for wait in later}
    waiting = tuple(job for job in preview.kept_waiting if job not in mentioned)
    return replace(preview, later=later, kept_waiting=waiting)


def _no_change(preview: PreviewAnswer) -> str:
    remarks = preview.in_use or preview.refused_submissions or preview.warnings
    return f"  {_NO_WAIT if remarks else _NOTHING}"


def _changes(preview: PreviewAnswer, width: int | None, named: int, listed: int) -> list[str]:
    parts: list[str] = []
    if preview.starts:
        count = len(preview.starts) + preview.more_starts
        names = _names([start.job for start in preview.starts], count, named)
        parts.append(f"{amount(count, 'job')} would start now: {names}.")
    if preview.kept_waiting:
        count = len(preview.kept_waiting) + preview.more_kept_waiting
        parts.append(f"{amount(count, 'job')} would not start now: {_names(preview.kept_waiting, count, named)}.")
    shown = preview.evictions[:listed]
    for eviction in shown:
        parts.append(f"{clean(eviction.job)} would be stopped for {clean(eviction.claimant)} ({clean(eviction.rule)}).")
    parts += _more(len(preview.evictions) + preview.more_evictions - len(shown), "would be stopped")
    parts += _unstartable(preview.unstartable, preview.more_unstartable, named, listed)
    lines = [folded(str(part), width, hanging="  ") for part in parts]
    lines += _waits("would start sooner", preview.sooner, preview.more_sooner, preview, listed)
    return lines + _waits("would start later", preview.later, preview.more_later, preview, listed)


def _unstartable(jobs: Sequence[Unstartable], more: int, named: int, listed: int) -> list[str]:
    """Return a sentence for each reason why jobs could never start, with the names of the jobs."""
    names_by_reason: dict[str, list[str]] = {}
    for job in jobs:
        names_by_reason.setdefault(job.reason.message if job.reason else "", []).append(job.job)
    parts = [
        f"{_names(names, len(names), named)} could not start any more: {clean(message)}"
        for message, names in list(names_by_reason.items())[:listed]
    ]
    return parts + _more(
        more + sum(len(names) for names in list(names_by_reason.values())[listed:]), "could not start any more"
    )


def _waits(what: str, waits: Sequence[ChangedWait], more: int, preview: PreviewAnswer, listed: int) -> list[str]:
    if not waits:
        return []
    lines = [f"  {amount(len(waits) + more, 'job')} {what}:"]
    shown = waits[:listed]
    for wait in shown:
        now, then = (_when(start, preview) for start in (wait.start_now, wait.start_then))
        lines.append(f"    {clean(wait.job)} {then} instead of {now}")
    left = len(waits) + more - len(shown)
    return [*lines, *([f"    ... and {left} more"] if left > 0 else [])]


def _when(start: datetime | None, preview: PreviewAnswer) -> str:
    if start is None:
        return f"not within {_span(preview)}"
    return f"in {_about((start - preview.at).total_seconds())}" if preview.at and start > preview.at else "now"


def _projects(projects: Iterable[ProjectPreview], width: int | None) -> list[str]:
    """Return a table of the projects whose figures change; empty if no figures change."""
    changed = [it for it in projects if _mean(it.wait_now) != _mean(it.wait_then) or it.used_now != it.used_then]
    rows = [
        [it.project, it.waiting, _mean(it.wait_now), _mean(it.wait_then), _slots(it.used_now), _slots(it.used_then)]
        for it in changed[:PROJECTS]
    ]
    if not rows:
        return []
    headers = ["Project", "Waiting", "Mean Wait Now", "Mean Wait Then", "Uses Now", "Uses Then"]
    left = len(changed) - len(rows)
    more = [f"... and {amount(left, 'more project')}"] if left > 0 else []
    return ["", table(headers, rows, width=width, compact=True), *more]


def _about(seconds: float) -> str:
    """Return a duration rounded to minutes, because the duration is an estimate."""
    return duration(max(60, round(seconds / 60) * 60) if seconds else 0).removesuffix("00s")


def _mean(seconds: float | None) -> str:
    return "-" if seconds is None else _about(seconds)


def _slots(slots: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {pool}" for pool, count in sorted(slots.items()) if count) or "0"


def _remarks(preview: PreviewAnswer, width: int | None) -> list[str]:
    """Return warnings, reasons why applying the policy needs --force, and parts that were not previewed."""
    remarks = [*preview.refused_submissions, *preview.warnings, *preview.in_use]
    if preview.in_use and not preview.warnings:  # with warnings, the policy would be refused even with --force
        remarks.append(
            "Applying it takes --force: running jobs continue, and waiting jobs that no longer fit wait with a reason."
        )
    remarks += preview.not_looked_at
    return ["", *(folded(str(clean(remark)), width, indent="") for remark in remarks)] if remarks else []


def _names(names: Sequence[str], count: int, named: int) -> str:
    """Return the first ``named`` names, and the number of further names; ``count`` is the number of all names."""
    shown = [str(clean(name)) for name in names[:named]]
    left = count - len(shown)
    return f"{', '.join(shown)} and {left} more" if left > 0 else ", ".join(shown)


def _more(count: int, what: str) -> list[str]:
    return [f"... and {count} more {what}."] if count > 0 else []


def _span(preview: PreviewAnswer) -> str:
    """Return the length of the preview in hours, as text; empty if the preview covers only the present."""
    if preview.at is None or preview.until is None or preview.until <= preview.at:
        return ""
    hours = round((preview.until - preview.at).total_seconds() / 3600, 1)
    return f"{hours:g} hour{'' if hours == 1 else 's'}"
