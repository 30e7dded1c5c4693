"""Sum up the failed attempts of a period by class, project, owner, instance type or GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from api_contract.history import PastAttempt
from sagemaker_queue.jobs.formatting import short_owner
from sagemaker_queue.workflows.usage.causes import Cause, milliseconds_by_cause
from sagemaker_queue.workflows.usage.sums import NONE

NOT_RECORDED = "(not recorded)"  # the class of a failure that an earlier version of the queue recorded
_HOUR = 3_600_000  # milliseconds

GPU = "gpu"
FAILURE_KEYS: Mapping[str, Callable[[PastAttempt], Sequence[str | None]]] = {
    "class": lambda attempt: [attempt.failure_class or NOT_RECORDED],
    "project": lambda attempt: [attempt.project],
    "owner": lambda attempt: [short_owner(attempt.owner)],
    "instance-type": lambda attempt: ["+".join(sorted(attempt.instances))],
    GPU: lambda attempt: attempt.gpu_uuids,
}
"""The keys by which failed attempts can be summed up, each with a function that returns an attempt's values.

An attempt counts once for each value. The key ``gpu`` has the GPUs that the log of a hardware failure names; attempts
without such GPUs do not count.
"""


@dataclass
class FailureSum:
    """A sum of failed attempts."""

    attempts: int = 0
    lost: int = 0  # instance-milliseconds of `Cause.FAILURE`
    latest: datetime | None = None  # the latest end
    jobs: set[tuple[str, object]] = field(default_factory=set)
    owners: set[str | None] = field(default_factory=set)
    classes: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)  # the training jobs, in the order of the history

    def add(self, attempt: PastAttempt) -> None:
        """Add a failed attempt."""
        self.attempts += 1
        self.lost += milliseconds_by_cause(attempt)[Cause.FAILURE] * attempt.instance_count
        self.latest = max((time for time in (self.latest, attempt.ended) if time), default=None)
        self.jobs.add((attempt.job, attempt.submitted))
        self.owners.add(attempt.owner)
        self.names.append(attempt.training_job_name or attempt.job)
        self.classes[attempt.failure_class or NOT_RECORDED] += 1

    @property
    def lost_hours(self) -> float:
        """Instance-hours that the failures have lost."""
        return self.lost / _HOUR

    @property
    def most_common(self) -> tuple[str, int] | None:
        """The most common class with its number of failures; None without failures."""
        return min(self.classes.items(), key=lambda it: (-it[1], it[0]), default=None)

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return {
            "failures": self.attempts,
            "jobs": len(self.jobs),
            "owners": len(self.owners),
            "lost_hours": round(self.lost_hours, 6),
            "latest": self.latest and f"{self.latest:%Y-%m-%dT%H:%M:%SZ}",
            "classes": dict(sorted(self.classes.items(), key=lambda it: (-it[1], it[0]))),
        }


def has_failed(attempt: PastAttempt) -> bool:
    """Return whether an attempt failed. An attempt with a failure class counts, whatever its outcome is."""
    return attempt.outcome == "failed" or attempt.failure_class is not None


def sum_failures(attempts: Iterable[PastAttempt], by: str) -> tuple[dict[str, FailureSum], FailureSum]:
    """Return the failed attempts of each key of ``FAILURE_KEYS``, the most failures first, and their total."""
    key, total = FAILURE_KEYS[by], FailureSum()
    found: dict[str, FailureSum] = {}
    for attempt in filter(has_failed, attempts):
        if parts := key(attempt):
            total.add(attempt)
        for part in parts:
            found.setdefault(part or NONE, FailureSum()).add(attempt)
    order = sorted(found, key=lambda name: (-found[name].attempts, name))
    return {name: found[name] for name in order}, total
