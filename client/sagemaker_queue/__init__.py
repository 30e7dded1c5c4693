"""A client of the priority queue for Amazon SageMaker training jobs.

``boto_session()`` returns a boto3 session that sends its training jobs through the queue. ``install()`` does the same
for boto3's default session, which every SageMaker SDK uses unless the program passes another session.
``install(everywhere=True)`` covers every boto3 and aioboto3 session of the process, and ``hook()`` covers the clients
of one event emitter of botocore. ``QueueTrainingJobSession`` sends the jobs of ``estimator.fit()`` of the SDK v2
through the queue, and needs the extra ``sagemaker-queue[sdk]``. ``QueueTuner`` searches for hyperparameters with
estimators of the SDK v2 and Optuna, and needs the extra ``[tune]``. ``QueueClient`` provides the queue's API and the
functions of ``smq`` to notebooks and scripts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from api_contract import VERSION
from api_contract.history import PastAttempt
from api_contract.models import (
    Attempt,
    Cancellation,
    DepartmentStatus,
    DrainAnswer,
    Eviction,
    Identity,
    JobDetail,
    JobFailure,
    JobSummary,
    PlanAnswer,
    PolicyAnswer,
    PolicyHistory,
    PoolDrain,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
    Reason,
    Submission,
    Transition,
    Why,
)
from api_contract.preview import PreviewAnswer
from sagemaker_queue.errors import (
    ConfigError,
    Conflict,
    FolderError,
    Forbidden,
    InUse,
    InvalidDocument,
    InvalidOption,
    InvalidRequest,
    NameTaken,
    NotAuthenticated,
    NotFound,
    QueueError,
    StalePolicy,
    StorageError,
    TakesTooLong,
    TooLarge,
    TooMany,
    Unavailable,
)
from sagemaker_queue.queue.config.queue_config import QueueConfig, find_config

if TYPE_CHECKING:
    from sagemaker_queue.integrations.boto.sessions import boto_session as boto_session
    from sagemaker_queue.integrations.boto.sessions import hook as hook
    from sagemaker_queue.integrations.boto.sessions import install as install
    from sagemaker_queue.integrations.boto.sessions import output_address as output_address
    from sagemaker_queue.integrations.boto.sessions import uninstall as uninstall
    from sagemaker_queue.integrations.sdk_v2 import QueueTrainingJobSession as QueueTrainingJobSession
    from sagemaker_queue.integrations.tuner import QueueTuner as QueueTuner
    from sagemaker_queue.notebook.client import QueueClient as QueueClient
    from sagemaker_queue.notebook.frames import to_frame as to_frame

__version__ = VERSION

# QueueTrainingJobSession is not listed: "import *" would import the SageMaker SDK, which may not be installed.
__all__ = [
    "Attempt",
    "Cancellation",
    "ConfigError",
    "Conflict",
    "DepartmentStatus",
    "DrainAnswer",
    "Eviction",
    "FolderError",
    "Forbidden",
    "Identity",
    "InUse",
    "InvalidDocument",
    "InvalidOption",
    "InvalidRequest",
    "JobDetail",
    "JobFailure",
    "JobSummary",
    "NameTaken",
    "NotAuthenticated",
    "NotFound",
    "PastAttempt",
    "PlanAnswer",
    "PolicyAnswer",
    "PolicyHistory",
    "PoolDrain",
    "PoolStatus",
    "PreviewAnswer",
    "ProjectStatus",
    "QueueClient",
    "QueueConfig",
    "QueueError",
    "QueueStatus",
    "QueueTuner",
    "Reason",
    "StalePolicy",
    "StorageError",
    "Submission",
    "TakesTooLong",
    "TooLarge",
    "TooMany",
    "Transition",
    "Unavailable",
    "Why",
    "boto_session",
    "find_config",
    "hook",
    "install",
    "output_address",
    "to_frame",
    "uninstall",
]


_LOADED_WHEN_USED = {
    "QueueClient": "sagemaker_queue.notebook.client",  # boto3
    "QueueTrainingJobSession": "sagemaker_queue.integrations.sdk_v2",  # the SageMaker SDK
    "QueueTuner": "sagemaker_queue.integrations.tuner",
    "to_frame": "sagemaker_queue.notebook.frames",
    **dict.fromkeys(
        ("boto_session", "hook", "install", "output_address", "uninstall"), "sagemaker_queue.integrations.boto.sessions"
    ),
}


def __getattr__(name: str) -> Any:
    """Import an exported name on its first use, because its dependencies are slow to import."""
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LOADED_WHEN_USED[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sagemaker":
            raise
        raise ImportError(f"{name} needs version 2 of the SageMaker Python SDK: pip install 'sagemaker<3'") from error
