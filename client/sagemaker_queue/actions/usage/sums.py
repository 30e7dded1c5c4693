"""What attempts have used, summed up: each figure of an attempt counts once, for whomever it is summed up.

Sums are of seconds, times instances where that is said; what is shown is in hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sagemaker_queue.formatting import short_owner
from sagemaker_queue.models import PastAttempt

MARKETS = ("on_demand", "spot", "training_plan")
HOUR = 3600
NONE = "(none)"  # those of whom the key is not known

Parts = Iterator[tuple[str, float]]
"""To whom an attempt counts, and which part of it; the parts are 1 together."""


def _whole(key: Callable[[PastAttempt], str | None]) -> Callable[[PastAttempt], Parts]:
    return lambda attempt: iter([(key(attempt) or NONE, 1.0)])


def _pools(attempt: PastAttempt) -> Parts:
    total = sum(attempt.slots.values())
    if not total:  # it shared an instance, which counts for another
        return iter([(pool, 1 / len(attempt.slots)) for pool in attempt.slots] or [(NONE, 1.0)])
    return iter([(pool, count / total) for pool, count in attempt.slots.items()])


KEYS: Mapping[str, Callable[[PastAttempt], Parts]] = {
    "project": _whole(lambda attempt: attempt.project),
    "owner": _whole(lambda attempt: short_owner(attempt.owner)),
    "group": _whole(lambda attempt: attempt.group),
    "pool": _pools,
    "department": _whole(lambda attempt: attempt.department),
    "day": _whole(lambda attempt: attempt.ended.strftime("%Y-%m-%d") if attempt.ended else None),
}


class PriceList:
    """What instances cost an hour, as the policy's document says it.

    :param document: the field ``prices`` of the policy: by instance type a number, or numbers by market.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._prices = document

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._prices)

    def of(self, instance_type: str, market: str | None) -> float | None:
        """Return what an instance costs an hour; None if nobody has said."""
        price = self._prices.get(instance_type)
        if isinstance(price, Mapping):
            price = price.get(market or MARKETS[0])
        return None if price is None else float(price)


@dataclass
class Usage:
    """What was used. Times are seconds, those of instances times instances."""

    attempts: float = 0
    ran: float = 0  # instances, from TrainingStartTime to TrainingEndTime: what SageMaker bills
    gpus: float = 0  # the same, times their accelerators
    unknown_gpus: float = 0  # instances of types of which their number is not known, or which have none
    borrowed: float = 0  # the part of `ran` beyond the project's quota
    lost: float = 0  # the part of `ran` that preemptions threw away, as far as that is known
    provisioned: float = 0  # instances, from the launch to TrainingStartTime
    waited: float = 0  # of jobs, whatever they ask for
    cost: float = 0
    unpriced: float = 0  # the part of `ran` of types without a price
    jobs: set[tuple[str, object]] = field(default_factory=set)

    def add(self, attempt: PastAttempt, part: float, prices: PriceList) -> None:
        """Count a part of an attempt."""
        running = attempt.ran_seconds * part
        count = attempt.instance_count
        self.ran += running * count
        self.borrowed += running * min(attempt.borrowed, count)
        self.lost += min(attempt.lost_seconds or 0, attempt.ran_seconds) * part * count
        self.provisioned += attempt.provisioned_seconds * part * count
        if attempt.carries is None:  # else the queue's own: its instance is used, and its GPUs by those on board
            self.attempts += part
            self.waited += attempt.waited_seconds * part
            self.jobs.add((attempt.job, attempt.submitted))
            if attempt.gpus is None:
                self.unknown_gpus += running * count
            else:
                self.gpus += running * attempt.gpus
        known = 0
        for instance_type, number in attempt.instances.items():
            price = prices.of(instance_type, attempt.market)
            if price is not None:
                known += number
                self.cost += running * number * price / HOUR
        self.unpriced += running * max(0, count - known)

    def hours(self) -> dict[str, float]:
        """Return the figures as people count: hours."""
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
        }


_NO_TIMES = ("attempts", "cost", "jobs")


def summed(attempts: Iterable[PastAttempt], by: str, prices: PriceList) -> tuple[dict[str, Usage], Usage]:
    """Return what was used by each, who used most first (days in their order), and what by all together.

    An instance that jobs shared is used by those who had its GPUs, each for their part of the GPU-hours.
    """
    parts, total, known = KEYS[by], Usage(), list(attempts)
    aboard = _aboard(known, by) if by in ("owner", "group") else {}
    found: dict[str, Usage] = {}
    for attempt in known:
        total.add(attempt, 1, prices)
        for key, part in aboard.get(attempt.job) or parts(attempt):
            found.setdefault(key, Usage()).add(attempt, part, prices)
    order = sorted(found) if by == "day" else sorted(found, key=lambda key: (-found[key].ran, key))
    return {key: found[key] for key in order}, total


def _aboard(attempts: Iterable[PastAttempt], by: str) -> dict[str, list[tuple[str, float]]]:
    """Carrier -> whom its members are of, and which part of the GPU-hours on it each had."""
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
