"""Reads and writes of metadata: the lease, the generation, the waiting queues in use, the policy, backoffs."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from job_queue.adapters.condition_expressions import (
    drains_are,
    fencing_token_is,
    is_last_used_at,
    is_promised_by,
    lease_is_free,
    lease_is_held_by,
    may_promise,
    no_refusal_since,
    policy_is,
)
from job_queue.adapters.dynamodb import Delete, Put, Tables, Update
from job_queue.adapters.items import (
    CONTROL,
    GENERATION,
    LEASE,
    POLICY,
    STORED_POLICY,
    UNRECORDED,
    WAITING_QUEUE_PREFIX,
    backoff_item,
    backoff_key,
    bucket_from,
    bucket_item,
    checkpoints_item,
    drains_from,
    drains_item,
    listing_item,
    metadata_from,
    metadata_key,
    plan_item,
    policy_from,
)
from job_queue.adapters.records.policy_history import PolicyVersions
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import Metadata, StoredDrains
from job_queue.domain.errors import Refused, TooMany, Unavailable
from job_queue.domain.expectations.published_plan import LastCycle
from job_queue.domain.fleet.checkpoints import KnownCheckpoints
from job_queue.domain.fleet.listing import ListingProgress
from job_queue.domain.fleet.sites import HomeSite, Site
from job_queue.domain.fleet.training_plans import KnownPlan
from job_queue.domain.job import Job, iso, project_of_waiting_queue
from job_queue.domain.launching.launch_rate import TokenBucket
from job_queue.domain.policy import AppliedPolicy, StoredPolicy, default_policy
from job_queue.scheduler import policy_from_document

UPDATE_TRIES = 10
WAITING_QUEUES_OF_PROJECT = 50  # a cycle reads each waiting queue, so their number is limited
WAITING_QUEUES_IN_ALL = 1000
WAITING_QUEUE_UNUSED_SECONDS = 3600  # an empty waiting queue is forgotten after this time; longer than any write takes
WAITING_QUEUE_FRESH_SECONDS = 1800  # adding a job renews a registration that is older than this


LEASE_SECONDS = 20  # from the last transaction of the lease's holder


@dataclass(slots=True)
class Lease:
    """The right to run a cycle. Each transaction of the holder adds 1 to the fencing token and renews the lease.

    A holder that is too slow loses the lease, and may then still call SageMaker. Such a call is harmless: SageMaker
    refuses a name that is taken, and each call is recorded before it is sent.
    """

    holder: str
    fencing_token: int
    expires: int  # epoch seconds
    stops_repeated_at: int = 0  # epoch seconds at which old stop requests were last repeated
    bucket: TokenBucket | None = None  # token bucket of launches at the home site; None: no launch was ever sent
    site_buckets: dict[str, TokenBucket] = field(default_factory=dict)  # key of another site -> its token bucket
    cycle_ended: float | None = None  # epoch seconds; None: no cycle has ended under this lease


def _buckets_of(lease: Lease) -> dict[str, Any]:
    """Return the attributes of the lease's item that hold the token buckets of launches."""
    found: dict[str, Any] = {"launches": bucket_item(lease.bucket)} if lease.bucket else {}
    if lease.site_buckets:
        found["siteLaunches"] = {key: bucket_item(bucket) for key, bucket in lease.site_buckets.items()}
    return found


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The result when another invocation holds the lease."""

    expires: int  # epoch seconds


class Policies:
    """The policies, parsed from their stored form.

    :param max_capacity: number of instances of the default policy, and ceiling for any other policy. The default policy
        is in force while no policy is stored.
    :param may_share: whether the stack supports shared instances.
    :param home: the region and account of the stack; None: not known.
    """

    def __init__(self, max_capacity: int, *, may_share: bool = True, home: HomeSite | None = None) -> None:
        self.max_capacity = max_capacity
        self.may_share = may_share
        self.home = home
        self._default = default_policy(max_capacity)
        self._latest = self._default

    def of(self, stored: StoredPolicy | None) -> AppliedPolicy:
        """Return the stored policy in parsed form; the default policy if none is stored."""
        if stored is None:
            return self._default
        if stored.version != self._latest.version:
            self._latest = self.read(stored)
        return self._latest

    def read(self, stored: StoredPolicy) -> AppliedPolicy:
        """Return a stored policy, in force or not, with `max_capacity` as the limit on the total of its pools."""
        document = _with_one_market(json.loads(stored.document))
        return AppliedPolicy(
            policy_from_document(document),
            stored.version,
            document,
            stored.applied_by,
            stored.applied_at,
            self.max_capacity,
        )


def _with_one_market(document: dict[str, Any]) -> dict[str, Any]:
    """Return a stored policy in the present form: without `spot` in pools that have a training plan.

    Earlier versions of the queue allowed both fields. If a pool has both, the training plan takes precedence.
    """
    pools = [
        {name: value for name, value in pool.items() if name != "spot" or not pool.get("training_plan")}
        for pool in document["pools"]
    ]
    return {**document, "pools": pools}


class MetadataRepository:
    """The repository of metadata.

    :param lines_table: the table with the metadata.
    """

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table
        self.policy_history = PolicyVersions(tables, lines_table)

    def metadata(self) -> Metadata:
        """Return all metadata."""
        return metadata_from(self._tables.query(self._lines_table, CONTROL))

    # --- capacity backoffs -----------------------------------------------------------------------

    def end_capacity_backoff(self, backoff: CapacityBackoff, left: CapacityBackoff | None = None) -> bool:
        """End a backoff. Return False if it has already ended, or has changed since it was read.

        :param left: the remaining backoff; None: none remains.
        """
        key, unchanged = backoff_key(backoff), no_refusal_since(backoff)
        if left:
            write: Update | Delete = Update(self._lines_table, key, set=backoff_item(left), when=unchanged)
        else:
            write = Delete(self._lines_table, key, unchanged)
        try:
            self._tables.transact([write])
        except Refused:
            return False
        return True

    def note_capacity_backoffs(self, backoffs: Iterable[CapacityBackoff]) -> None:
        """Record backoffs of pools. Either of two concurrent writes may remain: the next comparison writes again."""
        for backoff in backoffs:
            self._tables.transact([Put(self._lines_table, {**backoff_key(backoff), **backoff_item(backoff)})])

    # --- SageMaker's list ------------------------------------------------------------------------

    def note_listing(self, listing: ListingProgress, reconciled: int | None = None, site: Site | None = None) -> None:
        """Record the known part of SageMaker's list. Either of two concurrent writes may remain: both are correct.

        :param reconciled: epoch seconds of the last successful comparison; None: none has succeeded yet.
        :param site: the site of the list; None: the home site.
        """
        self._tables.transact([Put(self._lines_table, listing_item(listing, reconciled, site))])

    # --- checkpoints -----------------------------------------------------------------------------

    def note_checkpoints(self, checkpoints: KnownCheckpoints) -> None:
        """Record the known checkpoints. Data that a concurrent write overwrites is looked up again."""
        self._tables.transact([Put(self._lines_table, checkpoints_item(checkpoints))])

    # --- jobs that cannot be recorded ------------------------------------------------------------

    def note_unrecorded(self, jobs: Mapping[str, int]) -> None:
        """Store the jobs that cannot be recorded, with the time (epoch seconds) until which plans leave a job out."""
        self._tables.transact([Put(self._lines_table, {**metadata_key(UNRECORDED), "jobs": dict(jobs)})])

    # --- training plans --------------------------------------------------------------------------

    def note_training_plan(self, plan: KnownPlan) -> None:
        """Record SageMaker's data about a training plan. The last write of any invocation counts."""
        self._tables.transact([Put(self._lines_table, plan_item(plan))])

    # --- the policy ------------------------------------------------------------------------------

    def policy(self) -> StoredPolicy | None:
        """Return the stored policy; None if no policy was ever applied."""
        return policy_from(self._tables.get(self._lines_table, metadata_key(POLICY)))

    def apply_policy(
        self, document: str, version: int, by: str, now: float, restored: int | None = None
    ) -> StoredPolicy:
        """Replace the policy that has this version (0: no policy). Add the new policy to the history and return it.

        :param restored: the earlier version that is restored; None: a new document.
        :raises Refused: another policy was applied meanwhile.
        """
        new = StoredPolicy(version + 1, document, by, iso(now))
        self._tables.transact(
            [
                Update(self._lines_table, metadata_key(POLICY), set=STORED_POLICY.item(new), when=policy_is(version)),
                *self.policy_history.writes(new, restored),
            ]
        )
        return new

    # --- drains ----------------------------------------------------------------------------------

    def drains(self) -> StoredDrains:
        """Return all drains."""
        return drains_from(self._tables.get(self._lines_table, metadata_key(POLICY)))

    def replace_drains(self, drains: StoredDrains) -> None:
        """Replace the stored drains if they have the previous version.

        The drains are stored in the policy's item. A plan is recorded only if the versions in this item are still those
        of the plan. So a plan that was made with other drains is not recorded.

        :raises Refused: the drains have changed since they were read.
        """
        when = drains_are(drains.version - 1)
        self._tables.transact([Update(self._lines_table, metadata_key(POLICY), set=drains_item(drains), when=when)])

    # --- the generation --------------------------------------------------------------------------

    def raise_generation(self) -> int:
        """Count a change that the next cycle must consider. Return the new generation."""
        item = self._tables.update(Update(self._lines_table, metadata_key(GENERATION), add={"requested": 1}))
        return int(item["requested"])

    def generation(self) -> int:
        """Return the number of changes counted so far."""
        item = self._tables.get(self._lines_table, metadata_key(GENERATION))
        return int(item["requested"]) if item else 0

    # --- the lease -------------------------------------------------------------------------------

    def acquire(self, holder: str, now: float) -> Lease | LeaseHeld:
        """Take the lease for `LEASE_SECONDS`. Return LeaseHeld if another invocation holds the lease."""
        try:
            item = self._tables.update(
                Update(
                    self._lines_table,
                    metadata_key(LEASE),
                    set={"owner": holder, "expiresAt": int(now) + LEASE_SECONDS},
                    add={"token": 1},
                    when=lease_is_free(holder, int(now)),
                )
            )
        except Refused as refused:
            held = refused.items.get(0, {})
            return LeaseHeld(held.get("expiresAt", int(now)))
        return Lease(
            holder,
            item["token"],
            item["expiresAt"],
            item.get("stopsAskedAt", 0),
            bucket_from(item["launches"]) if "launches" in item else None,
            {key: bucket_from(bucket) for key, bucket in item.get("siteLaunches", {}).items()},
        )

    def last_cycle(self) -> LastCycle:
        """Return the last cycle, according to the row of the lease."""
        item = self._tables.get(self._lines_table, metadata_key(LEASE)) or {}
        return LastCycle(item.get("token", 0), item.get("cycleEndedAt", 0) / 1000)

    def cycle_wrote_since(self, metadata: Metadata) -> bool:
        """Return whether a cycle has written since the metadata was read. Only cycles start jobs."""
        return self.last_cycle().fencing_token != metadata.fencing_token

    def still_held(self, lease: Lease) -> bool:
        """Return whether the holder still has the lease although its fencing token was refused, and update the token.

        This happens if a write of the holder took effect, but the answer was lost.
        """
        item = self._tables.get(self._lines_table, metadata_key(LEASE)) or {}
        if item.get("owner") != lease.holder:
            return False
        lease.fencing_token, lease.expires = item["token"], item["expiresAt"]
        return True

    def _renewal(self, lease: Lease, now: float) -> Update:
        """Return the update that renews the lease. Each transaction of the holder contains this update."""
        changes: dict[str, Any] = {"expiresAt": int(now) + LEASE_SECONDS}
        changes |= _buckets_of(lease)
        return Update(
            self._lines_table,
            metadata_key(LEASE),
            set=changes,
            add={"token": 1},
            when=fencing_token_is(lease.fencing_token),
        )

    def promise(self, by: str, now: float, until: float, looks_at: float, soon: float) -> bool:
        """Promise to look for work again. Return False if another invocation has promised to look soon enough.

        All times are epoch seconds.

        :param until: end of the time in which other invocations may rely on the promise.
        :param looks_at: time at which this invocation looks for work.
        :param soon: a promise of another invocation to look at this time or earlier is soon enough.
        """
        promised = {"promisedUntil": int(until), "promisedBy": by, "looksAt": int(looks_at)}
        is_free = may_promise(by, int(now), int(soon))
        try:
            self._update_alone(Update(self._lines_table, metadata_key(LEASE), set=promised, when=is_free))
        except Refused:
            return False
        return True

    def withdraw(self, by: str) -> None:
        """End this invocation's promise to look for work again, so that other invocations do not rely on it."""
        with suppress(Refused):
            over = {"promisedUntil": 0}
            self._update_alone(Update(self._lines_table, metadata_key(LEASE), set=over, when=is_promised_by(by)))

    def release(self, lease: Lease) -> None:
        """Release the lease. Do nothing if another invocation has the lease by now."""
        learned: dict[str, Any] = {"stopsAskedAt": lease.stops_repeated_at}
        learned |= _buckets_of(lease)
        if lease.cycle_ended is not None:
            learned["cycleEndedAt"] = int(1000 * lease.cycle_ended)
        self.give_back(lease.holder, learned)

    def give_back(self, holder: str, learned: Mapping[str, Any] | None = None) -> None:
        """End the lease of a holder, even if the answer of the acquisition was lost.

        The lease of another invocation is left unchanged, without an error.

        :param learned: further attributes of the row, with values that the holder has changed.
        """
        free = {"owner": "", "expiresAt": 0, **(learned or {})}
        update = Update(self._lines_table, metadata_key(LEASE), set=free, when=lease_is_held_by(holder))
        with suppress(Refused):
            self._update_alone(update)

    # --- waiting queues in use -------------------------------------------------------------------

    def register_waiting_queue(self, key: str, now: float) -> None:
        """Register a waiting queue, so that cycles read it. Call this before a job is added."""
        self._update_alone(Update(self._lines_table, _waiting_queue_key(key), set={"lastUsed": int(now)}))

    def registration(self, key: str, metadata: Metadata, now: float, owner: str | None = None) -> list[Update]:
        """Return the writes that register a waiting queue when a job is added; empty if this was done lately.

        :param metadata: the metadata, as read in this invocation.
        :param owner: owner of the job; recorded as the opener of a waiting queue that was not in use.
        """
        last_used = metadata.waiting_queues.get(key)
        if last_used is not None and now < last_used + WAITING_QUEUE_FRESH_SECONDS:
            return []
        opened = {"openedBy": owner} if owner is not None and last_used is None else {}
        return [Update(self._lines_table, _waiting_queue_key(key), set={"lastUsed": int(now), **opened})]

    def forget_waiting_queue(self, key: str, last_used: int) -> None:
        """Forget a waiting queue that has been empty for long, unless the waiting queue was registered again."""
        try:
            self._tables.transact([Delete(self._lines_table, _waiting_queue_key(key), is_last_used_at(last_used))])
        except Refused:
            return

    def check_number_of_waiting_queues(self, job: Job, metadata: Metadata) -> None:
        """Check that a job's waiting queue is in use, or that its project and its owner may open one more.

        The number of waiting queues left is the smaller of two: left in the project, and left in all projects. An owner
        may open another waiting queue only if this number exceeds the number that the owner has opened in the project.
        So one owner cannot take all waiting queues.

        :raises TooMany: the waiting queue is not in use and may not be opened.
        """
        key, keys = job.waiting_queue, metadata.waiting_queues
        project = project_of_waiting_queue(key)
        if key in keys:
            return
        of_project = sum(project_of_waiting_queue(key) == project for key in keys)
        if of_project >= WAITING_QUEUES_OF_PROJECT or len(keys) >= WAITING_QUEUES_IN_ALL:
            raise TooMany(
                f"Jobs can wait for {WAITING_QUEUES_OF_PROJECT} combinations of instance types and pools in a project, "
                f"and for {WAITING_QUEUES_IN_ALL} in total; {project} has {of_project}, all projects have {len(keys)}.",
                remedy="Use the instance types and pools of another waiting job, or try again later: combinations "
                "without waiting jobs are dropped after an hour.",
            )
        own = [it for it, owner in metadata.opened_by.items() if owner == job.owner]
        own_of_project = sum(project_of_waiting_queue(it) == project for it in own)
        left = min(WAITING_QUEUES_OF_PROJECT - of_project, WAITING_QUEUES_IN_ALL - len(keys))
        if own_of_project >= left:
            raise TooMany(
                f"You have opened {own_of_project} of the {WAITING_QUEUES_OF_PROJECT} combinations of instance types "
                f"and pools for which jobs of {project} can wait; the other {left} are for other users.",
                remedy="Use the instance types and pools of another waiting job, or try again later: combinations "
                "without waiting jobs are dropped after an hour.",
            )

    def _update_alone(self, update: Update) -> None:
        """Make an update outside a transaction, and repeat the update while another transaction holds the row.

        A refusal without a row can only be due to such a transaction, because the row of each conditional update
        exists.

        :raises Refused: the row does not meet the update's condition.
        """
        for _ in range(UPDATE_TRIES):
            try:
                self._tables.update(update)
            except Refused as refused:
                if refused.items[0]:
                    raise
            else:
                return
        raise Unavailable("DynamoDB was too busy with other writes of the same row. Send the same request again.")


def _waiting_queue_key(key: str) -> dict[str, str]:
    return metadata_key(WAITING_QUEUE_PREFIX + key)
