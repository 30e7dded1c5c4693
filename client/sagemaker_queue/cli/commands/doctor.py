"""``smq doctor``: check step by step why the queue cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict

from sagemaker_queue.cli.output import DONE, REFUSED, print_json
from sagemaker_queue.cli.parser import command, connection, json_flag
from sagemaker_queue.workflows.doctor.findings import FAILED, NOT_CHECKED, OK, SKIPPED, WARNED, Finding, healthy

_MARKS = {OK: "✓", WARNED: "!", FAILED: "✗", SKIPPED: "–"}
_PLAIN_MARKS = {OK: "[ok]", WARNED: "[??]", FAILED: "[!!]", SKIPPED: "[--]"}


@command(
    "doctor",
    help="find out why the queue cannot be used",
    description="Check, step by step, the usual causes of problems: configuration, DNS, connection, clock, "
    "credentials, access, identity, versions, execution role, bucket, and the plugin for shells in "
    "jobs. Each failure and each warning is printed with a remedy. Secrets are not printed. The exit "
    "code is 0 if no step failed, else 1.",
    examples=["smq doctor", "smq -c research doctor --json"],
)
@json_flag()
def doctor(as_json: bool) -> int:
    """Run the checks, and print each finding."""
    from sagemaker_queue.workflows.doctor.examination import CHECKS, examine  # noqa: PLC0415  # boto3

    options = connection()
    findings: list[Finding] = []
    marks, size = _marks(), max(map(len, CHECKS))
    for finding in examine(options.url, options.profile):
        findings.append(finding)
        if not (as_json or _is_not_checked(finding)):
            print("\n".join(lines(finding, marks, size)), flush=True)
    if not as_json:
        for message, checks in not_checked(findings).items():
            print(f"{marks[SKIPPED]} {message} ({', '.join(checks)})")
    if as_json:
        print_json({"healthy": healthy(findings), "checks": [asdict(finding) for finding in findings]})
    return DONE if healthy(findings) else REFUSED


def _is_not_checked(finding: Finding) -> bool:
    return finding.status == SKIPPED and finding.message.startswith(NOT_CHECKED)


def not_checked(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Return the names of the steps that were not checked because they depend on a failed step, by message."""
    found: dict[str, list[str]] = {}
    for finding in filter(_is_not_checked, findings):
        found.setdefault(finding.message, []).append(finding.check)
    return found


def _marks() -> dict[str, str]:
    """Return the mark of each status; plain ASCII if the output's encoding lacks the symbols."""
    try:
        "".join(_MARKS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_MARKS
    return _MARKS


def lines(finding: Finding, marks: dict[str, str], width: int) -> list[str]:
    """Return a line for the finding, and a second line if the finding has a remedy."""
    first = f"{marks[finding.status]} {finding.check:{width}}  {finding.message}"
    indent = " " * (len(marks[finding.status]) + width + 3)
    return [first, f"{indent}{finding.remedy}"] if finding.remedy else [first]
