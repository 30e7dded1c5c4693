"""Time-outs of `smq doctor` that no busy machine exceeds, and no request to AWS or to a name server."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.config import Config

from sagemaker_queue.workflows.doctor import caller, identity_step, job_steps, network
from tests.client.conftest import NOBODY
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers of a test answer as late as the machine makes them."""
    once = Config(connect_timeout=PATIENCE, read_timeout=PATIENCE, retries={"total_max_attempts": 1})
    for module, name in ((caller, "_ONE_QUESTION"), (job_steps, "_ONE_QUESTION"), (identity_step, "_READABLE")):
        monkeypatch.setattr(module, name, once)
    for module in (caller, network):
        monkeypatch.setattr(module, "SECONDS", PATIENCE)


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let STS and IAM refuse connections, unless a test has its own. A silent name server would cost 10 s a request."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def watched(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).endswith(".amazonaws.com"):
            asked.append(str(host))
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    for service in ("STS", "IAM"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", NOBODY)
    yield
    assert asked == []
