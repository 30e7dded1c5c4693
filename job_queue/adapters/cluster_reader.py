"""Reads the cluster's state from the tables, strongly consistently."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState, Metadata, latest_versions
from job_queue.domain.job import ExternalJob, Job
from job_queue.domain.policy import AppliedPolicy


class Parallel(Protocol):
    """Runs independent calls and gives their results in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Raises what the first failing call raised."""


@dataclass(frozen=True, slots=True)
class ClusterReads:
    """The reads of live jobs that some metadata makes necessary."""

    policies: Policies
    queues: tuple[str, ...]  # keys of waiting queues, in the order of their reads
    window: int  # of the policy
    calls: tuple[Callable[[], Any], ...]

    def cluster_state(self, metadata: Metadata, lines: Sequence[Any]) -> ClusterState | None:
        """The cluster's state from their results; None if the metadata, read at the same time, asks for other reads."""
        applied = self.policies.of(metadata.policy)
        if applied.policy.settings.window != self.window or not metadata.waiting_queues.keys() <= set(self.queues):
            return None
        (active, external), *waiting = lines
        return _cluster_state(metadata, applied, external, [active], dict(zip(self.queues, waiting, strict=True)))


def cluster_reads(repository: JobRepository, policies: Policies, metadata: Metadata) -> ClusterReads:
    """The reads. Their number does not depend on the waiting jobs."""
    window = policies.of(metadata.policy).policy.settings.window
    queues = tuple(sorted(metadata.waiting_queues))
    waiting = _waiting_queue_reads(repository, queues, window)
    return ClusterReads(policies, queues, window, (partial(_in_use, repository), *waiting))


def read_cluster_state(
    repository: JobRepository, policies: Policies, parallel: Parallel, metadata: Metadata | None = None
) -> ClusterState:
    """Read the cluster's state, as the holder of the lease.

    A job that changes during the reads may be read twice or not at all. Planning with a stale version is harmless, as
    its write will be refused; the change of a job that was missed has raised the generation.

    :param metadata: where it was read already.
    """
    metadata = metadata or repository.metadata()
    reads = cluster_reads(repository, policies, metadata)
    cluster = reads.cluster_state(metadata, parallel(reads.calls))
    assert cluster is not None  # noqa: S101  (the metadata is the same)
    return cluster


def observe_cluster_state(repository: JobRepository, policies: Policies, parallel: Parallel) -> ClusterState:
    """Read the cluster's state while others change it; no job is missed.

    The active jobs are read before and after the waiting ones. A job that starts or goes back to waiting meanwhile is
    in one of the reads.
    """
    active, metadata = parallel([repository.active, repository.metadata])
    reads = cluster_reads(repository, policies, metadata)
    external, *waiting = parallel([repository.external, *reads.calls[1:]])
    queues = dict(zip(reads.queues, waiting, strict=True))
    applied = policies.of(metadata.policy)
    return _cluster_state(metadata, applied, external, [active, repository.active()], queues)


def _in_use(repository: JobRepository) -> tuple[list[Job], list[ExternalJob]]:
    """Active jobs, then external ones: whoever records the end of an attempt has recorded its warm pool before."""
    return repository.active(), repository.external()


def _waiting_queue_reads(
    repository: JobRepository, queues: Sequence[str], window: int
) -> list[Callable[[], list[Job]]]:
    """Each reads one job more than is planned with, to know whether there are more."""
    return [partial(repository.waiting, key, window + 1) for key in queues]


def _cluster_state(
    metadata: Metadata,
    applied: AppliedPolicy,
    external: list[ExternalJob],
    active: list[list[Job]],
    waiting: Mapping[str, list[Job]],
) -> ClusterState:
    window = applied.policy.settings.window
    jobs = latest_versions([*active, *(queue[:window] for queue in waiting.values())])
    return ClusterState(
        metadata=metadata,
        applied=applied,
        active={name: job for name, job in jobs.items() if job.state.holds_slots},
        waiting={name: job for name, job in jobs.items() if job.state.waits},
        external=tuple(external),
        cut=frozenset(key for key, queue in waiting.items() if len(queue) > window),
    )
