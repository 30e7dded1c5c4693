"""The numbers of CreateTrainingJob calls as ranges, so that thousands of unanswered calls fit in a job's row."""

Ranges = tuple[tuple[int, int], ...]
"""The first and the last number of each range, in rising order."""

MOST_RANGES = 20


def contains(ranges: Ranges, number: int) -> bool:
    """Return whether a number is in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def with_number(ranges: Ranges, number: int) -> Ranges:
    """Return the ranges with one more number, which must be higher than all numbers in the ranges.

    Beyond `MOST_RANGES`, the two oldest ranges are joined, which adds the numbers between them. An added number does
    less harm than a missing number, which would make a true attempt unrecognisable.
    """
    if ranges and ranges[-1][1] == number - 1:
        return (*ranges[:-1], (ranges[-1][0], number))
    more = (*ranges, (number, number))
    return more if len(more) <= MOST_RANGES else ((more[0][0], more[1][1]), *more[2:])


def without_number(ranges: Ranges, number: int) -> Ranges:
    """Return the ranges without one number."""
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        parts = ((first, min(last, number - 1)), (max(first, number + 1), last))
        left += [part for part in parts if part[0] <= part[1]] if first <= number <= last else [(first, last)]
    return tuple(left)
