"""Detect running jobs that have no checkpoint, and so would lose more than an hour of work by a preemption."""

from collections.abc import Callable

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
from job_queue.services.watches.hangs import WroteCheckpoint


class UnsavedWork:
    """A detector of attempts without a checkpoint.

    If it is not known whether an attempt has a checkpoint, the job counts as saved. Examples are a bucket that may not
    be listed, and a folder with too many objects.

    :param checkpoints_at: returns, for a site, the function that checks the objects under an address in S3.
    """

    def __init__(self, repository: JobRepository, checkpoints_at: Callable[[Site | None], WroteCheckpoint]) -> None:
        self._repository = repository
        self._checkpoints_at = checkpoints_at

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
        wrote_checkpoint = self._checkpoints_at(record.job.site)
        return True, wrote_checkpoint(address, epoch(job.started or job.since)) is False
