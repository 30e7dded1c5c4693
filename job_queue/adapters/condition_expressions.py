"""The conditions of the queue's writes, by name."""

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.job import Job


def name_is_free(now: int) -> ConditionBase:
    """Require that no job has the name. An expired item that DynamoDB has not deleted yet counts as absent."""
    return Attr("jobName").not_exists() | Attr("expires").lt(now)


def is_as_read(job: Job) -> ConditionBase:
    """Require that the job still has the version that was read, and is not a later job of the same name."""
    return Attr("version").eq(job.version) & Attr("submission").eq(job.submission)


def lease_is_free(holder: str, now: int) -> ConditionBase:
    """Require that the lease is free, has expired, or already belongs to this holder.

    A holder already has the lease if the answer to its first call was lost.
    """
    return Attr("token").not_exists() | Attr("expiresAt").lt(now) | Attr("owner").eq(holder)


def fencing_token_is(fencing_token: int) -> ConditionBase:
    """Require that no later holder has written, and that no earlier write of this holder succeeded unnoticed."""
    return Attr("token").eq(fencing_token)


def may_promise(by: str, now: int, soon: int) -> ConditionBase:
    """Require that no other invocation has promised to look for work at `soon` or earlier, or that its promise is over.

    :param now: epoch seconds, like `soon`.
    """
    is_over = Attr("promisedUntil").not_exists() | Attr("promisedUntil").lt(now)
    return is_over | Attr("promisedBy").eq(by) | Attr("looksAt").gt(soon)


def is_promised_by(by: str) -> ConditionBase:
    """Require that this invocation made the last promise to look for work."""
    return Attr("promisedBy").eq(by)


def lease_is_held_by(holder: str) -> ConditionBase:
    """Require that this holder has the lease."""
    return Attr("owner").eq(holder)


def is_lock_available(owner: str, now: int) -> ConditionBase:
    """Require that no other owner holds the lock, or that the lock has expired."""
    return Attr("until").not_exists() | Attr("owner").eq(owner) | Attr("until").lt(now)


def is_permit_free(now: int) -> ConditionBase:
    """Require that no request holds the permit, or that the permit has expired."""
    return Attr("until").not_exists() | Attr("until").lt(now)


def is_permit_not_of(caller: str, now: int) -> ConditionBase:
    """Require that no request of this caller holds the permit."""
    return is_permit_free(now) | Attr("caller").ne(caller)


def is_permit_of(holder: str) -> ConditionBase:
    """Require that the permit is still held for this request."""
    return Attr("holder").eq(holder)


def policy_is(version: int) -> ConditionBase:
    """Require that the stored policy still has this version; version 0 means that no policy is stored."""
    is_version = Attr("version").eq(version)
    return is_version if version else Attr("version").not_exists()


def drains_are(version: int) -> ConditionBase:
    """Require that the drains (in the policy's item) still have this version; version 0 means that none are stored."""
    is_version = Attr("drainsVersion").eq(version)
    return is_version if version else Attr("drainsVersion").not_exists()


def no_refusal_since(backoff: CapacityBackoff) -> ConditionBase:
    """Require that no refusal was recorded after the backoff was read."""
    return Attr("since").eq(backoff.since)


def is_last_used_at(last_used: int) -> ConditionBase:
    """Require that the waiting queue has not been registered again since this time (epoch seconds)."""
    return Attr("lastUsed").eq(last_used)


def is_counted_as_read(counted_at: int) -> ConditionBase:
    """Require that an owner's waiting jobs were last counted at this time (epoch seconds; 0: never)."""
    return Attr("countedAt").eq(counted_at) if counted_at else Attr("countedAt").not_exists()


EXISTS = Attr("line").exists()  # an item of the lines table or of the history table
IS_NO_WARM_POOL = EXISTS & Attr("warm").not_exists()  # the item of an external job that still runs


def is_published_before(fencing_token: int) -> ConditionBase:
    """Require that the stored plan is of an earlier cycle, or that no plan is stored."""
    return Attr("token").not_exists() | Attr("token").lt(fencing_token)
