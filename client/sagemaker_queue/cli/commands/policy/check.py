"""``smq policy check``: check a policy on this machine, and by the queue if the queue can be reached."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from sagemaker_queue.cli.commands.policy.arguments import policy_file
from sagemaker_queue.cli.commands.policy.policy_preview import preview_without_retries
from sagemaker_queue.cli.output import DONE, REFUSED
from sagemaker_queue.cli.parser import command, flag
from sagemaker_queue.errors import InvalidOption, InvalidRequest, QueueError, TooLarge
from sagemaker_queue.jobs.formatting import amount, clean
from sagemaker_queue.presentation.documents import read_document
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON

_QUEUE_FACTS = "MaxCapacity and live jobs"
_ONLY_KNOWN_TO_THE_QUEUE = "MaxCapacity, live jobs, shared instances, and the queue's own region and account"


@command(
    "check",
    help="check whether a policy could be applied",
    description="Check whether a policy could be applied. This machine checks the rules, without a queue. The "
    "queue, if it can be reached, also checks MaxCapacity, regions, and the pools and projects of live "
    "jobs. Nothing is applied. Each fault is printed on a line; the exit code is 0 without faults, and 1 with "
    "faults.",
    examples=["smq policy check policy.yaml", "smq policy check --offline policy.yaml"],
)
@policy_file
@flag("--offline", help="do not ask the queue")
def policy_check(file: str, offline: bool) -> int:
    """Print each fault of a policy, and the checks that were made."""
    document = read_document(file, sys.stdin)
    examination = examine(document, offline=offline)
    checked_locally = sys.version_info >= REQUIRED_PYTHON
    if not checked_locally and examination.queue_skip_reason:
        raise InvalidOption(
            f"The queue's rules need Python {REQUIRED_PYTHON[0]}.{REQUIRED_PYTHON[1]} or newer; this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}, and no queue was asked ({examination.queue_skip_reason})."
        )
    name = "standard input" if file == "-" else file
    for fault in examination.faults:
        print(f"{name}: {clean(fault)}")
    if examination.incomplete:
        print("There may be more faults, which are found when these are corrected.")
    if not examination.faults:
        print(f"{name} can be applied: {_content(document)}.")
    print(_checks_sentence(checked_locally, examination.queue_skip_reason, examination.version))
    return REFUSED if examination.faults else DONE


@dataclass(frozen=True)
class Examination:
    """The faults of a policy, and the checks that were made."""

    faults: list[str]
    incomplete: bool  # these faults prevented further checks, so more faults may appear after a correction
    queue_skip_reason: str | None  # the reason why the queue has not checked the policy; None: it has
    version: int | None  # the version with which the queue compared the policy; None: not known


def examine(document: dict[str, Any], *, offline: bool = False) -> Examination:
    """Check a policy by the rules on this machine if this Python is new enough, and by the queue unless ``offline``."""
    faults, incomplete = _faults_by_the_rules(document)
    queue_skip_reason = "--offline" if offline else None
    version = None
    if not offline:
        try:
            preview = preview_without_retries(policy=document, hours=0)
            version = preview.policy_version
            faults += [*preview.warnings, *preview.in_use]
        except (InvalidRequest, TooLarge) as error:
            faults += [fault.message for fault in error.errors] or [str(error)]
        except QueueError as error:
            queue_skip_reason = str(error).partition(". ")[0].rstrip(".")
    return Examination(list(dict.fromkeys(faults)), incomplete, queue_skip_reason, version)


def _faults_by_the_rules(document: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the faults of a policy by the queue's rules, and whether these faults prevented further checks."""
    if sys.version_info < REQUIRED_PYTHON:
        return [], False
    from job_queue.domain.errors import InvalidRequest as Refused  # noqa: PLC0415
    from job_queue.domain.policy_validation import parse_policy  # noqa: PLC0415

    try:
        parse_policy(document)
    except Refused as refused:
        return [issue.message for issue in refused.issues], refused.issues[0].field != "policy"
    return [], False


def _content(document: dict[str, Any]) -> str:
    """Return the numbers of pools, departments and projects in a valid policy."""
    counts = [(len(document.get(part) or ()), part[:-1]) for part in ("pools", "departments", "projects")]
    return ", ".join(amount(count, part) for count, part in counts if count)


def _checks_sentence(checked_locally: bool, queue_skip_reason: str | None, version: int | None) -> str:
    """Return a sentence about the checks that were made.

    ``checked_locally``: the rules were checked on this machine. ``queue_skip_reason`` and ``version`` are as in
    Examination.
    """
    if queue_skip_reason:
        return (
            f"Checked: syntax and rules (on this machine). Not checked: {_ONLY_KNOWN_TO_THE_QUEUE}, because no queue "
            f"was asked ({clean(queue_skip_reason)})."
        )
    compared = f", compared with version {version}" if version is not None else ""
    if not checked_locally:
        return f"Checked by the queue: syntax, rules, {_QUEUE_FACTS}{compared}. Nothing was applied."
    return f"Checked: syntax and rules (on this machine), {_QUEUE_FACTS} (by the queue{compared}). Nothing was applied."
