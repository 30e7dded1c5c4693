"""Sessions of boto3 that use the local cloud, and never the AWS account that the environment names."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@dataclass(frozen=True)
class AccountKeys:
    """The key of a local cloud's root user."""

    access: str
    secret: str = field(repr=False)

    @classmethod
    def random(cls) -> Self:
        """Return a new random key."""
        return cls("AKIA" + "".join(secrets.choice(_LETTERS) for _ in range(16)), secrets.token_urlsafe(30))


@dataclass(frozen=True)
class RootKey:
    """A further key of a root user.

    :param inside: whether the key is the emulator's, so that it works during an outage of the account's sites.
    """

    account: str
    keys: AccountKeys
    inside: bool = False


KNOWN_KEYS = AccountKeys("test", "test")  # for a ministack that checks no signatures


# descriptions of the services, shared because each session would read and parse the files again
_DESCRIPTIONS = Loader()


class _LocalSession(botocore.session.Session):
    """A session whose clients call the local endpoint of their service, unless the caller names another endpoint."""

    def __init__(self, endpoint: str, services: Mapping[str, str], nowhere: Path) -> None:
        # The user's own profile and configuration files are not read.
        super().__init__(
            session_vars={
                "profile": (None, None, None, None),
                "config_file": (None, None, str(nowhere), None),
                "credentials_file": (None, None, str(nowhere), None),
            }
        )
        self.register_component("data_loader", _DESCRIPTIONS)
        self.set_default_client_config(Config(proxies={}))
        self._endpoint = endpoint
        self._services = services

    def create_client(self, service_name: str, *args: Any, **kwargs: Any) -> Any:
        kwargs["endpoint_url"] = kwargs.get("endpoint_url") or self._services.get(service_name, self._endpoint)
        return super().create_client(service_name, *args, **kwargs)


def local_session(
    *, endpoint: str, services: Mapping[str, str], nowhere: Path, region: str, keys: AccountKeys = KNOWN_KEYS
) -> boto3.Session:
    """Return a boto3 session for `endpoint`, and for `services` (service name -> URL).

    :param nowhere: a path at which there is no file.
    """
    return boto3.Session(
        botocore_session=_LocalSession(endpoint, services, nowhere),
        aws_access_key_id=keys.access,
        aws_secret_access_key=keys.secret,
        region_name=region,
    )
