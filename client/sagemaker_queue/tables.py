"""The queue as text for people: columns, ages, the page about one job."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tabulate import tabulate

from sagemaker_queue.answers import JobDetail, JobSummary

Column = tuple[str, Callable[[JobSummary], object]]

COLUMNS: dict[str, Column] = {
    "job": ("Job Name", lambda job: job.job),
    "state": ("State", lambda job: job.state),
    "priority": ("Priority", lambda job: job.priority),
    "position": ("Position", lambda job: job.position),
    "project": ("Project", lambda job: job.project),
    "owner": ("Owner", lambda job: _short_owner(job.owner)),
    "instances": ("Instances", lambda job: job.instances),
    "attempt": ("Attempt", lambda job: job.attempt),
    "age": ("Age", lambda job: age(job.entry_time)),
    "since": ("In State", lambda job: age(job.state_since)),
    "training-job": ("Training Job", lambda job: job.training_job_name),
    "reason": ("Reason", lambda job: job.reason and _shortened(job.reason.message)),
}
LONGEST_CELL = 72
ARTICLE = ("job", "state", "priority")
WIDE = (*ARTICLE, "position", "project", "owner", "instances", "attempt", "age", "reason")


def jobs_table(jobs: Iterable[JobSummary], columns: Sequence[str] = ARTICLE) -> str:
    """Return the jobs as a table of the named columns, in the order given."""
    chosen = [COLUMNS[name] for name in columns]
    return _table([header for header, _ in chosen], [[value(job) for _, value in chosen] for job in jobs])


def job_page(job: JobDetail) -> str:
    """Return all that is known of one job."""
    stopping = " (cancelled, being stopped)" if job.cancel_requested and not job.finished else ""
    facts = {
        "State": f"{job.state}{stopping}, for {age(job.state_since)}" if job.state_since else f"{job.state}{stopping}",
        "Priority": job.priority,
        "Position": job.position,
        "Reason": job.reason and job.reason.message and f"{job.reason.message} ({job.reason.code})",
        "Project": job.project,
        "Owner": job.owner,
        "Instances": job.instances,
        "Submitted": moment(job.entry_time),
        "Training job": job.training_job_name,
    }
    attempts = [
        [one.attempt, one.training_job_name, moment(one.started), moment(one.ended), one.outcome]
        for one in job.attempts
    ]
    history = [[moment(one.at), one.state, one.attempt, _shortened(one.cause)] for one in job.history]
    parts = [job.job, _facts(facts)]
    if attempts:
        parts += ["\nAttempts", _table(["No.", "Training Job", "Started", "Ended", "Outcome"], attempts)]
    if history:
        parts += ["\nHistory", _table(["Time (UTC)", "State", "Attempt", "Cause"], history)]
    if job.request:
        parts += ["\nRequest", _facts(_request_facts(job.request))]
    return "\n".join(parts)


def age(since: datetime | None) -> str:
    """Return the time since then in its two largest units: ``3d4h``, ``2h05m``, ``41s``."""
    if since is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"


def moment(time: datetime | None) -> str:
    """Return the time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if time else ""


def _request_facts(request: Any) -> dict[str, object]:
    """Pick what tells one training job from another; ``smq show --json`` has the whole request."""
    resources = request.get("ResourceConfig", {})
    algorithm = request.get("AlgorithmSpecification", {})
    groups = resources.get("InstanceGroups") or [resources]
    seconds = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    return {
        "Image": algorithm.get("TrainingImage") or algorithm.get("AlgorithmName"),
        "Instances": ", ".join(
            f"{one.get('InstanceCount')} x {one['InstanceType']}" for one in groups if "InstanceType" in one
        ),
        "Maximum runtime": seconds and f"{seconds} s",
        "Role": request.get("RoleArn"),
        "Output": request.get("OutputDataConfig", {}).get("S3OutputPath"),
        "Checkpoints": request.get("CheckpointConfig", {}).get("S3Uri") or "none: a preemption starts from scratch",
        "Tags": ", ".join(f"{tag.get('Key')}={tag.get('Value')}" for tag in request.get("Tags", [])),
    }


def _short_owner(arn: str | None) -> str | None:
    """Return ``alice`` for a user's ARN, ``Role/session`` for an assumed role's, ``root`` for the account's."""
    resource = (arn or "").rpartition(":")[2]
    return resource.partition("/")[2] or resource or None


def _shortened(text: str | None) -> str | None:
    """Cut a sentence to what a table bears; ``smq show`` has the whole."""
    one_line = " ".join((text or "").split())
    return one_line if len(one_line) <= LONGEST_CELL else f"{one_line[: LONGEST_CELL - 1]}…"


def _facts(facts: dict[str, object]) -> str:
    known = {name: _clean(value) for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, known))
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in known.items())


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[_clean(cell) for cell in row] for row in rows]
    # A job may be called 007 or 1e3: only what is a number is aligned like one.
    columns = list(zip(*cells, strict=True))
    words = [index for index, column in enumerate(columns) if any(isinstance(cell, str) for cell in column)]
    return tabulate(cells, headers=headers, disable_numparse=words, missingval="")


def _clean(cell: object) -> object:
    """Keep each cell on its line: reasons can come from a training script's own output."""
    if not isinstance(cell, str):
        return cell
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(cell.split()))
