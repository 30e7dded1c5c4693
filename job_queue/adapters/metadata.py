"""Reads and writes the queue's metadata: the lease, the generation, the waiting queues in use, the policy, backoffs."""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from job_queue.adapters.condition_expressions import (
    EXISTS,
    is_last_used_at,
    is_refused_since,
    lease_is_free,
    lease_is_held_by,
    policy_is,
)
from job_queue.adapters.dynamodb import Delete, Put, Tables, Update
from job_queue.adapters.items import (
    CONTROL,
    GENERATION,
    LEASE,
    POLICY,
    WAITING_QUEUE_PREFIX,
    backoff_item,
    backoff_key,
    checkpoints_item,
    listing_item,
    metadata_from,
    metadata_key,
    plan_item,
    stored_policy_from,
    stored_policy_item,
)
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.errors import Refused, TooMany, Unavailable
from job_queue.domain.fleet.checkpoints import KnownCheckpoints
from job_queue.domain.fleet.listing import Listing
from job_queue.domain.fleet.training_plans import KnownPlan
from job_queue.domain.job import iso, project_of_waiting_queue
from job_queue.domain.policy import AppliedPolicy, StoredPolicy, default_policy
from job_queue.scheduler import policy_from_document

UPDATE_TRIES = 10
WAITING_QUEUES_OF_PROJECT = 50  # a cycle reads each waiting queue, so their number is bounded
WAITING_QUEUES_IN_ALL = 1000
WAITING_QUEUE_UNUSED_SECONDS = 3600  # after which an empty one is forgotten: no write under way is as old


@dataclass(slots=True)
class Lease:
    """The right to run a cycle. Each transaction of the holder adds 1 to the fencing token."""

    holder: str
    fencing_token: int
    expires: int  # epoch seconds


class Policies:
    """Gives the policy that is in force.

    :param max_capacity: instances of the default policy, which holds while none is stored.
    """

    def __init__(self, max_capacity: int) -> None:
        self._default = default_policy(max_capacity)
        self._latest = self._default

    def of(self, stored: StoredPolicy | None) -> AppliedPolicy:
        """The stored policy, or the default one."""
        if stored is None:
            return self._default
        if stored.version != self._latest.version:
            document = _with_one_market(json.loads(stored.document))
            self._latest = AppliedPolicy(
                policy_from_document(document), stored.version, document, stored.applied_by, stored.applied_at
            )
        return self._latest


def _with_one_market(document: dict[str, Any]) -> dict[str, Any]:
    """A stored policy as it can be read today: once, a pool could have `spot` and a training plan. The plan counts."""
    pools = [
        {name: value for name, value in pool.items() if name != "spot" or not pool.get("training_plan")}
        for pool in document["pools"]
    ]
    return {**document, "pools": pools}


