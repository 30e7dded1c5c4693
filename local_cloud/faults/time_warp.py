"""Simulated passing of time in a local cloud: recorded waits of the queue expire."""

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from local_cloud.aws.stack import LocalCloud
from local_cloud.user_errors import LocalCloudError


class TimeWarp:
    """A simulated passing of time: each call has the effect of a minute.

    The recorded waits of the queue expire: the backoffs of jobs, the lease of a holder that has died, and the attribute
    `until` of other rows (capacity backoffs, locks of places, permits of heavy requests, notices of failures). Other
    timeouts of the queue stay as they are.
    """

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._tables = cloud.client("dynamodb")
        self._lease: tuple[str, str] | None = None

    def __call__(self) -> None:
        """Let a minute pass: end the recorded waits, then call the queue's function as its schedule does."""
        self._end_waits("sagemaker-queue", "backoffUntil", "jobName")
        self._end_waits("sagemaker-queue-lines", "backoffUntil", "line", "position")
        self._end_waits("sagemaker-queue-lines", "until", "line", "position")
        self._end_lease()
        with contextlib.suppress(LocalCloudError):  # the function's process was killed
            self._cloud.tick()

    def have_run_for(self, jobs: Sequence[str], seconds: float) -> None:
        """Change the recorded launch times of these jobs' running attempts to `seconds` ago, in one transaction.

        The creation times of the training jobs move back too, so that the queue still recognises its attempts.
        """
        started = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat()
        rows: list[tuple[str, dict[str, Any]]] = []
        for job in jobs:
            key = {"jobName": {"S": job}}
            row = self._tables.get_item(TableName="sagemaker-queue", Key=key, ConsistentRead=True)["Item"]
            self._cloud.training.backdate(row["trainingJobName"]["S"], seconds)
            lines_key = {"line": {"S": "active"}, "position": {"S": job}}
            rows += [("sagemaker-queue", key), ("sagemaker-queue-lines", lines_key)]
        update = {
            "UpdateExpression": "SET started = :then",
            "ConditionExpression": "attribute_exists(started)",
            "ExpressionAttributeValues": {":then": {"S": started}},
        }
        self._tables.transact_write_items(
            TransactItems=[{"Update": {"TableName": table, "Key": key, **update}} for table, key in rows]
        )

    def _end_waits(self, table: str, attribute: str, *key: str) -> None:
        pages = self._tables.get_paginator("scan").paginate(
            TableName=table,
            FilterExpression="attribute_exists(#time)",
            ExpressionAttributeNames={"#time": attribute},
        )
        for row in (row for page in pages for row in page["Items"]):
            self._set(table, {name: row[name] for name in key}, attribute, row[attribute])

    def _end_lease(self) -> None:
        """End the lease if its holder has written nothing since the last call."""
        key = {"line": {"S": "control"}, "position": {"S": "lease"}}
        row = self._tables.get_item(TableName="sagemaker-queue-lines", Key=key, ConsistentRead=True)["Item"]
        lease = row["owner"]["S"], row["token"]["N"]
        if lease == self._lease and lease[0]:
            self._set("sagemaker-queue-lines", key, "expiresAt", row["expiresAt"])
        self._lease = lease

    def _set(self, table: str, key: dict[str, Any], attribute: str, present: dict[str, str]) -> None:
        """Set a time in a row to the past, unless the time has changed since `present` was read."""
        with contextlib.suppress(self._tables.exceptions.ConditionalCheckFailedException):
            self._tables.update_item(
                TableName=table,
                Key=key,
                UpdateExpression="SET #time = :over",
                ConditionExpression="#time = :present",
                ExpressionAttributeNames={"#time": attribute},
                ExpressionAttributeValues={":over": {"N": str(int(time.time()) - 1)}, ":present": present},
            )
