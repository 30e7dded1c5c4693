"""A search over a queue in memory: what becomes of trials, and of a search whose process dies again and again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")

from sagemaker_queue.errors import Conflict, InvalidOption, NameTaken, NotFound, Unavailable  # noqa: E402
from sagemaker_queue.tuning.metric import SearchMetric  # noqa: E402
from sagemaker_queue.tuning.metric_log import GRACE_SECONDS  # noqa: E402
from sagemaker_queue.tuning.plan import StudyPlan, TrialRow  # noqa: E402
from sagemaker_queue.tuning.samplers import distributions, sampler_of  # noqa: E402
from sagemaker_queue.tuning.search import GIVE_UP_AFTER, Search, TrialChanged  # noqa: E402
from sagemaker_queue.tuning.space import Choice, Interval, Space  # noqa: E402
from sagemaker_queue.tuning.study import first_trials, open_study, read_study  # noqa: E402
from tests.client.tuning.cluster import URL, Cluster, Killed  # noqa: E402

SPACE: Space = {"x": Interval(-1, 1), "lr": Interval(1e-5, 1, log=True), "opt": Choice(("adam", "sgd"))}
LOSS = SearchMetric("loss", r"loss (\S+)")
STEPS = SearchMetric("loss", r"step (?P<step>\d+) loss (\S+)")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return tmp_path


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 0.3) ** 2 + abs(params["lr"] - 0.01) + (params["opt"] == "sgd"))


def lines(params: Mapping[str, Any]) -> list[str]:
    return ["begins", f"loss {loss(params)!r}"]


def a_plan(**changes: Any) -> StudyPlan:
    settings = {
        "name": "s",
        "space": SPACE,
        "metric": LOSS,
        "maximize": False,
        "queue": URL,
        "program_id": "c",
        "seed": 7,
    }
    return StudyPlan(**{**settings, **changes})


class Clock:
    """Goes on by so much with each look at it."""

    def __init__(self, step: float = 0) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def run(cluster: Cluster, plan: StudyPlan, trials: int = 6, parallel: int = 1, clock: Clock | None = None) -> Any:
    """Search to the end; gives the trials, what was told, and whether it was given up."""
    with open_study(plan) as study:
        queue: Any = cluster
        search = Search(
            study,
            queue,
            cluster,
            cluster.start,
            trials=trials,
            parallel=parallel,
            pause=cluster.tick,
            clock=clock or Clock(),
        )
        events = list(search.run())
        return study.rows(), events, search.gave_up


def rows(cluster: Cluster, plan: StudyPlan, **options: Any) -> list[TrialRow]:
    found: list[TrialRow] = run(cluster, plan, **options)[0]
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_it_finds_what_optuna_finds_alone(sampler: str) -> None:
    alone = optuna.create_study(sampler=sampler_of(sampler, 7, SPACE))
    for _ in range(20):
        trial = alone.ask(distributions(SPACE))
        alone.tell(trial, loss(trial.params))
    found = rows(Cluster(lines), a_plan(sampler=sampler), trials=20)
    assert [(row.params, row.value) for row in found] == [(trial.params, trial.value) for trial in alone.trials]
    assert [row.job for row in found[:2]] == ["s-000", "s-001"]
    assert len({row.params["x"] for row in found}) == 20  # each has a seed of its own


def test_a_process_that_dies_again_and_again_changes_nothing() -> None:
    """Each process dies a call later than the one before it, before or after the queue has done what it was asked."""
    undisturbed = rows(Cluster(lines), a_plan(name="undisturbed"), trials=15)
    cluster = Cluster(lines)
    found: list[TrialRow] | None = None
    deaths = 0
    while found is None:
        cluster.calls_left = deaths
        try:
            found = rows(cluster, a_plan(), trials=15)
        except Killed:
            deaths += 1
    assert deaths > 8
    assert [(row.params, row.value) for row in found] == [(row.params, row.value) for row in undisturbed]
    assert cluster.submissions == [f"s-{number:03}" for number in range(15)]


def test_a_trial_of_which_only_a_part_was_chosen_is_completed() -> None:
    cluster = Cluster(lines)
    with open_study(a_plan()) as study:
        half = study._study.ask()
        kept = half.suggest_float("x", -1, 1)
    found = rows(cluster, a_plan(), trials=3)
    assert [row.state for row in found] == ["completed"] * 3
    assert found[0].params["x"] == kept
    assert set(found[0].params) == set(SPACE)


def test_trials_run_side_by_side_and_no_more_than_may() -> None:
    cluster = Cluster(lines)
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum(job.state in ("pending", "running") for job in cluster.jobs.values()))

    cluster.before_tick = count
    found = rows(cluster, a_plan(), trials=10, parallel=4)
    assert most == 4
    assert len(found) == len(cluster.submissions) == 10


def test_a_preempted_trial_is_the_same_trial() -> None:
    cluster = Cluster(lines)
    cluster.preempt = {"s-001"}
    found, events, _ = run(cluster, a_plan())
    assert cluster.jobs["s-001"].attempts == ["preempted", "completed"]
    assert cluster.submissions == [f"s-{number:03}" for number in range(6)]
    assert [row.value for row in found] == [loss(row.params) for row in found]
    states = [e.trial.state for e in events if isinstance(e, TrialChanged) and e.trial.number == 1]
    assert states == ["submitted", "running", "preempted", "running", "completed"]


def test_the_last_figure_of_all_attempts_counts() -> None:
    """The second attempt finds its work done, and writes nothing."""
    cluster = Cluster(lambda params: ["loss 3", "loss 1"])
    cluster.preempt = {"s-000"}

    def forget() -> None:
        job = cluster.jobs["s-000"]
        if len(job.attempts) == 2:
            job.lines = []

    cluster.before_tick = forget
    assert [row.value for row in rows(cluster, a_plan(), trials=1)] == [3.0]


def test_hopeless_trials_are_cancelled_and_what_a_resumed_one_writes_again_is_no_news() -> None:
    def worse_and_worse(params: Mapping[str, Any]) -> list[str]:
        return [f"step {step} loss {number + step / 10}" for step in range(4)]

    number = 0

    def script(params: Mapping[str, Any]) -> list[str]:
        nonlocal number
        number += 1
        return worse_and_worse(params)

    cluster = Cluster(script)
    cluster.preempt = {"s-003"}
    found, events, _ = run(cluster, a_plan(metric=STEPS, pruner="median"), trials=8)
    assert [row.state for row in found] == ["completed"] * 5 + ["pruned"] * 3
    assert cluster.cancelled == ["s-005", "s-006", "s-007"]
    assert found[5].value is not None  # what it had come to
    assert all(row.reason is None for row in found)


def test_a_trial_that_was_given_up_when_the_process_died_is_pruned() -> None:
    cluster = Cluster(lambda params: ["step 0 loss 1", "step 1 loss 1"])
    plan = a_plan(metric=STEPS, pruner="median")
    rows(cluster, plan, trials=5)
    cluster.script = lambda params: ["step 0 loss 9", "step 1 loss 9", "step 2 loss 9", "step 3 loss 9"]
    deaths = 0
    while not cluster.cancelled:
        cluster.calls_left = deaths
        try:
            rows(cluster, plan, trials=6)
        except Killed:
            deaths += 1
    cluster.calls_left = None
    assert [row.state for row in rows(cluster, plan, trials=6)][5] == "pruned"
    assert cluster.submissions.count("s-005") == 1


def test_trials_that_fail_are_told_with_why_and_are_not_tried_again() -> None:
    cluster = Cluster(lines)
    cluster.fail = {"s-001": "AlgorithmError: out of memory"}
    found = rows(cluster, a_plan(), trials=3)
    assert [(row.state, row.reason) for row in found] == [
        ("completed", None),
        ("failed", "AlgorithmError: out of memory"),
        ("completed", None),
    ]
    assert found[1].value is None


def test_where_all_fail_no_more_are_begun() -> None:
    cluster = Cluster(lines)
    cluster.fail = {f"s-{number:03}": "no module named torch" for number in range(40)}
    found, _, gave_up = run(cluster, a_plan(), trials=40, parallel=2)
    assert gave_up
    assert GIVE_UP_AFTER <= len(found) <= GIVE_UP_AFTER + 1
    cluster.fail = {}
    found, _, gave_up = run(cluster, a_plan(), trials=10, parallel=2)
    assert (len(found), gave_up) == (10, False)


def test_a_continued_study_with_completed_trials_is_not_given_up() -> None:
    cluster = Cluster(lines)
    assert [row.state for row in rows(cluster, a_plan(), trials=2)] == ["completed", "completed"]
    cluster.fail = {f"s-{number:03}": "no module named torch" for number in range(20)}
    found, _, gave_up = run(cluster, a_plan(), trials=GIVE_UP_AFTER + 4)
    assert (len(found), gave_up) == (GIVE_UP_AFTER + 4, False)


@pytest.mark.parametrize(
    ("written", "reason"),
    [("nothing of the kind", "no line of its log matches 'loss (\\\\S+)'"), ("loss nan", "loss is not a number")],
)
def test_a_trial_without_a_figure_fails(written: str, reason: str) -> None:
    clock = Clock(step=GRACE_SECONDS / 4)  # its lines are waited for
    found = rows(Cluster(lambda params: [written]), a_plan(), trials=1, clock=clock)
    assert [(row.state, row.value) for row in found] == [("failed", None)]
    assert reason in (found[0].reason or "")


def test_a_trial_whose_job_somebody_cancels_fails() -> None:
    cluster = Cluster(lines)
    with open_study(a_plan()) as study:
        cluster.start(study.ask())
    cluster.cancel("s-000")
    found = rows(cluster, a_plan(), trials=2)
    assert [row.state for row in found] == ["failed", "completed"]
    assert "was stopped" in (found[0].reason or "")


def test_outages_are_endured() -> None:
    cluster = Cluster(lines)
    cluster.errors = [Unavailable("no answer")] * 5
    found = rows(cluster, a_plan(), trials=2)
    assert [row.state for row in found] == ["completed"] * 2
    cluster.errors = [Unavailable("no answer")] * 500
    with pytest.raises(Unavailable):
        rows(cluster, a_plan(), trials=3)


@pytest.mark.attack
def test_somebody_elses_job_of_a_trials_name_is_never_taken_for_it() -> None:
    """Nor does its log decide what the next trials are."""
    cluster = Cluster(lines)
    with open_study(a_plan()) as study:
        first = study.ask()
        first.note_submitted()
        second = study.ask()
    cluster.start(first)
    cluster.jobs["s-000"].tags = {"group": "s", "study": "another", "trial": "0"}
    with pytest.raises(NameTaken, match="not this study's"):
        rows(cluster, a_plan())
    del cluster.jobs["s-000"]
    cluster.start(second)
    cluster.jobs["s-001"].tags = {}
    with pytest.raises(NameTaken, match="not this study's"):
        rows(cluster, a_plan())


def test_a_job_that_the_queue_has_forgotten_is_not_run_again() -> None:
    cluster = Cluster(lines)
    with open_study(a_plan()) as study:
        study.ask().note_submitted()
    found = rows(cluster, a_plan(), trials=2)
    assert [row.state for row in found] == ["failed", "completed"]
    assert cluster.submissions == ["s-001"]


def test_a_study_has_one_process_at_a_time() -> None:
    with open_study(a_plan()):
        with pytest.raises(Conflict, match="by another process"), open_study(a_plan()):
            pass
        with open_study(a_plan(name="other")):
            pass


def test_what_a_process_left_half_written_is_undone(home: Path) -> None:
    whole = rows(Cluster(lines), a_plan(name="whole"), trials=6)
    cluster = Cluster(lines)
    rows(cluster, a_plan(), trials=3)
    (journal,) = home.glob("**/s.log")
    journal.write_bytes(journal.read_bytes() + b'{"op_code":4,"worker_id":"x')
    Path(f"{journal}.lock").touch()
    with read_study("s") as (_, found):
        assert len(found) == 3
    assert [row.params for row in rows(cluster, a_plan(), trials=6)] == [row.params for row in whole]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"space": {"x": Interval(-1, 2)}}, "the space"),
        ({"metric": SearchMetric("loss", r"loss=(\S+)")}, "the metric"),
        ({"maximize": True}, "small or large"),
        ({"sampler": "random"}, "the sampler"),
        ({"seed": 8}, "its seed"),
        ({"program_id": "another"}, "the command"),
        ({"queue": "http://127.0.0.1:2/prod"}, "the queue"),
    ],
)
def test_a_study_of_something_else_is_not_gone_on_with(change: Mapping[str, Any], words: str) -> None:
    with open_study(a_plan()):
        pass
    try:
        with pytest.raises(InvalidOption, match=words), open_study(a_plan(**change)):
            pass
    finally:
        with open_study(a_plan(seed=None, pruner="median")):  # may differ
            pass


def test_a_seed_that_nobody_gave_is_kept() -> None:
    whole = rows(Cluster(lines), a_plan(seed=None), trials=4)
    with read_study("s") as (settings, _):
        seed = settings["sampler"][1]
    again = rows(Cluster(lines), a_plan(name="again", seed=seed), trials=4)
    assert [row.params for row in again] == [row.params for row in whole]


def test_a_grid_is_gone_through_in_order() -> None:
    space: Space = {"a": Choice(("x", "y")), "n": Interval(1, 3, integer=True)}
    found = rows(Cluster(lambda p: [f"loss {p['n']}"]), a_plan(space=space, sampler="grid"), trials=6, parallel=3)
    assert [tuple(row.params.values()) for row in found] == [(a, n) for a in "xy" for n in (1, 2, 3)]


def test_a_study_can_be_kept_elsewhere_and_be_read(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/mine.db"
    with open_study(a_plan(), address) as study:
        study.ask()
    with read_study("s", address) as (settings, found):
        assert settings["metric"] == ["loss", LOSS.regex, "minimize"]
        assert [row.state for row in found] == ["not submitted"]
    with pytest.raises(NotFound), read_study("s"):
        pass
    with pytest.raises(NotFound), read_study("other", address):
        pass
    with pytest.raises(InvalidOption, match="storage"), open_study(a_plan(), "nosuch://host/x"):
        pass


def test_an_address_that_cannot_be_used_is_not_repeated() -> None:
    with pytest.raises(InvalidOption) as refused, open_study(a_plan(), "nosuch://user" + ":hidden@host/x"):
        pass
    assert "hidden" not in str(refused.value)


def test_the_first_trials_are_what_they_will_be() -> None:
    shown = first_trials(a_plan(), 3)
    assert [row.params for row in rows(Cluster(lines), a_plan(), trials=3, parallel=3)] == shown


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "../up", "a" * 46, "ä"])
def test_a_name_that_jobs_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="name of a study"):
        a_plan(name=name)
