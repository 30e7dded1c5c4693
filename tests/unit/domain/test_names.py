"""Names of attempts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.names import MAX_NAME, apply_qstamp, is_stamped

SAGEMAKER_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
job_names = st.from_regex(SAGEMAKER_NAME, fullmatch=True).filter(lambda name: len(name) <= MAX_NAME)


def test_an_attempt_is_named_after_its_job() -> None:
    assert apply_qstamp("job1", 1) == "job1-qstamp-1"
    assert apply_qstamp("job1", 12) == "job1-qstamp-12"


@given(job_names, st.integers(1, 10**6))
def test_every_attempt_has_a_name_that_sagemaker_takes(name: str, attempt: int) -> None:
    stamped = apply_qstamp(name, attempt)
    assert len(stamped) <= MAX_NAME
    assert re.fullmatch(SAGEMAKER_NAME, stamped)
    assert is_stamped(stamped)


@given(st.lists(job_names, min_size=2, max_size=2, unique=True), st.integers(1, 10**6))
def test_two_jobs_never_share_an_attempts_name(names: list[str], attempt: int) -> None:
    first, second = (name for name in names)
    if not is_stamped(first) and not is_stamped(second):
        assert apply_qstamp(first, attempt) != apply_qstamp(second, attempt)


def test_long_names_that_begin_alike_stay_apart() -> None:
    first, second = "a" * 62 + "b", "a" * 62 + "c"
    assert apply_qstamp(first, 1) != apply_qstamp(second, 1)
    assert len(apply_qstamp(first, 1)) == MAX_NAME


@pytest.mark.parametrize(
    ("name", "stamped"), [("x-qstamp-1", True), ("x-qstamp-", False), ("x-qstamp-1a", False), ("qstamp-1", False)]
)
def test_what_looks_like_an_attempt(name: str, *, stamped: bool) -> None:
    assert is_stamped(name) is stamped
