"""The scenario files of tests/scenarios: each says what it expects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from job_queue.scheduler import plan
from job_queue.scheduler.documents.scenario import read_scenario
from job_queue.scheduler.documents.scenario_run import plan_to_document, run_until_stable

SCENARIOS = Path(__file__).parents[3] / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected = yaml.safe_load(path.read_text())["expect"]
    snapshot = read_scenario(path)
    if first := expected.get("first"):
        check_first(first, plan_to_document(plan(snapshot)))
    if final := expected.get("final"):
        check_final(final, run_until_stable(snapshot))


def check_first(expected: dict[str, Any], decided: dict[str, Any]) -> None:
    if "start" in expected:
        assert {start["job"]: start["slots"] for start in decided["start"]} == expected["start"]
    if "evict" in expected:
        assert sorted(decided["evict"], key=lambda it: it["job"]) == sorted(expected["evict"], key=lambda it: it["job"])
    if "seat" in expected:
        assert {it.pop("job"): it for it in decided.get("seat", [])} == expected["seat"]
    if "launch" in expected:
        assert [it["members"] for it in decided.get("launch", [])] == expected["launch"]
    if "close" in expected:
        assert decided.get("close", []) == expected["close"]
    reasons = {hold["job"]: hold["reason"] for hold in decided["hold"]}
    assert reasons | expected.get("hold", {}) == reasons


def check_final(expected: dict[str, Any], reached: dict[str, Any]) -> None:
    assert reached["stable"]
    for part in ("active", "waiting", "slots"):
        if part in expected:
            assert reached[part] == expected[part]
    if "carriers" in expected:
        assert reached.get("carriers", {}) == expected["carriers"]
