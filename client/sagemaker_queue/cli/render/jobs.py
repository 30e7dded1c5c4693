"""Jobs as text for people: the columns of a list, the page about one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sagemaker_queue.cli.render.layout import columns_that_fit, facts, shortened, table
from sagemaker_queue.formatting import (
    age,
    amount,
    clean,
    in_words,
    instances,
    moment,
    ordinal,
    short_owner,
    since,
    starts_in,
    visible,
)
from sagemaker_queue.identity import sharing
from sagemaker_queue.models import ACTIVE, FINISHED, JobDetail, JobSummary, Transition

Column = tuple[str, Callable[[JobSummary], object]]


def _elapsed(job: JobSummary) -> str:
    """Return for how long its present attempt has run, or the one that ended it; an older queue tells no start."""
    if job.finished:
        return age(job.started, job.state_since)
    return age(job.started or job.state_since) if job.state in ACTIVE else ""


def _waited(job: JobSummary) -> str:
    """Return for how long it has waited this time, or had before its first attempt."""
    if job.waits:
        return age(job.state_since)
    if job.finished and job.started is None:
        return age(job.entry_time, job.state_since)
    return age(job.entry_time, job.started) if job.started and job.attempt == 1 else ""


def _slots(job: JobSummary) -> str:
    """Return what it holds, or held at its end: by pool, or where a list does not have that by instance type."""
    held = dict(job.slots or job.last_slots)
    if not held and job.finished and job.started and len(job.instance_types) == 1:
        held = {job.instance_types[0]: job.instances}
    return ", ".join(f"{count} {pool}" for pool, count in held.items())


def _since_submission(job: JobSummary) -> str:
    return age(job.entry_time, job.state_since if job.finished else None)


COLUMNS: dict[str, Column] = {
    "job": ("Job Name", lambda job: job.job),
    "state": ("State", lambda job: job.state),
    "priority": ("Priority", lambda job: job.priority),
    "position": ("Position", lambda job: job.position),
    "turn": ("Turn", lambda job: ordinal(job.position) if job.position else _elapsed(job)),
    "project": ("Project", lambda job: job.project),
    "group": ("Group", lambda job: job.group),
    "owner": ("Owner", lambda job: short_owner(job.owner)),
    "user": ("User", lambda job: (short_owner(job.owner) or "").rpartition("/")[2]),
    "instances": ("Instances", lambda job: job.instances),
    "attempt": ("Attempt", lambda job: job.attempt),
    "age": ("Age", _since_submission),
    "elapsed": ("Elapsed", _elapsed),
    "waited": ("Waited", _waited),
    "since": ("In State", lambda job: age(job.state_since)),
    "training-job": ("Training Job", lambda job: job.training_job_name),
    "held": ("Held", lambda job: "yes" if job.held else None),
    "preemptible": ("Preemptible", lambda job: "yes" if job.preemptible else "no"),
    "pools": ("Pools", lambda job: ", ".join(job.pools)),
    "slots": ("Slots", _slots),
    "type": ("Type", lambda job: ", ".join(job.instance_types)),
    "when": ("Starts", lambda job: starts_in(job.expected_start)),
    "reason": ("Reason", lambda job: job.reason and shortened(job.reason.message)),
}
_NAMES = ("Job Name", "Training Job")  # never cut: people copy them
SHOWN = 10  # transitions on the page about a job
ARTICLE = ("job", "state", "priority")
ON_A_TERMINAL = ("job", "user", "state", "priority", "turn", "when", "instances", "reason")
WIDE = (*ARTICLE, "position", "when", "project", "owner", "instances", "attempt", "age", "reason")
_BRIEFLY = {"Job Name": "Job", "Priority": "Prio", "Position": "Pos", "Instances": "Inst", "Attempt": "Try"}
_LEFT_OUT = ("Try", "Age", "Project", "Inst", "Reason", "User", "Owner", "Pos")  # where there is no room, in this order
_HEADING, _RUNS, _FAILED, _ENDED, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def jobs_table(
    jobs: Iterable[JobSummary],
    columns: Sequence[str] = ARTICLE,
    width: int | None = None,
    *,
    compact: bool = False,
) -> str:
    """Return the jobs as a table of the named columns, in the order given, cut to that width if it can be.

    Names are cut in a ``compact`` one only, in the middle.
    """
    chosen = [COLUMNS[name] for name in columns]
    rows = [[value(job) for _, value in chosen] for job in jobs]
    headers = [header for header, _ in chosen]
    return table(headers, rows, width=width, whole=() if compact else _NAMES, compact=compact, middle=_NAMES)


def jobs_screen(
    jobs: Sequence[JobSummary], columns: Sequence[str], width: int, *, as_asked: bool, colours: bool
) -> str:
    """Return the jobs as a table for a terminal of that width, a line each; what others named in it obeys nothing.

    The columns are all there and names are whole where they are ``as_asked``; else what has no room is left out.
    """
    chosen = [COLUMNS[name] for name in columns]
    rows = [[clean(value(job)) for _, value in chosen] for job in jobs]
    headers = [_BRIEFLY.get(header, header) for header, _ in chosen]
    if not as_asked:
        fitting = columns_that_fit(headers, rows, width, _LEFT_OUT)
        headers, rows = [headers[index] for index in fitting], [[row[index] for index in fitting] for row in rows]
    names = tuple(_BRIEFLY.get(name, name) for name in _NAMES)
    text = table(headers, rows, width=width, whole=names if as_asked else (), compact=True, middle=names)
    first, *lines = visible(text).splitlines()
    if not colours:
        return "\n".join([first, *lines])
    painted = [f"{_colour(job)}{line}{_PLAIN}" for job, line in zip(jobs, lines)]
    return "\n".join([f"{_HEADING}{first}{_PLAIN}", *painted])


def _colour(job: JobSummary) -> str:
    if job.state in ACTIVE:
        return _RUNS
    if job.state in FINISHED:
        return _FAILED if job.state == "failed" else _ENDED
    return ""


def _owner(arn: str | None) -> str | None:
    shared = sharing(arn) if arn else None
    return f"{arn} ({shared})" if shared else arn


def job_page(job: JobDetail, width: int | None = None) -> str:
    """Return all that is known of one job."""
    stopping = " (cancelled, being stopped)" if job.cancel_requested and not job.finished else ""
    about = {
        "State": f"{job.state}{stopping}{_for_how_long(job)}",
        "Priority": job.priority,
        "Position": job.position,
        "Starts": job.expected_start and job.expected_start.message,
        "Reason": job.reason and job.reason.message and f"{job.reason.message} ({job.reason.code})",
        "Project": job.project,
        "Group": job.group,
        "Owner": _owner(job.owner),
        "Held": "yes: it starts only once it is released" if job.held else None,
        "Preemptible": None if job.preemptible else "no: it may use quota only, and is not stopped to make room",
        "Pools": ", ".join(job.pools),
        "Instances": instances(job.slots or job.last_slots) or ", ".join(map(str, job.sizes)) or job.instances,
        "Accepts": ", ".join(map(str, job.sizes)) if job.slots else None,
        "Cut off": job.cut_off and f"at {moment(job.cut_off)}: its training plan ends, and it waits again",
        "Retries": f"{job.retried} of {job.retries} used" if job.retries else None,
        "Submitted": moment(job.entry_time),
        **_times(job),
        "Training job": job.training_job_name,
    }
    headings = ["No.", "Training Job", *(["Instances"] if job.sizes else []), "Started", "Ended", "Ran", "Outcome"]
    attempts = [
        [
            *[run.attempt, run.training_job_name, *([run.instances] if job.sizes else [])],
            *[moment(run.started), moment(run.ended), age(run.started, run.ended), run.outcome],
        ]
        for run in job.attempts
    ]
    parts = [job.job, facts(about, width)]
    if attempts:
        parts += ["\nAttempts", _fitting(headings, attempts, width)]
    if job.history:
        earlier = len(job.history) - SHOWN
        more = f" (the latest {SHOWN}; smq events {job.job} tells all)" if earlier > 0 else ""
        parts += [f"\nHistory{more}", _history(job.history[-SHOWN:], width)]
    if job.request:
        parts += ["\nRequest", facts(_request_facts(job), width)]
    return "\n".join(parts)


def _fitting(headings: list[str], attempts: Sequence[list[Any]], width: int | None) -> str:
    """Return the attempts as a table; without their ends where it would be too wide: start and time tell them."""
    page = table(headings, attempts)
    if width is None or len(page.splitlines()[1]) <= width:
        return page
    end = headings.index("Ended")
    return table(headings[:end] + headings[end + 1 :], [row[:end] + row[end + 1 :] for row in attempts])


def events_page(job: JobDetail, width: int | None = None) -> str:
    """Return the job's transitions, with the whole of their causes."""
    return _history(job.history, width)


