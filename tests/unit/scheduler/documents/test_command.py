"""Scenario files and the command that plans them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_queue.scheduler import (
    Backfill,
    Department,
    DocumentError,
    Order,
    Policy,
    Pool,
    Project,
    Settings,
    policy_from_document,
)
from job_queue.scheduler.__main__ import main
from job_queue.scheduler.documents.scenario import read_scenario, scenario_from_document
from job_queue.scheduler.documents.scenario_run import run_until_stable

SCENARIO = """
policy:
  pools: [{name: p5, capacity: 2}]
  projects: [{name: a}]
now: 2026-11-20T12:00:00Z
active:
- {job: low, project: a, priority: 1, slots: {p5: 2}, entered: 2026-11-20T10:00:00Z, started: 2026-11-20T11:00:00Z}
waiting:
- {job: high, project: a, priority: 2, demand: [{p5: 1}], entered: 2026-11-20T11:30:00Z}
- {job: kept, project: a, priority: 1, demand: [{p5: 1}], entered: 2026-11-20T11:30:00Z, held: true}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return path


def changed(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SCENARIO)
    return {key: value for key, value in {**document, **changes}.items() if value != "absent"}


def test_one_plan(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(scenario)]) == 0
    decided = json.loads(capsys.readouterr().out)
    assert list(decided) == ["start", "evict", "hold", "shares"]
    assert decided["start"] == []
    assert decided["evict"] == [{"job": "low", "for": "high", "rule": "preempt"}]
    assert [(hold["job"], hold["reason"]) for hold in decided["hold"]] == [
        ("high", "WAITING_FOR_STOPPING"),
        ("kept", "HELD_BY_USER"),
    ]


def test_until_stable(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(scenario), "--until-stable"]) == 0
    reached = json.loads(capsys.readouterr().out)
    rounds = reached.pop("rounds")
    assert reached == {
        "stable": True,
        "active": {"high": {"p5": 1}},
        "waiting": ["low", "kept"],
        "slots": {"a": {"p5": 1}},
    }
    assert [len(decided["start"]) for decided in rounds] == [0, 0, 1, 0, 0]
    assert [len(decided["evict"]) for decided in rounds] == [1, 0, 0, 0, 0]


def test_json_is_read_too(scenario: Path, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(yaml.safe_load(SCENARIO), default=str))
    assert read_scenario(path) == read_scenario(scenario)


