"""The client as the package gives it, and what stands for a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue import QueueClient

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def queue(server: ScriptedServer) -> QueueClient:
    return QueueClient(url=server.url, pause_seconds=0)
