"""A task of Airflow with a SageMakerTrainingOperator; the task may be tried again.

With --deferrable, this script does the triggerer's work; with --sensor, a sensor waits instead of the operator.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator
from airflow.providers.amazon.aws.sensors.sagemaker import SageMakerTrainingSensor
from airflow.sdk.exceptions import TaskDeferred

request = json.loads(Path(sys.argv[1]).read_text())
operator = SageMakerTrainingOperator(
    task_id="train",
    config=request,
    aws_conn_id=None,
    check_interval=1,
    wait_for_completion="--sensor" not in sys.argv,
    print_log=False,
    check_if_job_exists=False,
    deferrable="--deferrable" in sys.argv,
)


async def first_event(trigger: Any) -> Any:
    """Wait for the first event of the trigger."""
    async for event in trigger.run():
        return event.payload
    raise AssertionError("no event")


try:
    described = operator.execute({})["Training"]
except TaskDeferred as deferred:
    resume = getattr(operator, str(deferred.method_name))
    described = resume({}, asyncio.run(first_event(deferred.trigger)))["Training"]
if "--sensor" in sys.argv:
    name = described["TrainingJobName"]
    sensor = SageMakerTrainingSensor(
        task_id="wait", job_name=name, aws_conn_id=None, poke_interval=1, print_log=False, mode="poke"
    )
    sensor.execute({})
    described = sensor.hook.describe_training_job(name)
assert (described["TrainingJobName"], described["TrainingJobStatus"]) == (request["TrainingJobName"], "Completed")
