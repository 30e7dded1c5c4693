"""The client has a method for each operation of the API, and gives its answers in the declared types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sagemaker_queue
from api_contract.models import JobSummary
from api_contract.routes import LIST_JOBS, OPERATIONS, Operation
from api_contract.shape import Answer
from sagemaker_queue import QueueClient
from tests.client.conftest import ScriptedServer
from tests.client.samples import job

REQUEST = {"TrainingJobName": "job1"}
METHODS: dict[str, Callable[[QueueClient], Any]] = {
    "addJob": lambda queue: queue.submit(REQUEST),
    "listJobs": lambda queue: next(queue.jobs()),
    "describeJob": lambda queue: queue.job("job1"),
    "cancelJob": lambda queue: queue.cancel("job1"),
    "changeJob": lambda queue: queue.change("job1", priority=1),
    "planJob": lambda queue: queue.plan(REQUEST),
    "describeQueue": lambda queue: queue.queue(),
    "describePolicy": lambda queue: queue.policy(),
    "policyHistory": lambda queue: queue.policy_history(),
    "applyPolicy": lambda queue: queue.apply_policy({}, 0),
    "rollBackPolicy": lambda queue: queue.roll_back_policy(1, 2),
    "whoAmI": lambda queue: queue.whoami(),
}
ENOUGH = {**job("job1", "running", 1), "jobs": [job("job1", "running", 1)], "version": 1, "owner": "arn:ann"}


def test_no_operation_is_left_out() -> None:
    assert set(METHODS) == {operation.id for operation in OPERATIONS}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_each_operation_is_called_and_read_as_it_is_declared(
    server: ScriptedServer, queue: QueueClient, operation: Operation[Answer]
) -> None:
    server.answers(200, ENOUGH)
    answer = METHODS[operation.id](queue)
    (received,) = server.received
    path = received.path.partition("?")[0]
    assert (received.method, path) == (operation.method, "/prod" + operation.path.replace("{name}", "job1"))
    assert type(answer) is (JobSummary if operation is LIST_JOBS else operation.answer)


def test_users_find_the_answers_by_the_packages_own_names() -> None:
    for operation in OPERATIONS:
        if operation is not LIST_JOBS:
            assert getattr(sagemaker_queue, operation.answer.__name__) is operation.answer
