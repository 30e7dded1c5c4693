"""Recognize the causes of SageMaker's refusals: an exceeded quota, a fault of the pool, or a temporary cause.

ResourceLimitExceeded covers every quota of an account: instances of a type, but also spot instances, warm pools,
debugger rules, and the longest run time. ValidationException also has causes outside the request, such as a role that
cannot be assumed.
"""

import re
from dataclasses import dataclass

_QUOTA = re.compile(
    r"account-level service limit '(?P<name>[^']{1,200})' is (?P<limit>[\d.]{1,20}) (?P<unit>\w{1,20}), "
    r"with current utilization of (?P<used>[\d.]{1,20}) \w{1,20} and a request delta of (?P<delta>[\d.]{1,20}) "
)
_TYPE_QUOTA = re.compile(r"(?P<instance_type>ml\.[\w.-]+) for (?P<spot>spot )?training job usage")
_ALL_TYPES = re.compile(r"Number of instances across all (?P<spot>spot )?training jobs")

# Words in messages about fields that a pool may add to a request. Such a message comes, for example, if the training
# plan of the pool has expired. Parts of names, such as spot-train, do not count.
_OF_POOL = re.compile(
    r"(?<![\w-])(?:training[ -]?plan|reserved[ -]?capacity|instance ?type|instance ?count|(?:EnableManaged)?spot"
    r"(?=Training|\b)|MaxWaitTimeInSeconds)(?!\w*-)",
    re.IGNORECASE,
)
# Text of users in messages: quoted names, ARNs, images and addresses. The field after "at" is SageMaker's own text:
# Value 'x' at 'resourceConfig.instanceType' failed to satisfy constraint.
_QUOTED = re.compile(
    r"""(?<!\bat )(?<!\w)(['"`])(?:(?!\1).)*\1|(?:s3|https?)://[^\s'"`]+|\barn:[^\s'"`]+|(?<![\w.-])(?=[\w-]*\.)[\w.-]+(?::\d+)?/[^\s'"`]+"""
)
# Words in messages about temporary causes: a new role cannot be assumed for some seconds, and a role can be repaired.
_TEMPORARY = re.compile(r"assume (the )?role|AssumeRole", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """A quota that a request would exceed, according to SageMaker's ResourceLimitExceeded."""

    name: str  # name in Service Quotas
    limit: float
    delta: float  # number by which the request would raise the use
    unit: str  # Instances, Seconds, ...
    used: float  # number that SageMaker counts at present

    @property
    def is_full(self) -> bool:
        """Whether the request would fit if other training jobs used less of the quota."""
        return self.delta <= self.limit

    @property
    def instance_type(self) -> str | None:
        """The instance type, if the quota limits the instances of one type in training jobs; otherwise None."""
        match = _TYPE_QUOTA.fullmatch(self.name)
        return match and match["instance_type"]

    @property
    def is_for_spot(self) -> bool:
        """Whether the quota is for spot instances in training jobs."""
        match = _TYPE_QUOTA.fullmatch(self.name) or _ALL_TYPES.fullmatch(self.name)
        return bool(match and match["spot"])

    @property
    def is_for_all_types(self) -> bool:
        """Whether the quota is for instances of all types together in training jobs."""
        return _ALL_TYPES.fullmatch(self.name) is not None

    @property
    def is_for_warm_pools(self) -> bool:
        """Whether the quota is for instances that are kept warm."""
        return self.name.endswith("training warm pool usage")

    @property
    def sentence(self) -> str:
        """The meaning of the refusal for the job, and a remedy if waiting does not help."""
        figures = f"'{self.name}' is {self.limit:g} {self.unit} in this account, and the job requests {self.delta:g}"
        if self.is_full:
            return f"The quota {figures} while other jobs use it (ResourceLimitExceeded)."
        return (
            f"No quota of this account allows the job: {figures} (ResourceLimitExceeded). "
            f"Ask AWS for {self.delta:g} or more (Service Quotas, Amazon SageMaker), or change the job."
        )


def quota_exceeded(message: str) -> QuotaExceeded | None:
    """Return the quota that a refusal names, or None if the message has another form."""
    match = _QUOTA.search(message)
    if match is None:
        return None
    try:
        limit, delta, used = (float(match[figure]) for figure in ("limit", "delta", "used"))
        return QuotaExceeded(match["name"], limit, delta, match["unit"], used)
    except ValueError:  # not a number, such as 1.2.3
        return None


def blames_pool_fields(message: str) -> bool:
    """Return whether a ValidationException is about fields that a pool adds: training plan, market, type or count.

    Names and addresses of the user in the message do not count.
    """
    return _OF_POOL.search(_QUOTED.sub("", message)) is not None


def is_temporary(message: str) -> bool:
    """Return whether the cause of a ValidationException may be repaired while the job waits."""
    return _TEMPORARY.search(message) is not None
