"""The shared key of the queue and a carrier's agent: from the carrier's secret and the agent's public number."""

import hashlib
import hmac

from job_queue.carrier_agent import seal
from job_queue.domain.job import Job
from job_queue.domain.names import apply_qstamp

_HEX = frozenset("0123456789abcdef")
_DIGITS = 512  # of a number of 2,048 bits


def queue_number(secret: str, attempt: str) -> int:
    """Return the queue's private number for a carrier's attempt."""
    drawn = hmac.new(secret.encode(), f"agent/{attempt}".encode(), hashlib.sha256).digest()
    return int.from_bytes(drawn, "big") | 1 << 255


def agent_number(text: str) -> int | None:
    """Return an agent's public number; None: the text is not an element of the group."""
    if not 0 < len(text) <= _DIGITS or not _HEX.issuperset(text):
        return None
    number = int(text, 16)
    return number if 1 < number < seal.PRIME - 1 else None


def key_of(carrier: Job) -> bytes | None:
    """Return the key that the queue shares with a carrier's agent; None: the agent has not introduced itself."""
    number = agent_number(carrier.agent_key or "")
    if number is None or carrier.secret is None:
        return None
    attempt = apply_qstamp(carrier.name, 1)  # a carrier has one attempt
    return seal.shared_key(queue_number(carrier.secret, attempt), number, attempt)
