"""The form of the queue's records as items (rows) of its tables.

`sagemaker-queue` (key `jobName`) has an item for each job: its attributes, its request, its history and its attempts.
`sagemaker-queue-lines` (keys `line`, `position`) has an item for each live job, with only the attributes: in its
waiting queue while it waits, in the partition `active` while it holds slots. Other partitions are `external` for
external jobs, `control` for the queue's metadata, and `owners` for the approximate number of waiting jobs of each
owner.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.fleet.checkpoints import KnownCheckpoint, KnownCheckpoints
from job_queue.domain.fleet.listing import Listing
from job_queue.domain.fleet.training_plans import KnownPlan, PlanPart
from job_queue.domain.job import (
    Dependency,
    EndedAttempt,
    ExternalJob,
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
from job_queue.scheduler import JobState, Seat

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
WAITING_QUEUE_PREFIX = "line#"  # of metadata about the waiting queues in use
BACKOFF_PREFIX = "pause#"  # of metadata about capacity backoffs
PLAN_PREFIX = "plan#"  # of metadata about training plans

_ATTRIBUTES = {
    "name": "jobName",
    "submission": "submission",
    "state": "jobState",
    "priority": "priority",
    "entered": "entryTime",
    "since": "stateSince",
    "owner": "owner",
    "demand": "demand",
    "waiting_queue": "waitingLine",
    "version": "version",
    "project": "project",
    "group": "group",
    "max_parallel": "maxParallel",
    "after": "after",
    "preemptible": "preemptible",
    "interactive": "interactive",
    "pools": "pools",
    "held": "held",
    "attempt": "attempt",
    "launched": "trainingJobName",
    "started": "started",
    "slots": "slots",
    "last_slots": "lastSlots",
    "borrowed": "borrowed",
    "calls": "calls",
    "in_doubt": "inDoubt",
    "late": "late",
    "cancelled": "cancelRequested",
    "evicted_for": "evictedFor",
    "evicted_by": "evictedBy",
    "backoff_until": "backoffUntil",
    "ran": "ran",
    "tries": "tries",
    "refusals": "refusals",
    "refused": "refused",
    "retries": "retries",
    "retried": "retried",
    "missing_since": "missingSince",
    "stop_denied": "stopDenied",
    "left_idle": "leftIdle",
    "max_runtime": "maxRuntime",
    "cut_off": "cutOff",
    "plans": "plans",
    "footprint": "footprint",
    "keep_warm": "keepWarm",
    "reason": "reason",
    "parked": "parked",
    "parked_for": "parkedFor",
    "secret": "secret",
    "sent": "sent",
    "unheard": "unheard",
    "places": "places",
    "gpus": "gpus",
    "kind": "kind",
    "seat": "seat",
    "on_board": "onBoard",
    "carries": "carries",
    "agent_key": "agentKey",
    "founders": "founders",
    "empty_since": "emptySince",
}


# --- jobs --------------------------------------------------------------------------------------------


def job_item(job: Job) -> Item:
    """Return the attributes of a job, without those that are None."""
    item = {attribute: getattr(job, name) for name, attribute in _ATTRIBUTES.items()}
    item["jobState"] = job.state.value
    item["demand"] = [dict(alternative) for alternative in job.demand]
    item["slots"] = dict(job.slots)
    item["lastSlots"] = dict(job.last_slots) or None
    item["calls"] = [{"asked": call.sent_at, "dead": call.expires_at} for call in job.calls]
    item["late"] = job.late and {"attempt": job.late.attempt, "dead": job.late.until}
    item["pools"] = list(job.pools)
    item["after"] = [{"job": it.job, "submission": it.submission, "any": it.any_outcome} for it in job.after] or None
    item["refused"] = job.refused and list(job.refused)
    item["plans"] = list(job.plans) or None
    item["unheard"] = [list(numbers) for numbers in job.unheard] or None
    item["places"] = list(job.places) or None
    item["founders"] = list(job.founders) or None
    item["seat"] = job.seat and {"carrier": job.seat.carrier, "gpus": list(job.seat.gpus), "tenths": job.seat.tenths}
    item["leftIdle"] = job.left_idle or None
    item["instances"] = job.instances  # for readers of the table and of the index
    return {attribute: content for attribute, content in item.items() if content is not None}


def job_from(item: Mapping[str, Any]) -> Job:
    """Return a job from an item of either table."""
    values = {name: item[attribute] for name, attribute in _ATTRIBUTES.items() if attribute in item}
    values["state"] = JobState(values["state"])
    values["demand"] = tuple(item["demand"])
    values["pools"] = tuple(item.get("pools", ()))
    values["after"] = tuple(Dependency(it["job"], it["submission"], it["any"]) for it in item.get("after", ()))
    if refused := item.get("refused"):
        first, last = refused
        values["refused"] = (first, last)
    values["plans"] = tuple(item.get("plans", ()))
    values["unheard"] = tuple((first, last) for first, last in item.get("unheard", ()))
    values["places"] = tuple(item.get("places", ()))
    values["founders"] = tuple(item.get("founders", ()))
    if seat := item.get("seat"):
        values["seat"] = Seat(seat["carrier"], tuple(seat["gpus"]), seat["tenths"])
    if late := item.get("late"):
        values["late"] = LateLaunch(late["attempt"], late["dead"])
    values["calls"] = tuple(LaunchCall(call["asked"], call["dead"]) for call in item.get("calls", ()))
    return Job(**values)


def record_from(item: Mapping[str, Any]) -> JobRecord:
    """Return a job's record from its item of the jobs table."""
    return JobRecord(
        job=job_from(item),
        details=item["jobDetails"],
        history=tuple(_history_entry_from(entry) for entry in item["history"]),
        attempts=tuple(_attempt_from(attempt) for attempt in item["attempts"]),
        expires=item.get("expires"),
    )


