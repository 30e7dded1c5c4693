"""The client has a method for each operation of the API, and gives its answers in the declared types."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

import sagemaker_queue
from api_contract.history import PastAttempt
from api_contract.models import JobSummary
from api_contract.routes import LIST_HISTORY, LIST_JOBS, OPERATIONS, Operation
from api_contract.shape import Answer
from sagemaker_queue import QueueClient
from tests.client.conftest import ScriptedServer
from tests.client.samples import job
from tests.threads import run_at_once, run_in_a_fork

REQUEST = {"TrainingJobName": "job1"}
METHODS: dict[str, Callable[[QueueClient], Any]] = {
    "addJob": lambda queue: queue.submit(REQUEST),
    "listJobs": lambda queue: next(queue.jobs()),
    "listHistory": lambda queue: next(queue.history(datetime(2026, 11, 1, tzinfo=timezone.utc))),
    "describeJob": lambda queue: queue.job("job1"),
    "cancelJob": lambda queue: queue.cancel("job1"),
    "changeJob": lambda queue: queue.change("job1", priority=1),
    "planJob": lambda queue: queue.plan(REQUEST),
    "describeQueue": lambda queue: queue.queue(),
    "describePolicy": lambda queue: queue.policy(),
    "policyHistory": lambda queue: queue.policy_history(),
    "applyPolicy": lambda queue: queue.apply_policy({}, 0),
    "previewPolicy": lambda queue: queue.preview(capacity={"p5": 10}),
    "rollBackPolicy": lambda queue: queue.roll_back_policy(1, 2),
    "drainPool": lambda queue: queue.drain("p5"),
    "undrainPool": lambda queue: queue.undrain("p5"),
    "whoAmI": lambda queue: queue.whoami(),
}
ATTEMPT = {"job": "job1", "attempt": 1}
YIELDED = {LIST_JOBS.id: JobSummary, LIST_HISTORY.id: PastAttempt}  # page by page
LISTS = {"attempts": [ATTEMPT], "jobs": [job("job1", "running", 1)]}
ENOUGH = {**job("job1", "running", 1), **LISTS, "version": 1, "owner": "arn:ann", "pool": "p5"}


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
    assert type(answer) is YIELDED.get(operation.id, operation.answer)


def test_users_find_the_answers_by_the_packages_own_names() -> None:
    for operation in OPERATIONS:
        answer = YIELDED.get(operation.id, operation.answer)
        assert getattr(sagemaker_queue, answer.__name__) is answer


FIRST_ANSWER = (
    "from api_contract.models import JobDetail; from tests.client.samples import DETAIL",
    "JobDetail.from_json(DETAIL)",
)


def test_threads_read_answers_of_a_type_for_the_first_time_at_once() -> None:
    run_at_once(*FIRST_ANSWER)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_process_that_is_forked_while_a_thread_reads_an_answer_can_read_answers() -> None:
    run_in_a_fork(*FIRST_ANSWER)
