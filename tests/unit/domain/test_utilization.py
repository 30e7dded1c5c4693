"""The figures of an attempt's utilization: mean and 95th percentile, of all GPUs, and never 0 for missing data."""

from dataclasses import replace

import pytest

from job_queue.domain.accounting.attempts import AttemptRecord, MeasuredUtilization
from job_queue.domain.accounting.utilization import (
    GPU,
    GPU_MEMORY,
    MEMORY,
    METRICS,
    MOST_HOSTS,
    MOST_POINTS,
    due,
    is_measurable,
    period_of,
    utilization_of,
)
from job_queue.domain.job import epoch, iso
from tests.jobs import P5

BEGAN = epoch("2026-11-27T06:00:30Z")
DAY = 24 * 3600.0


def ran(seconds: float, **changes: object) -> AttemptRecord:
    """Return the record of an attempt that ran for this long on one instance with eight GPUs."""
    record = AttemptRecord(
        job="a", submission="s", attempt=1, training_job_name="a-qstamp-1", project="default", owner="ann",
        outcome="completed", priority=0, slots={"p5": 1}, instances={P5: 1}, submitted=iso(BEGAN),
        waiting_since=iso(BEGAN), launched=iso(BEGAN), ended=iso(BEGAN + seconds), began=iso(BEGAN),
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


def test_mean_and_percentile_are_of_all_gpus_of_all_instances() -> None:
    two = ran(1200, instances={P5: 2})
    gpu = {"h1": {60.0 * minute: 800.0 for minute in range(20)}, "h2": {60.0 * minute: 0.0 for minute in range(19)}}
    found = {GPU: gpu, GPU_MEMORY: {"h1": {0.0: 80.0, 60.0: 400.0}}, MEMORY: {"h1": {0.0: 10.4}, "h2": {0.0: 11.0}}}
    assert utilization_of(two, found) == MeasuredUtilization(52, 50, 30, 50, 11, 11, idle=0)


def test_the_percentile_leaves_out_the_highest_twentieth() -> None:
    rising = {60.0 * minute: 8.0 * minute for minute in range(1, 101)}
    used = utilization_of(ran(6000), {GPU: {"h1": rising}})
    assert (used.gpu_mean, used.gpu_p95) == (50, 95)


def test_idle_seconds_are_those_in_which_all_instances_are_idle() -> None:
    busy = {60.0 * minute: 800.0 if minute < 4 else 4.9 for minute in range(10)}
    idle = {60.0 * minute: 0.0 for minute in range(10)}
    assert utilization_of(ran(600), {GPU: {"h1": busy}}).idle == 360
    assert utilization_of(ran(600, instances={P5: 2}), {GPU: {"h1": busy, "h2": idle}}).idle == 360
    assert utilization_of(ran(90), {GPU: {"h1": {0.0: 0.0, 60.0: 0.0}}}).idle == 90, "not more than it ran"


def test_missing_data_is_none_and_not_zero() -> None:
    assert utilization_of(ran(600), {}) == MeasuredUtilization()
    assert utilization_of(ran(600), {GPU: {}, MEMORY: {"h1": {0.0: 0.0}}}) == MeasuredUtilization(
        memory_mean=0, memory_p95=0
    )


def test_instances_with_different_numbers_of_gpus_have_no_figures_of_gpus() -> None:
    mixed = ran(600, instances={P5: 1, "ml.g5.xlarge": 1})
    used = utilization_of(mixed, {GPU: {"h1": {0.0: 800.0}}, MEMORY: {"h1": {0.0: 5.0}}})
    assert used == MeasuredUtilization(memory_mean=5, memory_p95=5, idle=0)
    with_cpus = ran(600, instances={P5: 1, "ml.c5.xlarge": 2})
    assert utilization_of(with_cpus, {GPU: {"h1": {0.0: 800.0}}}).gpu_mean == 100


@pytest.mark.parametrize(
    ("changes", "seconds", "age", "measured"),
    [
        ({}, 60.0, 0.0, True),
        ({}, 59.0, 0.0, False),  # SageMaker reports once a minute
        ({"began": None}, 600.0, 0.0, False),
        ({"instances": {"ml.c5.xlarge": 1}}, 600.0, 0.0, False),
        ({"instances": {"ml.trn1.32xlarge": 1}}, 600.0, 0.0, False),
        ({"instances": {"ml.c5.xlarge": 1, P5: 1}}, 600.0, 0.0, True),
        ({"instances": {}, "carrier": "c"}, 600.0, 0.0, False),
        ({"carries": 8}, 600.0, 0.0, True),
        ({"utilization": MeasuredUtilization()}, 600.0, 0.0, False),  # measured, and there was no data
        ({}, 600.0, 15 * DAY, False),
    ],
)
def test_attempts_with_gpus_of_their_own_are_measured_once(
    changes: dict[str, object], seconds: float, age: float, measured: bool
) -> None:
    assert is_measurable(ran(seconds, **changes), BEGAN + seconds + age) is measured


@pytest.mark.parametrize("seconds", [60.0, 600.0, 3 * 3600.0, 3 * DAY, 28 * DAY])
@pytest.mark.parametrize("instances", [1, 2, 1000])
def test_one_call_takes_any_attempt(seconds: float, instances: int) -> None:
    asked = period_of(ran(seconds, instances={P5: instances}))
    assert asked.hosts[:2] == ["a-qstamp-1/algo-1", "a-qstamp-1/algo-2"][: min(2, instances)]
    assert len(asked.hosts) == min(instances, MOST_HOSTS)
    assert len(METRICS) * MOST_HOSTS <= 500
    points = (asked.until - asked.since) / asked.period
    assert points <= MOST_POINTS + 1
    assert len(METRICS) * MOST_HOSTS * (MOST_POINTS + 1) <= 100_800
    assert asked.since <= BEGAN < BEGAN + seconds <= asked.until
    assert asked.period % (60 if seconds < DAY else 300) == 0


def test_attempts_are_due_ten_minutes_after_their_end_in_the_order_of_their_ends() -> None:
    long, short = ran(1200), ran(600, training_job_name="b-qstamp-1")
    assert due([long, short], BEGAN + 1200) == [short]
    assert due([long, short], BEGAN + 1800) == [short, long]
