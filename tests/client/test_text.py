"""Times and tables as text."""

from datetime import UTC, datetime, timedelta

import pytest

from sagemaker_queue.text import age


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (timedelta(seconds=41), "41s"),
        (timedelta(minutes=3, seconds=7), "3m07s"),
        (timedelta(hours=26), "1d2h"),
        (timedelta(seconds=-100), "0s"),  # the queue's clock is ahead
    ],
)
def test_age(elapsed: timedelta, text: str) -> None:
    assert age(datetime.now(UTC) - elapsed) == text
