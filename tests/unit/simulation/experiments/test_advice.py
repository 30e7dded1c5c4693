"""Advice on settings: which are tried, which are chosen, and when nothing can be told."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from job_queue.scheduler import Backfill, Order, Policy, Pool, Project, Settings
from job_queue.simulation.experiments.advice import (
    FEWEST_JOBS,
    Advisor,
    Insufficient,
    Objection,
    SettingsAdvice,
    Simulate,
    TimeLimit,
)
from job_queue.simulation.experiments.advice_report import (
    CLASS_HEADERS,
    HEADERS,
    advice_as_json,
    advice_page,
    report_of,
)
from job_queue.simulation.experiments.candidates import CHANGES, SettingChange, changes_of, with_changes
from job_queue.simulation.experiments.experiment import OnMoment
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.report import PolicyOutcome
from job_queue.simulation.trace import TraceJob
from job_queue.simulation.workload import SimulatedJob

HOUR, DAY = 3600.0, 86400.0
SETTINGS = Settings(min_runtime=6 * HOUR, backfill=Backfill.BOUNDED)
POLICY = Policy((Pool("p5", 4),), (Project("vision", quota={"p5": 4}),), settings=SETTINGS)


def a_trace(jobs: int = FEWEST_JOBS, days: float = 7) -> list[TraceJob]:
    return [TraceJob(f"job-{n}", n * days * DAY / (jobs - 1), 600, 8, "vision", priority=n % 2) for n in range(jobs)]


Rule = Callable[[Settings, int], float]


def waiting(rule: Rule, rho: Callable[[Settings], float] | None = None, looks: int = 1) -> Simulate:
    """Return a simulation in which each job waits as a rule says, from the settings and the number of the job.

    :param looks: times that a simulation of changed settings looks at the clock.
    """

    def simulate(label: str, policy: Policy, trace: Sequence[TraceJob], watch: OnMoment) -> PolicyOutcome:
        for _ in range(looks if policy != POLICY else 1):
            watch("Simulation", 0, len(trace))
        runs = []
        for number, row in enumerate(trace):
            job = SimulatedJob(row.name, "vision", row.priority or 0, ({"p5": 1},), row.submitted, row.duration)
            runs.append(JobRun(job, ended=row.submitted + row.duration + rule(policy.settings, number)))
        return PolicyOutcome(label, policy, runs, {"vision": rho(policy.settings)} if rho else {})

    return simulate


def advised(
    simulate: Simulate, trace: Sequence[TraceJob] | None = None, seconds: float = 100, tick: float = 0
) -> SettingsAdvice:
    """Return advice, with a clock that advances by `tick` each time that it is read."""
    ticks = count(step=tick)
    return Advisor(POLICY, simulate, TimeLimit(lambda: float(next(ticks)), seconds)).advise(
        a_trace() if trace is None else trace
    )


def three_causes(settings: Settings, _: int) -> float:
    """Return a wait to which three settings add something each."""
    wait = 1000.0
    wait += 3000 if settings.order is Order.SUBMISSION else 0
    wait += 2000 if settings.backfill is Backfill.BOUNDED and settings.patience is not None else 0
    return wait + (1000 if settings.min_runtime is not None else 0)


def lines(advice: SettingsAdvice) -> list[str]:
    return sorted(change.line for change in advice.chosen.changes) if advice.chosen else []


def test_the_three_settings_that_cause_the_wait_are_advised() -> None:
    advice = advised(waiting(three_causes))
    assert lines(advice) == ["backfill: predicted", "min_runtime: null", "order: shortest"]
    assert advice.gain == pytest.approx(1 - 1000 / 7000)


def test_a_line_that_adds_nothing_is_not_advised() -> None:
    """Of two settings that act on the same cause, one is enough."""

    def waits(settings: Settings, _: int) -> float:
        return 1000.0 if settings.backfill is Backfill.PREDICTED or settings.patience is None else 5000.0

    assert lines(advised(waiting(waits))) == ["backfill: predicted"]


def test_a_line_that_later_lines_make_needless_is_left_out() -> None:
    """The two best changes by themselves are not those that together remove the wait."""

    def waits(settings: Settings, _: int) -> float:
        guaranteed, bounded = settings.min_runtime is not None, settings.backfill is Backfill.BOUNDED
        if not guaranteed and not bounded:
            return 100.0
        some = [5000, 4000 + 500 * guaranteed + 500 * bounded]
        some += [3100] if settings.order is Order.SHORTEST else []
        some += [3000 - 1000 * (not guaranteed)] if settings.usage_half_life is not None else []
        return float(min(some))

    advice = advised(waiting(waits))
    assert lines(advice) == ["backfill: predicted", "min_runtime: null"]
    assert max(len(trial.changes) for trial in advice.trials) == 3, "it was found with a third line"


def test_no_more_lines_than_a_person_reads() -> None:
    def waits(settings: Settings, number: int) -> float:
        return three_causes(settings, number) + (1500 if settings.usage_half_life is None else 0)

    assert len(lines(advised(waiting(waits)))) == 3


@pytest.mark.parametrize(
    ("rule", "objection"),
    [
        (lambda settings, n: 1000.0 - 40 * (settings.order is Order.SHORTEST), Objection.NO_GAIN),
        (
            lambda settings, n: 1000.0 if settings.order is Order.SUBMISSION else (1100 if n < FEWEST_JOBS / 2 else 0),
            Objection.ONE_HALF,
        ),
        (
            lambda settings, n: 1000.0 if settings.order is Order.SUBMISSION else (1150 if n % 2 else 0),
            Objection.HIGHEST,
        ),
    ],
)
def test_an_improvement_with_an_objection_is_not_advised(rule: Rule, objection: Objection) -> None:
    advice = advised(waiting(rule))
    (shortest,) = [it for it in advice.trials if it.changes == (SettingChange("order", Order.SHORTEST),)]
    assert (shortest.objection, advice.chosen, advice.insufficient) == (objection, None, None)
    assert "No change of the settings is advised" in advice_page(advice)


def test_a_project_is_not_worse_off_than_alone() -> None:
    fair = waiting(three_causes, lambda settings: 0.98)
    unfair = waiting(three_causes, lambda settings: 1.2 if settings.order is Order.SHORTEST else 0.98)
    assert "order: shortest" in lines(advised(fair))
    assert "order: shortest" not in lines(advised(unfair))


@pytest.mark.parametrize(
    ("trace", "rule", "reason", "told"),
    [
        (a_trace(FEWEST_JOBS - 1), three_causes, Insufficient.JOBS, "Too little history"),
        (a_trace(days=2.9), three_causes, Insufficient.DAYS, "Too little history"),
        ([], three_causes, Insufficient.JOBS, "Too little history"),
        (a_trace(), lambda settings, n: 301.0 * (n < 19), Insufficient.WAITING, "19 jobs wait for more than 5m00s"),
    ],
)
def test_too_little_is_said_clearly(trace: list[TraceJob], rule: Rule, reason: Insufficient, told: str) -> None:
    advice = advised(waiting(rule), trace)
    assert (advice.insufficient, advice.chosen, advice.trials) == (reason, None, ())
    assert told in advice_page(advice)
    assert advice_as_json(advice)["lines"] == []


def test_enough_waiting() -> None:
    assert advised(waiting(lambda settings, n: 301.0 * (n < 20))).insufficient is None


def test_a_long_history_is_shortened_to_its_latest_part() -> None:
    """One simulation may take a small part of the time; here the first takes too long."""

    simulate = waiting(three_causes)

    parts: list[str] = []

    def slow(label: str, policy: Policy, trace: Sequence[TraceJob], watch: OnMoment) -> PolicyOutcome:
        for _ in range(len(trace) // 50):
            watch("Simulation", 0, len(trace))
        parts.append(trace[0].name)
        return simulate(label, policy, trace, watch)

    advice = advised(slow, a_trace(800, days=28), tick=1, seconds=200)
    assert (advice.jobs, advice.of_jobs, set(parts)) == (400, 800, {"job-400"})
    assert "the latest 400 jobs in 14.0 days (of 800 jobs" in advice_page(advice)


def test_when_the_time_is_over_the_rest_is_untried() -> None:
    advice = advised(waiting(three_causes, looks=6), tick=1, seconds=40)
    assert advice.untried
    assert advice.chosen is not None, "the best of those that were tried"
    assert f"No time was left to try {advice.untried[0].line}" in advice_page(advice)
    assert advised(waiting(three_causes), tick=1, seconds=1).insufficient is Insufficient.TIME


def test_candidates_are_other_values_of_settings() -> None:
    for change in CHANGES:
        assert hasattr(POLICY.settings, change.setting)
    settings = with_changes(POLICY, CHANGES[:1]).settings
    assert settings == replace(POLICY.settings, order=Order.SHORTEST)
    assert SettingChange("order", Order.SHORTEST) not in changes_of(settings)
    assert SettingChange("order", Order.SUBMISSION) in changes_of(settings)
    assert [SettingChange("x", value).line for value in (None, 1800.0, 0.5, True, Order.SHORTEST)] == [
        *("x: null", "x: 1800", "x: 0.5", "x: true", "x: shortest")
    ]


def test_the_page_fits_the_terminal() -> None:
    advice = advised(waiting(three_causes, lambda settings: 0.98))
    for width in (60, 80, 120):
        assert max(map(len, advice_page(advice, width).splitlines())) <= width
    page = advice_page(advice)
    for text in ("as in force", "order: shortest", "not 5 % better", "priority 1", "86% less", "settings:\n  "):
        assert text in page


def test_the_report_has_the_parts_of_the_page() -> None:
    advice = advised(waiting(three_causes, lambda settings: 0.98))
    report = report_of(advice)
    assert report.rows[0][0] == "as in force"
    assert {len(row) for row in report.rows} == {len(HEADERS)}
    assert {len(row) for row in report.classes} == {len(CLASS_HEADERS)}
    assert len({row[0] for row in report.rows}) == len(report.rows), "the page needs unique names"
    assert list(report.lines[1:]) == [
        f"  {name}: {json.dumps(value)}".replace('"', "") for name, value in report.settings.items()
    ]
    for part in (report.basis, *report.remarks, report.conclusion, "\n".join(report.lines)):
        assert part in advice_page(advice)
