"""In words: why a job waits, and what would become of one that is not submitted yet."""

from __future__ import annotations

from collections.abc import Iterable

from sagemaker_queue.cli.render.layout import folded
from sagemaker_queue.formatting import age, amount, clean, instances, place, predicate
from sagemaker_queue.models import Eviction, Expectation, JobDetail, PlanAnswer, Reason

LISTED = 10  # jobs that are named before "and n more"
AHEAD = 20  # of those ahead the queue names no more

_RULES = {
    "preempt": "preempt: it has a lower priority in the same project",
    "reclaim": "reclaim: its project holds more than it is entitled to",
    "consolidate": "consolidate: it can go on in another pool that it accepts",
}


def why_page(job: JobDetail, width: int | None = None) -> str:
    """Return why the job waits, what is ahead of it, who is in its way, and what would change that."""
    if not job.waits:
        time = age(job.state_since)
        since = (f" {time} ago" if job.finished else f", for {time}") if time else ""
        ended = _indented([_reason(job.reason)], width) if job.reason and job.reason.message else []
        return "\n".join([f"{job.job} does not wait: it {predicate(job.state)}{since}.", *ended])
    position = f", {place(job.position)}" if job.position else ""
    parts = [f"{job.job} waits{position}.", *_indented([_reason(job.reason)] if job.reason else [], width)]
    parts += _when(job.expected_start, width)
    if job.why:
        parts += _section("Ahead of it", _names(job.why.ahead, named=AHEAD), width)
        parts += _section("In its way (they hold what it needs)", _names(job.why.blockers), width)
        parts += _section("What would change that", [f"- {clean(advice)}" for advice in job.why.advice], width)
    return "\n".join(parts)


def plan_page(name: str, plan: PlanAnswer, width: int | None = None) -> str:
    """Return whether the job would start, where, at whose cost and by which rule; else why not."""
    where = f" on {instances(plan.slots)}" if plan.slots else ""
    if plan.evicts:
        count = amount(len(plan.evicts), "job")
        parts = [f"{name} would start{where} as soon as {count} {'has' if len(plan.evicts) == 1 else 'have'} stopped."]
        parts += _section("To be stopped for it, and put back into the queue", map(_eviction, plan.evicts), width)
    elif plan.would_start:
        parts = [f"{name} would start at once{where}. Nobody would be stopped for it."]
    else:
        position = f", {place(plan.position)}" if plan.position else ""
        parts = [f"{name} would wait{position}.", *_indented([_reason(plan.reason)] if plan.reason else [], width)]
        parts += _when(plan.expected_start, width)
        parts += _section("Ahead of it", _names(plan.ahead, named=AHEAD), width)
        parts += _section("In its way (they hold what it needs)", _names(plan.blockers), width)
        parts += _section("What would change that", [f"- {clean(advice)}" for advice in plan.advice], width)
    parts += _section("Warnings", [f"- {clean(warning)}" for warning in plan.warnings], width)
    return "\n".join(parts)


def _reason(reason: Reason | None) -> str:
    return f"{clean(reason.message)} ({reason.code})" if reason else ""


def _when(expected: Expectation | None, width: int | None) -> list[str]:
    return _section("When it is expected to start", [expected.message] if expected else [], width)


def _eviction(eviction: Eviction) -> str:
    return f"- {eviction.job}, by {_RULES.get(eviction.rule, eviction.rule)}"


def _names(jobs: tuple[str, ...], named: int | None = None) -> list[str]:
    """Of jobs of which the queue names the first so many only, there may be any number."""
    if not jobs:
        return []
    rest = len(jobs) - LISTED
    more = "more" if named and len(jobs) >= named else f"{rest} more"
    return [", ".join(jobs[:LISTED]) + (f" and {more}" if rest > 0 else "")]


def _section(title: str, lines: Iterable[str], width: int | None) -> list[str]:
    indented = _indented(lines, width)
    return ["", title, *indented] if indented else []


def _indented(lines: Iterable[str], width: int | None) -> list[str]:
    return [folded(line, width, hanging="  " if line.startswith("- ") else "") for line in lines]
