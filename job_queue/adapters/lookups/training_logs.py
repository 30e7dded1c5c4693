"""The log group of SageMaker's training jobs in CloudWatch Logs, and the streams of their containers."""

import re

from botocore.exceptions import BotoCoreError, ClientError

LOG_GROUP = "/aws/sagemaker/TrainingJobs"  # of all training jobs of an account and region


def stream_pattern(training_job: str) -> re.Pattern[str]:
    """Return what the names of the streams of a training job's containers match: `<training job>/algo-<n>-<time>`.

    A training job with remote debugging also has streams of the SSM Agent, `<training job>/algo-<n>-<time>/ssm`. The
    lines of these streams do not come from the job.
    """
    return re.compile(rf"{re.escape(training_job)}/algo-[0-9]+-[0-9]+\Z")


def is_missing(error: BotoCoreError | ClientError) -> bool:
    """Return whether the log group does not exist, as before the first training job writes to it."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] == "ResourceNotFoundException"
