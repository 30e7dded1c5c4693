"""The scenario files of tests/scenarios: each says what it expects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from job_queue.scheduler.planner import plan
from job_queue.scheduler.scenario import plan_to_document, read_scenario, run_until_stable

SCENARIOS = Path(__file__).parents[2] / "scenarios"

RUN = {
    "article-fourth-job-preempts",
    "article-third-job-waits",
    "checkpointed-work-goes-first",
    "external-jobs-use-capacity",
    "gang-evicts-only-if-all-fit",
    "guaranteed-runtime-protects",
    "held-jobs-wait-silently",
    "heterogeneous-gang-needs-both-pools",
    "higher-priority-takes-over-a-reservation",
    "idle-slots-are-for-anyone",
    "never-fits",
    "no-victim-more-than-needed",
    "priority-does-not-cross-projects",
    "second-choice-pool",
    "small-jobs-pass-a-gang-for-a-while",
    "stopping-slots-are-waited-for",
}
# Their rules are still to come: shares and departments, limits, non-preemptible jobs, reclaim, consolidate, patience.
TO_COME = {
    "a-patient-gang-keeps-slots",
    "consolidate-to-make-room",
    "department-quota-first",
    "department-reclaims-from-department",
    "interactive-stays-in-quota",
    "limit-stops-a-project",
    "project-quota-is-protected",
    "reclaim-from-over-quota",
    "shares-follow-over-quota-weight",
    "shares-follow-quota-three-to-one",
}


def test_every_scenario_is_run_or_known_to_be_early() -> None:
    assert not RUN & TO_COME
    assert {path.stem for path in SCENARIOS.glob("*.yaml")} == RUN | TO_COME


@pytest.mark.parametrize("name", sorted(RUN))
def test_scenario(name: str) -> None:
    path = SCENARIOS / f"{name}.yaml"
    expected = yaml.safe_load(path.read_text())["expect"]
    snapshot = read_scenario(path)
    if first := expected.get("first"):
        check_first(first, plan_to_document(plan(snapshot)))
    if final := expected.get("final"):
        check_final(final, run_until_stable(snapshot))


@pytest.mark.parametrize("name", sorted(TO_COME))
def test_an_early_scenario_can_be_read_and_becomes_stable(name: str) -> None:
    assert run_until_stable(read_scenario(SCENARIOS / f"{name}.yaml"))["stable"]


def check_first(expected: dict[str, Any], decided: dict[str, Any]) -> None:
    if "start" in expected:
        assert {start["job"]: start["slots"] for start in decided["start"]} == expected["start"]
    if "evict" in expected:
        assert sorted(decided["evict"], key=lambda it: it["job"]) == sorted(expected["evict"], key=lambda it: it["job"])
    reasons = {hold["job"]: hold["reason"] for hold in decided["hold"]}
    assert reasons | expected.get("hold", {}) == reasons


def check_final(expected: dict[str, Any], reached: dict[str, Any]) -> None:
    assert reached["stable"]
    for part in ("active", "waiting", "slots"):
        if part in expected:
            assert reached[part] == expected[part]
