"""Reads and writes of jobs. Each conditional write has a named condition.

A live job's two items, in the jobs table and in the lines table, always change in one transaction. The transaction
requires the version that was read. Writes of a cycle also raise the lease's fencing token, so the writes of a former
holder fail.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from job_queue.adapters.condition_expressions import (
    EXISTS,
    IS_NO_WARM_POOL,
    drains_are,
    is_as_read,
    is_counted_as_read,
    name_is_free,
    policy_is,
)
from job_queue.adapters.dynamodb import Check, Delete, Item, Put, Tables, Update, Write
from job_queue.adapters.items import (
    ACTIVE,
    ATTEMPT,
    EXTERNAL,
    HISTORY,
    POLICY,
    RESERVATIONS,
    backoff_item,
    backoff_key,
    external_from,
    external_item,
    external_key,
    job_from,
    job_item,
    live_key,
    metadata_key,
    owner_key,
    record_from,
)
from job_queue.adapters.metadata import LEASE_SECONDS, Lease, MetadataRepository
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.records.claimed_places import ClaimedPlaces, claims_of, releases_of
from job_queue.adapters.records.failed_gpu_records import FailedGpuRecords
from job_queue.adapters.records.failure_notices import FailureNotices
from job_queue.adapters.records.heavy_requests import HeavyRequests
from job_queue.adapters.records.outlook_record import OutlookRecord
from job_queue.adapters.records.published_plan import PublishedPlanRecord
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.domain_events import JobQueued, Notify
from job_queue.domain.errors import LeaseLost, Refused, TooMany, Unavailable
from job_queue.domain.job import ExternalTrainingJob, HistoryEntry, Job, JobRecord, clipped, epoch, iso
from job_queue.domain.names import MAX_NAME
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState

FINISHED_INDEX = "finished"
HISTORY_KEPT = 100  # number of the latest history entries, and of the latest attempts, that a job's item keeps
HISTORY_BYTES = 40_000  # approximate maximum size of the history in a job's item
CAUSE_BYTES = 500  # maximum size of a cause in the history
RECOUNT_SECONDS = 30  # minimum time between two counts of an owner's waiting jobs; each count reads all waiting jobs
COUNT_KEPT_SECONDS = 60 * 86_400  # retention of an owner's count after the last submission
MAX_WRITES = 100  # in one DynamoDB transaction
MOST_REMEMBERED = 5000  # recorded ends that are cached; other ends are looked up
METADATA_WRITES = 3  # writes of a cycle's transaction besides the transitions: fencing token, policy, reservations


@dataclass(frozen=True, slots=True)
class SubmissionCount:
    """An estimate of an owner's waiting jobs: their number at the last count, plus all submissions since then."""

    submitted: int
    counted_at: int  # epoch seconds; 0: never


