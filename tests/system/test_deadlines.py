"""Deadlines on a local cloud, with real processes: start times, cancellation, and a total over three attempts."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.system.conftest import System
from tests.system.test_queue import SHORT, count

TOTAL = 90  # seconds; enough for two starts on a busy machine


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def tags(**named: object) -> list[dict[str, str]]:
    return [{"Key": key, "Value": str(value)} for key, value in named.items()]


@pytest.mark.thorough
def test_a_job_starts_by_itself_at_its_time_and_a_late_job_is_cancelled(system: System, tmp_path: Path) -> None:
    for seconds in (5, 30, 180):  # on a busy machine, the time may have come before anybody looks
        begins, later = in_seconds(seconds), f"later-{seconds}"
        system.submit(later, SHORT, Tags=tags(not_before=begins))
        if (reason := system.job(later).reason) is not None:
            break
    assert reason is not None and reason.code == "NOT_BEFORE"
    system.wait_state(later, "completed")
    started = system.job(later).attempts[0].started
    assert started is not None
    assert started >= datetime.fromisoformat(begins)
    gate = tmp_path / "gate"
    for other in ("first", "second"):  # they take both slots
        system.run(other, count(1, gate), priority=5)
    system.submit("late", SHORT, Tags=tags(start_by=in_seconds(15), start_by_action="cancel"))
    system.wait_state("late", "stopped")
    assert "had not started by" in system.job("late").reason.message  # type: ignore[union-attr]
    gate.touch()
    for other in ("first", "second"):
        system.wait_state(other, "completed")


@pytest.mark.thorough
def test_the_total_runtime_counts_three_attempts(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def is_at(attempt: int) -> bool:
        return system.job("long").attempt == attempt

    system.run("long", count(100_000, gate), Tags=tags(priority=1, max_total_runtime=TOTAL))
    for attempt in (2, 3):
        system.queue.requeue("long")
        system.wait(f"attempt {attempt}", partial(is_at, attempt))
        system.wait_state("long", "running")
    system.wait_state("long", "stopped")
    job = system.job("long")
    assert "max_total_runtime" in job.reason.message  # type: ignore[union-attr]
    assert [it.outcome for it in job.attempts] == ["requeued", "requeued", "stopped"]
    gate.touch()
