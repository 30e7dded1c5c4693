"""Past use and budgets in simulations and forecasts: what attempts have used is carried along."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    ActiveJob,
    Budget,
    BudgetKind,
    JobState,
    PastUse,
    Policy,
    Pool,
    Project,
    Settings,
    Snapshot,
    WaitingJob,
)
from job_queue.scheduler.sharing.spending import Spending, period_end
from job_queue.simulation.forecast import forecast
from job_queue.simulation.simulator import Simulator
from job_queue.simulation.workload import Overheads, SimulatedJob

HOUR, DAY = 3600.0, 86400.0
AT_ONCE = Overheads(provisioning=0, stopping=0, checkpoint_every=1)
MONDAY = 4 * DAY  # 1970-01-05
NAMES = "abc"


def simulated(policy: Policy, *jobs: SimulatedJob) -> dict[str, float | None]:
    """When each starts for the first time."""
    runs = Simulator(policy, AT_ONCE).run(jobs)
    return {run.job.name: run.starts[0] if run.starts else None for run in runs}


def a_job(name: str, submitted: float, work: float, **fields: object) -> SimulatedJob:
    """The project is the first letter of its name."""
    return SimulatedJob(name, name[0], 1, ({"p5": 1},), submitted, work, **fields)  # type: ignore[arg-type]


def a_policy(capacity: int, *projects: Project, **changes: float | None) -> Policy:
    return Policy((Pool("p5", capacity),), projects, settings=Settings(**changes))  # type: ignore[arg-type]


# --- a half-life -------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.slow
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 99),
)
def test_with_equal_demand_what_is_used_comes_to_the_weights(
    weights: list[int], capacity: int, gangs: bool, seed: int
) -> None:
    found = used_shares(weights, capacity, capacity if gangs else 1, seed, DAY / 2)
    for weight, share in zip(weights, found, strict=True):
        assert share == pytest.approx(weight / sum(weights), abs=0.08)


@pytest.mark.thorough
def test_without_it_the_first_has_the_odd_instance_for_ever() -> None:
    assert used_shares([1, 1], 3, 1, 1, None)[0] == pytest.approx(2 / 3, abs=0.01)
    assert used_shares([1, 1], 3, 1, 1, DAY / 2)[0] == pytest.approx(1 / 2, abs=0.02)


def used_shares(weights: list[int], capacity: int, size: int, seed: int, half_life: float | None) -> list[float]:
    """The parts of what was used in five days, where everybody always has jobs that wait."""
    random, mean, days = Random(seed), 1.5 * HOUR, 5
    unlimited = Budget(1e9, 366)  # counts what was used
    projects = [
        Project(name, over_quota=weight, budget=unlimited) for name, weight in zip(NAMES, weights, strict=False)
    ]
    policy = a_policy(capacity, *projects, usage_half_life=half_life, patience=None, window=5)
    now = period_end(unlimited, 0)
    count = int(1.3 * capacity / size * days * DAY / mean)
    jobs = tuple(
        WaitingJob(f"{it.name}{number}", it.name, 1, ({"p5": size},), now) for it in projects for number in range(count)
    )
    simulator = Simulator(policy, AT_ONCE)
    runtimes = {job.name: random.uniform(0.2, 1.8) * mean for job in jobs}
    simulator.carry_forward(Snapshot(policy, now, waiting=jobs), runtimes, horizon=days * DAY)
    spending = Spending(simulator.snapshot())
    used = [spent.seconds for it in projects if (spent := spending.spent((it.name, None)))]
    return [seconds / sum(used) for seconds in used]


def test_who_used_less_starts_first_though_it_came_later() -> None:
    jobs = [
        a_job("a0", 0, 5 * HOUR),
        a_job("a1", 1, HOUR),
        a_job("b0", 2, HOUR),
    ]
    policy = a_policy(1, Project("a"), Project("b"))
    assert simulated(policy, *jobs) == {"a0": 0, "a1": 5 * HOUR, "b0": 6 * HOUR}
    remembering = replace(policy, settings=Settings(usage_half_life=DAY))
    assert simulated(remembering, *jobs) == {"a0": 0, "b0": 5 * HOUR, "a1": 6 * HOUR}


def test_owners_take_turns() -> None:
    jobs = [a_job(f"a{n}", n, HOUR, owner="ada") for n in range(3)] + [a_job("a-his", 9, HOUR, owner="bob")]
    starts = simulated(a_policy(1, Project("a"), usage_half_life=DAY), *jobs)
    assert starts["a-his"] == HOUR


def test_a_project_that_used_more_gives_back_as_time_passes_and_nothing_else_happens() -> None:
    # a holds all eight for days. b comes, and is due half at once; as nobody stops it, no more than that for long.
    policy = a_policy(8, Project("a"), Project("b"), usage_half_life=DAY)
    jobs = [a_job(f"a{n}", 0, 30 * DAY) for n in range(8)] + [a_job(f"b{n}", 10 * DAY, 30 * DAY) for n in range(8)]
    starts = simulated(policy, *jobs)
    at_once = [name for name, start in starts.items() if name[0] == "b" and start == 10 * DAY]
    assert len(at_once) == 7  # of eight: a used all there was


def test_a_forecast_carries_past_use_along() -> None:
    policy = a_policy(1, Project("a"), Project("b"), usage_half_life=DAY)
    running = ActiveJob("r", "c", 1, {"p5": 1}, JobState.RUNNING, MONDAY, MONDAY)
    policy = replace(policy, projects=(*policy.projects, Project("c")))
    jobs = tuple(WaitingJob(f"{name}0", name, 1, ({"p5": 1},), MONDAY) for name in "ab")
    snapshot = Snapshot(policy, MONDAY, (running,), jobs, past_use={"a": PastUse({"p5": 9 * HOUR})})
    runtimes = {"r": [HOUR], "a0": [HOUR], "b0": [HOUR]}
    found = forecast(snapshot, runtimes, AT_ONCE, step=lambda elapsed: 0.0)
    assert (found["b0"].start, found["a0"].start) == (MONDAY + HOUR, MONDAY + 2 * HOUR)


# --- budgets -----------------------------------------------------------------------------------------


def test_a_hard_budget_is_spent_and_begins_anew() -> None:
    budget = Budget(2, 1)
    policy = a_policy(9, Project("a", quota={"p5": 9}, budget=budget), Project("b"))
    jobs = [a_job("a0", MONDAY, 3 * HOUR), a_job("a1", MONDAY + 2.5 * HOUR, HOUR), a_job("b0", MONDAY + 3 * HOUR, HOUR)]
    assert simulated(policy, *jobs) == {"a0": MONDAY, "a1": MONDAY + DAY, "b0": MONDAY + 3 * HOUR}


def test_what_runs_into_the_next_period_counts_there() -> None:
    policy = a_policy(9, Project("a", quota={"p5": 9}, budget=Budget(2, 1)))
    late = MONDAY + 23 * HOUR  # runs until three in the morning
    jobs = [a_job("a0", late, 4 * HOUR), a_job("a1", late + 4 * HOUR, HOUR)]
    assert simulated(policy, *jobs)["a1"] == MONDAY + 2 * DAY


def test_a_soft_budget_that_is_spent_while_its_jobs_run_lets_others_have_their_slots() -> None:
    a = Project("a", over_quota=3, budget=Budget(4, 7, BudgetKind.SOFT))
    policy = a_policy(4, a, Project("b", over_quota=1))
    jobs = [a_job(f"a{n}", MONDAY, 3 * DAY) for n in range(4)] + [
        a_job(f"b{n}", MONDAY + 60, 3 * DAY) for n in range(4)
    ]
    starts = simulated(policy, *jobs)
    spent = MONDAY + 60 + (4 * HOUR - 4 * 60) / 3  # by four for a minute, and then by three
    assert sorted(starts[f"b{n}"] or 0 for n in range(4)) == pytest.approx([MONDAY + 60, *[spent] * 3])


def test_a_job_that_never_fits_does_not_keep_a_simulation_with_budgets_going() -> None:
    policy = a_policy(1, Project("a", budget=Budget(1, 1)), usage_half_life=DAY)
    large = replace(a_job("a-large", MONDAY, HOUR), demand=({"p5": 5},))
    assert simulated(policy, a_job("a0", MONDAY, 2 * HOUR), large) == {"a0": MONDAY, "a-large": None}


def test_a_forecast_waits_for_the_next_period() -> None:
    policy = a_policy(1, Project("a", quota={"p5": 1}, budget=Budget(10, 1)))
    jobs = (WaitingJob("a0", "a", 1, ({"p5": 1},), MONDAY),)
    snapshot = Snapshot(policy, MONDAY + 6 * HOUR, (), jobs, past_use={"a": PastUse(spent=10 * HOUR)})
    found = forecast(snapshot, {"a0": [HOUR]}, AT_ONCE, step=lambda elapsed: 0.0)
    assert found["a0"].start == MONDAY + DAY
