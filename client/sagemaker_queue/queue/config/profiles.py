"""Changes to the profile file that keep users' comments and formatting."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from sagemaker_queue.errors import ConfigError, InvalidOption
from sagemaker_queue.queue.config.job_defaults import SETTINGS
from sagemaker_queue.queue.config.notice_settings import NOTICE_SETTINGS
from sagemaker_queue.queue.config.queue_config import QUEUE_SETTINGS, URL_VARIABLE, check_profiles

_TABLES = ("data", "env")  # tables whose members are set one by one, as data.PATH and env.NAME


class ProfileFile:
    """The profile file at ``path``, which need not exist yet. Raises ConfigError for an invalid file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
        except (OSError, UnicodeDecodeError, TOMLKitError) as error:
            raise ConfigError(f"The profile file {path} cannot be read: {error}.") from error
        check_profiles(self.content, path)

    @property
    def content(self) -> dict[str, Any]:
        """Content of the file, as plain values."""
        return self._document.unwrap()

    @property
    def profiles(self) -> Mapping[str, Mapping[str, Any]]:
        """The profiles by their names."""
        profiles: dict[str, dict[str, Any]] = self.content.get("profiles", {})
        return profiles

    @property
    def default(self) -> str | None:
        """Name of the default profile, or None."""
        return self.content.get("default")

    def set(self, profile: str, setting: str, value: str | None) -> None:
        """Set a setting of a profile, or remove the setting (None). The first profile becomes the default profile.

        Raises InvalidOption if there is no such setting, or if the text is not UTF-8. Raises ConfigError if the file
        would become invalid. After an error, the file is unchanged.
        """
        profiles = self._document.setdefault("profiles", tomlkit.table(is_super_table=True))
        table = profiles.setdefault(profile, tomlkit.table())
        name, dot, member = setting.partition(".")
        if dot and name in _TABLES and member:
            table, name = table.setdefault(name, tomlkit.table()), member
        elif setting not in (texts := [*QUEUE_SETTINGS, *sorted(SETTINGS - {*_TABLES, "request"}), *NOTICE_SETTINGS]):
            known = ", ".join([*texts, "data.PATH", "env.NAME"])
            raise InvalidOption(f"There is no setting {setting!r}; there are {known}. A text editor sets the others.")
        if value is None:
            table.pop(name, None)
        else:
            table[name] = _typed(setting, value)
        self._check_address(profile)
        if len(self.profiles) == 1 and not self.default:
            self._set_default(profile)
        self._save()

    def merge(self, profile: str, settings: Mapping[str, Any]) -> None:
        """Set several settings of a profile at once. Data links that ``settings`` does not name are kept.

        Raises ConfigError, and leaves the file unchanged, if the file would become invalid.
        """
        profiles = self._document.setdefault("profiles", tomlkit.table(is_super_table=True))
        table = profiles.setdefault(profile, tomlkit.table())
        for name, value in settings.items():
            if isinstance(value, Mapping):
                table.setdefault(name, tomlkit.table()).update(value)
            else:
                table[name] = value
        self._check_address(profile)
        if len(self.profiles) == 1 and not self.default:
            self._set_default(profile)
        self._save()

    def use(self, profile: str) -> None:
        """Make a profile the default profile. Raises ConfigError if there is no such profile."""
        if profile not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ConfigError(f"There is no profile {profile!r} in {self.path}; its profiles: {known}.")
        self._set_default(profile)
        self._save()

    def _check_address(self, profile: str) -> None:
        """Raise ConfigError if a profile has no url, unless the environment has the queue's address."""
        if "url" not in self.profiles[profile] and not os.environ.get(URL_VARIABLE):
            raise ConfigError(
                f"{self.path}: profile {profile!r} has no url; set it first: smq config set url https://..."
            )

    def _set_default(self, profile: str) -> None:
        self._document["default"] = profile

    def _save(self) -> None:
        check_profiles(self.content, self.path)
        try:
            content = tomlkit.dumps(self._document).encode()
        except UnicodeEncodeError as error:  # an argument with bytes that are not UTF-8
            raise InvalidOption(
                "Nothing is changed: the names of the profile and of the setting, and the value, must be UTF-8 text."
            ) from error
        target = self.path.resolve()  # the path may be a link, such as one into a dotfiles repository
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:  # removed even if the write fails
                with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(file.name).replace(target)  # atomic
        except OSError as error:
            raise ConfigError(f"The profile file {self.path} cannot be written: {error.strerror}.") from error


def _typed(setting: str, value: str) -> str | int | bool:
    """Return the value as TOML's type: an integer for ``volume``, a boolean for ``checkpoint``, else text."""
    if setting == "volume" and value.isdecimal():
        return int(value)
    if setting == "checkpoint" and value in ("true", "false"):
        return value == "true"
    return value
