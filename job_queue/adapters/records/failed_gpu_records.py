"""The records of hardware failures whose logs name GPUs, so that a GPU that fails again within a day is recognised.

Only such a failure writes a row and reads the partition. The rows name no jobs or owners. So a user can see how often
and when a GPU has failed in other jobs, but not in which jobs.
"""

from job_queue.adapters.dynamodb import Put, Tables
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.failures import RETURN_SECONDS, GpuFailure
from job_queue.domain.job import iso

FAILED_GPUS = "failed-gpus"  # the partition of the records, which has no other rows
MOST_FAILURES = 1000  # failures of a day that are compared


class FailedGpuRecords:
    """The records of hardware failures whose logs name GPUs."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def record(self, failure: GpuFailure) -> list[GpuFailure]:
        """Record a failure, and return the failures recorded since a day before it, which may include this one.

        The row's key has the attempt and the time of its end, so a repeated record of the same end changes nothing. If
        the table cannot be written or read, return no failures.
        """
        key = {"line": FAILED_GPUS, "position": f"{iso(failure.at)}#{failure.attempt}"}
        expires = int(failure.at) + 2 * RETURN_SECONDS
        row = {**key, "attempt": failure.attempt, "uuids": list(failure.uuids), "at": int(failure.at)}
        try:
            self._tables.transact([Put(self._lines_table, {**row, "expires": expires})])
            since = iso(failure.at - RETURN_SECONDS - 1)
            rows = self._tables.query(self._lines_table, FAILED_GPUS, MOST_FAILURES, since)
        except (Refused, Unavailable) as error:
            log.warning("GPUs of a hardware failure not recorded", attempt=failure.attempt, why=repr(error))
            return []
        return [GpuFailure(it["attempt"], it["at"], tuple(it["uuids"])) for it in rows]
