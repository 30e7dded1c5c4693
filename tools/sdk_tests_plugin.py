"""A plugin of pytest for tools/sdk_tests.py: it notes how each test ended, in the file that SDK_TESTS_NOTES names.

If SDK_TESTS_QUEUE names a queue, QueueTrainingJobSession stands wherever the SageMaker SDK v2 has its Session. It runs
in an environment with the SDK, from a folder with nothing else.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import sagemaker.local
import sagemaker.session
import sagemaker.workflow.pipeline_context  # as sagemaker.local, it derives sessions from the SDK's, before it goes
from botocore.hooks import BaseEventHooks, HierarchicalEmitter

from sagemaker_queue import QueueClient, QueueTrainingJobSession

PASSED = "passed"

endings: dict[str, str] = {}
sessions: list[None] = []  # one for each of ours that was made


def put_ours_in_place(url: str) -> None:
    """Have every module of the SDK, and those that import from it later, find our session under the SDK's name."""
    # Sessions of these tests are mocks, and so are their credentials: the queue is asked with others.
    asks_as = boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="us-west-2")
    queue = QueueClient(url=url, boto_session=asks_as)
    theirs = sagemaker.session.Session

    class OurSession(QueueTrainingJobSession):
        def __init__(self, boto_session: Any = None, sagemaker_client: Any = None, *args: Any, **kwargs: Any) -> None:
            sessions.append(None)
            give_events(boto_session)
            give_events(getattr(sagemaker_client, "meta", None))
            super().__init__(boto_session, sagemaker_client, *args, **{"queue": queue, **kwargs})

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sagemaker":
            for attribute in [attribute for attribute, value in vars(module).items() if value is theirs]:
                setattr(module, attribute, OurSession)


def give_events(owner: Any) -> None:
    """Give a mock the events that a session or client of boto3 has.

    Otherwise it counts our handlers, which are registered there, among its own calls, and tests look at those.
    """
    if owner is not None and not isinstance(getattr(owner, "events", None), BaseEventHooks):
        owner.events = HierarchicalEmitter()


def note(report: Any) -> None:
    """Note how a test or a part of it ended; a failure is not forgotten if what follows succeeds."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        words = (crash.message if crash else str(report.longrepr)).strip().splitlines() or ["it gives no reason"]
        endings.setdefault(report.nodeid, words[0] if crash else words[-1])
        if endings[report.nodeid] == PASSED:  # it failed after it was over
            endings[report.nodeid] = words[0]
    elif report.skipped:
        endings[report.nodeid] = "skipped"
    elif getattr(report, "when", "") == "call":
        endings[report.nodeid] = PASSED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """After a test's setup, call and teardown."""
    note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """After a file was read: one that cannot be imported counts as a test that fails."""
    if report.failed:
        note(report)


def pytest_sessionfinish() -> None:
    """After the last test."""
    Path(os.environ["SDK_TESTS_NOTES"]).write_text(json.dumps({"endings": endings, "sessions": len(sessions)}))


if address := os.environ.get("SDK_TESTS_QUEUE"):
    put_ours_in_place(address)
