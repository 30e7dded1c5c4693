"""How a parent's slots of a pool are divided among its children, with and without a memory of what was used."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

STEPS = 1000  # of a slot, in which past use is counted
NOTICED = 100  # parts of a slot, by one of which remainders have to differ


@dataclass(frozen=True, slots=True)
class Asker:
    """One of those who divide what their parent has."""

    quota: int
    weight: Fraction  # its part of what is left over, relative to the others'
    request: int


@dataclass(frozen=True, slots=True)
class Past:
    """What one of them has had."""

    lately: float  # slots that it has held on average, what is long ago weighing less
    holds: int  # slots that it holds, without those that are being freed


def divide(have: int, askers: Sequence[Asker]) -> list[int]:
    """Divide what a parent has among its children, given in policy order.

    Everyone first gets its quota, as far as it asks for it; what is left goes by weight to those still asking.
    """
    guaranteed = [min(asker.quota, asker.request) for asker in askers]
    total = sum(guaranteed)
    if total > have:
        return _round_down([Fraction(part * have, total) for part in guaranteed], have)
    rest = [(asker.request - own, asker.weight) for asker, own in zip(askers, guaranteed, strict=True)]
    parts, all_given = _by_weight(have - total, rest)
    over = _round_down(parts, have - total) if all_given else [int(part) for part in parts]
    return [own + more for own, more in zip(guaranteed, over, strict=True)]


def divide_by_past(have: int, askers: Sequence[Asker], pasts: Sequence[Past]) -> tuple[list[int], list[Fraction]]:
    """The same where past use counts: gives what everyone gets, and what it would without a past, not rounded.

    What is over quota is divided in proportion to `part + (fair - lately)`, where that is above 0: `part` is what one
    would get of it without a past, `fair` that and its quota. So who has held less than it should have lately gets more
    than its part until it has caught up, as in KAI-Scheduler's time-based fair share, where `W + k (W - U)` is the same
    for k = 1 and without quotas. Quotas are as ever. Who holds an odd slot keeps it: nobody is stopped for less than a
    whole one. Others go to who has had least of the part of a slot that is due to it without a past.
    """
    guaranteed = [min(asker.quota, asker.request) for asker in askers]
    rest = have - sum(guaranteed)
    if rest < 0:
        whole = divide(have, askers)
        return whole, [Fraction(count) for count in whole]
    asks = [asker.request - own for asker, own in zip(askers, guaranteed, strict=True)]
    parts, _ = _by_weight(rest, [(ask, asker.weight) for ask, asker in zip(asks, askers, strict=True)])
    fair = [own + part for own, part in zip(guaranteed, parts, strict=True)]
    lately = [Fraction(round(past.lately * STEPS), STEPS) for past in pasts]
    due = [
        max(Fraction(0), part + share - had) if part else part
        for part, share, had in zip(parts, fair, lately, strict=True)
    ]
    over, all_given = _by_weight(rest, list(zip(asks, due, strict=True)))
    if not all_given:  # who has caught up gets what the others leave, as if nobody had a past
        left = rest - int(sum(over))
        more = [(ask - int(got), asker.weight) for ask, got, asker in zip(asks, over, askers, strict=True)]
        over = [got + part for got, part in zip(over, _by_weight(left, more)[0], strict=True)]
    holds = [past.holds - own for past, own in zip(pasts, guaranteed, strict=True)]
    whole = _round_down(over, int(sum(over)), holds, parts)
    return [own + more for own, more in zip(guaranteed, whole, strict=True)], fair


def _by_weight(rest: int, asks: Sequence[tuple[int, Fraction]]) -> tuple[list[Fraction], bool]:
    """Who asks less than its part gets what it asks, and the rest is divided anew among the others.

    Gives the parts, and whether all of the rest is given. If not, the parts are whole.
    """
    parts = [Fraction(0)] * len(asks)
    asking = [place for place, (ask, weight) in enumerate(asks) if ask > 0 and weight > 0]
    asking.sort(key=lambda place: Fraction(asks[place][0]) / asks[place][1])
    left, weights = rest, sum((asks[place][1] for place in asking), Fraction(0))
    for done, place in enumerate(asking):
        ask, weight = asks[place]
        if ask * weights > left * weight:  # from here on everyone asks for more than its part
            for other in asking[done:]:
                parts[other] = left * asks[other][1] / weights
            return parts, True
        parts[place] = Fraction(ask)
        left, weights = left - ask, weights - weight
    return parts, False


def _round_down(
    parts: Sequence[Fraction], total: int, holds: Sequence[int] = (), without: Sequence[Fraction] = ()
) -> list[int]:
    """Whole slots; the odd ones go one each: largest remainder, then policy order.

    Where there is a past: who holds one, then whose remainder is larger than without a past. If remainders alone were
    compared, whose is small by its weight would not get its turn before it is far behind.

    :param holds: slots.
    :param without: the parts without a past.
    """
    whole = [int(part) for part in parts]

    def turn(place: int) -> tuple[Any, ...]:
        odd = parts[place] - whole[place]
        if not holds:
            return (-odd, place)
        more = round((odd - without[place] % 1) * NOTICED)
        return (not odd, holds[place] <= whole[place], -more, -odd, place)

    order = sorted(range(len(parts)), key=turn)
    for place in order[: total - sum(whole)]:
        whole[place] += 1
    return whole
