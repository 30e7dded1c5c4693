"""A client of the priority queue for Amazon SageMaker training jobs.

``QueueTrainingJobSession`` sends what ``estimator.fit()`` would start to the queue; it needs the
SageMaker Python SDK, which the extra ``sagemaker-queue[sdk]`` brings. ``QueueClient`` is the queue's API.
"""

from typing import TYPE_CHECKING, Any

from sagemaker_queue.answers import (
    Attempt,
    Cancellation,
    JobDetail,
    JobSummary,
    PoolStatus,
    QueueStatus,
    Reason,
    Submission,
    Transition,
)
from sagemaker_queue.api import QueueClient
from sagemaker_queue.config import QueueConfig, find_config
from sagemaker_queue.errors import (
    ConfigError,
    Forbidden,
    InvalidRequest,
    NameTaken,
    NotAuthenticated,
    NotFound,
    QueueError,
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
    "Forbidden",
    "InvalidRequest",
    "JobDetail",
    "JobSummary",
    "NameTaken",
    "NotAuthenticated",
    "NotFound",
    "PoolStatus",
    "QueueClient",
    "QueueConfig",
    "QueueError",
    "QueueStatus",
    "Reason",
    "Submission",
    "TooLarge",
    "Transition",
    "Unavailable",
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
