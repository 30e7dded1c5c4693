"""``python -m tools.configuration_reference docs/reference/configuration.md``: list profile keys and variables.

The tables come from the definitions in the client: the fields of a profile, and each constant that names an environment
variable of this project. The string below a definition states the meaning and the default. Text above the page's
marker comment is written by hand; text below the marker is generated.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sagemaker_queue.queue.config.job_defaults import SETTINGS, JobDefaults
from sagemaker_queue.queue.config.notice_settings import NOTICE_SETTINGS, NoticeSettings
from sagemaker_queue.queue.config.queue_config import QUEUE_SETTINGS, QueueConfig
from tools.generated_text import update_page, with_sections
from tools.markdown import table

CLIENT = Path(__file__).parents[1] / "client"
VARIABLE = re.compile(r"SAGEMAKER_QUEUE_[A-Z_]*[A-Z]")
"""The pattern of the names of this project's environment variables."""

_TABLES = (
    ("Keys for the queue", QueueConfig),
    ("Keys for jobs", JobDefaults),
    ("Keys for notices", NoticeSettings),
)
_SETTINGS = {*QUEUE_SETTINGS, *SETTINGS, *NOTICE_SETTINGS}
_VALUES = {"str": "text", "int": "whole number", "bool": "true or false", "Mapping": "table"}


class Definition(NamedTuple):
    """A profile key or an environment variable."""

    name: str
    value: str
    meaning: str
    default: str


def with_tables(page: str) -> str:
    """Return the page with the present keys and variables."""
    return with_sections(page, _sections())


def variables() -> list[Definition]:
    """Return the environment variables whose names are constants of the client, sorted by name."""
    found = []
    for path in CLIENT.rglob("*.py"):
        for constant, below in pairwise([*ast.parse(path.read_text()).body, ast.Pass()]):
            if isinstance(constant, ast.Assign) and isinstance(constant.value, ast.Constant):
                name = str(constant.value.value)
                if VARIABLE.fullmatch(name):
                    found.append(_definition(name, "", below))
    return sorted(found)


def keys(settings: type) -> list[Definition]:
    """Return the keys of a profile that a settings class defines."""
    path = Path(sys.modules[settings.__module__].__file__ or "")
    definition = next(
        one
        for one in ast.parse(path.read_text()).body
        if isinstance(one, ast.ClassDef) and one.name == settings.__name__
    )
    return [
        _definition(field.target.id, _value(field), below)
        for field, below in pairwise([*definition.body, ast.Pass()])
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id in _SETTINGS
    ]


def _sections() -> Iterator[str]:
    for heading, settings in _TABLES:
        yield f"## {heading}"
        rows = [(f"`{key.name}`", key.value, key.meaning, key.default) for key in keys(settings)]
        yield table(["key", "value", "meaning", "default"], rows)
    yield "## Environment variables"
    yield table(
        ["variable", "meaning", "default"], [(f"`{one.name}`", one.meaning, one.default) for one in variables()]
    )


def _value(field: ast.AnnAssign) -> str:
    """Return the kind of a key's value in a profile; times are text, such as `12h`."""
    kind = ast.unparse(field.annotation).partition(" ")[0].partition("[")[0]
    return "text" if isinstance(field.target, ast.Name) and field.target.id == "max_run" else _VALUES[kind]


def _definition(name: str, value: str, below: ast.stmt) -> Definition:
    if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
        raise ValueError(f"{name} has no text below its definition")
    meaning, _, default = " ".join(str(below.value.value).split()).partition(" Default: ")
    return Definition(name, value, meaning, default.removesuffix(".") or "required")


if __name__ == "__main__":
    sys.exit(update_page(with_tables))
