"""Settings that an operator sends to the users of a queue: ``smq config export`` and ``smq config import``.

The text is TOML, with the same names as in a profile::

    url = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"
    role = "arn:aws:iam::123456789012:role/training"
    bucket = "ml-training-123456789012"

    [data]
    "data/imagenet" = "s3://datasets/imagenet"

Personal settings (``aws_profile``, ``account_profiles``, ``columns``, notices) and settings that can contain secrets
(``env``, ``request``) are neither exported nor imported. The text comes from another person, so each imported value is
checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sagemaker_queue.errors import ConfigError, InvalidDocument
from sagemaker_queue.queue.config.job_defaults import JobDefaults, parse_defaults, time_text
from sagemaker_queue.queue.config.queue_config import QueueConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_TEXT = 16 << 10
"""The most bytes that an imported text may have."""

_QUEUE = ("url", "api_id", "region", "account", "bucket_owners")
_JOBS = ("role", "image", "bucket", "instance_type", "project", "max_run", "volume", "checkpoint", "data")
SHARED_SETTINGS = (*_QUEUE, *_JOBS)
"""The settings that are exported and imported, in the order of the text."""

_LONGEST_VALUE = 1024  # characters
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FORMS = {
    "api_id": (re.compile(r"[a-z0-9]{1,64}"), "the ID of an API, such as a1b2c3d4e5"),
    "region": (re.compile(r"[a-z]{2,3}(-[a-z]+){1,3}-[0-9]{1,2}"), "a region, such as us-east-1"),
    "role": (
        re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,576}", re.ASCII),
        "the ARN of a role, such as arn:aws:iam::123456789012:role/training",
    ),
    "image": (re.compile(r"[\w.:/@-]{1,255}", re.ASCII), "the address of an image"),
    "bucket": (_BUCKET, "the name of a bucket"),
    "instance_type": (re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+"), "an instance type, such as ml.m5.large"),
}
_LARGEST_VOLUME = 16_384  # GB, SageMaker's limit
_HEADER = """\
# Settings of a training job queue. To use them: smq config import FILE, and then: smq doctor
"""


@dataclass(frozen=True)
class ProfileChange:
    """A setting whose value in a profile would change; ``old`` is None if the profile has no value."""

    name: str
    old: str | None
    new: str


def exported_settings(config: QueueConfig, defaults: JobDefaults) -> dict[str, Any]:
    """Return the shared settings that have a value. Raises ConfigError if an import would refuse a value."""
    values = {**asdict(config), **{name: getattr(defaults, name) for name in _JOBS}}
    values["max_run"] = None if defaults.max_run is None else time_text(defaults.max_run)
    values["data"] = {path: str(address) for path, address in defaults.data.items()}
    settings = {name: values[name] for name in SHARED_SETTINGS if values[name]}
    check_settings(settings, "These settings")
    return settings


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as TOML with a comment that says how to use the text."""
    import tomlkit  # noqa: PLC0415

    return f"{_HEADER}{tomlkit.dumps(settings)}"


def parse_settings(content: bytes, source: str) -> dict[str, Any]:
    """Parse and check settings from another person; ``source`` names their origin in errors.

    Raises InvalidDocument if the content is too large or is not TOML, and ConfigError for an unknown setting or an
    invalid value.
    """
    if len(content) > LARGEST_TEXT:
        raise InvalidDocument(f"{source} has more than {LARGEST_TEXT:,} bytes: it is not the output of config export.")
    try:
        settings = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidDocument(f"{source} is not UTF-8 text.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidDocument(f"{source} is not TOML: {error}. It must be the output of smq config export.") from error
    except ValueError as error:  # Python's limit of digits
        raise InvalidDocument(f"{source} has a number with too many digits: correct it.") from error
    if not settings:
        raise InvalidDocument(f"{source} has no settings: it must be the output of smq config export.")
    check_settings(settings, source)
    return settings


def check_settings(settings: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError for the first setting that is unknown, personal, possibly secret, or invalid."""
    for name in settings:
        if name not in SHARED_SETTINGS:
            raise ConfigError(
                f"{source}: {_short(name)} is not a setting to share; there are {', '.join(SHARED_SETTINGS)}."
                " Set others by smq config set."
            )
    texts = {name: value for name, value in settings.items() if name not in ("volume", "checkpoint", "data")}
    for name, value in texts.items():
        _check_text(name, value, source)
    data = settings.get("data", {})
    if isinstance(data, dict):
        for path, address in data.items():
            _check_text("a path in data", path, source)
            _check_text(f"data.{path[:80]}", address, source)
    parse_defaults({name: settings[name] for name in _JOBS if name in settings}, source, {})
    for name, (form, what) in _FORMS.items():
        if name in settings and not form.fullmatch(settings[name]):
            raise ConfigError(f"{source}: {name} must be {what}, not {_short(settings[name])}.")
    for path, address in data.items():
        if not _BUCKET.fullmatch(address.partition("://")[2].partition("/")[0]):
            raise ConfigError(f"{source}: data.{path[:80]} must begin with s3:// and a bucket, not {_short(address)}.")
    if not 1 <= settings.get("volume", 1) <= _LARGEST_VOLUME:
        raise ConfigError(f"{source}: volume must be from 1 to {_LARGEST_VOLUME:,} GB.")
    try:
        QueueConfig(**{"url": "https://any.example", **{name: settings[name] for name in _QUEUE if name in settings}})
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def setting_changes(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[ProfileChange]:
    """Return the settings that a profile lacks, or has with another value. Each data link counts as one setting."""
    return [
        ProfileChange(name, None if old is None else _as_text(old), _as_text(new))
        for name, old, new in ((name, _flat(profile).get(name), new) for name, new in _flat(settings).items())
        if old != new
    ]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in settings.items() if name != "data"}
    return {**plain, **{f"data.{path}": address for path, address in settings.get("data", {}).items()}}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_text(name: str, value: object, source: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{source}: {name} must be a text that is not empty.")
    if len(value) > _LONGEST_VALUE or not value.isprintable():
        raise ConfigError(
            f"{source}: {name} must have at most {_LONGEST_VALUE:,} characters, all of them printable,"
            f" not {_short(value)}."
        )


def _short(value: str) -> str:
    return repr(value if len(value) <= 100 else f"{value[:100]}…")
