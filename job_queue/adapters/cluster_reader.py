"""The reads of the cluster's state: metadata, jobs of each kind, and the outlook if plans depend on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState, Metadata, latest_versions
from job_queue.domain.expectations.outlook import RECENT_SECONDS, Outlook, backfills_by_outlook, plans_with_outlook
from job_queue.domain.job import Job
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import Policy, depends_on_past_use


class Parallel(Protocol):
    """A function that runs independent calls and returns their results in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Run calls; raise the exception of the first failing call."""


@dataclass(frozen=True, slots=True)
class ClusterReads:
    """The reads that follow the read of the active jobs. The metadata determines which reads are needed.

    The active jobs are read first, so that a job whose attempt ends during the reads is not missed. When the end is
    recorded, the job's row in its waiting queue, the warm pool (an external job) and the attempt record are written
    with it or before it. So the later reads find them.

    :param calls: first the external jobs, then each waiting queue. The outlook and the latest ended attempts follow if
        they were requested or plans depend on them.
    """

    policies: Policies
    queues: tuple[str, ...]  # keys of waiting queues, in the order of their reads
    window: int  # jobs of each waiting queue that plans consider, according to the policy
    calls: tuple[Callable[[], Any], ...]

    def cluster_state(self, metadata: Metadata, active: list[Job], parallel: Parallel) -> ClusterState | None:
        """Make the calls and return the cluster's state. Return None, without a call, if other reads are needed.

        Other reads are needed for a new waiting queue, and for a policy with another window or with more calls.
        """
        applied = self.policies.of(metadata.policy)
        calls = 1 + len(self.queues) + _further_calls(applied.policy)
        if (
            applied.policy.settings.window != self.window
            or len(self.calls) < calls
            or not metadata.waiting_queues.keys() <= set(self.queues)
        ):
            return None
        return self.state_of(metadata, applied, [active], parallel(self.calls))

    def state_of(
        self,
        metadata: Metadata,
        applied: AppliedPolicy,
        active: list[list[Job]],
        answers: Sequence[Any],
    ) -> ClusterState:
        """Return the cluster's state from the reads.

        A job that was read both as active and as waiting counts as active. Its warm pool may have been recorded after
        the external jobs were read, so its slots must not count as free.

        :param active: one or several reads of the active jobs; the latest version of each job counts.
        :param answers: the results of the calls.
        """
        external, *others = answers
        waiting = dict(zip(self.queues, others, strict=False))
        further = others[len(self.queues) :]
        holders = latest_versions(active)
        waiters = latest_versions(queue[: self.window] for queue in waiting.values())
        return ClusterState(
            metadata=metadata,
            applied=applied,
            active=holders,
            waiting={name: job for name, job in waiters.items() if name not in holders},
            external=tuple(external),
            truncated_queues=frozenset(key for key, queue in waiting.items() if len(queue) > self.window),
            outlook=further[0] if further else Outlook(),
            ended=tuple(further[1]) if len(further) > 1 else (),
        )


def _further_calls(policy: Policy) -> int:
    """Return how many further calls plans need: 0, 1 (the outlook), or 2 (also the attempts that ended lately)."""
    if depends_on_past_use(policy):
        return 2
    return 1 if plans_with_outlook(policy) else 0


def cluster_reads(
    repository: JobRepository,
    policies: Policies,
    metadata: Metadata,
    now: float,
    *,
    ahead: bool = False,
    for_plans: bool = True,
) -> ClusterReads:
    """Return the reads of the cluster's state.

    The number of reads does not depend on the number of waiting jobs.

    :param now: epoch seconds.
    :param ahead: also read the whole outlook, even if the policy's plans do not depend on it.
    :param for_plans: also read the outlook and the latest ended attempts, if the policy's plans depend on them.
    """
    policy = policies.of(metadata.policy).policy
    queues = tuple(sorted(metadata.waiting_queues))
    waiting = _waiting_queue_reads(repository, queues, policy.settings.window)
    further: list[Callable[[], Any]] = [
        repository.outlook.latest if ahead or depends_on_past_use(policy) else repository.outlook.for_readers,
        partial(repository.attempts.ended_since, now - RECENT_SECONDS, now),
    ]
    calls = (repository.external, *waiting, *further[: max(int(ahead), _further_calls(policy) if for_plans else 0)])
    return ClusterReads(policies, queues, policy.settings.window, calls)


def read_cluster_state(
    repository: JobRepository, policies: Policies, parallel: Parallel, now: float, metadata: Metadata | None = None
) -> ClusterState:
    """Read the cluster's state, as the holder of the lease.

    A job that changes during the reads may be read twice. A plan with a stale version of a job is harmless, because the
    write of the job is refused.

    :param now: epoch seconds.
    :param metadata: the metadata, if it was read before.
    """
    metadata = metadata or repository.metadata()
    reads = cluster_reads(repository, policies, metadata, now)
    cluster = reads.cluster_state(metadata, repository.active(), parallel)
    assert cluster is not None  # noqa: S101  (the metadata is the same)
    return cluster


def with_expected_runtimes(repository: JobRepository, cluster: ClusterState, now: float) -> ClusterState:
    """Add the outlook (its part for readers) to the state if the backfill for a patient job depends on the outlook.

    The outlook is read after all other rows, so that cycles without a patient job do not make this call.
    """
    policy = cluster.applied.policy
    if _further_calls(policy) or not backfills_by_outlook(policy, cluster.waiting.values(), now):
        return cluster
    return replace(cluster, outlook=repository.outlook.for_readers())


def observe_cluster_state(
    repository: JobRepository,
    policies: Policies,
    parallel: Parallel,
    now: float,
    *,
    ahead: bool = False,
    for_plans: bool = True,
) -> ClusterState:
    """Read the cluster's state while other invocations change it. With consistent reads no job is missed.

    The active jobs are read before the waiting jobs, so a job that returns to its waiting queue is in one of the reads.
    A job that starts could be missing in both reads. Only cycles start jobs, so the active jobs are read again if a
    cycle has written meanwhile.

    :param now: epoch seconds.
    :param ahead: also read the whole outlook.
    :param for_plans: also read the outlook and the latest ended attempts, if plans depend on them.
    """
    metadata = repository.metadata()
    active = repository.active()
    reads = cluster_reads(repository, policies, metadata, now, ahead=ahead, for_plans=for_plans)
    answers = parallel(reads.calls)
    applied = policies.of(metadata.policy)
    again = [repository.active()] if repository.cycle_wrote_since(metadata) else []
    cluster = reads.state_of(metadata, applied, [active, *again], answers)
    return with_expected_runtimes(repository, cluster, now) if for_plans and not ahead else cluster


def _waiting_queue_reads(
    repository: JobRepository, queues: Sequence[str], window: int
) -> list[Callable[[], list[Job]]]:
    """Return a read for each waiting queue: its first `window` jobs and one more, which shows whether others wait."""
    return [partial(repository.waiting, key, window + 1) for key in queues]
