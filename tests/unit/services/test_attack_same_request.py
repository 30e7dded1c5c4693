"""Somebody sends the words of another's request: it is not their job, and nothing is learnt from the answer."""

from typing import Any

import pytest

from job_queue.domain.errors import NameTaken
from tests.jobs import OWNER, a_request
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack

ACCOUNT = "arn:aws:iam::123456789012"
EVE = f"{ACCOUNT}:user/eve"
SECRET: dict[str, Any] = {"Environment": {"PASSWORD": "right"}}


def test_who_is_ahead_with_anothers_request_does_not_get_their_answer() -> None:
    """Otherwise they would believe it theirs, and it could be cancelled at any time."""
    queue = Harness()
    queue.submissions.submit(a_request(), EVE)
    with pytest.raises(NameTaken):
        queue.submissions.submit(a_request(), OWNER)


def test_a_guess_of_anothers_values_is_answered_alike_whether_it_is_right_or_wrong() -> None:
    queue = Harness()
    queue.submissions.submit(a_request(**SECRET), OWNER)
    answers = []
    for guess in ("right", "wrong"):
        with pytest.raises(NameTaken) as refused:
            queue.submissions.submit(a_request(Environment={"PASSWORD": guess}), EVE)
        answers.append(refused.value.message)
    assert answers[0] == answers[1]


def test_sessions_of_a_role_whose_names_are_made_up_are_one_owner() -> None:
    queue = Harness()
    sessions = [f"arn:aws:sts::123456789012:assumed-role/team/botocore-session-17000000{n}" for n in (10, 20)]
    first, again = (queue.submissions.submit(a_request(), session) for session in sessions)
    assert (first.known, again.known) == (False, True)
