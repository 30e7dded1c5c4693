"""Divide the instance time of attempts by cause: useful, provisioning, lost, hung or idle.

Each cause is defined here and nowhere else. The times are whole milliseconds, so that the causes of an attempt add up
to the time that the attempt held its instances, without rounding errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from api_contract.history import PastAttempt
from api_contract.models import INTERRUPTED


class Cause(str, Enum):
    """The use or the loss of a part of an attempt's time."""

    USEFUL = "useful"
    """The rest: the attempt ran, and its work was kept."""
    PROVISIONING = "provisioning"
    """SageMaker provided the instances: from the launch to their arrival, or to the end if they never arrived."""
    PREEMPTION = "preemption"
    """Work since the newest checkpoint that the queue has seen, if a preemption, requeue or drain lost this work; 0 if
    the loss is unknown."""
    FAILURE = "failure"
    """Work of a failed attempt since the newest checkpoint that the queue has seen. If the loss is unknown, all time in
    which the attempt ran."""
    HUNG = "hung"
    """The time at the end of the attempt in which the attempt hung."""
    IDLE = "idle"
    """Other time in which the attempt's GPUs did nothing."""


TITLES: Mapping[Cause, str] = {
    Cause.USEFUL: "useful",
    Cause.PROVISIONING: "waiting for instances",
    Cause.PREEMPTION: "lost to preemptions",
    Cause.FAILURE: "lost to failures",
    Cause.HUNG: "hung",
    Cause.IDLE: "idle",
}
"""The causes in sentences and tables."""


def held_milliseconds(attempt: PastAttempt) -> int:
    """Return the time from the launch of an attempt to its end, in which it held its instances."""
    return _milliseconds(attempt.provisioned_seconds) + _milliseconds(attempt.ran_seconds)


def milliseconds_by_cause(attempt: PastAttempt) -> dict[Cause, int]:
    """Return the milliseconds of each cause; HUNG and IDLE are left out if their time is unknown.

    The sum is ``held_milliseconds``. Time with two causes counts for the first of hung, lost and idle.
    """
    ran = _milliseconds(attempt.ran_seconds)
    left = ran
    parts = {Cause.PROVISIONING: _milliseconds(attempt.provisioned_seconds)}

    def assign(cause: Cause, milliseconds: int) -> None:
        nonlocal left
        parts[cause] = min(max(0, milliseconds), left)
        left -= parts[cause]

    hung = 0
    if attempt.hung_seconds is not None:
        assign(Cause.HUNG, _milliseconds(attempt.hung_seconds))
        hung = parts[Cause.HUNG]
    lost = None if attempt.lost_seconds is None else _milliseconds(attempt.lost_seconds)
    # No checkpoint is written during a hang, so the lost work includes the hang, which is already counted.
    assign(Cause.PREEMPTION, (lost or 0) - hung if attempt.outcome in INTERRUPTED else 0)
    assign(Cause.FAILURE, (ran if lost is None else lost) - hung if attempt.outcome == "failed" else 0)
    if attempt.idle_seconds is not None:
        assign(Cause.IDLE, _milliseconds(attempt.idle_seconds))
    parts[Cause.USEFUL] = left
    return parts


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
