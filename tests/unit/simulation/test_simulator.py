"""The simulator: what becomes of a few jobs, worked out by hand."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from job_queue.prediction.runtimes import JobTraits
from job_queue.scheduler import Backfill, Order, Policy, Pool, Project, Settings
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.metrics import finish_time_fairness, metrics_of, percentile, wait
from job_queue.simulation.simulator import Simulator
from job_queue.simulation.workload import Overheads, SimulatedJob

OVERHEADS = Overheads(provisioning=100, stopping=50, checkpoint_every=1000)


def a_job(name: str, submitted: float, work: float, priority: int = 1, instances: int = 1) -> SimulatedJob:
    return SimulatedJob(name, "all", priority, ({"p5": instances},), submitted, work)


def a_policy(capacity: int = 1, **settings: float | str | None) -> Policy:
    quota = {"p5": capacity}
    return Policy((Pool("p5", capacity),), (Project("all", quota=quota),), settings=Settings(**settings))  # type: ignore[arg-type]


def simulated(policy: Policy, *jobs: SimulatedJob) -> dict[str, JobRun]:
    return {run.job.name: run for run in Simulator(policy, OVERHEADS).run(jobs)}


def test_jobs_of_one_priority_run_one_after_the_other() -> None:
    runs = simulated(a_policy(), a_job("first", 0, 1000), a_job("second", 10, 500))
    assert [(run.starts, run.ended) for run in runs.values()] == [([0], 1100), ([1100], 1700)]
    assert (wait(runs["first"]), wait(runs["second"])) == (0, 1090)


def test_a_preempted_job_goes_on_from_its_checkpoint() -> None:
    runs = simulated(a_policy(), a_job("low", 0, 5000), a_job("high", 2600, 300, priority=2))
    low, high = runs["low"], runs["high"]
    assert high.starts == [2650], "stopping takes a while"
    assert high.ended == 2650 + 100 + 300
    assert low.starts == [0, 3050]
    assert (low.preemptions, low.lost) == (1, 500), "it had worked for 2,500 s, and saved after 2,000"
    assert low.ended == 3050 + 100 + 3000
    assert low.restarts == 50 + 100
    together = metrics_of(list(runs.values()))
    assert (together.preemptions, together.preemptions_most) == (0.5, 1)
    assert (together.lost_work, together.restart_overhead) == (500 / 5300, 150 / 5300)
    assert together.wait_longest == wait(low) == 6150 - 5000 - 100


def test_an_interactive_job_comes_first_and_is_not_preempted() -> None:
    """Document 002: "Interactive & Inference workloads will get precedence over training workloads"."""
    lab = replace(a_job("lab", 2600, 300, priority=0), interactive=True, preemptible=False)
    runs = simulated(a_policy(), a_job("t1", 0, 5000, priority=9), lab, a_job("t2", 2700, 300, priority=9))
    assert runs["lab"].starts == [2650]
    assert (runs["t1"].preemptions, runs["lab"].preemptions) == (1, 0)
    assert runs["t2"].starts[0] > runs["t1"].starts[1] > 2650


def test_without_checkpoints_it_begins_anew() -> None:
    jobs = a_job("low", 0, 5000), a_job("high", 2600, 300, priority=2)
    runs = Simulator(a_policy(), replace(OVERHEADS, checkpoint_every=None)).run(jobs)
    assert (runs[0].lost, runs[0].ended) == (2500, 3050 + 100 + 5000)


def test_slots_are_kept_for_a_patient_gang_from_the_moment_its_patience_ends() -> None:
    """Two one-slot jobs in turns would keep the gang out for ever; nothing but time passes when its patience ends."""
    small = [a_job(f"small{number}", number * 700, 1300) for number in range(20)]
    gang = a_job("gang", 1, 100, instances=2)
    patient, starved = (
        simulated(a_policy(2, patience=patience, backfill=Backfill.BOUNDED), *small, gang) for patience in (2000, None)
    )
    assert patient["gang"].starts[0] < starved["gang"].starts[0]
    assert patient["gang"].starts[0] > 2001
    assert all(run.ended for run in patient.values())


def test_a_guarantee_ends_without_any_other_event() -> None:
    runs = simulated(a_policy(min_runtime=900), a_job("low", 0, 5000), a_job("high", 10, 100, priority=2))
    assert runs["high"].starts == [900 + 50]


def test_each_preemption_within_a_day_doubles_the_guaranteed_runtime() -> None:
    """Urgent jobs run for 200 s each, and stopping takes 50 s."""
    urgent = {at: a_job(f"at {at}", at, 100, priority=2) for at in (600, 900, 3300, 100_000, 100_300)}
    runs = simulated(a_policy(), a_job("low", 0, 200_000), *urgent.values())
    starts = [runs[job.name].starts[0] for job in urgent.values()]
    assert starts[:3] == [650, 850 + 2100 + 50, 3200 + 4200 + 50]
    assert starts[3] == 100_050, "8,400 s after its last start nothing is guaranteed"
    assert starts[4] == 100_250 + 2100 + 50, "a day later the first three preemptions count no more"
    assert runs["low"].preemptions == 5


def test_by_order_of_shortest_with_predictions_a_users_short_jobs_pass_anothers_long_ones() -> None:
    """The first six of each are history; then four long jobs come, and four short ones after them."""
    ada, bob = JobTraits("all", "ada", size="1"), JobTraits("all", "bob", size="1")
    history = [replace(a_job(f"old{n}", n, 100), traits=ada) for n in range(6)]
    history += [replace(a_job(f"past{n}", 10 + n, 3000), traits=bob) for n in range(6)]
    jobs = [replace(a_job(f"long{n}", 30_000 + n, 3000), traits=bob) for n in range(4)]
    jobs += [replace(a_job(f"short{n}", 30_010 + n, 100), traits=ada) for n in range(4)]

    def last(order: Order, *, predicted: bool) -> str:
        policy = a_policy()
        policy = replace(policy, settings=replace(policy.settings, order=order))
        runs = Simulator(policy, OVERHEADS, predicted=predicted).run([*history, *jobs])
        return max(runs, key=lambda run: run.starts[0]).job.name

    assert last(Order.SHORTEST, predicted=True) == "long3"
    assert last(Order.SHORTEST, predicted=False) == "short3", "nothing is known of either"
    assert last(Order.SUBMISSION, predicted=True) == "short3"


@given(
    st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), min_size=1, max_size=14),
    st.sampled_from([0.1, 1.0, 5.0]),
    st.booleans(),
)
def test_by_order_of_shortest_a_job_starts_no_later_than_if_it_came_a_stretch_later_by_order_of_submission(
    drawn: list[tuple[int, int]], stretch: float, known: bool
) -> None:
    """One slot. Whatever is told of runtimes, right or wrong: here the runtime, or the contrary."""
    jobs = [
        replace(a_job(f"j{n:02}", come, work), max_runtime=work if known else 3001 - work)
        for n, (come, work) in enumerate(drawn)
    ]
    policy = a_policy(patience=None)
    policy = replace(policy, settings=replace(policy.settings, order=Order.SHORTEST, stretch=stretch))
    for run in Simulator(policy, OVERHEADS).run(jobs):
        until = run.job.submitted + stretch * (run.job.max_runtime or 0)
        free = 0.0  # when who comes then would start by order of submission
        for job in sorted(jobs, key=lambda job: job.submitted):
            if job.submitted <= until and job is not run.job:
                free = max(free, job.submitted) + OVERHEADS.provisioning + job.work
        assert run.starts[0] <= max(free, until)


def test_a_job_that_never_fits_never_ends() -> None:
    runs = simulated(a_policy(), a_job("large", 0, 10, instances=2), a_job("small", 0, 10))
    assert (runs["large"].ended, runs["small"].ended) == (None, 110)
    assert metrics_of(list(runs.values())).unfinished == 1


def test_a_job_that_never_fits_does_not_keep_a_policy_with_aging_busy_for_ever() -> None:
    runs = simulated(a_policy(aging=600.0), a_job("large", 0, 10, instances=2), a_job("small", 0, 10))
    assert (runs["large"].ended, runs["small"].ended) == (None, 110)


def test_within_a_step_a_preempted_job_restarts_no_earlier_than_its_own_stop_has_ended() -> None:
    policy = Policy((Pool("p", 1), Pool("q", 1)), (Project("all"),))
    either = ({"p": 1}, {"q": 1})
    low = replace(a_job("low", 0, 5000), demand=either)
    short = replace(a_job("short", 1, 914, priority=3), demand=({"q": 1},))  # until 1015
    high = replace(a_job("high", 970, 5000, priority=2), demand=({"p": 1},))
    runs = Simulator(policy, OVERHEADS, step=lambda _: 40.0).run([low, short, high])
    (_, stopped), *_ = runs[0].training_periods
    assert (runs[1].ended, runs[0].preemptions) == (1015, 1)
    assert runs[0].starts[1] >= stopped > 1015


def test_progress_is_told() -> None:
    told: list[int] = []
    Simulator(a_policy(), OVERHEADS, told.append).run([a_job("first", 0, 10), a_job("second", 0, 10)])
    assert told == sorted(told)
    assert told[-1] == 2


def test_the_window_bounds_what_is_planned_and_forgets_nobody() -> None:
    jobs = [a_job(f"job{number:03}", number / 10, 100) for number in range(30)]
    runs = simulated(a_policy(window=3), *jobs)
    assert [run.starts for run in runs.values()] == [[200.0 * number] for number in range(30)]


def test_finish_time_fairness_is_the_time_here_by_the_time_alone() -> None:
    here = simulated(a_policy(), a_job("other", 0, 900), a_job("own", 0, 900, priority=0))
    alone = simulated(a_policy(), a_job("own", 0, 900, priority=0))
    assert finish_time_fairness([here["own"]], list(alone.values())) == 2
    assert finish_time_fairness([here["other"]], list(alone.values())) is None


def test_percentiles_are_values_that_occur() -> None:
    assert [percentile([1, 2, 3, 4], percent) for percent in (25, 50, 95, 100)] == [1, 2, 4, 4]
    assert percentile([7], 1) == 7
