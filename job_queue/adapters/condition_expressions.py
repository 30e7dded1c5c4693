"""The conditions of the queue's writes, by name."""

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.job import Job


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


def same_refusal(pause: CapacityBackoff) -> ConditionBase:
    """SageMaker has refused nobody there since the pause was read."""
    return Attr("since").eq(pause.since)


def nobody_entered(last_used: int) -> ConditionBase:
    """Nobody has entered the line since we looked."""
    return Attr("lastUsed").eq(last_used)


THERE = Attr("line").exists()  # the line row is there
