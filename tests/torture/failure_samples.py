"""Failures of each class as training jobs have them: the reason, the last log lines, and the class that each points to.

The classes and exit codes are written down here, and not computed, so that they do not depend on the product's own
classification. local_cloud/sagemaker/job_processes/failures.py has the sources of the texts.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from job_queue.domain.names import CARRIER_PREFIX
from local_cloud.sagemaker.job_processes.failures import CAPACITY, HARDWARE_LINES, INTERNAL

MISSING_SHARE = 0.2  # of the logs that do not exist
LATE_SHARE = 0.2  # of the logs that arrive after the end of the attempt
LATE_SECONDS = (5, 40, 200)
LONG_SHARE = 0.2  # of the logs that have two pages
SAME_AGAIN = 0.5  # chance that a job fails as it did before
GPU = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d2c1e1a-0f3b-4c7d-9a61-2b7c8d9e0f11)"
TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Sample:
    """A failure, with the class by its reason and the class by its reason and its log."""

    by_reason: str
    reason: str
    exit_code: int | None = None
    by_log: str | None = None  # None: the log is not read, or changes nothing
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The failure of an attempt, and its log."""

    sample: Sample
    ended: float  # epoch seconds
    readable_at: float | None = None  # epoch seconds at which the log's lines arrive; None: there is no log
    is_long: bool = False  # the lines are on the second page


def _script(message: str) -> str:
    error = f'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{message}"\nCommand "python train.py"'
    return f"AlgorithmError: {error}, exit code: 1"


LOST_PEER = Sample(
    "unknown",
    "AlgorithmError: , exit code: 134",
    134,
    "communication",
    ("[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600029",),
)
SAMPLES = (
    Sample("user_error", _script("ModuleNotFoundError: No module named 'einops'"), 1),
    Sample("unknown", "AlgorithmError: , exit code: 1", 1, "user_error", (TRACEBACK, "KeyError: 'labels'")),
    Sample("unknown", "AlgorithmError: , exit code: 1", 1, "user_error", (TRACEBACK, "RuntimeError: lost peer 3")),
    Sample("gpu_memory", _script("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), 1),
    Sample("memory", "AlgorithmError: , exit code: 137", 137),
    Sample("disk_full", _script("OSError: [Errno 28] No space left on device"), 1),
    Sample("communication", _script("torch.distributed.DistBackendError: NCCL error: remote process exited"), 1),
    LOST_PEER,
    Sample("unknown", "AlgorithmError: , exit code: 134", 134, "hardware", (GPU, *HARDWARE_LINES)),
    Sample("hardware", _script(HARDWARE_LINES[1]), 1),
    Sample("missing_data", "ClientError: Data download failed:No S3 objects found under S3 URL 's3://bucket/data'"),
    Sample(
        "access_denied",
        "ClientError: Data download failed:Unable to download object s3://bucket/data (AccessDenied: Access Denied)",
    ),
    Sample("internal", INTERNAL),
    Sample("capacity", CAPACITY),
    Sample(
        "quota",
        "ResourceLimitExceeded: The account-level service limit 'ml.p5.48xlarge for training job usage' is 4 "
        "Instances, with current utilization of 4 Instances and a request delta of 1 Instances.",
    ),
    Sample(
        "unknown", "AlgorithmError: , exit code: 1", 1, "time_limit", ("*** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***",)
    ),
    Sample("unknown", "AlgorithmError: , exit code: 1", 1, "stopped", ("Received 15 death signal, shutting down",)),
    Sample("unknown", "AlgorithmError: , exit code: 139", 139),
)

TAGS = (  # values of `retry_on`
    "user_error",
    "user_error=retry-free",
    "user_error gpu_memory",
    "137=retry-free memory=fail",
    "communication=fail",
    "communication hardware=retry-fresh",
    "text:lost_peer=retry-free",
    "unknown=retry-free",
    "internal",
    "134=retry-free-fresh",
)
RULES: tuple[tuple[Mapping[str, Any], ...], ...] = (  # `failure_rules` of a policy or of a project
    (),
    ({"failure_class": "communication", "action": "retry"},),
    ({"match": "no module*einops", "action": "retry"}, {"failure_class": "internal", "action": "retry free"}),
    ({"exit_code": 137, "action": "fail"}, {"failure_class": "disk_full", "action": "retry free"}),
    ({"failure_class": "hardware", "action": "retry", "fresh_instances": True},),
)


@dataclass
class FailureCourse:
    """The choice of failures, from a generator of its own.

    :param rng: of its own, so that all else is the same in walks without failures.
    """

    rng: random.Random
    _kinds: list[Sample] = field(default_factory=list)  # the failures of this walk: two of them, four, or all
    _last: dict[str, Sample] = field(default_factory=dict)  # job -> its last failure

    def tags(self) -> dict[str, str]:
        """Draw a job's tags about retries."""
        tags = {"retries": str(self.rng.choice((0, 1, 2, 3)))} if self.rng.random() < 0.6 else {}
        return tags | ({"retry_on": self.rng.choice(TAGS)} if self.rng.random() < 0.5 else {})

    def failure(self, job: str, now: float, *, on_carrier: bool) -> Failed:
        """Draw a failure of an attempt of a job, and whether its log is missing, late or long.

        :param on_carrier: whether the attempt is a member, which cannot lack capacity.
        """
        rng = self.rng
        if not self._kinds:
            self._kinds = rng.sample(SAMPLES, rng.choice((2, 2, 4, len(SAMPLES))))
        sample = self._last.get(job)
        if sample is None or rng.random() >= SAME_AGAIN:
            sample = rng.choice(self._kinds)
        if on_carrier and sample.by_reason == "capacity":
            sample = SAMPLES[0]
        self._last[job] = sample
        late = rng.choice(LATE_SECONDS) if rng.random() < LATE_SHARE else 0
        readable_at = None if rng.random() < MISSING_SHARE or not sample.lines else now + late
        return Failed(sample, now, readable_at, rng.random() < LONG_SHARE)


def may_fail(name: str) -> bool:
    """Return whether a training job is an attempt of a job of a user, and no carrier."""
    return not name.startswith(CARRIER_PREFIX)
