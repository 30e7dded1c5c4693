"""A task of Airflow's SageMakerTrainingOperator; with --deferrable, what its triggerer would do is done here."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator
from airflow.sdk.exceptions import TaskDeferred

request = json.loads(Path(sys.argv[1]).read_text())
operator = SageMakerTrainingOperator(
    task_id="train",
    config=request,
    aws_conn_id=None,
    check_interval=1,
    wait_for_completion=True,
    print_log=False,
    check_if_job_exists=False,
    deferrable="--deferrable" in sys.argv,
)


async def first_event(trigger: Any) -> Any:
    """Wait for what the trigger tells."""
    async for event in trigger.run():
        return event.payload
    raise AssertionError("no event")


try:
    described = operator.execute({})["Training"]
except TaskDeferred as deferred:
    resume = getattr(operator, str(deferred.method_name))
    described = resume({}, asyncio.run(first_event(deferred.trigger)))["Training"]
assert (described["TrainingJobName"], described["TrainingJobStatus"]) == (request["TrainingJobName"], "Completed")
