"""SageMaker's list of training jobs, page by page, the newest first.

ListTrainingJobs takes a page of the newest training jobs, and then applies a filter by status to this page. So a filter
would miss older training jobs, and this module requests pages without a filter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.sites.clients import is_service_failure
from job_queue.domain.errors import SiteSilent, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import ListTrainingJobsRequestTypeDef, TrainingJobSummaryTypeDef

LISTS_PER_SECOND = 2  # calls of ListTrainingJobs that SageMaker allows an account; AWS does not raise this limit
PAGE = 100  # maximum in one call

_ALIVE = frozenset({"InProgress", "Stopping"})


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A training job in the list."""

    name: str
    created: float  # epoch seconds
    alive: bool
    warm: bool = False  # the training job has ended, and its instances are kept
    secondary: str = ""  # the SecondaryStatus
    modified: float | None = None  # epoch seconds of the last change


class TrainingJobList:
    """The list for one walk. At most two calls are sent a second, even if the walk starts again.

    :param sleep: waits for a number of seconds.
    """

    def __init__(self, client: "SageMakerClient", sleep: Callable[[float], None]) -> None:
        self._client = client
        self._sleep = sleep
        self._calls = 0

    def newest_first(self, before: int | None = None) -> Iterator[list[ListedJob]]:
        """Yield page after page to the end of the list. Each page takes one call.

        :param before: begin with training jobs that were created before this time (epoch seconds).
        :raises SiteSilent: SageMaker did not respond, or failed (HTTP status 500 or more).
        :raises Unavailable: SageMaker refused the call.
        """
        request: ListTrainingJobsRequestTypeDef = {
            "SortBy": "CreationTime",
            "SortOrder": "Descending",
            "MaxResults": PAGE,
        }
        if before is not None:
            request["CreationTimeBefore"] = datetime.fromtimestamp(before, UTC)
        while True:
            if self._calls and self._calls % LISTS_PER_SECOND == 0:
                self._sleep(1)
            self._calls += 1
            try:
                page = self._client.list_training_jobs(**request)
            except (ClientError, BotoCoreError) as error:
                is_refusal = isinstance(error, ClientError) and not is_service_failure(error)
                kind = Unavailable if is_refusal else SiteSilent
                raise kind(f"SageMaker did not list its training jobs: {error}") from error
            yield [_listed(summary) for summary in page["TrainingJobSummaries"]]
            if "NextToken" not in page:
                return
            request["NextToken"] = page["NextToken"]


def _listed(summary: "TrainingJobSummaryTypeDef") -> ListedJob:
    alive = summary["TrainingJobStatus"] in _ALIVE
    warm = not alive and summary.get("WarmPoolStatus", {}).get("Status") == "Available"
    modified = summary["LastModifiedTime"].timestamp() if "LastModifiedTime" in summary else None
    secondary = summary.get("SecondaryStatus", "")
    return ListedJob(summary["TrainingJobName"], summary["CreationTime"].timestamp(), alive, warm, secondary, modified)
