"""benchmarks/policies.py: each published policy on jobs of which the right schedule is known."""

from collections.abc import Callable

import pytest

from benchmarks.policies import POLICIES, PROVISIONING, STOPPING, Cluster, ClusterJob, tail

# name, submitted, seconds of work, slots
Row = tuple[str, float, float, int]


def started(policy: str, *rows: Row, capacity: int = 4) -> dict[str, float]:
    """Return the wait of each job before its first start, without preemptions."""
    return {job.name: job.wait for job in run(policy, *rows, capacity=capacity)}


def run(policy: str, *rows: Row, capacity: int = 4) -> list[ClusterJob]:
    jobs = [
        ClusterJob(name, number, submitted, work, slots, gpus=8 * slots)
        for number, (name, submitted, work, slots) in enumerate(rows)
    ]
    return Cluster(capacity, POLICIES[policy]()).run(jobs)


LONG, GANG, SHORT, LONGER = ("long", 0, 1000, 3), ("gang", 1, 100, 4), ("short", 2, 500, 1), ("longer", 3, 2000, 1)


def test_fifo_blocks_behind_the_first_that_does_not_fit() -> None:
    waits = started("FIFO", LONG, GANG, SHORT)
    assert waits == {"long": 0, "gang": 1179, "short": 1178 + PROVISIONING + 100}


def test_easy_passes_the_first_job_without_delaying_it() -> None:
    waits = started("EASY, exact runtimes", LONG, GANG, SHORT, LONGER)
    assert (waits["gang"], waits["short"]) == (1179, 0)
    assert waits["longer"] == 1177 + PROVISIONING + 100, "it would end after the gang can start"


def test_easy_uses_what_the_first_job_leaves_over() -> None:
    three = ("three", 1, 100, 3)
    waits = started("EASY, exact runtimes", ("two", 0, 1000, 2), three, ("longer", 2, 2000, 1), ("more", 3, 2000, 1))
    assert (waits["three"], waits["longer"]) == (1179, 0)
    assert waits["more"] > 1000, "one slot is left over when three starts, and not two"


def test_without_a_prediction_nothing_is_backfilled() -> None:
    assert started("EASY, predicted", LONG, GANG, SHORT)["short"] > 1000


def test_shortest_first_passes_and_a_strict_order_does_not() -> None:
    rows = (("all", 0, 1000, 3), ("gang", 1, 50, 4), ("short", 2, 100, 1))
    assert started("shortest first, an oracle", *rows)["short"] == 0
    assert started("shortest first, an oracle, strict", *rows)["short"] > 1000


def test_tiresias_lets_new_jobs_preempt_those_that_had_their_share() -> None:
    old, new = run("Tiresias", ("old", 0, 10_000, 4), ("new", 5000, 100, 4))
    assert (old.preemptions, new.wait) == (1, STOPPING)
    assert old.ended is not None and old.done == 3600, "the work since the checkpoint at 3,600 s is lost"
    first, second = run("Tiresias", ("first", 0, 10_000, 4), ("second", 200, 100, 4))
    assert first.preemptions == 1, "after 3,250 GPU-seconds, and not before"
    assert second.wait == pytest.approx(PROVISIONING + 3250 / 32 - 200 + STOPPING, abs=1)


def test_qssf_takes_the_smallest_predicted_service_first() -> None:
    history = [(f"small-{n}", 500.0 * n, 100.0, 1) for n in range(6)]
    history += [(f"large-{n}", 500.0 * n, 400.0, 4) for n in range(6)]
    jobs = [(name, submitted, work, slots) for name, submitted, work, slots in sorted(history, key=lambda it: it[1])]
    waits = started(
        "QSSF, predicted", *jobs, ("busy", 90_000, 5000, 4), ("large-9", 90_001, 400, 4), ("small-9", 90_002, 100, 1)
    )
    assert waits["small-9"] < waits["large-9"]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_that_fits_ends(policy: str) -> None:
    rows: list[Row] = [(f"job-{n}", 97.0 * n, 300.0 + 1700 * (n % 7), 1 + n % 4) for n in range(120)]
    jobs = run(policy, *rows, ("too-large", 0, 1, 5))
    assert len(jobs) == 120
    assert all(job.ended is not None and job.wait >= 0 for job in jobs)


def test_the_tail_is_a_nearest_rank() -> None:
    values: Callable[[int], list[float]] = lambda n: [float(value) for value in range(1, n + 1)]  # noqa: E731
    assert (tail(values(1000)), tail(values(3000)), tail(values(5))) == (999, 2997, 5)
