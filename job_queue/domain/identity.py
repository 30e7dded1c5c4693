"""Identities of callers: the owner of a caller's jobs, and the callers that a pattern in the policy matches.

API Gateway identifies a user by the user's ARN. A caller that has assumed a role is identified by the ARN of the
session, `arn:aws:sts::A:assumed-role/NAME/SESSION`, which does not have the role's path. The caller may choose the name
of the session. Otherwise a library or a service invents a name, which differs each time.

The patterns of invented names come from the code of botocore and the AWS SDKs. The patterns for ECS, EKS and CodeBuild
come from the documentation of these services.
"""

import re
from dataclasses import dataclass

from job_queue.domain.access.patterns import matches_pattern

_LIBRARIES = (
    "botocore-session",  # boto3, the AWS CLI and smq
    "aws-sdk-js-session",
    "aws-sdk-js",
    "aws-sdk-java",
    "aws-sdk-php",
    "aws-go-sdk",
    "aws-dotnet-sdk-session",
)
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INVENTED = re.compile(
    rf"({'|'.join(_LIBRARIES)})-[0-9]{{9,}}"  # a library and the time, in any unit
    "|[0-9]{19}"  # Go's first SDK: the time in nanoseconds
    "|[0-9a-f]{32}"  # a task of ECS
    rf"|(.*-)?{_UUID}",  # a build of CodeBuild, a pod of EKS, an older task of ECS
    re.ASCII,
)
_ROLE_SESSION = re.compile(r"arn:([^:]+):sts::([^:]*):assumed-role/([^/]+)/([^/]+)")
_ROLE_PATTERN = re.compile(r"(.*):role/(?:.*/)?([^/]*)")
_WILDCARD = "*"
ANY_CALLER = "*"  # the only pattern that is not an ARN
_PATH_OF_IDENTITY_CENTER, _NAME_OF_IDENTITY_CENTER = "aws-reserved/", "AWSReservedSSO_"
# The resource types of callers, and the service in the ARNs of each type.
_CALLERS = {"root": "iam", "user": "iam", "role": "iam", "assumed-role": "sts", "federated-user": "sts"}


@dataclass(frozen=True, slots=True)
class RoleSession:
    """A session of a role."""

    account_arn_prefix: str  # beginning of the role's ARN, with partition and account: arn:aws:iam::111122223333
    role: str  # name of the role, without its path
    session: str

    @property
    def role_arn(self) -> str:
        """The role's ARN without the role's path, because a session's ARN does not have the path."""
        return f"{self.account_arn_prefix}:role/{self.role}"

    @property
    def has_invented_name(self) -> bool:
        """Whether a library or a service invented the session's name, so that it does not identify a person."""
        return bool(_INVENTED.fullmatch(self.session))


def role_session(arn: str) -> RoleSession | None:
    """Return the session of a caller's ARN, or None if the caller has not assumed a role."""
    found = _ROLE_SESSION.fullmatch(arn)
    if found is None:
        return None
    partition, account, role, session = found.groups()
    return RoleSession(f"arn:{partition}:iam::{account}", role, session)


def owner_of(caller: str) -> str:
    """Return the owner of a caller's submissions: the caller, or the role if the session's name was invented."""
    found = role_session(caller)
    return found.role_arn if found and found.has_invented_name else caller


def acts_for(caller: str, owner: str) -> bool:
    """Return whether a caller is the owner of a job. The jobs of a role belong to all sessions of the role.

    :param owner: the recorded owner; old records may have a session with an invented name.
    """
    meant, found = owner_of(owner), role_session(caller)
    return meant in (caller, found.role_arn if found else None)


def matches(pattern: str, caller: str) -> bool:
    """Return whether an ARN that may contain `*` matches a caller. A role's ARN matches all sessions of the role.

    In an ARN, `*` matches any characters except `/` and `:`. The pattern `*` alone matches all callers.
    """
    if pattern == ANY_CALLER or matches_pattern(pattern, caller):
        return True
    found, role = role_session(caller), _ROLE_PATTERN.fullmatch(pattern)
    if found is None or role is None:
        return False
    account, name = role.groups()
    return matches_pattern(account, found.account_arn_prefix) and matches_pattern(name, found.role)


def pattern_issue(pattern: str) -> str | None:
    """Return why a pattern is not valid, or None if the pattern is valid.

    A pattern is not valid if it can match no caller, or if it could match other callers than it seems to.

    The message is a text that follows the pattern, as in "arn:... is ...".
    """
    if pattern == ANY_CALLER:
        return None
    if not pattern.startswith("arn:"):
        return "is not an ARN, and callers are known by theirs"
    if re.search(r"[?\[\]]", pattern):
        return "has ? or [, which stand for nothing else here: only * does"
    parts = pattern.split(":", 5)
    if len(parts) < 6:
        return "is not a whole ARN, and * does not cross a colon"
    return _arn_issue(*parts[2:])


def _arn_issue(service: str, region: str, account: str, resource: str) -> str | None:
    kind, slash, name = resource.partition("/")
    if _WILDCARD in service + region + kind:
        return "leaves open what it is the ARN of: write user/, role/ or assumed-role/ and what follows"
    if kind not in _CALLERS or bool(slash) is (kind == "root") or (slash and not name):
        return "is not the ARN of a caller: those are users, roles and sessions of roles (assumed-role)"
    if service != _CALLERS[kind] or region:
        return f"is not an ARN of its kind: such ARNs begin with arn:aws:{_CALLERS[kind]}::"
    if _WILDCARD not in account and not re.fullmatch("[0-9]{12}", account):
        return "names no account, which has 12 digits"
    special = {"role": _role_issue, "assumed-role": _session_issue}
    return (special[kind](name) if kind in special else None) or _name_issue(name.rpartition("/")[2], kind)


def _name_issue(name: str, kind: str) -> str | None:
    """Return how a name breaks IAM's rule for the names of users, roles and sessions, or None if it does not."""
    if kind == "root" or re.fullmatch(r"[\w+=,.@*-]+", name, re.ASCII):
        return None
    return "matches no caller: the last part of a name may have only letters, digits and _+=,.@-"


def _role_issue(name: str) -> str | None:
    path, slash, last = name.rpartition("/")
    if not last:
        return "names no role"
    if not slash or _WILDCARD not in last:
        return None
    # All role names of IAM Identity Center begin with AWSReservedSSO_, and only AWS manages roles with such names. So a
    # wildcard after this beginning matches no roles in other paths.
    if path.startswith(_PATH_OF_IDENTITY_CENTER) and last.startswith(_NAME_OF_IDENTITY_CENTER):
        return None
    # A session's ARN lacks the role's path. A wildcard name would therefore also match roles in other paths.
    return (
        "would also match roles with other paths, because the ARN of a session has no path: name each role, or leave "
        "out the path"
    )


def _session_issue(name: str) -> str | None:
    slashes = name.count("/")
    if slashes > 1:
        return "matches no session, because the ARN of a session has no path: leave out the path"
    if not slashes:
        return "names no session: append /* for all of them, or give the role's ARN"
    if _INVENTED.fullmatch(name.partition("/")[2]):
        return "names a session that a library has made up and never will again: give the role's ARN"
    return None
