"""Backoff of capacity keys: where SageMaker lacks instances, one job at a time is tried, after ever longer waits.

A capacity key is what SageMaker can lack: a pool, or in a pool of any type the pool and the instance types,
`<pool>/<instance types>`. A refusal of n instances holds for jobs that ask for n or more, and not for smaller ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from job_queue.domain.backoff import backoff_seconds
from job_queue.domain.job import Job
from job_queue.scheduler import Policy, Slots

LONGEST_TEXT = 500  # characters
FORGOTTEN_SECONDS = 3600  # after its end; what SageMaker lacked so long ago says nothing about now


@dataclass(frozen=True, slots=True)
class CapacityBackoff:
    """SageMaker refused instances; no job asks for them before `until`."""

    capacity_key: str
    until: int  # epoch seconds
    since: int  # epoch seconds of the last refusal
    failures: int = 1  # refusals in a row
    instances: int = 1  # it holds for jobs that ask for so many or more
    largest: int = 1  # the largest number that was refused
    at_fault: str | None = None  # what SageMaker said, where it refuses what the pool puts into requests

    def is_forgotten(self, now: float) -> bool:
        """Whether its end is so long ago that it is ignored."""
        return self.until + FORGOTTEN_SECONDS < now

    def applies_to(self, wanted: Mapping[str, int]) -> bool:
        """Whether it holds for a job that asks for these instances by capacity key."""
        return wanted.get(self.capacity_key, 0) >= self.instances

    def tried_again(self, now: float) -> "CapacityBackoff":
        """One job is launched in spite of it. The others wait for its outcome, as long as after a refusal at most."""
        return replace(self, until=int(now) + backoff_seconds(self.capacity_key, self.failures))


CapacityBackoffs = Mapping[str, CapacityBackoff]
"""Capacity key -> its backoff."""


def instances_by_capacity_key(job: Job, slots: Slots, policy: Policy) -> dict[str, int]:
    """The instances that slots of a job take, by capacity key.

    In a pool of any type, lack of one type is no lack of another.
    """
    (instance_type,) = instance_types(job, (slots,), policy) or (None,)
    return {f"{pool}/{instance_type}" if instance_type else pool: count for pool, count in slots.items()}


def instance_types(job: Job, alternatives: Sequence[Slots], policy: Policy) -> tuple[str, ...]:
    """The instance types of each alternative of a job, for pools of any type; empty where pools have types."""
    if all(pool.instance_type for pool in policy.pools):
        return ()
    return tuple(_instance_types(job, sum(need.values())) for need in alternatives)


def after_refusal(
    known: CapacityBackoffs, wanted: Mapping[str, int], sent_at: float, now: float, at_fault: str | None = None
) -> tuple[CapacityBackoff, ...]:
    """The backoff after a refusal; none where the job asked for several capacity keys: any of them may lack instances.

    :param wanted: the instances that were refused, by capacity key.
    :param sent_at: epoch seconds of the refused call. A call sent before the last refusal was known counts as no
        further failure: jobs that were launched together fail once.
    :param at_fault: what SageMaker said, where it refuses what the pool puts into requests, of any size.
    """
    if len(wanted) != 1:
        return ()
    ((capacity_key, instances),) = wanted.items()
    before = known.get(capacity_key)
    if before is None or before.is_forgotten(now):
        before, failures = CapacityBackoff(capacity_key, until=0, since=0, instances=instances, largest=instances), 1
    else:
        failures = before.failures + (sent_at > before.since)
    fewest, most = 1 if at_fault else min(before.instances, instances), max(before.largest, instances)
    why = at_fault and at_fault[:LONGEST_TEXT]
    renewed = CapacityBackoff(capacity_key, 0, int(now), failures, fewest, most, why).tried_again(now)
    return (replace(renewed, until=max(before.until, renewed.until)),)


def tried_again(known: CapacityBackoffs, wanted: Mapping[str, int], now: float) -> tuple[CapacityBackoff, ...]:
    """The backoffs that apply to a job, as they are after its launch."""
    return tuple(backoff.tried_again(now) for backoff in known.values() if backoff.applies_to(wanted))


def after_end(known: CapacityBackoffs, wanted: Mapping[str, int], now: float) -> tuple[CapacityBackoff, ...]:
    """The backoffs where a job has given its instances back, as they are then: one job may try at once to get them."""
    return tuple(
        replace(backoff, until=int(now))
        for backoff in known.values()
        if backoff.capacity_key in wanted and backoff.until > now
    )


def after_success(
    known: CapacityBackoffs, wanted: Mapping[str, int], came: float
) -> list[tuple[CapacityBackoff, CapacityBackoff | None]]:
    """The backoffs that end because a job got its instances, each with what is left of it.

    Where more instances were refused than the job got, the backoff stays for jobs that ask for more than it got.

    :param wanted: the job's instances, by capacity key.
    :param came: epoch seconds of their arrival; a refusal after it still holds.
    """
    found = [backoff for backoff in known.values() if backoff.applies_to(wanted) and backoff.since < came]
    return [
        (
            backoff,
            replace(backoff, instances=got + 1)
            if (got := wanted[backoff.capacity_key]) < backoff.largest and not backoff.at_fault
            else None,
        )
        for backoff in found
    ]


def _instance_types(job: Job, count: int) -> str:
    """The instance types of the first alternative with so many instances."""
    alternative = next((choice for choice in job.demand if sum(choice.values()) == count), job.demand[0])
    return "+".join(sorted(alternative))
