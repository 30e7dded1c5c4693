"""The changes of a policy's settings that advice tries. To try another value, add a row to `CHANGES`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from job_queue.scheduler import Backfill, Order, Policy, Settings

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class SettingChange:
    """Another value for a setting."""

    setting: str  # a field of Settings
    value: Any

    @property
    def plain(self) -> str | int | float | bool | None:
        """The value in the form in which JSON and YAML contain it."""
        value = self.value
        if isinstance(value, StrEnum):
            return value.value
        whole = isinstance(value, float) and value.is_integer()
        plain: str | int | float | bool | None = int(value) if whole else value
        return plain

    @property
    def line(self) -> str:
        """The line of a policy in YAML, below `settings:`."""
        plain = self.plain
        text = "null" if plain is None else str(plain).lower() if isinstance(plain, bool) else str(plain)
        return f"{self.setting}: {text}"


# These settings decide how long jobs wait. Two kinds of settings are left out: limits for people (max_waiting), and
# settings that need data beyond a trace (idle_after). For `aging`, only "no aging" is tried, because aging changes the
# meaning of priorities and needs a plan each minute.
CHANGES = (
    SettingChange("order", Order.SHORTEST),
    SettingChange("order", Order.SUBMISSION),
    SettingChange("backfill", Backfill.PREDICTED),
    SettingChange("backfill", Backfill.BOUNDED),
    SettingChange("patience", None),
    SettingChange("patience", 1800.0),
    SettingChange("patience", 4 * HOUR),
    SettingChange("min_runtime", None),
    SettingChange("min_runtime", 2700.0),
    SettingChange("preempted_min_runtime", 0.0),
    SettingChange("preempted_min_runtime", 2100.0),
    SettingChange("usage_half_life", None),
    SettingChange("usage_half_life", DAY),
    SettingChange("usage_half_life", 7 * DAY),
    SettingChange("aging", None),
)


def changes_of(settings: Settings) -> Iterator[SettingChange]:
    """Yield the changes whose values differ from these settings."""
    return (change for change in CHANGES if getattr(settings, change.setting) != change.value)


def with_changes(policy: Policy, changes: Iterable[SettingChange]) -> Policy:
    """Return the policy with the changed settings."""
    values = {change.setting: change.value for change in changes}
    return replace(policy, settings=replace(policy.settings, **values))
