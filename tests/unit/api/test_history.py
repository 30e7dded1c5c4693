"""GET /history: attempts that have ended, page by page, by time, owner and project."""

import base64
import json
from typing import Any

import pytest

from job_queue.api.history_answers import gpus_of
from tests.jobs import NOW, OWNER, P5
from tests.unit.queue_api import STRANGER, Api

HOUR = 3600


def history(api: Api, **query: str) -> list[dict[str, Any]]:
    """Of all pages."""
    found: list[dict[str, Any]] = []
    while True:
        status, page = api.call("GET", "/history", **query)
        assert status == 200, page
        found += page["attempts"]
        if page["next"] is None:
            return found
        query["next"] = page["next"]


def names(api: Api, **query: str) -> list[str]:
    return [attempt["job"] for attempt in history(api, **query)]


@pytest.fixture
def api() -> Api:
    """Four jobs, one after the other, which end an hour apart."""
    api = Api(slots=1)
    for number in range(4):
        name = f"job{number}"
        api.queue.submit(name, owner=OWNER)
        launched = api.queue.now
        api.queue.now += HOUR
        api.queue.training.run(f"{name}-qstamp-1", launched + 60, api.queue.now)
        api.queue.end(f"{name}-qstamp-1")
    return api


def test_an_attempt_has_its_times_and_what_it_used(api: Api) -> None:
    first = history(api)[0]
    assert (first["job"], first["attempt"], first["outcome"]) == ("job0", 1, "completed")
    assert (first["instances"], first["instanceCount"], first["gpus"]) == ({P5: 1}, 1, 8)
    assert (first["provisionedSeconds"], first["ranSeconds"]) == (60, HOUR - 60)
    assert (first["owner"], first["project"], first["slots"]) == (OWNER, "default", {"default": 1})
    assert first["trainingJobName"] == "job0-qstamp-1"


@pytest.mark.parametrize("limit", ["1", "2", "3", "500"])
def test_pages_follow_one_another(api: Api, limit: str) -> None:
    assert names(api, limit=limit) == ["job0", "job1", "job2", "job3"]


def test_a_time_has_its_beginning_and_not_its_end(api: Api) -> None:
    ends = [attempt["ended"] for attempt in history(api)]
    assert names(api, since=ends[1], until=ends[3]) == ["job1", "job2"]
    assert names(api, since=ends[2]) == ["job2", "job3"]


def test_without_a_time_it_is_that_of_seven_days(api: Api) -> None:
    api.queue.now += 7 * 24 * HOUR - 90 * 60
    assert names(api) == ["job2", "job3"]


@pytest.mark.parametrize(
    ("owner", "found"), [(OWNER, 4), (STRANGER, 0), ("arn:aws:iam::*:user/*", 4), ("*", 4), ("ada", 0)]
)
def test_it_can_be_that_of_an_owner(api: Api, owner: str, found: int) -> None:
    assert len(names(api, owner=owner, limit="2")) == found


def test_it_can_be_that_of_a_project(api: Api) -> None:
    assert len(names(api, project="default")) == 4
    assert names(api, project="vision") == []


def test_it_outlives_the_jobs(api: Api) -> None:
    for where in [where for where in api.queue.tables.rows if where[0] == "sagemaker-queue"]:
        del api.queue.tables.rows[where]
    assert len(names(api)) == 4


def token(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-13-01T00:00:00Z"}, "since"),
        ({"until": "9999-12-31T23:59:59-14:00"}, "until"),  # is no time in UTC
        ({"since": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"}, "until"),
        ({"limit": "501"}, "limit"),
        ({"owner": ""}, "owner"),
        ({"owner": "a" * 3000}, "owner"),
        ({"next": "nonsense"}, "next"),
        ({"next": token({"live": "x"})}, "next"),
        ({"next": token({"history": "2026-99-99"})}, "next"),
        ({"next": token({"history": "2026-11-01", "more": 1})}, "next"),
        ({"next": token({"history": ["2026-11-01"]})}, "next"),
        ({"next": token({"finished": None})}, "next"),
        ({"next": "x" * 600}, "next"),
    ],
)
def test_what_makes_no_sense_is_refused(api: Api, query: dict[str, str], field: str) -> None:
    status, error = api.call("GET", "/history", **query)
    assert (status, error["code"], error["field"]) == (400, "InvalidRequest", field)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "1970-01-01T00:00:00", "0"])
def test_far_times_find_what_there_is(api: Api, time: str) -> None:
    assert len(names(api, **{"since" if time < "2" else "until": time})) == 4
    assert api.queue.now > NOW


@pytest.mark.parametrize(
    ("instances", "gpus"),
    [({P5: 2}, 16), ({P5: 1, "ml.g5.xlarge": 2}, 10), ({P5: 1, "ml.m5.large": 1}, None), ({}, None)],
)
def test_gpus_are_those_of_the_instances(instances: dict[str, int], gpus: int | None) -> None:
    assert gpus_of(instances) == gpus
