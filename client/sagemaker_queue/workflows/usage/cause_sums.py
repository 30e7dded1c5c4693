"""Sum up the instance time of finished attempts by cause, with the useful part of each project's time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api_contract.history import PastAttempt
from sagemaker_queue.workflows.usage.causes import Cause, held_milliseconds, milliseconds_by_cause
from sagemaker_queue.workflows.usage.sums import KEYS, NONE, PriceList, Usage, sum_usage

BY_CAUSE = "cause"
GROUPINGS = (*KEYS, BY_CAUSE)
"""The keys by which usage can be summed up."""
_HOUR = 3_600_000  # milliseconds


@dataclass
class CauseUsage:
    """A sum of time in which attempts held instances. Times are in instance-milliseconds."""

    held: int = 0
    cost: float = 0
    unpriced: int = 0
    of: int = 0  # the time of all causes together

    def hours(self) -> dict[str, float]:
        """Return the sums by name, times converted to hours."""
        return {
            "instance_hours": self.held / _HOUR,
            "share_percent": 100 * self.held / self.of if self.of else 0.0,
            "cost": self.cost,
            "unpriced_hours": self.unpriced / _HOUR,
        }


@dataclass
class ProjectCauses:
    """The time in which the attempts of a project held instances, in instance-milliseconds."""

    held: int = 0
    causes: dict[Cause, int] = field(default_factory=dict)

    @property
    def useful_percent(self) -> float | None:
        """The useful part of the time, in percent; None without any time."""
        return 100 * self.causes.get(Cause.USEFUL, 0) / self.held if self.held else None

    def hours(self) -> dict[Cause, float]:
        """Return the instance-hours of each cause."""
        return {cause: milliseconds / _HOUR for cause, milliseconds in self.causes.items()}

    @property
    def held_hours(self) -> float:
        """All instance-hours."""
        return self.held / _HOUR


@dataclass(frozen=True)
class UsageSums:
    """The usage by cause, by project or by another key."""

    by: str
    parts: Mapping[str, Usage] | Mapping[str, CauseUsage]
    """The usage of each key, the largest first (days by date, causes in a fixed order)."""
    total: Usage | CauseUsage
    projects: Mapping[str, ProjectCauses] = field(default_factory=dict)
    """The usage of each project by cause, the largest first; empty unless ``is_by_cause``."""

    @property
    def is_by_cause(self) -> bool:
        """Whether the keys are causes."""
        return self.by == BY_CAUSE


def usage_sums(attempts: Iterable[PastAttempt], by: str, prices: PriceList) -> UsageSums:
    """Return the usage by a key of ``GROUPINGS``."""
    return sum_causes(attempts, prices) if by == BY_CAUSE else UsageSums(by, *sum_usage(attempts, by, prices))


def sum_causes(attempts: Iterable[PastAttempt], prices: PriceList) -> UsageSums:
    """Return the usage by cause; the parts add up to the total.

    Hung and idle time is left out if it is unknown for all attempts. An instance that jobs shared counts once, for its
    carrier. Provisioning has no cost, because SageMaker bills from the arrival of the instances on.
    """
    parts = {cause: CauseUsage() for cause in Cause}
    total = CauseUsage()
    projects: dict[str, ProjectCauses] = {}
    known: set[Cause] = set()
    for attempt in attempts:
        count = attempt.instance_count
        hourly, unpriced = prices.of_attempt(attempt)
        project = projects.setdefault(attempt.project or NONE, ProjectCauses())
        total.held += held_milliseconds(attempt) * count
        project.held += held_milliseconds(attempt) * count
        for cause, milliseconds in milliseconds_by_cause(attempt).items():
            known.add(cause)
            project.causes[cause] = project.causes.get(cause, 0) + milliseconds * count
            parts[cause].held += milliseconds * count
            if cause is not Cause.PROVISIONING:
                for sums in (parts[cause], total):
                    sums.cost += milliseconds * hourly / _HOUR
                    sums.unpriced += milliseconds * unpriced
    shown = {cause.value: parts[cause] for cause in Cause if cause in known}
    for sums in (*shown.values(), total):
        sums.of = total.held
    order = sorted(projects, key=lambda name: (-projects[name].held, name))
    return UsageSums(BY_CAUSE, shown, total, {name: projects[name] for name in order})
