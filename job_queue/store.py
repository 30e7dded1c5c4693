"""Every read and every conditional write of the queue's tables, one named condition each.

A job's row and its line row always change in one transaction, under the version that was read.
Writes of a cycle also move the lease's token, so those of a holder that lost the lease fail.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue.errors import LeaseLost, Refused
from job_queue.lifecycle import Move
from job_queue.names import MAX_NAME
from job_queue.observing import Observer
from job_queue.pauses import Pause
from job_queue.records import (
    ACTIVE_LINE,
    CONTROL,
    EXTERNAL_LINE,
    HISTORY_KEPT,
    ExternalJob,
    Item,
    Job,
    JobRecord,
    iso,
    job_from,
    job_item,
    place,
)
from job_queue.tables import Check, Delete, Put, Tables, Update, Write

FINISHED_INDEX = "finished"
LINE_PREFIX = "line#"  # of the control rows that say which waiting lines are in use
PAUSE_PREFIX = "pause#"  # of those that say where SageMaker lacks instances
RELEASE_TRIES = 10
CAUSE_LENGTH = 500  # characters of a cause in the history
MAX_WRITES = 100  # of one DynamoDB transaction
CONTROL_WRITES = 3  # token, policy, reservations
LINE_UNUSED_SECONDS = 3600  # an empty line nobody entered for so long is forgotten: no write under way is as old

# --- the conditions, by name -------------------------------------------------------------------------


def name_is_free(now: int) -> ConditionBase:
    """No job has the name; an expired row that DynamoDB has not deleted yet counts as absent."""
    return Attr("jobName").not_exists() | Attr("expires").lt(now)


def is_as_read(job: Job) -> ConditionBase:
    """Nobody changed the job since it was read, and it is not a later job of the same name."""
    return Attr("version").eq(job.version) & Attr("submission").eq(job.submission)


def lease_is_free(owner: str, now: int) -> ConditionBase:
    """Nobody holds the lease, its holder's time is over, or it is ours (the answer to our call was lost)."""
    return Attr("token").not_exists() | Attr("expiresAt").lt(now) | Attr("owner").eq(owner)


def token_is(token: int) -> ConditionBase:
    """The lease has not moved on: neither a later holder nor a write of ours that was thought lost."""
    return Attr("token").eq(token)


def owner_is(owner: str) -> ConditionBase:
    """The lease is ours to release."""
    return Attr("owner").eq(owner)


def policy_is(version: int) -> ConditionBase:
    """The policy that was planned with is still the current one; version 0 means that there is none."""
    is_version = Attr("version").eq(version)
    return is_version if version else Attr("version").not_exists()


def same_refusal(pause: Pause) -> ConditionBase:
    """SageMaker has refused nobody there since the pause was read."""
    return Attr("since").eq(pause.since)


def nobody_entered(last_used: int) -> ConditionBase:
    """Nobody has entered the line since we looked."""
    return Attr("lastUsed").eq(last_used)


THERE = Attr("line").exists()  # the line row is there


# --- what is handed in and out -----------------------------------------------------------------------


@dataclass(slots=True)
class Lease:
    """The right to run a cycle. `token` follows every transaction that moves it."""

    owner: str
    token: int
    expires: int  # epoch seconds
    reconciled: int = 0  # epoch seconds of the last reconciliation


@dataclass(frozen=True, slots=True)
class Control:
    """The queue's own rows, as one strongly consistent read saw them."""

    token: int = 0  # of the lease, when this was read
    news: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)  # waiting lines in use -> when last entered
    policy: Item | None = None  # the policy's row: {version, document (JSON text), appliedAt, appliedBy}
    reservations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pauses: Mapping[str, Pause] = field(default_factory=dict)


