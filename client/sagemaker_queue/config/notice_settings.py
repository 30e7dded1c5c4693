"""What a profile may say about notices (``smq notify``)::

[profiles.research]
notify_webhook = "https://hooks.slack.com/services/..."
notify_on = "started,failed"
notify_after = "30m"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sagemaker_queue.config.job_defaults import seconds
from sagemaker_queue.errors import ConfigError, InvalidOption

NOTICE_KINDS = ("started", "preempted", "failed", "finished")
DEFAULT_AFTER = "10m"


@dataclass(frozen=True)
class Wanted:
    """What a person wants to hear of."""

    kinds: frozenset[str] = frozenset(NOTICE_KINDS)
    waited: float = 0.0  # seconds; of a start after less than that nobody is told


@dataclass(frozen=True)
class NoticeSettings:
    """Where notices go, and which there are, as texts; None: what an option says, or the default."""

    notify_webhook: str | None = None  # its address
    notify_topic: str | None = None  # the ARN of an SNS topic
    notify_on: str | None = None  # kinds of notices
    notify_after: str | None = None  # the shortest wait whose end is told, such as 10m


SECRET_SETTINGS = ("notify_webhook",)  # who knows the address may write there
NOTICE_SETTINGS = [field.name for field in fields(NoticeSettings)]


def parse_notices(table: Mapping[str, Any], where: str) -> NoticeSettings:
    """Read the settings of a profile's table. Raises ConfigError, which begins with ``where``."""
    found = {name: table[name] for name in NOTICE_SETTINGS if name in table}
    for name, value in found.items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {name} must be a string.")
    settings = NoticeSettings(**found)
    try:
        wanted(settings.notify_on, settings.notify_after)
    except InvalidOption as error:
        raise ConfigError(f"{where}: {error}") from error
    return settings


def wanted(on: str | None, after: str | None) -> Wanted:
    """Return which notices are meant. Raises InvalidOption."""
    kinds = NOTICE_KINDS if on is None else tuple(word.strip() for word in on.split(","))
    for kind in kinds:
        if kind not in NOTICE_KINDS:
            raise InvalidOption(f"There are no notices {kind!r}; there are {', '.join(NOTICE_KINDS)}.")
    return Wanted(frozenset(kinds), 0 if after == "0" else seconds(after or DEFAULT_AFTER))
