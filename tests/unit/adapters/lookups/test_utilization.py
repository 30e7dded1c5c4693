"""What GPUs do, asked of CloudWatch for many instances at once."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from job_queue.adapters.lookups.utilization import BATCH, NAMESPACE, GpuUtilization, InstanceMetrics
from job_queue.domain.accounting.utilization import METRICS, MeasuredPeriod
from job_queue.domain.errors import Unavailable
from tests.jobs import NOW


def always() -> bool:
    return True


@pytest.fixture
def cloudwatch() -> Any:
    return boto3.client("cloudwatch", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")


def result(number: int, *values: float) -> dict[str, Any]:
    return {"Id": f"h{number}", "Values": list(values), "StatusCode": "Complete"}


def test_each_instance_is_a_query_for_the_maximum_of_each_period(cloudwatch: Any) -> None:
    asked: list[dict[str, Any]] = []
    cloudwatch.meta.events.register(
        "provide-client-params.cloudwatch.GetMetricData", lambda params, **_: asked.append(params)
    )
    with Stubber(cloudwatch) as stub:
        stub.add_response("get_metric_data", {"MetricDataResults": [result(0, 3.0, 1.0)], "NextToken": "more"})
        stub.add_response("get_metric_data", {"MetricDataResults": [result(0, 2.0), result(1)]})
        found = GpuUtilization(cloudwatch)(
            ["job1-qstamp-1/algo-1", "job1-qstamp-1/algo-2"], NOW, NOW + 600, 300, always
        )
    assert found == {"job1-qstamp-1/algo-1": [3.0, 1.0, 2.0], "job1-qstamp-1/algo-2": []}
    query = asked[0]["MetricDataQueries"][1]["MetricStat"]
    assert query == {
        "Metric": {
            "Namespace": NAMESPACE,
            "MetricName": "GPUUtilization",
            "Dimensions": [{"Name": "Host", "Value": "job1-qstamp-1/algo-2"}],
        },
        "Period": 300,
        "Stat": "Maximum",
    }
    assert (asked[0]["StartTime"].timestamp(), asked[0]["EndTime"].timestamp()) == (NOW, NOW + 600)


def test_a_call_takes_so_many_and_with_no_time_left_there_is_no_other(cloudwatch: Any) -> None:
    hosts = [f"job{number}-qstamp-1/algo-1" for number in range(BATCH + 1)]
    left = [True, False]
    with Stubber(cloudwatch) as stub:
        stub.add_response("get_metric_data", {"MetricDataResults": [result(BATCH - 1, 1.0)]})
        found = GpuUtilization(cloudwatch)(hosts, NOW, NOW + 600, 300, lambda: left.pop(0))
    assert found == {hosts[BATCH - 1]: [1.0]}
    assert left == []


def test_what_cloudwatch_does_not_answer_is_said_so(cloudwatch: Any) -> None:
    with Stubber(cloudwatch) as stub:
        stub.add_client_error("get_metric_data", "AccessDenied", "no")
        with pytest.raises(Unavailable, match="CloudWatch did not answer the request for GPU metrics: .*AccessDenied"):
            GpuUtilization(cloudwatch)(["job1-qstamp-1/algo-1"], NOW, NOW + 600, 300, always)


def test_all_metrics_of_an_attempt_are_averages_in_one_call(cloudwatch: Any) -> None:
    asked: list[dict[str, Any]] = []
    cloudwatch.meta.events.register(
        "provide-client-params.cloudwatch.GetMetricData", lambda params, **_: asked.append(params)
    )
    first, second = (datetime.fromtimestamp(NOW + offset, UTC) for offset in (0, 60))
    answer = [
        {"Id": "q0", "Timestamps": [second, first], "Values": [2.0, 1.0], "StatusCode": "Complete"},
        {"Id": "q1", "Timestamps": [], "Values": [], "StatusCode": "Complete"},
        {"Id": "q5", "Timestamps": [first], "Values": [7.0], "StatusCode": "Complete"},
    ]
    with Stubber(cloudwatch) as stub:
        stub.add_response("get_metric_data", {"MetricDataResults": answer})
        period = MeasuredPeriod(["a-qstamp-1/algo-1", "a-qstamp-1/algo-2"], NOW, NOW + 120, 60)
        found = InstanceMetrics(cloudwatch)(METRICS, period)
    assert found == {
        "GPUUtilization": {"a-qstamp-1/algo-1": {NOW: 1.0, NOW + 60: 2.0}, "a-qstamp-1/algo-2": {}},
        "MemoryUtilization": {"a-qstamp-1/algo-2": {NOW: 7.0}},
    }
    (call,) = asked
    queries = [it["MetricStat"] for it in call["MetricDataQueries"]]
    assert [(it["Metric"]["MetricName"], it["Metric"]["Dimensions"][0]["Value"][-1]) for it in queries] == [
        (metric, host) for metric in METRICS for host in "12"
    ]
    assert {(it["Stat"], it["Period"]) for it in queries} == {("Average", 60)}


def test_an_error_is_no_data_that_is_missing(cloudwatch: Any) -> None:
    with Stubber(cloudwatch) as stub:
        stub.add_client_error("get_metric_data", "AccessDenied", "no")
        with pytest.raises(Unavailable, match="CloudWatch did not return the metrics of instances: .*AccessDenied"):
            InstanceMetrics(cloudwatch)(METRICS, MeasuredPeriod(["a/algo-1"], NOW, NOW + 60, 60))
