"""The records of notices about failed jobs, so that similar failures of one owner produce one notice.

An owner's first failed job of a failure class writes a row, which is valid for `NOTICE_SECONDS`. Meanwhile, further
failed jobs of the same owner and class get no notice: their events name the job that got the notice.
"""

from job_queue.adapters.condition_expressions import is_permit_free
from job_queue.adapters.dynamodb import Put, Tables
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.job import Job

NOTICES = "failure-notices"  # the partition of the records, which has no other rows
NOTICE_SECONDS = 5 * 60


class FailureNotices:
    """The records of notices about failed jobs."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def covered_by(self, job: Job, failure_class: str, now: float) -> str | None:
        """Return the job whose notice also covers this failed job.

        If there is none, record that this job gets a notice, and return None.

        A repeated call for the same job returns the same result, because the queue may retry recording the job's end.

        :param now: epoch seconds.
        """
        until = int(now) + NOTICE_SECONDS
        key = {"line": NOTICES, "position": f"{failure_class}#{job.owner}"[:1000]}
        row = {**key, "job": job.name, "submission": job.submission, "until": until, "expires": until}
        try:
            self._tables.transact([Put(self._lines_table, row, is_permit_free(int(now)))])
        except Refused as refused:
            first = refused.items.get(0, {})
            return None if first.get("submission") == job.submission else first.get("job")
        except Unavailable as error:  # a second notice is better than no notice
            log.warning("notice not recorded", job=job.name, why=repr(error))
        return None
