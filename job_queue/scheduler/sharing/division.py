"""Divide slots by the arithmetic of fair shares: quotas first, then by weight, with or without past use.

`fair_share` calls this module with the quotas, weights and requests of departments or projects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

STEPS_PER_SLOT = 1000  # past use is rounded to 1 / STEPS_PER_SLOT slots
REMAINDER_STEPS = 100  # remainders are rounded to 1 / REMAINDER_STEPS slots before comparison


@dataclass(frozen=True, slots=True)
class Recipient:
    """A department or project that gets a part of the divided slots."""

    quota: int
    weight: Fraction  # part of the slots over quota, relative to the other recipients' weights
    request: int


@dataclass(frozen=True, slots=True)
class Past:
    """Past and present use of a department or project."""

    lately: float  # slots held on average; older use counts less
    holds: int  # slots held now, except those that are being freed


def divide(have: int, recipients: Sequence[Recipient]) -> list[int]:
    """Divide a parent's slots among its children, given in policy order.

    Each child first gets its quota, up to its request. If there are too few slots for these quotas, the quotas are
    reduced in proportion. The rest is divided by weight among children that request more than their quota.
    """
    guaranteed = [min(recipient.quota, recipient.request) for recipient in recipients]
    total = sum(guaranteed)
    if total > have:
        return _round_down([Fraction(part * have, total) for part in guaranteed], have)
    rest = [(recipient.request - own, recipient.weight) for recipient, own in zip(recipients, guaranteed, strict=True)]
    parts, all_given = _by_weight(have - total, rest)
    over = _round_down(parts, have - total) if all_given else [int(part) for part in parts]
    return [own + more for own, more in zip(guaranteed, over, strict=True)]


def divide_by_past(
    have: int, recipients: Sequence[Recipient], pasts: Sequence[Past]
) -> tuple[list[int], list[Fraction]]:
    """Divide like `divide`, with past use. Return the slots of each child, and its exact fair share without past use.

    Slots over quota are divided in proportion to max(0, over + fair - lately) of each child. `over` is the number of
    slots over quota that the child would get without past use. `fair` is `over` plus the smaller of the child's quota
    and request. `lately` is the number of slots that the child held on average. So a child that has held less than its
    fair share gets more than `over` until it has caught up. Past use does not change quotas.

    Without quotas this is KAI-Scheduler's time-based fair share, weight + k (weight - use), with k = 1.

    The parts are rounded down, and each remaining slot goes to a different child. Children that already hold such a
    slot come first, so that no job is stopped for a fraction of a slot. Next come the children whose fraction past use
    has raised most.
    """
    guaranteed = [min(recipient.quota, recipient.request) for recipient in recipients]
    rest = have - sum(guaranteed)
    if rest < 0:
        whole = divide(have, recipients)
        return whole, [Fraction(count) for count in whole]
    requests = [recipient.request - own for recipient, own in zip(recipients, guaranteed, strict=True)]
    parts, _ = _by_weight(
        rest, [(request, recipient.weight) for request, recipient in zip(requests, recipients, strict=True)]
    )
    fair = [own + part for own, part in zip(guaranteed, parts, strict=True)]
    lately = [Fraction(round(past.lately * STEPS_PER_SLOT), STEPS_PER_SLOT) for past in pasts]
    due = [
        max(Fraction(0), part + share - had) if part else part
        for part, share, had in zip(parts, fair, lately, strict=True)
    ]
    over, all_given = _by_weight(rest, list(zip(requests, due, strict=True)))
    if not all_given:  # divide the rest among all children, without past use
        left = rest - int(sum(over))
        more = [
            (request - int(got), recipient.weight)
            for request, got, recipient in zip(requests, over, recipients, strict=True)
        ]
        over = [got + part for got, part in zip(over, _by_weight(left, more)[0], strict=True)]
    holds = [past.holds - own for past, own in zip(pasts, guaranteed, strict=True)]
    whole = _round_down(over, int(sum(over)), holds, parts)
    return [own + more for own, more in zip(guaranteed, whole, strict=True)], fair


def _by_weight(rest: int, requests: Sequence[tuple[int, Fraction]]) -> tuple[list[Fraction], bool]:
    """Divide slots by weight among children that request slots. No child gets more than its request.

    A child whose part exceeds its request gets its request, and the rest is divided again among the other children.
    Return the parts, and whether the whole rest is divided. If slots are left over, the parts are whole numbers.

    :param requests: request and weight of each child.
    """
    parts = [Fraction(0)] * len(requests)
    requesting = [place for place, (request, weight) in enumerate(requests) if request > 0 and weight > 0]
    requesting.sort(key=lambda place: Fraction(requests[place][0]) / requests[place][1])
    left, weights = rest, sum((requests[place][1] for place in requesting), Fraction(0))
    for done, place in enumerate(requesting):
        request, weight = requests[place]
        if request * weights > left * weight:  # this request and all later requests exceed their parts
            for other in requesting[done:]:
                parts[other] = left * requests[other][1] / weights
            return parts, True
        parts[place] = Fraction(request)
        left, weights = left - request, weights - weight
    return parts, False


def _round_down(
    parts: Sequence[Fraction], total: int, holds: Sequence[int] = (), without: Sequence[Fraction] = ()
) -> list[int]:
    """Round parts down, and give one remaining slot each to the children with the largest remainders.

    Children with equal remainders are in policy order. With past use the order is: children that already hold more than
    their rounded part, largest growth of the remainder by past use, largest remainder. If the remainder came
    before its growth, a child with a small weight would be first only if it is far behind its fair share.

    :param holds: slots over quota that each child holds; empty: past use does not count.
    :param without: the parts without past use.
    """
    whole = [int(part) for part in parts]

    def turn(place: int) -> tuple[Any, ...]:
        remainder = parts[place] - whole[place]
        if not holds:
            return (-remainder, place)
        growth = round((remainder - without[place] % 1) * REMAINDER_STEPS)
        return (not remainder, holds[place] <= whole[place], -growth, -remainder, place)

    order = sorted(range(len(parts)), key=turn)
    for place in order[: total - sum(whole)]:
        whole[place] += 1
    return whole
