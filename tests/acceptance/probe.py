"""Measure what only AWS can answer, and print the settings to use: python -m tests.acceptance --probe.

Each probe prints what it measured, what the queue assumes, and the setting that follows. A probe that lacks a right or
meets other conditions is skipped with the reason. docs/operate/measure-an-account.md shows a run.
"""

import signal
from collections.abc import Callable

from botocore.exceptions import ClientError

from sagemaker_queue import QueueError
from tests.acceptance.account import Account
from tests.acceptance.probes import PROBES
from tests.acceptance.probes.finding import Finding, Lab, Skipped

MARKS = {True: "as assumed", False: "DIFFERENT", None: "not measured"}


def run(account: Account, stack: str | None) -> int:
    """Run every probe; return 0 unless AWS contradicts an assumption or something could not be removed."""
    findings: list[Finding] = []
    left: list[str] = []
    try:
        for number, probe in enumerate(PROBES, 1):
            print(f"\n[{number}/{len(PROBES)}] {probe.__doc__}", flush=True)
            finding = _measure(Lab(account, stack), probe, left)
            findings.append(finding)
            print(_lines(finding), flush=True)
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, lambda *_: print("\nRemoving what the probes made; please wait.", flush=True))
        left += account.tidy()
        for what in left:
            print(f"left, and may cost money: {what}", flush=True)
    print("\n" + summary(findings), flush=True)
    return 1 if left or any(finding.as_assumed is False for finding in findings) else 0


def summary(findings: list[Finding]) -> str:
    """Say how the probes ended, and list the settings to change."""
    counts = [f"{sum(it.as_assumed is state for it in findings)} {mark}" for state, mark in MARKS.items()]
    changes = [f"  {it.setting}" for it in findings if it.as_assumed is False]
    return "\n".join([f"{len(findings)} probes: {', '.join(counts)}.", *(["Change:", *changes] if changes else [])])


def _measure(lab: Lab, probe: Callable[[Lab], Finding], left: list[str]) -> Finding:
    try:
        with lab.cleaning(left):
            return probe(lab)
    except Skipped as reason:
        return Finding(str(reason), "", "", None)
    except (ClientError, QueueError, TimeoutError) as error:
        return Finding(f"failed: {error}", "", "", None)


def _lines(finding: Finding) -> str:
    parts = (("measured", finding.measured), ("assumed", finding.assumed), ("setting", finding.setting))
    told = [f"  {name:<9} {text}" for name, text in parts if text]
    return "\n".join([*told, f"  {'result':<9} {MARKS[finding.as_assumed]}"])
