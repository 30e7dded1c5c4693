"""Changes of the policy: ``smq policy apply`` and ``rollback``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_queue.cli.commands.policy.arguments import policy_file, print_policy_warnings
from sagemaker_queue.cli.commands.policy.policy_preview import preview_without_retries
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, is_interactive, width
from sagemaker_queue.cli.parser import argument, command, flag, option, with_queue
from sagemaker_queue.errors import InvalidRequest, QueueError
from sagemaker_queue.presentation.documents import policy_difference, read_document
from sagemaker_queue.presentation.text.preview_text import brief_preview

if TYPE_CHECKING:
    from api_contract.models import PolicyAnswer
    from api_contract.preview import PreviewAnswer
    from sagemaker_queue.queue.client import QueueClient

_FORCE = (
    "apply the policy despite conflicts with live jobs, such as removed pools and projects, changed buckets and "
    "training plans, or too small quotas; running jobs continue, and waiting jobs that no longer fit wait with a reason"
)
_yes = flag("--yes", help="do not ask for confirmation; without a terminal, the command never asks")


@command(
    "apply",
    help="apply a policy",
    description="Print the difference between a policy and the policy in force, and the expected effect, and apply the "
    "policy. On a terminal, the command asks first. The policy is in force from the next cycle on. If another policy "
    "is applied in the meantime, nothing changes. A policy can also be applied if the queue cannot preview the effect.",
    examples=["smq policy apply policy.yaml", "smq policy apply --version 3 - < policy.yaml"],
)
@policy_file
@flag("--force", help=_FORCE)
@option(
    "--version",
    metavar="N",
    type=int,
    help="apply only if version N is in force (default: the version in force when the command starts)",
)
@_yes
@with_queue
def policy_apply(queue: QueueClient, file: str, force: bool, version: int | None, yes: bool) -> int:
    """Print the difference and a preview, and apply the policy."""
    document = read_document(file, sys.stdin)
    current = queue.policy()
    if (exit_code := _review(current, document, file, force=force, yes=yes)) is not None:
        return exit_code
    applied = queue.apply_policy(document, current.version if version is None else version, force=force)
    print(f"\nVersion {applied.version} is applied.")
    print_policy_warnings(applied)
    return DONE


@command(
    "rollback",
    help="apply an earlier version of the policy",
    description="Print the difference between an earlier version of the policy and the policy in force, and the "
    "expected effect, and apply the earlier version as a new version. On a terminal, the command asks first. The queue "
    "checks the version like any other policy, also against the present jobs. Version 0 is the policy that is in force "
    "before the first one is applied.",
    examples=["smq policy rollback 3", "smq policy rollback 3 --yes"],
)
@argument("version", metavar="N", type=int, help="the version to apply, as listed by smq policy history")
@flag("--force", help=_FORCE)
@_yes
@with_queue
def policy_rollback(queue: QueueClient, version: int, force: bool, yes: bool) -> int:
    """Print the difference to an earlier version and a preview, and apply the earlier version as a new version."""
    current, past = queue.policy(), queue.policy(version)
    if (exit_code := _review(current, past.policy, f"version {version}", force=force, yes=yes)) is not None:
        return exit_code
    applied = queue.roll_back_policy(version, current.version, force=force)
    print(f"\nVersion {applied.version} is applied; it is the same as version {version}.")
    print_policy_warnings(applied)
    return DONE


def _review(in_force: PolicyAnswer, document: Mapping[str, Any], name: str, *, force: bool, yes: bool) -> int | None:
    """Print the difference and a preview; return None if the document should be applied, else the exit code.

    A document equal to the policy in force is not applied. On a terminal without ``yes``, a policy that the queue would
    refuse is not applied, and any other change is applied only if the user confirms it.

    Raises InvalidRequest if the document is invalid.
    """
    difference = policy_difference(in_force, document, name)
    if not difference:
        print(f"Nothing to change: version {in_force.version}, which is in force, is the same.")
        return DONE
    print(difference, flush=True)
    must_confirm = not yes and is_interactive()
    preview = _preview(document)
    if preview:
        screen = sys.stdout if must_confirm else sys.stderr
        print(f"\n{brief_preview(preview, width() if must_confirm else None)}", file=screen, flush=True)
    if not must_confirm:
        return None
    # The warnings of a preview are the reasons for which the queue would refuse the policy, even with --force.
    if preview and (preview.warnings or (preview.in_use and not force)):
        print("Nothing is changed: the queue would refuse this policy.")
        return REFUSED
    if confirmed("Apply it?"):
        return None
    print("Nothing is changed.")
    return REFUSED


def _preview(document: Mapping[str, Any]) -> PreviewAnswer | None:
    """Return the preview of a policy; print a note and return None if the queue cannot compute the preview.

    Raises InvalidRequest if the policy is invalid.
    """
    try:
        return preview_without_retries(policy=document)
    except QueueError as error:
        if isinstance(error, InvalidRequest) and (error.field or "").startswith("policy"):
            raise  # applying the policy would be refused in the same way
        print(f"smq: no preview: {error}", file=sys.stderr)
        return None