def _history(transitions: Iterable[Transition], width: int | None) -> str:
    rows = [[moment(change.at), change.attempt, change.state, change.cause] for change in transitions]
    return table(["Time (UTC)", "Attempt", "State", "Cause"], rows, wrapped="Cause", width=width)


def _for_how_long(job: JobSummary) -> str:
    if job.state_since is None:
        return ""
    return f", {in_words(since(job.state_since))} ago" if job.finished else f", for {in_words(since(job.state_since))}"


def _times(job: JobDetail) -> dict[str, object]:
    """For how long it has run, all attempts together, and waited, in words."""
    if job.entry_time is None or any(run.started is None for run in job.attempts):
        return {}
    ran = sum(since(run.started, run.ended) for run in job.attempts)
    waited = since(job.entry_time, job.state_since if job.finished else None) - ran
    attempts = f" in {amount(len(job.attempts), 'attempt')}" if len(job.attempts) > 1 else ""
    return {"Ran": f"{in_words(ran)}{attempts}" if job.attempts else None, "Waited": in_words(waited)}


def _command(request: Any) -> str | None:
    """Return what it runs: the command of ``smq submit``, an estimator's script, or what its container begins with."""
    parameters, algorithm = request.get("HyperParameters", {}), request.get("AlgorithmSpecification", {})
    pieces = [parameters.get("command"), *(parameters.get(f"command_{number}") for number in range(2, 100))]
    try:
        words = json.loads("".join(piece for piece in pieces if piece))
    except ValueError:  # of another, or not shown to everybody
        words = None
    if isinstance(words, list):
        return shlex.join(map(str, words))
    script = str(parameters.get("sagemaker_program", "")).strip('"')
    begins = algorithm.get("ContainerEntrypoint", []) + algorithm.get("ContainerArguments", [])
    return script or (shortened(shlex.join(map(str, begins))) if begins else None)