@pytest.mark.parametrize("content", ["{", "a: [", "\x00", ""])
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_what_is_no_scenario_is_refused(
    content: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"scenario.{suffix}"
    path.write_text(content)
    assert main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_missing_file_and_bytes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "cannot read" in capsys.readouterr().err
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    assert main([str(tmp_path / "bytes.yaml")]) == 2


@pytest.mark.parametrize("options", [[], ["--until-stable"]])
def test_a_reader_that_has_gone_is_no_error(scenario: Path, options: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head -1` does, only before the first line
    command = [sys.executable, "-m", "job_queue.scheduler", str(scenario), *options]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def job(**changes: Any) -> dict[str, Any]:
    fields = {"job": "x", "project": "a", "priority": 1, "demand": [{"p5": 1}], "entered": "2026-11-20T11:30:00Z"}
    return {key: value for key, value in {**fields, **changes}.items() if value != "absent"}


def running(**changes: Any) -> dict[str, Any]:
    return job(**{"demand": "absent", "slots": {"p5": 1}, **changes})


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (changed(policy="absent"), "scenario: the field policy is missing"),
        (changed(polcy={}), "scenario: unknown field 'polcy'"),
        (changed(now="noon"), "scenario.now: must be a time such as 2026-11-20T12:00:00Z, not 'noon'"),
        (changed(external={"p6": 1}), "scenario.external: there is no pool 'p6'"),
        (changed(external={"p5": -1}), "scenario.external.p5: must not be negative"),
        (changed(reserved={"x": 1}), "scenario.reserved.x: must map pools to numbers of instances"),
        (changed(reserved=[1]), "scenario.reserved: must map jobs to slots"),
        (changed(waiting={}), "scenario.waiting: must be a list"),
        (changed(waiting=[7]), "scenario.waiting[0]: must be a mapping of fields, not 7"),
        (changed(waiting=[job(), job()]), "there are two jobs 'x'"),
        (changed(waiting=[job(project="b")]), "x names the unknown project 'b'"),
        (changed(waiting=[job(priority="high")]), "scenario.waiting[0].priority: must be a whole number, not 'high'"),
        (changed(waiting=[job(priority=True)]), "scenario.waiting[0].priority: must be a whole number"),
        (changed(waiting=[job(demand={"p5": 1})]), "scenario.waiting[0].demand: must be a list"),
        (changed(waiting=[job(demand=[{}])]), "scenario.waiting[0].demand[0]: must name at least one pool"),
        (changed(waiting=[job(demand=[{"p5": 0}])]), "scenario.waiting[0].demand[0]: must name at least one pool"),
        (changed(waiting=[job(demand=[{"p5": 1.5}])]), "scenario.waiting[0].demand[0].p5: must be a whole number"),
        (changed(waiting=[job(demand="absent")]), "scenario.waiting[0]: the field demand is missing"),
        (changed(waiting=[job(held="yes")]), "scenario.waiting[0].held: must be true or false"),
        (changed(waiting=[job(slots={"p5": 1})]), "scenario.waiting[0]: unknown field 'slots'"),
        (changed(waiting=[job(max_runtime=-1)]), "scenario.waiting[0].max_runtime: must be a number from 0"),
        (changed(active=[running(state="done")]), "scenario.active[0].state: must be starting, running, stopping"),
        (changed(active=[running(reserved_for="x")]), "scenario.active[0].reserved_for: only a stopping job"),
    ],
)
def test_errors_say_where_and_what(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        scenario_from_document(document)
    assert complaint in str(caught.value)


def test_without_now_it_is_the_latest_time() -> None:
    assert scenario_from_document(changed(now="absent")).now == scenario_from_document(changed()).now - 1800


def test_times_without_a_zone_are_utc() -> None:
    assert scenario_from_document(changed(now="2026-11-20T12:00:00")) == scenario_from_document(changed())
    assert scenario_from_document(changed(now="2026-11-20T13:00:00+01:00")) == scenario_from_document(changed())


def test_a_stopping_job_comes_back_only_if_it_made_room() -> None:
    for_good = scenario_from_document(changed(active=[running(state="stopping")], waiting=[]))
    assert run_until_stable(for_good)["active"] == {}
    back = scenario_from_document(changed(active=[running(state="stopping", reserved_for="gone")], waiting=[]))
    assert run_until_stable(back)["active"] == {"x": {"p5": 1}}


# --- the policy document ------------------------------------------------------------------------------


def test_a_whole_policy_is_read() -> None:
    document = yaml.safe_load("""
    pools:
    - {name: p5, instance_type: ml.p5.48xlarge, capacity: 4, spot: true, min_runtime: 5}
    - {name: p4, capacity: 1, training_plan: "arn:x"}
    departments: [{name: research, quota: {p5: 3}, limit: {p5: 4}}]
    projects:
    - {name: vision, department: research, quota: {p5: 2}, limit: {p5: 3}, over_quota: medium, pools: [p5],
       min_runtime: 600}
    - {name: nlp, over_quota: 0.5}
    settings: {min_runtime: 60, patience: null, aging: 3600, order: shortest, stretch: 5, backfill: predicted,
               idle_after: 7200, protect_project_quota: false,
               allow_oversubscription: true, window: 7}
    """)
    assert policy_from_document(document) == Policy(
        pools=(
            Pool("p5", 4, "ml.p5.48xlarge", spot=True, min_runtime=5),
            Pool("p4", 1, training_plan="arn:x"),
        ),
        departments=(Department("research", {"p5": 3}, {"p5": 4}),),
        projects=(
            Project("vision", "research", {"p5": 2}, {"p5": 3}, "medium", ("p5",), min_runtime=600),
            Project("nlp", over_quota=0.5),
        ),
        settings=Settings(
            min_runtime=60,
            patience=None,
            aging=3600,
            order=Order.SHORTEST,
            stretch=5,
            backfill=Backfill.PREDICTED,
            idle_after=7200,
            protect_project_quota=False,
            allow_oversubscription=True,
            window=7,
        ),
    )


def test_what_a_policy_leaves_out_has_its_default() -> None:
    policy = policy_from_document({"pools": [{"name": "p5", "capacity": 1}], "projects": [{"name": "a"}]})
    assert policy == Policy(pools=(Pool("p5", 1),), projects=(Project("a"),))
    assert policy.settings.patience == 1800


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"pools": [{"name": "p5"}]}, "policy.pools[0]: the field capacity is missing"),
        ({"pools": [{"name": "", "capacity": 1}]}, "policy.pools[0].name: must be a text"),
        ({"pools": [{"name": "p5", "capacity": 1, "size": 2}]}, "policy.pools[0]: unknown field 'size'; known are"),
        ({"pools": [{"name": "p", "capacity": 1}] * 2}, "policy.pools: the name 'p' is used twice"),
        (
            {"pools": [{"name": "p5", "capacity": 1, "spot": True, "training_plan": "arn:x"}]},
            "policy.pools[0]: the pool p5 has both spot and a training_plan",
        ),
        ({"projects": [{"name": "a"}, {"name": "a"}]}, "policy.projects: the name 'a' is used twice"),
        ({"departments": [{"name": "a"}]}, "policy.projects: the name 'a' is used twice"),
        ({"projects": [{"name": "a", "department": "x"}]}, "a names the unknown department 'x'"),
        ({"projects": [{"name": "a", "over_quota": "much"}]}, "must be none, low, medium, high or a number"),
        ({"projects": [{"name": "a", "quota": {5: 1}}]}, "policy.projects[0].quota: must be a text, not 5"),
        ({"settings": {"patience": float("inf")}}, "policy.settings.patience: must be a number from 0"),
        ({"settings": []}, "policy.settings: must be a mapping of fields"),
    ],
)
def test_policy_errors_say_where_and_what(changes: dict[str, Any], complaint: str) -> None:
    document = {"pools": [{"name": "p5", "capacity": 1}], "projects": [{"name": "a"}]} | changes
    with pytest.raises(DocumentError) as caught:
        policy_from_document(document)
    assert complaint in str(caught.value)
