"""Read the queue without planning: rows of jobs, the published plan and the outlook."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from job_queue.adapters.cluster_reader import Parallel, observe_cluster_state
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.expectations.published_plan import LastCycle, PublishedPlan
from job_queue.domain.job import Job
from job_queue.scheduler import Policy


@dataclass(frozen=True, slots=True)
class Published:
    """The published plan and the outlook: the results about live jobs that are not stored in the rows of the jobs."""

    plan: PublishedPlan
    outlook: Outlook


class QueueReader:
    """A reader of the queue for requests of the API.

    :param repository: may answer with rows that it read for other requests a few seconds ago.
    :param last_cycle: reads the row of the lease, each time anew.
    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls.
    :param renew: called with the fencing token of the last cycle, before other rows are read. So a repository that
        keeps rows can drop the rows that it read before this cycle.
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

    def published(self) -> Published:
        """Return the published plan and the outlook.

        If the plan is old, it contains a sentence about its age. If the outlook is old, it has no expected starts and
        ends.
        """
        last = self._last_cycle()
        self._renew(last.fencing_token)
        plan, outlook = self._parallel([self._repository.published.latest, self._repository.outlook.for_readers])
        now = self._clock()
        return Published(plan.read(last, now), outlook.for_reader(now))

    def published_for(self, job: Job) -> Published:
        """Return the part of the published plan and the outlook that is needed for a job in its present state."""
        if job.state.waits:
            return self.published()
        outlook = self._repository.outlook.for_readers() if job.state.holds_slots else Outlook()
        return Published(PublishedPlan(), outlook.for_reader(self._clock()))

    def policy(self) -> Policy:
        """Return the policy in force."""
        return self._policies.of(self._repository.policy()).policy

    def queue(self) -> tuple[ClusterState, Published]:
        """Return the cluster state, and the published plan and outlook."""
        published = self.published()
        cluster = observe_cluster_state(
            self._repository, self._policies, self._parallel, self._clock(), for_plans=False
        )
        return replace(cluster, outlook=published.outlook), published
