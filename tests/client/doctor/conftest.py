"""Time-outs of `smq doctor` that no busy machine exceeds."""

import pytest
from botocore.config import Config

from sagemaker_queue.workflows.doctor import caller, identity_step, job_steps, network
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers of a test answer as late as the machine makes them."""
    once = Config(connect_timeout=PATIENCE, read_timeout=PATIENCE, retries={"total_max_attempts": 1})
    for module, name in ((caller, "_ONE_QUESTION"), (job_steps, "_ONE_QUESTION"), (identity_step, "_READABLE")):
        monkeypatch.setattr(module, name, once)
    for module in (caller, network):
        monkeypatch.setattr(module, "SECONDS", PATIENCE)
