"""Jobs that accept several sizes, from their submission to the records of their attempts."""

from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.errors import InvalidRequest
from tests.jobs import NOW, OWNER, P5, a_request
from tests.queue_harness import Harness
from tests.unit.controller.test_aws_calls import Meter


def accepting(sizes: str, **tags: str) -> dict[str, Any]:
    first = int(sizes.split(maxsplit=1)[0])
    named = {"priority": "1", "instances": sizes, **tags}
    return {
        "ResourceConfig": {"InstanceType": P5, "InstanceCount": first, "VolumeSizeInGB": 30},
        "Tags": [{"Key": key, "Value": value} for key, value in named.items()],
    }


def sent(queue: Harness, attempt: str) -> int:
    return int(queue.training.requests[attempt]["ResourceConfig"]["InstanceCount"])


def had(queue: Harness, name: str) -> list[tuple[int, str, int | None]]:
    return [(it.attempt, it.outcome, it.instances) for it in queue.record(name).attempts]


def test_it_starts_small_and_comes_back_larger_once_it_was_preempted() -> None:
    queue = Harness(slots=8)
    queue.submit("busy", 5, 6)
    queue.submit("e", None, **accepting("8 4 2"))
    assert queue.job("e").slots == {"default": 2}
    assert sent(queue, "e-qstamp-1") == 2
    queue.end("busy-qstamp-1")
    for _ in range(3):
        queue.tick()
    assert queue.states() == {"e": "running"}, "what has come free is no reason to stop it"
    assert queue.job("e").slots == {"default": 2}
    queue.submit("urgent", 9, 8)
    queue.end("e-qstamp-1", "Stopped")
    queue.end("urgent-qstamp-1")
    assert sent(queue, "e-qstamp-2") == 8
    queue.end("e-qstamp-2")
    assert queue.state("e") == "completed"
    assert had(queue, "e") == [(1, "preempted", 2), (2, "completed", 8)]
    records = queue.repository.attempts.page(NOW - 1, queue.now + 1, 100, queue.now).attempts
    used = {it.training_job_name: (it.slots, it.instances) for it in records}
    assert used["e-qstamp-1"] == ({"default": 2}, {P5: 2})
    assert used["e-qstamp-2"] == ({"default": 8}, {P5: 8})


def test_one_that_is_tried_again_may_have_another_size() -> None:
    queue = Harness(slots=8)
    queue.submit("busy", 5, 4)
    queue.submit("e", None, **accepting("8 4", retries="1"))
    assert sent(queue, "e-qstamp-1") == 4
    queue.end("busy-qstamp-1")
    queue.end("e-qstamp-1", "Failed", failure="AlgorithmError: exit code 1")
    queue.tick(600)
    assert sent(queue, "e-qstamp-2") == 8


def test_where_sagemaker_lacks_so_many_a_smaller_size_is_tried() -> None:
    queue = Harness(slots=8)
    queue.training.script = [LaunchResult.NO_CAPACITY]
    queue.submit("e", None, **accepting("8 2"))
    assert queue.state("e") == "running"
    assert queue.job("e").slots == {"default": 2}


def test_what_makes_no_sense_is_refused_with_the_tag() -> None:
    queue = Harness(slots=8)
    wrong = accepting("8 4")
    wrong["ResourceConfig"]["InstanceCount"] = 4
    with pytest.raises(InvalidRequest) as refused:
        queue.submissions.submit(a_request("e", None, **wrong), OWNER)
    assert refused.value.field == "Tags[1].Value"
    assert queue.repository.record("e") is None


def test_it_is_the_same_queue_as_that_of_any_job_of_its_type() -> None:
    queue = Harness(slots=1)
    queue.submit("busy", 5)
    queue.submit("plain", 1)
    queue.submit("e", None, **accepting("2 1"))
    assert queue.job("e").waiting_queue == queue.job("plain").waiting_queue


@pytest.mark.parametrize("waits", [False, True])
def test_it_costs_no_call_more_than_a_job_of_one_size(waits: bool) -> None:
    calls, rows = set(), set()
    for changes in ({"ResourceConfig": accepting("4 2")["ResourceConfig"]}, accepting("4 2")):
        queue = Harness(slots=5)
        if waits:
            queue.submit("busy", 5, 5)
        queue.submit("plain", 0)
        meter = Meter(queue)
        queue.submit("e", None, **changes)
        queue.tick()
        calls.add((meter.total, meter.depth))
        rows.add(meter.rows)
    assert len(calls) == len(rows) == 1


def test_it_matches_a_warm_pool_of_the_size_that_it_gets() -> None:
    queue = Harness(slots=4)
    resources = {"InstanceType": P5, "InstanceCount": 2, "VolumeSizeInGB": 30, "KeepAlivePeriodInSeconds": 3600}
    queue.submit("first", 1, ResourceConfig=resources)
    queue.submit("busy", 5, 2)
    queue.end("first-qstamp-1")
    queue.submit("e", None, **accepting("4 2"))
    assert sent(queue, "e-qstamp-1") == 2
    assert queue.training.reused == {"first-qstamp-1": "e-qstamp-1"}
    assert not [call for call in queue.training.calls if call[0] == "release"]
