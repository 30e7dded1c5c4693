"""Verify that a request is signed (AWS Signature Version 4) with a key of the proxy's user."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, HTTPHeaders
from botocore.credentials import ReadOnlyCredentials

from sagemaker_queue.integrations.proxy.messages import ProxyRefusal, Request

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sagemaker"
SKEW = timedelta(minutes=15)
_TIME = "%Y%m%dT%H%M%SZ"
_SCOPE = re.compile(r"(?P<key>[\w.-]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request")


@dataclass(frozen=True)
class Caller:
    """The credentials and the region with which a request is signed."""

    credentials: ReadOnlyCredentials
    region: str


def verified(
    request: Request, find: Callable[[str], ReadOnlyCredentials | None], now: datetime | None = None
) -> Caller:
    """Return the credentials and region of a request's signature. Raises ProxyRefusal if the signature is not valid.

    ``find`` returns the credentials that belong to an access key, or None. ``now`` defaults to the present time.
    """
    scope, signed, signature = _parts(request.header("Authorization"))
    sent_at = request.header("X-Amz-Date")
    _check_time(sent_at, scope["date"], now or datetime.now(timezone.utc))
    _check_signed_headers(request, signed)
    if scope["service"] != SERVICE:
        raise _invalid(f"Credential should be scoped to correct service: '{SERVICE}'.")
    credentials = find(scope["key"])
    if credentials is None or not _texts_match(credentials.token or "", request.header("X-Amz-Security-Token")):
        raise ProxyRefusal(
            400,
            "UnrecognizedClientException",
            f"The security token included in the request is invalid. smq proxy does not know the key {scope['key']}: "
            "its keys are its own, the keys in ~/.aws, and the keys that the AWS CLI keeps. A program that assumes a "
            "role by itself has another key; give both the same key: "
            'eval "$(aws configure export-credentials --format env)"',
        )
    own_hash = hashlib.sha256(request.body).hexdigest()
    if not _texts_match(request.header("X-Amz-Content-SHA256") or own_hash, own_hash):
        raise _invalid("The body of the request is not the one that was signed: X-Amz-Content-SHA256 has another hash.")
    if not _texts_match(_Verifier(credentials, scope["region"], signed).signature_of(request, sent_at), signature):
        raise _invalid(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details."
        )
    return Caller(credentials, scope["region"])


class _Verifier(SigV4Auth):
    """A signer that computes the signature again, from the same headers and time as the sender."""

    def __init__(self, credentials: ReadOnlyCredentials, region: str, signed: Sequence[str]) -> None:
        super().__init__(credentials, SERVICE, region)
        self._signed = signed

    def signature_of(self, request: Request, sent_at: str) -> str:
        """Return the signature that the request should have."""
        rebuilt: Any = AWSRequest(request.method, f"http://{request.header('Host')}{request.path}", data=request.body)
        for name, value in request.headers.items():
            rebuilt.headers[name] = value
        rebuilt.context["timestamp"] = sent_at
        signature: str = self.signature(self.string_to_sign(rebuilt, self.canonical_request(rebuilt)), rebuilt)
        return signature

    def headers_to_sign(self, request: Any) -> HTTPHeaders:
        """Return the headers that the sender signed. botocore would leave out some headers that other SDKs sign."""
        chosen = HTTPHeaders()
        for name in self._signed:
            for value in request.headers.get_all(name):
                chosen[name] = value
        return chosen


def _parts(authorization: str) -> tuple[re.Match[str], list[str], str]:
    if not authorization:
        raise ProxyRefusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
    algorithm, _, rest = authorization.partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    scope = _SCOPE.fullmatch(parts.get("Credential", ""))
    signed = parts.get("SignedHeaders", "").split(";")
    signature = parts.get("Signature", "")
    if algorithm != ALGORITHM or scope is None or not all(signed) or not signature:
        raise ProxyRefusal(
            400,
            "IncompleteSignatureException",
            f"The Authorization header is not one of AWS Signature Version 4: {ALGORITHM} Credential=KEY/DATE/REGION/"
            f"{SERVICE}/aws4_request, SignedHeaders=..., Signature=...",
        )
    return scope, signed, signature


def _check_time(sent_at: str, date: str, now: datetime) -> None:
    try:
        sent = datetime.strptime(sent_at, _TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        raise ProxyRefusal(400, "IncompleteSignatureException", "X-Amz-Date is missing, or no time.") from None
    if not sent_at.startswith(date):
        raise _invalid(f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date: {sent_at}")
    at = now.strftime(_TIME)
    if sent < now - SKEW:
        oldest = (now - SKEW).strftime(_TIME)
        raise _invalid(f"Signature expired: {sent_at} is now earlier than {oldest} ({at} - 15 min.)")
    if sent > now + SKEW:
        newest = (now + SKEW).strftime(_TIME)
        raise _invalid(f"Signature not yet current: {sent_at} is still later than {newest} ({at} + 15 min.)")


def _check_signed_headers(request: Request, signed: Sequence[str]) -> None:
    """Raise ProxyRefusal if the host or an x-amz- header is not signed, or if a signed header is missing."""
    sent = {name.lower() for name in request.headers}
    needed = {"host", *(name for name in sent if name.startswith("x-amz-"))}
    if missing := sorted(needed - set(signed)):
        raise _invalid(f"The header {missing[0]} must be signed.")
    if absent := sorted(set(signed) - sent):
        raise _invalid(f"The header {absent[0]} is signed, and is not there.")


def _texts_match(one: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _invalid(message: str) -> ProxyRefusal:
    return ProxyRefusal(400, "InvalidSignatureException", message)
