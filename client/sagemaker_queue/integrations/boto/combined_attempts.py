"""Combine the attempts of a job into the times and secondary statuses of a single training job.

For an attempt that SageMaker describes, SageMaker's description is used. An attempt on a shared instance has no
training job of its own: the queue's record gives its training seconds, and it has no billable seconds. An attempt whose
training job was deleted counts 0 seconds. For attempts that were not read from SageMaker, the queue's record is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Optional

from api_contract.models import WAITING, Attempt, JobDetail
from sagemaker_queue.jobs.formatting import state_sentence

Description = dict[str, Any]
AttemptDescriptions = Mapping[int, Optional[Mapping[str, Any]]]
"""SageMaker's descriptions of attempts by number. None: SageMaker does not know the attempt. No entry: not read."""

USED_FIELDS = ("SecondaryStatusTransitions", "TrainingStartTime", "TrainingTimeInSeconds", "BillableTimeInSeconds")
"""The fields of descriptions that this module reads."""

STATUS_OF_FINISHED = {"completed": "Completed", "failed": "Failed", "stopped": "Stopped"}
SECONDARY_STATUS = {
    "pending": "Pending",
    "starting": "Starting",
    "running": "Training",
    "stopping": "Interrupted",
    "preempted": "Interrupted",
    **STATUS_OF_FINISHED,
}
"""SageMaker's secondary status for each state in a job's history. The present status of a waiting job is Pending."""

# The statuses by which an attempt ends. The job shows these statuses for its last attempt only.
_END_STATUSES = frozenset({"Stopping", "Stopped", "Completed", "Failed", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"})
_Stage = tuple[str, Optional[datetime], str]


def times(job: JobDetail, descriptions: AttemptDescriptions) -> Description:
    """Return the earliest start of training, and the sums of the attempts' training seconds and billable seconds.

    In the queue's record, an attempt starts with its launch.
    """
    starts = [it["TrainingStartTime"] for it in descriptions.values() if it is not None and "TrainingStartTime" in it]
    undescribed = [attempt for attempt in job.attempts if descriptions.get(attempt.attempt) is None]
    starts += [it.started for it in undescribed if it.started and (_seconds(it) > 0 or it.carrier)]
    answer: Description = {}
    if starts:
        answer["TrainingStartTime"] = min(starts)
    for measure in ("TrainingTimeInSeconds", "BillableTimeInSeconds"):
        seconds = [it[measure] for it in descriptions.values() if it is not None and measure in it]
        for attempt in undescribed:
            is_read = attempt.attempt in descriptions
            is_counted = measure == "TrainingTimeInSeconds" if attempt.carrier else not is_read
            if attempt.ended and is_counted:
                seconds.append(_seconds(attempt))
        if seconds:
            answer[measure] = sum(seconds)
    return answer


def transitions_of_attempts(
    job: JobDetail, descriptions: AttemptDescriptions, current: Mapping[str, Any]
) -> list[Description]:
    """Return the secondary statuses of all attempts. The current attempt's statuses come last."""
    past = [it for it in job.history if it.attempt != job.attempt or it.state in WAITING]
    stages = _stages(past, {number: described for number, described in descriptions.items() if number != job.attempt})
    own = current.get("SecondaryStatusTransitions", [])
    stages += [(it["Status"], it["StartTime"], it.get("StatusMessage", "")) for it in own]
    return _written(stages, own[-1].get("EndTime") if own else None)


def transitions_of_record(job: JobDetail, descriptions: AttemptDescriptions) -> list[Description]:
    """Return the secondary statuses of a job. The last one is the job's present state, from the queue's record."""
    past = list(job.history)
    message = state_sentence(job)
    if past and past[-1].state == job.state and job.state != "preempted":
        cause = past.pop().cause
        message = message if job.waits or cause in message else f"{message}: {cause}"
    stages = _stages(past, descriptions)
    now = "Pending" if job.waits else SECONDARY_STATUS.get(job.state, "Pending")
    stages.append((now, job.state_since or job.entry_time, message))
    return _written(stages, job.state_since if job.finished else None)


def _stages(past: Any, descriptions: AttemptDescriptions) -> list[_Stage]:
    """Return the stages of the history. For attempts that SageMaker knows, use SageMaker's statuses.

    Leave out SageMaker's statuses at the end of an attempt, because the caller adds the job's own last status.
    """
    stages: list[_Stage] = []
    inserted: set[int] = set()
    for transition in past:
        described = descriptions.get(transition.attempt) if transition.attempt is not None else None
        if described is None or transition.state in WAITING:
            stages.append((SECONDARY_STATUS.get(transition.state, "Pending"), transition.at, transition.cause))
            continue
        if transition.attempt not in inserted:
            inserted.add(transition.attempt)
            stages += [
                (it["Status"], it["StartTime"], it.get("StatusMessage", ""))
                for it in described.get("SecondaryStatusTransitions", [])
                if it["Status"] not in _END_STATUSES
            ]
    return stages


def _written(stages: list[_Stage], end: datetime | None) -> list[Description]:
    """Return the stages in SageMaker's form. The end of each stage is the start of the next stage.

    Starts are made non-decreasing, since the queue's clock and SageMaker's may differ.
    """
    latest: datetime | None = None
    ordered: list[_Stage] = []
    for status, start, message in stages:
        if start is not None:
            latest = start if latest is None else max(latest, start)
        ordered.append((status, latest if start is not None else None, message))
    ends = [start for _, start, _ in ordered[1:]] + [end]
    return [
        {
            name: value
            for name, value in {"Status": status, "StartTime": start, "EndTime": end, "StatusMessage": message}.items()
            if value is not None
        }
        for (status, start, message), end in zip(ordered, ends)
    ]


def _seconds(attempt: Attempt) -> int:
    return round((attempt.ended - attempt.started).total_seconds()) if attempt.started and attempt.ended else 0
