"""The metrics of a job of the queue, as a boto3 client of CloudWatch reads them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.client.integrations.boto.hooked_clients import HookedClients, twice_run


class TestMetrics:
    NAMESPACE = "/aws/sagemaker/TrainingJobs"

    @pytest.fixture(autouse=True)
    def published(self, clients: HookedClients) -> None:
        for attempt, loss in ((1, 0.5), (2, 0.25)):
            dimensions = [{"Name": "TrainingJobName", "Value": f"job1-qstamp-{attempt}"}]
            data = {"MetricName": "loss", "Dimensions": dimensions, "Value": loss}
            clients.direct.cloudwatch.put_metric_data(Namespace=self.NAMESPACE, MetricData=[data])

    def ago(self) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        return {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(hours=1)}

    def test_statistics_are_those_of_all_attempts(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=self.NAMESPACE,
            MetricName="loss",
            Dimensions=[{"Name": "TrainingJobName", "Value": "job1"}],
            Period=60,
            Statistics=["Average"],
            **self.ago(),
        )
        assert [point["Average"] for point in answer["Datapoints"]] == [0.5, 0.25]

    def test_data_are_those_of_the_last_one(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        dimensions = [{"Name": "TrainingJobName", "Value": "job1"}]
        metric = {"Namespace": self.NAMESPACE, "MetricName": "loss", "Dimensions": dimensions}
        query = {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
        answer = clients.cloudwatch.get_metric_data(MetricDataQueries=[query], **self.ago())
        assert answer["MetricDataResults"][0]["Values"] == [0.25]
