"""The tag `after` at submission: whom a job may wait for, and who is told what is wrong."""

import copy
from typing import Any

import pytest

from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import Dependency
from job_queue.domain.requests.scheduling_tags import MOST_DEPENDENCIES
from tests.jobs import OWNER, a_request
from tests.queue_harness import Harness

OTHER = "arn:aws:iam::123456789012:user/bob"


def a_dependent(after: str, name: str = "b") -> dict[str, Any]:
    return a_request(name, None, Tags=[{"Key": "team", "Value": "x"}, {"Key": "after", "Value": after}])


def a_queue() -> Harness:
    """a runs, c waits, and of d, e and f each has ended in another way."""
    queue = Harness(slots=4)
    for name, status in (("d", "Completed"), ("e", "Failed"), ("f", "Stopped")):
        queue.submit(name, 1)
        queue.end(f"{name}-qstamp-1", status)
    queue.submit("a", 1)
    queue.submit("c", 1, instances=4)
    return queue


def refused(queue: Harness, after: str) -> InvalidRequest:
    before = copy.deepcopy(queue.tables.rows)
    with pytest.raises(InvalidRequest) as error:
        queue.submissions.submit(a_dependent(after), OWNER)
    with pytest.raises(InvalidRequest):
        queue.submissions.validate(a_dependent(after), OWNER)
    counted = ("sagemaker-queue-lines", "owners", OWNER)
    assert {place: row for place, row in queue.tables.rows.items() if place != counted} == {
        place: row for place, row in before.items() if place != counted
    }
    assert error.value.field == "Tags[1].Value"
    return error.value


@pytest.mark.parametrize("text", ["a c:any", "a+c:any", " a:ok  c:any ", "a c:any a c:any"])
def test_several_may_be_named(text: str) -> None:
    queue = a_queue()
    job = queue.submissions.submit(a_dependent(text), OWNER).record.job
    submissions = [queue.job(name).submission for name in ("a", "c")]
    assert job.after == (Dependency("a", submissions[0]), Dependency("c", submissions[1], any_outcome=True))
    assert queue.job("b") == job


def test_what_has_ended_as_asked_is_not_waited_for() -> None:
    queue = a_queue()
    queue.submissions.submit(a_dependent("d e:any f:any"), OWNER)
    queue.wake()
    assert queue.state("b") == "running"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody", "There is no job named nobody"),
        ("a nobody", "There is no job named nobody"),
        ("b", "b cannot wait for itself"),
        ("b:any a", "b cannot wait for itself"),
        ("e", "e has failed, and this job is to run once it has completed: it never would"),
        ("f:ok", "f has stopped"),
        ("", "not ''"),
        ("a:", "not 'a:'"),
        ("a:never", "not 'a:never'"),
        (":any", "not ':any'"),
        ("-x-", "not '-x-'"),
        ("a a:any", "twice"),
        ("a-qstamp-1", "There is no job named a-qstamp-1"),
        (" ".join(f"j{n}" for n in range(MOST_DEPENDENCIES + 1)), f"it may name {MOST_DEPENDENCIES}"),
    ],
)
def test_a_job_that_could_never_start_is_refused(text: str, said: str) -> None:
    assert said in refused(a_queue(), text).message


def test_there_are_no_cycles_as_only_jobs_that_are_there_can_be_named() -> None:
    queue = Harness()
    assert "no job named c" in refused(queue, "c").message
    queue.submit("b", 1)
    queue.submissions.submit(a_dependent("b", "c"), OWNER)
    with pytest.raises(InvalidRequest):
        queue.submissions.submit(a_dependent("c", "c"), OWNER)


def test_anybodys_job_may_be_named() -> None:
    queue = a_queue()
    queue.submissions.submit(a_dependent("a"), OTHER)
    assert [it.job for it in queue.job("b").after] == ["a"]


def test_the_same_request_again_is_known_however_the_others_have_ended_meanwhile() -> None:
    queue = a_queue()
    first = queue.submissions.submit(a_dependent("a"), OWNER)
    queue.end("a-qstamp-1", "Failed")
    again = queue.submissions.submit(a_dependent("a"), OWNER)
    assert again.known
    assert again.record.job.submission == first.record.job.submission
    with pytest.raises(InvalidRequest):
        queue.submissions.submit(a_dependent("a"), OTHER)


def test_once_the_job_has_expired_the_same_request_is_a_new_one() -> None:
    queue = a_queue()
    queue.submissions.submit(a_dependent("a"), OWNER)
    queue.end("a-qstamp-1", "Failed")
    queue.now += 2000
    with pytest.raises(InvalidRequest, match="a has failed"):
        queue.submissions.submit(a_dependent("a"), OWNER)


def test_a_dependent_that_could_never_start_for_another_reason_is_told_so() -> None:
    queue = a_queue()
    request = {**a_dependent("a"), "ResourceConfig": a_request(instances=9)["ResourceConfig"]}
    with pytest.raises(InvalidRequest, match="there are only 4 in total"):
        queue.submissions.submit(request, OWNER)


def test_a_dry_run_says_what_it_would_wait_for() -> None:
    queue = a_queue()
    job = queue.submissions.validate(a_dependent("a c:any"), OWNER).job
    _, decided, advice = queue.dry_run.what_if(job)
    (hold,) = (hold for hold in decided.holds if hold.job == "b")
    assert hold.message == "Waits for a (running) to complete and c (waiting) to end."
    assert advice == ["Nothing to do: it continues when these jobs have ended as requested."]
