"""The queue's own rows: the lease, the news, the waiting lines in use, the policy, the pauses of pools."""

from contextlib import suppress
from dataclasses import dataclass

from job_queue.adapters.condition_expressions import (
    THERE,
    lease_is_free,
    nobody_entered,
    owner_is,
    policy_is,
    same_refusal,
)
from job_queue.adapters.dynamodb import Delete, Tables, Update
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.errors import Refused, TooMany, Unavailable
from job_queue.domain.job import CONTROL, Item, iso, project_of_line

LINE_PREFIX = "line#"  # of the rows that say which waiting lines are in use
PAUSE_PREFIX = "pause#"  # of those that say where SageMaker lacks instances
UPDATE_TRIES = 10
LINES_OF_PROJECT = 50  # a cycle reads each line, so there cannot be any number of them
LINES_IN_ALL = 1000
LINE_UNUSED_SECONDS = 3600  # an empty line nobody entered for so long is forgotten: no write under way is as old


@dataclass(slots=True)
class Lease:
    """The right to run a cycle. `token` follows every transaction that moves it."""

    owner: str
    token: int
    expires: int  # epoch seconds
    reconciled: int = 0  # epoch seconds of the last reconciliation


class MetadataRows:
    """Reads and writes them.

    :param table: where they are.
    """

    def __init__(self, tables: Tables, table: str) -> None:
        self._tables = tables
        self._lines = table

    def metadata(self) -> Metadata:
        """The queue's own rows."""
        rows = {row["position"]: row for row in self._tables.query(self._lines, CONTROL)}
        return Metadata(
            token=rows.get("lease", {}).get("token", 0),
            news=rows.get("news", {}).get("requested", 0),
            lines={
                position.removeprefix(LINE_PREFIX): row["lastUsed"]
                for position, row in rows.items()
                if position.startswith(LINE_PREFIX)
            },
            policy=rows.get("policy"),
            reservations=rows.get("reservations", {}).get("jobs", {}),
            pauses={
                (place := position.removeprefix(PAUSE_PREFIX)): CapacityBackoff.from_item(place, row)
                for position, row in rows.items()
                if position.startswith(PAUSE_PREFIX)
            },
        )

    def end_pause(self, pause: CapacityBackoff, left: CapacityBackoff | None = None) -> bool:
        """SageMaker has instances there again. False: it has refused somebody since, or somebody else was first.

        :param left: what of the pause goes on.
        """
        key, unchanged = control_key(PAUSE_PREFIX + pause.place), same_refusal(pause)
        write = (
            Update(self._lines, key, set=left.item(), when=unchanged) if left else Delete(self._lines, key, unchanged)
        )
        try:
            self._tables.transact([write])
        except Refused:
            return False
        return True

    def policy(self) -> Item | None:
        """The policy's row; None while nobody has applied one."""
        return self._tables.get(self._lines, control_key("policy"))

    def apply_policy(self, document: str, version: int, by: str, now: float) -> int:
        """Replace the policy that has this version (0: there is none). Gives the new version.

        :raises Refused: somebody else applied one meanwhile.
        """
        row = {"version": version + 1, "document": document, "appliedBy": by, "appliedAt": iso(now)}
        self._tables.transact([Update(self._lines, control_key("policy"), set=row, when=policy_is(version))])
        return version + 1

    def add_news(self) -> int:
        """Say that there is something to look at; gives the number of news so far."""
        row = self._tables.update(Update(self._lines, control_key("news"), add={"requested": 1}))
        return int(row["requested"])

    def news(self) -> int:
        """The number of news so far."""
        row = self._tables.get(self._lines, control_key("news"))
        return int(row["requested"]) if row else 0

    def acquire(self, owner: str, now: float, expires: float) -> Lease | None:
        """Take the lease, or None if somebody has it: its holder will see the news."""
        try:
            row = self._tables.update(
                Update(
                    self._lines,
                    control_key("lease"),
                    set={"owner": owner, "expiresAt": int(expires)},
                    add={"token": 1},
                    when=lease_is_free(owner, int(now)),
                )
            )
        except Refused:
            return None
        return Lease(owner, row["token"], row["expiresAt"], row.get("reconciledAt", 0))

    def still_held(self, lease: Lease) -> bool:
        """After a refused token: whether the lease is ours after all (a write of ours took effect unseen)."""
        row = self._tables.get(self._lines, control_key("lease")) or {}
        if row.get("owner") != lease.owner or row.get("expiresAt") != lease.expires:
            return False
        lease.token = row["token"]
        return True

    def release(self, lease: Lease) -> None:
        """Give the lease back; one that is no longer ours is no error."""
        free = {"owner": "", "expiresAt": 0, "reconciledAt": lease.reconciled}
        with suppress(Refused):
            self._update_alone(Update(self._lines, control_key("lease"), set=free, when=owner_is(lease.owner)))

    # --- waiting lines in use --------------------------------------------------------------------

    def enter_line(self, line: str, now: float) -> None:
        """Make a waiting line known before a job enters it."""
        self._update_alone(Update(self._lines, control_key(LINE_PREFIX + line), set={"lastUsed": int(now)}))

    def enter_line_within_bounds(self, line: str, now: float) -> None:
        """The same for a new job.

        :raises TooMany: it is not in use, and its project has as many as it may have.
        """
        if not self._enter_line_in_use(line, now):
            self._check_lines(project_of_line(line))
            self.enter_line(line, now)

    def forget_line(self, line: str, last_used: int) -> None:
        """Forget a waiting line that is empty and has been for long, unless somebody enters it now."""
        try:
            self._tables.transact([Delete(self._lines, control_key(LINE_PREFIX + line), nobody_entered(last_used))])
        except Refused:
            return

    def _enter_line_in_use(self, line: str, now: float) -> bool:
        try:
            update = Update(self._lines, control_key(LINE_PREFIX + line), set={"lastUsed": int(now)}, when=THERE)
            self._tables.update(update)
        except Refused:
            return False
        return True

    def _check_lines(self, project: str) -> None:
        lines = self.metadata().lines
        of_project = sum(project_of_line(line) == project for line in lines)
        if of_project >= LINES_OF_PROJECT or len(lines) >= LINES_IN_ALL:
            raise TooMany(
                f"Jobs can wait for {LINES_OF_PROJECT} combinations of instance types and pools in a project, and for "
                f"{LINES_IN_ALL} in all; {project} has {of_project}, all projects have {len(lines)}.",
                remedy="Ask for what another of its jobs asks for, or try again later: what nobody has waited for in "
                "an hour is forgotten.",
            )

    def _update_alone(self, update: Update) -> None:
        """An update of a row that is there, or without a condition: refused without a row, it met a transaction."""
        for _ in range(UPDATE_TRIES):
            try:
                self._tables.update(update)
            except Refused as refused:
                if refused.items[0]:
                    raise
            else:
                return
        raise Unavailable("DynamoDB was too busy with other writes of the same row. Send the same request again.")


def control_key(position: str) -> dict[str, str]:
    """The key of a row."""
    return {"line": CONTROL, "position": position}
