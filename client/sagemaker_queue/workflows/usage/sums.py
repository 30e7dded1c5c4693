"""Sum up the usage of finished attempts (hours, GPU-hours, cost) by project, owner, pool or another key.

The usage of an attempt that counts for several keys is divided among the keys, so that it counts once in the total.
Sums are in seconds, or in instance-seconds where stated; ``Usage.hours`` converts the sums to hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from api_contract.history import PastAttempt
from sagemaker_queue.jobs.formatting import short_owner
from sagemaker_queue.workflows.usage.causes import Cause, milliseconds_by_cause

MARKETS = ("on_demand", "spot", "training_plan")
HOUR = 3600
HOME = "(the queue's)"  # the key of attempts in the queue's region or account
NONE = "(none)"  # the key of attempts without a project, owner and so on

Parts = Iterator[tuple[str, float]]
"""The keys for which an attempt counts, each with the attempt's part that counts; the parts add up to 1."""


def _single_part(key: Callable[[PastAttempt], str | None]) -> Callable[[PastAttempt], Parts]:
    return lambda attempt: iter([(key(attempt) or NONE, 1.0)])


def _pools(attempt: PastAttempt) -> Parts:
    total = sum(attempt.slots.values())
    if not total:  # the attempt shared an instance, which counts for its carrier
        return iter([(pool, 1 / len(attempt.slots)) for pool in attempt.slots] or [(NONE, 1.0)])
    return iter([(pool, count / total) for pool, count in attempt.slots.items()])


KEYS: Mapping[str, Callable[[PastAttempt], Parts]] = {
    "project": _single_part(lambda attempt: attempt.project),
    "owner": _single_part(lambda attempt: short_owner(attempt.owner)),
    "group": _single_part(lambda attempt: attempt.group),
    "pool": _pools,
    "department": _single_part(lambda attempt: attempt.department),
    "region": _single_part(lambda attempt: attempt.region or HOME),
    "account": _single_part(lambda attempt: attempt.account or HOME),
    "day": _single_part(lambda attempt: attempt.ended.strftime("%Y-%m-%d") if attempt.ended else None),
}


