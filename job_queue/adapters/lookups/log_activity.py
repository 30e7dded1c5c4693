"""The check whether a training job has written a log line since a given time.

DescribeLogStreams has the time of the last line, but CloudWatch Logs updates this time up to an hour late, and rarely
later. So the lines themselves are requested.
"""

from typing import TYPE_CHECKING

from job_queue.adapters.lookups.training_logs import log_pages

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilterLogEventsRequestTypeDef

MOST_PAGES = 5  # pages of one request; a page can be empty although more pages follow
LINES_OF_PAGE = 100  # more than one, because the lines of the SSM Agent do not count
EARLY_SECONDS = 3600.0  # tolerance for clocks: only lines from this long before the start count


class LogActivity:
    """The look-up of log lines with FilterLogEvents. One line is enough, and the text of the line is not used.

    :param client: a boto3 client of CloudWatch Logs with short timeouts.
    """

    def __init__(self, client: "CloudWatchLogsClient") -> None:
        self._client = client

    def __call__(self, training_job: str, started: float, since: float) -> bool | None:
        """Return whether the training job has written a line since a time, on any instance; None: not known.

        The answer is not known before the log has a first line, because the log may arrive late, or not at all. The
        answer is also not known if there are too many empty pages.

        :param started: start of the training job (epoch seconds), like `since`.
        :raises Unavailable: CloudWatch Logs gave no usable answer, for example because a permission is missing.
        """
        recent = self._has_line(training_job, since)
        if recent is not False:
            return recent
        return False if self._has_line(training_job, started - EARLY_SECONDS) else None

    def _has_line(self, training_job: str, since: float) -> bool | None:
        request: FilterLogEventsRequestTypeDef = {"startTime": round(1000 * since), "limit": LINES_OF_PAGE}
        for page in log_pages(self._client, training_job, MOST_PAGES, request):
            if page.events:
                return True
            if page.is_last:
                return False
        return None
