"""Jobs that share instances, in simulated time: worked out by hand, and at random."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    NOTHING,
    ActiveJob,
    Budget,
    Carrier,
    GpuAllocation,
    JobState,
    Policy,
    Pool,
    Project,
    Settings,
    Snapshot,
    WaitingJob,
)
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.forecast import forecast
from job_queue.simulation.metrics import gpus_at_work, size_class, wait
from job_queue.simulation.simulator import Simulator
from job_queue.simulation.trace import TraceConversion, TraceJob
from job_queue.simulation.workload import Overheads, SimulatedJob

OVERHEADS = Overheads(provisioning=100, stopping=50, checkpoint_every=1000, member_overhead=5)
GPUS = 8


def a_policy(capacity: int = 1, keep_warm: float | None = None, **others: float | None) -> Policy:
    pool = Pool("p5", capacity, gpus=GPUS, keep_warm=keep_warm)
    return Policy((pool,), (Project("all", quota={"p5": capacity}),), settings=Settings(**others))  # type: ignore[arg-type]


def a_member(name: str, submitted: float, work: float, gpus: float = 1, priority: int = 1) -> SimulatedJob:
    job = SimulatedJob(name, "all", priority, ({"p5": 1},), submitted, work)
    return replace(job, gpus=round(gpus * 10), needed_gpus=gpus, part=gpus / GPUS)


def a_whole_job(name: str, submitted: float, work: float, priority: int = 1) -> SimulatedJob:
    return SimulatedJob(name, "all", priority, ({"p5": 1},), submitted, work, needed_gpus=GPUS)


def simulated(policy: Policy, *jobs: SimulatedJob) -> dict[str, JobRun]:
    return {run.job.name: run for run in Simulator(policy, OVERHEADS).run(jobs)}


def test_eight_of_ten_are_placed_and_the_others_when_there_is_room() -> None:
    runs = simulated(a_policy(), *(a_member(f"m{number}", number, 1000) for number in range(10)))
    assert [run.starts for run in runs.values()] == [[100]] * 8 + [[1105]] * 2, "once the carrier has its instance"
    assert [run.ended for run in runs.values()] == [1105] * 8 + [2110] * 2
    assert wait(runs["m0"]) == 100 and wait(runs["m9"]) == 1096
    assert size_class(runs["m0"]) == "a part of 1"


def test_one_makes_room_in_seconds_while_the_others_go_on() -> None:
    low = [a_member(f"low{number}", 0, 5000) for number in range(8)]
    runs = simulated(a_policy(), *low, a_member("high", 2605, 300, gpus=4, priority=2))
    assert runs["high"].starts == [2610], "four have left"
    left = [run for run in runs.values() if run.preemptions]
    assert len(left) == 4 and all(run.starts == [100, 2915] for run in left)
    assert all((run.lost, run.restarts) == (500, 5 + 5) for run in left), "2,500 s of work, saved after 2,000"
    assert all(run.ended == 2920 + 3000 for run in left)
    stayed = [run for run in runs.values() if not run.preemptions and run.job.priority == 1]
    assert all(run.ended == 5105 for run in stayed)


def test_a_whole_job_has_the_instance_with_all_its_members() -> None:
    runs = simulated(a_policy(), a_member("one", 0, 5000), a_member("two", 0, 5000), a_whole_job("all", 1105, 100, 9))
    assert runs["all"].starts == [1105 + 50] and runs["all"].ended == 1355
    assert [runs[name].starts for name in ("one", "two")] == [[100, 1455]] * 2, "on another carrier, after it"
    assert [runs[name].lost for name in ("one", "two")] == [0, 0], "both had worked for 1,000 s"


def test_an_empty_carrier_is_kept_for_so_long_and_leaves_for_who_waits() -> None:
    kept = simulated(a_policy(keep_warm=600), a_member("first", 0, 100), a_member("second", 500, 100))
    assert kept["second"].starts == [500], "the carrier is there"
    gone = simulated(a_policy(), a_member("first", 0, 100), a_member("second", 500, 100))
    assert gone["second"].starts == [600], "another one comes"
    whole = simulated(a_policy(keep_warm=600), a_member("first", 0, 100), a_whole_job("whole", 300, 100))
    assert whole["whole"].starts == [350]
    long_after = simulated(a_policy(keep_warm=600), a_member("first", 0, 100), a_whole_job("whole", 2000, 100))
    assert long_after["whole"].starts == [2000], "nobody had to come for it to end"


def test_gpus_at_work_are_those_that_jobs_need() -> None:
    jobs = [a_member("half", 0, 1000, gpus=0.5), a_member("four", 0, 1000, gpus=4), a_whole_job("last", 2105, 1)]
    runs = list(simulated(a_policy(), *jobs).values())
    assert gpus_at_work(runs) == 4.5 * 1000 / 2105
    whole = [replace(job, gpus=None, part=1) for job in jobs]
    assert gpus_at_work(list(simulated(a_policy(2), *whole).values())) == 4.5 * 1000 / 2105, "what is not needed idles"


def test_a_trace_has_members_where_instances_are_shared() -> None:
    rows = [TraceJob("part", 0, 9, 0.25), TraceJob("three", 0, 9, 3, user="ada"), TraceJob("all", 0, 9, 8)]
    rows += [TraceJob("gang", 0, 9, 12), TraceJob("none", 0, 9, 0)]
    jobs = TraceConversion().jobs(rows, a_policy())
    assert [(job.gpus, job.instances, job.kind) for job in jobs] == [
        *((3, 1, ""), (30, 1, "ada"), (None, 1, "")),
        *((None, 2, ""), (None, 1, "")),
    ]
    whole = Policy((Pool("p5", 2),), (Project("all"),))
    assert all(job.gpus is None for job in TraceConversion().jobs(rows, whole))
    assert [job.needed_gpus for job in jobs] == [0.25, 3, 8, 12, 0]


# --- what is known of the live queue ------------------------------------------------------------------


def a_snapshot(active: Sequence[ActiveJob], waiting: Sequence[WaitingJob], *carriers: Carrier) -> Snapshot:
    return Snapshot(a_policy(), 10_000.0, tuple(active), tuple(waiting), carriers=carriers)


def a_carrier(state: JobState = JobState.RUNNING, started: float = 9_000.0) -> Carrier:
    return Carrier("carrier", "p5", "all", "", GPUS, state, started)


def carrier_attempt(name: str, *gpus: int, state: JobState = JobState.RUNNING) -> ActiveJob:
    allocation = GpuAllocation("carrier", gpus)
    return ActiveJob(name, "all", 1, NOTHING, state, 9_000.0, 9_100.0, allocation=allocation, comes_back=True)


def who_waits(name: str, gpus: int | None = None, priority: int = 1) -> WaitingJob:
    return WaitingJob(name, "all", priority, ({"p5": 1},), 9_500.0, gpus=gpus and gpus * 10)


def test_a_forecast_knows_when_gpus_come_free() -> None:
    there = [carrier_attempt("long", 0, 1, 2, 3), carrier_attempt("short", 4, 5, 6, 7)]
    snapshot = a_snapshot(there, [who_waits("next", 4), who_waits("later", 8), who_waits("whole")], a_carrier())
    known = {"long": (3000,), "short": (2000,), "next": (500,), "later": (100,), "whole": (100,)}
    told = forecast(snapshot, known, OVERHEADS, step=lambda _: 0.0)
    assert told["next"].start == 9_100 + 2000, "where short has sat"
    assert told["later"].start == 9_100 + 3000, "once long has left"
    assert told["whole"].start == 9_100 + 3000 + 100 + 50, "the carrier has ended"


def test_a_forecast_knows_carriers_that_come_and_that_leave() -> None:
    coming = a_snapshot([], [who_waits("one", 1)], a_carrier(JobState.STARTING, 9_950.0))
    assert forecast(coming, {"one": (100,)}, OVERHEADS, step=lambda _: 0.0)["one"].start == 10_050
    left = carrier_attempt("back", 0, state=JobState.STOPPING)
    leaving = a_snapshot([left], [who_waits("whole", priority=9)], a_carrier(JobState.STOPPING))
    told = forecast(leaving, {"whole": (100,), "back": (700,)}, OVERHEADS, step=lambda _: 0.0)
    assert told["whole"].start == 10_050
    going = a_snapshot([carrier_attempt("goes", 0)], [who_waits("whole", priority=9)], a_carrier(JobState.STOPPING))
    told = forecast(going, {"whole": (100,), "goes": (9000,)}, OVERHEADS, step=lambda _: 0.0)
    assert told["whole"].start == 10_050, "whoever is on board leaves with it"


def test_a_carrier_of_the_snapshot_is_charged_to_its_owner() -> None:
    policy = a_policy()
    policy = replace(policy, projects=(replace(policy.projects[0], owner_budget=Budget(0.25, 1)),))
    waiting = [replace(who_waits(owner), owner=owner) for owner in ("ada", "ben")]
    snapshot = replace(a_snapshot([], waiting, replace(a_carrier(), owner="ada")), policy=policy)
    estimates = forecast(snapshot, {"ada": (100,), "ben": (100,)}, OVERHEADS, step=lambda _: 0.0)
    assert estimates["ben"].start == 10_050, "the empty carrier has ended"
    assert estimates["ada"].start == 86_400, "ada's carrier has used her budget of the day: 900 s"


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING])
def test_a_forecast_lets_members_join_a_carrier_once_its_agent_is_expected(state: JobState) -> None:
    carrier = replace(a_carrier(state, 9_950.0), ready=False)
    snapshot = a_snapshot([], [who_waits("one", 1, priority=2), who_waits("eight", 8)], carrier)
    told = forecast(snapshot, {"one": (100,), "eight": (100,)}, OVERHEADS, step=lambda _: 0.0)
    assert (told["one"].start, told["eight"].start) == (10_050, 10_150)


# --- at random ----------------------------------------------------------------------------------------

SIZES = st.sampled_from([0.3, 0.5, 1, 2, 4, 7, None])
JOBS = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 2000), SIZES, st.integers(0, 3)), min_size=1, max_size=14
)


@settings(deadline=None, max_examples=150)
@given(jobs=JOBS, capacity=st.integers(1, 2), keep_warm=st.sampled_from([None, 300.0]))
def test_all_end_and_no_gpu_is_given_twice(
    jobs: list[tuple[int, int, float | None, int]], capacity: int, keep_warm: float | None
) -> None:
    asked = [
        a_whole_job(f"job{number}", submitted, work, priority)
        if gpus is None
        else a_member(f"job{number}", submitted, work, gpus, priority)
        for number, (submitted, work, gpus, priority) in enumerate(jobs)
    ]
    runs = Simulator(a_policy(capacity, keep_warm), OVERHEADS).run(asked)
    assert all(run.ended is not None and run.done == run.job.work for run in runs)
    changes = sorted(
        change
        for run in runs
        for begin, end in run.training_periods
        for change in ((begin, run.job.needed_gpus), (end, -run.job.needed_gpus))
        if end > begin
    )
    at_work = 0.0
    for _, change in changes:
        at_work += change
        assert at_work <= capacity * GPUS + 1e-9
