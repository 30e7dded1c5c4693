"""Tables in memory that count read and write units by partition key, as DynamoDB does, and throttle keys."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from job_queue.adapters.dynamodb import Item, Key, Postponed, Update, Write, try_again
from job_queue.domain.errors import Unavailable
from local_cloud.dynamodb.key_throttle import AWS_LIMITS, KeyAccess, KeyLimits, KeyThrottle, PartitionKey
from local_cloud.dynamodb.units import query_units, size_of, write_units
from tests.memory_tables import FINISHED, MemoryTables

T = TypeVar("T")
SDK_TRIES = 4  # of the client that job_queue.app makes
SDK_PAUSE_SECONDS = 20.0  # that botocore's standard mode waits at most


class Throttled(Postponed):
    """DynamoDB answers ThrottlingException, or cancels a transaction with the reason ThrottlingError."""


class UnitTables(MemoryTables):
    """Tables that count units, and refuse calls of keys that have none left.

    :param limits: of each key; None: units are not counted.
    :param clock: gives seconds.
    """

    def __init__(self, limits: KeyLimits | None = AWS_LIMITS, clock: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self.throttle = KeyThrottle(limits, clock) if limits else None
        self.units: defaultdict[KeyAccess, float] = defaultdict(float)
        self.consistent = True  # whether reads are strongly consistent, where the table offers both

    def _admit(self, access: KeyAccess, keys: Sequence[PartitionKey]) -> None:
        if self.throttle and (key := self.throttle.exhausted(access, keys)):
            raise Throttled(f"{access} of {key}")

    def _read(self, key: PartitionKey, rows: Sequence[Item], *, consistent: bool = True) -> None:
        if self.throttle:
            self.charge(
                KeyAccess.READ, {key: query_units(map(size_of, rows), consistent=consistent and self.consistent)}
            )

    def _write(
        self,
        writes: Sequence[Write],
        places: Sequence[tuple[str, ...]],
        written: Mapping[tuple[str, ...], Item | None],
        *,
        transactional: bool,
    ) -> None:
        if not self.throttle:
            return
        units: Counter[PartitionKey] = Counter()
        for place in places:
            before = self.rows.get(place)
            after = written.get(place, before)
            units[PartitionKey(*place[:2])] += write_units(before, after, transactional=transactional)
            for key, count in FINISHED.write_units(before, after).items():
                units[PartitionKey(place[0], key, FINISHED.name)] += count
        self._admit(KeyAccess.WRITE, [key for key in units if key.gsi])  # a full index holds up its table
        self.charge(KeyAccess.WRITE, units)

    def charge(self, access: KeyAccess, units: Mapping[PartitionKey, float]) -> None:
        """Take the units of a call from its keys."""
        assert self.throttle
        self.throttle.charge(access, units)
        self.units[access] += sum(units.values())


class PatientTables(UnitTables):
    """Tables of which throttled calls are made again, as botocore and `DynamoDBTables` do it.

    :param sleep: waits for so many seconds.
    """

    def __init__(
        self,
        limits: KeyLimits = AWS_LIMITS,
        clock: Callable[[], float] = lambda: 0.0,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        super().__init__(limits, clock)
        self._sleep = sleep

    def get(self, table: str, key: Key) -> Item | None:
        return again(lambda: UnitTables.get(self, table, key), self._sleep)

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        return again(lambda: UnitTables.query(self, table, line, limit, after), self._sleep)

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        return again(lambda: UnitTables.page(self, table, index, limit, after), self._sleep)

    def update(self, update: Update) -> Item:
        return again(lambda: UnitTables.update(self, update), self._sleep)

    def transact(self, writes: Sequence[Write]) -> None:
        try_again(lambda: UnitTables.transact(self, writes), self._sleep)


def again(call: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """Make a call that is no transaction again while its key is throttled, after the pauses of botocore.

    :raises Unavailable: every try was throttled.
    """
    for number in range(SDK_TRIES):
        try:
            return call()
        except Throttled:
            if number < SDK_TRIES - 1:
                sleep(random.random() * min(2.0**number, SDK_PAUSE_SECONDS))
    raise Unavailable("DynamoDB answered ThrottlingException; send the same request again.")
