"""Redact the output of a failed program for callers who may not see values of the job, such as its command line."""

import re

REDACTED = "***"

_FAILURE_OF_PROGRAM = re.compile(r"\bAlgorithmError\b.*", re.DOTALL)  # the beginning of SageMaker's FailureReason


def is_failure_of_program(reason: str | None) -> bool:
    """Return whether the job's own program failed, by SageMaker's FailureReason."""
    return _FAILURE_OF_PROGRAM.search(reason or "") is not None


def without_program_output(text: str) -> str:
    """Return a reason, or a cause in the history, with the output of the job's failed program redacted."""
    return _FAILURE_OF_PROGRAM.sub(f"AlgorithmError: {REDACTED}", text)
