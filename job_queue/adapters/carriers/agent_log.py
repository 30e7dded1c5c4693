"""The look-up of an agent's key in its carrier's log, to which only the carrier's container and role can write."""

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.lookups.training_logs import LOG_GROUP, is_missing, stream_pattern
from job_queue.carrier_agent.mailbox import CARRIER, KEY_WORDS
from job_queue.domain.errors import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilterLogEventsRequestTypeDef

MOST_PAGES = 10  # pages that one look-up reads at most; a page can be empty


class AgentLog:
    """The lines of agents in CloudWatch Logs."""

    def __init__(self, client: "CloudWatchLogsClient") -> None:
        self._client = client

    def key_lines(self, carrier: str) -> frozenset[str]:
        """Return the lines in the log of a carrier's attempt that print an agent's key, without the agent's prefix.

        :raises Unavailable: CloudWatch Logs gave no usable answer.
        """
        before, stream = f"{CARRIER}| ", stream_pattern(carrier)
        request: FilterLogEventsRequestTypeDef = {
            "logGroupName": LOG_GROUP,
            "logStreamNamePrefix": f"{carrier}/",
            "filterPattern": f'"{before}{KEY_WORDS}"',
        }
        found: set[str] = set()
        for _ in range(MOST_PAGES):
            try:
                page = self._client.filter_log_events(**request)
            except (ClientError, BotoCoreError) as error:
                if is_missing(error):
                    break
                raise Unavailable(f"the log of {carrier} cannot be read: {error}") from error
            events = (event for event in page["events"] if stream.match(event.get("logStreamName", "")))
            lines = (event.get("message", "").rstrip() for event in events)
            found.update(line.removeprefix(before) for line in lines if line.startswith(before + KEY_WORDS))
            if not (token := page.get("nextToken")):
                break
            request["nextToken"] = token
        return frozenset(found)
