"""Redact a failed program's output for callers other than the owner: SageMaker repeats its command line in it."""

import re

REDACTED = "***"

_FAILURE_OF_PROGRAM = re.compile(r"\bAlgorithmError\b.*", re.DOTALL)  # SageMaker's FailureReason begins like this


def without_program_output(text: str) -> str:
    """Return a reason, or a cause in the history, without the output of the job's failed program."""
    return _FAILURE_OF_PROGRAM.sub(f"AlgorithmError: {REDACTED}", text)
