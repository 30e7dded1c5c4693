"""The function's environment: what is read from it, and what is refused."""

import re

import pytest

from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain.access.rights import Action
from tests.documents import read_template
from tests.identities import ACCOUNT, ADA, HOPELESS, LIBRARY, OTHER, PATTERNS, ROLE, SSO, USER

ADMINS = re.compile(read_template()["Parameters"]["AdminArns"]["AllowedPattern"])


def settings(**environment: str) -> DeploymentSettings:
    return DeploymentSettings.from_environment(environment)


def test_what_is_missing_has_a_default() -> None:
    assert settings() == DeploymentSettings()


def test_what_is_given_is_read() -> None:
    found = settings(CREATE_RATE="0.5", CREATE_BURST="3", CHECKPOINT_BUCKETS="one,other", ADMIN_ARNS=f"{USER}, {ROLE}")
    assert (found.create_rate, found.create_burst) == (0.5, 3)
    assert found.checkpoint_buckets == ("one", "other")
    assert found.admin_arns == (USER, ROLE)
    assert settings(CHECKPOINT_BUCKETS="").checkpoint_buckets == ()


def test_an_admin_is_a_user_or_a_session_of_a_role() -> None:
    found = settings(ADMIN_ARNS=f"{USER},arn:aws:iam::{ACCOUNT}:role/teams/Research")
    assert [caller for caller in (USER, ADA, LIBRARY, OTHER, SSO) if found.rights.may(Action.APPLY_POLICY, caller)] == [
        USER,
        ADA,
        LIBRARY,
    ]


@pytest.mark.parametrize("arn", [pattern for pattern, _ in HOPELESS if pattern])
def test_an_admin_that_nobody_can_be_is_an_error_at_the_start(arn: str) -> None:
    with pytest.raises(ValueError, match=r"AdminArns \(ADMIN_ARNS\) is wrong: " + re.escape(arn)):
        settings(ADMIN_ARNS=f"{USER},{arn}")


# The template's pattern does not know the names that libraries make up.
@pytest.mark.parametrize("arn", [pattern for pattern, said in HOPELESS if pattern and said != "made up"])
def test_and_is_refused_at_deployment(arn: str) -> None:
    assert not ADMINS.fullmatch(arn)
    assert not ADMINS.fullmatch(f"{USER},{arn}")


@pytest.mark.parametrize("arn", [pattern for pattern, _ in PATTERNS if f"::{ACCOUNT}:" in pattern])
def test_what_can_be_somebody_is_let_pass_at_deployment(arn: str) -> None:
    assert ADMINS.fullmatch(arn)
    assert ADMINS.fullmatch(f"{USER},{arn}")
