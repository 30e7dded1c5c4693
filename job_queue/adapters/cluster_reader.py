"""Reads the cluster's state from the tables, strongly consistently."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState, Metadata, latest_versions
from job_queue.domain.job import ExternalJob, Job


class Parallel(Protocol):
    """Runs independent calls and gives their results in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Raises what the first failing call raised."""


def read_cluster_state(
    repository: JobRepository, policies: Policies, parallel: Parallel, metadata: Metadata | None = None
) -> ClusterState:
    """Read the cluster's state, as the holder of the lease. The number of reads does not depend on the waiting jobs.

    A job that changes during the reads may be read twice or not at all. Planning with a stale version is harmless, as
    its write will be refused; the change of a job that was missed has raised the generation.

    :param metadata: where it was read already.
    """
    metadata = metadata or repository.metadata()
    active, external, *waiting = parallel(
        [repository.active, repository.external, *_waiting_queue_reads(repository, policies, metadata)]
    )
    return _cluster_state(metadata, policies, external, [active], waiting)


def observe_cluster_state(repository: JobRepository, policies: Policies, parallel: Parallel) -> ClusterState:
    """Read the cluster's state while others change it; no job is missed.

    The active jobs are read before and after the waiting ones. A job that starts or goes back to waiting meanwhile is
    in one of the reads.
    """
    active, metadata = parallel([repository.active, repository.metadata])
    external, *waiting = parallel([repository.external, *_waiting_queue_reads(repository, policies, metadata)])
    return _cluster_state(metadata, policies, external, [active, repository.active()], waiting)


def _waiting_queue_reads(
    repository: JobRepository, policies: Policies, metadata: Metadata
) -> list[Callable[[], list[Job]]]:
    """Each reads one job more than is planned with, to know whether there are more."""
    window = policies.of(metadata.policy).policy.settings.window
    return [partial(repository.waiting, key, window + 1) for key in sorted(metadata.waiting_queues)]


def _cluster_state(
    metadata: Metadata,
    policies: Policies,
    external: list[ExternalJob],
    active: list[list[Job]],
    waiting: list[list[Job]],
) -> ClusterState:
    applied = policies.of(metadata.policy)
    window = applied.policy.settings.window
    jobs = latest_versions([*active, *(queue[:window] for queue in waiting)])
    lengths = zip(sorted(metadata.waiting_queues), map(len, waiting), strict=True)
    return ClusterState(
        metadata=metadata,
        applied=applied,
        active={name: job for name, job in jobs.items() if job.state.holds_slots},
        waiting={name: job for name, job in jobs.items() if job.state.waits},
        external=tuple(external),
        cut=frozenset(key for key, length in lengths if length > window),
    )
