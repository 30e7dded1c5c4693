"""The expected start of a waiting job in the form of the API."""

from datetime import UTC, datetime

from api_contract.models import Expectation
from job_queue.simulation.forecast import Doubt, Estimate

LONGEST_PAUSE = 60  # seconds
SHORTEST_HINT = 30  # seconds; followers use intervals of up to this length by themselves

_UNKNOWN = {
    Doubt.NEVER: "Never, as things are: its reason says what keeps it.",
    Doubt.UNKNOWN_RUNTIMES: "Nobody can tell: too little is known of how long the jobs run that it waits for. "
    "MaxRuntimeInSeconds would tell, and so will jobs like them that end.",
    Doubt.FAR: "Nobody can tell: not within two days, as far as can be seen.",
    Doubt.NO_TIME: "Nobody can tell: too many jobs wait to look ahead.",
    Doubt.REFUSED: "Nobody can tell: SageMaker refuses to launch it. Its reason says why.",
}
_GUESS = {
    Doubt.OUTRANKED: "a guess, as most jobs that come to its project have a higher priority",
    Doubt.SPREAD: "a guess, as those before it may run for much shorter or longer",
    Doubt.NO_TIME: "a guess, as so many jobs wait that there was no time for a better one",
    Doubt.NOT_ALL_READ: "a guess, as more jobs wait than were looked at",
}


def expectation(estimate: Estimate, at: float) -> Expectation:
    """Return an estimate in the form of the API.

    :param at: epoch seconds at which the estimate was made.
    """
    return Expectation(
        message=_message(estimate),
        start=rounded(estimate.start),
        not_after=rounded(estimate.not_after),
        doubt=estimate.doubt.value if estimate.doubt else None,
        told_at=rounded(at),
    )


def ask_again_after(waits_since: float, expected: float | None, now: float) -> int | None:
    """Return the seconds after which a follower should ask for a waiting job again; None for SHORTEST_HINT or less.

    The result is a tenth of the expected remaining wait or, if that is unknown, of the wait so far, and at most
    LONGEST_PAUSE.

    :param waits_since: epoch seconds, like the other times.
    :param expected: the job's expected start; None if it is unknown.
    """
    seconds = min(LONGEST_PAUSE, ((now - waits_since) if expected is None else (expected - now)) / 10)
    return round(seconds) if seconds > SHORTEST_HINT else None


def _message(estimate: Estimate) -> str:
    if estimate.start is None:
        return _UNKNOWN.get(estimate.doubt or Doubt.NEVER, "Nobody can tell.")
    when = f"At about {_minute(estimate.start)}"
    if estimate.doubt:
        when += f": {_GUESS.get(estimate.doubt, 'a guess')}"
    latest = f" Most likely by {_minute(estimate.not_after)}." if estimate.not_after is not None else ""
    return f"{when}.{latest}"


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def rounded(seconds: float | None) -> datetime | None:
    """Return epoch seconds as a UTC time, rounded to the second."""
    return None if seconds is None else datetime.fromtimestamp(round(seconds), UTC)
