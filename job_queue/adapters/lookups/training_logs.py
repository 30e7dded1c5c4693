"""The logs of SageMaker's training jobs in CloudWatch Logs, read page by page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_logs.client import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilteredLogEventTypeDef, FilterLogEventsRequestTypeDef

LOG_GROUP = "/aws/sagemaker/TrainingJobs"  # of all training jobs of an account and region

_MISSING = "ResourceNotFoundException"


@dataclass(frozen=True, slots=True)
class LogPage:
    """An answer of FilterLogEvents."""

    events: "list[FilteredLogEventTypeDef]"  # of the streams of containers; can be empty although more pages follow
    is_last: bool


def log_pages(
    client: "CloudWatchLogsClient", training_job: str, most_pages: int, request: "FilterLogEventsRequestTypeDef"
) -> Iterator[LogPage]:
    """Yield the pages of a training job's log, with the events of its containers.

    The streams of containers have the names `<training job>/algo-<n>-<time>`. A training job with remote debugging also
    has streams of the SSM Agent, `<training job>/algo-<n>-<time>/ssm`, whose lines do not come from the job. There is
    no page if the log group does not exist, as before the first training job writes to it.

    :param request: parameters of FilterLogEvents besides the log group and the streams.
    :raises Unavailable: CloudWatch Logs gave no usable answer; the cause is the error of botocore.
    """
    stream = re.compile(rf"{re.escape(training_job)}/algo-[0-9]+-[0-9]+\Z")
    request = {**request, "logGroupName": LOG_GROUP, "logStreamNamePrefix": f"{training_job}/"}
    for _ in range(most_pages):
        try:
            answer = client.filter_log_events(**request)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == _MISSING:
                return
            raise Unavailable(f"the log of {training_job} cannot be read: {error}") from error
        events = [event for event in answer["events"] if stream.match(event.get("logStreamName", ""))]
        token = answer.get("nextToken")
        yield LogPage(events, is_last=not token)
        if not token:
            return
        request["nextToken"] = token
