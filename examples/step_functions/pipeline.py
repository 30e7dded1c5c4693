"""A pipeline of SageMaker Pipelines whose training step is a job of the queue.

Run `python pipeline.py ROLE_ARN STEPS_QUEUE_URL request.json` to create or update the pipeline.
"""

import json
import sys
from pathlib import Path
from typing import Any

from sagemaker.workflow.callback_step import CallbackOutput, CallbackOutputTypeEnum, CallbackStep
from sagemaker.workflow.execution_variables import ExecutionVariables
from sagemaker.workflow.functions import Join
from sagemaker.workflow.pipeline import Pipeline


def training_pipeline(steps_queue_url: str, request: dict[str, Any], session: Any = None) -> Pipeline:
    """Return the pipeline. Its step has the name of the training job in SageMaker as an output."""
    train = CallbackStep(
        name="Train",
        sqs_queue_url=steps_queue_url,
        inputs={
            "TrainingJobName": Join(on="-", values=["train", ExecutionVariables.PIPELINE_EXECUTION_ID]),
            "request": json.dumps(request),
        },
        outputs=[CallbackOutput(output_name="TrainingJobName", output_type=CallbackOutputTypeEnum.String)],
    )
    return Pipeline(name="train-in-the-queue", steps=[train], sagemaker_session=session)


if __name__ == "__main__":
    role, queue, file = sys.argv[1:]
    print(training_pipeline(queue, json.loads(Path(file).read_text())).upsert(role_arn=role)["PipelineArn"])
