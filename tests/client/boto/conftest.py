"""The clients of these tests, which take a second to make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from sagemaker_queue import QueueClient, boto_session
from tests.client.boto.world import World

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


@pytest.fixture(scope="session")
def lasting_world() -> World:
    return World()


@pytest.fixture
def world(lasting_world: World, server: ScriptedServer, queue: QueueClient) -> Iterator[World]:
    lasting_world.server = server
    boto_session(lasting_world.session, queue=queue, preflight=False)
    with mock_aws():
        yield lasting_world
    assert not server.script, "not all answers were asked for"
