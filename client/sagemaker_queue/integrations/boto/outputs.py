"""Correct addresses of outputs that a program has computed from a job's name.

SageMaker writes to ``<folder of the request>/<training job>/...``, and the training job is an attempt. So nothing is
stored at ``<folder>/<job>/...``, and this address is replaced by the address of the job's last attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

from api_contract.models import JobDetail

Find = Callable[[str], Optional[JobDetail]]
"""Returns the job with a name; None if there is no such job."""

BucketsOf = Callable[[JobDetail], Mapping[str, str]]
"""Returns the replacement of each bucket of the project if the job's last attempt is in another region; else {}."""

# The folders that SageMaker creates in a training job's folder: for model and output, and for the output of its tools.
_BELOW = ("output", "debug-output", "profiler-output", "rule-output", "tensorboard-output")
_FOLDERS = ("OutputDataConfig", "DebugHookConfig", "ProfilerConfig", "TensorBoardOutputConfig")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)


def true_address(find: Find, address: str, buckets_of: BucketsOf) -> str:
    """Return the address with the job's name replaced by the name of its last attempt.

    If this attempt is in another region, the bucket is replaced too: ``buckets_of`` returns the new buckets.

    Only addresses below an output folder of the job's request are changed. Other addresses are returned unchanged.
    """
    for folder, name, rest in _parts(address):
        job = find(name)
        if job is not None and job.training_job_name and folder in _folders(job):
            return f"{in_buckets(folder, buckets_of(job))}/{job.training_job_name}{rest}"
    return address


def in_buckets(address: str, buckets: Mapping[str, str]) -> str:
    """Return an address in S3 with its bucket replaced, if ``buckets`` has a replacement for that bucket."""
    scheme, _, rest = address.partition("://")
    bucket, slash, key = rest.partition("/")
    return f"{scheme}://{buckets.get(bucket, bucket)}{slash}{key}"


def with_true_addresses(find: Find, value: Any, buckets_of: BucketsOf) -> Any:
    """Return a copy of a request with ``true_address`` applied to each text in it."""
    if isinstance(value, Mapping):
        return {name: with_true_addresses(find, member, buckets_of) for name, member in value.items()}
    if isinstance(value, list):
        return [with_true_addresses(find, member, buckets_of) for member in value]
    return true_address(find, value, buckets_of) if isinstance(value, str) else value


def _parts(address: str) -> Iterator[tuple[str, str, str]]:
    """Yield folder, name and rest for each segment of an address that can be a job's name."""
    if not address.startswith("s3://"):
        return
    segments = address.split("/")
    for at in range(3, len(segments)):
        below = segments[at + 1] if at + 1 < len(segments) else ""
        if below in _BELOW and _NAME.fullmatch(segments[at]):
            yield "/".join(segments[:at]), segments[at], "/" + "/".join(segments[at + 1 :])


def _folders(job: JobDetail) -> set[str]:
    return {str(job.request.get(config, {}).get("S3OutputPath", "")).rstrip("/") for config in _FOLDERS}
