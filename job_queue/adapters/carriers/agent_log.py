"""The look-up of an agent's key in its carrier's log, to which only the carrier's container and role can write."""

from typing import TYPE_CHECKING

from job_queue.adapters.lookups.training_logs import log_pages
from job_queue.carrier_agent.mailbox import CARRIER, KEY_WORDS

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient

MOST_PAGES = 10  # pages that one look-up reads at most; a page can be empty


class AgentLog:
    """The lines of agents in CloudWatch Logs."""

    def __init__(self, client: "CloudWatchLogsClient") -> None:
        self._client = client

    def key_lines(self, carrier: str) -> frozenset[str]:
        """Return the lines in the log of a carrier's attempt that print an agent's key, without the agent's prefix.

        :raises Unavailable: CloudWatch Logs gave no usable answer.
        """
        before = f"{CARRIER}| "
        found: set[str] = set()
        for page in log_pages(self._client, carrier, MOST_PAGES, {"filterPattern": f'"{before}{KEY_WORDS}"'}):
            lines = (event.get("message", "").rstrip() for event in page.events)
            found.update(line.removeprefix(before) for line in lines if line.startswith(before + KEY_WORDS))
        return frozenset(found)
