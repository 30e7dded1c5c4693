"""The versions of the policy: ``smq policy show``, ``history`` and ``diff``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from api_contract.models import PastPolicy, PolicyAnswer
from sagemaker_queue.cli.commands.policy.arguments import policy_file, print_policy_warnings
from sagemaker_queue.cli.commands.policy.check import examine
from sagemaker_queue.cli.output import DONE, USAGE, print_error, print_json, width
from sagemaker_queue.cli.parser import command, json_flag, option, with_queue
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import clean, moment, short_owner
from sagemaker_queue.presentation.documents import policy_difference, policy_text, read_document
from sagemaker_queue.presentation.text.layout import table

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

SAME, DIFFERENT = DONE, 1  # exit codes, like those of diff(1)


@command(
    "show",
    help="print the policy in force",
    description="Print the policy in force, as YAML that you can change and apply again.",
    examples=["smq policy show > policy.yaml", "smq policy show --version 3"],
)
@option("--version", metavar="N", type=int, help="an earlier version, as listed by smq policy history")
@json_flag("print JSON with version, appliedBy and appliedAt")
@with_queue
def policy_show(queue: QueueClient, version: int | None, as_json: bool) -> int:
    """Print the policy in force or an earlier version, as YAML or JSON."""
    applied = queue.policy(version)
    if as_json:
        print_json({name: value for name, value in applied.to_json().items() if name != "warnings"})
    else:
        print(f"# {_origin(applied)}\n{policy_text(applied.policy)}", end="")
    print_policy_warnings(applied)
    return DONE


@command(
    "history",
    help="list the stored versions of the policy",
    description="List the stored versions of the policy, the present one first, each with its time and the identity "
    "that applied it. A version made by smq policy rollback names the version that it restored.",
    examples=["smq policy history"],
)
@json_flag()
@with_queue
def policy_history(queue: QueueClient, as_json: bool) -> int:
    """Print the versions of the policy."""
    history = queue.policy_history()
    if as_json:
        print_json(history.to_json())
    elif history.versions:
        rows = [
            [str(one.version), moment(one.applied_at), short_owner(one.applied_by) or "", _restored(one)]
            for one in history.versions
        ]
        print(table(["Version", "Applied (UTC)", "By", "Restored"], rows, width=width()))
    else:
        print("No policy has been applied.")
    return DONE


@command(
    "diff",
    help="compare a file with the policy in force",
    description="Compare a file with the policy in force, and print the faults of the file, as smq policy check "
    "does. The exit code is 0 if both are the same, 1 if they differ, and 2 if the file could not be "
    "applied or read.",
    examples=["smq policy diff policy.yaml"],
)
@policy_file
@with_queue
def policy_diff(queue: QueueClient, file: str) -> int:
    """Print the difference between a file and the policy in force, and the file's faults."""
    try:
        applied, document = queue.policy(), read_document(file, sys.stdin)
        difference = policy_difference(applied, document, file)
    except QueueError as error:
        return max(print_error(error), USAGE)  # not 1, which means that file and policy differ
    if not difference:
        return SAME
    print(difference, flush=True)
    faults = examine(document).faults
    for fault in faults:
        print(f"smq: {'standard input' if file == '-' else file}: {clean(fault)}", file=sys.stderr)
    return USAGE if faults else DIFFERENT


def _restored(past: PastPolicy) -> str:
    return "" if past.restored is None else f"version {past.restored}"


def _origin(applied: PolicyAnswer) -> str:
    if not applied.version:
        return "Version 0: no policy has been applied; this is the default policy."
    author = f" by {applied.applied_by}" if applied.applied_by else ""
    time = f" at {moment(applied.applied_at)} UTC" if applied.applied_at else ""
    return f"Version {applied.version}, applied{author}{time}."
