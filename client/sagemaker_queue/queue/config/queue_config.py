"""Find the queue's address in the arguments, the environment or the profile file.

The first of these sources that names a queue is used:

1. an argument: an address (``url``), or the name of a profile;
2. the environment: ``SAGEMAKER_QUEUE_URL``, then ``SAGEMAKER_QUEUE_PROFILE``;
3. ``default = "NAME"`` in the profile file.

The profile file is ``~/.config/sagemaker-queue/config.toml``, or the file that ``SAGEMAKER_QUEUE_CONFIG`` names::

    default = "research"

    [profiles.research]
    url = "https://vpce-0123.execute-api.us-east-1.vpce.amazonaws.com/prod"
    api_id = "a1b2c3d4e5"     # only with a VPC endpoint's address
    region = "us-east-1"      # optional
    aws_profile = "research"  # optional: the AWS profile with the credentials that sign requests
    account = "123456789012"  # optional: the account that owns the buckets, where STS is not reachable
    bucket_owners = "datasets=111122223333"  # optional: buckets of other accounts
    columns = "job,state,reason"  # optional: the columns of smq ls on a terminal
    account_profiles = "222222222222=lab"  # optional: AWS profiles for other accounts in which jobs run

The file may also contain defaults for the jobs of ``smq submit``: see ``job_defaults``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.job_defaults import SETTINGS, JobDefaults, parse_defaults
from sagemaker_queue.queue.config.notice_settings import NOTICE_SETTINGS, NoticeSettings, parse_notices

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_FILE = "~/.config/sagemaker-queue/config.toml"
URL_VARIABLE = "SAGEMAKER_QUEUE_URL"
"""The address of the queue, in place of a profile. Default: the profile's `url`."""
API_ID_VARIABLE = "SAGEMAKER_QUEUE_API_ID"
"""The ID of the API, for an address in `SAGEMAKER_QUEUE_URL` or `--url` that is a VPC endpoint's. Default: none."""
PROFILE_VARIABLE = "SAGEMAKER_QUEUE_PROFILE"
"""The profile to use. Default: `default` in the profile file."""
FILE_VARIABLE = "SAGEMAKER_QUEUE_CONFIG"
"""The path of the profile file. Default: `~/.config/sagemaker-queue/config.toml`."""
ACCOUNT_PROFILES_VARIABLE = "SAGEMAKER_QUEUE_ACCOUNT_PROFILES"
"""AWS profiles for other accounts in which jobs run, such as `222222222222=lab`. Default: the profile's setting."""
ANY_ACCOUNT = "any"
_ACCOUNT = re.compile("[0-9]{12}")
_ANY_URL = "https://any.example"  # a valid address, with which profiles without an address are checked


@dataclass(frozen=True)
class QueueConfig:
    """The address of one queue, and the AWS settings of its users.

    Raises ConfigError for an invalid address or account. The address must be https, or http on this machine.
    """

    url: str
    """The address of the queue, up to and including the stage."""
    api_id: str | None = None
    """The ID of the API, which a VPC endpoint's own address needs. Default: none."""
    region: str | None = None
    """The region of the API. Default: the region in the address, else the region of the AWS session."""
    aws_profile: str | None = None
    """A profile of `~/.aws/config`, whose credentials sign requests. Default: the credentials that boto3 finds."""
    account: str | None = None
    """The account that owns the buckets. Default: the account of the credentials, by STS."""
    bucket_owners: str | None = None
    """Buckets of other accounts, such as `datasets=111122223333 open-data=any`. Default: none."""
    columns: str | None = None
    """The columns of `smq ls` on a terminal, such as `job,user,state`. Default: the built-in columns."""
    account_profiles: str | None = None
    """Profiles of `~/.aws/config` for other accounts in which jobs run, such as `222222222222=lab`. Default: none."""
    profile: str | None = field(default=None, compare=False)
    """The name of the profile with the defaults of jobs. Empty: the default profile, if that profile has no address.
    Default: none."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an address to which no request could be sent, and for invalid accounts."""
        object.__setattr__(self, "url", self.url.strip().rstrip("/"))
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or ""
            host.encode("idna")  # raises UnicodeError, such as for an empty label: https://abc..execute-api...
            usable = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
            # Parsers of URLs disagree about these characters: the same text can be the host for one parser, and the
            # path for another parser.
            usable &= not any(letter.isspace() or not letter.isprintable() or letter == "\\" for letter in self.url)
        except ValueError:
            usable = False
        if usable and "@" in parts.netloc:
            # The message omits the address, because the text before the @ may contain a password.
            raise ConfigError(
                f"The address of the queue at {host} has a user or password in it: leave out the part before the @. "
                "Requests are signed by AWS credentials."
            )
        if not usable or parts.query or parts.fragment:
            raise ConfigError(
                f"{re.sub('//.*@', '//', self.url)!r} is not the address of a queue: it must look like"
                " https://<api-id>.execute-api.<region>.amazonaws.com/prod"
            )
        if self.account and not _ACCOUNT.fullmatch(self.account):
            raise ConfigError(f"account must be the 12 digits of an AWS account, not {self.account!r}.")
        _parse_owners(self.bucket_owners or "")
        _parse_account_profiles(self.account_profiles or "")
        if parts.scheme == "http" and not is_loopback(host):
            raise ConfigError(
                f"{self.url!r} begins with http: other people could read signature and session token. Begin it with "
                "https; http is only for this machine, such as http://127.0.0.1."
            )

    @property
    def on_this_machine(self) -> bool:
        """Whether the queue's address is on this machine, like the address of a local cloud."""
        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def owners(self) -> Mapping[str, str | None]:
        """The expected account of each bucket in ``bucket_owners``, by the bucket's name; None: any account."""
        return _parse_owners(self.bucket_owners or "")

    @property
    def profile_by_account(self) -> Mapping[str, str]:
        """The AWS profile for each account in ``account_profiles``."""
        return _parse_account_profiles(self.account_profiles or "")


