"""Waiting for what happens elsewhere, without guessing how long it takes."""

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")
PATIENCE = 900.0  # seconds; it only ends a test that hangs, on whatever machine


def until(condition: Callable[[], T]) -> T:
    """What `condition` gives as soon as that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {PATIENCE:.0f} s"
        time.sleep(0.02)
    return value


def processes(chosen: Callable[[dict[str, str]], bool]) -> list[psutil.Process]:
    """The processes that still run and whose environment is `chosen`."""
    found = []
    for process in psutil.process_iter():
        try:
            if chosen(process.environ()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or waits only for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
