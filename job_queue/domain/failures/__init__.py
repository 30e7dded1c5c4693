"""Failures: the class of a failed attempt, the sentence and the remedy for people, and the rank that failed first.

Other packages import only from this package, and not from its modules.
"""

from job_queue.domain.failures.classes import DEFAULT_ACTIONS, MEANINGS, REMEDIES, Failure
from job_queue.domain.failures.classification import classify, exit_code_of
from job_queue.domain.failures.failed_gpus import (
    RETURN_SECONDS,
    GpuFailure,
    gpus_in,
    returned_gpus,
)
from job_queue.domain.failures.first_failure import LoggedLine, first_failed
from job_queue.domain.failures.rules import (
    DEFAULT_RETRIES,
    NamedRule,
    RuleError,
    asks_for_retries,
    choose,
    chosen_again,
    decided,
    is_built_in,
    remedy_for,
    remedy_of,
    rules_for,
    rules_of_tag,
)
from job_queue.scheduler import FailureAction, FailureClass

__all__ = [
    "DEFAULT_ACTIONS",
    "DEFAULT_RETRIES",
    "Failure",
    "FailureAction",
    "FailureClass",
    "GpuFailure",
    "LoggedLine",
    "MEANINGS",
    "NamedRule",
    "REMEDIES",
    "RETURN_SECONDS",
    "RuleError",
    "asks_for_retries",
    "choose",
    "chosen_again",
    "classify",
    "decided",
    "exit_code_of",
    "first_failed",
    "gpus_in",
    "is_built_in",
    "remedy_for",
    "remedy_of",
    "returned_gpus",
    "rules_for",
    "rules_of_tag",
]
