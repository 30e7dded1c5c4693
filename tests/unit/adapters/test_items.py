"""Rows that an earlier version has written."""

from dataclasses import replace

from job_queue.adapters.items import job_from, job_item
from tests.jobs import a_job


def test_a_row_of_before_there_were_groups_can_be_read() -> None:
    job = replace(a_job(), group=None)
    assert "group" not in job_item(job)
    assert job_from(job_item(job)).group is None
    assert job_from(job_item(replace(job, group="x"))).group == "x"
