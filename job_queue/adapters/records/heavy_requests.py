"""Limit on dry runs and previews, each of which takes seconds of a processor: each holds one of two slots.

A slot is a row of the lines table, taken by a conditional write and removed afterwards. If an invocation is killed, its
slot is free again once that invocation can no longer run. So at most two such requests are computed at once in an
account, whatever their number, and a refused request costs one read or write.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from job_queue.adapters.condition_expressions import is_slot_of, slot_is_free, slot_is_not_of
from job_queue.adapters.dynamodb import Check, Delete, Key, Put, Tables
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Busy, Refused, Unavailable

HEAVY = "heavy-requests"  # the partition of the slots, which holds only these
PREVIEW_SLOTS = ("0",)
DRY_RUN_SLOTS = ("1", "0")  # a dry run is short, and previews never take the slot of dry runs
SLOTS = DRY_RUN_SLOTS  # all slots
SLOT_SECONDS = 45  # the timeout of the function


class HeavyRequests:
    """The slots, and operations to take and free them."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    @contextmanager
    def slot(self, caller: str, now: float, slots: tuple[str, ...]) -> Iterator[None]:
        """Hold one of these slots during the context. A caller has at most one of them.

        :param now: epoch seconds.
        :raises Busy: all of them are taken, or the caller has one.
        """
        holder = uuid4().hex
        position = self._take(holder, caller, int(now), slots)
        try:
            yield
        finally:
            self._free(holder, position)

    def _take(self, holder: str, caller: str, now: int, slots: tuple[str, ...]) -> str:
        for position in slots:
            until = now + SLOT_SECONDS
            row = {**_key(position), "holder": holder, "caller": caller, "until": until, "expires": until}
            not_of_caller = slot_is_not_of(caller, now)
            others = [Check(self._lines_table, _key(it), not_of_caller) for it in SLOTS if it != position]
            try:
                self._tables.transact([Put(self._lines_table, row, slot_is_free(now)), *others])
            except Refused as refused:
                if any(item.get("caller") == caller for item in refused.items.values()):
                    break
                continue
            return position
        raise Busy(
            "As many dry runs, previews and requests for advice are computed as may be at once, or one of yours is.",
            remedy="Try again in a few seconds.",
        )

    def _free(self, holder: str, position: str) -> None:
        try:
            self._tables.transact([Delete(self._lines_table, _key(position), is_slot_of(holder))])
        except (Refused, Unavailable) as error:  # it becomes free by itself
            log.warning("slot not freed", slot=position, why=repr(error))


def _key(position: str) -> Key:
    return {"line": HEAVY, "position": position}
