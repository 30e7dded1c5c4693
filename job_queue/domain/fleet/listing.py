"""Decide which part of SageMaker's list of training jobs to read: the jobs since the last walk, and a daily sweep.

The list has every training job that the account ever had, the newest first. Each training job that was found alive is
in the queue's tables, as an attempt or as an external job. The queue checks these training jobs from then on. So the
first part of a walk reads only the training jobs that are newer than the last walk: one or two pages. The second part
continues the sweep.
docs/developers/adr/0028-listing.md explains why this suffices.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from job_queue.domain.fleet.sites import Site

DAY_SECONDS = 24 * 3600
LONGEST_LIFE_SECONDS = 60 * DAY_SECONDS  # SageMaker's maxima are 28 days pending and 28 days running
SKEW_SECONDS = 300  # clocks differ, and a new training job may appear late in the list
SWEEP_SECONDS = DAY_SECONDS  # after this time the next sweep begins: `LONGEST_LIFE_SECONDS` of the list are read again


@dataclass(frozen=True, slots=True)
class ListingProgress:
    """The known part of the list: live training jobs that were created from `since` until `until` are in the tables.

    A sweep lowers `since` to `floor` step by step, one step in each walk. When `since` has reached `floor`, the list of
    the last `LONGEST_LIFE_SECONDS` is known. All times are epoch seconds.
    """

    since: int
    until: int
    floor: int
    swept: int  # start of the last sweep

    @property
    def has_unread_part(self) -> bool:
        """Whether a part after `floor` is unread: the rest of a sweep, or a gap that an interrupted walk has left."""
        return self.since > self.floor

    @property
    def known_from(self) -> int:
        """The time at which a walk from the newest training job reaches the known part."""
        return self.until - SKEW_SECONDS


def next_listing(known: ListingProgress | None, now: float) -> ListingProgress:
    """Return the progress from which a walk that begins at `now` continues.

    :param known: the progress of the last walk; None: there was no walk.
    """
    floor = int(now) - LONGEST_LIFE_SECONDS
    if known is None or known.until > now + SKEW_SECONDS:  # a time in the future: the clock was wrong
        return ListingProgress(floor, floor, floor, int(now))
    if not known.has_unread_part and known.swept + SWEEP_SECONDS <= now:
        return ListingProgress(known.until, known.until, floor, int(now))
    return known


@dataclass(slots=True)
class Walk:
    """One walk: first from the newest training job to the known part, then a part of the sweep."""

    listing: ListingProgress  # the progress from which the walk continues
    began: int  # epoch seconds
    site: Site | None = None  # None: the home site
    alive: set[str] = field(default_factory=set)  # training jobs
    warm: set[str] = field(default_factory=set)  # ended training jobs whose instances are kept warm
    newest_down_to: float | None = None  # epoch seconds down to which the first part has read, if it ended early
    swept_down_to: float | None = None  # epoch seconds down to which the second part has read the list
    # live training job -> its SecondaryStatus, and epoch seconds of its last change
    stages: dict[str, tuple[str, float]] = field(default_factory=dict)
    _created: dict[str, float] = field(default_factory=dict)  # training job -> epoch seconds of its creation
    _in_first_part: set[str] = field(default_factory=set)  # training jobs that the first part found

    def add(self, name: str, created: float, *, alive: bool, sweep: bool) -> None:
        """Add a training job that holds instances.

        :param alive: False: the training job has ended, and its instances are kept warm.
        :param sweep: whether the second part of the walk found the training job.
        """
        (self.alive if alive else self.warm).add(name)
        self._created[name] = created
        if not sweep:
            self._in_first_part.add(name)

    def is_newer(self, name: str, than: float) -> bool:
        """Return whether the walk found the training job, and its creation is after `than` (epoch seconds)."""
        return self._created.get(name, than) > than

    def progress_after(self, unclear: Iterable[str]) -> ListingProgress:
        """Return the progress after the walk.

        :param unclear: found training jobs that are not in the tables yet. The next walk finds them again.
        """
        missed = [(self._created[name], name in self._in_first_part) for name in unclear]
        after = self._reached()
        until = min([after.until, *(int(created) for created, first in missed if first)])
        # Training jobs that were created in the same second as a missed one count as not seen.
        since = max([after.since, *(int(created) + 1 for created, first in missed if not first)])
        return replace(after, until=until, since=since)

    def _reached(self) -> ListingProgress:
        known = replace(self.listing, until=self.began)
        if self.newest_down_to is not None:
            floor = self.listing.floor if self.listing.has_unread_part else min(self.listing.known_from, self.began)
            return replace(known, since=int(self.newest_down_to) + 1, floor=floor)
        if self.swept_down_to is not None:
            return replace(known, since=max(known.floor, int(self.swept_down_to) + 1))
        return known
