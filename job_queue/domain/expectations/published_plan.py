"""The published plan: the positions, reasons and fair shares of the last cycle, which readers see."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import Hold, Plan

OUTDATED_SECONDS = 3 * 60  # readers see the age of an older plan; normally a tick confirms the plan each minute


@dataclass(frozen=True, slots=True)
class LastCycle:
    """The last cycle, according to the row of the lease."""

    fencing_token: int = 0
    ended: float = 0.0  # epoch seconds; 0: no cycle has ended yet


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """The part of a plan that is stored for readers, without values of requests.

    SageMaker's reasons are stored in full. The API decides for each caller which part of a reason is shown.
    """

    at: float = 0.0  # epoch seconds of the plan
    holds: tuple[Hold, ...] = ()  # in the order in which their jobs would be served
    versions: Mapping[str, int] = field(default_factory=dict)  # planned waiting job -> its version in the plan
    starting: frozenset[str] = frozenset()  # jobs that the plan starts
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # pool -> department or project -> fair share
    window: int = 0  # the policy's `window`
    truncated_queues: frozenset[str] = frozenset()  # waiting queues that are longer than the window
    unrecorded: frozenset[str] = frozenset()  # jobs whose changes cannot be recorded
    left_out: bool = False  # whether the stored row lacks some planned jobs, because its size is limited
    confirmed: float = 0.0  # epoch seconds of the last cycle; it decided the same, or its plan is not published yet
    read_at: float = 0.0  # epoch seconds of the reader's request

    @classmethod
    def of(cls, cluster: ClusterState, decided: Plan, now: float) -> "PublishedPlan":
        """Return the published plan of a cycle.

        :param cluster: the cluster state that was planned.
        :param now: epoch seconds of the plan.
        """
        return cls(
            at=now,
            holds=tuple(hold for hold in decided.holds if hold.job in cluster.waiting),
            versions={name: job.version for name, job in cluster.waiting.items()},
            starting=frozenset(decided.started),
            shares=decided.shares,
            window=cluster.policy.settings.window,
            truncated_queues=cluster.truncated_queues,
            unrecorded=frozenset(cluster.metadata.unrecorded),
            confirmed=now,
            read_at=now,
        )

    def read(self, last: LastCycle, now: float) -> "PublishedPlan":
        """Return the plan for a reader at this time, confirmed by the last cycle.

        A cycle that makes the same decisions does not write the row again, so the row itself may be older.
        """
        return replace(self, confirmed=max(self.at, last.ended), read_at=now)

    def has_seen(self, job: Job) -> bool:
        """Return whether the plan includes a waiting job in its present version.

        If the plan lacks the job, return whether the job's last change of state was before the end of the last cycle.
        """
        planned = self.versions.get(job.name)
        return planned == job.version if planned is not None else epoch(job.since) <= self.confirmed

    @property
    def age(self) -> str | None:
        """A sentence about the time since the last plan, or None if it is at most `OUTDATED_SECONDS` old."""
        if self.read_at <= self.confirmed + OUTDATED_SECONDS:
            return None
        if not self.confirmed:
            return "The queue has not planned yet."
        minutes = int((self.read_at - self.confirmed) // 60)
        since = datetime.fromtimestamp(self.confirmed, UTC)
        return f"The queue has not planned since {since:%Y-%m-%d %H:%M} UTC, {minutes} minutes ago."
