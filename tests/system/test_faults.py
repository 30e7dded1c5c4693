"""Sixty jobs through all kinds of faults at once; and the same by the command line, on a smaller scale."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faults as sixty_jobs
from local_cloud.errors import LocalCloudError
from local_cloud.faults import Faults, parse
from local_cloud.stack import LocalCloud
from tests.system.test_failures import forget_last_reconciliation

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
MORE = ",slow=0.1,unanswered=0.05"


class Haste:
    """Makes time pass: at each call it is as if a minute had gone by.

    What the queue has recorded to wait for is over then: the interval of reconciliation, the backoffs of jobs and the
    pauses of pools, and the lease of a holder that has died. The rest of the queue's patience stays as it is.
    """

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._tables = cloud.client("dynamodb")
        self._lease: tuple[str, str] | None = None

    def __call__(self) -> None:
        forget_last_reconciliation(self._cloud)
        self._end_waits("sagemaker-queue", "backoffUntil", "jobName")
        self._end_waits("sagemaker-queue-lines", "backoffUntil", "line", "position")
        self._end_waits("sagemaker-queue-lines", "until", "line", "position")
        self._end_lease()
        with contextlib.suppress(LocalCloudError):  # its process was killed
            self._cloud.tick()

    def _end_waits(self, table: str, attribute: str, *key: str) -> None:
        pages = self._tables.get_paginator("scan").paginate(
            TableName=table,
            FilterExpression="attribute_exists(#time)",
            ExpressionAttributeNames={"#time": attribute},
        )
        for row in (row for page in pages for row in page["Items"]):
            self._set(table, {name: row[name] for name in key}, attribute, row[attribute])

    def _end_lease(self) -> None:
        """End the lease if its holder has done nothing since the last time."""
        key = {"line": {"S": "control"}, "position": {"S": "lease"}}
        row = self._tables.get_item(TableName="sagemaker-queue-lines", Key=key, ConsistentRead=True)["Item"]
        lease = row["owner"]["S"], row["token"]["N"]
        if lease == self._lease and lease[0]:
            self._set("sagemaker-queue-lines", key, "expiresAt", row["expiresAt"])
        self._lease = lease

    def _set(self, table: str, key: dict[str, Any], attribute: str, present: dict[str, str]) -> None:
        """Bring a time to its end, unless somebody else has changed it meanwhile."""
        with contextlib.suppress(self._tables.exceptions.ConditionalCheckFailedException):
            self._tables.update_item(
                TableName=table,
                Key=key,
                UpdateExpression="SET #time = :over",
                ConditionExpression="#time = :present",
                ExpressionAttributeNames={"#time": attribute},
                ExpressionAttributeValues={":over": {"N": str(int(time.time()) - 1)}, ":present": present},
            )


@pytest.mark.timeout(400)
def test_sixty_jobs_are_completed_once_whatever_goes_wrong() -> None:
    wrong = Faults(parse(sixty_jobs.FAULTS + MORE), SEED)
    with LocalCloud(sixty_jobs.SLOTS, faults=wrong) as cloud:
        outcome = sixty_jobs.run(cloud, waiting=Haste(cloud), patience=300)
    assert outcome.faults == []
    # Otherwise nothing has been shown.
    assert min(outcome.injected.values()) > 0, outcome.injected
    assert outcome.most_in_use > sixty_jobs.SLOTS / 2


def an_attempt(number: int, status: str, began: int, ended: int | None, **more: str) -> dict[str, Any]:
    times = {"CreationTime": began} | ({"TrainingEndTime": ended} if ended else {})
    return {"TrainingJobName": f"job-qstamp-{number}", "TrainingJobStatus": status, **times, **more}


@pytest.mark.parametrize(
    ("attempts", "complaint"),
    [
        ([an_attempt(1, "Stopped", 1, 2), an_attempt(2, "Completed", 3, 4)], None),
        ([an_attempt(1, "Failed", 1, 2, FailureReason="CapacityError: none"), an_attempt(2, "Completed", 3, 4)], None),
        ([], "have ended {}"),
        ([an_attempt(1, "Completed", 1, 2), an_attempt(2, "Completed", 3, 4)], "have ended {'Completed': 2}"),
        ([an_attempt(1, "Completed", 1, 2), an_attempt(2, "InProgress", 3, None)], "'InProgress': 1"),
        ([an_attempt(1, "Stopped", 1, 4), an_attempt(2, "Completed", 3, 5)], "qstamp-2 began before"),
        ([an_attempt(1, "Failed", 1, 2, FailureReason="Bug"), an_attempt(2, "Completed", 3, 4)], "has failed: Bug"),
    ],
)
def test_what_is_wrong_with_attempts_is_seen(attempts: list[dict[str, Any]], complaint: str | None) -> None:
    found = list(sixty_jobs.wrong_attempts("job", attempts))
    assert found == [] if complaint is None else complaint in found[0]


def test_the_command_line_tells_what_went_wrong(tmp_path: Path) -> None:
    script = "import boto3; boto3.client('sagemaker').list_training_jobs()"
    command = [sys.executable, "-m", "local_cloud", "exec", "--faults", "throttle=1,late=0", "--seed", "7", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ThrottlingException" in done.stderr
    *_, counts, most = done.stderr.splitlines()
    assert re.fullmatch(r"local_cloud: faults of seed 7: throttle [1-9]\d*, late 0", counts)
    assert most == "local_cloud: in use at once at most: nothing"
