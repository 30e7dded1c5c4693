"""The look-up of the digest of an agent's key in the log of its carrier, which only the carrier can write."""

from typing import TYPE_CHECKING

from job_queue.adapters.lookups.training_logs import log_pages
from job_queue.carrier_agent.mailbox import CARRIER, KEY_WORDS

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient

MOST_PAGES = 10  # pages that one look-up reads at most; a page can be empty


class AgentLog:
    """The log lines that agents have written to CloudWatch Logs."""

    def __init__(self, client: "CloudWatchLogsClient") -> None:
        self._client = client

    def key_lines(self, carrier: str) -> frozenset[str]:
        """Return a carrier's log lines that have the digest of an agent's key, without the agent's prefix.

        :param carrier: the carrier's attempt.
        :raises Unavailable: CloudWatch Logs gave no usable answer.
        """
        prefix = f"{CARRIER}| "
        found: set[str] = set()
        for page in log_pages(self._client, carrier, MOST_PAGES, {"filterPattern": f'"{prefix}{KEY_WORDS}"'}):
            lines = (event.get("message", "").rstrip() for event in page.events)
            found.update(line.removeprefix(prefix) for line in lines if line.startswith(prefix + KEY_WORDS))
        return frozenset(found)
