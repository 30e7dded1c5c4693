"""Reads the cluster's state from the tables, strongly consistently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState, Metadata, latest_versions
from job_queue.domain.expectations.outlook import RECENT, Outlook, plans_with_outlook
from job_queue.domain.job import ExternalJob, Job
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import Policy, remembers


class Parallel(Protocol):
    """Runs independent calls and gives their results in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Raises what the first failing call raised."""


@dataclass(frozen=True, slots=True)
class ClusterReads:
    """The reads of live jobs that some metadata makes necessary, and of what else plans depend on.

    :param calls: those in use, then the waiting queues, then the outlook and the attempts that have ended lately, where
        plans depend on them.
    """

    policies: Policies
    queues: tuple[str, ...]  # keys of waiting queues, in the order of their reads
    window: int  # of the policy
    calls: tuple[Callable[[], Any], ...]

    def cluster_state(self, metadata: Metadata, answers: Sequence[Any]) -> ClusterState | None:
        """The cluster's state from their results; None if the metadata, read at the same time, asks for other reads."""
        applied = self.policies.of(metadata.policy)
        calls = 1 + len(self.queues) + _calls_ahead(applied.policy)
        if (
            applied.policy.settings.window != self.window
            or len(answers) < calls
            or not metadata.waiting_queues.keys() <= set(self.queues)
        ):
            return None
        (active, external), *others = answers
        return self.state_of(metadata, applied, external, [active], others)

    def state_of(
        self,
        metadata: Metadata,
        applied: AppliedPolicy,
        external: list[ExternalJob],
        active: list[list[Job]],
        others: Sequence[Any],
    ) -> ClusterState:
        """The cluster's state from the results of all calls but the first, and from what else was read."""
        waiting = dict(zip(self.queues, others, strict=False))
        further = others[len(self.queues) :]
        jobs = latest_versions([*active, *(queue[: self.window] for queue in waiting.values())])
        return ClusterState(
            metadata=metadata,
            applied=applied,
            active={name: job for name, job in jobs.items() if job.state.holds_slots},
            waiting={name: job for name, job in jobs.items() if job.state.waits},
            external=tuple(external),
            cut=frozenset(key for key, queue in waiting.items() if len(queue) > self.window),
            outlook=further[0] if further else Outlook(),
            ended=tuple(further[1]) if len(further) > 1 else (),
        )


def _calls_ahead(policy: Policy) -> int:
    """How many calls read what is expected, and what was used."""
    if remembers(policy):
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
    """The reads. Their number does not depend on the waiting jobs.

    :param now: epoch seconds.
    :param ahead: also what is expected of jobs, whether or not the policy's plans depend on it.
    :param for_plans: also what the policy's plans depend on besides.
    """
    policy = policies.of(metadata.policy).policy
    queues = tuple(sorted(metadata.waiting_queues))
    waiting = _waiting_queue_reads(repository, queues, policy.settings.window)
    further: list[Callable[[], Any]] = [
        repository.outlook.latest,
        partial(repository.attempts.ended_since, now - RECENT, now),
    ]
    in_use: Callable[[], Any] = partial(_in_use, repository)
    calls = (in_use, *waiting, *further[: max(int(ahead), _calls_ahead(policy) if for_plans else 0)])
    return ClusterReads(policies, queues, policy.settings.window, calls)


def read_cluster_state(
    repository: JobRepository, policies: Policies, parallel: Parallel, now: float, metadata: Metadata | None = None
) -> ClusterState:
    """Read the cluster's state, as the holder of the lease.

    A job that changes during the reads may be read twice or not at all. Planning with a stale version is harmless, as
    its write will be refused; the change of a job that was missed has raised the generation.

    :param now: epoch seconds.
    :param metadata: where it was read already.
    """
    metadata = metadata or repository.metadata()
    reads = cluster_reads(repository, policies, metadata, now)
    cluster = reads.cluster_state(metadata, parallel(reads.calls))
    assert cluster is not None  # noqa: S101  (the metadata is the same)
    return cluster


def observe_cluster_state(
    repository: JobRepository,
    policies: Policies,
    parallel: Parallel,
    now: float,
    *,
    ahead: bool = False,
    for_plans: bool = True,
) -> ClusterState:
    """Read the cluster's state while others change it; with consistent reads no job is missed.

    The active jobs are read before the waiting ones, so a job that goes back to waiting is in one of the reads. Only
    cycles start jobs: if one has written meanwhile, the active jobs are read again.

    :param now: epoch seconds.
    :param ahead: also what is expected of jobs.
    :param for_plans: also what the policy's plans depend on besides.
    """
    metadata = repository.metadata()
    active = repository.active()
    reads = cluster_reads(repository, policies, metadata, now, ahead=ahead, for_plans=for_plans)
    external, *others = parallel([repository.external, *reads.calls[1:]])
    applied = policies.of(metadata.policy)
    again = [repository.active()] if repository.cycle_wrote_since(metadata) else []
    return reads.state_of(metadata, applied, external, [active, *again], others)


def _in_use(repository: JobRepository) -> tuple[list[Job], list[ExternalJob]]:
    """Active jobs, then external ones: whoever records the end of an attempt has recorded its warm pool before."""
    return repository.active(), repository.external()


def _waiting_queue_reads(
    repository: JobRepository, queues: Sequence[str], window: int
) -> list[Callable[[], list[Job]]]:
    """Each reads one job more than is planned with, to know whether there are more."""
    return [partial(repository.waiting, key, window + 1) for key in queues]
