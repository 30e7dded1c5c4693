"""The owner of a job, by the queue's rules (job_queue/domain/identity.py); a test compares both implementations.

If a library or a service generated the name of a role session, the owner is the role: the same user's next session will
have another name.
"""

import re
from fnmatch import fnmatchcase
from typing import Optional

_LIBRARIES = "botocore-session|aws-sdk-(js-session|js|java|php)|aws-go-sdk|aws-dotnet-sdk-session"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INVENTED = re.compile(rf"({_LIBRARIES})-[0-9]{{9,}}|[0-9]{{19}}|[0-9a-f]{{32}}|(.*-)?{_UUID}", re.ASCII)
_ROLE_SESSION = re.compile(r"arn:([^:]+):sts::([^:]*):assumed-role/([^/]+)/([^/]+)")
_ROLE_PATTERN = re.compile(r"(.*):role/(?:.*/)?([^/]*)")
_STUDIO_SESSION = "SageMaker"  # the session name of all users of SageMaker Studio with the same execution role


def owner_of(caller: str) -> str:
    """Return the ARN of the owner of a caller's jobs: the role if the session's name is generated, else ``caller``."""
    found = _ROLE_SESSION.fullmatch(caller)
    if found is None or not _INVENTED.fullmatch(found[4]):
        return caller
    return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}"


def matches(pattern: str, owner: str) -> bool:
    """Return whether an ARN, which may contain ``*``, matches an owner; the ARN of a role also matches its sessions.

    ``*`` matches neither ``/`` nor ``:``; the pattern ``*`` alone matches every owner.
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
    # For fnmatch, ? and [ are special characters too; here they are ordinary characters.
    return fnmatchcase(text, re.sub(r"([?[])", r"[\1]", pattern))


def sharing(owner: str) -> Optional[str]:
    """Return a description of the people who share an owner; None if the owner is a single identity."""
    if ":role/" in owner:
        return "everybody who has this role"
    found = _ROLE_SESSION.fullmatch(owner)
    return "everybody who has this role in SageMaker Studio" if found and found[4] == _STUDIO_SESSION else None
