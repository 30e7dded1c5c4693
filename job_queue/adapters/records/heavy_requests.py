"""Permits for dry runs, requests for advice and previews: two at a time, of which at most one is a preview.

The permits exist because each request takes seconds of a processor. A permit is a row of the lines table, which a
conditional write adds and a delete removes. If an invocation is killed, its permit becomes free once the invocation's
timeout has passed. A refused request costs one or two refused transactions.

Requests that call SageMaker need a permit of another kind. Each caller may have one such permit at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from job_queue.adapters.condition_expressions import is_permit_free, is_permit_not_of, is_permit_of
from job_queue.adapters.dynamodb import Check, Delete, Key, Put, Tables
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Busy, Refused, Unavailable

HEAVY = "heavy-requests"  # the partition of the permits, which has no other rows
PREVIEW_PERMITS = ("0",)
DRY_RUN_PERMITS = ("1", "0")  # previews never take permit 1, so that they cannot block dry runs, which are short
PERMITS = DRY_RUN_PERMITS  # all permits
PERMIT_SECONDS = 45  # the longest timeout of the Lambda functions
_LONGEST_POSITION = 900  # characters; DynamoDB's limit for a sort key is 1,024 bytes, and ARNs are ASCII


class HeavyRequests:
    """The permits, which requests hold while they are answered."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    @contextmanager
    def permit(self, caller: str, now: float, permits: tuple[str, ...]) -> Iterator[None]:
        """Hold one of these permits during the context. A caller has at most one permit.

        :param now: epoch seconds.
        :raises Busy: all these permits are taken, or the caller has a permit.
        """
        holder = uuid4().hex
        position = self._acquire(holder, caller, int(now), permits)
        try:
            yield
        finally:
            self._free(holder, position)

    @contextmanager
    def one_for_caller(self, caller: str, now: float) -> Iterator[None]:
        """Hold the caller's own permit for a request that calls SageMaker, which allows the account few calls a second.

        :param now: epoch seconds.
        :raises Busy: another such request of the caller is being answered.
        """
        holder, position = uuid4().hex, f"caller#{caller}"[:_LONGEST_POSITION]
        until = int(now) + PERMIT_SECONDS
        row = {**_key(position), "holder": holder, "caller": caller, "until": until, "expires": until}
        try:
            self._tables.transact([Put(self._lines_table, row, is_permit_free(int(now)))])
        except Refused as refused:
            raise Busy(
                "Your previous request of this kind is not finished.", remedy="Try again in a few seconds."
            ) from refused
        try:
            yield
        finally:
            self._free(holder, position)

    def _acquire(self, holder: str, caller: str, now: int, permits: tuple[str, ...]) -> str:
        """Take the first free permit and return its position. Raise Busy if none may be taken."""
        for position in permits:
            until = now + PERMIT_SECONDS
            row = {**_key(position), "holder": holder, "caller": caller, "until": until, "expires": until}
            not_of_caller = is_permit_not_of(caller, now)
            others = [Check(self._lines_table, _key(it), not_of_caller) for it in PERMITS if it != position]
            try:
                self._tables.transact([Put(self._lines_table, row, is_permit_free(now)), *others])
            except Refused as refused:
                if any(item.get("caller") == caller for item in refused.items.values()):
                    break
                continue
            return position
        raise Busy(
            "The limit of simultaneous dry runs, previews and requests for advice is reached, or your previous request "
            "is still "
            "being computed.",
            remedy="Try again in a few seconds.",
        )

    def _free(self, holder: str, position: str) -> None:
        try:
            self._tables.transact([Delete(self._lines_table, _key(position), is_permit_of(holder))])
        except (Refused, Unavailable) as error:  # the permit expires
            log.warning("permit not freed", permit=position, why=repr(error))


def _key(position: str) -> Key:
    return {"line": HEAVY, "position": position}
