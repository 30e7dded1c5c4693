"""The form of the queue's records as items (rows) of its tables.

`sagemaker-queue` (key `jobName`) has an item for each job: its attributes, its request, its history and its attempts.
`sagemaker-queue-lines` (keys `line`, `position`) has an item for each live job, with only the attributes. The item is
in the partition of the job's waiting queue while the job waits, and in the partition `active` while the job holds
slots. The partition `external` has the external jobs, `control` the queue's metadata, and `owners` the approximate
number of waiting jobs of each owner. The modules in `records` describe the other partitions.
"""

import dataclasses
import json
import types
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import Metadata, StoredDrains
from job_queue.domain.fleet.checkpoints import KnownCheckpoint, KnownCheckpoints
from job_queue.domain.fleet.listing import ListingProgress
from job_queue.domain.fleet.sites import Site
from job_queue.domain.fleet.training_plans import KnownPlan, PlanPart
from job_queue.domain.job import (
    Dependency,
    EndedAttempt,
    ExternalTrainingJob,
    HistoryEntry,
    Job,
    JobRecord,
    LateLaunch,
    LaunchCall,
    WarmPool,
    live_position,
)
from job_queue.domain.launching.launch_rate import TokenBucket
from job_queue.domain.policy import StoredPolicy
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import Drain

Item = dict[str, Any]

ACTIVE = "active"
EXTERNAL = "external"
OWNERS = "owners"
CONTROL = "control"
LEASE = "lease"
GENERATION = "news"
POLICY = "policy"
RESERVATIONS = "reservations"
LISTING = "listing"
CHECKPOINTS = "checkpoints"
UNRECORDED = "unrecorded"
# Prefixes of the positions of metadata: waiting queues in use, capacity backoffs, training plans, other sites' lists.
WAITING_QUEUE_PREFIX = "line#"
BACKOFF_PREFIX = "pause#"
PLAN_PREFIX = "plan#"
SITE_LISTING_PREFIX = "listing#"

RecordType = TypeVar("RecordType")

_NAMES: Mapping[type, Mapping[str, str]] = {
    Job: {
        "name": "jobName",
        "state": "jobState",
        "entered": "entryTime",
        "since": "stateSince",
        "waiting_queue": "waitingLine",
        "launched": "trainingJobName",
        "cancelled": "cancelRequested",
        "allocation": "seat",
        "carrier_attempt": "onBoard",
        "first_members": "founders",
        "was_interrupted": "ran",
        "valid_proofs": "unheard",
    },
    Dependency: {"any_outcome": "any"},
    LaunchCall: {"sent_at": "asked", "expires_at": "dead"},
    LateLaunch: {"until": "dead"},
    KnownCheckpoint: {"looked_up_at": "asked"},
    KnownPlan: {"described_at": "asked"},
    ExternalTrainingJob: {"name": "position", "instance_counts": "demand"},
}
"""Exceptions: field -> stored name. All other fields are stored under their names in camel case (`maxParallel`)."""


