"""Where a job writes in S3: its checkpoints, and the folders of its attempts under its output paths.

Each place belongs to the job alone, and to others of the same owner, with all that is below it: who could write there
would change what the job resumes from, or what it has made. An output path itself is nobody's, as SageMaker puts each
training job's output into a folder of its name there.

A place is `bucket/part/part/...`, each part the hash of a folder's name: so it has a bounded length, and what lies
below another place begins with it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job_queue.domain.access.request_fields import texts_under
from job_queue.domain.names import apply_qstamp


@dataclass(frozen=True, slots=True)
class Claim:
    """A live job's claim on a place that another would write to, above or below."""

    place: str  # that was looked for
    job: str
    owner: str


MOST_PLACES = 10  # of a job: for each, and for all above it, the queue looks at who else writes there
DEPTH = 24  # folders of a place that count: one that is deeper stands for the folder at that depth
_PART = 12  # hexadecimal digits of a folder's hash
_STAMP = re.compile(r"(-qstamp-)[0-9]+", re.ASCII)
_ADDRESS = re.compile(r"(s3|https)://([^/]+)/*(.*)", re.DOTALL)
_CHECKPOINTS = "CheckpointConfig.S3Uri"
_OUTPUTS = frozenset({"S3OutputPath"})  # of the model, TensorBoard, debugger, profiler, and of each of their rules
_HOST_OF_S3 = re.compile(r"(?:(.+)\.)?s3(?:[.-][a-z0-9-]+)*\.amazonaws\.com(?:\.cn)?", re.ASCII)


def places_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The places that a job with this valid request writes to, each with the field that names it; checkpoints first."""
    attempt = apply_qstamp(str(request["TrainingJobName"]), 1)
    found = {}
    if checkpoints := checkpoints_of(request):
        found[place_of(checkpoints)] = _CHECKPOINTS
    for field, output in texts_under(_OUTPUTS, request):
        found.setdefault(place_of(f"{output.rstrip('/')}/{attempt}"), field)
    return found


def checkpoints_of(request: Mapping[str, Any]) -> str | None:
    """The address at which a request keeps checkpoints, if it does."""
    return (request.get("CheckpointConfig") or {}).get("S3Uri")


def folders_above(place: str) -> list[str]:
    """The places in which a place lies, the bucket first; without the place itself."""
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def lies_in(place: str, other: str) -> bool:
    """Whether a place is another, or below it."""
    return f"{place}/".startswith(f"{other}/")


def place_of(address: str) -> str:
    """The place of an address. Numbers of attempts are left out, as the attempts of a job are one."""
    bucket, key = bucket_and_key(address)
    parts: Sequence[str] = [_STAMP.sub(r"\1", part) for part in key.split("/") if part]
    return "/".join([bucket, *(hashlib.sha256(part.encode()).hexdigest()[:_PART] for part in parts[:DEPTH])])


def bucket_and_key(address: str) -> tuple[str, str]:
    """The bucket and the key of an address in S3, however it is spelt; of what is none, it stands for the bucket."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address.replace("/", ":"), ""
    scheme, host, key = found.groups()
    if scheme == "s3":
        return host, key
    if (of_s3 := _HOST_OF_S3.fullmatch(host)) is None:
        return f"https:{host}", key
    bucket, _, rest = (of_s3[1], "", key) if of_s3[1] else key.partition("/")
    return bucket, rest
