"""The forecast: when waiting jobs will start, worked out by hand; and what it says is what the simulator then does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.scheduler import (
    ActiveJob,
    Backfill,
    Calendar,
    Drain,
    JobState,
    PausedPool,
    Policy,
    Pool,
    Project,
    Settings,
    Snapshot,
    WaitingJob,
    WaitReason,
)
from job_queue.simulation.forecast import (
    MANY_LIVE_JOBS,
    Doubt,
    Estimate,
    forecast,
    is_close,
    no_arrivals,
    repeat_arrivals,
    steps_for,
)
from job_queue.simulation.simulator import FEWEST_READ, Simulator, without_steps
from job_queue.simulation.workload import Overheads, SimulatedJob

NOW = 1_000_000.0
OVERHEADS = Overheads(provisioning=100, stopping=50, checkpoint_every=1000)


def a_snapshot(
    *jobs: ActiveJob | WaitingJob, capacity: int = 1, external: int = 0, **settings: float | str | None
) -> Snapshot:
    project = Project("all", quota={"p5": capacity})
    policy = Policy((Pool("p5", capacity),), (project,), settings=Settings(**settings))  # type: ignore[arg-type]
    return Snapshot(
        policy,
        NOW,
        tuple(job for job in jobs if isinstance(job, ActiveJob)),
        tuple(job for job in jobs if isinstance(job, WaitingJob)),
        external={"p5": external},
    )


def runs(name: str, since: float, priority: int = 1, slots: int = 1) -> ActiveJob:
    started = NOW - since
    return ActiveJob(name, "all", priority, {"p5": slots}, JobState.RUNNING, started, started)


def waits(name: str, since: float = 0, priority: int = 1, slots: int = 1) -> WaitingJob:
    return WaitingJob(name, "all", priority, ({"p5": slots},), NOW - since)


def told(snapshot: Snapshot, runtimes: Mapping[str, float | Sequence[float]], **options: object) -> dict[str, Estimate]:
    likely = {name: (it,) if isinstance(it, float | int) else it for name, it in runtimes.items()}
    return forecast(snapshot, likely, OVERHEADS, **options)  # type: ignore[arg-type]


def starts(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    return {name: None if it.start is None else it.start - NOW for name, it in estimates.items()}


def test_jobs_follow_each_other() -> None:
    snapshot = a_snapshot(runs("a", 400), waits("b", 20), waits("c", 10), waits("first", priority=2))
    low = replace(snapshot, active=(replace(snapshot.active[0], preemptible=False),))
    estimates = told(low, {"a": 1000, "b": 500, "c": 1, "first": 300})
    assert starts(estimates) == {"first": 600, "b": 900, "c": 1400}
    assert {it.doubt for it in estimates.values()} == {None}
    for it in estimates.values():
        assert it.start == it.earliest == it.latest, "one runtime of each job: all futures are alike"


def test_a_higher_priority_starts_once_its_victim_has_stopped_and_the_victim_is_before_those_that_came_later() -> None:
    """The victim trained for 2,500 s of 5,000, and saved 2,000: 3,000 are left, and 100 until its instances are up."""
    snapshot = a_snapshot(runs("low", 2600), waits("late"), waits("high", priority=2))
    estimates = told(snapshot, {"low": 5100, "late": 1, "high": 400})
    assert starts(estimates) == {"high": 50, "late": 50 + 400 + 100 + 3000}


def test_a_gang_waits_for_all_its_slots() -> None:
    jobs = runs("a", 0), runs("b", 0), waits("gang", 10, slots=2), waits("small", 5)
    estimates = told(a_snapshot(*jobs, capacity=2, patience=None), {"a": 4000, "b": 7000, "gang": 2000, "small": 100})
    assert starts(estimates) == {"small": 4000, "gang": 7000}


def test_slots_are_kept_for_a_patient_gang_in_the_forecast_too() -> None:
    jobs = runs("a", 0), runs("b", 0), waits("gang", 3000, slots=2), waits("small", 5)
    snapshot = a_snapshot(*jobs, capacity=2, patience=1800, backfill=Backfill.BOUNDED)
    estimates = told(snapshot, {"a": 4000, "b": 7000, "gang": 2000, "small": 100})
    assert starts(estimates) == {"gang": 7000, "small": 9000}


def test_a_reservation_of_the_snapshot_stands() -> None:
    """What is being stopped is set aside for who came later; the other one waits for it to end."""
    stopping = replace(runs("a", 500), state=JobState.STOPPING)
    snapshot = replace(a_snapshot(stopping, waits("first", 10), waits("holder", 5)), reserved={"holder": {"p5": 1}})
    without = told(replace(snapshot, reserved={}), {"first": 300, "holder": 400})
    assert starts(without) == {"first": 50, "holder": 350}
    assert told(snapshot, {"first": 300, "holder": 400})["holder"].start is not None


def test_a_cancelled_attempt_leaves_its_slot_and_does_not_come_back_and_a_preempted_one_does() -> None:
    """What is being freed is for who waits already. Then who was preempted goes before who came later."""
    stopping = replace(runs("a", 500), state=JobState.STOPPING)
    for comes_back, then in ((False, 150.0), (True, 150 + 1000.0)):
        snapshot = a_snapshot(replace(stopping, comes_back=comes_back), waits("b", 10), waits("c"))
        assert starts(told(snapshot, {"a": 1000, "b": 10, "c": 10})) == {"b": 50, "c": then}


def test_aging_changes_the_order_while_nothing_else_happens() -> None:
    """The slot is kept for the gang, until the other job has waited for another whole hour and comes first."""
    day = 86_400.0
    endless = replace(runs("a", 80), preemptible=False, max_runtime=5 * day)
    gang, small = waits("gang", 100, priority=2, slots=2), replace(waits("small", 1900), max_runtime=30 * day)
    snapshot = a_snapshot(endless, gang, small, capacity=2, aging=3600.0, patience=60.0)
    found = starts(told(snapshot, {"gang": 1000, "small": 30 * day}, step=without_steps))
    assert found == {"small": 1740, "gang": None}


@pytest.mark.parametrize("field", ["not_before", "backoff_until"])
def test_within_a_step_no_job_starts_before_it_may(field: str) -> None:
    waiting = replace(waits("b", 20), **{field: NOW + 90})  # type: ignore[arg-type]
    snapshot = a_snapshot(replace(runs("a", 80), preemptible=False), waiting)
    assert starts(told(snapshot, {"a": 100, "b": 10}, step=lambda _: 300.0)) == {"b": 90}


@pytest.mark.parametrize("any_outcome", [False, True])
def test_jobs_start_after_the_jobs_on_which_they_depend(any_outcome: bool) -> None:
    def after(job: WaitingJob, *others: str) -> WaitingJob:
        return replace(job, after=tuple((other, any_outcome) for other in others))

    chain = after(waits("b", 20), "a"), after(waits("c", 30), "a", "b"), waits("d", 5)
    many = [after(waits(f"late{number}", 100), "c") for number in range(FEWEST_READ)]
    snapshot = a_snapshot(runs("a", 0), *chain, *many, capacity=4)
    lengths = {"a": 1250, "b": 400, "c": 9000, "d": 10_000} | {f"late{number}": 10.0 for number in range(FEWEST_READ)}
    found = starts(told(snapshot, lengths, step=without_steps))
    assert [found[name] for name in ("b", "c", "d", "late0")] == [1250, 1650, 0, 1650 + 9000]
    assert starts(told(snapshot, lengths))["d"] == 0, "jobs that depend on others take no places among those read"


def test_a_job_does_not_start_before_the_job_on_which_it_depends_has_ended_in_the_same_step() -> None:
    snapshot = a_snapshot(runs("a", 0), runs("x", 0), replace(waits("b"), after=(("a", False),)), capacity=2)
    assert starts(told(snapshot, {"a": 1250, "x": 1210, "b": 10})) == {"b": 1250}


def test_a_job_that_depends_on_a_job_of_unknown_runtime_has_no_estimate() -> None:
    snapshot = a_snapshot(runs("a", 0), replace(waits("b"), after=(("a", False), ("ended", True))), capacity=2)
    assert told(snapshot, {"b": 10})["b"] == Estimate("b", None, Doubt.UNKNOWN_RUNTIMES, WaitReason.DEPENDENCY)


@pytest.mark.parametrize("active", [0, 1])
def test_no_more_jobs_of_a_group_run_at_a_time_than_it_allows_and_others_pass_them(active: int) -> None:
    """Carry the limit through starts of the snapshot and of the simulation."""
    limits: Mapping[str, Any] = {"owner": "ada", "group": "sweep", "max_parallel": 2}
    there = [replace(runs("trial0", 100), **limits)][:active]
    sweep = [replace(waits(f"trial{number}", 100 - number), **limits) for number in range(active, 20)]
    snapshot = a_snapshot(*there, *sweep, runs("ends in between", 0), waits("behind"), capacity=8)
    lengths = {f"trial{number}": 1000.0 for number in range(20)} | {"ends in between": 400.0, "behind": 10.0}
    assert starts(told(snapshot, lengths))["behind"] == 0, "limited jobs take no places among the jobs that are read"
    found = starts(told(snapshot, lengths, step=without_steps))
    early = 100 * active  # trial0 started earlier, so every second job starts earlier
    expected = {f"trial{number}": number // 2 * 1000 - early * (1 - number % 2) for number in range(active, 20)}
    assert found == expected | {"behind": 0}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (replace(waits("it"), held=True), WaitReason.HELD_BY_USER),
        (waits("it", slots=2), WaitReason.NEVER_FITS),
        (WaitingJob("it", "all", 1, ({"other": 1},), NOW), WaitReason.NO_SUCH_POOL),
    ],
)
def test_who_never_starts_is_told_so_and_why(job: WaitingJob, reason: WaitReason) -> None:
    estimates = told(a_snapshot(job, waits("other")), {"it": 10, "other": 10})
    assert estimates["it"] == Estimate("it", None, Doubt.NEVER, reason)
    assert starts(estimates)["other"] == 0


def test_a_job_that_sagemaker_refuses_is_told_no_start_and_takes_no_slots_in_futures() -> None:
    refused = replace(waits("it"), priority=9, refusal="No quota.", on_free_slots_only=True)
    estimates = told(a_snapshot(refused, waits("other")), {"it": 10, "other": 10})
    assert estimates["it"] == Estimate("it", None, Doubt.REFUSED, WaitReason.BACKOFF)
    assert starts(estimates)["other"] == 0


def test_who_waits_for_jobs_of_unknown_runtime_is_told_nothing() -> None:
    estimates = told(a_snapshot(runs("a", 0), waits("b"), waits("c")), {"b": 10})
    assert estimates["b"] == Estimate("b", None, Doubt.UNKNOWN_RUNTIMES, WaitReason.WAITING_FOR_CAPACITY)
    assert estimates["c"].start is None


def test_a_job_with_an_expected_but_no_likely_runtime_may_be_preempted_in_a_future() -> None:
    victim = replace(runs("low", 100), expected=5000.0)
    snapshot = a_snapshot(victim, waits("high", priority=2), waits("later"))
    estimates = told(snapshot, {"high": 400, "later": 10})
    assert starts(estimates) == {"high": 50, "later": None}
    assert estimates["later"].doubt is Doubt.UNKNOWN_RUNTIMES


def test_slots_of_others_do_not_come_free() -> None:
    assert told(a_snapshot(waits("b"), external=1), {"b": 10})["b"].doubt is Doubt.UNKNOWN_RUNTIMES


def test_who_waits_longer_than_anybody_can_tell_is_told_that() -> None:
    estimate = told(a_snapshot(runs("a", 0), waits("b")), {"a": 10_000, "b": 10}, horizon=5000)["b"]
    assert estimate == Estimate("b", None, Doubt.FAR, estimate.reason)


def test_backoffs_and_training_plans_end_without_any_other_event() -> None:
    backs_off = a_snapshot(replace(waits("b"), backoff_until=NOW + 700))
    assert starts(told(backs_off, {"b": 10})) == {"b": 700}
    paused = replace(a_snapshot(waits("b")), paused={"p5": PausedPool(NOW + 800)})
    assert starts(told(paused, {"b": 10})) == {"b": 800}
    planned = replace(a_snapshot(waits("b")), calendars={"p5": Calendar(1, NOW + 900, NOW + 5000)})
    assert starts(told(planned, {"b": 10})) == {"b": 900}


def test_when_a_training_plan_is_over_nobody_starts_on_it() -> None:
    planned = a_snapshot(runs("a", 0), waits("b"))
    planned = replace(planned, calendars={"p5": Calendar(1, NOW - 900, NOW + 500)})
    estimate = told(planned, {"a": 1000, "b": 10})["b"]
    assert (estimate.start, estimate.reason) == (None, WaitReason.OUTSIDE_TRAINING_PLAN)


def test_no_start_is_told_in_a_drained_pool_only_who_can_change_it() -> None:
    snapshot = replace(a_snapshot(runs("a", 0), waits("b")), drains={"p5": Drain(int(NOW) - 5)})
    assert told(snapshot, {"a": 1000, "b": 10})["b"] == Estimate("b", None, Doubt.NEVER, WaitReason.DRAINED)


def test_a_scheduled_drain_stops_who_runs_and_starts_nobody_afterwards() -> None:
    """a would end at 1,000 and is stopped at 600; short has ended by then; long cannot start before."""
    drains = {"p5": Drain(int(NOW) + 600)}
    short, long = replace(waits("short", 10), max_runtime=500), waits("long", 20)
    snapshot = a_snapshot(replace(runs("a", 0), preemptible=False), short, long, capacity=2)
    estimates = told(replace(snapshot, drains=drains), {"a": 1000, "short": 400, "long": 10})
    assert starts(estimates) == {"short": 0, "long": None}
    assert estimates["long"] == Estimate("long", None, Doubt.NEVER, WaitReason.DRAINED)


def test_a_job_that_is_stopped_by_a_drain_takes_the_slots_of_another_pool() -> None:
    policy = Policy((Pool("p5", 1), Pool("p4", 1)), (Project("all", quota={"p5": 1, "p4": 1}),))
    active = replace(runs("a", 0), demand=({"p5": 1}, {"p4": 1}))
    waiting = WaitingJob("b", "all", 0, ({"p4": 1},), NOW)
    snapshot = Snapshot(policy, NOW, (active, replace(runs("c", 0), slots={"p4": 1}, preemptible=False)), (waiting,))
    likely = {"a": 1000, "b": 10, "c": 2000}
    assert starts(told(snapshot, likely)) == {"b": 2000}
    drained = told(replace(snapshot, drains={"p5": Drain(int(NOW) + 500)}), likely)
    assert starts(drained)["b"] == 2000 + 100 + 900, "a has no checkpoint of its 400 seconds of work, and goes first"


def test_the_first_and_the_last_start_of_the_futures_are_told() -> None:
    snapshot = a_snapshot(runs("a", 0), waits("b"))
    estimate = told(snapshot, {"a": [1000, 9000, 50_000], "b": 10}, futures=3)["b"]
    assert estimate == Estimate("b", NOW + 9000, None, None, NOW + 1000, NOW + 50_000)
    endless = told(snapshot, {"a": [1000, 9000, 50_000], "b": 10}, futures=3, horizon=20_000)["b"]
    assert endless == Estimate("b", NOW + 9000, None, None, NOW + 1000, None), "in one future it has not started"


def test_each_job_has_each_part_of_its_runtimes_in_one_future() -> None:
    likely = [float(1000 * hours) for hours in range(1, 8)]
    estimate = told(a_snapshot(runs("a", 0), waits("b")), {"a": likely, "b": 10}, futures=7)["b"]
    assert estimate.start == NOW + 4000
    assert (estimate.earliest, estimate.latest) == (NOW + 1000, NOW + 7000)


def test_who_may_come_later_with_a_higher_priority_goes_first() -> None:
    def one_comes(_: Random) -> Iterable[SimulatedJob]:
        return [SimulatedJob("new", "all", 2, ({"p5": 1},), NOW + 100, 400)]

    snapshot = a_snapshot(replace(runs("a", 0), preemptible=False), waits("b"))
    assert starts(told(snapshot, {"a": 1000, "b": 10})) == {"b": 1000}
    assert starts(told(snapshot, {"a": 1000, "b": 10}, arrivals=one_comes)) == {"b": 1500}


def test_who_came_lately_comes_again_as_often_on_average_at_the_same_distances() -> None:
    lately = [SimulatedJob(f"j{n}", "all", 1, ({"p5": 1},), NOW - n * 1000, n) for n in range(1, 10)]
    come = repeat_arrivals(lately, NOW, 10_000, lambda job, random: 2 * job.work)
    numbers = []
    for seed in range(300):
        drawn = list(come(Random(seed)))
        assert all(job.submitted >= NOW for job in drawn)
        assert len({job.name for job in drawn}) == len(drawn)
        assert {job.work for job in drawn} <= {2.0 * n for n in range(1, 10)}
        assert len({round(job.submitted % 1000, 3) for job in drawn}) <= 1
        numbers.append(sum(job.submitted < NOW + 10_000 for job in drawn))
    assert abs(sum(numbers) / len(numbers) - len(lately)) < 1
    assert (min(numbers), max(numbers)) == (0, 18)


def test_the_same_snapshot_in_another_order_has_the_same_estimates() -> None:
    active = [runs(f"a{n}", n) for n in range(5)]
    waiting = [waits(f"w{n}", n) for n in range(20)]
    likely = dict.fromkeys([*(job.name for job in active), *(job.name for job in waiting)], [100.0, 1000.0, 9000.0])
    one = forecast(a_snapshot(*active, *waiting, capacity=5), likely, OVERHEADS, futures=4)
    other = forecast(a_snapshot(*reversed(waiting), *reversed(active), capacity=5), likely, OVERHEADS, futures=4)
    assert one == other


def test_what_is_looked_at_together_is_near_what_is_looked_at_one_by_one() -> None:
    """Jobs of one slot, one after the other on each of five: nobody waits longer because five minutes are a step."""
    active = [runs(f"a{n}", 0) for n in range(5)]
    waiting = [waits(f"w{n:02}", 100 - n) for n in range(60)]
    random = Random(2)
    names = [*(job.name for job in active), *(job.name for job in waiting)]
    likely = {name: [random.uniform(200, 4000)] for name in names}
    snapshot = a_snapshot(*active, *waiting, capacity=5, patience=None)
    exact = forecast(snapshot, likely, OVERHEADS, step=without_steps)
    for name, estimate in forecast(snapshot, likely, OVERHEADS).items():
        right = exact[name].start
        assert estimate.start is not None and right is not None
        assert is_close(estimate.start - NOW, right - NOW)


def test_of_very_many_jobs_it_is_as_near() -> None:
    """Forty slots, jobs of a thousand seconds: they start in waves."""
    active = [runs(f"a{n}", 0) for n in range(40)]
    waiting = [waits(f"w{n:03}", 1000 - n) for n in range(MANY_LIVE_JOBS)]
    likely = {f"a{n}": [1000.0] for n in range(40)} | {f"w{n:03}": [1000.0] for n in range(MANY_LIVE_JOBS)}
    estimates = forecast(a_snapshot(*active, *waiting, capacity=40), likely, OVERHEADS, futures=1)
    for place in range(MANY_LIVE_JOBS):
        start = estimates[f"w{place:03}"].start
        assert start is not None
        assert is_close(start - NOW, 1000.0 * (place // 40 + 1))


def test_the_farther_away_and_the_more_jobs_the_more_is_looked_at_together() -> None:
    few, more, many = steps_for(10), steps_for(550), steps_for(MANY_LIVE_JOBS + 1)
    assert [few(0), few(10_000), few(100_000)] == [300, 300, 3000]
    assert [more(0), more(100_000)] == [300, 10_000]
    assert [many(0), many(100_000)] == [300, 25_000]


@given(
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 5000), st.integers(1, 3), st.integers(1, 3)), min_size=2),
    st.integers(1, 3),
    st.sampled_from([None, 1800.0]),
    st.sampled_from([0.0, 600.0]),
    st.integers(2000, 9000),
)
def test_a_forecast_that_knows_all_is_what_the_simulator_then_does(
    drawn: list[tuple[int, int, int, int]], capacity: int, patience: float | None, guaranteed: float, when: int
) -> None:
    """A preempted job begins anew here, so what is left of each is known. Nobody comes after the snapshot."""
    overheads = Overheads(provisioning=100, stopping=50, checkpoint_every=None)
    snapshot = a_snapshot(capacity=capacity, patience=patience, min_runtime=guaranteed)
    jobs = [
        SimulatedJob(f"j{n}", "all", priority, ({"p5": min(size, capacity)},), come, work)
        for n, (come, work, priority, size) in enumerate(drawn)
    ]
    seen: list[Snapshot] = []

    def look(_: int) -> None:
        found = simulator.snapshot()
        if found.now >= when and not seen and all(it.state is JobState.RUNNING for it in found.active):
            seen.append(found)

    simulator = Simulator(snapshot.policy, overheads, look)
    done = {run.job.name: run for run in simulator.run(jobs)}
    runtimes = {job.name: (100.0 + job.work,) for job in jobs}
    for moment in seen:
        estimates = forecast(moment, runtimes, overheads, no_arrivals, futures=1, step=without_steps, horizon=1e9)
        assert {name: it.start for name, it in estimates.items()} == {
            job.name: next(start for start in done[job.name].starts if start > moment.now) for job in moment.waiting
        }


@pytest.mark.parametrize("futures", [0, 1, 2])
def test_a_forecast_that_is_given_up_early_has_no_spread_and_perhaps_no_start(futures: int) -> None:
    snapshot = a_snapshot(runs("a", 400), waits("b"))
    looks = [0]

    def may_go_on() -> bool:
        looks[0] += 1
        return looks[0] <= 2 * futures  # one moment of each future, and one look at its end

    found = told(snapshot, {"a": 1000, "b": 1}, may_go_on=may_go_on)["b"]
    assert found == (Estimate("b", NOW + 600) if futures else Estimate("b", None, Doubt.NO_TIME))
