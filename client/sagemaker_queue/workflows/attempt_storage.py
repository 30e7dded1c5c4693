"""Find the addresses in S3 of attempts in other regions and accounts, and credentials for these addresses.

The request names the project's bucket in the queue's region. An attempt in another region uses the bucket of that
region instead. The project's field ``bucket_by_region`` in the policy names this bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from api_contract.models import Attempt, JobSummary
from sagemaker_queue.queue.data_links import S3Address
from sagemaker_queue.workflows.submission import storage_of

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.storage import S3Storage
    from sagemaker_queue.queue.attempt_clients import Place
    from sagemaker_queue.queue.client import QueueClient


def last_launched(job: JobSummary) -> Place:
    """Return the last attempt with a training job, else the job."""
    attempts: tuple[Attempt, ...] = getattr(job, "attempts", ())
    return next((attempt for attempt in reversed(attempts) if attempt.training_job_name), job)


def address_there(queue: QueueClient, job: JobSummary, place: Place, address: S3Address) -> S3Address:
    """Return the address that an attempt uses in place of an address in the job's request.

    The policy is read only for an attempt in another region.
    """
    if place.region is None:
        return address
    buckets = bucket_by_region(queue.policy().policy, job.project)
    bucket = buckets.get(place.region)
    return replace(address, bucket=bucket) if bucket and address.bucket in buckets.values() else address


def bucket_by_region(policy: Mapping[str, object], project: str | None) -> Mapping[str, str]:
    """Return the buckets of a project by region; empty if the policy has none."""
    projects = policy.get("projects")
    for entry in projects if isinstance(projects, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == project:
            buckets: Mapping[str, str] = entry.get("bucket_by_region") or {}
            return buckets
    return {}


def storage_there(queue: QueueClient, job: JobSummary, place: Place, address: S3Address) -> S3Storage:
    """Return the storage in S3, with credentials for an address of an attempt.

    The bucket of another account is read with the profile of that account, unless ``bucket_owners`` names the bucket.
    Raises NoAccountProfile without such a profile.
    """
    config = queue.config
    if place.account is None or place.region is None or address.bucket in config.owners:
        return storage_of(queue)  # a pool without a region uses the buckets of the request
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415  # boto3

    session = queue.aws_session(place.account, job=job.job)
    return S3Storage.of(replace(config, account=place.account, bucket_owners=None), session)
