"""Show the progress of a running search: a line when a trial starts, is preempted or ends, and a status line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api_contract.models import WAITING
from sagemaker_queue.tuning.plan import StudyPlan
from sagemaker_queue.tuning.search import SearchEvent, SearchProgress, TrialChanged
from sagemaker_queue.tuning.space import Value, text_of
from sagemaker_queue.workflows.job_logs.follower import Outage
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer

_REPORTED = frozenset({"submitted", "preempted", "completed", "pruned", "failed"})


def show_search(events: Iterable[SearchEvent], plan: StudyPlan, renderer: JobLogRenderer, *, live: bool) -> None:
    """Show a line when a trial is submitted, is preempted or ends; if ``live``, also a status line.

    A trial that an earlier process started has a line for each change. The function returns when the search ends.
    """
    try:
        for event in events:
            if isinstance(event, SearchProgress):
                if live:
                    renderer.status(status_line(event, plan.metric.name))
            elif isinstance(event, Outage):
                renderer.note(f"{event.error} The jobs are not affected; trying again.")
            elif line := _line(event, plan.metric.name):
                renderer.note(line)
    finally:
        renderer.close()


def status_line(now: SearchProgress, metric: str) -> str:
    """Return the status line of a search: how many trials have ended, run and wait, and the best value."""
    waiting = sum(count for state, count in now.states.items() if state in WAITING or state == "submitted")
    live = sum(now.states.values())
    best = f"; best {metric} {figure(now.best.value)}: trial {now.best.number}" if now.best else ""
    return f"{now.ended} of {now.total} trials have ended, {live - waiting} run, {waiting} wait{best}"


def figure(value: float | None) -> str:
    """Return a number with six significant digits; empty for None."""
    return "" if value is None else f"{value:.6g}"


def values(params: Mapping[str, Value]) -> str:
    """Return hyperparameters as text for users, with rounded numbers; the trial's command gets all digits."""
    return " ".join(f"{name}={figure(v) if isinstance(v, float) else text_of(v)}" for name, v in params.items())


def _line(event: TrialChanged, metric: str) -> str:
    trial = event.trial
    if event.resumed and event.trial.state not in _REPORTED:
        return f"trial {trial.number} is {trial.state}: {trial.job}, {values(trial.params)}"
    if trial.state == "submitted":
        return f"trial {trial.number} is submitted: {trial.job}, {values(trial.params)}"
    if trial.state == "preempted":
        return f"trial {trial.number} was preempted; the queue resumes it"
    if trial.state == "completed":
        return (
            f"trial {trial.number} completed: {metric} {figure(trial.value)}{', the best so far' if event.best else ''}"
        )
    if trial.state == "pruned":
        return f"trial {trial.number} was pruned at {metric} {figure(trial.value)}"
    return f"trial {trial.number} failed: {trial.reason}" if trial.state == "failed" else ""
