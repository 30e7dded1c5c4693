"""Backoff of a pool for which SageMaker had no instances: after each wait one job is tried, and other jobs wait.

A capacity key names the instances that SageMaker can lack. The key is the pool's name, or `<pool>/<instance types>` for
a pool of any type. A refusal of n instances for lack of capacity applies to jobs that request n or more instances,
and not to smaller jobs.

The waits grow with the failures (`backoff`). Quota lag is no failure: SageMaker still counts instances of jobs that
have ended (`launching.quota_lag`). During quota lag one job is tried every `LAG_SECONDS`. After `LONGEST_LAG_SECONDS` a
refusal counts like any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from job_queue.domain.backoff import LASTING_SECONDS, LONGEST_SECONDS, backoff_seconds
from job_queue.domain.job import Job
from job_queue.scheduler import Policy, Pool, Slots

LONGEST_TEXT = 500  # characters
FORGOTTEN_SECONDS = 3600  # age of an ended backoff that no longer counts: it says nothing about the present
SILENT_SECONDS = 90  # backoff after a comparison without response from a site; the next comparison is in a minute
LAG_SECONDS = 20  # between two tries during quota lag
LONGEST_LAG_SECONDS = 600  # from the first refusal by quota lag, or from a later end of a job in the pool


@dataclass(frozen=True, slots=True)
class CapacityBackoff:
    """A capacity backoff: SageMaker refused instances, and no job that needs them is launched before `until`."""

    capacity_key: str
    until: int  # epoch seconds
    since: int  # epoch seconds of the last refusal
    failures: int = 1  # refusals in a row since a job last ended in the pool; quota lag does not count
    instances: int = 1  # without quota lag, the backoff applies to jobs that request this many instances or more
    largest: int = 1  # the largest number of instances that was refused
    at_fault: str | None = None  # SageMaker's message, if it refused fields that the pool adds to requests
    refused_since: int | None = None  # epoch seconds of the first refusal of the current series of refusals
    lag: str | None = None  # message about the instances that SageMaker counts, if they are more than the queue knows
    unreachable: str | None = None  # message, if the pool's region or account did not respond
    lag_since: int = 0  # epoch seconds of the first refusal by quota lag, or of a later end of a job in the pool

    @property
    def is_lag(self) -> bool:
        """Whether the last refusal was quota lag and not a failure."""
        return self.lag is not None and self.since < self.lag_since + LONGEST_LAG_SECONDS

    @property
    def has_failed(self) -> bool:
        """Whether a launch has failed for a reason other than quota lag."""
        return self.failures > 0 or not self.is_lag

    @property
    def min_instances(self) -> int:
        """The smallest number of instances to which the backoff applies.

        The number is 1 during quota lag. Quota that becomes free is then kept for the first waiting job, which may need
        more instances than the others.
        """
        return 1 if self.is_lag else self.instances

    @property
    def is_lasting(self) -> bool:
        """Whether the current series of refusals has lasted for `LASTING_SECONDS`, so that an operator is alerted."""
        return self.refused_since is not None and self.since - self.refused_since >= LASTING_SECONDS

    def is_forgotten(self, now: float) -> bool:
        """Return whether the backoff ended so long ago that it no longer counts."""
        return self.until + (FORGOTTEN_SECONDS if self.has_failed else LONGEST_LAG_SECONDS) < now

    def is_open(self, now: float) -> bool:
        """Return whether plans can ignore the backoff: its only cause is quota lag, and the next try is due."""
        return not self.has_failed and self.until <= now

    def has_key_of(self, pool: Pool) -> bool:
        """Return whether the backoff is for the pool, or for some of the instance types in a pool of any type."""
        return (self.capacity_key if pool.instance_type else self.capacity_key.rpartition("/")[0]) == pool.name

    def applies_to(self, wanted: Mapping[str, int]) -> bool:
        """Return whether the backoff applies to a job that requests these instances, given by capacity key."""
        return wanted.get(self.capacity_key, 0) >= self.min_instances

    def while_tried(self, now: float) -> "CapacityBackoff":
        """Return the backoff while one job is tried.

        Other jobs wait for the result, but no longer than after a refusal.
        """
        seconds = LAG_SECONDS if self.is_lag else backoff_seconds(self.capacity_key, max(1, self.failures))
        return replace(self, until=int(now) + seconds)

    def without_lag(self, now: float) -> "CapacityBackoff | None":
        """Return the backoff after an accepted launch has ended the quota lag; None if quota lag was its only cause."""
        return replace(self, lag=None, lag_since=0).while_tried(now) if self.has_failed else None


CapacityBackoffs = Mapping[str, CapacityBackoff]
"""Capacity key -> its backoff."""


def instances_by_capacity_key(job: Job, slots: Slots, policy: Policy) -> dict[str, int]:
    """Return the instances that slots of a job take, by capacity key.

    In a pool of any type, each instance type has its own capacity key.
    """
    (instance_type,) = instance_types(job, (slots,), policy) or (None,)
    return {f"{pool}/{instance_type}" if instance_type else pool: count for pool, count in slots.items()}


def instance_types(job: Job, alternatives: Sequence[Slots], policy: Policy) -> tuple[str, ...]:
    """Return the instance types of each alternative of a job, for pools of any type; empty if all pools have a type."""
    if all(pool.instance_type for pool in policy.pools):
        return ()
    return tuple("+".join(sorted(job.alternative_of(sum(need.values())))) for need in alternatives)


def after_refusal(
    known: CapacityBackoffs,
    wanted: Mapping[str, int],
    sent_at: float,
    now: float,
    at_fault: str | None = None,
    lag: str | None = None,
    unreachable: str | None = None,
) -> tuple[CapacityBackoff, ...]:
    """Return a tuple with the backoff after a refusal.

    The tuple is empty if the job needs several capacity keys, because it is not known which of them is the cause.

    :param wanted: the instances that were refused, by capacity key.
    :param sent_at: epoch seconds of the refused call. The refusal adds no failure if the call was sent before the
        previous refusal. So the refusals of jobs that were launched together count as one failure.
    :param at_fault: SageMaker's message, if it refused fields that the pool adds to requests. The backoff then applies
        to jobs of any size.
    :param lag: message about the instances that SageMaker counts, if they are more than the queue knows. Such a refusal
        is no failure in the first `LONGEST_LAG_SECONDS`.
    :param unreachable: message, if the region or account did not respond. The backoff then applies to jobs of any size.
    """
    if len(wanted) != 1:
        return ()
    ((capacity_key, instances),) = wanted.items()
    before = known.get(capacity_key)
    if before is None or before.is_forgotten(now):
        before = CapacityBackoff(capacity_key, 0, since=0, failures=0, instances=instances, largest=instances)
    if before.unreachable and not unreachable:
        before = replace(before, until=0, failures=0)  # the region or account has answered
    # A refusal long after the last backoff begins a new series of refusals.
    is_first_of_series = before.refused_since is None or before.until + LONGEST_SECONDS < now
    refused = replace(
        before,
        since=int(now),
        instances=1 if at_fault or unreachable else min(before.instances, instances),
        largest=max(before.largest, instances),
        at_fault=at_fault and at_fault[:LONGEST_TEXT],
        unreachable=unreachable and unreachable[:LONGEST_TEXT],
        refused_since=int(now) if is_first_of_series else before.refused_since,
        lag=lag and lag[:LONGEST_TEXT],
        lag_since=before.lag_since if before.lag else int(now) if lag else 0,
    )
    if not refused.is_lag:
        refused = replace(refused, failures=max(1, before.failures + (sent_at > before.since)))
    return (replace(refused, until=max(before.until, refused.while_tried(now).until)),)


def backoffs_of_silent_site(
    known: CapacityBackoffs, capacity_keys: Iterable[str], now: float, message: str
) -> tuple[CapacityBackoff, ...]:
    """Return the backoffs of pools whose region or account did not respond to a comparison.

    The backoffs last beyond the next comparison, which ends or prolongs them.
    """
    refused = [after_refusal(known, {key: 1}, now, now, unreachable=message) for key in capacity_keys]
    return tuple(replace(it, until=max(it.until, int(now) + SILENT_SECONDS)) for found in refused for it in found)


def backoffs_while_tried(known: CapacityBackoffs, wanted: Mapping[str, int], now: float) -> tuple[CapacityBackoff, ...]:
    """Return the backoffs that apply to a job, as `CapacityBackoff.while_tried` returns them."""
    return tuple(backoff.while_tried(now) for backoff in known.values() if backoff.applies_to(wanted))


def after_end(known: CapacityBackoffs, wanted: Mapping[str, int], now: float) -> tuple[CapacityBackoff, ...]:
    """Return the changed backoffs after a job has given back instances. One waiting job may now try to get them.

    Earlier failures say nothing about these instances, so failures are counted from 0. During quota lag, SageMaker
    counts these instances for some more minutes. So the next try is not brought forward, and the quota lag may last
    longer.
    """
    return tuple(
        replace(backoff, failures=0, lag_since=int(now))
        if backoff.is_lag
        else replace(backoff, until=min(backoff.until, int(now)), failures=0, lag=None, lag_since=0)
        for backoff in known.values()
        if backoff.capacity_key in wanted and not backoff.is_forgotten(now)
    )


def after_success(
    known: CapacityBackoffs, wanted: Mapping[str, int], arrived_at: float
) -> list[tuple[CapacityBackoff, CapacityBackoff | None]]:
    """Return the backoffs that end because a job got its instances, each with its remaining backoff or None.

    If SageMaker had refused more instances than this job got, for lack of capacity, the backoff still applies to jobs
    that request more instances than this job got.

    :param wanted: the job's instances, by capacity key.
    :param arrived_at: epoch seconds at which the job got its instances. A later refusal still applies.
    """
    found = [backoff for backoff in known.values() if backoff.applies_to(wanted) and backoff.since < arrived_at]
    return [
        (
            backoff,
            replace(backoff, instances=got + 1, lag=None, lag_since=0)
            if (got := wanted[backoff.capacity_key]) < backoff.largest and backoff.has_failed and not backoff.at_fault
            else None,
        )
        for backoff in found
    ]
