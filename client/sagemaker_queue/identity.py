"""Whose a job is, as the queue sees it: job_queue/domain/identity.py has the rules, and a test that both agree.

Sessions of a role whose name a library or a service has made up are the role itself: another run has another name.
"""

import re
from fnmatch import fnmatchcase
from typing import Optional

_LIBRARIES = "botocore-session|aws-sdk-(js-session|js|java|php)|aws-go-sdk|aws-dotnet-sdk-session"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INVENTED = re.compile(rf"({_LIBRARIES})-[0-9]{{9,}}|[0-9]{{19}}|[0-9a-f]{{32}}|(.*-)?{_UUID}", re.ASCII)
_ROLE_SESSION = re.compile(r"arn:([^:]+):sts::([^:]*):assumed-role/([^/]+)/([^/]+)")
_ROLE_PATTERN = re.compile(r"(.*):role/(?:.*/)?([^/]*)")
_STUDIO_SESSION = "SageMaker"  # of everybody who uses SageMaker Studio under the same execution role


def owner_of(caller: str) -> str:
    """Return the ARN that the queue knows a caller by as an owner."""
    found = _ROLE_SESSION.fullmatch(caller)
    if found is None or not _INVENTED.fullmatch(found[4]):
        return caller
    return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}"


def matches(pattern: str, owner: str) -> bool:
    """Whether an ARN that may contain ``*`` means an owner; a role's ARN means the role and its sessions.

    ``*`` crosses neither ``/`` nor ``:``; alone it means everybody.
    """
    if pattern == "*" or _fits(pattern, owner):
        return True
    role = _ROLE_PATTERN.fullmatch(pattern)
    if role is None:
        return False
    if found := _ROLE_SESSION.fullmatch(owner):
        account, name = f"arn:{found[1]}:iam::{found[2]}", found[3]
    elif owned := _ROLE_PATTERN.fullmatch(owner):
        account, name = owned.groups()
    else:
        return False
    return _fits(role[1], account) and _fits(role[2], name)


def _fits(pattern: str, text: str) -> bool:
    parts, found = re.split("([/:])", pattern), re.split("([/:])", text)
    return len(parts) == len(found) and all(map(_part_fits, parts, found))


def _part_fits(pattern: str, text: str) -> bool:
    # fnmatch knows more signs than *, which are ordinary characters here.
    return fnmatchcase(text, re.sub(r"([?[])", r"[\1]", pattern))


def sharing(owner: str) -> Optional[str]:
    """Return whom an owner stands for, if that may be several people."""
    if ":role/" in owner:
        return "everybody who has this role"
    found = _ROLE_SESSION.fullmatch(owner)
    return "everybody who has this role in SageMaker Studio" if found and found[4] == _STUDIO_SESSION else None
