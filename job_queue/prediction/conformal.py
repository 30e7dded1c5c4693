"""Calibration of estimated waits: the errors of past estimates show how wrong the next estimate is likely to be.

This is split conformal prediction. The score of a past estimate is the logarithm of actual wait / estimated wait. The
quantiles of past scores give an interval of waits. If past and future scores are exchangeable, this interval contains
the actual wait as often as intended. Neither the distribution of the scores nor the quality of the estimates matters
(Papadopoulos et al., Inductive Confidence Machines for Regression, ECML 2002; Lei et al., Distribution-Free Predictive
Inference for Regression, JASA 2018).

A look is all estimates of one moment. The jobs of a look share one future, so the scores of these jobs are not
exchangeable. Whole looks are exchangeable. So the distributions of the looks are averaged with equal weights, however
many jobs waited (Dunn, Wasserman, Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA
2023, "pooling CDFs"). Only the latest looks count, because the load changes (Barber et al., Conformal Prediction Beyond
Exchangeability, Annals of Statistics 2023).

The score of a job that still waits is not known, but is at least the score of a start now. Such lower limits are
censored observations, so the distribution is the Kaplan-Meier estimate with weights (Kaplan and Meier, JASA 1958; for
conformal prediction Candes, Lei, Ren, Conformalized Survival Analysis, JRSSB 2023). Without the lower limits, most
scores would be scores of jobs that started early.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

LEVEL = 0.8  # part of the waits that an interval should contain
BOUND = 0.95  # part of the waits that should not exceed the bound
OFFSET_SECONDS = 300.0  # seconds added to both waits of a score, so that errors of a few minutes count little
MOST_LOOKS = 120  # the latest looks that count
MOST_SCORES = 9  # scores that are kept of a look
FEWEST_LOOKS = 2  # with fewer looks there is no interval
FEW_LOOKS = 8  # with fewer looks, an interval is shown with the number of its looks
_ROUNDING = 1e-9  # sums of weights are not exact


def score(wait: float, estimated_wait: float) -> float:
    """Return the score of an estimate: positive if the wait was longer than estimated. Waits are in seconds."""
    return log((wait + OFFSET_SECONDS) / (estimated_wait + OFFSET_SECONDS))


def wait_of(score: float, estimated_wait: float) -> float:
    """Return the wait, in seconds, with which an estimate has this score; 0 if the score is too small."""
    return max(0.0, exp(score) * (estimated_wait + OFFSET_SECONDS) - OFFSET_SECONDS)


def representative_scores(scores: Iterable[float]) -> tuple[float, ...]:
    """Return the scores of a look, the smallest first: all of them, or MOST_SCORES evenly spaced quantiles."""
    ordered = sorted(scores)
    if len(ordered) <= MOST_SCORES:
        return tuple(ordered)
    return tuple(_between(ordered, (place + 0.5) / MOST_SCORES) for place in range(MOST_SCORES))


@dataclass(frozen=True, slots=True)
class UsualErrors:
    """Quantiles of past scores, for the intervals of the next estimates. With too few looks, only `looks` is known."""

    looks: int = 0  # looks from which the scores come
    low: float = 0.0  # lower end of the interval that contains LEVEL of the waits
    middle: float = 0.0  # median
    high: float = 0.0  # upper end of the same interval
    bound: float = 0.0  # the part BOUND of the waits has at most this score

    @property
    def are_known(self) -> bool:
        """Whether there are enough looks for intervals."""
        return self.looks >= FEWEST_LOOKS


@dataclass(frozen=True, slots=True)
class LookScores:
    """The scores of a look: known scores, and lower limits of the scores of jobs that still wait."""

    known: Sequence[float]
    at_least: Sequence[float] = ()


def usual_errors(looks: Sequence[LookScores]) -> UsualErrors:
    """Return the quantiles of the averaged distribution of the latest looks.

    :param looks: the looks, the latest look last. A look without a known score does not count.
    """
    counting = [look for look in looks if look.known][-MOST_LOOKS:]
    if len(counting) < FEWEST_LOOKS:
        return UsualErrors(len(counting))
    distribution = list(_distribution(counting))
    tail = (1 - LEVEL) / 2
    return UsualErrors(len(counting), *(_quantile(distribution, part) for part in (tail, 0.5, 1 - tail, BOUND)))


def _distribution(looks: Iterable[LookScores]) -> Iterator[tuple[float, float]]:
    """Yield ascending scores, each with the part of all scores up to this score: the weighted Kaplan-Meier estimate."""
    scores = list[tuple[float, bool, float]]()
    for look in looks:
        weight = 1 / (len(look.known) + len(look.at_least))
        scores += [(value, False, weight) for value in look.known]
        scores += [(value, True, weight) for value in look.at_least]
    scores.sort()
    left, beyond = sum(weight for _, _, weight in scores), 1.0  # weight of this and later scores; part of larger scores
    for value, is_limit, weight in scores:
        if not is_limit:
            beyond *= max(0.0, 1 - weight / left)
            yield value, 1 - beyond
        left = max(weight, left - weight)
    yield scores[-1][0], 1.0


def _quantile(distribution: Sequence[tuple[float, float]], part: float) -> float:
    """Return the smallest score such that at least this part of all scores is not larger."""
    return next(value for value, up_to in distribution if up_to >= part - _ROUNDING)


def _between(ordered: Sequence[float], part: float) -> float:
    """Return a quantile of ordered values, interpolated between the two nearest values."""
    place = min(max(0.0, part * len(ordered) - 0.5), len(ordered) - 1.0)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (place - before) * (ordered[after] - ordered[before])
