"""The tag `group`: jobs that people treat as one. It is shown wherever a job is, and schedules nothing."""

from dataclasses import replace

from api_contract.models import JobSummary
from job_queue.adapters.items import job_from, job_item
from job_queue.api.queue_position import QueuePosition
from job_queue.api.responses import summary
from tests.jobs import a_job
from tests.queue_harness import Harness


def test_the_group_of_a_job_is_kept_and_shown() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", Tags=[{"Key": "group", "Value": "layers 2-4"}])
    queue.submit("job2", Tags=[{"Key": "group", "Value": ""}])
    assert (queue.job("job1").group, queue.job("job2").group) == ("layers 2-4", None)
    assert summary(JobSummary, queue.job("job1"), QueuePosition.nowhere()).group == "layers 2-4"


def test_a_row_of_before_there_were_groups_can_be_read() -> None:
    job = replace(a_job(), group=None)
    assert "group" not in job_item(job)
    assert job_from(job_item(job)).group is None
