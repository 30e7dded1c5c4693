"""SageMaker's list of training jobs as it is: pages are cut before a status is looked at, and it may be asked for twice
a second."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from job_queue.adapters.lookups.training_list import LISTS_PER_SECOND, ListedJob, TrainingJobList
from job_queue.adapters.sagemaker import SageMakerTraining
from job_queue.domain.errors import SiteSilent, Unavailable
from tests.jobs import NOW


class Account:
    """Training jobs, one a minute, the newest first; tells when its list was asked for."""

    def __init__(self, *statuses: str) -> None:
        self._jobs = [(f"job{number}", NOW - 60 * number, status) for number, status in enumerate(statuses)]
        self.now = 0.0
        self.asked: list[float] = []

    def list_training_jobs(self, **options: Any) -> dict[str, Any]:
        self.asked.append(self.now)
        assert (options["SortBy"], options["SortOrder"]) == ("CreationTime", "Descending")
        first = int(options.get("NextToken", "0"))
        before = options.get("CreationTimeBefore", datetime.fromtimestamp(NOW + 1, UTC)).timestamp()
        chosen = [job for job in self._jobs if job[1] < before]
        page = chosen[first : first + options["MaxResults"]]
        summaries = [
            {"TrainingJobName": name, "CreationTime": datetime.fromtimestamp(at, UTC), "TrainingJobStatus": status}
            for name, at, status in page
            if status == options.get("StatusEquals", status)
        ]
        more = first + len(page) < len(chosen)
        return {"TrainingJobSummaries": summaries, **({"NextToken": str(first + len(page))} if more else {})}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def listed(self) -> TrainingJobList:
        return SageMakerTraining(cast(Any, self), cast(Any, None), self.sleep).training_jobs()


def test_whoever_holds_instances_is_found_behind_any_number_of_ended_ones() -> None:
    account = Account(*["Completed"] * 730, "InProgress", "Failed", "Stopping", "Stopped")
    pages = list(account.listed().newest_first())
    assert [job.name for page in pages for job in page if job.alive] == ["job730", "job732"]
    assert len(account.asked) == 8


def test_the_list_can_be_entered_further_down() -> None:
    account = Account(*["Completed"] * 300)
    first = next(account.listed().newest_first(before=int(NOW) - 60 * 250))
    assert first[0] == ListedJob("job251", NOW - 60 * 251, alive=False)


def test_the_list_is_asked_for_at_most_twice_a_second_also_where_a_walk_begins_anew() -> None:
    account = Account(*["Completed"] * 2000)
    listed = account.listed()
    for before in (None, int(NOW) - 60 * 500, int(NOW) - 60 * 1000):
        list(islice(listed.newest_first(before), 3))
    assert len(account.asked) == 9
    later = account.asked[LISTS_PER_SECOND:]
    assert all(last - first >= 1 for first, last in zip(account.asked, later, strict=False))


def test_a_page_is_not_waited_for() -> None:
    account = Account(*["Completed"] * 90)
    list(account.listed().newest_first())
    assert (len(account.asked), account.now) == (1, 0)


class Failing:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def list_training_jobs(self, **_: Any) -> None:
        raise self._error


def refused(code: str, status: int) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "no list"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "ListTrainingJobs")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("ThrottlingException", 400), Unavailable),
        (refused("AccessDeniedException", 400), Unavailable),
        (refused("InternalFailure", 500), SiteSilent),
        (refused("ServiceUnavailable", 503), SiteSilent),
        (EndpointConnectionError(endpoint_url="https://no list"), SiteSilent),
    ],
)
def test_a_refusal_is_told_from_silence(error: Exception, kind: type[Unavailable]) -> None:
    with pytest.raises(Unavailable, match="no list") as raised:
        next(TrainingJobList(cast(Any, Failing(error)), lambda _: None).newest_first())
    assert raised.type is kind
