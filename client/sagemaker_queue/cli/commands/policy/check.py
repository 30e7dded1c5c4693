"""``smq policy check``: whether a policy could be applied, by the queue's own rules, with or without a queue."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from sagemaker_queue.cli.commands.policy.arguments import policy_file
from sagemaker_queue.cli.commands.policy.preview import asked_briefly
from sagemaker_queue.cli.documents import read_document
from sagemaker_queue.cli.output import DONE, REFUSED
from sagemaker_queue.cli.parser import command, flag
from sagemaker_queue.errors import InvalidOption, InvalidRequest, QueueError, TooLarge
from sagemaker_queue.formatting import amount, clean

NEEDS = (3, 11)  # the queue's rules; all else of the client needs less
_OF_THE_QUEUE = "its ceiling (MaxCapacity) and what live jobs use"


@command(
    "check",
    help="tell whether a policy could be applied",
    description="Tell whether a policy could be applied, by the queue's own rules: on this machine, for which no queue "
    "is needed, and by the queue, if it can be reached, which knows its ceiling (MaxCapacity) and what live jobs use. "
    "Nothing is applied. Each fault is a line; the exit code is 0 if there is none, 1 if there are.",
    examples=["smq policy check policy.yaml", "smq policy check --offline policy.yaml"],
)
@policy_file
@flag("--offline", help="ask no queue")
def policy_check(file: str, offline: bool) -> int:
    """Print what is wrong, and what was looked at."""
    document = read_document(file, sys.stdin)
    found = examine(document, offline=offline)
    here = sys.version_info >= NEEDS
    if not here and found.not_asked:
        raise InvalidOption(
            f"The queue's rules need Python {NEEDS[0]}.{NEEDS[1]} or newer; this is {sys.version_info[0]}."
            f"{sys.version_info[1]}, and no queue was asked ({found.not_asked})."
        )
    name = "standard input" if file == "-" else file
    for fault in found.faults:
        print(f"{name}: {clean(fault)}")
    if found.more_to_come:
        print("More may be found once this is right.")
    if not found.faults:
        print(f"{name} can be applied: {_content(document)}.")
    print(_checked(here, found.not_asked, found.version))
    return REFUSED if found.faults else DONE


@dataclass(frozen=True)
class Examination:
    """What is wrong with a policy, as far as was looked."""

    faults: list[str]
    more_to_come: bool  # once these are right
    not_asked: str | None  # why the queue was not
    version: int | None  # that the queue has now


def examine(document: dict[str, Any], *, offline: bool = False) -> Examination:
    """Look for what is wrong with a policy by the queue's rules here, and by the queue if it can be asked."""
    faults, more_to_come = _faults_by_the_rules(document)
    not_asked = "--offline" if offline else None
    version = None
    if not offline:
        try:
            preview = asked_briefly(policy=document, hours=0)
            version = preview.policy_version
            faults += preview.in_use
        except (InvalidRequest, TooLarge) as error:
            faults += [fault.message for fault in error.errors] or [str(error)]
        except QueueError as error:
            not_asked = str(error).partition(". ")[0].rstrip(".")
    return Examination(list(dict.fromkeys(faults)), more_to_come, not_asked, version)


def _faults_by_the_rules(document: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what the queue's rules have against a policy, and whether that kept them from seeing all of it."""
    if sys.version_info < NEEDS:
        return [], False
    from job_queue.domain.errors import InvalidRequest as Refused  # noqa: PLC0415
    from job_queue.domain.policy_validation import parse_policy  # noqa: PLC0415

    try:
        parse_policy(document)
    except Refused as refused:
        return [issue.message for issue in refused.issues], refused.issues[0].field != "policy"
    return [], False


def _content(document: dict[str, Any]) -> str:
    """Return what a policy that is right has."""
    counts = [(len(document.get(part) or ()), part[:-1]) for part in ("pools", "departments", "projects")]
    return ", ".join(amount(count, part) for count, part in counts if count)


def _checked(here: bool, not_asked: str | None, version: int | None) -> str:
    """Return what was checked, and what was not."""
    if not_asked:
        return f"Checked by the rules alone: no queue was asked ({clean(not_asked)}). It knows {_OF_THE_QUEUE}."
    by = "Checked by the rules, and by the queue" if here else "Checked by the queue"
    where = f", in place of version {version}" if version is not None else ""
    return f"{by}{where}: {_OF_THE_QUEUE}. Nothing was applied."
