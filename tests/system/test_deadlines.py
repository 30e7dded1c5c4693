"""Deadlines on a local cloud, with real processes: start times, cancellation, and a total over three attempts."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api_contract.models import FINISHED
from sagemaker_queue import Conflict, InvalidRequest
from tests.system.conftest import System
from tests.system.test_queue import SHORT, count

TOTALS = (90, 360)  # seconds; on a busy machine, the shorter time may be over before the third attempt
LONGER = (5, 30, 180, 600)  # seconds; on a busy machine, the shorter times may be over before anybody looks


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def tags(**named: object) -> list[dict[str, str]]:
    return [{"Key": key, "Value": str(value)} for key, value in named.items()]


def waits_for_its_time(system: System, job: str) -> bool:
    """Wait until a job has been planned. Return whether it waits for its time, and has not started already."""

    def seen() -> str | None:
        found = system.job(job)
        return found.reason.code if found.waits and found.reason else found.state

    system.wait(f"a plan with {job}", lambda: seen() not in ("NOT_PLANNED_YET", "STARTING_SOON"))
    return seen() == "NOT_BEFORE"


@pytest.mark.thorough
def test_a_job_starts_by_itself_at_its_time_and_a_late_job_is_cancelled(system: System, tmp_path: Path) -> None:
    for seconds in LONGER:
        begins, later = in_seconds(seconds), f"later-{seconds}"
        system.submit(later, SHORT, Tags=tags(not_before=begins))
        if waits_for_its_time(system, later):
            break
    else:
        pytest.fail(f"a job that may not start for {seconds} s gives no reason")
    system.wait_state(later, "completed")
    started = system.job(later).attempts[0].started
    assert started is not None
    assert started >= datetime.fromisoformat(begins)
    gate = tmp_path / "gate"
    for other in ("first", "second"):  # they take both slots
        system.run(other, count(1, gate), priority=5)
    for seconds in LONGER:
        with suppress(InvalidRequest):  # the time was over
            system.submit("late", SHORT, Tags=tags(start_by=in_seconds(seconds), start_by_action="cancel"))
            break
    system.wait_state("late", "stopped")
    assert "had not started by" in system.job("late").reason.message  # type: ignore[union-attr]
    gate.touch()
    for other in ("first", "second"):
        system.wait_state(other, "completed")


@pytest.mark.thorough
def test_the_total_runtime_counts_three_attempts(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for total in TOTALS:
        name = f"long-{total}"
        system.run(name, count(100_000, gate), Tags=tags(priority=1, max_total_runtime=total))
        if is_requeued(system, name, 2) and is_requeued(system, name, 3):
            break
    system.wait_state(name, "stopped")
    job = system.job(name)
    assert "max_total_runtime" in job.reason.message  # type: ignore[union-attr]
    assert [it.outcome for it in job.attempts] == ["requeued", "requeued", "stopped"]
    gate.touch()


def is_requeued(system: System, job: str, attempt: int) -> bool:
    """Requeue a job, and wait for its next attempt. Return whether that runs: before, the job's time may be over."""
    try:
        system.queue.requeue(job)
    except Conflict:
        return False

    def begun() -> bool:
        found = system.job(job)
        return (found.attempt, found.state) == (attempt, "running") or found.state in FINISHED

    system.wait(f"attempt {attempt} of {job}", begun)
    return system.job(job).attempt == attempt
