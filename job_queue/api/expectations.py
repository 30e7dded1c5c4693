"""The expected start of a waiting job in the form of the API."""

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from api_contract.intervals import interval_in_words
from api_contract.models import Expectation
from job_queue.domain.expectations.past_estimates import StartInterval
from job_queue.prediction.conformal import BOUND, FEW_LOOKS, FEWEST_LOOKS
from job_queue.simulation.forecast import Doubt, Estimate, is_close

LONGEST_PAUSE = 60  # seconds; the longest hint
SHORTEST_HINT = 30  # seconds; without a hint, clients that follow a job use intervals of up to this length

WIDE = "SPREAD"  # code of the API for a start whose interval is wide or unknown
_UNKNOWN = {
    Doubt.NEVER: "Never, unless the cause that its reason names is removed.",
    Doubt.UNKNOWN_RUNTIMES: "Unknown: the queue does not know how long the jobs ahead of it run. A "
    "MaxRuntimeInSeconds below one day (smq submit --max-run) helps, and the queue learns from similar jobs that end.",
    Doubt.FAR: "Not within the next two days.",
    Doubt.NO_TIME: "Unknown: too many jobs wait to simulate their starts.",
    Doubt.REFUSED: "Unknown: SageMaker refuses to launch it. Its reason has the cause.",
}


def expectation(estimate: Estimate, found: StartInterval, at: float, now: float) -> Expectation:
    """Return an estimate in the form of the API.

    :param found: the interval in which the job may start.
    :param at: epoch seconds at which the estimate was made.
    :param now: epoch seconds of the answer.
    """
    expected = Expectation(
        start=rounded(estimate.start),
        earliest=rounded(found.earliest),
        likely=rounded(found.likely),
        latest=rounded(found.latest),
        level=found.level,
        looks=found.looks,
        not_after=rounded(found.not_after),
        doubt=_doubt(estimate, found, at),
        told_at=rounded(at),
    )
    return replace(expected, message=" ".join(_sentences(estimate, found, expected, now)))


def _doubt(estimate: Estimate, found: StartInterval, at: float) -> str | None:
    if estimate.doubt is not None or estimate.start is None:
        return estimate.doubt
    start, ends = estimate.start, (found.earliest, found.latest)
    is_narrow = all(end is not None and is_close(start - at, end - at) for end in ends)
    return None if is_narrow else WIDE


def _sentences(estimate: Estimate, found: StartInterval, expected: Expectation, now: float) -> Iterator[str]:
    """Yield the sentences about a start: the interval, its quality, and why the simulations have no start."""
    interval = interval_in_words(expected, datetime.fromtimestamp(now, UTC))
    if interval is not None:
        yield f"{interval[0].upper()}{interval[1:]}."
    if found.level is not None and found.likely is not None and found.not_after is not None:
        bound = f"{round(20 * BOUND)} of 20 by {_minute(found.not_after)}"
        yield f"Half of such jobs start by {_minute(found.likely)}, {bound}."
        if found.looks < FEW_LOOKS:
            yield f"This estimate is based on only {found.looks} earlier estimates."
    elif estimate.start is not None:
        yield f"The simulations start it at about {_minute(estimate.start)}."
        yield f"Their accuracy is not known yet ({found.looks} of {FEWEST_LOOKS} earlier estimates can be compared)."
    if estimate.start is None:
        yield _UNKNOWN.get(estimate.doubt or Doubt.NEVER, "Unknown.")


def ask_again_after(waits_since: float, expected: float | None, now: float) -> int | None:
    """Return the seconds after which a client should request a waiting job again; None for SHORTEST_HINT or less.

    The result is a tenth of the expected remaining wait. If the expected start is unknown, the result is a tenth of the
    wait so far. The maximum is LONGEST_PAUSE. All times are epoch seconds.

    :param waits_since: the time since which the job waits.
    :param expected: the job's expected start; None if it is unknown.
    """
    seconds = min(LONGEST_PAUSE, ((now - waits_since) if expected is None else (expected - now)) / 10)
    return round(seconds) if seconds > SHORTEST_HINT else None


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def rounded(seconds: float | None) -> datetime | None:
    """Return epoch seconds as a UTC time, rounded to the second."""
    return None if seconds is None else datetime.fromtimestamp(round(seconds), UTC)
