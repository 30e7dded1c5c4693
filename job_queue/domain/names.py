"""Names of attempts in SageMaker: a job's name and a stamp with the number of the attempt.

SageMaker refuses the name of an existing training job. A name is free again only when its training job has ended and is
deleted. The name of an attempt depends only on the job and the attempt's number. The number rises only after the
attempt has ended, or can no longer be launched. So two attempts of a job cannot be alive at once.
"""

import hashlib
import re

MAX_NAME = 63  # characters, SageMaker's limit
QUEUE_NAME = "sagemaker-queue"

QUEUE_TAG = "queue-name"
JOB_TAG = "queue-job"
SUBMISSION_TAG = "queue-submission"
ATTEMPT_TAG = "queue-attempt"
PROOF_TAG = "queue-proof"
RESERVED_TAG_PREFIX = "queue-"
CARRIER_PREFIX = "carrier--"  # prefix of the names of carriers; other jobs cannot have such a name

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # SageMaker's pattern; the length has its own limit
_STAMP = "-qstamp-"
_STAMPED = re.compile(r".*-qstamp-(\d+)", re.ASCII)
_HASH_LENGTH = 10


def apply_qstamp(job_name: str, attempt: int) -> str:
    """Return the name of a job's attempt: `<job>-qstamp-<n>`, at most 63 characters.

    A job name that leaves no room is shortened. A hash of the whole name is added, so that two long names stay
    different.
    """
    stamp = f"{_STAMP}{attempt}"
    if len(job_name) + len(stamp) <= MAX_NAME:
        return job_name + stamp
    digest = hashlib.sha256(job_name.encode()).hexdigest()[:_HASH_LENGTH]
    kept = job_name[: MAX_NAME - len(stamp) - len(digest) - 1].rstrip("-")
    return f"{kept}-{digest}{stamp}"


def is_name(text: str) -> bool:
    """Return whether a training job, and therefore a job, may have this name."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_stamped(name: str) -> bool:
    """Return whether a name looks like an attempt's name. Such names are refused for jobs."""
    return _STAMPED.fullmatch(name) is not None


def attempt_number(name: str) -> int | None:
    """Return the number of the attempt with this name, or None if the name is not an attempt's name."""
    stamped = _STAMPED.fullmatch(name)
    return int(stamped[1]) if stamped and len(name) <= MAX_NAME else None
