"""The emulated AWS account: its quotas, request rates, training plans and history.

This module also parses these options of the commands. Each parser raises a ValueError with a sentence for the user.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from local_cloud.sagemaker.wire import EmulatedError

MAX_HISTORY = 100_000
TYPE = r"ml\.[a-z0-9-]+\.[a-z0-9]+"
LONGEST_RUN = "Longest run time for a training job"
LARGEST_JOB = "Maximum number of instances per training job"
LARGEST_SPOT_JOB = "Maximum number of instances per spot training job"
ALL_JOBS = "Number of instances across all training jobs"
ALL_SPOT_JOBS = "Number of instances across all spot training jobs"
ALL_PROCESSING = "Number of instances across all processing jobs"
LONGEST_KEPT = "Keep alive period for cluster reuse"
QUOTAS = (LONGEST_RUN, LONGEST_KEPT, LARGEST_JOB, LARGEST_SPOT_JOB, ALL_JOBS, ALL_SPOT_JOBS, ALL_PROCESSING)
"""The quotas of an account that name no instance type, under the names of Service Quotas."""
USAGE = re.compile(rf"{TYPE} for (training job|spot training job|training warm pool) usage")
DEFAULTS = {LONGEST_RUN: 432_000, LONGEST_KEPT: 3_600, LARGEST_JOB: 20, LARGEST_SPOT_JOB: 20}
"""The default quotas of a new account, in seconds and instances (guide: regions-quotas)."""
STRICT_HISTORY = 300
STRICT_QUOTA_LAG = 60.0  # seconds; syne-tune issue 250: "can take several minutes"


@dataclass(frozen=True)
class Times:
    """The durations of steps in the life of a training job, in seconds."""

    stop_grace: float
    unhandled_grace: float
    startup_delay: float
    deletion: float  # the time for which a deleted training job has the status Deleting


TIMES = Times(stop_grace=10.0, unhandled_grace=0.5, startup_delay=0.0, deletion=0.5)
# On AWS the grace period of a stop is 120 s, and a start takes minutes.
STRICT_TIMES = Times(stop_grace=5.0, unhandled_grace=5.0, startup_delay=2.0, deletion=2.0)
TRAINING_JOB = "training-job"  # the target of plans for training jobs
TARGETS = (TRAINING_JOB, "hyperpod-cluster", "endpoint", "studio-apps")
"""The resources that a training plan may be for, as DescribeTrainingPlan names them."""
_PLAN_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}"


@dataclass(frozen=True)
class Rate:
    """A limit of calls: `per_second` on average, and `burst` at once after a time without calls."""

    per_second: float
    burst: int


@dataclass(frozen=True)
class Moment:
    """A time in epoch seconds or, if `relative`, in seconds from the start of the emulator."""

    seconds: float
    relative: bool = False

    def epoch(self, start: float) -> float:
        """Return the time in epoch seconds, for an emulator that started at `start`."""
        return start + self.seconds if self.relative else self.seconds


@dataclass(frozen=True)
class PlanOption:
    """A training plan: `instances` from `start` to `end`, of `instance_type`, or of any type if that is None."""

    name: str
    instances: int
    start: Moment
    end: Moment
    instance_type: str | None = None
    targets: tuple[str, ...] = (TRAINING_JOB,)


@dataclass(frozen=True)
class Account:
    """The options of the account. A quota that is not named has no limit, except through `quota_per_type`."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    create_rate: Rate | None = None
    """The rate of CreateTrainingJob; None is no limit."""
    list_rate: Rate | None = None
    """The rate of ListTrainingJobs; None is no limit."""
    history: int = 0
    """The number of training jobs that ended before the emulator started."""
    plans: tuple[PlanOption, ...] = ()
    quota_lag: float | None = None
    """Seconds for which instances count toward quotas after a job or a warm pool has ended; None is 0."""
    quota_per_type: int | None = None
    """The quota of an instance type in a market (on demand or spot) for which `quotas` has none; None: no limit.

    Types with a given number of instances do not get this quota.
    """

    def with_slots(self, slots: int) -> "Account":
        """Return the account with `quota_per_type` set to `slots` if it has a quota lag and no `quota_per_type`.

        Without a quota, the lag would have no effect.
        """
        return replace(self, quota_per_type=slots) if self.quota_lag and self.quota_per_type is None else self


