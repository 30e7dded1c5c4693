"""The option ``--interval`` of the commands that poll the queue."""

from __future__ import annotations

from sagemaker_queue.cli.parser import Decorator, option

LEAST_SECONDS = 1.0  # the shortest interval, to limit the load on the queue
TRIES = 2  # tries of one request; few are enough, because the next poll repeats the request


def interval_option(seconds: float) -> Decorator:
    """Return the option ``--interval`` with the default ``seconds``. Values below LEAST_SECONDS are raised to it."""
    return option(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=str(seconds),
        help=f"shortest time between two requests in seconds, at least {LEAST_SECONDS:.0f} (default: {seconds:.0f}); "
        "pauses grow while nothing changes",
    )


def _seconds(text: str) -> float:
    return max(LEAST_SECONDS, float(text))
