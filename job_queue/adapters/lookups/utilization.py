"""The utilization of the GPUs and the memory of training jobs, as SageMaker reports it to CloudWatch."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.accounting.utilization import GPU, MeasuredPeriod
from job_queue.domain.errors import Unavailable

NAMESPACE = "/aws/sagemaker/TrainingJobs"
BATCH = 500  # queries in one call of GetMetricData


class GpuUtilization:
    """The look-up of GPU utilization for many instances in few calls.

    CloudWatch charges for the number of instances, not for calls.

    :param client: a boto3 client of CloudWatch with short timeouts.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(
        self, hosts: Sequence[str], since: float, until: float, period: float, may_go_on: Callable[[], bool]
    ) -> dict[str, list[float]]:
        """Return the maximum utilization in each period, by host; an empty list for a host without reports.

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
            queries = [_query(f"h{number}", GPU, host, period, "Maximum") for number, host in enumerate(batch)]
            pages = self._client.get_paginator("get_metric_data").paginate(
                MetricDataQueries=queries,
                StartTime=datetime.fromtimestamp(since, UTC),
                EndTime=datetime.fromtimestamp(until, UTC),
            )
            try:
                for result in (result for page in pages for result in page["MetricDataResults"]):
                    found.setdefault(batch[int(result["Id"][1:])], []).extend(result["Values"])
            except (ClientError, BotoCoreError) as error:
                raise Unavailable(f"CloudWatch did not answer the request for GPU metrics: {error}") from error
        return found


class InstanceMetrics:
    """The look-up of several metrics of an ended attempt's instances, in one call for each page of the answer.

    :param client: a boto3 client of CloudWatch with short timeouts.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, metrics: tuple[str, ...], measured: MeasuredPeriod) -> dict[str, dict[str, dict[float, float]]]:
        """Return the averages: metric -> host -> start of the period (epoch seconds) -> value.

        A host without reports has an empty mapping.

        :param measured: at most BATCH hosts times metrics.
        :raises Unavailable: CloudWatch gave no usable answer.
        """
        wanted = [(metric, host) for metric in metrics for host in measured.hosts]
        queries = [
            _query(f"q{number}", metric, host, measured.period, "Average")
            for number, (metric, host) in enumerate(wanted)
        ]
        pages = self._client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries,
            StartTime=datetime.fromtimestamp(measured.since, UTC),
            EndTime=datetime.fromtimestamp(measured.until, UTC),
        )
        found: dict[str, dict[str, dict[float, float]]] = {}
        try:
            for result in (result for page in pages for result in page["MetricDataResults"]):
                metric, host = wanted[int(result["Id"][1:])]
                series = found.setdefault(metric, {}).setdefault(host, {})
                series.update(zip((it.timestamp() for it in result["Timestamps"]), result["Values"], strict=True))
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"CloudWatch did not return the metrics of instances: {error}") from error
        return found


def _query(name: str, metric: str, host: str, period: float, statistic: str) -> dict[str, Any]:
    return {
        "Id": name,
        "MetricStat": {
            "Metric": {
                "Namespace": NAMESPACE,
                "MetricName": metric,
                "Dimensions": [{"Name": "Host", "Value": host}],
            },
            "Period": round(period),
            "Stat": statistic,
        },
    }
