"""Quota that comes back late, on a local cloud: `exec --slots 8 --quota-lag SECONDS --create-rate 1/1`."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api_contract.models import Pause
from job_queue.domain.capacity_backoff import LAG_SECONDS
from local_cloud.aws.stack import LocalCloud
from local_cloud.sagemaker.account.options import Account, Rate
from tests.system.conftest import FOREVER, WAIT, System

pytestmark = pytest.mark.thorough

SLOTS = 8
LAG = 12.0  # seconds
IN_TIME = 30.0  # seconds after the last quota has come back


class Launches:
    """Notes the calls of CreateTrainingJob that were not throttled, and which of them were accepted."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.accepted: dict[str, float] = {}  # training job -> epoch seconds

    def __call__(self, phase: str, operation: str, request: dict[str, Any]) -> None:
        if operation == "CreateTrainingJob" and phase == "before":
            self.called.append(request["TrainingJobName"])
        elif operation == "CreateTrainingJob":
            self.accepted[request["TrainingJobName"]] = time.time()


def seconds_promised(at: datetime | None, cause: str) -> float:
    """Return how long after a refusal the next try is due, as the job's history has it."""
    found = re.match(r"next try at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC: SageMaker still counts \d of 8 ", cause)
    assert found, cause
    assert at
    return (datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - at).total_seconds()


def test_eight_jobs_start_soon_after_the_quota_of_eight_has_come_back(tmp_path: Path) -> None:
    launches, go = Launches(), tmp_path / "go"
    account = Account(create_rate=Rate(1, 1), quota_lag=LAG)
    with LocalCloud(slots=SLOTS, account=account, intercept=launches) as cloud:
        system = System(cloud)
        for number in range(SLOTS):
            system.submit(f"first{number}", WAIT.format(file=str(go)), priority=1)
        system.wait("eight to be launched", lambda: len(launches.accepted) == SLOTS)
        for number in range(SLOTS):
            system.submit(f"next{number}", FOREVER)
        without_lag = max(launches.accepted.values()) - min(launches.accepted.values())
        assert len(launches.called) == SLOTS, "no instance has come back yet"

        go.touch()
        seen: list[Pause] = []
        system.wait(
            "the others to be launched",
            lambda: len(launches.accepted) == 2 * SLOTS,
            lambda: seen.extend(system.queue.queue().pauses),
        )
        firsts = [job for job in system.attempts() if job["TrainingJobName"].startswith("first")]
        assert [job["TrainingJobStatus"] for job in firsts] == ["Completed"] * SLOTS
        back = max(job["TrainingEndTime"] for job in firsts).timestamp() + LAG
        # The first eight launches show how fast this machine is.
        assert max(launches.accepted.values()) - back <= IN_TIME + 10 * without_lag

        assert len(launches.called) > 2 * SLOTS, "SageMaker refused a launch"
        assert seen, "the queue reported it"
        assert {pause.refusals for pause in seen} == {0}
        assert all((pause.quota_lag or "").startswith("SageMaker still counts ") for pause in seen), seen
        histories = [entry for number in range(SLOTS) for entry in system.job(f"next{number}").history]
        tries = [seconds_promised(it.at, it.cause) for it in histories if it.cause.startswith("next try at ")]
        assert tries
        assert max(tries) <= LAG_SECONDS + 1
        system.wait("the lag to be over", lambda: not system.queue.queue().pauses)
        for number in range(SLOTS):
            system.queue.cancel(f"next{number}")
