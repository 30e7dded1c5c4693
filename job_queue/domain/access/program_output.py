"""What a program said when it failed is for its owner: SageMaker repeats its command there, with all its words."""

import re

REDACTED = "***"

_FAILURE_OF_PROGRAM = re.compile(r"\bAlgorithmError\b.*", re.DOTALL)  # so SageMaker's FailureReason begins then


def without_program_output(text: str) -> str:
    """A reason, or a cause in the history, without what the job's program said when it failed."""
    return _FAILURE_OF_PROGRAM.sub(f"AlgorithmError: {REDACTED}", text)
