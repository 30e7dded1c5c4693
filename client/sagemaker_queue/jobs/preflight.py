"""Pre-flight in the client: check before a job's submission that its S3 data, code and buckets exist.

These checks need the caller's access to S3; the queue checks the rest of a request
(docs/reference/preflight.md). Missing permissions of the caller give no issues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from api_contract.error_codes import Error, ErrorCode
from sagemaker_queue.errors import InvalidRequest
from sagemaker_queue.queue.bucket_owners import BucketOwners
from sagemaker_queue.queue.config.queue_config import QueueConfig

if TYPE_CHECKING:
    import boto3

_THREADS = 8  # maximum number of requests at the same time
_CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}, max_pool_connections=_THREADS)
# Access points, aliases and directory buckets do not match and are not checked.
_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<key>.*))?", re.DOTALL)
_ONE_OBJECT = frozenset({"ManifestFile", "AugmentedManifestFile"})
_MISSING_BUCKET = frozenset({"NoSuchBucket", "404"})
_REGION_HEADER = "x-amz-bucket-region"
_OVERRIDE_HINT = "To submit it anyway: smq submit --no-preflight, or preflight=False in Python."


@dataclass(frozen=True)
class PreflightIssue:
    """A fault of the request that would let the job fail at its start."""

    field: str
    """The path of the invalid member, as in ``InvalidRequest.field``."""
    message: str
    """A sentence with the field, the fault and the remedy."""


@dataclass(frozen=True)
class _Location:
    """An address in S3 that the request names."""

    field: str
    bucket: str
    key: str
    expected: str  # "prefix" and "object" must exist; "folder" is for output, so only its bucket must exist


def check(
    request: Mapping[str, Any],
    boto_session: boto3.Session,
    *,
    region: str | None = None,
    upload_folder: str | None = None,
    config: QueueConfig | None = None,
) -> list[PreflightIssue]:
    """Check the addresses in S3 of a CreateTrainingJob request, in parallel, and return the issues.

    The input data and the code must exist, and each bucket must be in ``region``, in which the job will run (default:
    the session's). Denied access, missing credentials and a missing answer prove nothing, and so give no issues.
    ``config`` names the accounts of buckets that do not belong to the caller's account. ``upload_folder`` is a folder
    in S3 that the caller will fill; neither the folder nor its bucket needs to exist yet.
    """
    upload = next(_location("", upload_folder, "folder"), None)
    locations = [
        location
        for location in _locations(request)
        if not upload or (location.bucket, location.key) != (upload.bucket, upload.key)
    ]
    if not locations:
        return []
    region = region or boto_session.region_name
    try:
        s3 = BucketOwners(boto_session, config).guarded(boto_session.client("s3", config=_CONFIG))
    except BotoCoreError:  # such as a missing region, which the queue's answer explains better
        return []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="preflight") as threads:
        buckets = sorted({location.bucket for location in locations})
        needed = [not upload or name != upload.bucket for name in buckets]
        problems = threads.map(lambda *bucket: _bucket_problem(s3, region, *bucket), buckets, needed)
        problem = dict(zip(buckets, problems))
        sought = [location for location in locations if location.expected != "folder" and not problem[location.bucket]]
        missing = dict(zip(sought, threads.map(lambda location: _is_missing(s3, location), sought)))
    return [
        issue for location in locations if (issue := _issue(location, problem[location.bucket], missing.get(location)))
    ]


def refuse(issues: Iterable[PreflightIssue]) -> None:
    """Raise InvalidRequest with all issues, if there are any. The error's field is the field of the first issue."""
    if found := list(issues):
        raise InvalidRequest.of(
            [Error(ErrorCode.INVALID_REQUEST, issue.message, issue.field, _OVERRIDE_HINT) for issue in found]
        )


def _locations(request: Mapping[str, Any]) -> Iterator[_Location]:
    """Yield the addresses in S3 of a request's input data, code, output and checkpoints."""
    channels = request.get("InputDataConfig")
    for index, channel in enumerate(channels if isinstance(channels, list) else []):
        source = _member(_member(channel, "DataSource"), "S3DataSource")
        expected = "object" if str(_member(source, "S3DataType")) in _ONE_OBJECT else "prefix"
        yield from _location(
            f"InputDataConfig[{index}].DataSource.S3DataSource.S3Uri", _member(source, "S3Uri"), expected
        )
    code = _plain(_member(_member(request, "HyperParameters"), "sagemaker_submit_directory"))
    yield from _location("HyperParameters.sagemaker_submit_directory", code, "object")
    output, checkpoints = _member(request, "OutputDataConfig"), _member(request, "CheckpointConfig")
    yield from _location("OutputDataConfig.S3OutputPath", _member(output, "S3OutputPath"), "folder")
    yield from _location("CheckpointConfig.S3Uri", _member(checkpoints, "S3Uri"), "folder")


def _member(parent: object, name: str) -> object:
    """Return the member with this name; None if the parent is not a mapping, since the queue reports that fault."""
    return parent.get(name) if isinstance(parent, Mapping) else None


def _location(field: str, address: object, expected: str) -> Iterator[_Location]:
    if isinstance(address, str) and (found := _ADDRESS.fullmatch(address)):
        yield _Location(field, found["bucket"], found["key"] or "", expected)


def _plain(hyperparameter: object) -> object:
    """Return a hyperparameter's value, decoded if possible: the SDK encodes text as JSON, other callers do not."""
    try:
        return json.loads(hyperparameter) if isinstance(hyperparameter, str) else None
    except (ValueError, RecursionError):
        return hyperparameter


def _bucket_problem(s3: Any, region: str | None, bucket: str, needed: bool) -> str | None:  # noqa: FBT001
    """Return the problem of a bucket itself, or None; only a ``needed`` bucket must exist."""
    try:
        headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING_BUCKET:
            missing = f"names the bucket {bucket}, which does not exist: create it, or correct its name."
            return missing if needed else None
        headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
    except BotoCoreError:
        return None
    home = headers.get(_REGION_HEADER)
    if not home or not region or home == region:
        return None
    return f"names the bucket {bucket}, which is in {home}, while the job runs in {region}: use a bucket in {region}."


def _is_missing(s3: Any, location: _Location) -> bool:
    """Return whether the address is known to have no object; False if the caller may not list the bucket."""
    try:
        listed = s3.list_objects_v2(Bucket=location.bucket, Prefix=location.key, MaxKeys=1).get("Contents", [])
    except ClientError as error:
        return error.response["Error"]["Code"] == "NoSuchBucket"
    except BotoCoreError:
        return False
    # The list is sorted, so an object with exactly this key is the first one with this prefix.
    return not listed or (location.expected == "object" and listed[0]["Key"] != location.key)


_ABSENT: Mapping[str, Callable[[_Location], str]] = {
    "prefix": lambda at: (
        f"names s3://{at.bucket}/{at.key}, which has no objects: upload the data, or correct the address."
    ),
    "object": lambda at: f"names s3://{at.bucket}/{at.key}, which does not exist: upload it, or correct the address.",
}


def _issue(location: _Location, problem: str | None, is_missing: bool | None) -> PreflightIssue | None:
    what = problem or (_ABSENT[location.expected](location) if is_missing else None)
    return PreflightIssue(location.field, f"{location.field} {what}") if what else None
