"""What the queue answers: the shapes of the API's definition, by the names that users of this package know.

Times are aware datetimes in UTC. ``to_json`` gives the API's JSON again, ``from_json`` reads it; what an older queue
does not send has a default.
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
