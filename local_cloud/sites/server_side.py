"""Changes to ministack for several accounts and regions: root users of all accounts, and outages of sites.

The SageMaker emulator and its jobs use separate keys of the root users. These keys also work during an outage, in which
jobs continue.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypercorn.protocol.events import StreamClosed
from ministack.core import iam_evaluator, responses
from ministack.core.iam_evaluator import (
    CredentialResolutionError,
    EvalContext,
    ResolvedCredential,
    evaluate,
    resource_policy_allows,
)
from ministack.core.responses import get_account_id, set_request_account_id
from ministack.core.router import extract_access_key_id, extract_signed_region
from ministack.services import eventbridge, s3, sts

POLL = 0.05  # seconds
INVALID = CredentialResolutionError("InvalidToken", "The provided token is malformed or otherwise invalid.")


class ServerSites:
    """The root users' keys, and the sites that do not answer.

    :param keys: access key, secret key, account, and whether the key works during an outage.
    """

    def __init__(self, keys: Sequence[tuple[str, str, str, bool]]) -> None:
        self._accounts = {access: account for access, _, account, _ in keys}
        self._secrets = {access: secret for access, secret, _, _ in keys}
        self._inside = {access for access, _, _, inside in keys if inside}
        self._out: dict[tuple[str, str], bool] = {}

    def is_root(self, key: str) -> bool:
        """Return whether a key belongs to the root user of one of the accounts."""
        return key in self._accounts

    def install(self) -> None:
        """Make ministack accept the keys and find their accounts."""
        account_of_session, resolve = responses._account_from_sts_session, iam_evaluator.resolve_credential

        def account_of(key: str) -> Any:
            return self._accounts.get(key) or account_of_session(key)

        def resolve_credential(key: str, account: str | None = None, *token: Any, **named: Any) -> Any:
            if key not in self._accounts:
                return resolve(key, account, *token, **named)
            if any(isinstance(given, str) and given for given in (*token, *named.values())):
                return INVALID  # a root user's key has no session token
            return self._root(key)

        responses._account_from_sts_session = sts._account_from_sts_session = account_of
        for module in (iam_evaluator, sts, s3):
            module.resolve_credential = resolve_credential

    def change(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the list of sites that do not answer.

        :param question: `out` is a list of triples: account, region, and whether calls wait for the end of the outage.
        """
        self._out = {(account, region): silent for account, region, silent in question["out"]}
        return {}

    async def keep_from(self, scope: Mapping[str, Any], send: Callable[..., Any]) -> bool:
        """Close the connection of a call for a site with an outage, and return True. Return False for other calls.

        In a silent outage, the connection is closed when the outage ends.
        """
        if not self._out:
            return False
        site = self._site_of(scope)
        if site not in self._out:
            return False
        while self._out.get(site):
            await asyncio.sleep(POLL)
        stream: Any = getattr(send, "__self__")  # noqa: B009  ASGI has no message that closes a connection
        await stream.send(StreamClosed(stream_id=stream.stream_id))
        return True

    def _site_of(self, scope: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the account and the region of a call; None if the call is unsigned or has a key of the emulator."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        key, region = extract_access_key_id(headers, {}), extract_signed_region(headers, {})
        if not key or not region or key in self._inside:
            return None
        return account_of_key(key), region

    def _root(self, key: str) -> ResolvedCredential:
        account = self._accounts[key]
        return ResolvedCredential(
            access_key_id=key,
            secret_access_key=self._secrets[key],
            account_id=account,
            principal_arn=f"arn:aws:iam::{account}:root",
            principal_id=account,
            principal_type="Root",
            source_access_key_id=key,
        )


def account_of_key(key: str) -> str:
    """Return the account of an access key; the home account if the key is unknown."""
    set_request_account_id(iam_evaluator.find_iam_access_key_account(key) or key)
    return str(get_account_id())


def account(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the account of an access key, and whether the key is known, for the emulator of SageMaker."""
    found = account_of_key(question["key"])
    credential = iam_evaluator.resolve_credential(question["key"], found)
    return {"account": found, "known": isinstance(credential, ResolvedCredential)}


def forward(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return an empty object if an event may be forwarded to another site's bus, else `refused` with the reason.

    As on AWS, the role of the rule's target must allow events:PutEvents on the bus. If the role is another account's,
    the policy of the bus must also allow the action.
    """
    role, bus = question["role"], question["bus"]
    parts, owner = role.split(":"), bus.split(":")
    if len(parts) < 6:  # noqa: PLR2004
        return {"refused": "the rule's target has no role"}
    account, name = parts[4], role.rpartition("/")[2]
    context = EvalContext(
        principal_arn=f"arn:aws:sts::{account}:assumed-role/{name}/events",
        principal_type="AssumedRole",
        principal_account=account,
        action="events:PutEvents",
        resource_arn=bus,
        region=owner[3],
        service_context={"events:source": question["source"], "events:detail-type": question["detail-type"]},
    )
    policies = iam_evaluator._gather_role_policies(name, account)
    if evaluate(context, policies).decision != "Allow":
        return {"refused": f"{role} does not allow events:PutEvents on {bus}"}
    policy = eventbridge._event_bus_policies.get_scoped(owner[4], owner[3], bus.rpartition("/")[2])
    if not resource_policy_allows(policy, context, same_account=account == owner[4]):
        return {"refused": f"the policy of {bus} does not allow it to account {account}"}
    return {}


def expire(question: Mapping[str, Any]) -> dict[str, Any]:
    """Let all sessions of assumed roles expire now."""
    assumed = [one for one in sts._sessions.values() if one.get("SourceAccessKeyId")]
    for session in assumed:
        session["Expiration"] = time.time() - 1
    return {"expired": len(assumed)}
