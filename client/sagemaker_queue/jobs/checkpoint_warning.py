"""Shorten the queue's warning about missing checkpoints, and add the remedy on the command line or in Python."""

from __future__ import annotations

import re

_FROM_THE_QUEUE = re.compile(r"The job has no CheckpointConfig\b.*", re.DOTALL)


def with_remedy(warning: str, remedy: str) -> str:
    """Replace a warning about missing checkpoints by a short sentence that ends in ``remedy``; keep other warnings."""
    return _FROM_THE_QUEUE.sub(lambda _: f"A preemption loses all work: {remedy}", warning)
