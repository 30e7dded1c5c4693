"""What the log writes, for the tests to read."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from job_queue.adapters.telemetry import log


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the log writes from now on."""
    handler = log.registered_handler
    assert isinstance(handler, logging.StreamHandler)
    buffer = io.StringIO()
    before = handler.setStream(buffer)
    yield buffer
    handler.setStream(before)


def lines_of(written: io.StringIO) -> list[dict[str, Any]]:
    """The lines since the last look."""
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    written.seek(0)
    written.truncate()
    return lines
