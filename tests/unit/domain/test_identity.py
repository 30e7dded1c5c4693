"""Who owns a job, and whom an ARN that somebody has written down means."""

import pytest

from job_queue.domain.identity import acts_for, matches, owner_of, pattern_issue
from tests.identities import ADA, CALLERS, HOPELESS, LIBRARY, OTHER, OWNERS, PATTERNS, ROLE, SESSIONS, STUDIO, USER


@pytest.mark.parametrize(("caller", "owner"), OWNERS)
def test_an_owner_is_the_caller_or_the_role_where_the_sessions_name_was_made_up(caller: str, owner: str | None) -> None:
    assert owner_of(caller) == (owner or caller)
    assert owner_of(owner_of(caller)) == owner_of(caller)


@pytest.mark.parametrize(
    ("caller", "owner", "is_owner"),
    [
        (USER, USER, True),
        (USER, ADA, False),
        (ADA, ADA, True),
        (f"{SESSIONS}/Research/bob", ADA, False),
        (STUDIO, STUDIO, True),  # all who share the role
        # What one run submitted, the next may cancel, whichever of the two forms is recorded.
        (LIBRARY, ROLE, True),
        (LIBRARY, f"{SESSIONS}/Research/botocore-session-1700000000", True),
        # What belongs to the role belongs to its named sessions, and not the other way round.
        (ADA, ROLE, True),
        (LIBRARY, ADA, False),
        (OTHER, ROLE, False),
        (f"{SESSIONS}/Search/botocore-session-1791092141", ROLE, False),
        (LIBRARY.replace("111122223333", "999999999999"), ROLE, False),
        (USER.replace("ada", "*"), USER, False),
        ("", "", True),
    ],
)
def test_who_may_act_for_an_owner(caller: str, owner: str, is_owner: bool) -> None:
    assert acts_for(caller, owner) is is_owner


@pytest.mark.parametrize(("pattern", "meant"), PATTERNS)
def test_whom_a_pattern_means(pattern: str, meant: list[str]) -> None:
    assert [caller for caller in CALLERS if matches(pattern, caller)] == meant


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in PATTERNS])
def test_what_can_mean_somebody_is_let_pass(pattern: str) -> None:
    assert pattern_issue(pattern) is None


@pytest.mark.parametrize(("pattern", "said"), HOPELESS)
def test_what_can_mean_nobody_is_refused(pattern: str, said: str) -> None:
    assert said in (pattern_issue(pattern) or "")
    meant = [caller for caller in CALLERS if caller != LIBRARY and matches(pattern, caller)]
    assert not meant or said in ("other paths", "leaves open")
