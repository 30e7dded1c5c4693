"""What readers are told of the queue, without planning: rows of jobs, the published plan and the outlook."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from job_queue.adapters.cluster_reader import Parallel, observe_cluster_state
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.expectations.published_plan import LastCycle, PublishedPlan
from job_queue.domain.job import Job


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of all live jobs besides their own rows."""

    plan: PublishedPlan
    outlook: Outlook


class Readings:
    """Reads for one request after the other. Each look at the whole queue begins with the token of the last cycle.

    :param repository: to read from; where it shares reads, they are of the last seconds.
    :param last_cycle: reads the row of the lease, which is not shared.
    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls.
    :param renew: is given the fencing token of the last cycle, before anything else is read.
    """

    def __init__(
        self,
        repository: JobRepository,
        policies: Policies,
        last_cycle: Callable[[], LastCycle],
        clock: Callable[[], float],
        parallel: Parallel,
        renew: Callable[[int], None] = lambda token: None,
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._last_cycle = last_cycle
        self._clock = clock
        self._parallel = parallel
        self._renew = renew

    def told(self) -> Told:
        """Return the published plan and the outlook, for a reader who asks now."""
        last = self._last_cycle()
        self._renew(last.fencing_token)
        plan, outlook = self._parallel([self._repository.published.latest, self._repository.outlook.told])
        now = self._clock()
        return Told(plan.read(last, now), outlook.fresh(now))

    def told_of(self, job: Job) -> Told:
        """Return as much of it as concerns a job in its state."""
        if job.state.waits:
            return self.told()
        outlook = self._repository.outlook.told() if job.state.holds_slots else Outlook()
        return Told(PublishedPlan(), outlook.fresh(self._clock()))

    def queue(self) -> tuple[ClusterState, Told]:
        """Return the live jobs and what else uses capacity, and what is told of them."""
        told = self.told()
        cluster = observe_cluster_state(
            self._repository, self._policies, self._parallel, self._clock(), for_plans=False
        )
        return replace(cluster, outlook=told.outlook), told
