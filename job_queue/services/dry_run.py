"""Make a dry run: the plan that a cycle would make now, with advice. A dry run changes nothing."""

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

ADVICE_SECONDS = 5  # no further remedy is tried after this time, since a caller waits
LOOK_AHEAD_SECONDS = 5  # no further future is simulated after this time, for the same reason


class DryRun:
    """The service that plans as the next cycle will, without acting on the plan.

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
        """Return the cluster state.

        :param ahead: whether to read the outlook even if plans under the policy do not depend on the outlook.
        """
        now = self._clock()
        cluster = observe_cluster_state(self._repository, self._policies, self._parallel, now, ahead=ahead)
        return replace(cluster, outlook=cluster.outlook.for_reader(now))

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self._clock()

    def advice(self, name: str) -> tuple[ClusterState, Plan, list[str]]:
        """Return the cluster state, its plan, and advice on how a waiting job could start.

        The advice is empty if the plan starts the job, or if the job does not wait.

        :param name: the name of the job.
        """
        cluster = self.cluster(ahead=True)
        return cluster, *_advised(cluster, name, self._clock)

    def what_if(self, job: Job) -> tuple[ClusterState, Plan, list[str]]:
        """Return the cluster state with a new waiting job, this state's plan, and advice. The job is not stored."""
        cluster = self.cluster(ahead=True).with_waiting(job)
        return cluster, *_advised(cluster, job.name, self._clock, submitted=False)

    def starts(self, cluster: ClusterState, job: str) -> Outlook:
        """Return an outlook with the expected start of one waiting job, which need not be stored."""
        now = self._clock()
        estimates = look_ahead(cluster, now, lambda: self._clock() < now + LOOK_AHEAD_SECONDS)
        return Outlook(now, estimates={job: estimates[job]} if job in estimates else {}, errors=cluster.outlook.errors)


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