class PriceList:
    """The hourly prices of instances in the policy document.

    ``document`` is the policy's field ``prices``: for each instance type a number, or a number for each market.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._prices = document

    def __bool__(self) -> bool:
        """Return whether there are any prices."""
        return bool(self._prices)

    def of(self, instance_type: str, market: str | None) -> float | None:
        """Return the hourly price of an instance; None if the policy has no price for its type and market."""
        price = self._prices.get(instance_type)
        if isinstance(price, Mapping):
            price = price.get(market or MARKETS[0])
        return None if price is None else float(price)

    def of_attempt(self, attempt: PastAttempt) -> tuple[float, int]:
        """Return the hourly price of all instances with a price, and the number of instances without a price."""
        found = [(self.of(kind, attempt.market), number) for kind, number in attempt.instances.items()]
        known = [(price, number) for price, number in found if price is not None]
        priced = sum(number for _, number in known)
        return sum(price * number for price, number in known), max(0, attempt.instance_count - priced)


@dataclass
class Usage:
    """Sums of usage. Times of instances are in instance-seconds, other times in seconds."""

    attempts: float = 0
    ran: float = 0  # instance-seconds from TrainingStartTime to TrainingEndTime, which SageMaker bills
    gpus: float = 0  # GPU-seconds in the same time
    unknown_gpus: float = 0  # instance-seconds of types without GPUs or with an unknown number of GPUs
    # GPU-seconds of attempts with a known utilization; on a shared instance, of the carrier and not of its members
    measured_gpus: float = 0
    used_gpus: float = 0  # the part of `measured_gpus` in which GPUs worked, by the mean utilization
    borrowed: float = 0  # the part of `ran` beyond the project's quota
    lost: float = 0  # the part of `ran` lost by preemptions, requeues and drains, as far as known (`Cause.PREEMPTION`)
    provisioned: float = 0  # instance-seconds from the launch to TrainingStartTime
    waited: float = 0  # seconds of jobs, independent of their number of instances
    cost: float = 0
    unpriced: float = 0  # the part of `ran` of types without a price
    jobs: set[tuple[str, object]] = field(default_factory=set)

    def add(self, attempt: PastAttempt, part: float, prices: PriceList) -> None:
        """Add the given part (0 to 1) of an attempt."""
        running = attempt.ran_seconds * part
        count = attempt.instance_count
        self.ran += running * count
        self.borrowed += running * min(attempt.borrowed, count)
        self.lost += milliseconds_by_cause(attempt)[Cause.PREEMPTION] / 1000 * part * count
        self.provisioned += attempt.provisioned_seconds * part * count
        # The utilization is measured for a shared instance, not for its members. So the carrier counts here.
        if attempt.gpu_mean_percent is not None:
            measured = running * (attempt.gpus or 0)
            self.measured_gpus += measured
            self.used_gpus += measured * attempt.gpu_mean_percent / 100
        # A carrier is left out of these sums, because its members count instead.
        if attempt.carries is None:
            self.attempts += part
            self.waited += attempt.waited_seconds * part
            self.jobs.add((attempt.job, attempt.submitted))
            if attempt.gpus is None:
                self.unknown_gpus += running * count
            else:
                self.gpus += running * attempt.gpus
        hourly, unpriced = prices.of_attempt(attempt)
        self.cost += running * hourly / HOUR
        self.unpriced += running * unpriced

    def hours(self) -> dict[str, float]:
        """Return the sums by name, times converted to hours."""
        times = {each.name: getattr(self, each.name) / HOUR for each in fields(self) if each.name not in _NO_TIMES}
        return {
            "jobs": len(self.jobs),
            "attempts": round(self.attempts),
            "instance_hours": times["ran"],
            "gpu_hours": times["gpus"],
            "in_quota_hours": times["ran"] - times["borrowed"],
            "borrowed_hours": times["borrowed"],
            "lost_hours": times["lost"],
            "provisioned_hours": times["provisioned"],
            "waited_hours": times["waited"],
            "cost": self.cost,
            "unpriced_hours": times["unpriced"],
            "unknown_gpu_hours": times["unknown_gpus"],
            "measured_gpu_hours": times["measured_gpus"],
            "used_gpu_hours": times["used_gpus"],
        }


_NO_TIMES = ("attempts", "cost", "jobs")


def sum_usage(attempts: Iterable[PastAttempt], by: str, prices: PriceList) -> tuple[dict[str, Usage], Usage]:
    """Return the usage by key, largest first (days in order), and the total.

    By owner or group, the usage of a shared instance is divided among the keys of its members, by their GPU-hours.
    """
    parts, total, known = KEYS[by], Usage(), list(attempts)
    shares = _carrier_shares(known, by) if by in ("owner", "group") else {}
    found: dict[str, Usage] = {}
    for attempt in known:
        total.add(attempt, 1, prices)
        for key, part in shares.get(attempt.job) or parts(attempt):
            found.setdefault(key, Usage()).add(attempt, part, prices)
    order = sorted(found) if by == "day" else sorted(found, key=lambda key: (-found[key].ran, key))
    return {key: found[key] for key in order}, total


def _carrier_shares(attempts: Iterable[PastAttempt], by: str) -> dict[str, list[tuple[str, float]]]:
    """Return, by carrier, the keys of its members, each with its part of the carrier's GPU-hours."""
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for attempt in attempts:
        if attempt.carrier is not None:
            for key, part in KEYS[by](attempt):
                seconds[attempt.carrier][key] += attempt.ran_seconds * (attempt.gpus or 0) * part
    return {
        carrier: [(key, had / sum(keys.values())) for key, had in keys.items()]
        for carrier, keys in seconds.items()
        if sum(keys.values())
    }
