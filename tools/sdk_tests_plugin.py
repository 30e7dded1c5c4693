"""A plugin of pytest for tools/sdk_tests.py: it writes each test's result to the file that SDK_TESTS_NOTES names.

If SDK_TESTS_QUEUE names a queue, QueueTrainingJobSession replaces the Session of the SageMaker SDK v2. The plugin runs
in an environment with the SDK, from a folder without other files.
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
import sagemaker.workflow.pipeline_context  # before the replacement, since this module derives classes from the session
from botocore.hooks import BaseEventHooks, HierarchicalEmitter

from sagemaker_queue import QueueClient, QueueTrainingJobSession

PASSED = "passed"

endings: dict[str, str] = {}
sessions: list[None] = []  # an item for each created session of this package


def replace_session(url: str) -> None:
    """Replace the SDK's session in all loaded modules of the SDK; modules that are loaded later import ours."""
    # The tests' sessions and their credentials are mocks. Requests to the queue are signed with other credentials.
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

    Otherwise the mock records the registration of our handlers as calls, and tests that check the mock's calls fail.
    """
    if owner is not None and not isinstance(getattr(owner, "events", None), BaseEventHooks):
        owner.events = HierarchicalEmitter()


def note(report: Any) -> None:
    """Record the result of a test or a part of it; a later success does not hide a failure."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        words = (crash.message if crash else str(report.longrepr)).strip().splitlines() or ["it gives no reason"]
        endings.setdefault(report.nodeid, words[0] if crash else words[-1])
        if endings[report.nodeid] == PASSED:  # the test passed, but its teardown failed
            endings[report.nodeid] = words[0]
    elif report.skipped:
        endings[report.nodeid] = "skipped"
    elif getattr(report, "when", "") == "call":
        endings[report.nodeid] = PASSED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Handle the report of a test's setup, call or teardown."""
    note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Handle the report of a collected file: a file that cannot be imported counts as a failed test."""
    if report.failed:
        note(report)


def pytest_sessionfinish() -> None:
    """Write all results after the last test."""
    Path(os.environ["SDK_TESTS_NOTES"]).write_text(json.dumps({"endings": endings, "sessions": len(sessions)}))


if address := os.environ.get("SDK_TESTS_QUEUE"):
    replace_session(address)
