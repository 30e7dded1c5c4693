"""When something is tried again: ever later, never too late, and not all at once."""

import pytest

from job_queue.domain.backoff import FIRST_SECONDS, LONGEST_SECONDS, backoff_seconds


@pytest.mark.parametrize(("failures", "step"), [(1, 15), (2, 30), (3, 60), (6, 480), (7, 900), (8, 900), (500, 900)])
def test_the_wait_is_between_half_of_the_step_and_all_of_it(failures: int, step: int) -> None:
    waits = [backoff_seconds(f"job{number}", failures) for number in range(200)]
    assert step / 2 - 1 <= min(waits) < step * 0.6
    assert step * 0.9 < max(waits) <= step


def test_the_same_failure_gives_the_same_wait() -> None:
    assert backoff_seconds("job1", 3) == backoff_seconds("job1", 3)


def test_who_failed_together_does_not_come_back_together() -> None:
    assert len({backoff_seconds(f"job{number}", 7) for number in range(20)}) > 15


def test_its_bounds() -> None:
    assert (FIRST_SECONDS, LONGEST_SECONDS) == (15, 900)