class MetadataRepository:
    """Reads and writes metadata.

    :param lines_table: the table that has it.
    """

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def metadata(self) -> Metadata:
        """All of it."""
        return metadata_from(self._tables.query(self._lines_table, CONTROL))

    # --- capacity backoffs -----------------------------------------------------------------------

    def end_capacity_backoff(self, backoff: CapacityBackoff, left: CapacityBackoff | None = None) -> bool:
        """End a backoff. False: SageMaker has refused a job since, or another invocation was first.

        :param left: what remains of it.
        """
        key, unchanged = backoff_key(backoff), is_refused_since(backoff)
        if left:
            write: Update | Delete = Update(self._lines_table, key, set=backoff_item(left), when=unchanged)
        else:
            write = Delete(self._lines_table, key, unchanged)
        try:
            self._tables.transact([write])
        except Refused:
            return False
        return True

    # --- SageMaker's list ------------------------------------------------------------------------

    def note_listing(self, listing: Listing) -> None:
        """Note how far SageMaker's list is known. Of two that do so at the same time, either is right."""
        self._tables.transact([Put(self._lines_table, listing_item(listing))])

    # --- checkpoints -----------------------------------------------------------------------------

    def note_checkpoints(self, checkpoints: KnownCheckpoints) -> None:
        """Note when jobs wrote checkpoints. What is lost is looked up again."""
        self._tables.transact([Put(self._lines_table, checkpoints_item(checkpoints))])

    # --- training plans --------------------------------------------------------------------------

    def note_training_plan(self, plan: KnownPlan) -> None:
        """Note what SageMaker has told of a training plan. The latest answer counts, whoever has asked."""
        self._tables.transact([Put(self._lines_table, plan_item(plan))])

    # --- the policy ------------------------------------------------------------------------------

    def policy(self) -> StoredPolicy | None:
        """The stored policy; None while nobody has applied one."""
        item = self._tables.get(self._lines_table, metadata_key(POLICY))
        return stored_policy_from(item) if item else None

    def apply_policy(self, document: str, version: int, by: str, now: float) -> int:
        """Replace the policy that has this version (0: there is none). Gives the new version.

        :raises Refused: somebody else applied one meanwhile.
        """
        item = stored_policy_item(StoredPolicy(version + 1, document, by, iso(now)))
        self._tables.transact([Update(self._lines_table, metadata_key(POLICY), set=item, when=policy_is(version))])
        return version + 1

    # --- the generation --------------------------------------------------------------------------

    def raise_generation(self) -> int:
        """Count a change that the next cycle has to look at; gives the new generation."""
        item = self._tables.update(Update(self._lines_table, metadata_key(GENERATION), add={"requested": 1}))
        return int(item["requested"])

    def generation(self) -> int:
        """How many changes were counted so far."""
        item = self._tables.get(self._lines_table, metadata_key(GENERATION))
        return int(item["requested"]) if item else 0

    # --- the lease -------------------------------------------------------------------------------

    def acquire(self, holder: str, now: float, expires: float) -> Lease | None:
        """Take the lease; None if another invocation holds it, which will see the new generation."""
        try:
            item = self._tables.update(
                Update(
                    self._lines_table,
                    metadata_key(LEASE),
                    set={"owner": holder, "expiresAt": int(expires)},
                    add={"token": 1},
                    when=lease_is_free(holder, int(now)),
                )
            )
        except Refused:
            return None
        return Lease(holder, item["token"], item["expiresAt"])

    def still_held(self, lease: Lease) -> bool:
        """After a refused fencing token: whether the lease is still held, as a write took effect unseen."""
        item = self._tables.get(self._lines_table, metadata_key(LEASE)) or {}
        if item.get("owner") != lease.holder or item.get("expiresAt") != lease.expires:
            return False
        lease.fencing_token = item["token"]
        return True

    def release(self, lease: Lease) -> None:
        """Give the lease back; one that is no longer held is no error."""
        free = {"owner": "", "expiresAt": 0}
        with suppress(Refused):
            update = Update(self._lines_table, metadata_key(LEASE), set=free, when=lease_is_held_by(lease.holder))
            self._update_alone(update)

    # --- waiting queues in use -------------------------------------------------------------------

    def register_waiting_queue(self, key: str, now: float) -> None:
        """Make a waiting queue known, so that cycles read it. Done before a job is added to it."""
        self._update_alone(Update(self._lines_table, _waiting_queue_key(key), set={"lastUsed": int(now)}))

    def register_waiting_queue_within_bounds(self, key: str, now: float) -> None:
        """The same for a new job.

        :raises TooMany: the waiting queue is not in use, and its project has as many as it may have.
        """
        if not self._register_if_in_use(key, now):
            self._check_number_of_waiting_queues(project_of_waiting_queue(key))
            self.register_waiting_queue(key, now)

    def forget_waiting_queue(self, key: str, last_used: int) -> None:
        """Forget a waiting queue that has been empty for long, unless it was registered again since."""
        try:
            self._tables.transact([Delete(self._lines_table, _waiting_queue_key(key), is_last_used_at(last_used))])
        except Refused:
            return

    def _register_if_in_use(self, key: str, now: float) -> bool:
        try:
            self._tables.update(
                Update(self._lines_table, _waiting_queue_key(key), set={"lastUsed": int(now)}, when=EXISTS)
            )
        except Refused:
            return False
        return True

    def _check_number_of_waiting_queues(self, project: str) -> None:
        keys = self.metadata().waiting_queues
        of_project = sum(project_of_waiting_queue(key) == project for key in keys)
        if of_project >= WAITING_QUEUES_OF_PROJECT or len(keys) >= WAITING_QUEUES_IN_ALL:
            raise TooMany(
                f"Jobs can wait for {WAITING_QUEUES_OF_PROJECT} combinations of instance types and pools in a project, "
                f"and for {WAITING_QUEUES_IN_ALL} in all; {project} has {of_project}, all projects have {len(keys)}.",
                remedy="Ask for what another of its jobs asks for, or try again later: what nobody has waited for in "
                "an hour is forgotten.",
            )

    def _update_alone(self, update: Update) -> None:
        """An update that only another transaction can refuse: its item exists, or it has no condition."""
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
