"""What the scheduler decides: a plan of starts, evictions and holds, each with its why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from job_queue.scheduler.model import Slots


class Reason(StrEnum):
    """Why a job waits. Where several apply, the first in this order is given."""

    HELD_BY_USER = "HELD_BY_USER"
    BACKOFF = "BACKOFF"
    NO_SUCH_POOL = "NO_SUCH_POOL"
    NEVER_FITS = "NEVER_FITS"  # asks for more than its pool has at all
    OVER_LIMIT = "OVER_LIMIT"
    OVER_QUOTA_NON_PREEMPTIBLE = "OVER_QUOTA_NON_PREEMPTIBLE"
    WAITING_FOR_STOPPING = "WAITING_FOR_STOPPING"  # slots being freed are set aside for it
    KEPT_FOR_PATIENT_JOB = "KEPT_FOR_PATIENT_JOB"
    BEHIND_FAIR_SHARE = "BEHIND_FAIR_SHARE"
    BEHIND_HIGHER_PRIORITY = "BEHIND_HIGHER_PRIORITY"  # a job ahead of it in its project lacks slots too
    WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"


class Rule(StrEnum):
    """By which rule a job is made to leave."""

    PREEMPT = "preempt"  # a higher priority of its own project
    RECLAIM = "reclaim"  # another project's share
    CONSOLIDATE = "consolidate"  # it can run in another pool, the claimant cannot


@dataclass(frozen=True, slots=True)
class Start:
    """Launch this waiting job on these slots."""

    job: str
    slots: Slots


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop this active job so that the claimant can start."""

    job: str
    claimant: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave this job waiting, and why: a code for machines, a sentence for people."""

    job: str
    reason: Reason
    message: str
    ahead: tuple[str, ...] = ()  # waiting jobs that come first and want the same pools; the first 20 of them
    blockers: tuple[str, ...] = ()  # active jobs that hold what it needs


@dataclass(frozen=True, slots=True)
class Plan:
    """One cycle's decisions. Holds stand in the order in which their jobs would be served."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reservations: Mapping[str, Slots] = field(default_factory=dict)  # all that stand after this plan
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # pool -> queue -> fair share