def history_item(entry: HistoryEntry) -> Item:
    """Return the form of an entry of a job's history."""
    return {"at": entry.at, "state": entry.state, "attempt": entry.attempt, "cause": entry.cause}


def _history_entry_from(item: Mapping[str, Any]) -> HistoryEntry:
    return HistoryEntry(item["at"], item["state"], item["attempt"], item["cause"])


def attempt_item(attempt: EndedAttempt) -> Item:
    """Return the form of an ended attempt in its job's item."""
    return {
        "attempt": attempt.attempt,
        "trainingJobName": attempt.training_job_name,
        "started": attempt.started,
        "ended": attempt.ended,
        "outcome": attempt.outcome,
        "instances": attempt.instances,
        **({"carrier": attempt.carrier} if attempt.carrier else {}),
    }


def _attempt_from(item: Mapping[str, Any]) -> EndedAttempt:
    return EndedAttempt(
        item["attempt"],
        item.get("trainingJobName"),
        item.get("started"),
        item["ended"],
        item["outcome"],
        item.get("instances"),
        item.get("carrier"),
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


def external_key(name: str) -> dict[str, str]:
    """Return the key of an external job's item."""
    return {"line": EXTERNAL, "position": name}


def external_item(job: ExternalJob) -> Item:
    """Return an external job's item."""
    return {
        **external_key(job.name),
        "demand": dict(job.instance_counts),
        "since": job.since,
        "orphan": job.orphan,
        **({"forged": True} if job.forged else {}),
        **({"plan": job.plan} if job.plan else {}),
        **({"warm": _warm_item(job.warm)} if job.warm else {}),
    }


def _warm_item(pool: WarmPool) -> Item:
    item = {
        "footprint": pool.footprint,
        "until": pool.until,
        "releasing": pool.releasing,
        "fixed": pool.fixed,
        "pool": pool.pool,
    }
    return {attribute: content for attribute, content in item.items() if content is not None}


def external_from(item: Mapping[str, Any]) -> ExternalJob:
    """Return an external job from its item."""
    warm = item.get("warm")
    pool = WarmPool(**warm) if warm else None
    return ExternalJob(
        item["position"],
        item["demand"],
        item["since"],
        item["orphan"],
        item.get("forged", False),
        item.get("plan"),
        pool,
    )


# --- metadata ----------------------------------------------------------------------------------------


def metadata_key(position: str) -> dict[str, str]:
    """Return the key of an item of metadata."""
    return {"line": CONTROL, "position": position}


def metadata_from(items: Iterable[Item]) -> Metadata:
    """Return the metadata from all items of its partition."""
    by_position = {item["position"]: item for item in items}
    policy, listing = by_position.get(POLICY), by_position.get(LISTING)
    return Metadata(
        fencing_token=by_position.get(LEASE, {}).get("token", 0),
        lease_expires=by_position.get(LEASE, {}).get("expiresAt", 0),
        generation=by_position.get(GENERATION, {}).get("requested", 0),
        waiting_queues={key: item["lastUsed"] for key, item in _with_prefix(by_position, WAITING_QUEUE_PREFIX)},
        opened_by={
            key: item["openedBy"] for key, item in _with_prefix(by_position, WAITING_QUEUE_PREFIX) if "openedBy" in item
        },
        policy=stored_policy_from(policy) if policy else None,
        reservations=by_position.get(RESERVATIONS, {}).get("jobs", {}),
        capacity_backoffs={key: _backoff_from(key, item) for key, item in _with_prefix(by_position, BACKOFF_PREFIX)},
        listing=_listing_from(listing) if listing else None,
        reconciled=listing.get("reconciled") if listing else None,
        unrecorded=by_position.get(UNRECORDED, {}).get("jobs", {}),
        checkpoints=_checkpoints_from(by_position.get(CHECKPOINTS, {})),
        training_plans={arn: _plan_from(arn, item) for arn, item in _with_prefix(by_position, PLAN_PREFIX)},
    )


def _with_prefix(by_position: Mapping[str, Item], prefix: str) -> Iterable[tuple[str, Item]]:
    return [
        (position.removeprefix(prefix), item) for position, item in by_position.items() if position.startswith(prefix)
    ]


def bucket_item(bucket: TokenBucket) -> Item:
    """Return the launch rate's attribute in the lease's item, in thousandths: the tables have only whole numbers."""
    return {"tokens": int(1000 * bucket.tokens), "at": int(1000 * bucket.at), "rate": int(1000 * bucket.rate)}


def bucket_from(item: Mapping[str, Any]) -> TokenBucket:
    """Return the launch rate from the lease's item."""
    return TokenBucket(item["tokens"] / 1000, item["at"] / 1000, max(item["rate"], 1) / 1000)


def listing_item(listing: Listing, reconciled: int | None) -> Item:
    """Return the item of the known part of SageMaker's list, and of the last successful comparison (epoch s)."""
    return {
        **metadata_key(LISTING),
        "since": listing.since,
        "until": listing.until,
        "floor": listing.floor,
        "swept": listing.swept,
        **({} if reconciled is None else {"reconciled": reconciled}),
    }


def _listing_from(item: Mapping[str, Any]) -> Listing:
    return Listing(item["since"], item["until"], item["floor"], item["swept"])


def checkpoints_item(checkpoints: KnownCheckpoints) -> Item:
    """Return the item of the known checkpoints."""
    jobs = {
        name: {"attempt": seen.attempt, "asked": seen.asked, **({} if seen.at is None else {"at": seen.at})}
        for name, seen in checkpoints.items()
    }
    return {**metadata_key(CHECKPOINTS), "jobs": jobs}


def _checkpoints_from(item: Mapping[str, Any]) -> KnownCheckpoints:
    return {name: KnownCheckpoint(**seen) for name, seen in item.get("jobs", {}).items()}


def plan_item(plan: KnownPlan) -> Item:
    """Return the item of a training plan's known data."""
    item: Item = {**metadata_key(PLAN_PREFIX + plan.arn), "asked": plan.asked}
    if plan.parts is not None:
        item["parts"] = [
            {"instances": it.instances, "starts": it.starts, "ends": it.ends}
            | ({"forOthers": list(it.for_others)} if it.for_others else {})
            for it in plan.parts
        ]
    return item


def _plan_from(arn: str, item: Mapping[str, Any]) -> KnownPlan:
    if "parts" not in item:
        return KnownPlan(arn, item["asked"])
    parts = tuple(
        PlanPart(it["instances"], it["starts"], it["ends"], tuple(it.get("forOthers", ()))) for it in item["parts"]
    )
    return KnownPlan(arn, item["asked"], parts)


def stored_policy_from(item: Mapping[str, Any]) -> StoredPolicy:
    """Return the policy from its item."""
    return StoredPolicy(item["version"], item["document"], item["appliedBy"], item["appliedAt"])


def stored_policy_item(policy: StoredPolicy) -> Item:
    """Return the attributes of the policy's item."""
    return {
        "version": policy.version,
        "document": policy.document,
        "appliedBy": policy.applied_by,
        "appliedAt": policy.applied_at,
    }


def backoff_key(backoff: CapacityBackoff) -> dict[str, str]:
    """Return the key of a capacity backoff's item."""
    return metadata_key(BACKOFF_PREFIX + backoff.capacity_key)


def backoff_item(backoff: CapacityBackoff) -> Item:
    """Return the attributes of a capacity backoff's item."""
    return {
        "until": backoff.until,
        "since": backoff.since,
        "failures": backoff.failures,
        "instances": backoff.instances,
        "largest": backoff.largest,
        "atFault": backoff.at_fault,
        "refusedSince": backoff.refused_since,
        "lag": backoff.lag,
        "lagSince": backoff.lag_since,
    }


def _backoff_from(capacity_key: str, item: Mapping[str, Any]) -> CapacityBackoff:
    return CapacityBackoff(
        capacity_key,
        item["until"],
        item["since"],
        item["failures"],
        item["instances"],
        item["largest"],
        item.get("atFault"),
        item.get("refusedSince"),
        item.get("lag"),
        item.get("lagSince", 0),
    )


def stored_request(details: str) -> TrainingRequest:
    """Return the accepted request of a record.

    :param details: the request as the stored text.
    """
    return TrainingRequest.read(json.loads(details))
