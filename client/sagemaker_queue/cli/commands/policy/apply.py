"""Changes of the policy: ``smq policy apply`` and ``rollback``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_queue.cli.commands.policy.arguments import policy_file, print_policy_warnings
from sagemaker_queue.cli.commands.policy.policy_preview import preview_without_retries
from sagemaker_queue.cli.documents import policy_difference, read_document
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, is_interactive, width
from sagemaker_queue.cli.parser import argument, command, flag, option, with_queue
from sagemaker_queue.errors import InvalidRequest, QueueError
from sagemaker_queue.presentation.text.preview_text import brief_preview

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_FORCE = (
    "also if it drops pools or projects that live jobs use, or lowers a quota below running non-preemptible jobs; "
    "running jobs go on, and waiting jobs that no longer fit wait with a reason"
)


@command(
    "apply",
    help="apply a policy",
    description="Show how a policy differs from the one that is applied and what it would change, and apply it; on a "
    "terminal only after a yes. It holds from the next cycle on. If somebody else applies one meanwhile, nothing is "
    "changed. A queue that cannot tell what would change keeps nobody from applying it.",
    examples=["smq policy apply policy.yaml", "smq policy apply --version 3 - < policy.yaml"],
)
@policy_file
@flag("--force", help=_FORCE)
@option(
    "--version",
    metavar="N",
    type=int,
    help="only if version N is applied now (default: if no other is applied meanwhile)",
)
@flag("--yes", help="do not ask; without a terminal nobody is asked")
@with_queue
def policy_apply(queue: QueueClient, file: str, force: bool, version: int | None, yes: bool) -> int:
    """Print the difference and a preview, and apply the policy."""
    document = read_document(file, sys.stdin)
    read = queue.policy()
    difference = policy_difference(read, document, file)
    if not difference:
        print(f"Nothing to change: version {read.version} says the same.")
        return DONE
    print(difference, flush=True)
    asks = not yes and is_interactive()
    _show_what_changes(document, asks=asks)
    if asks and not confirmed("Apply it?"):
        print("Nothing is changed.")
        return REFUSED
    applied = queue.apply_policy(document, read.version if version is None else version, force=force)
    print(f"\nVersion {applied.version} is applied.")
    print_policy_warnings(applied)
    return DONE


def _show_what_changes(document: Mapping[str, Any], *, asks: bool) -> None:
    """Print a preview of the policy, to stdout before a question (``asks``), else to stderr.

    Raises InvalidRequest if the policy is invalid. Other errors are printed as a note.
    """
    try:
        preview = preview_without_retries(policy=document)
    except QueueError as error:
        if isinstance(error, InvalidRequest) and (error.field or "").startswith("policy"):
            raise  # applying the policy would be refused in the same way
        print(f"smq: no preview: {error}", file=sys.stderr)
        return
    screen = sys.stdout if asks else sys.stderr
    print(f"\n{brief_preview(preview, width() if asks else None)}", file=screen, flush=True)


@command(
    "rollback",
    help="apply an earlier version of the policy",
    description="Show how an earlier version of the policy differs from the one that is applied, and apply it, as a "
    "new version. It is checked as any other, by the rules and against the jobs of now. 0 is what holds without a "
    "policy.",
    examples=["smq policy rollback 3"],
)
@argument("version", metavar="N", type=int, help="the version to go back to, as smq policy history lists them")
@flag("--force", help=_FORCE)
@with_queue
def policy_rollback(queue: QueueClient, version: int, force: bool) -> int:
    """Print the difference to an earlier version, and apply the earlier version as a new version."""
    read, past = queue.policy(), queue.policy(version)
    difference = policy_difference(read, past.policy, f"version {version}")
    if not difference:
        print(f"Nothing to change: version {read.version} says the same.")
        return DONE
    print(difference, flush=True)
    applied = queue.roll_back_policy(version, read.version, force=force)
    print(f"\nVersion {applied.version} is applied; it says what version {version} said.")
    print_policy_warnings(applied)
    return DONE
