"""Whose requests are answered: the keys that the proxy's user has on this machine.

A program signs with a key of its own, which need not be the proxy's: an instance's role is given new ones all day, and
who assumes a role or logs in by the Identity Center gets another one each time. Whoever signs with one of these keys
is the user, and is answered in the name of just that key:

- the one that the proxy runs with, and those that it had before: a program may have got its key earlier;
- the one that the instance or container has now, which a program may have got later;
- those in the user's own files: of any profile in ~/.aws, and those that the AWS CLI keeps of roles and log-ins.

How long a temporary key is good for, AWS says to each request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import boto3
import botocore.session
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError

_CLI_CACHE = Path("~/.aws/cli/cache")
_READ_ANEW = frozenset({"iam-role", "container-role"})  # costs one local request, and asks nobody anything
_MOST = 64  # keys that are remembered
_MOST_BYTES = 100_000  # of a file in the cache: they have two thousand


class Keys:
    """Finds the credentials that have an access key. Safe for threads."""

    def __init__(self, make_session: Callable[[], boto3.Session]) -> None:
        self._make_session = make_session
        self._own = make_session()
        self._known: dict[str | None, ReadOnlyCredentials] = {}
        self._lock = threading.Lock()

    def own(self) -> ReadOnlyCredentials | None:
        """Return the credentials that the proxy has now; None without any. Raises BotoCoreError if they have ended."""
        found = _frozen(self._own)
        if found is not None:
            with self._lock:
                self._remember([found])
        return found

    def find(self, access_key: str) -> ReadOnlyCredentials | None:
        """Return the user's credentials with this key; None if the user has none such on this machine."""
        with self._lock:
            if access_key not in self._known:
                self._remember(self._of(self._own))
            if access_key not in self._known:
                self._remember(found for found in self._elsewhere() if found.access_key == access_key)
            return self._known.get(access_key)

    def _remember(self, found: Iterable[ReadOnlyCredentials]) -> None:
        for credentials in found:
            self._known.pop(credentials.access_key, None)
            self._known[credentials.access_key] = credentials
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]  # the one that was put there first

    def _elsewhere(self) -> Iterator[ReadOnlyCredentials]:
        own = self._own.get_credentials()
        if own is not None and own.method in _READ_ANEW:
            yield from self._of(self._make_session())
        yield from _of_profiles()
        yield from _of_the_cli()

    @staticmethod
    def _of(session: boto3.Session) -> Iterator[ReadOnlyCredentials]:
        try:
            found = _frozen(session)
        except BotoCoreError:  # they have ended; those that others have may be newer
            return
        if found is not None:
            yield found


def _frozen(session: boto3.Session) -> ReadOnlyCredentials | None:
    credentials = session.get_credentials()
    return credentials.get_frozen_credentials() if credentials else None


def _of_profiles() -> Iterator[ReadOnlyCredentials]:
    """Yield the keys that are written in ~/.aws, as it is now."""
    try:
        profiles = botocore.session.Session().full_config.get("profiles", {})
    except BotoCoreError:  # a file that cannot be read as such
        return
    for profile in profiles.values():
        key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
        if isinstance(key, str) and isinstance(secret, str):
            yield ReadOnlyCredentials(key, secret, profile.get("aws_session_token"))


def _of_the_cli() -> Iterator[ReadOnlyCredentials]:
    """Yield the keys of roles and log-ins that the AWS CLI keeps for its next call."""
    try:
        files = sorted(_CLI_CACHE.expanduser().glob("*.json"))
    except OSError:
        return
    for file in files:
        try:
            with file.open("rb") as opened:
                kept = json.loads(opened.read(_MOST_BYTES))["Credentials"]
            yield ReadOnlyCredentials(str(kept["AccessKeyId"]), str(kept["SecretAccessKey"]), kept["SessionToken"])
        except (OSError, ValueError, KeyError, TypeError):  # something else, or being written
            continue