class RecordedEnds:
    """A cache of the latest ends that this process has recorded, to save look-ups for dependents.

    An end is final, so no entry becomes out of date.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], JobState] = {}

    def note(self, job: Job) -> None:
        """Remember the final state of a job, after the end is stored. Jobs in other states are ignored."""
        if not job.state.finished:
            return
        self._states[job.name, job.submission] = job.state
        if len(self._states) > MOST_REMEMBERED:
            self._states.pop(next(iter(self._states)), None)

    def state(self, name: str, submission: str) -> JobState | None:
        """Return the final state of a job; None if this process has not recorded its end."""
        return self._states.get((name, submission))


class JobRepository(MetadataRepository):
    """The repository of jobs and metadata.

    :param tables: DynamoDB, or a replacement that passes the same contract suite.
    :param history_seconds: retention of finished jobs.
    :param attempts: keeps the attempt records.
    :param notify: notifies the observers of each new job and each transition, after the job or transition is recorded.
    """

    def __init__(
        self,
        tables: Tables,
        jobs_table: str,
        lines_table: str,
        history_seconds: int,
        attempts: AttemptHistory,
        notify: Notify = lambda event: None,
    ) -> None:
        super().__init__(tables, lines_table)
        self._jobs_table = jobs_table
        self._history_seconds = history_seconds
        self.attempts = attempts
        self.notify = notify
        self.claimed_places = ClaimedPlaces(tables, lines_table)
        self.outlook = OutlookRecord(tables, lines_table)
        self.published = PublishedPlanRecord(tables, lines_table)
        self.recorded_ends = RecordedEnds()
        self.heavy_requests = HeavyRequests(tables, lines_table)
        self.failed_gpus = FailedGpuRecords(tables, lines_table)
        self.failure_notices = FailureNotices(tables, lines_table)

    # --- jobs ------------------------------------------------------------------------------------

    def add(
        self, job: Job, details: str, now: float, metadata: Metadata | None = None, *, plain: bool = False
    ) -> JobRecord | None:
        """Store a new job in its waiting queue and return None. If its name is taken, only return the existing record.

        :param metadata: the metadata, if it was read before in this invocation.
        :param plain: whether to skip the limits on new waiting queues. This is the case for carriers, and for jobs that
            request a single instance type of a pool and name no pools (`needs_one_known_type`).
        :raises TooMany: the job needs a new waiting queue, and its project, its owner or the queue may have no more.
        """
        metadata = metadata or self.metadata()
        if not plain:
            self.check_number_of_waiting_queues(job, metadata)
        row = {
            **job_item(job),
            "jobDetails": details,
            "history": [_history_item(job, epoch(job.since), "submitted", job.attempt)],
            "attempts": [],
        }
        try:
            self._tables.transact(
                [
                    Put(self._jobs_table, row, name_is_free(int(now))),
                    *self._live_writes(None, job),
                    *self.registration(job.waiting_queue, metadata, now, job.owner),
                    *claims_of(job, self._lines_table, now),
                ]
            )
        except Refused as refused:
            if 0 in refused.items:
                return record_from(refused.items[0])
            raise Unavailable(
                "Another user has just submitted a job with the same checkpoint folder.",
                remedy="Send the same request again.",
            ) from refused
        self.notify(JobQueued(job))
        return None

    def submissions_of(self, owner: str) -> SubmissionCount:
        """Return the count of an owner's waiting jobs and later submissions."""
        row = self._tables.get(self._lines_table, owner_key(owner)) or {}
        return SubmissionCount(int(row.get("submitted", 0)), int(row.get("countedAt", 0)))

    def count_submission(self, owner: str, now: float) -> None:
        """Count a submission, for `check_waiting`.

        The transaction that adds the job does not include the count, because submissions of one owner would then
        conflict.
        """
        kept = {"expires": int(now) + COUNT_KEPT_SECONDS}
        self._tables.update(Update(self._lines_table, owner_key(owner), set=kept, add={"submitted": 1}))

    def check_waiting(self, owner: str, count: SubmissionCount, limit: int, now: float, metadata: Metadata) -> None:
        """Check that fewer than `limit` jobs of an owner wait.

        If the count has reached the limit, the waiting jobs are counted again, because some may have started. This
        happens at most every `RECOUNT_SECONDS`. Concurrent submissions of one owner do not wait for each other, so they
        may exceed the limit by a few jobs.

        :raises TooMany: the limit is reached.
        """
        if count.submitted < limit:
            return
        waiting = limit
        if now >= count.counted_at + RECOUNT_SECONDS:
            waiting = sum(job.owner == owner for line in metadata.waiting_queues for job in self.waiting(line))
            counted = {"submitted": waiting, "countedAt": int(now)}
            with suppress(Refused):  # another invocation has counted meanwhile
                self._tables.update(
                    Update(self._lines_table, owner_key(owner), set=counted, when=is_counted_as_read(count.counted_at))
                )
        if waiting >= limit:
            raise TooMany(
                f"An owner may have {limit} waiting jobs at a time, and you have as many.",
                remedy="Submit more when some have started, or cancel some, and wait half a minute. The limit is "
                "max_waiting in the policy's settings.",
            )

    def record(self, name: str) -> JobRecord | None:
        """Return a job's whole record, live or finished; None also for a text that cannot be a job's name."""
        if not 0 < len(name) <= MAX_NAME:
            return None
        item = self._tables.get(self._jobs_table, {"jobName": name})
        return record_from(item) if item else None

    def apply(self, transition: JobTransition, now: float, metadata: Metadata | None = None) -> None:
        """Record a transition that needs no lease, such as a cancel or the end of an attempt.

        :param metadata: required if the job may return to its waiting queue, which is then registered.
        :raises Refused: the job has changed since it was read.
        """
        writes = self._transition_writes(transition, now)
        if metadata and transition.new.state.waits:
            writes += self.registration(transition.new.waiting_queue, metadata, now)
        self._tables.transact(writes)
        self._announce(transition)

    def finished(self, limit: int, after: Item | None) -> tuple[list[Job], Item | None]:
        """Return a page of finished jobs, latest first (eventually consistent: for people, never for decisions)."""
        items, following = self._tables.page(self._jobs_table, FINISHED_INDEX, limit, after)
        return [job_from(item) for item in items], following

    # --- live jobs -------------------------------------------------------------------------------

    def waiting(self, key: str, limit: int | None = None, after: str | None = None) -> list[Job]:
        """Return the first jobs of the waiting queue with this key, in order."""
        return [job_from(item) for item in self._tables.query(self._lines_table, key, limit, after)]

    def active(self) -> list[Job]:
        """Return all jobs that hold slots."""
        return [job_from(item) for item in self._tables.query(self._lines_table, ACTIVE)]

    def external(self) -> list[ExternalTrainingJob]:
        """Return all external jobs."""
        return [external_from(item) for item in self._tables.query(self._lines_table, EXTERNAL)]

    def external_job(self, name: str) -> ExternalTrainingJob | None:
        """Return the external job with this name; None if none is recorded."""
        item = self._tables.get(self._lines_table, external_key(name))
        return external_from(item) if item else None

    def add_external(self, job: ExternalTrainingJob) -> None:
        """Count an external job, or update its record."""
        self._tables.transact([Put(self._lines_table, external_item(job))])

    def drop_external(self, name: str, *, unless_warm: bool = False) -> bool:
        """Stop counting an external job. Return False if nothing was removed.

        :param unless_warm: keep the external job if it has been recorded as a warm pool meanwhile.
        """
        try:
            condition = IS_NO_WARM_POOL if unless_warm else EXISTS
            self._tables.transact([Delete(self._lines_table, external_key(name), condition)])
        except Refused:
            return False
        return True

    # --- the holder of the lease -----------------------------------------------------------------

    def commit(
        self,
        lease: Lease,
        transitions: Sequence[JobTransition],
        now: float,
        *,
        policy_version: int | None = None,
        drains_version: int = 0,
        reservations: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Record transitions as the holder of the lease, all or none.

        :param policy_version: version of the policy of a plan; None: the transitions depend on no policy and no drain.
        :param drains_version: version of the drains of a plan.
        :raises LeaseLost: the fencing token has changed.
        :raises Refused: a job, the policy or a drain has changed since it was read.
        """
        writes: list[Write] = [self._renewal(lease, now)]
        if policy_version is not None:
            unchanged = policy_is(policy_version) & drains_are(drains_version)
            writes.append(Check(self._lines_table, metadata_key(POLICY), unchanged))
        if reservations is not None:
            jobs = {job: dict(slots) for job, slots in reservations.items()}
            writes.append(Put(self._lines_table, {**metadata_key(RESERVATIONS), "jobs": jobs}))
        for transition in transitions:
            writes += self._transition_writes(transition, now)
        try:
            self._tables.transact(writes)
        except Refused as refused:
            raise LeaseLost(refused.items) if 0 in refused.items else refused from refused
        lease.fencing_token += 1
        lease.expires = int(now) + LEASE_SECONDS
        for transition in transitions:
            self._announce(transition)

    # --- writes of a transition ------------------------------------------------------------------

    def _announce(self, transition: JobTransition) -> None:
        """Remember the end of a job, and notify the observers, after a transition is recorded."""
        self.recorded_ends.note(transition.new)
        self.notify(transition)

    def _transition_writes(self, transition: JobTransition, now: float) -> list[Write]:
        """Return the writes of a transition: the job's items, backoffs, released places and the attempt record.

        :raises ValueError: the transition is not consistent.
        """
        old, new = transition.old, transition.new
        if old.state.finished or new.version != old.version + 1:
            raise ValueError(f"{old.name}: {old.state} (version {old.version}) cannot become {new}")
        if (transition.ended is None) != (transition.account is None):
            raise ValueError(f"{old.name}: the end of an attempt and its record do not agree: {transition.ended}")
        before, after = job_item(old), job_item(new)
        changed = {name: content for name, content in after.items() if before.get(name) != content}
        append: dict[str, list[Item]] = {}
        if transition.cause is not None:
            attempt = old.attempt if transition.ended else new.attempt
            append["history"] = [_history_item(new, transition.at, transition.cause, attempt)]
        if transition.ended is not None:
            append["attempts"] = [ATTEMPT.item(transition.ended)]
        if transition.record and _is_long(transition.record):
            past = _latest(transition.record)
            changed |= {name: [*items, *append.pop(name, [])] for name, items in past.items()}
        if new.state.finished:
            changed |= {"finished": "yes", "expires": int(now) + self._history_seconds}
        update = Update(
            self._jobs_table,
            {"jobName": old.name},
            set=changed,
            append=append,
            remove=[name for name in before if name not in after],
            when=is_as_read(old),
        )
        backoffs = [
            Put(self._lines_table, {**backoff_key(backoff), **backoff_item(backoff)}) for backoff in transition.backoffs
        ]
        released = releases_of(old, self._lines_table) if new.state.finished else []
        accounts = [self.attempts.write(transition.account)] if transition.account else []
        return [update, *self._live_writes(old, new), *backoffs, *released, *accounts]

    def _live_writes(self, old: Job | None, new: Job) -> list[Write]:
        """Return the changes of the lines table, where only live jobs have an item."""
        before, after = live_key(old) if old else None, live_key(new)
        writes: list[Write] = []
        if before and before != after:
            writes.append(Delete(self._lines_table, before))
        if after:
            writes.append(Put(self._lines_table, {**after, **job_item(new)}))
        return writes


def writes_of(transition: JobTransition) -> int:
    """Return the number of writes that a transition takes in a transaction."""
    before, after = live_key(transition.old), live_key(transition.new)
    released = len(transition.old.places) if transition.new.state.finished else 0
    live = (before is not None and before != after) + (after is not None)
    return 1 + live + len(transition.backoffs) + released + (transition.account is not None)


def transactions(transitions: Iterable[JobTransition]) -> list[list[JobTransition]]:
    """Group transitions into as few transactions as possible, in their order."""
    parts: list[list[JobTransition]] = [[]]
    room = MAX_WRITES - METADATA_WRITES
    for transition in transitions:
        if writes_of(transition) > room:
            parts.append([])
            room = MAX_WRITES - METADATA_WRITES
        parts[-1].append(transition)
        room -= writes_of(transition)
    return parts


def _latest(record: JobRecord) -> dict[str, list[Item]]:
    """Return the latest history entries and attempts of a job, as many as the job's row keeps."""
    return {
        "history": _latest_that_fit([HISTORY.item(entry) for entry in record.history[-HISTORY_KEPT:]]),
        "attempts": [ATTEMPT.item(attempt) for attempt in record.attempts[-HISTORY_KEPT:]],
    }


def _is_long(record: JobRecord) -> bool:
    if max(len(record.history), len(record.attempts)) > HISTORY_KEPT:
        return True
    return sum(map(_size, map(HISTORY.item, record.history))) > HISTORY_BYTES


def _latest_that_fit(history: list[Item]) -> list[Item]:
    """Return the latest entries that together have at most `HISTORY_BYTES`."""
    left, kept = HISTORY_BYTES, []
    for entry in reversed(history):
        left -= _size(entry)
        if left < 0:
            break
        kept.append(entry)
    return kept[::-1]


def _size(entry: Item) -> int:
    """Return the approximate bytes of an entry in its row."""
    return sum(len(name) + len(str(content).encode(errors="replace")) + 3 for name, content in entry.items())


def _history_item(job: Job, at: float, cause: str, attempt: int) -> Item:
    return HISTORY.item(HistoryEntry(iso(at), job.state.value, attempt, clipped(cause, CAUSE_BYTES)))
