"""Words and figures of the messages that people read."""

from collections.abc import Sequence
from datetime import UTC, datetime

from job_queue.scheduler.model import DEFAULT, Slots

NAMED = 3  # how many things a list names before it says "and n more"


def of_pool(pool: str) -> str:
    """` of p5`; nothing for the one pool that exists while no policy is applied."""
    return "" if pool == DEFAULT else f" of {pool}"


def instances(count: int, pool: str) -> str:
    """`2 instances of p5`."""
    return f"{count} instance{'' if count == 1 else 's'}{of_pool(pool)}"


def demand(alternatives: Sequence[Slots]) -> str:
    """`1 instance of p5 and 2 instances of c6, or 4 instances of p4`."""
    return ", or ".join(join([instances(count, pool) for pool, count in need.items()]) for need in alternatives)


def join(words: Sequence[str]) -> str:
    """`a, b and c`; long lists end in `and 7 more`."""
    if len(words) > NAMED + 1:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def with_verb(count: int) -> str:
    """`1 is` or `2 are`."""
    return f"{count} {'is' if count == 1 else 'are'}"


def clock(seconds: float) -> str:
    """A time as `2026-11-20 12:05:00 UTC`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
