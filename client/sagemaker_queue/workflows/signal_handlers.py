"""Handlers of signals for the time of a block."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle these signals, and restore the former handlers at the end of the block."""
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
