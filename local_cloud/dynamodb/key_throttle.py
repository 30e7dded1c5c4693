"""DynamoDB's throttling of hot partition keys: the read and write units that one key may use in a second.

"Each individual partition is limited to 1000 write units per second and 3000 read units per second" (developer guide,
warm throughput). Neither adaptive capacity nor burst capacity raises this limit for one key: "Burst capacity can't
alleviate partition-level throttling" (re:Post, spiky workloads in short intervals).
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class KeyAccess(StrEnum):
    """The kind of access to a key. Reads and writes have separate limits."""

    READ = "Read"
    WRITE = "Write"


class PartitionKey(NamedTuple):
    """A value of the partition key of a table or, if `gsi` names one, of a global secondary index of the table."""

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
    """Parse `READS/WRITES`, such as 3000/1000. Raise a ValueError with the reason if the text is wrong."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not int(match[1]) or not int(match[2]):
        raise ValueError(f"{text!r} is not of the form READS/WRITES, such as 3000/1000: units a second of a key")
    return KeyLimits(int(match[1]), int(match[2]))


class KeyThrottle:
    """The units that each key has left, and the search for keys without units. Safe for threads.

    A key accumulates unused units, at most those of one second. The units of a call are known only after the call.
    Therefore a call passes if its key has any unit left, and may use more units than the key has. Later calls are then
    throttled until the key has units again.

    :param clock: returns the time in seconds, from any starting point.
    """

    def __init__(self, limits: KeyLimits, clock: Callable[[], float]) -> None:
        self.throttled = 0  # calls
        self._limits = limits
        self._clock = clock
        self._left: dict[tuple[KeyAccess, PartitionKey], tuple[float, float]] = {}  # units, and the time of the count
        self._lock = threading.Lock()

    def exhausted(self, access: KeyAccess, keys: Iterable[PartitionKey]) -> PartitionKey | None:
        """Return the first key without units left, and count the call as throttled. Return None if all have units."""
        with self._lock:
            for key in keys:
                if self._units(access, key) <= 0:
                    self.throttled += 1
                    return key
        return None

    def charge(self, access: KeyAccess, units: Mapping[PartitionKey, float]) -> None:
        """Subtract the units that a call has used from its keys."""
        with self._lock:
            for key, taken in units.items():
                self._left[access, key] = self._units(access, key) - taken, self._clock()

    def _units(self, access: KeyAccess, key: PartitionKey) -> float:
        limit, now = self._limits.of(access), self._clock()
        left, counted_at = self._left.get((access, key), (limit, now))
        return min(limit, left + (now - counted_at) * limit)
