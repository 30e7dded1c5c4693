"""A client of the priority queue for Amazon SageMaker training jobs.

``QueueTrainingJobSession`` sends what ``estimator.fit()`` would start to the queue; it needs the
SageMaker Python SDK, which the extra ``sagemaker-queue[sdk]`` brings. ``QueueClient`` is the queue's API.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sagemaker_queue.answers import (
    Attempt,
    Cancellation,
    DepartmentStatus,
    Eviction,
    JobDetail,
    JobSummary,
    PlanAnswer,
    PolicyAnswer,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
    Reason,
    Submission,
    Transition,
    Why,
)
from sagemaker_queue.config import QueueConfig, find_config
from sagemaker_queue.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    InUse,
    InvalidDocument,
    InvalidRequest,
    NameTaken,
    NotAuthenticated,
    NotFound,
    QueueError,
    StalePolicy,
    TooLarge,
    Unavailable,
)

if TYPE_CHECKING:
    from sagemaker_queue.api import QueueClient as QueueClient
    from sagemaker_queue.session import QueueTrainingJobSession as QueueTrainingJobSession

__version__ = "0.1.0"

# QueueTrainingJobSession is left out: "import *" must not need the SageMaker SDK.
__all__ = [
    "Attempt",
    "Cancellation",
    "ConfigError",
    "Conflict",
    "DepartmentStatus",
    "Eviction",
    "Forbidden",
    "InUse",
    "InvalidDocument",
    "InvalidRequest",
    "JobDetail",
    "JobSummary",
    "NameTaken",
    "NotAuthenticated",
    "NotFound",
    "PlanAnswer",
    "PolicyAnswer",
    "PoolStatus",
    "ProjectStatus",
    "QueueClient",
    "QueueConfig",
    "QueueError",
    "QueueStatus",
    "Reason",
    "StalePolicy",
    "Submission",
    "TooLarge",
    "Transition",
    "Unavailable",
    "Why",
    "find_config",
]


_LOADED_WHEN_USED = {
    "QueueClient": "sagemaker_queue.api",  # boto3
    "QueueTrainingJobSession": "sagemaker_queue.session",  # the SageMaker SDK
}


def __getattr__(name: str) -> Any:
    """Load what takes its time only for those who use it."""
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LOADED_WHEN_USED[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sagemaker":
            raise
        raise ImportError(
            f"{name} needs version 2 of the SageMaker Python SDK: pip install 'sagemaker-queue[sdk]'"
        ) from error
