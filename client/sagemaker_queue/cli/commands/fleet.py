"""The commands of ``smq`` about the fleet: status and policy."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import add_json
from sagemaker_queue.cli.documents import policy_difference, policy_text, read_document
from sagemaker_queue.cli.output import DONE, USAGE, complain, print_json, width
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.cli.render.fleet import status_page
from sagemaker_queue.errors import QueueError
from sagemaker_queue.models import PolicyAnswer
from sagemaker_queue.text import moment

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

SAME, DIFFERENT = DONE, 1  # what diff(1) says, too

_FILE = "a policy in YAML or JSON; - is the standard input"


def add_fleet_commands(commands: Commands) -> None:
    """Add the commands about the fleet."""
    status = commands.add(
        "status",
        _status,
        help="show pools and projects",
        description="Show the pools, and what departments and projects are given, have and wait for in each.",
        examples=["smq status"],
    )
    add_json(status, help="everything, and all live jobs, for programs")

    policy = commands.add_group(
        "policy",
        help="show or change how the fleet is shared",
        description="Show, compare or apply the policy: pools, departments, projects and settings.",
        examples=["smq policy show > policy.yaml", "smq policy apply policy.yaml"],
    )
    show = policy.add(
        "show",
        _policy_show,
        help="print the policy that is applied",
        description="Print the policy that is applied, as YAML that can be changed and applied again.",
        examples=["smq policy show > policy.yaml"],
    )
    add_json(show, help="with version, appliedBy and appliedAt, for programs")
    diff = policy.add(
        "diff",
        _policy_diff,
        help="compare a file with the policy that is applied",
        description="Compare a file with the policy that is applied. "
        "The exit code is 0 if they say the same, 1 if they differ, 2 in case of trouble.",
        examples=["smq policy diff policy.yaml"],
    )
    diff.add_argument("file", metavar="FILE", help=_FILE)
    apply = policy.add(
        "apply",
        _policy_apply,
        help="apply a policy",
        description="Show how a policy differs from the one that is applied, and apply it. It holds from the next "
        "cycle on. If somebody else applies one meanwhile, nothing is changed.",
        examples=["smq policy apply policy.yaml", "smq policy apply --version 3 - < policy.yaml"],
    )
    apply.add_argument("file", metavar="FILE", help=_FILE)
    apply.add_argument(
        "--force",
        action="store_true",
        help="also if it drops pools or projects that live jobs use; such jobs then wait with a reason",
    )
    apply.add_argument(
        "--version",
        metavar="N",
        type=int,
        help="only if version N is applied now (default: if no other is applied meanwhile)",
    )


def _status(queue: QueueClient, arguments: argparse.Namespace) -> int:
    status = queue.queue()
    if arguments.json:
        print_json(status.to_json())
    else:
        print(status_page(status, width()))
    return DONE


def _policy_show(queue: QueueClient, arguments: argparse.Namespace) -> int:
    applied = queue.policy()
    if arguments.json:
        print_json({name: value for name, value in applied.to_json().items() if name != "warnings"})
    else:
        print(f"# {_origin(applied)}\n{policy_text(applied.policy)}", end="")
    return DONE


def _policy_diff(queue: QueueClient, arguments: argparse.Namespace) -> int:
    try:
        difference = policy_difference(queue.policy(), read_document(arguments.file, sys.stdin), arguments.file)
    except QueueError as error:
        return max(complain(error), USAGE)  # 1 would say that they differ
    if difference:
        print(difference)
    return DIFFERENT if difference else SAME


def _policy_apply(queue: QueueClient, arguments: argparse.Namespace) -> int:
    document = read_document(arguments.file, sys.stdin)
    read = queue.policy()
    difference = policy_difference(read, document, arguments.file)
    if not difference:
        print(f"Nothing to change: version {read.version} says the same.")
        return DONE
    print(difference, flush=True)
    version = read.version if arguments.version is None else arguments.version
    applied = queue.apply_policy(document, version, force=arguments.force)
    print(f"\nVersion {applied.version} is applied.")
    for warning in applied.warnings:
        print(f"smq: warning: {warning}", file=sys.stderr)
    return DONE


def _origin(applied: PolicyAnswer) -> str:
    if not applied.version:
        return "Version 0: nobody has applied a policy; this is what holds without one."
    author = f" by {applied.applied_by}" if applied.applied_by else ""
    time = f" at {moment(applied.applied_at)} UTC" if applied.applied_at else ""
    return f"Version {applied.version}, applied{author}{time}."
