"""Check which owner the caller's jobs have, and whether other people can become the same owner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_queue.queue.identity import owner_of, sharing
from sagemaker_queue.workflows.doctor.findings import Finding, ok, warned
from sagemaker_queue.workflows.doctor.network import SECONDS

IDENTITY = "identity"
_ROLE_SESSION = re.compile(r"arn:[^:]+:sts::[^:]*:assumed-role/([^/]+)/([^/]+)")
_OF_IDENTITY_CENTER = "AWSReservedSSO_"
_MACHINE = re.compile(r"i-[0-9a-f]{8,17}")
_NAMING = "sts:rolesessionname"  # sts:SourceIdentity limits another name, which the queue does not see
# Policy variables that are different for each person, and that the person cannot choose for a session.
_OF_PERSON = re.compile(r"\$\{aws:(username|sourceidentity)\}", re.IGNORECASE)
_LIMITING = frozenset({"stringequals", "stringequalsignorecase", "stringlike"})
_READABLE = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
_NAME_YOURSELF = (
    "Give your session a name (role_session_name in the profile, or AWS_ROLE_SESSION_NAME), and have the role's trust"
    " policy demand it: docs/operate/access.md shows how."
)
_DEMAND = (
    "Have the role's trust policy demand that name: a condition that compares sts:RoleSessionName with"
    " ${aws:username} (for callers from another role: ${aws:SourceIdentity}), as in docs/operate/access.md; or use"
    " IAM Identity Center, or a role of your own."
)


def check_identity(caller: str, session: boto3.Session | None) -> Finding:
    """Name the owner of the caller's jobs, and warn if other people can take the same identity."""
    owner = owner_of(caller)
    yours = f"Your jobs belong to {owner}"
    if others := sharing(owner):
        return warned(
            IDENTITY, f"{yours}: to {others}. Each of them may cancel and change the others' jobs.", _NAME_YOURSELF
        )
    found = _ROLE_SESSION.fullmatch(caller)
    if found is None:
        return ok(IDENTITY, f"{yours}, and only to you.")
    role, name = found.groups()
    if role.startswith(_OF_IDENTITY_CENTER):
        return ok(IDENTITY, f"{yours}; IAM Identity Center names the session.")
    if _MACHINE.fullmatch(name):
        return ok(IDENTITY, f"{yours}: to everybody on this machine.")
    own = _names_are_own(role, caller.split(":")[4], session)
    if own:
        return ok(IDENTITY, f"{yours}; the role's trust policy lets each person use only one name for sessions.")
    known = (
        "the role's trust policy does not limit it to their own names"
        if own is False
        else "you may not read the role's trust policy"
    )
    return warned(
        IDENTITY,
        f"{yours}. People who may assume the role {role} choose the name of their session, and {known}: they can take"
        f" the name {name}, and cancel and change your jobs.",
        _DEMAND,
    )


def _names_are_own(role: str, account: str, session: boto3.Session | None) -> bool | None:
    """Return whether a role's trust policy lets each person use only their own name for sessions.

    None if the policy cannot be read.

    :param account: the role's account.
    """
    if session is None:
        return None
    try:
        iam = session.client("iam", region_name=session.region_name or "us-east-1", config=_READABLE)
        trust = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    except (BotoCoreError, ClientError):
        return None
    statements = list(_statements_for_people(trust)) if isinstance(trust, Mapping) else []
    return bool(statements) and all(_demands_own_name(it) and _is_for(account, it) for it in statements)


def _statements_for_people(trust: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the statements that let people assume the role and name the session themselves.

    With SAML, the identity provider names the session.
    """
    for statement in _listed(trust.get("Statement", [])):
        principal = statement.get("Principal", "*")  # without it, the statement has NotPrincipal
        kinds = {"AWS", "Federated"} if principal == "*" else set(principal)
        by_name = "AWS" in kinds and _includes(statement, "sts:assumerole")
        by_token = "Federated" in kinds and _includes(statement, "sts:assumerolewithwebidentity")
        if statement.get("Effect") == "Allow" and (by_name or by_token):
            yield statement


def _includes(statement: Mapping[str, Any], action: str) -> bool:
    if "NotAction" in statement:
        return not _any_fits(statement["NotAction"], action)
    return _any_fits(statement.get("Action", []), action)


def _any_fits(patterns: Any, action: str) -> bool:
    """Return whether a pattern, which may contain * and ? and ignores case, includes an action."""
    return any(fnmatchcase(action, str(pattern).lower()) for pattern in _listed(patterns))


def _demands_own_name(statement: Mapping[str, Any]) -> bool:
    """Return whether a condition limits the session's name to the caller's own, such as ${aws:username}.

    Negations and IfExists do not count, and neither do wildcards and fixed names: other people could take such names.
    """
    return any(
        operator.lower() in _LIMITING
        and key.lower() == _NAMING
        and all(_OF_PERSON.fullmatch(str(it)) for it in _listed(values))
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _is_for(account: str, statement: Mapping[str, Any]) -> bool:
    """Return whether a statement is only for one account. Two accounts may have users of the same name."""
    principal = statement.get("Principal")
    people = _listed(principal.get("AWS", [])) if isinstance(principal, Mapping) else []
    return bool(people) and all(re.fullmatch(rf"(arn:[^:]+:iam::)?{account}(:.+)?", str(it)) for it in people)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
