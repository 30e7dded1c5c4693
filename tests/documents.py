"""The templates and the description of the HTTP API, as tests read them. Each is parsed once in a process."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).resolve().parent.parent


@cache
def read_template(name: str = "template.yaml") -> dict[str, Any]:
    """Return a template with CloudFormation's functions as dictionaries. Callers must not change it."""
    document: dict[str, Any] = yaml_parse((ROOT / name).read_text())
    return document


@cache
def read_openapi() -> dict[str, Any]:
    """Return docs/openapi.yaml. Callers must not change it."""
    document: dict[str, Any] = yaml.load((ROOT / "docs/openapi.yaml").read_text(), yaml.CSafeLoader)  # noqa: S506
    return document