class Store:
    """The queue's memory.

    :param tables: DynamoDB, or something that keeps the same promises.
    :param history_seconds: how long a finished job is kept.
    :param observer: told of every job and every transition once it is recorded.
    """

    def __init__(
        self,
        tables: Tables,
        jobs_table: str,
        lines_table: str,
        history_seconds: int,
        observer: Observer | None = None,
    ) -> None:
        self._tables = tables
        self._jobs = jobs_table
        self._lines = lines_table
        self._history_seconds = history_seconds
        self._observer = observer or Observer()

    # --- jobs ------------------------------------------------------------------------------------

    def add(self, job: Job, details: str, now: float) -> JobRecord | None:
        """Keep a new job in its waiting line. Gives the record that already has its name, None if it was free."""
        self.enter_line(job.line, now)
        row = {
            **job_item(job),
            "jobDetails": details,
            "history": [_transition(job, "submitted", job.attempt)],
            "attempts": [],
        }
        try:
            self._tables.transact([Put(self._jobs, row, name_is_free(int(now))), *self._line_writes(None, job)])
        except Refused as refused:
            return JobRecord.from_item(refused.items[0])
        self._observer.queued(job)
        return None

    def record(self, name: str) -> JobRecord | None:
        """A job's whole row, live or finished; None also for what cannot be a job's name."""
        if not 0 < len(name) <= MAX_NAME:
            return None
        item = self._tables.get(self._jobs, {"jobName": name})
        return JobRecord.from_item(item) if item else None

    def move(self, move: Move, now: float) -> None:
        """A transition that needs no lease: a cancel, or the end of an attempt. Raises Refused."""
        self._tables.transact(self._move_writes(move, now))
        self._observer.moved(move)

    def finished(self, limit: int, after: Item | None) -> tuple[list[Job], Item | None]:
        """A page of finished jobs, latest first (eventually consistent: for people, never for decisions)."""
        items, following = self._tables.page(self._jobs, FINISHED_INDEX, limit, after)
        return [job_from(item) for item in items], following

    # --- lines -----------------------------------------------------------------------------------

    def enter_line(self, line: str, now: float) -> None:
        """Make a waiting line known before a job enters it."""
        self._tables.update(Update(self._lines, _control(LINE_PREFIX + line), set={"lastUsed": int(now)}))

    def forget_line(self, line: str, last_used: int) -> None:
        """Forget a waiting line that is empty and has been for long, unless somebody enters it now."""
        try:
            self._tables.transact([Delete(self._lines, _control(LINE_PREFIX + line), nobody_entered(last_used))])
        except Refused:
            return

    def waiting(self, line: str, limit: int | None = None, after: str | None = None) -> list[Job]:
        """The first jobs of a waiting line, in order."""
        return [job_from(item) for item in self._tables.query(self._lines, line, limit, after)]

    def active(self) -> list[Job]:
        """All jobs that hold slots."""
        return [job_from(item) for item in self._tables.query(self._lines, ACTIVE_LINE)]

    def external(self) -> list[ExternalJob]:
        """All training jobs that use capacity and are no job's attempt."""
        return [ExternalJob.from_item(item) for item in self._tables.query(self._lines, EXTERNAL_LINE)]

    def external_job(self, name: str) -> ExternalJob | None:
        """A training job that is counted as no job's attempt."""
        item = self._tables.get(self._lines, {"line": EXTERNAL_LINE, "position": name})
        return ExternalJob.from_item(item) if item else None

    def add_external(self, job: ExternalJob) -> None:
        """Count a training job that is no job's attempt, as it is now."""
        self._tables.transact([Put(self._lines, job.item())])

    def drop_external(self, name: str) -> bool:
        """Count it no more. False: it was not counted."""
        try:
            self._tables.transact([Delete(self._lines, {"line": EXTERNAL_LINE, "position": name}, THERE)])
        except Refused:
            return False
        return True

    # --- news and the lease ----------------------------------------------------------------------

    def control(self) -> Control:
        """The queue's own rows."""
        rows = {row["position"]: row for row in self._tables.query(self._lines, CONTROL)}
        return Control(
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
                (place := position.removeprefix(PAUSE_PREFIX)): Pause.from_item(place, row)
                for position, row in rows.items()
                if position.startswith(PAUSE_PREFIX)
            },
        )

    def end_pause(self, pause: Pause, left: Pause | None = None) -> bool:
        """SageMaker has instances there again. False: it has refused somebody since, or somebody else was first.

        :param left: what of the pause goes on.
        """
        key, unchanged = _control(PAUSE_PREFIX + pause.place), same_refusal(pause)
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
        return self._tables.get(self._lines, _control("policy"))

    def apply_policy(self, document: str, version: int, by: str, now: float) -> int:
        """Replace the policy that has this version (0: there is none). Gives the new version.

        :raises Refused: somebody else applied one meanwhile.
        """
        row = {"version": version + 1, "document": document, "appliedBy": by, "appliedAt": iso(now)}
        self._tables.transact([Update(self._lines, _control("policy"), set=row, when=policy_is(version))])
        return version + 1

    def add_news(self) -> int:
        """Say that there is something to look at; gives the number of news so far."""
        row = self._tables.update(Update(self._lines, _control("news"), add={"requested": 1}))
        return int(row["requested"])

    def news(self) -> int:
        """The number of news so far."""
        row = self._tables.get(self._lines, _control("news"))
        return int(row["requested"]) if row else 0

    def acquire(self, owner: str, now: float, expires: float) -> Lease | None:
        """Take the lease, or None if somebody has it: its holder will see the news."""
        try:
            row = self._tables.update(
                Update(
                    self._lines,
                    _control("lease"),
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
        row = self._tables.get(self._lines, _control("lease")) or {}
        if row.get("owner") != lease.owner or row.get("expiresAt") != lease.expires:
            return False
        lease.token = row["token"]
        return True

    def release(self, lease: Lease) -> None:
        """Give the lease back; one that is no longer ours is no error."""
        free = {"owner": "", "expiresAt": 0, "reconciledAt": lease.reconciled}
        for _ in range(RELEASE_TRIES):
            try:
                self._tables.update(Update(self._lines, _control("lease"), set=free, when=owner_is(lease.owner)))
            except Refused as refused:
                if not refused.items[0]:  # a transaction has the row for a moment
                    continue
            return

    def commit(
        self,
        lease: Lease,
        moves: Sequence[Move],
        now: float,
        *,
        policy_version: int | None = None,
        reservations: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Make transitions as the holder of the lease, all or none.

        :raises LeaseLost: the token has moved on.
        :raises Refused: a job or the policy is no longer as it was read.
        """
        writes: list[Write] = [
            Update(self._lines, _control("lease"), add={"token": 1}, when=token_is(lease.token)),
        ]
        if policy_version is not None:
            writes.append(Check(self._lines, _control("policy"), policy_is(policy_version)))
        if reservations is not None:
            jobs = {job: dict(slots) for job, slots in reservations.items()}
            writes.append(Put(self._lines, {**_control("reservations"), "jobs": jobs}))
        for move in moves:
            writes += self._move_writes(move, now)
        try:
            self._tables.transact(writes)
        except Refused as refused:
            raise LeaseLost(refused.items) if 0 in refused.items else refused from refused
        lease.token += 1
        for move in moves:
            self._observer.moved(move)

    # --- how a transition is written -------------------------------------------------------------

    def _move_writes(self, move: Move, now: float) -> list[Write]:
        old, new = move.old, move.new
        if old.state.finished or new.version != old.version + 1:
            raise ValueError(f"{old.name}: {old.state} (version {old.version}) cannot become {new}")
        before, after = job_item(old), job_item(new)
        changed = {name: content for name, content in after.items() if before.get(name) != content}
        append: dict[str, list[Item]] = {}
        if move.cause is not None:
            append["history"] = [_transition(new, move.cause, old.attempt if move.ended else new.attempt)]
        if move.ended is not None:
            append["attempts"] = [move.ended]
        if move.record and len(move.record.history) > HISTORY_KEPT:
            past = {"history": move.record.history, "attempts": move.record.attempts}
            changed |= {name: [*past[name][-HISTORY_KEPT:], *append.pop(name, [])] for name in past}
        if new.state.finished:
            changed |= {"finished": "yes", "expires": int(now) + self._history_seconds}
        job_row = Update(
            self._jobs,
            {"jobName": old.name},
            set=changed,
            append=append,
            remove=[name for name in before if name not in after],
            when=is_as_read(old),
        )
        pauses = [Put(self._lines, {**_control(PAUSE_PREFIX + it.place), **it.item()}) for it in move.pauses]
        return [job_row, *self._line_writes(old, new), *pauses]

    def _line_writes(self, old: Job | None, new: Job) -> list[Write]:
        left = place(old) if old else None
        entered = place(new)
        writes: list[Write] = []
        if left and left != entered:
            writes.append(Delete(self._lines, {"line": left[0], "position": left[1]}))
        if entered:
            writes.append(Put(self._lines, {"line": entered[0], "position": entered[1], **job_item(new)}))
        return writes


def weight(move: Move) -> int:
    """Writes that a transition takes in a transaction."""
    left, entered = place(move.old), place(move.new)
    return 1 + (left is not None and left != entered) + (entered is not None) + len(move.pauses)


def transactions(moves: Iterable[Move]) -> list[list[Move]]:
    """Transitions in as few transactions as they fit in, in their order."""
    parts: list[list[Move]] = [[]]
    room = MAX_WRITES - CONTROL_WRITES
    for move in moves:
        if weight(move) > room:
            parts.append([])
            room = MAX_WRITES - CONTROL_WRITES
        parts[-1].append(move)
        room -= weight(move)
    return parts


def _transition(job: Job, cause: str, attempt: int) -> Item:
    return {"at": job.since, "state": job.state.value, "attempt": attempt, "cause": cause[:CAUSE_LENGTH]}


def _control(position: str) -> dict[str, str]:
    return {"line": CONTROL, "position": position}
