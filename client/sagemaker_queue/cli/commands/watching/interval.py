"""The option that says how often the queue is asked again."""

from __future__ import annotations

from sagemaker_queue.cli.parser import Decorator, option

LEAST_SECONDS = 1.0  # spares the queue
TRIES = 2  # of each question, since it is asked again anyway


def interval_option(seconds: float) -> Decorator:
    """Return the option ``interval``, in seconds, which is ``seconds`` if it is not given."""
    return option(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=str(seconds),
        help=f"the shortest time between two questions to the queue, in seconds, {LEAST_SECONDS:.0f} at least "
        f"(default: {seconds:.0f}); while nothing changes, they become rarer",
    )


def _seconds(text: str) -> float:
    return max(LEAST_SECONDS, float(text))
