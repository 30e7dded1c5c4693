"""The commands of ``smq`` about the fleet: status and policy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.documents import policy_difference, policy_text, read_document
from sagemaker_queue.cli.output import DONE, USAGE, complain, print_json, width
from sagemaker_queue.cli.parser import argument, command, flag, group, json_flag, option, with_queue
from sagemaker_queue.cli.render.fleet import status_page
from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.errors import QueueError
from sagemaker_queue.formatting import moment, short_owner
from sagemaker_queue.models import PastPolicy, PolicyAnswer

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

SAME, DIFFERENT = DONE, 1  # what diff(1) says, too


@command(
    "status",
    help="show pools and projects",
    description="Show the pools, and what departments and projects are given, have and wait for in each.",
    examples=["smq status"],
)
@json_flag("everything, and all live jobs, for programs")
@with_queue
def status(queue: QueueClient, as_json: bool) -> int:
    """Print the pools and who shares them."""
    state = queue.queue()
    if as_json:
        print_json(state.to_json())
    else:
        print(status_page(state, width()))
    return DONE


policy = group(
    "policy",
    help="show or change how the fleet is shared",
    description="Show, compare or apply the policy: pools, departments, projects and settings.",
    examples=["smq policy show > policy.yaml", "smq policy apply policy.yaml"],
)
_policy_file = argument(
    "file", metavar="FILE", shell_complete=files, help="a policy in YAML or JSON; - is the standard input"
)


@policy.subcommand(
    "show",
    help="print the policy that is applied",
    description="Print the policy that is applied, as YAML that can be changed and applied again.",
    examples=["smq policy show > policy.yaml", "smq policy show --version 3"],
)
@option("--version", metavar="N", type=int, help="an earlier version, as smq policy history lists them")
@json_flag("with version, appliedBy and appliedAt, for programs")
@with_queue
def policy_show(queue: QueueClient, version: int | None, as_json: bool) -> int:
    """Print the policy."""
    applied = queue.policy(version)
    if as_json:
        print_json({name: value for name, value in applied.to_json().items() if name != "warnings"})
    else:
        print(f"# {_origin(applied)}\n{policy_text(applied.policy)}", end="")
    _warn(applied)
    return DONE


@policy.subcommand(
    "history",
    help="list who applied which policy, and when",
    description="List the versions of the policy that are kept, the present one first: who applied each, and when. "
    "A version that is an earlier one anew, by smq policy rollback, says which.",
    examples=["smq policy history"],
)
@json_flag()
@with_queue
def policy_history(queue: QueueClient, as_json: bool) -> int:
    """Print the history."""
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
        print("Nobody has applied a policy.")
    return DONE


@policy.subcommand(
    "rollback",
    help="apply an earlier version of the policy",
    description="Show how an earlier version of the policy differs from the one that is applied, and apply it, as a "
    "new version. It is checked as any other, by the rules and against the jobs of now. 0 is what holds without a "
    "policy.",
    examples=["smq policy rollback 3"],
)
@argument("version", metavar="N", type=int, help="the version to go back to, as smq policy history lists them")
@flag("--force", help="also if it drops pools or projects that live jobs use; such jobs then wait with a reason")
@with_queue
def policy_rollback(queue: QueueClient, version: int, force: bool) -> int:
    """Apply an earlier policy."""
    read, past = queue.policy(), queue.policy(version)
    difference = policy_difference(read, past.policy, f"version {version}")
    if not difference:
        print(f"Nothing to change: version {read.version} says the same.")
        return DONE
    print(difference, flush=True)
    applied = queue.roll_back_policy(version, read.version, force=force)
    print(f"\nVersion {applied.version} is applied; it says what version {version} said.")
    _warn(applied)
    return DONE


@policy.subcommand(
    "diff",
    help="compare a file with the policy that is applied",
    description="Compare a file with the policy that is applied. "
    "The exit code is 0 if they say the same, 1 if they differ, 2 in case of trouble.",
    examples=["smq policy diff policy.yaml"],
)
@_policy_file
@with_queue
def policy_diff(queue: QueueClient, file: str) -> int:
    """Print the difference."""
    try:
        difference = policy_difference(queue.policy(), read_document(file, sys.stdin), file)
    except QueueError as error:
        return max(complain(error), USAGE)  # 1 would say that they differ
    if difference:
        print(difference)
    return DIFFERENT if difference else SAME


@policy.subcommand(
    "apply",
    help="apply a policy",
    description="Show how a policy differs from the one that is applied, and apply it. It holds from the next "
    "cycle on. If somebody else applies one meanwhile, nothing is changed.",
    examples=["smq policy apply policy.yaml", "smq policy apply --version 3 - < policy.yaml"],
)
@_policy_file
@flag("--force", help="also if it drops pools or projects that live jobs use; such jobs then wait with a reason")
@option(
    "--version",
    metavar="N",
    type=int,
    help="only if version N is applied now (default: if no other is applied meanwhile)",
)
@with_queue
def policy_apply(queue: QueueClient, file: str, force: bool, version: int | None) -> int:
    """Replace the policy."""
    document = read_document(file, sys.stdin)
    read = queue.policy()
    difference = policy_difference(read, document, file)
    if not difference:
        print(f"Nothing to change: version {read.version} says the same.")
        return DONE
    print(difference, flush=True)
    applied = queue.apply_policy(document, read.version if version is None else version, force=force)
    print(f"\nVersion {applied.version} is applied.")
    _warn(applied)
    return DONE


def _warn(applied: PolicyAnswer) -> None:
    for warning in applied.warnings:
        print(f"smq: warning: {warning}", file=sys.stderr)


def _restored(past: PastPolicy) -> str:
    return "" if past.restored is None else f"version {past.restored}"


def _origin(applied: PolicyAnswer) -> str:
    if not applied.version:
        return "Version 0: nobody has applied a policy; this is what holds without one."
    author = f" by {applied.applied_by}" if applied.applied_by else ""
    time = f" at {moment(applied.applied_at)} UTC" if applied.applied_at else ""
    return f"Version {applied.version}, applied{author}{time}."
