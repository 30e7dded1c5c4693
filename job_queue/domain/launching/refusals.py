"""What SageMaker's words say when it refuses a launch: which quota, and whether the pool is what it objects to.

ResourceLimitExceeded covers every quota of an account, not only the number of instances of a type: spot instances,
warm pools, debugger rules, the longest run time. ValidationException covers more than the request, too.
"""

import re
from dataclasses import dataclass

_QUOTA = re.compile(
    r"account-level service limit '(?P<name>[^']{1,200})' is (?P<limit>[\d.]{1,20}) (?P<unit>\w{1,20}), "
    r"with current utilization of (?P<used>[\d.]{1,20}) \w{1,20} and a request delta of (?P<delta>[\d.]{1,20}) "
)
_TYPE_QUOTA = re.compile(r"(?P<instance_type>ml\.[\w.-]+) for (?P<spot>spot )?training job usage")
_ALL_TYPES = re.compile(r"Number of instances across all (?P<spot>spot )?training jobs")

# What a pool may put into a request, as messages name it. A request for a plan that has expired, say.
_OF_POOL = re.compile(
    r"training[ -]?plan|reserved[ -]?capacity|instance ?type|instance ?count|spot|MaxWaitTimeInSeconds", re.IGNORECASE
)
# A role that was just made cannot be assumed for some seconds, and an operator may repair one.
_MAY_PASS = re.compile(r"assume (the )?role|AssumeRole", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """A quota that a request would exceed, as SageMaker's ResourceLimitExceeded tells it."""

    name: str  # as Service Quotas lists it
    limit: float
    delta: float  # what the request asked for
    unit: str  # Instances, Seconds, ...
    used: float  # what SageMaker counts at present

    @property
    def is_full(self) -> bool:
        """Whether the request would fit if others did not use so much of the quota."""
        return self.delta <= self.limit

    @property
    def instance_type(self) -> str | None:
        """The instance type, of a quota for instances in training jobs."""
        match = _TYPE_QUOTA.fullmatch(self.name)
        return match and match["instance_type"]

    @property
    def is_for_spot(self) -> bool:
        """Whether it is a quota for spot instances in training jobs."""
        match = _TYPE_QUOTA.fullmatch(self.name) or _ALL_TYPES.fullmatch(self.name)
        return bool(match and match["spot"])

    @property
    def is_for_all_types(self) -> bool:
        """Whether it is a quota for instances of all types together in training jobs."""
        return _ALL_TYPES.fullmatch(self.name) is not None

    @property
    def is_for_warm_pools(self) -> bool:
        """Whether it is a quota for instances that are kept warm."""
        return self.name.endswith("training warm pool usage")

    @property
    def sentence(self) -> str:
        """What it means for the job, and what to do."""
        figures = f"'{self.name}' is {self.limit:g} {self.unit} in this account, and the job asks for {self.delta:g}"
        if self.is_full:
            return f"The quota {figures} while others use it."
        return (
            f"No quota of this account allows the job: {figures}. Ask AWS for {self.delta:g} or more "
            "(Service Quotas, Amazon SageMaker), or change the job."
        )


def quota_exceeded(message: str) -> QuotaExceeded | None:
    """The quota that a refusal names; None if it names none in the known words."""
    match = _QUOTA.search(message)
    if match is None:
        return None
    try:
        limit, delta, used = (float(match[figure]) for figure in ("limit", "delta", "used"))
        return QuotaExceeded(match["name"], limit, delta, match["unit"], used)
    except ValueError:  # 1.2.3
        return None


def objects_to_pool(message: str) -> bool:
    """Whether a ValidationException is about what a pool puts into requests: plan, market, type or count."""
    return _OF_POOL.search(message) is not None


def may_pass(message: str) -> bool:
    """Whether a ValidationException is about something that may be repaired while the job waits."""
    return _MAY_PASS.search(message) is not None
