"""What is alive is found in an account with any number of ended training jobs, in few calls."""

import itertools
from dataclasses import replace

import pytest

from job_queue.adapters.lookups.training_list import PAGE, ListedJob
from job_queue.adapters.sagemaker import TrainingJob
from job_queue.controller.fleet.survey import MOST_PAGES
from job_queue.controller.reconciler import MOST_DESCRIBED, WALK_SECONDS
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.listing import (
    DAY_SECONDS,
    LONGEST_LIFE_SECONDS,
    SKEW_SECONDS,
    ListingProgress,
    next_listing,
)
from tests.jobs import NOW, P5
from tests.queue_harness import Harness

_numbers = itertools.count()


def has_ended(queue: Harness, count: int, age: float = 0, every: float = 30) -> None:
    """So many training jobs were made and ended, the last one so many seconds ago."""
    for back in range(count):
        name = f"ended{next(_numbers)}"
        queue.training.jobs[name] = TrainingJob(name, f"arn:{name}", "Completed", "Completed", None, {P5: 1}, {})
        queue.training.created[name] = queue.now - age - back * every


def runs_outside(queue: Harness, name: str, age: float) -> None:
    queue.start_outside(name)
    queue.training.created[name] = queue.now - age


def lists(queue: Harness) -> int:
    """Calls of ListTrainingJobs since this was last asked."""
    calls = queue.training.calls.count(("list", ""))
    queue.training.calls.clear()
    return calls


def counted(queue: Harness) -> set[str]:
    return {job.name for job in queue.repository.external()}


def test_an_external_job_is_found_behind_the_newest_five_hundred() -> None:
    queue = Harness(slots=1)
    has_ended(queue, 650)
    runs_outside(queue, "theirs", age=650 * 30)
    has_ended(queue, 50, age=700 * 30)
    queue.tick()
    assert counted(queue) == {"theirs"}
    queue.submit("job1", 1)
    assert queue.state("job1") == "pending"


def test_behind_fifty_thousand_ended_ones_all_is_found_within_half_an_hour_and_then_a_walk_is_a_page() -> None:
    queue = Harness(slots=10)
    has_ended(queue, 50_000)
    ages = (60, 30 * 20_000 + 1, 30 * 49_000 + 1)
    for number, age in enumerate(ages):
        runs_outside(queue, f"theirs{number}", age)
    minutes = 0
    while len(counted(queue)) < len(ages):
        queue.tick()
        minutes += 1
        assert lists(queue) <= MOST_PAGES
    assert minutes <= 50_000 / PAGE / MOST_PAGES + 2
    for _ in range(3):
        queue.tick()
        lists(queue)
    queue.tick()
    assert lists(queue) == 1


def test_a_long_job_that_is_known_does_not_lengthen_the_walk() -> None:
    queue = Harness(slots=2)
    queue.submit("job1", 1)
    queue.training.created["job1-qstamp-1"] -= 20 * DAY_SECONDS
    has_ended(queue, 1500)
    queue.tick()
    lists(queue)
    queue.tick()
    assert lists(queue) == 1
    queue.training.end("job1-qstamp-1")
    queue.tick()
    assert queue.state("job1") == "completed"


def test_an_outage_of_the_schedule_is_made_good() -> None:
    queue = Harness(slots=3)
    queue.tick()
    queue.now += 5 * DAY_SECONDS
    has_ended(queue, PAGE * MOST_PAGES * 2 + 50, every=100)
    runs_outside(queue, "theirs", age=5 * DAY_SECONDS - 3600)
    for _ in range(3):
        queue.tick()
    assert counted(queue) == {"theirs"}
    lists(queue)
    queue.tick()
    assert lists(queue) == 1


def test_what_was_forgotten_is_found_again_within_a_day() -> None:
    queue = Harness(slots=3)
    runs_outside(queue, "theirs", age=3600)
    queue.tick()
    assert counted(queue) == {"theirs"}
    queue.repository.drop_external("theirs")
    has_ended(queue, 500)
    for _ in range(3):
        queue.tick()
    assert counted(queue) == set(), "a walk looks for what is new"
    queue.now += DAY_SECONDS
    has_ended(queue, 500)
    for _ in range(2):
        queue.tick()
    assert counted(queue) == {"theirs"}


def test_who_could_not_be_described_is_met_again() -> None:
    queue = Harness(slots=300)
    for number in range(2 * MOST_DESCRIBED):
        runs_outside(queue, f"theirs{number}", age=3600)
    for _ in range(4):
        has_ended(queue, 2 * PAGE, every=0.1)
        queue.tick()
    assert len(counted(queue)) == 2 * MOST_DESCRIBED


