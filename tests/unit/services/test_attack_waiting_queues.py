"""One person opens all waiting queues of a project: there is always room for somebody who has fewer."""

import json
from contextlib import suppress
from typing import Any

import botocore.session
import pytest

from job_queue.adapters.metadata import WAITING_QUEUES_OF_PROJECT
from job_queue.domain.errors import TooMany
from job_queue.services.submission import Accepted
from tests.jobs import P5, a_request
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack

EVE, ADA, BOB = (f"arn:aws:iam::123456789012:user/{name}" for name in ("eve", "ada", "bob"))


def types() -> list[str]:
    model: Any = botocore.session.Session().get_service_model("sagemaker")
    return list(model.shape_for("TrainingInstanceType").enum)


def opened(queue: Harness, owner: str) -> int:
    """How many waiting queues this person can open."""
    count = 0
    for instance_type in types()[:150]:
        name = f"{owner[-3:]}-{instance_type}".replace(".", "-")
        resources = {"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 30}
        if f"waiting#default#{instance_type}" in queue.repository.metadata().waiting_queues:
            continue
        try:
            accepted: Accepted = queue.submissions.submit(a_job_on(name, resources), owner, preflight=False)
        except TooMany as refused:
            assert "are for other users" in refused.message
            return count
        assert accepted.record.job.waiting_queue in queue.repository.metadata().waiting_queues
        count += 1
    return count


def a_job_on(name: str, resources: dict[str, object]) -> dict[str, object]:
    return a_request(name, ResourceConfig=resources)


def test_nobody_opens_more_than_are_left() -> None:
    queue = Harness(slots=0)
    counts = [opened(queue, owner) for owner in (EVE, ADA, BOB)]
    assert counts[0] == WAITING_QUEUES_OF_PROJECT // 2
    assert counts[0] > counts[1] > counts[2] > 0
    assert sum(counts) < WAITING_QUEUES_OF_PROJECT


def test_who_has_opened_a_waiting_queue_is_not_forgotten_when_others_use_it() -> None:
    queue = Harness(slots=0)
    queue.accept("first", owner=EVE)
    queue.now += 3000
    queue.accept("second", owner=ADA)
    (owner,) = queue.repository.metadata().opened_by.values()
    assert owner == EVE


def test_what_a_project_usually_asks_for_has_its_waiting_queue_whoever_came_before() -> None:
    """Also where one person has many identities, each of which opens what it may."""
    queue = Harness(slots=0)
    pools = [{"name": "gpu", "instance_type": P5, "capacity": 1}]
    document = {"pools": pools, "projects": [{"name": "default"}], "settings": {"allow_oversubscription": True}}
    queue.repository.apply_policy(json.dumps(document), 0, "somebody", queue.now)
    others = [it for it in types() if it != P5][:60]
    for number, instance_type in enumerate(others):
        resources = {"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 30}
        with suppress(TooMany):
            name, session = f"eve-{number}", f"arn:aws:sts::123456789012:assumed-role/team/eve-{number}"
            queue.submissions.submit(a_job_on(name, resources), session, preflight=False)
    assert len(queue.repository.metadata().waiting_queues) == WAITING_QUEUES_OF_PROJECT
    assert not queue.accept("usual", owner=ADA).known
    assert f"waiting#default#{P5}" in queue.repository.metadata().waiting_queues
