"""The metrics of a job of the queue, as a boto3 client of CloudWatch reads them."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError

from sagemaker_queue.integrations.boto.sessions import hooks_of
from tests.client.integrations.boto.hooked_clients import HookedClients, twice_run


class TestMetrics:
    NAMESPACE = "/aws/sagemaker/TrainingJobs"
    DIMENSIONS: ClassVar[list[dict[str, str]]] = [{"Name": "TrainingJobName", "Value": "job1"}]
    BEGIN = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)

    @pytest.fixture(autouse=True)
    def published(self, clients: HookedClients) -> None:
        """The first attempt's last minute is the second one's first."""
        for attempt, minute, losses in ((1, 0, [8.0]), (1, 1, [4.0, 4.0, 4.0]), (2, 1, [2.0]), (2, 2, [1.0])):
            for loss in losses:
                data = {
                    "MetricName": "loss",
                    "Dimensions": [{"Name": "TrainingJobName", "Value": f"job1-qstamp-{attempt}"}],
                    "Value": loss,
                    "Timestamp": self.BEGIN + timedelta(minutes=minute),
                }
                clients.direct.cloudwatch.put_metric_data(Namespace=self.NAMESPACE, MetricData=[data])

    @property
    def within(self) -> dict[str, Any]:
        return {"StartTime": self.BEGIN - timedelta(hours=1), "EndTime": self.BEGIN + timedelta(hours=1)}

    @pytest.mark.parametrize(
        ("statistic", "expected"),
        [
            ("Average", [8, 3.5, 1]),  # four samples, not two attempts
            ("Sum", [8, 14, 1]),
            ("Minimum", [8, 2, 1]),
            ("Maximum", [8, 4, 1]),
            ("SampleCount", [1, 4, 1]),
        ],
    )
    def test_statistics_are_those_of_all_attempts(
        self, clients: HookedClients, statistic: str, expected: list[float]
    ) -> None:
        clients.job(**twice_run("completed"))
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=self.NAMESPACE,
            MetricName="loss",
            Dimensions=self.DIMENSIONS,
            Period=60,
            Statistics=[statistic],
            **self.within,
        )
        assert [point[statistic] for point in answer["Datapoints"]] == expected
        assert set(answer["Datapoints"][1]) - {"Unit"} == {"Timestamp", statistic}

    def query(self, stat: str = "Sum", **more: Any) -> dict[str, Any]:
        metric = {"Namespace": self.NAMESPACE, "MetricName": "loss", "Dimensions": self.DIMENSIONS}
        return {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": stat}, **more}

    @pytest.mark.parametrize("scan", ["TimestampAscending", "TimestampDescending"])
    def test_data_are_those_of_all_attempts(self, clients: HookedClients, scan: str) -> None:
        clients.job(**twice_run("completed"))
        answer = clients.cloudwatch.get_metric_data(MetricDataQueries=[self.query()], ScanBy=scan, **self.within)
        (result,) = answer["MetricDataResults"]
        values = result["Values"] if scan == "TimestampAscending" else result["Values"][::-1]
        assert (result["Id"], values) == ("loss", [8, 14, 1])
        assert len(result["Timestamps"]) == 3

    def test_other_queries_stay_as_they_are(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        other = self.query(Id="other")
        other["MetricStat"] = {**other["MetricStat"], "Metric": {"Namespace": "mine", "MetricName": "loss"}}
        answer = clients.cloudwatch.get_metric_data(MetricDataQueries=[other, self.query()], **self.within)
        assert [result["Id"] for result in answer["MetricDataResults"]] == ["other", "loss"]

    def test_what_an_expression_uses_is_one_series(self, clients: HookedClients) -> None:
        """CloudWatch computes it: an emulator cannot, so it is looked at what is sent."""
        sent: list[dict[str, Any]] = []

        def keep(params: Any, **_: Any) -> None:
            sent.extend(params["MetricDataQueries"])

        clients.job(**twice_run("completed"))
        clients.session.events.register("provide-client-params.cloudwatch.GetMetricData", keep)
        try:
            hooks_of(clients.session).renew()  # so that its own client has the handler, too
            client = clients.session.client("cloudwatch")
            twice = {"Id": "twice", "Expression": "loss * 2"}
            with contextlib.suppress(ClientError):
                client.get_metric_data(
                    MetricDataQueries=[self.query("Minimum", ReturnData=False), twice], **self.within
                )
        finally:
            clients.session.events.unregister("provide-client-params.cloudwatch.GetMetricData", keep)
            hooks_of(clients.session).renew()
        first, second, whole, last = sent[2:]
        assert [it["MetricStat"]["Metric"]["Dimensions"][0]["Value"] for it in (first, second)] == [
            "job1-qstamp-1",
            "job1-qstamp-2",
        ]
        assert (first["ReturnData"], second["ReturnData"], last) == (False, False, twice)
        assert whole == {
            "Id": "loss",
            "Expression": f"MIN([{first['Id']}, {second['Id']}])",
            "Label": "loss",
            "ReturnData": False,
        }

    def test_more_queries_than_cloudwatch_takes_are_refused(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        queries = [self.query(Id=f"loss{number}") for number in range(251)]
        with pytest.raises(ClientError, match="502 queries of CloudWatch, one for each attempt"):
            clients.cloudwatch.get_metric_data(MetricDataQueries=queries, **self.within)
