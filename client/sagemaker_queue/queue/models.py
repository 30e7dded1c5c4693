"""The classes of the queue's answers. ``api_contract`` defines them, and this package exports them from here.

Times are aware datetimes in UTC. ``to_json`` returns the API's JSON, ``from_json`` parses it; members that an older
queue does not send have defaults.
"""

from api_contract.history import HistoryPage, PastAttempt
from api_contract.models import (
    ACTIVE,
    FINISHED,
    WAITING,
    Attempt,
    Cancellation,
    DepartmentStatus,
    Eviction,
    Expectation,
    ExternalJob,
    Identity,
    JobDetail,
    JobPage,
    JobSummary,
    PastPolicy,
    Pause,
    PlanAnswer,
    PolicyAnswer,
    PolicyHistory,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
    Reason,
    Submission,
    Transition,
    Why,
)
from api_contract.preview import PreviewAnswer

__all__ = [
    "ACTIVE",
    "FINISHED",
    "WAITING",
    "Attempt",
    "Cancellation",
    "DepartmentStatus",
    "Eviction",
    "Expectation",
    "ExternalJob",
    "HistoryPage",
    "Identity",
    "JobDetail",
    "JobPage",
    "JobSummary",
    "PastAttempt",
    "PastPolicy",
    "Pause",
    "PlanAnswer",
    "PolicyAnswer",
    "PolicyHistory",
    "PoolStatus",
    "PreviewAnswer",
    "ProjectStatus",
    "QueueStatus",
    "Reason",
    "Submission",
    "Transition",
    "Why",
]
