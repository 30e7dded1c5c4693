"""The AWS account that the emulator plays: its quotas, request rates, training plans and history.

The options of `up` and `exec` are read here. What is wrong with one is a ValueError that says it in a sentence.
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
"""What every account has at first, in seconds and instances (guide: regions-quotas)."""
STRICT_HISTORY = 300
STRICT_QUOTA_LAG = 60.0  # seconds; syne-tune issue 250: "can take several minutes"


@dataclass(frozen=True)
class Times:
    """How long things take, in seconds."""

    stop_grace: float
    unheard_grace: float
    startup_delay: float
    deletion: float  # in which a training job that is being deleted has the status Deleting


TIMES = Times(stop_grace=10.0, unheard_grace=0.5, startup_delay=0.0, deletion=0.5)
# AWS gives 120 s to stop, and takes minutes to start.
STRICT_TIMES = Times(stop_grace=5.0, unheard_grace=5.0, startup_delay=2.0, deletion=2.0)
TRAINING_JOB = "training-job"  # the target of a plan that training jobs may name
TARGETS = (TRAINING_JOB, "hyperpod-cluster", "endpoint", "studio-apps")
"""The resources that a training plan may be for, as DescribeTrainingPlan names them."""
_PLAN_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}"


@dataclass(frozen=True)
class Rate:
    """So many calls a second, and so many at once after a rest."""

    per_second: float
    burst: int


@dataclass(frozen=True)
class Moment:
    """A time: epoch seconds, or seconds from the start of the emulator."""

    seconds: float
    relative: bool = False

    def epoch(self, start: float) -> float:
        """Epoch seconds, if the emulator started at `start`."""
        return start + self.seconds if self.relative else self.seconds


@dataclass(frozen=True)
class PlanOption:
    """A training plan: so many instances from `start` to `end`; of any type if it names none."""

    name: str
    instances: int
    start: Moment
    end: Moment
    instance_type: str | None = None
    targets: tuple[str, ...] = (TRAINING_JOB,)


@dataclass(frozen=True)
class Account:
    """What the emulator is told about the account. A quota that is not named has no limit, see `of_each_type`."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    create_rate: Rate | None = None
    """Of CreateTrainingJob; None is no limit."""
    list_rate: Rate | None = None
    """Of ListTrainingJobs."""
    history: int = 0
    """How many training jobs have ended before."""
    plans: tuple[PlanOption, ...] = ()
    quota_lag: float | None = None
    """Seconds for which instances count toward quotas after a job or a warm pool has ended; None is 0."""
    of_each_type: int | None = None
    """The quota of each instance type in each market that `quotas` does not name; None is no limit."""

    def with_slots(self, slots: int) -> "Account":
        """Return the account with a quota of `slots` instances of each type, so that quota lag has an effect."""
        return replace(self, of_each_type=slots) if self.quota_lag and self.of_each_type is None else self


def strict_account(given: Account) -> Account:
    """The account as AWS makes it, where `given` says nothing else."""
    return replace(
        given,
        quotas={**DEFAULTS, **given.quotas},
        create_rate=given.create_rate or Rate(1, 10),
        list_rate=given.list_rate or Rate(2, 2),
        history=given.history or STRICT_HISTORY,
        quota_lag=STRICT_QUOTA_LAG if given.quota_lag is None else given.quota_lag,
    )


def parse_quota(text: str) -> tuple[str, int]:
    """`NAME=LIMIT`, by SageMaker's own name for it."""
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
    """`CALLS/BURST`: calls a second, and at once."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)/([0-9]{1,6})", text)
    if not match or float(match[1]) <= 0 or int(match[2]) < 1:
        raise ValueError(f"{text!r} is not of the form CALLS/BURST, such as 1/10: calls a second, and at once")
    return Rate(float(match[1]), int(match[2]))


def parse_history(text: str) -> int:
    """How many training jobs have ended before."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) > MAX_HISTORY:
        raise ValueError(f"{text!r} is not a number from 0 to {MAX_HISTORY}")
    return int(text)


def parse_seconds(text: str) -> float:
    """A time to wait."""
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]+)?", text):
        raise ValueError(f"{text!r} is not a number of seconds, such as 180")
    return float(text)


def parse_plan(text: str) -> PlanOption:
    """Read `NAME=COUNT,START,END[,TYPE][,TARGET+TARGET]`; a plan without targets is for training jobs."""
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
    """An ISO time (UTC if it names no zone), or `+seconds` or `-seconds` from the start."""
    if re.fullmatch(r"[+-][0-9]+(\.[0-9]+)?", text):
        return Moment(float(text), relative=True)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: give one such as 2026-06-01T09:00:00Z, or +60 (seconds)") from None
    return Moment((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def limit_exceeded(name: str, limit: int, used: int, wanted: int, unit: str = "Instances") -> EmulatedError:
    """The refusal in SageMaker's words."""
    return EmulatedError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{name}' is {limit} {unit}, with current utilization of {used} {unit} and a "
        f"request delta of {wanted} {unit}. Please use AWS Service Quotas to request an increase for this quota. If "
        "AWS Service Quotas is not available, contact AWS support to request an increase for this quota.",
    )
