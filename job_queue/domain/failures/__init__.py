"""Failures: the class of a failed attempt, the sentence and the remedy for people, and the rank that failed first.

Import public names from this package only.
"""

from job_queue.domain.failures.classes import DEFAULT_ACTIONS, MEANINGS, REMEDIES, Failure, FailureAction, FailureClass
from job_queue.domain.failures.classification import classify, exit_code_of
from job_queue.domain.failures.first_failure import LoggedLine, first_failed

__all__ = [
    "DEFAULT_ACTIONS",
    "Failure",
    "FailureAction",
    "FailureClass",
    "LoggedLine",
    "MEANINGS",
    "REMEDIES",
    "classify",
    "exit_code_of",
    "first_failed",
]
