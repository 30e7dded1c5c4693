"""Detect running jobs that have no checkpoint, and so would lose more than an hour of work by a preemption."""

from collections.abc import Callable
from typing import Protocol

from job_queue.adapters.items import stored_request
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.telemetry import log
from job_queue.domain.domain_events import UnsavedJob
from job_queue.domain.errors import Unavailable
from job_queue.domain.expectations.unsaved import LOOKUP_SECONDS, SavedWork
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import FOR_EVER, Job, epoch
from job_queue.domain.policy import checkpoint_address
from job_queue.scheduler import Policy


class CheckpointTime(Protocol):
    """A source of the times of checkpoints, such as `NewestObject`."""

    def __call__(self, address: str) -> float | None:
        """Return when the newest object below an address was written (epoch seconds); None if there is none."""

    def may_list(self, address: str) -> bool:
        """Return whether the queue may list the bucket of an address."""


class UnsavedWork:
    """A detector of attempts without a checkpoint.

    If the bucket of a job's checkpoints may not be listed, the job counts as saved.

    :param newest_at: returns the source of the times of checkpoints for a site.
    """

    def __init__(self, repository: JobRepository, newest_at: Callable[[Site | None], CheckpointTime]) -> None:
        self._repository = repository
        self._newest_at = newest_at

    def check(
        self, jobs: list[Job], policy: Policy, before: SavedWork, now: float, may_go_on: Callable[[], bool]
    ) -> tuple[SavedWork, list[UnsavedJob]]:
        """Return the results for these jobs, and an event for each attempt that is newly unsaved.

        An attempt is looked up every `LOOKUP_SECONDS` until it has a checkpoint. Attempts without a folder are
        looked up once.

        :param jobs: see `unsaved_candidates`.
        :param before: the results of earlier look-ups.
        :param may_go_on: after its first result of False, no further job is looked up.
        """
        known = before.of(jobs)
        unsaved, settled, events = dict(known.unsaved), set(known.settled), []
        for job in known.due(jobs, now):
            if not may_go_on():
                break
            name = job.launched or ""
            try:
                has_folder, is_unsaved = self._is_unsaved(job, policy)
            except Unavailable as error:  # the next tick tries again
                log.warning("checkpoints not listed", job=job.name, why=error.message)
                continue
            if not is_unsaved:
                unsaved.pop(name, None)
                settled.add(name)
                continue
            if name not in unsaved:
                events.append(UnsavedJob(job, has_folder, now))
            unsaved[name] = int(now) + LOOKUP_SECONDS if has_folder else FOR_EVER
        return SavedWork(unsaved, frozenset(settled)), events

    def _is_unsaved(self, job: Job, policy: Policy) -> tuple[bool, bool]:
        """Return whether the job has a checkpoint folder, and whether its attempt is known to have saved nothing."""
        record = self._repository.record(job.name)
        if record is None or record.job.launched != job.launched:
            return True, False
        address = checkpoint_address(stored_request(record.details), record.job, policy)
        if not address:
            return False, True
        newest = self._newest_at(record.job.site)
        if not newest.may_list(address):
            return True, False
        at = newest(address)
        return True, at is None or at < epoch(job.started or job.since)
