"""Explanations in sentences: why a job waits, and the result of a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from api_contract.models import Eviction, Expectation, JobDetail, PlanAnswer, Reason, Why
from sagemaker_queue.jobs.doc_links import reason_link
from sagemaker_queue.jobs.formatting import (
    NOT_ESTIMATED,
    age,
    amount,
    clean,
    concise,
    instances,
    is_not_estimated_yet,
    place,
    predicate,
)

LISTED = 10  # maximum number of jobs that are named before "and n more"
AHEAD = 20  # the queue names at most this many jobs ahead

_RULES = {
    "preempt": "preempt: a lower priority in the same project",
    "reclaim": "reclaim: its project holds more than it is entitled to",
    "consolidate": "consolidate: the job can continue in another pool that it accepts",
}


@dataclass(frozen=True)
class Section:
    """A sentence or a title, and the lines below."""

    title: str
    lines: tuple[str, ...] = ()
    listed: bool = False  # each line is an item of a list


def why_sections(job: JobDetail) -> list[Section]:
    """Return the reason why the job waits, its expected start, the jobs ahead, the blocking jobs, and advice.

    For a job that does not wait, return its state and the reason for that state.
    """
    if not job.waits:
        time = age(job.state_since)
        since = (f" {time} ago" if job.finished else f", for {time}") if time else ""
        ended = (_reason(job.reason),) if job.reason and job.reason.message else ()
        return [Section(f"{job.job} does not wait: it {predicate(job.state)}{since}.", ended)]
    position = f", {place(job.position)}" if job.position else ""
    first = Section(f"{job.job} waits{position}.", _reasons(job.reason))
    when = _when(job.expected_start, missing=is_not_estimated_yet(job))
    return [first, *_filled([*when, *(_obstacles(job.why) if job.why else ())])]


def plan_sections(name: str, plan: PlanAnswer) -> list[Section]:
    """Return a dry run in sentences: the start, its instances and evictions with their rules, or why the job waits."""
    where = f" on {instances(plan.slots)}" if plan.slots else ""
    if plan.evicts:
        count = amount(len(plan.evicts), "job")
        have = "has" if len(plan.evicts) == 1 else "have"
        sections = [Section(f"{name} would start{where} as soon as {count} {have} stopped.")]
        evictions = tuple(map(_eviction, plan.evicts))
        sections.append(Section("Jobs to be stopped for it, which then wait again", evictions, listed=True))
    elif plan.would_start:
        sections = [Section(f"{name} would start at once{where}. No job would be stopped for it.")]
    else:
        position = f", {place(plan.position)}" if plan.position else ""
        sections = [Section(f"{name} would wait{position}.", _reasons(plan.reason))]
        sections += _filled([*_when(plan.expected_start), *_obstacles(plan)])
    return [*sections, *_filled([Section("Warnings", _cleaned(plan.warnings), listed=True)])]


def _filled(sections: Iterable[Section]) -> Iterator[Section]:
    return (section for section in sections if section.lines)


def _obstacles(why: Why | PlanAnswer) -> list[Section]:
    return [
        Section("Ahead of it", _names(why.ahead, named=AHEAD)),
        Section("Blocked by (these jobs hold the instances)", _names(why.blockers)),
        Section("How to start it sooner", _cleaned(why.advice), listed=True),
    ]


def _cleaned(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(clean(sentence)) for sentence in sentences)


def _reason(reason: Reason) -> str:
    return f"{clean(concise(reason.message))} ({reason.code})"


def _reasons(reason: Reason | None) -> tuple[str, ...]:
    if reason is None:
        return ()
    return (_reason(reason), f"See {reason_link(reason.code)}") if reason.code else (_reason(reason),)


def _when(expected: Expectation | None, *, missing: bool = False) -> list[Section]:
    """Return the section about the expected start; empty without an estimate.

    ``missing``: the job will get an estimate, but the queue has not made the first one yet.
    """
    message = expected.message if expected else NOT_ESTIMATED if missing else None
    return [Section("Expected start", (message,))] if message else []


def _eviction(eviction: Eviction) -> str:
    return f"{eviction.job}, by {_RULES.get(eviction.rule, eviction.rule)}"


def _names(jobs: tuple[str, ...], named: int | None = None) -> tuple[str, ...]:
    """Return the jobs as one line.

    ``named`` is the number of jobs at which the queue truncates the list. For a truncated list, the number of further
    jobs is unknown.
    """
    if not jobs:
        return ()
    rest = len(jobs) - LISTED
    more = "more" if named and len(jobs) >= named else f"{rest} more"
    return (", ".join(jobs[:LISTED]) + (f" and {more}" if rest > 0 else ""),)
