"""The utilization of the GPUs of training jobs, as SageMaker reports it to CloudWatch."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Unavailable

NAMESPACE = "/aws/sagemaker/TrainingJobs"
METRIC = "GPUUtilization"
BATCH = 500  # queries in one call of GetMetricData


class GpuUtilization:
    """The look-up of GPU utilization for many instances in few calls. CloudWatch charges for instances, not for calls.

    :param client: a boto3 client of CloudWatch with short timeouts.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(
        self, hosts: Sequence[str], since: float, until: float, period: float, may_go_on: Callable[[], bool]
    ) -> dict[str, list[float]]:
        """Return the maximum utilization in each period, by host; hosts without reports are left out.

        :param hosts: such as `job1-qstamp-1/algo-1`.
        :param since: epoch seconds, like `until`; `period` is in seconds.
        :param may_go_on: called before each batch; a result of False means that the remaining hosts are left out.
        :raises Unavailable: CloudWatch gave no usable answer.
        """
        found: dict[str, list[float]] = {}
        for first in range(0, len(hosts), BATCH):
            if not may_go_on():
                break
            batch = hosts[first : first + BATCH]
            queries = [_query(number, host, period) for number, host in enumerate(batch)]
            pages = self._client.get_paginator("get_metric_data").paginate(
                MetricDataQueries=queries,
                StartTime=datetime.fromtimestamp(since, UTC),
                EndTime=datetime.fromtimestamp(until, UTC),
            )
            try:
                for result in (result for page in pages for result in page["MetricDataResults"]):
                    found.setdefault(batch[int(result["Id"][1:])], []).extend(result["Values"])
            except (ClientError, BotoCoreError) as error:
                raise Unavailable(f"CloudWatch did not tell what GPUs do: {error}") from error
        return found


def _query(number: int, host: str, period: float) -> dict[str, Any]:
    return {
        "Id": f"h{number}",
        "MetricStat": {
            "Metric": {
                "Namespace": NAMESPACE,
                "MetricName": METRIC,
                "Dimensions": [{"Name": "Host", "Value": host}],
            },
            "Period": round(period),
            "Stat": "Maximum",
        },
    }
