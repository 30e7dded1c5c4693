"""The reason that a job's own record gives for its waiting."""

from dataclasses import replace

import pytest

from job_queue.api.queue_position import QueuePosition
from job_queue.domain.expectations.published_plan import PublishedPlan
from tests.jobs import NOW, a_job


@pytest.mark.parametrize(("held", "code"), [(False, "NOT_BEFORE"), (True, "HELD_BY_USER")])
def test_a_parked_job_that_a_user_holds_is_on_hold_whatever_it_waited_for_before(*, held: bool, code: str) -> None:
    later = int(NOW) + 3600
    job = replace(a_job(), parked=later, parked_for="NOT_BEFORE", not_before=later, held=held)
    found = QueuePosition(PublishedPlan()).reason(job)
    assert found is not None
    assert found.code == code
