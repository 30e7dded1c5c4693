"""The preview: what another policy, or other capacities, would make of the queue as it is. It changes nothing."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import InvalidRequest, TakesTooLong, ValidationIssue
from job_queue.domain.expectations.past_runtimes import NO_LIMIT
from job_queue.domain.policy import AppliedPolicy, under_ceiling
from job_queue.domain.policy_validation import listing, parse_policy
from job_queue.scheduler import ActiveJob, Snapshot, WaitingJob, policy_from_document
from job_queue.services.policy_conflicts import conflicts
from job_queue.services.policy_service import read_policy
from job_queue.simulation.basis import Basis
from job_queue.simulation.what_if.comparison import Comparison, compare
from job_queue.validation.issue import first, quoted

SECONDS = 10  # after which no further future is looked at: a caller waits for the answer
JUDGED_AFTER = 0.4  # seconds, after which the time that the first future takes is estimated at each of its steps

ReadBasis = Callable[[ClusterState, float], Basis]
"""What is known of how the queue will go on, from that time on (epoch seconds)."""


def by_outlook(cluster: ClusterState, now: float) -> Basis:
    """What the queue has found when it looked ahead last."""
    return cluster.outlook.basis(cluster.snapshot(now))


@dataclass(frozen=True, slots=True)
class Preview:
    """What would change."""

    applied: AppliedPolicy  # what holds
    now: float  # epoch seconds
    horizon: float  # seconds from then that were looked at
    comparison: Comparison
    in_use: tuple[str, ...] = ()  # what the policy takes from live jobs: force is needed to apply it
    warnings: tuple[str, ...] = ()  # why it could not be applied like this
    all_read: bool = True  # whether all jobs that wait were looked at

    @property
    def until(self) -> float:
        """Epoch seconds up to which the future was looked at."""
        return self.now + self.horizon


class PreviewService:
    """Compares the queue as it is with the queue under another policy.

    :param read_cluster: gives the live jobs, what else uses capacity, and what is expected of the jobs.
    :param clock: seconds since the epoch.
    :param read_basis: what is known of runtimes and arrivals.
    """

    def __init__(
        self,
        policies: Policies,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
        read_basis: ReadBasis = by_outlook,
    ) -> None:
        self._policies = policies
        self._read_cluster = read_cluster
        self._clock = clock
        self._read_basis = read_basis

    def of_policy(self, document: object, horizon: float) -> Preview:
        """What would change if this policy were applied.

        :param horizon: seconds from now to look at.
        :raises InvalidRequest, TooLarge: it could not be, for another reason than that it has more instances than the
            queue may use.
        """
        _, policy = read_policy(document, None)
        cluster = self._read_cluster()
        warnings = tuple(_faults(document, self._policies.max_capacity))
        ceiling = cluster.applied.ceiling
        if warnings and ceiling is not None:
            ceiling = max(ceiling, sum(pool.capacity for pool in policy.pools))
        compared = self._compared(cluster, AppliedPolicy(policy, ceiling=ceiling), horizon)
        in_use = tuple(conflict.message for conflict in conflicts(cluster, policy))
        return replace(compared, in_use=in_use, warnings=warnings)

    def of_capacity(self, capacity: Mapping[str, int], horizon: float) -> Preview:
        """What would change if these pools had so many instances, whether or not they may have them.

        :raises InvalidRequest: there is no such pool.
        """
        cluster = self._read_cluster()
        document = _with_capacity(cluster.applied, capacity)
        warnings = tuple(_faults(document, self._policies.max_capacity))
        other = replace(cluster.applied, policy=policy_from_document(document))
        other = replace(other, ceiling=_raised_ceiling(cluster.applied, capacity))
        return replace(self._compared(cluster, other, horizon), warnings=warnings)

    def _compared(self, cluster: ClusterState, other: AppliedPolicy, horizon: float) -> Preview:
        began = self._clock()
        futures_began: list[float] = []

        def give_up_if_hopeless(done: float) -> None:
            now = self._clock()
            if not futures_began:
                futures_began.append(now)
            elapsed = now - futures_began[0]
            if elapsed > JUDGED_AFTER and elapsed > done * SECONDS:
                raise _too_slow(cluster, other, horizon)

        def may_go_on() -> bool:
            return self._clock() < began + SECONDS

        basis = _with_limits(self._read_basis(cluster, began))
        changed = replace(cluster, applied=other).snapshot(basis.snapshot.now)
        after = replace(basis, snapshot=_with_expected(changed, basis.snapshot))
        comparison = compare(basis, after, horizon, may_go_on, give_up_if_hopeless)
        return Preview(cluster.applied, basis.snapshot.now, horizon, comparison, all_read=not cluster.cut)


def _too_slow(cluster: ClusterState, other: AppliedPolicy, horizon: float) -> TakesTooLong:
    live, policy = len(cluster.active) + len(cluster.waiting), other.policy
    size = f"{live} live jobs, {len(policy.projects)} projects and {len(policy.pools)} pools"
    return TakesTooLong(
        f"A look {horizon / 3600:g} hours ahead would take longer than {SECONDS} seconds with {size}.",
        field="hours",
        remedy="Ask with fewer hours. 0 hours are enough to see which jobs start or are stopped in the next cycle.",
    )


def _with_limits(basis: Basis) -> Basis:
    """Where nothing is known of a job, such as one that has just come, it runs for as long as it may."""
    jobs: tuple[ActiveJob | WaitingJob, ...] = (*basis.snapshot.active, *basis.snapshot.waiting)
    provisioning = basis.overheads.provisioning
    limits = {
        job.name: (provisioning + job.max_runtime,)
        for job in jobs
        if job.max_runtime is not None and job.max_runtime < NO_LIMIT
    }
    return replace(basis, runtimes={**limits, **basis.runtimes})


def _with_expected(snapshot: Snapshot, known: Snapshot) -> Snapshot:
    """The snapshot with the runtimes that the same jobs are expected to have in another one."""
    jobs: tuple[ActiveJob | WaitingJob, ...] = (*known.active, *known.waiting)
    expected = {job.name: job.expected for job in jobs}
    return replace(
        snapshot,
        active=tuple(replace(job, expected=expected.get(job.name)) for job in snapshot.active),
        waiting=tuple(replace(job, expected=expected.get(job.name)) for job in snapshot.waiting),
    )


def _with_capacity(applied: AppliedPolicy, capacity: Mapping[str, int]) -> dict[str, Any]:
    """The policy's document with other capacities."""
    document: dict[str, Any] = deepcopy(dict(applied.document))
    pools = {pool["name"]: pool for pool in document["pools"]}
    unknown = [name for name in capacity if name not in pools]
    if unknown:
        known = f"There are {listing(pools)}."
        raise InvalidRequest.of(
            first([ValidationIssue("capacity", f"There is no pool {quoted(name)}.", known) for name in unknown])
        )
    for name, instances in capacity.items():
        pools[name]["capacity"] = instances
    return document


def _faults(document: object, max_capacity: int) -> Iterator[str]:
    """Why a policy with these capacities would be refused."""
    try:
        parse_policy(document, max_capacity)
    except InvalidRequest as error:
        yield from (issue.message for issue in error.issues)


def _raised_ceiling(applied: AppliedPolicy, capacity: Mapping[str, int]) -> int | None:
    """The ceiling that leaves all other pools what they have now."""
    if applied.ceiling is None:
        return None
    sizes = {pool.name: pool.capacity for pool in under_ceiling(applied.policy, applied.ceiling, {}).pools}
    return applied.ceiling + max(0, sum(instances - sizes[name] for name, instances in capacity.items()))
