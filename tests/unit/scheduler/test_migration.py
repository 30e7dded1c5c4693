"""Moving jobs to other pools (section 4), each rule with its counter-case."""

from typing import Any

import pytest

from job_queue.scheduler import ActiveJob, Project, Rule, Snapshot, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import (
    NOW,
    a_policy,
    a_snapshot,
    active,
    project,
    waiting,
)
from tests.unit.scheduler.decided import evicted_by

POOLS = {"p5": 1, "p4": 1}


def movable(**fields: Any) -> ActiveJob:
    return active("easy", {"p5": 1}, **{"demand": ({"p5": 1}, {"p4": 1}), **fields})


def test_a_mover_gets_its_new_place_and_nobody_takes_it_over() -> None:
    policy = a_policy(POOLS, [Project("a", quota=POOLS)])
    jobs = (movable(), waiting("picky"), waiting("other", {"p4": 1}, priority=0))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert evicted_by(decided) == {"easy": ("picky", "consolidate")}
    assert decided.reservations == {"easy": {"p4": 1}, "picky": {"p5": 1}}
    assert not decided.starts
    run = ScenarioRun(a_snapshot(*jobs, policy=policy))
    run.apply(decided)
    urgent = waiting("urgent", {"p4": 1}, priority=9)
    snapshot = Snapshot(policy, NOW, run.snapshot.active, (*run.snapshot.waiting, urgent), {}, run.snapshot.reserved)
    assert plan(snapshot).reservations == {"easy": {"p4": 1}, "picky": {"p5": 1}}


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param((movable(preemptible=False), waiting("picky")), id="not preemptible"),
        pytest.param((movable(demand=()), waiting("picky")), id="accepts no other pool"),
        pytest.param(
            (movable(demand=({"p5": 1}, {"p4": 2})), waiting("picky")), id="no free place that is large enough"
        ),
        pytest.param((movable(), active("busy", {"p4": 1}), waiting("picky")), id="no free place"),
        pytest.param((movable(ran=10), waiting("picky")), id="guaranteed runtime"),
        pytest.param((movable(project="b"), waiting("picky")), id="the mover would be above its share there"),
        pytest.param((movable(), waiting("picky", project="b")), id="the claimant would be above its share"),
    ],
)
def test_who_does_not_move(snapshot: tuple[Any, ...]) -> None:
    policy = a_policy(POOLS, [Project("a", quota=POOLS), Project("b", quota={}, over_quota=0)], min_runtime=60)
    assert Rule.CONSOLIDATE not in {it.rule for it in plan(a_snapshot(*snapshot, policy=policy)).evictions}


def test_moving_is_gentler_than_reclaiming_and_preempting() -> None:
    policy = a_policy({"p5": 2, "p4": 1}, [Project("a", quota={"p5": 2, "p4": 1})])
    jobs = (movable(priority=8), active("low", priority=1), waiting("picky", priority=9))
    assert evicted_by(plan(a_snapshot(*jobs, policy=policy))) == {"easy": ("picky", "consolidate")}


def test_moving_is_gentler_than_reclaiming_where_both_would_do() -> None:
    policy = a_policy({"p5": 2, "p4": 1}, [Project("a", quota={"p5": 2, "p4": 1}), project("b", over_quota=0)])
    jobs = (movable(), active("over", project="b"), waiting("picky"))
    assert evicted_by(plan(a_snapshot(*jobs, policy=policy))) == {"easy": ("picky", "consolidate")}


def test_two_movers_do_not_take_the_same_place() -> None:
    policy = a_policy({"p5": 2, "p4": 1}, [Project("a", quota={"p5": 2, "p4": 1})])
    both = [active(f"m{n}", demand=({"p5": 1}, {"p4": 1})) for n in range(2)]
    assert not evicted_by(plan(a_snapshot(*both, waiting("picky", 2), policy=policy)))
    two = {"p5": 2, "p4": 2}
    policy = a_policy(two, [Project("a", quota=two), project("b")])
    busy = active("busy", {"p4": 1}, project="b", preemptible=False)
    assert not evicted_by(plan(a_snapshot(*both, busy, waiting("picky", 2), policy=policy)))
    assert len(evicted_by(plan(a_snapshot(*both, waiting("picky", 2), policy=policy)))) == 2
