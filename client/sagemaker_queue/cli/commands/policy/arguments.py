"""Arguments and output shared by the commands of ``smq policy``."""

from __future__ import annotations

from api_contract.models import PolicyAnswer
from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import print_warning
from sagemaker_queue.cli.parser import argument

policy_file = argument(
    "file", metavar="FILE", shell_complete=files, help="a policy in YAML or JSON; - is the standard input"
)


def print_policy_warnings(applied: PolicyAnswer) -> None:
    """Print the queue's warnings about a policy."""
    for warning in applied.warnings:
        print_warning(warning)
