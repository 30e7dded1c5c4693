"""Settings of notices (``smq notify``) in a profile: the channel, the kinds of notices, and the shortest wait.

Example::

    [profiles.research]
    notify_webhook = "https://hooks.slack.com/services/..."
    notify_on = "started,failed"
    notify_after = "30m"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sagemaker_queue.errors import ConfigError, InvalidOption
from sagemaker_queue.queue.config.job_defaults import seconds

NOTICE_KINDS = ("started", "late", "preempted", "unsaved", "hangs", "hardware", "failed", "finished")
DEFAULT_AFTER = "10m"


@dataclass(frozen=True)
class NoticeFilter:
    """The kinds of notices that a user wants, and the shortest wait after which a start is reported."""

    kinds: frozenset[str] = frozenset(NOTICE_KINDS)
    waited: float = 0.0  # seconds; a start after a shorter wait gives no notice


@dataclass(frozen=True)
class NoticeSettings:
    """The channels and kinds of notices, as text; None: not set."""

    notify_webhook: str | None = None
    """The address of a chat's webhook; `smq` never prints it. Default: none."""
    notify_topic: str | None = None
    """The ARN of an SNS topic. Default: none."""
    notify_on: str | None = None
    """The kinds of notices, separated by commas. Default: all kinds."""
    notify_after: str | None = None
    """The shortest wait after which a start is reported. Default: `10m`."""


SECRET_SETTINGS = ("notify_webhook",)  # the address gives the right to post messages
NOTICE_SETTINGS = [field.name for field in fields(NoticeSettings)]


def parse_notices(table: Mapping[str, Any], where: str) -> NoticeSettings:
    """Parse the settings of a profile's table. Raises ConfigError, with a message that begins with ``where``."""
    found = {name: table[name] for name in NOTICE_SETTINGS if name in table}
    for name, value in found.items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {name} must be a string.")
    settings = NoticeSettings(**found)
    try:
        parse_filter(settings.notify_on, settings.notify_after)
    except InvalidOption as error:
        raise ConfigError(f"{where}: {error}") from error
    return settings


def parse_filter(on: str | None, after: str | None) -> NoticeFilter:
    """Parse the kinds of notices, and the shortest wait after which a start is reported; None: the default.

    Raises InvalidOption.
    """
    kinds = NOTICE_KINDS if on is None else tuple(word.strip() for word in on.split(","))
    for kind in kinds:
        if kind not in NOTICE_KINDS:
            raise InvalidOption(f"There are no notices {kind!r}; there are {', '.join(NOTICE_KINDS)}.")
    return NoticeFilter(frozenset(kinds), 0 if after == "0" else seconds(after or DEFAULT_AFTER))
