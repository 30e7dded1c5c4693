"""The dry run: what a cycle would do now, and why. It changes nothing."""

from collections.abc import Callable
from dataclasses import replace

from job_queue.adapters.cluster_reader import Parallel, observe_cluster_state
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.job import Job
from job_queue.domain.policy import project_of
from job_queue.scheduler import Plan, plan
from job_queue.services.advice import PROJECT_GONE, advise
from job_queue.services.outlook import look_ahead

ADVICE_SECONDS = 5  # after which no further remedy is tried: a caller waits for the answer
LOOK_AHEAD_SECONDS = 5  # after which a look ahead is given up, for the same reason


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

    def cluster(self, *, ahead: bool = False) -> ClusterState:
        """The live jobs and what else uses capacity.

        :param ahead: also when jobs will start and end.
        """
        now = self._clock()
        cluster = observe_cluster_state(self._repository, self._policies, self._parallel, now, ahead=ahead)
        return replace(cluster, outlook=cluster.outlook.fresh(now))

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self._clock()

    def advice(self, name: str) -> tuple[ClusterState, Plan, list[str]]:
        """The cluster, what a cycle would do, and what would let this job start if it waits."""
        cluster = self.cluster(ahead=True)
        return cluster, *_advised(cluster, name, self._clock)

    def what_if(self, job: Job) -> tuple[ClusterState, Plan, list[str]]:
        """The cluster, the plan and the advice if this job waited, too. It is not stored."""
        cluster = self.cluster(ahead=True).with_waiting(job)
        return cluster, *_advised(cluster, job.name, self._clock, submitted=False)

    def starts(self, cluster: ClusterState, job: str) -> Outlook:
        """When a job will start that waits in this state, whether or not it is stored."""
        now = self._clock()
        estimates = look_ahead(cluster, now, lambda: self._clock() < now + LOOK_AHEAD_SECONDS)
        return Outlook(now, estimates={job: estimates[job]} if job in estimates else {})


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
