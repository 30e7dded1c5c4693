"""One person submits without end: the others' jobs are accepted and found among theirs."""

import json
from typing import Any

import pytest

from job_queue.adapters.job_repository import RECOUNT_SECONDS, JobRepository
from job_queue.domain.errors import TooMany
from job_queue.domain.job import Job
from tests.jobs import a_request
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack

EVE, ADA = (f"arn:aws:iam::123456789012:user/{name}" for name in ("eve", "ada"))
FLEET = {"pools": [{"name": "p", "capacity": 1}], "projects": [{"name": "default"}]}


def queue_of(limit: int | None = None) -> Harness:
    queue = Harness(slots=0)
    if limit is not None:
        document = json.dumps({**FLEET, "settings": {"max_waiting": limit, "allow_oversubscription": True}})
        queue.repository.apply_policy(document, 0, "somebody", queue.now)
    return queue


def submit(queue: Harness, name: str, owner: str = EVE, **changes: Any) -> None:
    queue.submissions.submit(a_request(name, **changes), owner)


def flood(queue: Harness, owner: str = EVE, most: int = 2000) -> int:
    """How many jobs are accepted of somebody."""
    for number in range(most):
        try:
            submit(queue, f"{owner[-3:]}-{number}", owner)
        except TooMany:
            return number
    return most


def test_nobody_has_more_waiting_than_the_policy_says_and_others_are_accepted() -> None:
    queue = queue_of(5)
    assert flood(queue) == 5
    assert flood(queue, ADA) == 5


@pytest.mark.thorough
def test_without_a_policy_it_is_a_thousand() -> None:
    assert flood(queue_of()) == 1000


def test_the_refusal_says_what_to_do() -> None:
    queue = queue_of(2)
    flood(queue)
    with pytest.raises(TooMany) as refused:
        submit(queue, "one-more")
    assert refused.value.message == "An owner may have 2 waiting jobs at a time, and you have as many."
    assert "max_waiting" in str(refused.value.issues[0].remedy)
    assert queue.repository.record("one-more") is None


def test_who_sends_the_same_request_again_is_answered_as_before() -> None:
    queue = queue_of(2)
    flood(queue)
    assert queue.submissions.submit(a_request("eve-1"), EVE).known


def test_jobs_that_have_started_or_were_cancelled_are_not_counted_for_long() -> None:
    queue = queue_of(3)
    assert flood(queue) == 3
    queue.cancel("eve-0")
    assert queue.states() == {"eve-1": "running", "eve-2": "pending"}
    queue.now += RECOUNT_SECONDS
    submit(queue, "another")
    submit(queue, "and-another")
    with pytest.raises(TooMany):
        submit(queue, "yet-another")


def test_refusals_cost_one_count_in_half_a_minute_however_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(3)
    flood(queue)
    queue.now += RECOUNT_SECONDS
    read: list[str] = []
    waiting = JobRepository.waiting

    def counted(repository: JobRepository, key: str, limit: int | None = None, after: str | None = None) -> list[Job]:
        read.append(key)
        return waiting(repository, key, limit, after)

    monkeypatch.setattr(JobRepository, "waiting", counted)
    for _ in range(50):
        with pytest.raises(TooMany):
            submit(queue, "one-more")
    assert len(read) == len(queue.repository.metadata().waiting_queues)


def test_a_limit_that_was_raised_holds_within_half_a_minute() -> None:
    queue = queue_of(3)
    flood(queue)
    document = json.dumps({**FLEET, "settings": {"max_waiting": 4, "allow_oversubscription": True}})
    queue.repository.apply_policy(document, 1, "somebody", queue.now)
    queue.now += RECOUNT_SECONDS
    submit(queue, "a-fourth")