def prepare_conversion(*kinds: Any) -> None:
    """Let msgspec read the fields of types now, so that threads may convert to these types at the same time.

    msgspec reads the fields at the first conversion to a type. If two threads do so at the same time, the process may
    crash (msgspec 0.22).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


class Form(Generic[RecordType]):
    """The stored form of records of a type: a Struct that has the fields of the type under stored names.

    :param if_any: stored names of the fields that are left out while they are empty, 0 or false.
    :param nulls: whether fields that are None are stored, as null.
    """

    def __init__(self, kind: type[RecordType], *, if_any: Collection[str] = (), nulls: bool = False) -> None:
        self.row = _row_type(kind)
        self._kind = kind
        self._if_any = frozenset(if_any)
        self._nulls = nulls
        prepare_conversion(self.row, kind)

    def item(self, record: RecordType) -> Item:
        """Return the attributes of a record."""
        item: Item = msgspec.to_builtins(msgspec.convert(record, self.row, from_attributes=True))
        return {
            name: content
            for name, content in item.items()
            if content or (name not in self._if_any and (self._nulls or content is not None))
        }

    def record(self, item: Mapping[str, Any]) -> RecordType:
        """Return the record that an item contains. Further attributes of the item are ignored."""
        return msgspec.convert(msgspec.convert(item, self.row), self._kind, from_attributes=True)


def _row_type(kind: Any) -> Any:
    """Return the Struct that has the fields of a dataclass under their stored names, with lists in place of tuples."""
    names, hints, fields = _NAMES.get(kind, {}), get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        given = {"default": field.default, "default_factory": field.default_factory}
        defaults: dict[str, Any] = {name: it for name, it in given.items() if it is not dataclasses.MISSING}
        stored = msgspec.field(name=names.get(field.name) or _camel(field.name), **defaults)
        fields.append((field.name, _stored_type(hints[field.name]), stored))
    return msgspec.defstruct(f"{kind.__name__}Row", fields)


def _stored_type(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return _row_type(kind)
    if get_origin(kind) is tuple:
        return list[_stored_type(get_args(kind)[0])]  # type: ignore[misc]
    if isinstance(kind, types.UnionType):
        return reduce(or_, map(_stored_type, get_args(kind)))
    return kind


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# --- jobs --------------------------------------------------------------------------------------------

_LEFT_OUT_WHILE_EMPTY = (
    *(
        "after",
        "founders",
        "freeRetried",
        "hangs",
        "infraCheck",
        "lastSlots",
        "leftIdle",
        "places",
        "plans",
        "preempted",
        "preemptedInAll",
        "requeueHung",
        "runSeconds",
    ),
    *("stageAt", "startMissed", "unheard"),
)
_JOB = Form(Job, if_any=_LEFT_OUT_WHILE_EMPTY)
HISTORY = Form(HistoryEntry)
ATTEMPT = Form(EndedAttempt, if_any=("carrier", "failureClass"), nulls=True)


def job_item(job: Job) -> Item:
    """Return the attributes of a job, with the number of instances for direct readers of the table and the index."""
    return {**_JOB.item(job), "instances": job.instances}


def job_from(item: Mapping[str, Any]) -> Job:
    """Return a job from an item of either table."""
    return _JOB.record(item)


def record_from(item: Mapping[str, Any]) -> JobRecord:
    """Return a job's record from its item of the jobs table."""
    return JobRecord(
        job=job_from(item),
        details=item["jobDetails"],
        history=tuple(map(HISTORY.record, item["history"])),
        attempts=tuple(map(ATTEMPT.record, item["attempts"])),
        expires=item.get("expires"),
    )


def live_key(job: Job) -> dict[str, str] | None:
    """Return the key of a job's item in the lines table; None for a finished job."""
    if job.state.waits:
        return {"line": job.waiting_queue, "position": live_position(job)}
    return {"line": ACTIVE, "position": job.name} if job.state.holds_slots else None


def owner_key(owner: str) -> dict[str, str]:
    """Return the key of the item that counts an owner's waiting jobs."""
    return {"line": OWNERS, "position": owner[:1000]}  # DynamoDB accepts 1,024 bytes; ARNs have fewer


# --- external jobs -----------------------------------------------------------------------------------

_EXTERNAL = Form(ExternalTrainingJob, if_any=("forged",))
_WARM = Form(WarmPool)


def external_key(name: str) -> dict[str, str]:
    """Return the key of an external job's item."""
    return {"line": EXTERNAL, "position": name}


def external_item(job: ExternalTrainingJob) -> Item:
    """Return an external job's item."""
    warm = {"warm": _WARM.item(job.warm)} if job.warm else {}
    return {**external_key(job.name), **_EXTERNAL.item(job), **warm}


def external_from(item: Mapping[str, Any]) -> ExternalTrainingJob:
    """Return an external job from its item."""
    return _EXTERNAL.record(item)


# --- metadata ----------------------------------------------------------------------------------------

STORED_POLICY = Form(StoredPolicy)
_BACKOFF = Form(CapacityBackoff, nulls=True)
_LISTING = Form(ListingProgress)
_CHECKPOINT = Form(KnownCheckpoint)
_PLAN = Form(KnownPlan)
_DRAIN = Form(Drain, if_any=("reason",))
_PART = Form(PlanPart, if_any=("forOthers",))


def metadata_key(position: str) -> dict[str, str]:
    """Return the key of an item of metadata."""
    return {"line": CONTROL, "position": position}


