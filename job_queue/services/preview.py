"""Preview the effects that another policy or other capacities would have on the queue. A preview changes nothing."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import InvalidRequest, TakesTooLong, ValidationIssue
from job_queue.domain.expectations.outlook import DEFAULT_LIMIT_SECONDS
from job_queue.domain.policy import AppliedPolicy, total_capacity, under_ceiling
from job_queue.domain.policy_validation import listing, parse_policy
from job_queue.scheduler import ActiveJob, Snapshot, WaitingJob, policy_from_document
from job_queue.services.policy_conflicts import conflicts
from job_queue.services.policy_service import read_policy
from job_queue.services.refused_submissions import refused_submissions
from job_queue.simulation.forecast_input import ForecastInput
from job_queue.simulation.what_if.comparison import PolicyComparison, compare
from job_queue.validation.issue import first, quoted

TIME_LIMIT_SECONDS = 10  # no further future is simulated after this time, since a caller waits
# From this time of the first future on, each simulated step checks whether TIME_LIMIT_SECONDS will suffice.
ESTIMATE_AFTER_SECONDS = 0.4

ReadForecastInput = Callable[[ClusterState, float], ForecastInput]
"""Function: cluster state, epoch seconds -> the input of a forecast that begins at this time."""


def by_outlook(cluster: ClusterState, now: float) -> ForecastInput:
    """Return the forecast input that the stored outlook provides.

    :param now: epoch seconds.
    """
    return cluster.outlook.forecast_input(cluster.snapshot(now))


@dataclass(frozen=True, slots=True)
class Preview:
    """The comparison of the policy in force with another one, on the live queue."""

    applied: AppliedPolicy  # the policy in force
    now: float  # epoch seconds
    horizon: float  # simulated seconds from `now`
    comparison: PolicyComparison
    in_use: tuple[str, ...] = ()  # conflicts with live jobs: force is needed to apply the policy
    refused_submissions: tuple[str, ...] = ()  # submissions that only the other policy would refuse
    warnings: tuple[str, ...] = ()  # reasons why the policy would be refused
    all_read: bool = True  # whether all waiting jobs were read

    @property
    def until(self) -> float:
        """End of the simulated time, in epoch seconds."""
        return self.now + self.horizon


class PreviewService:
    """The service that compares the policy in force with another one, on the live queue.

    :param read_cluster: returns the cluster state with its outlook.
    :param clock: seconds since the epoch.
    :param read_forecast_input: returns the runtimes and arrivals of the forecast.
    """

    def __init__(
        self,
        policies: Policies,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
        read_forecast_input: ReadForecastInput = by_outlook,
    ) -> None:
        self._policies = policies
        self._read_cluster = read_cluster
        self._clock = clock
        self._read_forecast_input = read_forecast_input

    def of_policy(self, document: object, horizon: float) -> Preview:
        """Return the changes if a policy were applied.

        A policy that only does not fit this stack (MaxCapacity, shared instances, region and account) is not refused.
        The preview then has warnings.

        :param horizon: seconds from now to simulate.
        :raises InvalidRequest, TooLarge: the policy is invalid in any stack.
        :raises TakesTooLong: the simulation of the first future is expected to take longer than TIME_LIMIT_SECONDS.
        """
        _, policy = read_policy(document, None)
        cluster = self._read_cluster()
        warnings = tuple(_policy_issues(document, self._policies))
        ceiling = cluster.applied.ceiling
        if warnings and ceiling is not None:
            ceiling = max(ceiling, total_capacity(policy))
        compared = self._compared(cluster, AppliedPolicy(policy, ceiling=ceiling), horizon)
        in_use = tuple(conflict.message for conflict in conflicts(cluster, policy))
        refused = tuple(refused_submissions(cluster.applied.policy, policy))
        return replace(compared, in_use=in_use, warnings=warnings, refused_submissions=refused)

    def of_capacity(self, capacity: Mapping[str, int], horizon: float) -> Preview:
        """Return the changes if some pools had other capacities. Capacities above MaxCapacity only cause warnings.

        :param capacity: instances by pool.
        :param horizon: seconds from now to simulate.
        :raises InvalidRequest: a pool does not exist.
        :raises TakesTooLong: the simulation of the first future is expected to take longer than TIME_LIMIT_SECONDS.
        """
        cluster = self._read_cluster()
        document = _with_capacity(cluster.applied, capacity)
        warnings = tuple(_policy_issues(document, self._policies))
        other = replace(cluster.applied, policy=policy_from_document(document))
        other = replace(other, ceiling=_raised_ceiling(cluster.applied, capacity))
        return replace(self._compared(cluster, other, horizon), warnings=warnings)

    def _compared(self, cluster: ClusterState, other: AppliedPolicy, horizon: float) -> Preview:
        began = self._clock()
        futures_began: list[float] = []

        def raise_if_too_slow(done: float) -> None:
            now = self._clock()
            if not futures_began:
                futures_began.append(now)
            elapsed = now - futures_began[0]
            if elapsed > ESTIMATE_AFTER_SECONDS and elapsed > done * TIME_LIMIT_SECONDS:
                raise _too_slow(cluster, other, horizon)

        def may_go_on() -> bool:
            return self._clock() < began + TIME_LIMIT_SECONDS

        inputs = _with_max_runtimes(self._read_forecast_input(cluster, began))
        changed = replace(cluster, applied=other).snapshot(inputs.snapshot.now)
        after = replace(inputs, snapshot=_with_expected(changed, inputs.snapshot))
        comparison = compare(inputs, after, horizon, may_go_on, raise_if_too_slow)
        return Preview(cluster.applied, inputs.snapshot.now, horizon, comparison, all_read=not cluster.truncated_queues)


def _too_slow(cluster: ClusterState, other: AppliedPolicy, horizon: float) -> TakesTooLong:
    live, policy = len(cluster.active) + len(cluster.waiting), other.policy
    size = f"{live} live jobs, {len(policy.projects)} projects and {len(policy.pools)} pools"
    return TakesTooLong(
        f"A look {horizon / 3600:g} hours ahead would take longer than {TIME_LIMIT_SECONDS} seconds with {size}.",
        field="hours",
        remedy="Request fewer hours. 0 hours are enough to see which jobs start or are stopped in the next cycle.",
    )


def _with_max_runtimes(inputs: ForecastInput) -> ForecastInput:
    """Return the inputs in which a job without a predicted runtime runs for its maximum runtime, plus provisioning."""
    jobs: tuple[ActiveJob | WaitingJob, ...] = (*inputs.snapshot.active, *inputs.snapshot.waiting)
    provisioning = inputs.overheads.provisioning
    limits = {
        job.name: (provisioning + job.max_runtime,)
        for job in jobs
        if job.max_runtime is not None and job.max_runtime < DEFAULT_LIMIT_SECONDS
    }
    return replace(inputs, runtimes={**limits, **inputs.runtimes})


def _with_expected(snapshot: Snapshot, known: Snapshot) -> Snapshot:
    """Return a snapshot in which each job has the expected runtime from the snapshot `known`."""
    jobs: tuple[ActiveJob | WaitingJob, ...] = (*known.active, *known.waiting)
    expected = {job.name: job.expected for job in jobs}
    return replace(
        snapshot,
        active=tuple(replace(job, expected=expected.get(job.name)) for job in snapshot.active),
        waiting=tuple(replace(job, expected=expected.get(job.name)) for job in snapshot.waiting),
    )


def _with_capacity(applied: AppliedPolicy, capacity: Mapping[str, int]) -> dict[str, Any]:
    """Return the document of a policy with other capacities.

    :raises InvalidRequest: a pool does not exist.
    """
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


def _policy_issues(document: object, policies: Policies) -> Iterator[str]:
    """Yield the reasons why a policy would be refused."""
    try:
        parse_policy(document, policies.max_capacity, may_share=policies.may_share, home=policies.home)
    except InvalidRequest as error:
        yield from (issue.message for issue in error.issues)


def _raised_ceiling(applied: AppliedPolicy, capacity: Mapping[str, int]) -> int | None:
    """Return MaxCapacity, raised so that pools with unchanged capacity keep their instances; None without a maximum."""
    if applied.ceiling is None:
        return None
    sizes = {pool.name: pool.capacity for pool in under_ceiling(applied.policy, applied.ceiling, {}).pools}
    return applied.ceiling + max(0, sum(instances - sizes[name] for name, instances in capacity.items()))
