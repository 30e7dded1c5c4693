"""The client's view of owners is the queue's."""

from typing import Optional

import pytest

from job_queue.domain import identity as queues
from sagemaker_queue.queue.identity import matches, owner_of, sharing
from tests.identities import ADA, CALLERS, OWNERS, PATTERNS, ROLE, STUDIO, USER


@pytest.mark.parametrize("caller", [caller for caller, _ in OWNERS])
def test_an_owner_is_the_same_on_both_sides(caller: str) -> None:
    assert owner_of(caller) == queues.owner_of(caller)


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in PATTERNS])
def test_a_pattern_means_the_same_on_both_sides(pattern: str) -> None:
    for caller in CALLERS:
        assert matches(pattern, caller) is queues.matches(pattern, caller), caller


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [(ROLE, True), (ROLE.replace("role/", "role/teams/"), True), (ROLE.replace("Res", "S"), False), (USER, False)],
)
def test_a_role_that_owns_jobs_is_meant_by_its_arn(pattern: str, meant: bool) -> None:
    assert matches(pattern, ROLE) is meant


@pytest.mark.parametrize(
    ("owner", "others"),
    [
        (ROLE, "everybody who has this role"),
        (STUDIO, "everybody who has this role in SageMaker Studio"),
        (ADA, None),
        (USER, None),
    ],
)
def test_an_owner_that_may_be_several_people_is_known(owner: str, others: Optional[str]) -> None:
    assert sharing(owner) == others
