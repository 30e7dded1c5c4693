"""The places in S3 that live jobs write to: a row for each, written and deleted in the transactions of its job.

A bucket's rows are a partition, ordered by place: what lies below a place follows it, and first those at the place
itself. So one query sees whether a place and all below it is free, and one for each folder above it whether that is.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial

from job_queue.adapters.condition_expressions import is_locked_by_nobody_else
from job_queue.adapters.dynamodb import Delete, Item, Put, Tables
from job_queue.domain.access.places import Claim, folders_above
from job_queue.domain.errors import TooMany
from job_queue.domain.job import Job

PLACE_PREFIX = "place#"  # of the partition of a bucket's places
LOCKS = "places"  # the partition of locks
LOCK_DIGITS = 16  # of a lock's name: two places never share a lock, however many jobs are submitted at once
LOCK_SECONDS = 30  # longer than an invocation takes from looking to writing
CLAIMS_BELOW = 500  # of one's own that are looked through
CLAIMS_AT = 10  # of one owner, or of few


def claims_of(job: Job, lines_table: str, now: float) -> list[Put]:
    """The writes by which a new job takes its places.

    A place for checkpoints is locked, too: of two owners who look at the same moment and find it free, one is refused.
    DynamoDB deletes a lock (its attribute `expires`) some time after it has ended.
    """
    writes = [Put(lines_table, {**_key(place, job.name), "owner": job.owner}) for place in job.places]
    if len(job.places) > 1:
        lock = {"line": LOCKS, "position": hashlib.sha256(job.places[0].encode()).hexdigest()[:LOCK_DIGITS]}
        until = int(now) + LOCK_SECONDS
        held = {**lock, "owner": job.owner, "until": until, "expires": until + LOCK_SECONDS}
        writes.append(Put(lines_table, held, is_locked_by_nobody_else(job.owner, int(now))))
    return writes


def releases_of(job: Job, lines_table: str) -> list[Delete]:
    """The writes by which a job that ends gives its places back."""
    return [Delete(lines_table, _key(place, job.name)) for place in job.places]


class ClaimedPlaces:
    """Looks up who writes where."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def lookups(self, places: Iterable[str], is_own: Callable[[str], bool]) -> list[Callable[[], list[Claim]]]:
        """Calls that give what others claim of these places, below them and above: bounded, and independent.

        :param is_own: whether what this owner has claimed is no obstacle.
        """
        places = list(places)
        above = sorted({folder for place in places for folder in folders_above(place)} - set(places))
        return [
            *(partial(self._below, place, is_own) for place in places),
            *(partial(self._at, folder, is_own) for folder in above),
        ]

    def _at(self, place: str, is_own: Callable[[str], bool]) -> list[Claim]:
        bucket, beginning = _range(place)
        rows = self._tables.query(self._lines_table, bucket, CLAIMS_AT, beginning)
        return _others(place, [row for row in rows if row["position"].startswith(f"{beginning}!")], is_own)

    def _below(self, place: str, is_own: Callable[[str], bool]) -> list[Claim]:
        inside = self._first_inside(place, CLAIMS_AT)
        if len(inside) == CLAIMS_AT:  # there may be more; but few have others' places below their own
            inside = self._first_inside(place, CLAIMS_BELOW)
        others = _others(place, inside, is_own)
        if len(inside) == CLAIMS_BELOW and not others:
            raise TooMany(
                f"At least {CLAIMS_BELOW} of your live jobs write below an address that the job would write to.",
                remedy="Give it a folder of its own, and not one in which others have theirs.",
            )
        return others

    def _first_inside(self, place: str, most: int) -> list[Item]:
        bucket, beginning = _range(place)
        rows = self._tables.query(self._lines_table, bucket, most, beginning)
        return [row for row in rows if row["position"].startswith(beginning)]


def _others(place: str, rows: list[Item], is_own: Callable[[str], bool]) -> list[Claim]:
    return [Claim(place, row["position"].rpartition("!")[2], row["owner"]) for row in rows if not is_own(row["owner"])]


def _key(place: str, job: str) -> dict[str, str]:
    bucket, beginning = _range(place)
    return {"line": bucket, "position": f"{beginning}!{job}"}


def _range(place: str) -> tuple[str, str]:
    """The partition of a place, and how the positions of all below it begin; `!` comes before every folder."""
    bucket, _, folders = place.partition("/")
    return PLACE_PREFIX + bucket, f"{folders}/" if folders else ""
