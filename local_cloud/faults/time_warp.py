"""Time that passes faster in a local cloud: what the queue has recorded to wait for is over."""

import contextlib
import time
from datetime import UTC, datetime
from typing import Any

from local_cloud.aws.stack import LocalCloud
from local_cloud.errors import LocalCloudError


class TimeWarp:
    """Makes time pass: at each call it is as if a minute had gone by.

    What the queue has recorded to wait for is over then: the backoffs of jobs and the
    pauses of pools, and the lease of a holder that has died. The rest of the queue's patience stays as it is.
    """

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._tables = cloud.client("dynamodb")
        self._lease: tuple[str, str] | None = None

    def __call__(self) -> None:
        """A minute later."""
        self._end_waits("sagemaker-queue", "backoffUntil", "jobName")
        self._end_waits("sagemaker-queue-lines", "backoffUntil", "line", "position")
        self._end_waits("sagemaker-queue-lines", "until", "line", "position")
        self._end_lease()
        with contextlib.suppress(LocalCloudError):  # its process was killed
            self._cloud.tick()

    def has_run_for(self, job: str, seconds: float) -> None:
        """Make it so that a job's attempt was launched so many seconds ago, as whoever plans sees it."""
        started = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat()
        self._tables.update_item(
            TableName="sagemaker-queue-lines",
            Key={"line": {"S": "active"}, "position": {"S": job}},
            UpdateExpression="SET started = :then",
            ConditionExpression="attribute_exists(started)",
            ExpressionAttributeValues={":then": {"S": started}},
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
