"""The places in S3 that live jobs write to: a row for each, written and deleted in the transactions of its job.

The rows of a bucket are a partition, ordered by place. The rows of a place come first, then the rows of places below
it. So one query shows whether a place and all places below it are free. Each folder above the place needs one more
query.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial

from job_queue.adapters.condition_expressions import is_lock_available
from job_queue.adapters.dynamodb import Delete, Item, Put, Tables
from job_queue.domain.access.places import Claim, folders_above
from job_queue.domain.errors import TooMany
from job_queue.domain.job import Job

PLACE_PREFIX = "place#"  # prefix of the partition of a bucket's places
LOCKS = "places"  # the partition of locks
LOCK_DIGITS = 16  # hexadecimal digits of a lock's name; enough that two places practically never share a lock
LOCK_SECONDS = 30  # longer than an invocation takes from the look-up to the write
CLAIMS_BELOW = 500  # claims that are read below a place; as more may follow, a full list of own claims is refused
CLAIMS_AT = 10  # maximum number of claims read at one place; enough, because few owners share a place


def claims_of(job: Job, lines_table: str, now: float) -> list[Put]:
    """Return the writes that claim the places of a new job.

    If there are several places, the first one (the checkpoints, if the job has any) is also locked. So only one of two
    owners that find this place free at the same moment gets it. DynamoDB deletes the lock's row after the time in the
    attribute `expires`.
    """
    writes = [Put(lines_table, {**_key(place, job.name), "owner": job.owner}) for place in job.places]
    if len(job.places) > 1:
        lock = {"line": LOCKS, "position": hashlib.sha256(job.places[0].encode()).hexdigest()[:LOCK_DIGITS]}
        until = int(now) + LOCK_SECONDS
        held = {**lock, "owner": job.owner, "until": until, "expires": until + LOCK_SECONDS}
        writes.append(Put(lines_table, held, is_lock_available(job.owner, int(now))))
    return writes


def releases_of(job: Job, lines_table: str) -> list[Delete]:
    """Return the writes that release the places of a job that ends."""
    return [Delete(lines_table, _key(place, job.name)) for place in job.places]


class ClaimedPlaces:
    """The look-up of claims on places."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def lookups(self, places: Iterable[str], is_own: Callable[[str], bool]) -> list[Callable[[], list[Claim]]]:
        """Return independent calls that look up claims of other owners on these places, below them and above them.

        :param is_own: returns whether an owner counts as the submitter. The submitter's own claims are no obstacle.
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
        if len(inside) == CLAIMS_AT:  # there may be further claims, also of other owners
            inside = self._first_inside(place, CLAIMS_BELOW)
        others = _others(place, inside, is_own)
        if len(inside) == CLAIMS_BELOW and not others:
            raise TooMany(
                f"At least {CLAIMS_BELOW} of your live jobs write below an address that the job would write to.",
                remedy="Use a separate folder for this job, not below or above the folders of other jobs.",
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
    """Return the partition of a place, and the prefix of its positions and of those below. `!` sorts before folders."""
    bucket, _, folders = place.partition("/")
    return PLACE_PREFIX + bucket, f"{folders}/" if folders else ""
