"""Document 002: a job that accepts several pools leaves a pool to the jobs that can start nowhere else (ADR 0087)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from job_queue.scheduler import PausedPool, Policy, Project, Rule, WaitingJob, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from tests.builders import NOW, Need, a_policy, a_snapshot, active, department, stopping, waiting

POOLS = {"p5": 4, "p4": 4}
ALL = a_policy(POOLS)


def flexible(name: str = "flexible", slots: int = 1, **fields: Any) -> WaitingJob:
    """A job that would rather have p5 and also accepts p4. It comes before all others."""
    return waiting(name, {"p5": slots}, {"p4": slots}, **{"priority": 9, **fields})


def gang(slots: Need = 4, **fields: Any) -> WaitingJob:
    """A job that can start in p5 only."""
    return waiting("gang", slots, **fields)


def started(*jobs: Any, policy: Policy = ALL, **more: Any) -> dict[str, dict[str, int]]:
    snapshot = replace(a_snapshot(*jobs, policy=policy), **more)
    return {start.job: dict(start.slots) for start in plan(snapshot).starts}


def test_002_the_only_pool_of_a_waiting_gang_is_left_to_it() -> None:
    """Without the rule it starts in p5, and is moved in the next cycle: a start of minutes is thrown away."""
    assert started(flexible(), gang()) == {"flexible": {"p4": 1}, "gang": {"p5": 4}}


def test_002_the_gang_may_be_of_another_project() -> None:
    """Nothing is taken back then from the project that holds more than its share."""
    quotas = {"a": {"p5": 1, "p4": 4}, "b": {"p5": 3}, "c": {}}
    policy = a_policy(POOLS, [Project(name, quota=quota) for name, quota in quotas.items()])
    snapshot = a_snapshot(flexible(), gang(3, project="b"), active("over", project="c"), policy=policy)
    decided = plan(snapshot)
    assert {it.job: it.slots for it in decided.starts} == {"flexible": {"p4": 1}, "gang": {"p5": 3}}
    assert not decided.evictions


def test_002_a_job_that_may_not_be_stopped_leaves_the_pool_too() -> None:
    """Nobody could move it later: the gang would wait until it ends."""
    assert started(flexible(preemptible=False), gang()) == {"flexible": {"p4": 1}, "gang": {"p5": 4}}


@pytest.mark.parametrize(
    ("jobs", "policy"),
    [
        pytest.param((gang(3),), ALL, id="there is room for both"),
        pytest.param(
            (gang(project="b"),),
            a_policy(POOLS, [Project("a", quota={}), Project("b", quota={}, over_quota=0)]),
            id="beyond the share of its project",
        ),
        pytest.param((gang(), active("busy"),), ALL, id="the gang could not start anyway"),
        pytest.param((waiting("gang", {"p5": 4}, {"c6": 4}),), a_policy({**POOLS, "c6": 4}), id="it has another pool"),
        pytest.param((gang(held=True),), ALL, id="the gang is held"),
        pytest.param((gang(backoff_until=NOW + 60),), ALL, id="the gang backs off"),
        pytest.param((gang(on_free_slots_only=True, refusal="no"),), ALL, id="SageMaker refuses the gang"),
        pytest.param((gang(), active("busy", {"p4": 4})), ALL, id="nothing else is free"),
        pytest.param((gang(), waiting("other", {"p4": 4})), ALL, id="the other pool is the only one of others, too"),
        pytest.param(
            (gang(preemptible=False),),
            a_policy(POOLS, [Project("a", quota={"p5": 3, "p4": 4}, over_quota=1)]),
            id="beyond quota, and it may not be stopped",
        ),
        pytest.param(
            (gang(project="b"),),
            a_policy(
                POOLS,
                [Project("a", quota={"p5": 1}), Project("b", "x", quota={"p5": 4})],
                [department("x", 3)],
            ),
            id="beyond the share of its department",
        ),
    ],
)  # fmt: skip
def test_002_otherwise_its_own_preference_counts(jobs: tuple[Any, ...], policy: Policy) -> None:
    assert started(flexible(), *jobs, policy=policy)["flexible"] == {"p5": 1}


def test_002_of_several_gangs_those_count_that_fit_together() -> None:
    gangs = [waiting(f"gang{n}", 2) for n in range(2)]
    assert started(flexible(), *gangs)["flexible"] == {"p4": 1}
    assert started(flexible(), *gangs, policy=a_policy({"p5": 5, "p4": 4}))["flexible"] == {"p5": 1}
    in_two = [waiting(name, 2, project=name) for name in ("b", "c")]
    more_than_there_is = a_policy({"p5": 3, "p4": 4}, [Project(name, quota={"p5": 2}) for name in "abc"])
    assert started(flexible(), *in_two, policy=more_than_there_is)["flexible"] == {"p5": 1}, "one of them is too many"
    of_one = [waiting(name, 2, project="b") for name in ("first", "second")]
    share_of_two = a_policy(POOLS, [Project("a", quota={"p5": 2}), Project("b", quota={"p5": 2}, over_quota=0)])
    assert started(flexible(), *of_one, policy=share_of_two)["flexible"] == {"p5": 1}, "the second is beyond its share"


def test_002_what_is_set_aside_for_the_gang_is_not_left_to_it_twice() -> None:
    policy = a_policy({"p5": 8, "p4": 4})
    assert started(flexible(), gang(), policy=policy, reserved={"gang": {"p5": 4}})["flexible"] == {"p5": 1}


def test_002_once_the_gang_has_had_its_turn_the_rest_is_for_anybody() -> None:
    policy = a_policy({"p5": 5, "p4": 4})
    assert started(flexible(), gang(priority=10), policy=policy)["flexible"] == {"p5": 1}


def test_002_slots_that_are_being_freed_count_as_free() -> None:
    jobs = (flexible(), gang(), stopping("leaves", 2))
    assert started(*jobs) == {"flexible": {"p4": 1}}


def test_002_a_heterogeneous_cluster_needs_each_of_its_pools() -> None:
    policy = a_policy({"p5": 1, "p4": 1, "c6": 2})
    mixed = waiting("mixed", {"p5": 1, "c6": 2})
    assert started(flexible(), mixed, policy=policy) == {"flexible": {"p4": 1}, "mixed": {"p5": 1, "c6": 2}}


def test_002_sizes_come_before_pools() -> None:
    """A job takes as many instances as it can get, and leaves the pool only for as many in another one."""
    sizes = [{"p5": 2}, {"p4": 2}, {"p5": 1}, {"p4": 1}]
    elastic = waiting("elastic", *sizes, priority=9)
    assert started(elastic, gang()) == {"elastic": {"p4": 2}, "gang": {"p5": 4}}
    assert started(elastic, gang(), active("busy", {"p4": 3}))["elastic"] == {"p5": 2}


def test_002_the_gang_is_left_the_size_that_is_its_due() -> None:
    quotas = [Project("a", quota={"p5": 2, "p4": 4}), Project("b", quota={"p5": 2}, over_quota=0), Project("c")]
    elastic = waiting("elastic", {"p5": 3}, {"p5": 2}, project="b")
    jobs = (flexible(slots=2), elastic, active("over", project="c"))
    assert started(*jobs, policy=a_policy(POOLS, quotas)) == {"flexible": {"p4": 2}, "elastic": {"p5": 2}}


def test_002_no_job_is_sent_to_a_pool_that_has_refused_launches() -> None:
    refuses = {"p4": PausedPool(until=NOW - 10)}
    assert started(flexible(), gang(), paused=refuses)["flexible"] == {"p5": 1}


numbers = st.lists(st.integers(1, 4), max_size=5)


@given(
    p5=st.integers(0, 8),
    p4=st.integers(0, 8),
    gangs=numbers,
    others=st.lists(st.booleans(), max_size=8),
    data=st.randoms(use_true_random=False),
)
@example(p5=4, p4=1, gangs=[4], others=[True], data=None)
def test_002_no_job_that_has_just_started_is_moved_for_one_that_waits(
    p5: int, p4: int, gangs: list[int], others: list[bool], data: Any
) -> None:
    """Whatever the order: jobs of one instance that accept both pools, and gangs that can start in p5 only."""

    def priority() -> int:
        return int(data.randint(0, 3)) if data else 1

    jobs = [waiting(f"gang{n}", slots, priority=priority()) for n, slots in enumerate(gangs)]
    for n, p5_first in enumerate(others):
        choices = [{"p5": 1}, {"p4": 1}] if p5_first else [{"p4": 1}, {"p5": 1}]
        jobs.append(waiting(f"both{n}", *choices, priority=priority(), waited=100 + n))
    run = ScenarioRun(a_snapshot(*jobs, policy=a_policy({"p5": p5, "p4": p4})))
    goes_on = True
    while goes_on:
        decided = plan(run.snapshot)
        assert Rule.CONSOLIDATE not in {eviction.rule for eviction in decided.evictions}
        goes_on = run.apply(decided)
