"""Where a job writes in S3: its checkpoints, and the folders of its attempts under its output path.

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

from job_queue.domain.errors import InvalidRequest
from job_queue.domain.names import apply_qstamp


@dataclass(frozen=True, slots=True)
class Claim:
    """A live job's claim on a place that another would write to, above or below."""

    place: str  # that was looked for
    job: str
    owner: str


DEPTH = 24  # folders of a place that count: one that is deeper stands for the folder at that depth
_PART = 12  # hexadecimal digits of a folder's hash
_STAMP = re.compile(r"(-qstamp-)[0-9]+", re.ASCII)
_ADDRESS = re.compile(r"s3://([^/]+)/?(.*)", re.DOTALL)


def places_of(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The places that a job with this request writes to.

    :raises InvalidRequest: an address is not S3's.
    """
    output = str(request["OutputDataConfig"]["S3OutputPath"])
    attempt = apply_qstamp(str(request["TrainingJobName"]), 1)
    found = [_place("OutputDataConfig.S3OutputPath", f"{output.rstrip('/')}/{attempt}")]
    if checkpoints := (request.get("CheckpointConfig") or {}).get("S3Uri"):
        found.insert(0, _place("CheckpointConfig.S3Uri", str(checkpoints)))
    return tuple(dict.fromkeys(found))


def folders_above(place: str) -> list[str]:
    """The places in which a place lies, the bucket first; without the place itself."""
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def place_of(address: str) -> str | None:
    """The place of an address in S3; None: it is none.

    Numbers of attempts are left out, as the attempts of a job are one.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    bucket, key = found.groups()
    parts: Sequence[str] = [_STAMP.sub(r"\1", part) for part in key.split("/") if part]
    return "/".join([bucket, *(hashlib.sha256(part.encode()).hexdigest()[:_PART] for part in parts[:DEPTH])])


def _place(field: str, address: str) -> str:
    place = place_of(address)
    if place is None:
        raise InvalidRequest(
            f"{field} is no address in S3 that the queue can compare with those of other jobs.",
            field=field,
            remedy="Give it as s3://bucket/folder.",
        )
    return place
