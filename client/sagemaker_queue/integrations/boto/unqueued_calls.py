"""Warn of calls whose training jobs bypass the queue, because SageMaker itself or AWS Batch creates the jobs.

These calls pass to AWS, with a warning that names the alternative that uses the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sagemaker_queue.integrations.boto.call import Call, Handler
from sagemaker_queue.integrations.boto.lookup import JobLookup

logger = logging.getLogger(__name__)

_PIPELINE = (
    "The pipeline",
    "To queue its training, call estimator.fit(), ModelTrainer.train() or @remote functions from a script of your own, "
    "or wait for a job in a CallbackStep (docs/run/pipelines.md), instead of TrainingStep.",
)
_AUTOML = (
    "The AutoML job",
    "To queue its training, run an AutoML library as a job: smq submit -- COMMAND.",
)
_RESOURCES = {  # by operation: the resource that the operation creates, and the alternative
    "CreateHyperParameterTuningJob": (
        "The tuning job",
        "To queue its trials, take sagemaker_queue.QueueTuner, which has the same arguments, or smq sweep --metric.",
    ),
    "CreatePipeline": _PIPELINE,
    "StartPipelineExecution": _PIPELINE,
    "CreateAutoMLJob": _AUTOML,
    "CreateAutoMLJobV2": _AUTOML,
}


def warn(jobs: JobLookup, call: Call) -> None:
    """Warn of a call that creates training jobs inside SageMaker, and let the call pass."""
    resource, advice = _RESOURCES[call.operation]
    logger.warning(
        "%s goes to SageMaker directly, not through the queue: its training jobs start at once or fail, and count "
        "against the queue's capacity while they run. %s",
        resource,
        advice,
    )


def warn_of_batch(jobs: JobLookup, call: Call) -> None:
    """Warn of SubmitServiceJob, by which the SDKs' TrainingQueue.submit() sends training jobs to AWS Batch."""
    if call.parameters.get("serviceJobType", "SAGEMAKER_TRAINING") != "SAGEMAKER_TRAINING":
        return
    logger.warning(
        "The training job %s goes to the AWS Batch queue %s, not through this queue: AWS Batch decides when it starts, "
        "and it counts against this queue's capacity while it runs. To queue it here, call estimator.fit() or "
        "ModelTrainer.train() instead of TrainingQueue.submit(), or CreateTrainingJob instead of SubmitServiceJob.",
        call.parameters.get("jobName"),
        call.parameters.get("jobQueue"),
    )


SAGEMAKER: Mapping[str, Handler] = dict.fromkeys(_RESOURCES, warn)
BATCH: Mapping[str, Handler] = {"SubmitServiceJob": warn_of_batch}
