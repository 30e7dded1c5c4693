"""Every read and every conditional write of the queue's tables, one named condition each.

A job's row and its line row always change in one transaction, under the version that was read.
Writes of a cycle also move the lease's token, so those of a holder that lost the lease fail.
"""

from collections.abc import Iterable, Mapping, Sequence

from job_queue.adapters.condition_expressions import THERE, is_as_read, name_is_free, policy_is, token_is
from job_queue.adapters.dynamodb import Check, Delete, Put, Tables, Update, Write
from job_queue.adapters.metadata import PAUSE_PREFIX, Lease, MetadataRows, control_key
from job_queue.adapters.observers import Observer
from job_queue.domain.errors import LeaseLost, Refused
from job_queue.domain.job import (
    ACTIVE_LINE,
    EXTERNAL_LINE,
    HISTORY_KEPT,
    ExternalJob,
    Item,
    Job,
    JobRecord,
    epoch,
    iso,
    job_from,
    job_item,
    place,
)
from job_queue.domain.names import MAX_NAME
from job_queue.domain.state_machine import Transition

FINISHED_INDEX = "finished"
CAUSE_LENGTH = 500  # characters of a cause in the history
MAX_WRITES = 100  # of one DynamoDB transaction
CONTROL_WRITES = 3  # token, policy, reservations


class JobRepository(MetadataRows):
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
        super().__init__(tables, lines_table)
        self._jobs = jobs_table
        self._history_seconds = history_seconds
        self._observer = observer or Observer()

    # --- jobs ------------------------------------------------------------------------------------

    def add(self, job: Job, details: str, now: float) -> JobRecord | None:
        """Keep a new job in its waiting line. Gives the record that already has its name, None if it was free.

        :raises TooMany: nobody waits for what it asks for, and its project has as many lines as it may have.
        """
        self.enter_line_within_bounds(job.line, now)
        row = {
            **job_item(job),
            "jobDetails": details,
            "history": [_history_entry(job, epoch(job.since), "submitted", job.attempt)],
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

    def move(self, move: Transition, now: float) -> None:
        """A transition that needs no lease: a cancel, or the end of an attempt. Raises Refused."""
        self._tables.transact(self._move_writes(move, now))
        self._observer.moved(move)

    def finished(self, limit: int, after: Item | None) -> tuple[list[Job], Item | None]:
        """A page of finished jobs, latest first (eventually consistent: for people, never for decisions)."""
        items, following = self._tables.page(self._jobs, FINISHED_INDEX, limit, after)
        return [job_from(item) for item in items], following

    # --- lines -----------------------------------------------------------------------------------

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

    # --- the holder of the lease -----------------------------------------------------------------

    def commit(
        self,
        lease: Lease,
        moves: Sequence[Transition],
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
            Update(self._lines, control_key("lease"), add={"token": 1}, when=token_is(lease.token)),
        ]
        if policy_version is not None:
            writes.append(Check(self._lines, control_key("policy"), policy_is(policy_version)))
        if reservations is not None:
            jobs = {job: dict(slots) for job, slots in reservations.items()}
            writes.append(Put(self._lines, {**control_key("reservations"), "jobs": jobs}))
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

    def _move_writes(self, move: Transition, now: float) -> list[Write]:
        old, new = move.old, move.new
        if old.state.finished or new.version != old.version + 1:
            raise ValueError(f"{old.name}: {old.state} (version {old.version}) cannot become {new}")
        before, after = job_item(old), job_item(new)
        changed = {name: content for name, content in after.items() if before.get(name) != content}
        append: dict[str, list[Item]] = {}
        if move.cause is not None:
            append["history"] = [_history_entry(new, move.at, move.cause, old.attempt if move.ended else new.attempt)]
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
        pauses = [Put(self._lines, {**control_key(PAUSE_PREFIX + it.place), **it.item()}) for it in move.pauses]
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


def weight(move: Transition) -> int:
    """Writes that a transition takes in a transaction."""
    left, entered = place(move.old), place(move.new)
    return 1 + (left is not None and left != entered) + (entered is not None) + len(move.pauses)


def transactions(moves: Iterable[Transition]) -> list[list[Transition]]:
    """Transitions in as few transactions as they fit in, in their order."""
    parts: list[list[Transition]] = [[]]
    room = MAX_WRITES - CONTROL_WRITES
    for move in moves:
        if weight(move) > room:
            parts.append([])
            room = MAX_WRITES - CONTROL_WRITES
        parts[-1].append(move)
        room -= weight(move)
    return parts


def _history_entry(job: Job, at: float, cause: str, attempt: int) -> Item:
    return {"at": iso(at), "state": job.state.value, "attempt": attempt, "cause": cause[:CAUSE_LENGTH]}
