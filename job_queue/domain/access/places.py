"""Names of the places in S3 to which a job writes: its checkpoints, and its attempts' folders under its output paths.

`services/submission.py` refuses a job that would write to a place of another owner.

A live job claims its places and everything below them. Only jobs of the same owner may claim the same places, because
a job of another owner could change checkpoints or results there. An output path itself is no place. SageMaker puts the
output of each training job into a folder of this path that is named after the training job.

A place is written as `bucket/part/part/...`, where each part is the hash of a folder's name. So a place has a bounded
length, and a place below another place begins with the name of that other place.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from job_queue.domain.names import apply_qstamp
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import Policy


@dataclass(frozen=True, slots=True)
class Claim:
    """A live job's claim on a place to which another job is to write, or on a place above or below that place."""

    place: str  # the place that was looked up
    job: str
    owner: str


MOST_PLACES = 10  # places of a job; the queue looks up other claims on each place, and on all places above it
DEPTH = 24  # most folders in the name of a place; a deeper folder counts as the folder above it at this depth
_PART = 12  # hexadecimal digits of a folder's hash
_STAMP = re.compile(r"(-qstamp-)[0-9]+", re.ASCII)
_ADDRESS = re.compile(r"(s3|https)://([^/]+)/*(.*)", re.DOTALL)
_CHECKPOINTS = "CheckpointConfig.S3Uri"
_OUTPUTS = frozenset({"S3OutputPath"})  # for the model, TensorBoard, debugger, profiler, and their rules
_DOMAIN = re.compile(r"\.amazonaws\.com(?:\.cn)?\Z", re.ASCII)
_LABEL = re.compile(r"[a-z0-9-]+", re.ASCII)


def places_of(request: TrainingRequest) -> dict[str, str]:
    """Return the places to which a job with this request writes, with the field of each. Checkpoints come first."""
    attempt = apply_qstamp(request.name, 1)
    found = {}
    if request.checkpoints:
        found[place_of(request.checkpoints)] = _CHECKPOINTS
    for field, output in request.texts_under(_OUTPUTS):
        found.setdefault(place_of(f"{output.rstrip('/')}/{attempt}"), field)
    return found


def in_each_bucket(place: str, policy: Policy) -> tuple[str, ...]:
    """Return the names that a place has in the buckets of all regions. Claims use the first name.

    A job that runs in another region writes to the same folder of its project's bucket there. So these folders are one
    place. The policy has each bucket in at most one `bucket_by_region`, which several projects may share.
    """
    bucket, separator, folders = place.partition("/")
    maps = (project.bucket_by_region for project in policy.projects)
    names = next((it for it in maps if bucket in it.values()), {"": bucket})
    return tuple(f"{names[region]}{separator}{folders}" for region in sorted(names))


def folders_above(place: str) -> list[str]:
    """Return the places that contain this place, beginning with the bucket, without the place itself."""
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def lies_in(place: str, other: str) -> bool:
    """Return whether a place is the other place, or is below the other place."""
    return f"{place}/".startswith(f"{other}/")


def place_of(address: str) -> str:
    """Return the place of an address. Attempt numbers are removed: all attempts of a job have the same place."""
    bucket, key = bucket_and_key(address)
    parts: Sequence[str] = [_STAMP.sub(r"\1", part) for part in key.split("/") if part]
    return "/".join([bucket, *(hashlib.sha256(part.encode()).hexdigest()[:_PART] for part in parts[:DEPTH])])


def bucket_and_key(address: str) -> tuple[str, str]:
    """Return bucket and key of an address in S3, in any spelling.

    For an address outside S3, return a text with a colon as the bucket, because no bucket's name has a colon.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address.replace("/", ":"), ""
    scheme, host, key = found.groups()
    if scheme == "s3":
        return host, key
    if (named := _bucket_in_host(host)) is None:
        return f"https:{host}", key
    bucket, _, rest = (named, "", key) if named else key.partition("/")
    return bucket, rest


def _bucket_in_host(host: str) -> str | None:
    """Return the bucket in a host such as `bucket.s3.us-east-1.amazonaws.com`.

    The result is empty if the host names no bucket, and None if the host does not belong to S3.

    A bucket's name may have dots, so several labels may look like `s3`; the last one counts. Upper and lower case are
    equal in a host. The time is linear in the length of the host, because callers choose the host.
    """
    host = host.lower()
    domain = _DOMAIN.search(host)
    labels = host[: domain.start()].split(".") if domain else []
    for place in range(len(labels) - 1, -1, -1):
        if not _LABEL.fullmatch(labels[place]):
            return None
        if labels[place] == "s3" or labels[place].startswith("s3-"):
            return ".".join(labels[:place])
    return None
