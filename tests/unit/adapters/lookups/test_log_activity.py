"""Whether a training job has written a line: any line counts, and what is not certain is not known."""

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from job_queue.adapters.lookups.log_activity import EARLY_SECONDS, LINES_OF_PAGE, MOST_PAGES, LogActivity
from job_queue.adapters.lookups.training_logs import LOG_GROUP
from job_queue.domain.errors import Unavailable
from tests.jobs import NOW

STARTED, SINCE = NOW - 7200, NOW - 1800
LINE: dict[str, Any] = {"events": [{"message": ".", "logStreamName": "a-qstamp-1/algo-1-1764000000"}]}
SSM: dict[str, Any] = {"events": [{"message": ".", "logStreamName": "a-qstamp-1/algo-1-1764000000/ssm"}]}
NONE: dict[str, Any] = {"events": []}
MORE: dict[str, Any] = {"events": [], "nextToken": "more"}


def look(*answers: dict[str, Any]) -> tuple[bool | None, list[dict[str, Any]]]:
    """Return the result and the requests."""
    client = boto3.client("logs", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    asked: list[dict[str, Any]] = []
    client.meta.events.register("provide-client-params.logs.FilterLogEvents", lambda params, **_: asked.append(params))
    with Stubber(client) as stub:
        for answer in answers:
            stub.add_response("filter_log_events", answer)
        result = LogActivity(client)("a-qstamp-1", STARTED, SINCE)
        stub.assert_no_pending_responses()
    return result, asked


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((LINE,), True),
        ((MORE, LINE), True),
        ((NONE, LINE), False),
        ((MORE, NONE, MORE, LINE), False),
        ((NONE, NONE), None),  # no line at all: the log may be late
        ((MORE,) * MOST_PAGES, None),
        ((NONE, *(MORE,) * MOST_PAGES), None),
        ((SSM, LINE), False),  # the agent of a shell writes also if the job hangs
        ((SSM, SSM), None),
        (({**SSM, "nextToken": "more"}, LINE), True),
    ],
)
def test_silence_needs_an_earlier_line_and_an_end_of_the_pages(
    answers: tuple[dict[str, Any], ...], expected: bool | None
) -> None:
    assert look(*answers)[0] is expected


def test_the_requests_read_few_lines_of_the_attempts_own_streams() -> None:
    _, (recent, first) = look(NONE, LINE)
    common = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": "a-qstamp-1/", "limit": LINES_OF_PAGE}
    assert recent == {**common, "startTime": 1000 * SINCE}
    assert first == {**common, "startTime": 1000 * (STARTED - EARLY_SECONDS)}


@pytest.mark.parametrize(
    ("code", "expected"), [("ResourceNotFoundException", None), ("AccessDeniedException", "error")]
)
def test_a_missing_log_is_not_known_and_other_errors_are_reported(code: str, expected: str | None) -> None:
    client = boto3.client("logs", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stub:
        stub.add_client_error("filter_log_events", code)
        if expected is None:
            assert LogActivity(client)("a-qstamp-1", STARTED, SINCE) is None
        else:
            with pytest.raises(Unavailable, match="the log of a-qstamp-1 cannot be read"):
                LogActivity(client)("a-qstamp-1", STARTED, SINCE)
