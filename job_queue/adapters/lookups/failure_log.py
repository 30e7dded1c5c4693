"""The look-up of the last log lines of a failed attempt, with limits for calls, lines and time."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.lookups.training_logs import log_pages
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Unavailable
from job_queue.domain.failures import LoggedLine
from job_queue.domain.fleet.sites import Site

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilterLogEventsRequestTypeDef

LAST_SECONDS = 300  # period before the attempt's end whose lines are read
FEW_SECONDS = 15  # period before the end that the last call reads, if `LAST_SECONDS` has too many lines
MOST_CALLS = 4  # a call returns at most 1 MB
SECONDS = 3.0  # after this time no further call is sent, because the end of the attempt is recorded after the look-up
MOST_LINES = 2000
MOST_CHARACTERS = 2000  # of a line


class FailureLog:
    """The log lines of failed attempts in CloudWatch Logs.

    :param client_at: returns for a site a boto3 client of CloudWatch Logs with short timeouts and without retries.
    :param clock: returns seconds, to limit the duration of the look-up.
    """

    def __init__(self, client_at: Callable[[Site | None], "CloudWatchLogsClient"], clock: Callable[[], float]) -> None:
        self._client_at = client_at
        self._clock = clock

    def __call__(
        self, attempt: str, carrier_attempt: str | None, ended: float, site: Site | None = None
    ) -> list[LoggedLine]:
        """Return the last lines of an attempt, as far as they could be read. An error is only logged.

        CloudWatch returns the earliest lines first. If `MOST_CALLS` - 1 calls do not reach the end of the log, the last
        call reads only the lines of the last `FEW_SECONDS`. If there are any, they replace the earlier lines. The last
        call is left out if `SECONDS` have passed.

        :param attempt: the attempt's name. In a carrier's log, the lines of a member's attempt begin with its name.
        :param carrier_attempt: the carrier's attempt whose log has the lines of this attempt; None: the attempt has its
            own log.
        :param ended: epoch seconds at which the attempt ended.
        :param site: the site of the attempt; None: the home site.
        """
        began = self._clock()
        found: deque[LoggedLine] = deque(maxlen=MOST_LINES)
        try:
            client = self._client_at(site)
            has_more = self._read(client, attempt, carrier_attempt, ended - LAST_SECONDS, MOST_CALLS - 1, began, found)
            if has_more and self._has_time(began):
                latest: deque[LoggedLine] = deque(maxlen=MOST_LINES)
                self._read(client, attempt, carrier_attempt, ended - FEW_SECONDS, 1, began, latest)
                found = latest or found
        except (BotoCoreError, ClientError, Unavailable) as error:
            log.warning("log of a failed attempt not read", attempt=attempt, why=str(error.__cause__ or error))
        return sorted(found, key=lambda line: line.at)

    def _has_time(self, began: float) -> bool:
        return self._clock() - began < SECONDS

    def _read(
        self,
        client: "CloudWatchLogsClient",
        attempt: str,
        carrier_attempt: str | None,
        since: float,
        calls: int,
        began: float,
        found: deque[LoggedLine],
    ) -> bool:
        """Add the lines since a time to `found`. Return whether there are more lines."""
        prefix = f"{attempt}| " if carrier_attempt else ""
        request: FilterLogEventsRequestTypeDef = {"startTime": max(0, int(since * 1000))}
        if prefix:
            request["filterPattern"] = f'"{prefix}"'
        has_more = False
        for page in log_pages(client, carrier_attempt or attempt, calls, request):
            for event in page.events:
                if (message := event.get("message", "")).startswith(prefix):
                    text = message.removeprefix(prefix)[:MOST_CHARACTERS].rstrip("\r\n")
                    found.append(LoggedLine(event.get("logStreamName", ""), event.get("timestamp", 0), text))
            has_more = not page.is_last
            if not self._has_time(began):
                break
        return has_more
