"""An asset of Dagster, made by a job that reports through Dagster Pipes; Dagster reads the reports from CloudWatch."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
from dagster_aws.pipes import PipesCloudWatchMessageReader

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
REPORTS = """
import os, pathlib
from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as pipes:
    pipes.log.info("it begins")
    exec(os.environ["TRAIN"])
    pipes.report_asset_materialization(metadata={"step": int(pathlib.Path("/opt/ml/checkpoints/step").read_text())})
"""


@dg.asset
def model(context: dg.AssetExecutionContext) -> Any:
    """Train on SageMaker, and yield the results that the job reports through Dagster Pipes."""
    request = json.loads(Path(sys.argv[1]).read_text())
    name = request["TrainingJobName"]
    sagemaker, logs = boto3.client("sagemaker"), boto3.client("logs")
    reader = PipesCloudWatchMessageReader(client=logs)
    with dg.open_pipes_session(context, dg.PipesEnvContextInjector(), reader) as session:
        # PATH leads to a Python with dagster-pipes, as in an image on SageMaker.
        own = {"SCRIPT": REPORTS, "TRAIN": request["Environment"]["SCRIPT"], "PATH": os.environ["PATH"]}
        request["Environment"] = {**own, **session.get_bootstrap_env_vars()}
        sagemaker.create_training_job(**request)
        while not (streams := streams_of(logs, name)):
            time.sleep(1)
        session.report_launched({"extras": {"log_group": LOG_GROUP, "log_stream": streams[0]["logStreamName"]}})
        sagemaker.get_waiter("training_job_completed_or_stopped").wait(
            TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 1000}
        )
    described = sagemaker.describe_training_job(TrainingJobName=name)
    assert described["TrainingJobStatus"] == "Completed", described
    yield from session.get_results()


def streams_of(logs: Any, name: str) -> list[Any]:
    """Return the log streams of the job; none before it trains."""
    try:
        found: list[Any] = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")[
            "logStreams"
        ]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return found


result = dg.materialize([model])
(made,) = result.asset_materializations_for_node("model")
assert made.metadata["step"].value > 3, made
