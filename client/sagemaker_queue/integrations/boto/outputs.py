"""Where the outputs of a job are, whose address somebody has computed from the job's name.

SageMaker writes to ``<folder of the request>/<training job>/...``, and the training job is an attempt. So at
``<folder>/<job>/...`` there is nothing; what is meant is the last attempt's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

from sagemaker_queue.models import JobDetail

Find = Callable[[str], Optional[JobDetail]]
"""Returns the job of that name; None if there is none."""

# What SageMaker writes below the name of a training job: model and output, and those of the debugger and its like.
_BELOW = ("output", "debug-output", "profiler-output", "rule-output", "tensorboard-output")
_FOLDERS = ("OutputDataConfig", "DebugHookConfig", "ProfilerConfig", "TensorBoardOutputConfig")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)


def true_address(find: Find, address: str) -> str:
    """Return the address with the name of the job's last attempt for the job's; any other address as it is.

    Only below a folder that the job's request names for its outputs.
    """
    for folder, name, rest in _parts(address):
        job = find(name)
        if job is not None and job.training_job_name and folder in _folders(job):
            return f"{folder}/{job.training_job_name}{rest}"
    return address


def with_true_addresses(find: Find, value: Any) -> Any:
    """Return a request in which the addresses of jobs' outputs are those of their attempts."""
    if isinstance(value, Mapping):
        return {name: with_true_addresses(find, member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_true_addresses(find, member) for member in value]
    return true_address(find, value) if isinstance(value, str) else value


def _parts(address: str) -> Iterator[tuple[str, str, str]]:
    """Yield folder, name and rest, wherever a job's name can stand."""
    if not address.startswith("s3://"):
        return
    segments = address.split("/")
    for at in range(3, len(segments)):
        below = segments[at + 1] if at + 1 < len(segments) else ""
        if below in _BELOW and _NAME.fullmatch(segments[at]):
            yield "/".join(segments[:at]), segments[at], "/" + "/".join(segments[at + 1 :])


def _folders(job: JobDetail) -> set[str]:
    return {str(job.request.get(config, {}).get("S3OutputPath", "")).rstrip("/") for config in _FOLDERS}
