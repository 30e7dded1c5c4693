"""Calibration of estimated waits: the errors of past estimates show how wrong the next estimate is likely to be.

This is split conformal prediction. The score of a past estimate is the logarithm of actual wait / estimated wait. If
past and future scores are exchangeable, their quantiles give an interval that holds as often as intended, whatever
their distribution and however bad the estimates are (Papadopoulos et al., Inductive Confidence Machines for Regression,
ECML 2002; Lei et al., Distribution-Free Predictive Inference for Regression, JASA 2018).

A look is all estimates of one moment. The jobs of a look share one future, so their scores are not exchangeable; whole
looks are. So the distributions of the looks are averaged with equal weights, however many jobs waited
(Dunn, Wasserman, Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 2023, "pooling
CDFs"). Only the latest looks count, because the load changes (Barber et al., Conformal Prediction Beyond
Exchangeability, Annals of Statistics 2023).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

LEVEL = 0.8  # part of the waits that an interval should contain
BOUND = 0.95  # part of the waits that should not exceed the bound
SHORT = 300.0  # seconds added to both waits of a score, so that errors of a few minutes count little
MOST_LOOKS = 120  # the latest looks that count
MOST_SCORES = 9  # scores that are kept of a look
FEWEST_LOOKS = 2  # with fewer looks there is no interval
FEW_LOOKS = 8  # with fewer looks, an interval is shown with the number of its looks
_HALVINGS = 20  # of the range of all scores, to find a quantile


def score(wait: float, told: float) -> float:
    """Return the score of an estimate: positive if the wait was longer than estimated. Waits are in seconds."""
    return log((wait + SHORT) / (told + SHORT))


def wait_of(score: float, told: float) -> float:
    """Return the wait, in seconds, with which the estimate `told` has this score; 0 if the score is too small."""
    return max(0.0, exp(score) * (told + SHORT) - SHORT)


def reduced(scores: Iterable[float]) -> tuple[float, ...]:
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
    middle: float = 0.0
    high: float = 0.0  # upper end of this interval
    bound: float = 0.0  # BOUND of the waits have a smaller score

    @property
    def are_known(self) -> bool:
        """Whether there are enough looks for intervals."""
        return self.looks >= FEWEST_LOOKS


def usual_errors(looks: Sequence[Sequence[float]]) -> UsualErrors:
    """Return the quantiles of the averaged distribution of the latest looks.

    :param looks: the scores of each look, the latest look last. A look without scores does not count.
    """
    counting = [reduced(scores) for scores in [scores for scores in looks if scores][-MOST_LOOKS:]]
    if len(counting) < FEWEST_LOOKS:
        return UsualErrors(len(counting))
    tail = (1 - LEVEL) / 2
    return UsualErrors(len(counting), *(_quantile(counting, part) for part in (tail, 0.5, 1 - tail, BOUND)))


def _quantile(looks: Sequence[Sequence[float]], part: float) -> float:
    """Return the smallest score at which the average of the looks' distribution functions reaches `part`."""
    low, high = min(scores[0] for scores in looks), max(scores[-1] for scores in looks)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(_part_up_to(scores, middle) for scores in looks) >= part * len(looks):
            high = middle
        else:
            low = middle
    return high


def _part_up_to(scores: Sequence[float], value: float) -> float:
    """Return a look's distribution function at a value. The function is linear between two scores."""
    if value < scores[0]:
        return 0.0
    if value >= scores[-1]:
        return 1.0
    after = bisect_right(scores, value)
    before = scores[after - 1]
    return (after - 0.5 + (value - before) / (scores[after] - before)) / len(scores)


def _between(ordered: Sequence[float], part: float) -> float:
    """Return a quantile of ordered values, interpolated between the two nearest values."""
    place = min(max(0.0, part * len(ordered) - 0.5), len(ordered) - 1.0)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (place - before) * (ordered[after] - ordered[before])
