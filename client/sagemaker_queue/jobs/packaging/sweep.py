"""Expand a grid sweep: a command with placeholders such as ``{lr}`` gives a job for each combination of values."""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sagemaker_queue.errors import InvalidOption

Values = Mapping[str, str]

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")  # ${HOME} belongs to the shell
_NAME = re.compile(r"[A-Za-z_]\w*")
_LONGEST_NAME = 50  # characters, so that an attempt's name (with -qstamp-<n>) is not cut at 63


@dataclass(frozen=True)
class Run:
    """One job of a sweep."""

    name: str
    values: Values
    command: tuple[str, ...]
    env: Mapping[str, str]


def parse_grid(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the values of a grid such as ``lr=0.1,0.01``. Raises InvalidOption for any other text."""
    name, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in rest.split(","))
    if not equals or not _NAME.fullmatch(name) or not all(values):
        raise InvalidOption(f"{text!r} is not a grid: it must look like lr=0.1,0.01.")
    return name, _each_once(name, values)


def check_values(grid: Mapping[str, Sequence[object]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each placeholder with its values as text. Raises InvalidOption for an invalid name or missing values."""
    for name, values in grid.items():
        if not _NAME.fullmatch(name) or isinstance(values, str) or not values:
            raise InvalidOption(f"{name!r}: {values!r} is not a grid: it must look like {{'lr': [0.1, 0.01]}}.")
    if not grid:
        raise InvalidOption("Nothing is varied: give a grid such as {'lr': [0.1, 0.01]}.")
    return [(name, _each_once(name, tuple(map(str, values)))) for name, values in grid.items()]


def _each_once(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise InvalidOption(f"The grid {name} has {twice[0]} twice.")
    return values


def expand(group: str, grids: Sequence[tuple[str, Sequence[str]]], command: Sequence[str], env: Values) -> list[Run]:
    """Return a run for each combination of the grids' values, put into the command and the environment.

    A run's name contains its values or their hash. So adding a value to a grid does not change the names of the other
    runs. Raises InvalidOption for a placeholder without a grid, or a grid without a placeholder.
    """
    names = [name for name, _ in grids]
    if len(set(names)) < len(names):
        raise InvalidOption(f"The grid {Counter(names).most_common(1)[0][0]} is given twice.")
    check_placeholders(names, command, env)
    combinations = [dict(zip(names, values)) for values in itertools.product(*(values for _, values in grids))]
    run_names = [f"{group}-{_slug(group, values)}" for values in combinations]
    count = Counter(run_names)
    return [
        run_of(
            name if count[name] == 1 and len(name) <= _LONGEST_NAME else f"{group}-{_short(values)}",
            values,
            command,
            env,
        )
        for name, values in zip(run_names, combinations)
    ]


def check_placeholders(
    names: Sequence[str], command: Sequence[str], env: Values, option: str = "grid", *, may_have_none: bool = False
) -> bool:
    """Return whether there are placeholders. ``option`` is the option with the values, for messages.

    Raises InvalidOption for a placeholder without a value, or a value without a placeholder. With ``may_have_none``,
    a command and environment without any placeholder are accepted.
    """
    placeholders = {found[2] for text in (*command, *env.values()) for found in _PLACEHOLDER.finditer(text) if found[2]}
    if unknown := sorted(placeholders - set(names)):
        raise InvalidOption(
            f"The command has a placeholder {{{unknown[0]}}}, but there is no --{option} {unknown[0]}=...; "
            f"write {{{{{unknown[0]}}}}} if braces are meant."
        )
    useless = [name for name in names if name not in placeholders]
    if useless and not (may_have_none and not placeholders):
        raise InvalidOption(
            f"The {option} {useless[0]} changes nothing: write {{{useless[0]}}} where its values belong."
        )
    return bool(placeholders)


def run_of(name: str, values: Values, command: Sequence[str], env: Values) -> Run:
    """Return the run with these values put into its command and environment."""
    return Run(
        name,
        values,
        tuple(_filled(word, values) for word in command),
        {key: _filled(value, values) for key, value in env.items()},
    )


def fingerprint(*parts: object) -> str:
    """Return six hexadecimal digits of a hash of the parts, which must be serialisable as JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:6]


def _filled(text: str, values: Values) -> str:
    return _PLACEHOLDER.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], text)


def _slug(group: str, values: Values) -> str:
    """Return the part of a job's name that contains the names and values, such as ``lr-0-1-layers-2``.

    If there is only one grid, and the group's name ends in the grid's name, the part contains only the value.
    """
    is_named = len(values) == 1 and group.rpartition("-")[2] in values
    parts = (value if is_named else f"{name}-{value}" for name, value in values.items())
    return "-".join(re.sub(r"[^A-Za-z0-9-]+", "-", part) for part in parts).strip("-")


def _short(values: Values) -> str:
    return fingerprint(dict(values))
