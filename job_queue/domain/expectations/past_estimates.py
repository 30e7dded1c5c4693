"""Past estimates of starts, their scores once the jobs have started, and the interval of the next estimates.

A look is a set of estimates that were made at the same time.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from job_queue.prediction.conformal import (
    LEVEL,
    MOST_LOOKS,
    LookScores,
    UsualErrors,
    representative_scores,
    score,
    usual_errors,
    wait_of,
)
from job_queue.simulation.forecast import Doubt, Estimate

LOOK_SECONDS = 3 * 3600.0  # time between two looks that are kept
MOST_ESTIMATES = 30  # estimates that are kept of a look
UNKNOWN_WAIT = 3600.0  # seconds that replace an unknown estimated wait, unless the job has already waited longer


@dataclass(frozen=True, slots=True)
class PastLook:
    """A look: the scores of the jobs that have started since then, and the estimated waits of the other jobs."""

    at: float  # epoch seconds
    scores: tuple[float, ...] = ()
    waiting: Mapping[str, float] = field(default_factory=dict)  # submission -> estimated wait, seconds

    def scores_at(self, now: float) -> LookScores:
        """Return the scores of the look. The wait so far gives a lower limit for each job that still waits."""
        return LookScores(self.scores, [score(now - self.at, estimated) for estimated in self.waiting.values()])


@dataclass(frozen=True, slots=True)
class PastEstimates:
    """The latest looks, the oldest first."""

    looks: tuple[PastLook, ...] = ()

    def pending(self) -> frozenset[str]:
        """Return the submissions whose start is still needed for a score."""
        return frozenset(submission for look in self.looks for submission in look.waiting)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to keep another look."""
        return not self.looks or now >= self.looks[-1].at + LOOK_SECONDS

    def with_look(self, at: float, estimated_waits: Mapping[str, float]) -> "PastEstimates":
        """Return the looks with a new one, which keeps an evenly spaced part of the estimates.

        :param estimated_waits: submission -> estimated wait, seconds. Without any, no look is added.
        """
        if not estimated_waits:
            return self
        ordered = sorted(estimated_waits.items(), key=lambda it: (it[1], it[0]))
        kept = min(len(ordered), MOST_ESTIMATES)
        chosen = dict(ordered[int((place + 0.5) / kept * len(ordered))] for place in range(kept))
        return PastEstimates((*self.looks, PastLook(at, waiting=chosen))[-MOST_LOOKS:])

    def with_starts(self, starts: Mapping[str, Sequence[float]], waiting: Container[str] | None) -> "PastEstimates":
        """Return the looks with scores for the jobs that have started.

        Drop the estimates of jobs that have not started and are not in `waiting`. These jobs have left the queue, or
        start only after a person acts (hold, policy, AWS quota).

        :param starts: submission -> epoch seconds of its starts.
        :param waiting: submissions that the queue can start; None: not all of them were read, and none is dropped.
        """
        return PastEstimates(tuple(_with_starts(look, starts, waiting) for look in self.looks))

    def usual_errors(self, now: float) -> UsualErrors:
        """Return how wrong the estimates of the looks were, as far as is known at this time."""
        return usual_errors([look.scores_at(now) for look in self.looks])


def _with_starts(look: PastLook, starts: Mapping[str, Sequence[float]], waiting: Container[str] | None) -> PastLook:
    scores, still_waiting = list(look.scores), dict[str, float]()
    for submission, estimated in look.waiting.items():
        start = min((it for it in starts.get(submission, ()) if it > look.at), default=None)
        if start is not None:
            scores.append(score(start - look.at, estimated))
        elif waiting is None or submission in waiting:
            still_waiting[submission] = estimated
    if len(still_waiting) == len(look.waiting):
        return look
    return replace(
        look, scores=tuple(scores) if still_waiting else representative_scores(scores), waiting=still_waiting
    )


@dataclass(frozen=True, slots=True)
class StartInterval:
    """The times at which a waiting job may start, in epoch seconds. A time is None if it is unknown."""

    earliest: float | None = None
    likely: float | None = None
    latest: float | None = None
    not_after: float | None = None  # hardly any job starts later
    level: float | None = None  # share of such intervals that should contain the actual start; None: not known
    looks: int = 0  # number of past looks whose estimates can be compared with actual starts


def depends_on_queue(estimate: Estimate) -> bool:
    """Return whether the job will start without a change by people, so that its estimate can be right or wrong."""
    return estimate.doubt not in (Doubt.NEVER, Doubt.REFUSED)


def estimated_wait(estimate: Estimate, at: float, entered: float) -> float:
    """Return the estimated wait in seconds. An unknown wait counts as UNKNOWN_WAIT, or as the wait so far if longer.

    :param at: epoch seconds of the estimate.
    :param entered: epoch seconds of the job's submission.
    """
    return max(UNKNOWN_WAIT, at - entered) if estimate.start is None else max(0.0, estimate.start - at)


def interval(estimate: Estimate, at: float, entered: float, errors: UsualErrors) -> StartInterval:
    """Return the interval in which a job may start.

    Use the usual errors of estimates. If these errors are unknown, use the range of the simulated futures.

    :param at: epoch seconds of the estimate.
    :param entered: epoch seconds of the job's submission.
    """
    if not depends_on_queue(estimate):
        return StartInterval()
    if not errors.are_known:
        return StartInterval(estimate.earliest, estimate.start, estimate.latest, looks=errors.looks)
    wait = estimated_wait(estimate, at, entered)
    scores = (errors.low, errors.middle, errors.high, errors.bound)
    earliest, likely, latest, bound = (at + wait_of(score, wait) for score in scores)
    return StartInterval(earliest, likely, latest, bound, level=LEVEL, looks=errors.looks)
