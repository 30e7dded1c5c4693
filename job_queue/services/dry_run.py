"""The dry run: what a cycle would do now, and why. It changes nothing."""

from collections.abc import Callable

from job_queue.adapters.cluster_reader import Parallel, observe_cluster_state
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job
from job_queue.domain.policy import project_of
from job_queue.scheduler import Plan, plan
from job_queue.services.advice import PROJECT_GONE, advise

ADVICE_SECONDS = 5  # after which no further remedy is tried: a caller waits for the answer


class DryRun:
    """Plans as the next cycle will.

    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls.
    """

    def __init__(
        self, repository: JobRepository, policies: Policies, clock: Callable[[], float], parallel: Parallel
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._clock = clock
        self._parallel = parallel

    def forecast(self) -> tuple[ClusterState, Plan]:
        """The cluster, and what a cycle would do."""
        cluster = self.cluster()
        return cluster, plan(cluster.snapshot(self._clock()))

    def cluster(self) -> ClusterState:
        """The live jobs and what else uses capacity."""
        return observe_cluster_state(self._repository, self._policies, self._parallel)

    def advice(self, name: str) -> tuple[ClusterState, Plan, list[str]]:
        """The cluster, what a cycle would do, and what would let this job start if it waits."""
        cluster = self.cluster()
        return cluster, *_advised(cluster, name, self._clock)

    def what_if(self, job: Job) -> tuple[Plan, list[str]]:
        """The plan and the advice if this job waited, too. It is not stored."""
        return _advised(self.cluster().with_waiting(job), job.name, self._clock, submitted=False)


def _advised(
    cluster: ClusterState, name: str, clock: Callable[[], float], *, submitted: bool = True
) -> tuple[Plan, list[str]]:
    now = clock()
    snapshot = cluster.snapshot(now)
    decided = plan(snapshot)
    hold = next((hold for hold in decided.holds if hold.job == name), None)
    if hold is None:
        return decided, []
    if project_of(cluster.applied.policy, cluster.waiting[name].project) is None:
        return decided, [PROJECT_GONE]
    return decided, advise(snapshot, hold, submitted=submitted, may_go_on=lambda: clock() < now + ADVICE_SECONDS)