def _parse_account_profiles(text: str) -> dict[str, str]:
    profiles: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        account, _, profile = word.partition("=")
        if not profile or not _ACCOUNT.fullmatch(account):
            raise ConfigError(
                f"account_profiles must look like '222222222222=lab,333333333333=shared': an account's 12 digits and"
                f" a profile of ~/.aws/config, not {word!r}."
            )
        profiles[account] = profile
    return profiles


def _parse_owners(text: str) -> dict[str, str | None]:
    owners: dict[str, str | None] = {}
    for word in text.replace(",", " ").split():
        bucket, _, account = word.partition("=")
        if not bucket or not (account == ANY_ACCOUNT or _ACCOUNT.fullmatch(account)):
            raise ConfigError(
                f"bucket_owners must look like 'datasets=111122223333 open-data=any': buckets of other accounts, not"
                f" {word!r}."
            )
        owners[bucket] = None if account == ANY_ACCOUNT else account
    return owners


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without a DNS lookup."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


QUEUE_SETTINGS = [setting.name for setting in fields(QueueConfig) if setting.name != "profile"]


def find_config(
    *,
    url: str | None = None,
    api_id: str | None = None,
    profile: str | None = None,
    region: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> QueueConfig:
    """Return the configuration of the queue named by the arguments, the environment or the profile file.

    The arguments ``api_id`` and ``region`` override the profile's settings of these names. The environment variable
    ``SAGEMAKER_QUEUE_ACCOUNT_PROFILES`` overrides ``account_profiles``. ``SAGEMAKER_QUEUE_API_ID`` applies only to an
    address in ``url`` or the environment, never to a profile with an address. A named profile without an address gets
    the environment's address. Raises ConfigError, with a remedy, if no queue is named or a setting is invalid.
    """
    environ = os.environ if environ is None else environ
    if url and profile:
        raise ConfigError("Give the queue's address or a profile, not both.")
    address = url or (None if profile else environ.get(URL_VARIABLE))
    if address:
        found = QueueConfig(address, api_id or environ.get(API_ID_VARIABLE) or None, region)
        return _with_account_profiles(replace(found, profile=None if url else ""), environ)
    name, table, where = _profile_table(profile or environ.get(PROFILE_VARIABLE) or None, environ)
    found = _parse_queue(table, where, environ.get(URL_VARIABLE) or None)
    if "url" not in table:
        api_id = api_id or environ.get(API_ID_VARIABLE)
    found = replace(found, api_id=api_id or found.api_id, region=region or found.region, profile=name)
    return _with_account_profiles(found, environ)


def _with_account_profiles(config: QueueConfig, environ: Mapping[str, str]) -> QueueConfig:
    """Return the configuration with the value of SAGEMAKER_QUEUE_ACCOUNT_PROFILES, if the variable is set."""
    named = environ.get(ACCOUNT_PROFILES_VARIABLE)
    if not named:
        return config
    try:
        return replace(config, account_profiles=named)
    except ConfigError as error:
        raise ConfigError(f"{ACCOUNT_PROFILES_VARIABLE}: {error}") from error


def find_defaults(
    url: str | None = None, profile: str | None = None, *, environ: Mapping[str, str] | None = None
) -> JobDefaults:
    """Return the defaults of jobs in the profile that ``find_config`` would choose.

    With ``url``, no profile applies. With an address in the environment, the default profile applies only if that
    profile has no address. Without a profile, the environment variables of role, image and instance type still apply.
    """
    environ = os.environ if environ is None else environ
    return parse_defaults(*_chosen_table(url, profile, environ), environ)


def find_notices(
    *, url: str | None = None, profile: str | None = None, environ: Mapping[str, str] | None = None
) -> NoticeSettings:
    """Return the settings of notices in the profile that ``find_config`` would choose."""
    return parse_notices(*_chosen_table(url, profile, os.environ if environ is None else environ))


def profile_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the profile file, whether it exists or not."""
    environ = os.environ if environ is None else environ
    return Path(environ.get(FILE_VARIABLE) or DEFAULT_FILE).expanduser()


def check_profiles(document: Mapping[str, object], path: Path) -> None:
    """Raise ConfigError for the first invalid setting in the content of a profile file. A missing url is valid."""
    for name, table in _profiles_of(document, path).items():
        where = f"{path}: profile {name!r}"
        _parse_queue(table, where, _ANY_URL)
        parse_defaults(table, where)
        parse_notices(table, where)
    if "default" in document and document["default"] not in _profiles_of(document, path):
        raise ConfigError(f"{path}: default names the profile {document['default']!r}, which does not exist.")


def _profiles_of(document: Mapping[str, object], path: Path) -> dict[str, Any]:
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict):
        raise ConfigError(f"{path}: profiles must be tables, such as [profiles.research].")
    if isinstance(document.get("default"), (dict, list)):
        raise ConfigError(
            f'{path}: default must be the name of a profile, such as "research"; the settings of a profile belong in'
            " its own table, such as [profiles.research]."
        )
    return profiles


def _chosen_table(url: str | None, profile: str | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the table of the chosen profile (empty if none is chosen), and the start of messages about it.

    If the environment has the queue's address, a profile with an address is not chosen, because the profile belongs to
    another queue. A profile named by ``profile`` is always chosen.
    """
    if url:
        return {}, ""
    by_address = not profile and bool(environ.get(URL_VARIABLE))
    if by_address and not _has_default(environ):
        return {}, ""
    _, table, where = _profile_table(profile or environ.get(PROFILE_VARIABLE) or None, environ)
    _check_table(table, where)
    return ({}, "") if by_address and "url" in table else (table, where)


def _has_default(environ: Mapping[str, str]) -> bool:
    """Return whether the environment or the profile file names a default profile that exists."""
    path = profile_file(environ)
    named = environ.get(PROFILE_VARIABLE) or read_profiles(path, must_exist=False).get("default")
    return named in _profiles_of(read_profiles(path, must_exist=False), path)


def _profile_table(name: str | None, environ: Mapping[str, str]) -> tuple[str, dict[str, Any], str]:
    """Return a profile's name and table, and the start of messages about it; None: the default profile."""
    path = profile_file(environ)
    document = read_profiles(path, must_exist=bool(name or environ.get(FILE_VARIABLE)))
    profiles = _profiles_of(document, path)
    chosen = name or document.get("default")
    if chosen is None:
        raise ConfigError(
            "No queue is configured. Ask your operator for the settings, and import them: smq config import FILE. To"
            " try a queue on this machine, in a checkout of sagemaker-queue: python -m local_cloud exec -- bash"
        )
    if not isinstance(chosen, str) or chosen not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise ConfigError(f"There is no profile {chosen!r} in {path}; its profiles: {known}.")
    return chosen, profiles[chosen], f"{path}: profile {chosen!r}"


def read_profiles(path: Path, *, must_exist: bool) -> dict[str, object]:
    """Return the content of a profile file; empty if the file is missing and need not exist. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigError(
                f"The profile file {path} does not exist; create it or correct {FILE_VARIABLE}."
            ) from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The profile file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The profile file {path} is not valid TOML: {error}.") from error
    except ValueError as error:  # Python's limit of digits
        raise ConfigError(f"The profile file {path} has a number with too many digits: correct it.") from error


def _check_table(table: object, where: str) -> None:
    known = [*QUEUE_SETTINGS, *sorted(SETTINGS), *NOTICE_SETTINGS]
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table with: {', '.join(known)}.")
    for key, value in table.items():
        # Without this check, a misspelt api_id would cause API Gateway's "Forbidden", which does not name the reason.
        if key not in known:
            raise ConfigError(f"{where} has an unknown setting {key!r}; known settings: {', '.join(known)}.")
        if key in QUEUE_SETTINGS and not isinstance(value, str):
            raise ConfigError(f"{where}: {key} must be a string.")


def _parse_queue(table: dict[str, Any], where: str, url: str | None = None) -> QueueConfig:
    """Parse the settings of a queue; ``url`` is the queue's address if the profile has none."""
    _check_table(table, where)
    if "url" not in table and url is None:
        raise ConfigError(f"{where} has no url; set it first: smq config set url https://...")
    known = {name: value for name, value in table.items() if name in QUEUE_SETTINGS}
    try:
        return QueueConfig(**{"url": url, **known})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
