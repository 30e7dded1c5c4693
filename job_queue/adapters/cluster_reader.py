"""Reads the cluster's state from the tables, strongly consistently."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from job_queue.adapters.job_repository import JobRepository
from job_queue.domain.cluster_state import ClusterState, Metadata, latest_versions
from job_queue.domain.job import ExternalJob, Job
from job_queue.domain.policy import Policies


class Parallel(Protocol):
    """Runs calls that do not depend on each other and gives their answers in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Raises what the first failing call raised."""


def read_cluster_state(
    store: JobRepository, policies: Policies, parallel: Parallel, metadata: Metadata | None = None
) -> ClusterState:
    """Read the cluster's state, as the holder of the lease: the reads do not depend on the length of the waiting lines.

    A row that moves while it is read may be seen twice or not at all; planning on a stale one is harmless, as its
    version will be refused, and one that is missed is news.

    :param metadata: the metadata rows, where they have been read already.
    """
    metadata = metadata or store.metadata()
    active, external, *lines = parallel([store.active, store.external, *_waiting_lines(store, policies, metadata)])
    return _cluster_state(metadata, policies, external, [active], lines)


def observe_cluster_state(store: JobRepository, policies: Policies, parallel: Parallel) -> ClusterState:
    """Read the cluster's state while others change it; no job is missed.

    The active line is read before and after the waiting ones: so a job that moves meanwhile, either way, is in one of
    them when that is read.
    """
    active, metadata = parallel([store.active, store.metadata])
    external, *lines = parallel([store.external, *_waiting_lines(store, policies, metadata)])
    return _cluster_state(metadata, policies, external, [active, store.active()], lines)


def _waiting_lines(store: JobRepository, policies: Policies, metadata: Metadata) -> list[Callable[[], list[Job]]]:
    """Read one job more than is planned with, to know whether there are more."""
    window = policies.of(metadata.policy).policy.settings.window
    return [partial(store.waiting, line, window + 1) for line in sorted(metadata.lines)]


def _cluster_state(
    metadata: Metadata, policies: Policies, external: list[ExternalJob], active: list[list[Job]], lines: list[list[Job]]
) -> ClusterState:
    applied = policies.of(metadata.policy)
    window = applied.policy.settings.window
    jobs = latest_versions([*active, *(line[:window] for line in lines)])
    return ClusterState(
        metadata=metadata,
        applied=applied,
        active={name: job for name, job in jobs.items() if job.state.holds_slots},
        waiting={name: job for name, job in jobs.items() if job.state.waits},
        external=tuple(external),
        cut=frozenset(line for line, jobs in zip(sorted(metadata.lines), lines, strict=True) if len(jobs) > window),
    )
