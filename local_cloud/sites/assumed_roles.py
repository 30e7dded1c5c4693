"""AWS's rules of AssumeRole that ministack does not check.

Source: the API reference of AssumeRole and the IAM guide, "Methods to assume a role" (role chaining).
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from ministack.core.iam_evaluator import CredentialResolutionError
from ministack.services import iam, sts

SHORTEST, LONGEST, LONGEST_CHAINED, DEFAULT = 900, 43_200, 3_600, 3_600  # seconds of a session
_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)


def install() -> None:
    """Check each AssumeRole call before ministack. Keep expired sessions, so that their use is refused as expired."""
    handle_request = sts.handle_request

    async def checked(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> tuple[Any, ...]:
        given = parse_qs(body.decode(errors="replace")) if method == "POST" else dict(query)
        values = {name: str(value[0]) for name, value in given.items() if value}
        if values.get("Action") == "AssumeRole" and (refused := _refusal(values, headers, query)):
            status, code, message = refused
            return tuple(sts._error(status, code, message, ns="sts"))
        return tuple(await handle_request(method, path, headers, body, query))

    sts.handle_request = checked
    sts._evict_expired_sessions = lambda: None


def _refusal(values: Mapping[str, str], headers: dict[str, str], query: Any) -> tuple[int, str, str] | None:
    """Return status, code and message of a refusal; None if ministack may answer the call."""
    if invalid := _invalid(values):
        return 400, "ValidationError", invalid
    caller = sts._caller_identity(headers, query)
    if isinstance(caller, CredentialResolutionError):
        return None
    arn = values.get("RoleArn", "")
    account, name = (arn.split(":") + [""] * 5)[4], arn.rpartition("/")[2]
    # Unlike on AWS, the root user may assume roles of its own account, so that tests can act as a role.
    if caller["principalType"] == "Root" and account != caller["accountId"]:
        return 403, "AccessDenied", "Roles may not be assumed by root accounts."
    role = iam._roles.get_scoped(account, None, name)
    longest = int((role or {}).get("MaxSessionDuration") or DEFAULT)
    reason = "exceeds the MaxSessionDuration set for this role."
    if caller["principalType"] == "AssumedRole" and longest >= LONGEST_CHAINED:
        longest, reason = LONGEST_CHAINED, "exceeds the 1 hour session limit for roles assumed by role chaining."
    if int(values.get("DurationSeconds", DEFAULT)) > longest:
        return 400, "ValidationError", f"The requested DurationSeconds {reason}"
    return None


def _invalid(values: Mapping[str, str]) -> str | None:
    """Return a message about the first value that violates the API reference; None if all values are valid."""
    if not _NAME.fullmatch(values.get("RoleSessionName", "")):
        return "RoleSessionName must have 2 to 64 of the characters a-z, A-Z, 0-9 and _+=,.@-"
    if "ExternalId" in values and not _EXTERNAL_ID.fullmatch(values["ExternalId"]):
        return "ExternalId must have 2 to 1224 of the characters a-z, A-Z, 0-9 and _+=,.@:/-"
    seconds = values.get("DurationSeconds", str(DEFAULT))
    if not seconds.isdecimal() or not SHORTEST <= int(seconds) <= LONGEST:
        return f"DurationSeconds must be from {SHORTEST} to {LONGEST}."
    return None
