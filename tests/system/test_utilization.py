"""The utilization of an attempt in its record, read from CloudWatch with the function's own rights.

The local cloud has no GPUs, so the test reports to CloudWatch what SageMaker would have reported.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_contract.history import PastAttempt
from job_queue.domain.job import iso
from sagemaker_queue.cli import main
from tests.system.conftest import System

FIGURES = {"GPUUtilization": (600.0, 200.0), "GPUMemoryUtilization": (320.0, 320.0), "MemoryUtilization": (21.0, 21.4)}


def age_record(system: System, job: str, minutes: float) -> None:
    """Move the record of a job's attempt into the past, and let it last ten minutes."""
    table, tables = "sagemaker-queue-history", system.cloud.client("dynamodb")
    (row,) = [row for row in tables.scan(TableName=table)["Items"] if row["job"]["S"] == job]
    tables.delete_item(TableName=table, Key={name: row[name] for name in ("line", "position")})
    ended = time.time() - 60 * minutes
    texts = {"began": iso(ended - 600), "ended": iso(ended), "line": iso(ended)[:10]}
    texts["position"] = f"{texts['ended']}#{row['training_job_name']['S']}"
    tables.put_item(TableName=table, Item={**row, **{name: {"S": text} for name, text in texts.items()}})


def report(cloudwatch: Any, training_job: str, ended: float) -> None:
    """Report two minutes of one instance to CloudWatch, as SageMaker does."""
    cloudwatch.put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricData=[
            {
                "MetricName": metric,
                "Dimensions": [{"Name": "Host", "Value": f"{training_job}/algo-1"}],
                "Timestamp": datetime.fromtimestamp(ended - 60 * minute, UTC),
                "Value": value,
                "Unit": "Percent",
            }
            for metric, values in FIGURES.items()
            for minute, value in enumerate(values, 2)
        ],
    )


@pytest.mark.thorough
def test_the_record_of_an_ended_attempt_gets_its_utilization_and_no_data_is_no_figure(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["measured", "silent"]
    for name in names:
        system.submit(name, "pass")
    system.wait("both to end", lambda: [system.state(name) for name in names] == ["completed"] * 2)
    ended = time.time() - 20 * 60
    for name in names:
        age_record(system, name, 20)
    report(system.cloud.client("cloudwatch"), "measured-qstamp-1", ended)
    system.run("live")

    def past() -> dict[str, PastAttempt]:
        return {it.job: it for it in system.queue.history(datetime.now(UTC) - timedelta(hours=1))}

    system.wait("the figures", lambda: past()["measured"].gpu_mean_percent is not None, each_time=system.cloud.tick)
    found, silent = past()["measured"], past()["silent"]
    assert (found.gpu_mean_percent, found.gpu_p95_percent) == (50, 75)
    assert (found.gpu_memory_mean_percent, found.memory_mean_percent, found.memory_p95_percent) == (40, 21, 21)
    assert (silent.gpu_mean_percent, silent.memory_mean_percent) == (None, None)
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    assert main(["usage", "--since", "1h"]) == 0
    assert "GPU %" in capsys.readouterr().out
