"""How far SageMaker's list of training jobs is known, so that a walk through it is a page or two.

The list has every training job that the account ever had, the newest first. What was found alive once is in the
queue's tables, as an attempt or as an external job, and is watched there. So a walk looks for what is newer than the
last one. docs/adr/0028-listing.md has the argument.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

DAY_SECONDS = 24 * 3600
LONGEST_LIFE_SECONDS = 60 * DAY_SECONDS  # pending for 28 days and running for 28, the most that SageMaker allows each
SKEW_SECONDS = 300  # clocks differ, and a new training job may come into the list late
SWEEP_SECONDS = DAY_SECONDS  # after which the whole list is looked through again, a part in each walk


@dataclass(frozen=True, slots=True)
class Listing:
    """Every training job alive that was created from `since` until `until` is in the queue's tables (epoch seconds).

    Below `since` a sweep goes on, walk by walk, down to `floor`. Once it is there, the same holds for all of them.
    """

    since: int
    until: int
    floor: int
    swept: int  # when the last sweep began

    @property
    def sweeps(self) -> bool:
        """Whether a sweep goes on."""
        return self.since > self.floor

    @property
    def bottom(self) -> int:
        """Where a walk from the newest meets what is known."""
        return self.until - SKEW_SECONDS


def next_listing(known: Listing | None, now: float) -> Listing:
    """From where a walk goes on that begins now. Without a listing, nothing is known."""
    floor = int(now) - LONGEST_LIFE_SECONDS
    if known is None or known.until > now + SKEW_SECONDS:  # a clock that was wrong
        return Listing(floor, floor, floor, int(now))
    if not known.sweeps and known.swept + SWEEP_SECONDS <= now:
        return Listing(known.until, known.until, floor, int(now))
    return known


@dataclass(slots=True)
class Walk:
    """One walk: first from the newest to what is known, then some way down the sweep."""

    listing: Listing  # from where it went on
    began: int  # epoch seconds
    alive: set[str] = field(default_factory=set)  # training jobs
    warm: set[str] = field(default_factory=set)  # training jobs that have ended, and whose instances are kept
    newest_down_to: float | None = None  # where its first part ended before it met what is known
    swept_down_to: float | None = None  # where its second part ended
    _created: dict[str, float] = field(default_factory=dict)  # epoch seconds
    _first: set[str] = field(default_factory=set)  # those that the first part found

    def found(self, name: str, created: float, *, alive: bool, sweep: bool) -> None:
        """A training job that holds instances."""
        (self.alive if alive else self.warm).add(name)
        self._created[name] = created
        if not sweep:
            self._first.add(name)

    def is_newer(self, name: str, than: float) -> bool:
        """Return whether the list has the training job, created after this time (epoch seconds)."""
        return self._created.get(name, than) > than

    def result(self, unclear: Iterable[str]) -> Listing:
        """What is known after it.

        :param unclear: those of the found that are not in the tables yet. The next walk meets them again.
        """
        missed = [(self._created[name], name in self._first) for name in unclear]
        after = self._reached()
        until = min([after.until, *(int(created) for created, first in missed if first)])
        # What was created in this second counts as not seen.
        since = max([after.since, *(int(created) + 1 for created, first in missed if not first)])
        return replace(after, until=until, since=since)

    def _reached(self) -> Listing:
        known = replace(self.listing, until=self.began)
        if self.newest_down_to is not None:
            floor = self.listing.floor if self.listing.sweeps else min(self.listing.bottom, self.began)
            return replace(known, since=int(self.newest_down_to) + 1, floor=floor)
        if self.swept_down_to is not None:
            return replace(known, since=max(known.floor, int(self.swept_down_to) + 1))
        return known
