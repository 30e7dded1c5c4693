"""DynamoDB's limit for each partition key: so many units a second, whatever the table may have.

"Each individual partition is limited to 1000 write units per second and 3000 read units per second" (developer guide,
warm throughput). Neither adaptive capacity nor burst capacity raises that for one key: "Burst capacity can't alleviate
partition-level throttling" (re:Post, spiky workloads in short intervals).
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class KeyAccess(StrEnum):
    """Reads and writes have limits of their own."""

    READ = "Read"
    WRITE = "Write"


class PartitionKey(NamedTuple):
    """A value of the partition key of a table, or of an index, its global secondary index."""

    table: str
    value: str
    gsi: str | None = None


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Units a second of one partition key."""

    reads: float = 3000
    writes: float = 1000

    def of(self, access: KeyAccess) -> float:
        """Return the limit of reads or of writes."""
        return self.reads if access is KeyAccess.READ else self.writes


AWS_LIMITS = KeyLimits()


def parse_limits(text: str) -> KeyLimits:
    """Read `READS/WRITES`, such as 3000/1000; a ValueError says what is wrong."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not int(match[1]) or not int(match[2]):
        raise ValueError(f"{text!r} is not of the form READS/WRITES, such as 3000/1000: units a second of a key")
    return KeyLimits(int(match[1]), int(match[2]))


class KeyThrottle:
    """Counts the units of each key and says which key has none left. Safe for threads.

    A key saves up the units of one second at most. The size of what is read or changed is known afterwards, so that a
    call passes as long as a key has any unit left, and the next calls wait for what it took too much.

    :param clock: gives seconds.
    """

    def __init__(self, limits: KeyLimits, clock: Callable[[], float]) -> None:
        self.throttled = 0  # calls
        self._limits = limits
        self._clock = clock
        self._left: dict[tuple[KeyAccess, PartitionKey], tuple[float, float]] = {}  # units, and the time of the count
        self._lock = threading.Lock()

    def exhausted(self, access: KeyAccess, keys: Iterable[PartitionKey]) -> PartitionKey | None:
        """Return the first of the keys that has no unit left, and count the call as throttled."""
        with self._lock:
            for key in keys:
                if self._units(access, key) <= 0:
                    self.throttled += 1
                    return key
        return None

    def charge(self, access: KeyAccess, units: Mapping[PartitionKey, float]) -> None:
        """Take units from keys."""
        with self._lock:
            for key, taken in units.items():
                self._left[access, key] = self._units(access, key) - taken, self._clock()

    def _units(self, access: KeyAccess, key: PartitionKey) -> float:
        limit, now = self._limits.of(access), self._clock()
        left, counted_at = self._left.get((access, key), (limit, now))
        return min(limit, left + (now - counted_at) * limit)