def metadata_from(items: Iterable[Item]) -> Metadata:
    """Return the metadata from all items of its partition."""
    by_position = {item["position"]: item for item in items}
    policy, listing = by_position.get(POLICY), by_position.get(LISTING)
    checkpoints = by_position.get(CHECKPOINTS, {}).get("jobs", {})
    return Metadata(
        fencing_token=by_position.get(LEASE, {}).get("token", 0),
        lease_expires=by_position.get(LEASE, {}).get("expiresAt", 0),
        generation=by_position.get(GENERATION, {}).get("requested", 0),
        waiting_queues={key: item["lastUsed"] for key, item in _with_prefix(by_position, WAITING_QUEUE_PREFIX)},
        opened_by={
            key: item["openedBy"] for key, item in _with_prefix(by_position, WAITING_QUEUE_PREFIX) if "openedBy" in item
        },
        policy=policy_from(policy),
        drains=drains_from(policy),
        reservations=by_position.get(RESERVATIONS, {}).get("jobs", {}),
        capacity_backoffs={
            key: _BACKOFF.record({**item, "capacityKey": key})
            for key, item in _with_prefix(by_position, BACKOFF_PREFIX)
        },
        listing=_LISTING.record(listing) if listing else None,
        reconciled=listing.get("reconciled") if listing else None,
        site_listings={key: _LISTING.record(item) for key, item in _with_prefix(by_position, SITE_LISTING_PREFIX)},
        site_reconciled={
            key: item["reconciled"]
            for key, item in _with_prefix(by_position, SITE_LISTING_PREFIX)
            if "reconciled" in item
        },
        unrecorded=by_position.get(UNRECORDED, {}).get("jobs", {}),
        checkpoints={name: _CHECKPOINT.record(seen) for name, seen in checkpoints.items()},
        training_plans={
            arn: _PLAN.record({**item, "arn": arn}) for arn, item in _with_prefix(by_position, PLAN_PREFIX)
        },
    )


def policy_from(item: Item | None) -> StoredPolicy | None:
    """Return the policy from its item; None without a policy, even if the item has drains."""
    return STORED_POLICY.record(item) if item and "document" in item else None


def drains_from(item: Item | None) -> StoredDrains:
    """Return the drains, which are stored in the policy's item."""
    if not item or "drainsVersion" not in item:
        return StoredDrains()
    by_pool = {pool: _DRAIN.record(drain) for pool, drain in item.get("drains", {}).items()}
    return StoredDrains(item["drainsVersion"], by_pool)


def drains_item(drains: StoredDrains) -> Item:
    """Return the attributes of the drains in the policy's item."""
    by_pool = {pool: _DRAIN.item(drain) for pool, drain in drains.by_pool.items()}
    return {"drains": by_pool, "drainsVersion": drains.version}


def _with_prefix(by_position: Mapping[str, Item], prefix: str) -> Iterable[tuple[str, Item]]:
    return [
        (position.removeprefix(prefix), item) for position, item in by_position.items() if position.startswith(prefix)
    ]


def bucket_item(bucket: TokenBucket) -> Item:
    """Return the stored form of a token bucket of launches, in thousandths, because the tables have only integers."""
    return {"tokens": int(1000 * bucket.tokens), "at": int(1000 * bucket.at), "rate": int(1000 * bucket.rate)}


def bucket_from(item: Mapping[str, Any]) -> TokenBucket:
    """Return a token bucket of launches from its stored form."""
    return TokenBucket(item["tokens"] / 1000, item["at"] / 1000, max(item["rate"], 1) / 1000)


def listing_item(listing: ListingProgress, reconciled: int | None, site: Site | None = None) -> Item:
    """Return the item with the known part of SageMaker's list and the time of the last comparison, in epoch seconds."""
    compared = {} if reconciled is None else {"reconciled": reconciled}
    position = SITE_LISTING_PREFIX + site.key if site else LISTING
    return {**metadata_key(position), **_LISTING.item(listing), **compared}


def checkpoints_item(checkpoints: KnownCheckpoints) -> Item:
    """Return the item of the known checkpoints."""
    return {**metadata_key(CHECKPOINTS), "jobs": {name: _CHECKPOINT.item(seen) for name, seen in checkpoints.items()}}


def plan_item(plan: KnownPlan) -> Item:
    """Return the item of a training plan's known data."""
    parts = {} if plan.parts is None else {"parts": [_PART.item(part) for part in plan.parts]}
    return {**metadata_key(PLAN_PREFIX + plan.arn), "asked": plan.described_at, **parts}


def backoff_key(backoff: CapacityBackoff) -> dict[str, str]:
    """Return the key of a capacity backoff's item."""
    return metadata_key(BACKOFF_PREFIX + backoff.capacity_key)


def backoff_item(backoff: CapacityBackoff) -> Item:
    """Return the attributes of a capacity backoff's item."""
    item = _BACKOFF.item(backoff)
    del item["capacityKey"]  # stored in the key of the item
    return item


def stored_request(details: str) -> TrainingRequest:
    """Return the accepted request of a record.

    :param details: the request as the stored text.
    """
    return TrainingRequest.read(json.loads(details))