def strict_account(given: Account) -> Account:
    """Return the account with AWS's defaults for a new account, except where `given` sets an option."""
    return replace(
        given,
        quotas={**DEFAULTS, **given.quotas},
        create_rate=given.create_rate or Rate(1, 10),
        list_rate=given.list_rate or Rate(2, 2),
        history=given.history or STRICT_HISTORY,
        quota_lag=STRICT_QUOTA_LAG if given.quota_lag is None else given.quota_lag,
    )


def parse_quota(text: str) -> tuple[str, int]:
    """Parse `NAME=LIMIT`, where NAME is SageMaker's name of the quota."""
    name, _, limit = (part.strip() for part in text.rpartition("="))
    if not re.fullmatch(r"[0-9]{1,9}", limit) or not name:
        raise ValueError(f"{text!r} is not of the form NAME=LIMIT, such as 'ml.p5.48xlarge for training job usage=4'")
    if name not in QUOTAS and not USAGE.fullmatch(name):
        kinds = " | ".join(f"'TYPE for {kind} usage'" for kind in ("training job", "spot training job"))
        raise ValueError(
            f"SageMaker has no quota {name!r} for training; known are {kinds} | 'TYPE for training warm pool usage' | "
            + " | ".join(f"'{known}'" for known in QUOTAS)
        )
    return name, int(limit)


def parse_rate(text: str) -> Rate:
    """Parse `CALLS/BURST`: calls per second on average, and calls at once after a pause."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)/([0-9]{1,6})", text)
    if not match or float(match[1]) <= 0 or int(match[2]) < 1:
        raise ValueError(f"{text!r} is not of the form CALLS/BURST, such as 1/10: calls a second, and at once")
    return Rate(float(match[1]), int(match[2]))


def parse_history(text: str) -> int:
    """Parse the number of training jobs that ended before the emulator started."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) > MAX_HISTORY:
        raise ValueError(f"{text!r} is not a number from 0 to {MAX_HISTORY}")
    return int(text)


def parse_seconds(text: str) -> float:
    """Parse a duration in seconds."""
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]+)?", text):
        raise ValueError(f"{text!r} is not a number of seconds, such as 180")
    return float(text)


def parse_plan(text: str) -> PlanOption:
    """Parse `NAME=COUNT,START,END[,TYPE][,TARGET+TARGET]`; a plan without targets is for training jobs."""
    name, _, rest = text.partition("=")
    parts = [part.strip() for part in rest.split(",")]
    targets: tuple[str, ...] = (TRAINING_JOB,)
    if len(parts) > 3 and (named := parts[-1].split("+")) and set(named) <= set(TARGETS):  # noqa: PLR2004
        targets, parts = tuple(named), parts[:-1]
    if not re.fullmatch(_PLAN_NAME, name) or len(parts) not in (3, 4):
        raise ValueError(f"{text!r} is not of the form NAME=COUNT,START,END[,TYPE][,TARGETS], such as june=8,+0,+7200")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", parts[0]):
        raise ValueError(f"the plan {name} must have from 1 to 99999 instances, not {parts[0]!r}")
    start, end = parse_moment(parts[1]), parse_moment(parts[2])
    if start.relative == end.relative and end.seconds <= start.seconds:
        raise ValueError(f"the plan {name} must end after it starts")
    kind = parts[3] if len(parts) == 4 else None  # noqa: PLR2004
    if kind is not None and not re.fullmatch(TYPE, kind):
        raise ValueError(f"the plan {name} has no instance type {kind!r}; one is such as ml.p5.48xlarge")
    return PlanOption(name, int(parts[0]), start, end, kind, targets)


def parse_moment(text: str) -> Moment:
    """Parse an ISO time (UTC if no zone is given), or `+seconds` or `-seconds` from the start of the emulator."""
    if re.fullmatch(r"[+-][0-9]+(\.[0-9]+)?", text):
        return Moment(float(text), relative=True)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: give one such as 2026-06-01T09:00:00Z, or +60 (seconds)") from None
    return Moment((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def limit_exceeded(name: str, limit: int, used: int, wanted: int, unit: str = "Instances") -> EmulatedError:
    """Return the error for a reached quota, in SageMaker's words, for the caller to raise."""
    return EmulatedError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{name}' is {limit} {unit}, with current utilization of {used} {unit} and a "
        f"request delta of {wanted} {unit}. Please use AWS Service Quotas to request an increase for this quota. If "
        "AWS Service Quotas is not available, contact AWS support to request an increase for this quota.",
    )
