"""The access keys that the proxy's user has on this machine. Requests signed with another key are refused.

A program signs with a key of its own, which may differ from the proxy's key. An instance's role repeatedly gets new
keys, and each assumption of a role or log-in by the Identity Center creates a new key. A request that is signed with
one of the following keys comes from the user, and is answered with the credentials of that key:

- the proxy's present and earlier keys, since a program may use a key that is older than the proxy's present one;
- the present key of the instance or container, since a program may use a newer key than the proxy;
- keys in the user's own files: of any profile in ~/.aws, and of roles and log-ins in the AWS CLI's cache.

The proxy does not check whether a temporary key has expired: AWS checks the key at each request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import boto3
import botocore.session
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

_CLI_CACHE = Path("~/.aws/cli/cache")
_READ_AGAIN = frozenset({"iam-role", "container-role"})  # reading these sources is one local request, without a prompt
_MOST = 64  # maximum number of remembered keys
_MOST_BYTES = 100_000  # maximum size of a file in the cache; usual files have 2,000 bytes


class CredentialsByKey:
    """The user's credentials by access key. Thread-safe."""

    def __init__(self, make_session: Callable[[], boto3.Session]) -> None:
        self._make_session = make_session
        self._session = make_session()
        self._known: dict[str | None, ReadOnlyCredentials] = {}
        self._lock = threading.Lock()

    def proxy_credentials(self) -> ReadOnlyCredentials | None:
        """Return the proxy's present credentials, or None.

        Raises BotoCoreError for expired credentials, and ClientError if AWS refuses to let the caller assume the role.
        """
        found = _frozen(self._session)
        if found is not None:
            with self._lock:
                self._remember([found])
        return found

    def find(self, access_key: str) -> ReadOnlyCredentials | None:
        """Return the user's credentials with this access key; None if this machine does not have the key."""
        with self._lock:
            if access_key not in self._known:
                self._remember(self._credentials_of(self._session))
            if access_key not in self._known:
                self._remember(found for found in self._other_credentials() if found.access_key == access_key)
            return self._known.get(access_key)

    def _remember(self, found: Iterable[ReadOnlyCredentials]) -> None:
        for credentials in found:
            self._known.pop(credentials.access_key, None)
            self._known[credentials.access_key] = credentials
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]  # the oldest entry

    def _other_credentials(self) -> Iterator[ReadOnlyCredentials]:
        credentials = self._session.get_credentials()
        if credentials is not None and credentials.method in _READ_AGAIN:
            yield from self._credentials_of(self._make_session())
        yield from _of_profiles()
        yield from _of_the_cli()

    @staticmethod
    def _credentials_of(session: boto3.Session) -> Iterator[ReadOnlyCredentials]:
        try:
            found = _frozen(session)
        except (BotoCoreError, ClientError):  # expired, or a refused role; other sources may have newer credentials
            return
        if found is not None:
            yield found


def _frozen(session: boto3.Session) -> ReadOnlyCredentials | None:
    credentials = session.get_credentials()
    return credentials.get_frozen_credentials() if credentials else None


def _of_profiles() -> Iterator[ReadOnlyCredentials]:
    """Yield the keys in the present files of ~/.aws."""
    try:
        profiles = botocore.session.Session().full_config.get("profiles", {})
    except BotoCoreError:  # a file that cannot be parsed
        return
    for profile in profiles.values():
        key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
        if isinstance(key, str) and isinstance(secret, str):
            yield ReadOnlyCredentials(key, secret, profile.get("aws_session_token"))


def _of_the_cli() -> Iterator[ReadOnlyCredentials]:
    """Yield the keys of roles and log-ins in the AWS CLI's cache."""
    try:
        files = sorted(_CLI_CACHE.expanduser().glob("*.json"))
    except OSError:
        return
    for file in files:
        try:
            with file.open("rb") as opened:
                kept = json.loads(opened.read(_MOST_BYTES))["Credentials"]
            yield ReadOnlyCredentials(str(kept["AccessKeyId"]), str(kept["SecretAccessKey"]), kept["SessionToken"])
        except (OSError, ValueError, KeyError, TypeError):  # other content, or a file that is being written
            continue