@pytest.mark.parametrize("first", [0, MOST_DESCRIBED])
def test_a_job_with_the_name_of_a_training_job_does_not_hide_it(first: int) -> None:
    """A job's attempt is described in each comparison: that says nothing about a training job with the job's name."""
    names = [f"same{number:02}" for number in range(2 * MOST_DESCRIBED)]
    queue = Harness(slots=300)
    of_jobs = names[first : first + MOST_DESCRIBED]
    for name in of_jobs:
        queue.accept(name, 1)
    queue.wake()
    for name in names:
        queue.training.jobs.pop(f"{name}-qstamp-1", None)
        runs_outside(queue, name, age=7200 if name in of_jobs else 3600)
    has_ended(queue, 2 * PAGE, age=5000, every=0.1)
    for _ in range(4):
        has_ended(queue, 2 * PAGE, every=0.1)
        queue.tick()
    assert counted(queue) == set(names)


def test_a_sweep_that_is_interrupted_goes_on_where_it_was() -> None:
    queue = Harness(slots=3)
    has_ended(queue, 6000, every=300)
    runs_outside(queue, "theirs", age=5900 * 300)
    queue.tick()
    page, calls = queue.training.page, itertools.count()

    def failing(names: list[str]) -> object:
        queue.training.down = next(calls) == 10
        return page(names)

    queue.training.page = failing  # type: ignore[assignment,method-assign]
    queue.tick()
    queue.training.down = False
    reached = queue.repository.metadata().listing
    assert reached is not None
    assert queue.now - reached.since > 2500 * 300
    queue.training.page = page  # type: ignore[method-assign]
    while not counted(queue):
        queue.tick()


@pytest.mark.parametrize("seconds", [1.2, 4.9])
def test_a_slow_list_is_read_in_parts_and_delays_no_cycle(seconds: float) -> None:
    queue = Harness(slots=3)
    has_ended(queue, 2000, every=300)
    runs_outside(queue, "theirs", age=1900 * 300)
    page = queue.training.page

    def slow(names: list[str]) -> list[ListedJob]:
        queue.now += seconds
        return page(names)

    queue.training.page = slow  # type: ignore[method-assign]
    while not counted(queue):
        began = queue.now
        queue.controller.tick(queue.invocation())
        assert queue.now - began < WALK_SECONDS + seconds + 5
        queue.now += 60
        assert queue.now < NOW + 1800, "each walk makes progress"


def test_walks_that_run_side_by_side_claim_nothing_that_is_not_so() -> None:
    queue = Harness(slots=3)
    queue.tick()
    runs_outside(queue, "theirs", age=0)
    before = queue.repository.metadata().listing
    assert before is not None
    queue.tick()
    queue.repository.note_listing(before)  # another walk, which began before it, ends after it
    queue.tick()
    assert counted(queue) == {"theirs"}


# --- when a comparison has succeeded ----------------------------------------------------------------


def test_a_walk_that_ends_after_its_most_pages_is_a_successful_comparison() -> None:
    queue = Harness(slots=3)
    has_ended(queue, PAGE * (MOST_PAGES + 5))
    queue.tick()
    known = queue.repository.metadata()
    assert known.listing is not None
    assert known.listing.has_unread_part
    assert known.reconciled == int(queue.now)


def test_a_comparison_fails_if_each_training_job_that_it_must_describe_cannot_be_described() -> None:
    queue = Harness(slots=3)
    queue.tick()
    succeeded = queue.repository.metadata().reconciled
    runs_outside(queue, "theirs", age=0)
    describe = queue.training.describe

    def denied(name: str) -> object:
        raise Unavailable("SageMaker did not answer.")

    queue.training.describe = denied  # type: ignore[assignment,method-assign]
    queue.tick(60)
    assert queue.repository.metadata().reconciled == succeeded
    queue.training.describe = describe  # type: ignore[method-assign]
    queue.tick(60)
    assert counted(queue) == {"theirs"}
    assert queue.repository.metadata().reconciled == int(queue.now)


def test_a_new_process_knows_the_last_successful_comparison() -> None:
    queue = Harness(slots=3)
    queue.tick()
    succeeded = queue.now
    queue.training.down = True
    for _ in range(3):
        queue.tick(60)
    restarted = Harness(slots=3, tables=queue.tables)
    assert restarted.repository.metadata().reconciled == int(succeeded)


# --- what is known -----------------------------------------------------------------------------------


def test_without_a_listing_nothing_is_known() -> None:
    listing = next_listing(None, NOW)
    assert listing.until <= NOW - LONGEST_LIFE_SECONDS


def test_what_was_made_by_a_clock_that_was_ahead_is_not_believed() -> None:
    ahead = ListingProgress(0, int(NOW) + 3600, 0, int(NOW))
    assert next_listing(ahead, NOW) == next_listing(None, NOW)
    assert next_listing(replace(ahead, until=int(NOW) + SKEW_SECONDS), NOW).until > NOW


@pytest.mark.parametrize("late", [1, SKEW_SECONDS - 1])
def test_a_training_job_that_comes_into_the_list_late_is_found(late: int) -> None:
    queue = Harness(slots=3)
    has_ended(queue, 3 * PAGE, every=1)
    queue.tick()
    runs_outside(queue, "theirs", age=late)  # created before the last walk, and not in its list
    has_ended(queue, 3 * PAGE, every=0.1)
    queue.tick()
    assert counted(queue) == {"theirs"}
