"""A fleet shared on the local cloud: two departments, three projects, two pools, and a stream of real jobs."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import FOREVER, System

P5, P4 = "ml.p5.48xlarge", "ml.p4d.24xlarge"
CAPACITY = {P5: 3, P4: 2}
LIMIT = {("nlp", P5): 2}
POLICY: dict[str, Any] = {
    "pools": [
        {"name": "p5", "instance_type": P5, "capacity": CAPACITY[P5]},
        {"name": "p4", "instance_type": P4, "capacity": CAPACITY[P4]},
    ],
    "departments": [
        {"name": "research", "quota": {"p5": 2, "p4": 1}},
        {"name": "product", "quota": {"p5": 1, "p4": 1}},
    ],
    "projects": [
        {"name": "vision", "department": "research", "quota": {"p5": 1, "p4": 1}},
        {"name": "nlp", "department": "research", "quota": {"p5": 1}, "limit": {"p5": 2}},
        {"name": "ads", "department": "product", "quota": {"p5": 1, "p4": 1}},
    ],
}
SHORT = "import time; time.sleep(0.3)"


@pytest.fixture(scope="module")
def fleet() -> Iterator[System]:
    with LocalCloud(slots=10) as cloud:
        system = System(cloud)
        assert system.queue.apply_policy(POLICY, version=0).version == 1
        yield system


def submit(
    fleet: System, name: str, project: str, kind: str, script: str, instances: int = 1, priority: int = 0
) -> str:
    tags = {"project": project, "priority": str(priority)}
    return fleet.submit(
        name,
        script,
        ResourceConfig={"InstanceType": kind, "InstanceCount": instances, "VolumeSizeInGB": 30},
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )


def used(fleet: System, project: str) -> dict[str, int]:
    found = next(one for one in fleet.queue.queue().projects if one.name == project)
    return dict(found.used)


def running(fleet: System) -> dict[str, str]:
    return {job.job: job.state for job in fleet.queue.jobs()}


@pytest.mark.thorough
def test_idle_slots_are_for_anyone_and_quota_is_taken_back(fleet: System) -> None:
    for number in range(3):
        submit(fleet, f"vision-{number}", "vision", P5, FOREVER)
    fleet.wait("all to be used", lambda: used(fleet, "vision") == {"p5": 3})
    submit(fleet, "ads-0", "ads", P5, FOREVER)
    submit(fleet, "nlp-0", "nlp", P5, FOREVER)
    fleet.wait(
        "everybody to have its quota", lambda: all(used(fleet, p) == {"p5": 1} for p in ("vision", "nlp", "ads"))
    )
    names = [*(f"vision-{number}" for number in range(3)), "ads-0", "nlp-0"]
    preempted = [name for name in names if fleet.state(name) == "preempted"]
    assert len(preempted) == 2
    assert all(name.startswith("vision-") for name in preempted)
    assert "ads-0" in fleet.job(preempted[0]).history[-1].cause or "nlp-0" in fleet.job(preempted[0]).history[-1].cause
    fleet.empty()


def test_a_limit_holds_though_slots_are_idle(fleet: System) -> None:
    for number in range(3):
        submit(fleet, f"limited-{number}", "nlp", P5, FOREVER)
    fleet.wait("two to run", lambda: sorted(running(fleet).values()) == ["pending", "running", "running"])
    waiting = next(name for name, state in running(fleet).items() if state == "pending")
    fleet.gives_reason(waiting, "OVER_LIMIT")
    fleet.empty()


@pytest.mark.thorough
def test_forty_jobs_pass_and_capacity_and_limits_hold_at_every_moment(fleet: System) -> None:
    chance = random.Random(7)
    owners: dict[str, str] = {}
    for number in range(40):
        project = chance.choice(["vision", "nlp", "ads"])
        kind = P5 if project == "nlp" else chance.choice([P5, P4])
        name = f"stream-{number}"
        owners[name] = project
        submit(fleet, name, project, kind, SHORT, instances=chance.choice([1, 1, 1, 2]), priority=chance.randrange(3))
    fleet.wait("all to complete", lambda: all(fleet.state(name) == "completed" for name in owners))
    changes: list[tuple[Any, int, str, str]] = []
    for attempt in fleet.attempts():
        name = attempt["TrainingJobName"].rpartition("-qstamp-")[0]
        if name in owners:
            kind, count = attempt["ResourceConfig"]["InstanceType"], attempt["ResourceConfig"]["InstanceCount"]
            changes += [(attempt["CreationTime"], count, kind, owners[name])]
            changes += [(attempt["TrainingEndTime"], -count, kind, owners[name])]
    in_use: dict[Any, int] = {}
    for _, change, kind, project in sorted(changes):
        in_use[kind] = in_use.get(kind, 0) + change
        in_use[project, kind] = in_use.get((project, kind), 0) + change
        assert in_use[kind] <= CAPACITY[kind]
        assert in_use[project, kind] <= LIMIT.get((project, kind), CAPACITY[kind])


@pytest.mark.thorough
def test_a_new_policy_while_jobs_run(fleet: System) -> None:
    for number in range(4):
        submit(fleet, f"during-{number}", "ads", P4, FOREVER)
    fleet.wait("all to be used", lambda: used(fleet, "ads") == {"p4": 2})
    applied = fleet.queue.policy()
    larger = {**POLICY, "pools": [POLICY["pools"][0], {**POLICY["pools"][1], "capacity": 3}]}
    fleet.queue.apply_policy(larger, version=applied.version)
    fleet.wait("the third slot to be used", lambda: used(fleet, "ads") == {"p4": 3})
    fleet.wait("three to run", lambda: sorted(running(fleet).values()) == ["pending", *["running"] * 3])
    fleet.empty()
