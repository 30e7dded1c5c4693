"""A client of the priority queue for Amazon SageMaker training jobs.

``QueueTrainingJobSession`` sends what ``estimator.fit()`` would start to the queue; it needs the
SageMaker Python SDK, which the extra ``sagemaker-queue[sdk]`` brings. ``QueueClient`` is the queue's API.
"""

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
from sagemaker_queue.api import QueueClient
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


def __getattr__(name: str) -> Any:
    """Load the session, and with it the SageMaker SDK, only for those who use it."""
    if name != "QueueTrainingJobSession":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from sagemaker_queue.session import QueueTrainingJobSession  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sagemaker":
            raise
        raise ImportError(
            "QueueTrainingJobSession needs version 2 of the SageMaker Python SDK: pip install 'sagemaker-queue[sdk]'"
        ) from error
    return QueueTrainingJobSession