def _output(job: JobDetail) -> str | None:
    """Return where the latest attempt's output is, or will be; before the first the folder that has it then."""
    folder = job.request.get("OutputDataConfig", {}).get("S3OutputPath")
    names = [run.training_job_name for run in job.attempts if run.training_job_name]
    return f"{folder.rstrip('/')}/{names[-1]}/output/" if folder and names else folder


def _request_facts(job: JobDetail) -> dict[str, object]:
    """Pick what tells one training job from another; ``smq show --json`` has the whole request."""
    request = job.request
    resources = request.get("ResourceConfig", {})
    algorithm = request.get("AlgorithmSpecification", {})
    groups = resources.get("InstanceGroups") or [resources]
    seconds = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    return {
        "Command": _command(request),
        "Image": algorithm.get("TrainingImage") or algorithm.get("AlgorithmName"),
        "Instances": ", ".join(
            f"{group.get('InstanceCount')} x {group['InstanceType']}" for group in groups if "InstanceType" in group
        ),
        "Maximum runtime": seconds and in_words(seconds),
        "Role": request.get("RoleArn"),
        "Output": _output(job),
        "Checkpoints": request.get("CheckpointConfig", {}).get("S3Uri") or "none: a preemption starts from scratch",
        "Tags": ", ".join(f"{tag.get('Key')}={tag.get('Value')}" for tag in request.get("Tags", [])),
    }
