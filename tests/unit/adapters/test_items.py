"""The rows of records: also those of earlier versions, and read by several threads."""

from dataclasses import replace

import pytest

from job_queue.adapters.items import job_from, job_item
from job_queue.domain.job import Dependency
from tests.jobs import a_job
from tests.queue_harness import Harness
from tests.threads import run_at_once


def test_a_row_of_before_there_were_groups_can_be_read() -> None:
    job = replace(a_job(), group=None)
    assert "group" not in job_item(job)
    assert job_from(job_item(job)).group is None
    assert job_from(job_item(replace(job, group="x"))).group == "x"


def test_whom_a_job_waits_for_and_how_many_of_its_group_may_run_are_kept() -> None:
    job = a_job()
    plain = job_item(job)
    assert not {"after", "maxParallel", "parkedFor"} & plain.keys()
    assert job_from(plain) == job
    after = (Dependency("a", "one"), Dependency("b", "two", any_outcome=True))
    job = replace(job, group="g", max_parallel=4, after=after, parked=1, parked_for="DEPENDENCY")
    assert job_from(job_item(job)) == job


def test_what_a_job_held_at_its_end_stays() -> None:
    queue = Harness(slots=2)
    held = queue.submit("job").job.slots
    assert held and "lastSlots" not in job_item(queue.job("job"))
    queue.end("job-qstamp-1")
    ended = queue.job("job")
    assert (ended.state.value, ended.slots, ended.last_slots) == ("completed", {}, held)
    assert ended.instances == sum(held.values()) and ended.started is not None
    assert job_from(job_item(ended)) == ended


@pytest.mark.parametrize(
    ("setup", "call"),
    [
        (
            "from job_queue.adapters.items import job_from, job_item; from tests.jobs import a_job; job = a_job()",
            "job_from(job_item(job))",
        ),
        (
            "from job_queue.domain.requests.training_request import TrainingRequest",
            "TrainingRequest.read({'ResourceConfig': {'InstanceType': 'ml.p5.48xlarge', 'InstanceCount': 1}})",
        ),
        (
            "from job_queue.adapters.sagemaker import training_job",
            "training_job({'TrainingJobName': 'a', 'TrainingJobStatus': 'InProgress', 'ResourceConfig': {}}, {})",
        ),
    ],
    ids=["job", "request", "training job"],
)
def test_threads_read_records_of_a_type_for_the_first_time_at_once(setup: str, call: str) -> None:
    run_at_once(setup, call)
