"""The clients of these tests, which take a second to make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from sagemaker_queue import QueueClient, boto_session
from tests.client.integrations.boto.hooked_clients import HookedClients

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


@pytest.fixture(scope="session")
def lasting_clients() -> HookedClients:
    return HookedClients()


@pytest.fixture
def clients(lasting_clients: HookedClients, server: ScriptedServer, queue: QueueClient) -> Iterator[HookedClients]:
    lasting_clients.server = server
    boto_session(lasting_clients.session, queue=queue, preflight=False)
    with mock_aws():
        yield lasting_clients
    assert not server.script, "not all answers were asked for"
