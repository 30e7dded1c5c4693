"""Defaults of jobs in a profile, which ``smq submit`` uses for options that are not given.

Example::

    [profiles.research]
    url = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod"
    role = "arn:aws:iam::123456789012:role/training"
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.8"
    instance_type = "ml.p5.48xlarge"

    [profiles.research.data]
    "data/imagenet" = "s3://datasets/imagenet"
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sagemaker_queue.errors import ConfigError, InvalidOption
from sagemaker_queue.queue.data_links import S3Address, link_path

ROLE_VARIABLE = "SAGEMAKER_QUEUE_ROLE"
"""The execution role of jobs, if the profile has no `role`. Default: none."""
IMAGE_VARIABLE = "SAGEMAKER_QUEUE_IMAGE"
"""The image of jobs, if the profile has no `image`. Default: none."""
INSTANCE_TYPE_VARIABLE = "SAGEMAKER_QUEUE_INSTANCE_TYPE"
"""The instance type of jobs, if the profile has no `instance_type`. Default: none."""
_VARIABLES = {"role": ROLE_VARIABLE, "image": IMAGE_VARIABLE, "instance_type": INSTANCE_TYPE_VARIABLE}


@dataclass(frozen=True)
class JobDefaults:
    """The settings of a job that apply unless an option overrides them."""

    role: str | None = None
    """The ARN of the execution role of jobs. Default: `SAGEMAKER_QUEUE_ROLE`."""
    image: str | None = None
    """The address of the container's image. Default: `SAGEMAKER_QUEUE_IMAGE`."""
    bucket: str | None = None
    """The bucket for code, output and checkpoints. Default: the SageMaker SDK's default bucket."""
    instance_type: str | None = None
    """The instance type of jobs. Default: `SAGEMAKER_QUEUE_INSTANCE_TYPE`."""
    project: str | None = None
    """The project whose quota jobs use. Default: none."""
    max_run: int | None = None  # seconds; in the file a text such as "12h"
    """The maximum runtime of an attempt, such as `12h`. Default: `1d`."""
    volume: int | None = None
    """The size of the disk of each instance, in GB. Default: 30."""
    checkpoint: bool = False
    """Whether jobs keep checkpoints in the bucket, as with `--checkpoint`. Default: false."""
    data: Mapping[str, S3Address] = field(default_factory=dict)
    """A table of data links: the path in the working folder, and its address in S3. Default: none."""
    env: Mapping[str, str] = field(default_factory=dict)
    """A table of environment variables of jobs. Default: none."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """A table of further fields of the CreateTrainingJob request, as in `smq submit --request`. Default: none."""


SETTINGS = {setting.name for setting in fields(JobDefaults)}
_TEXTS = ("role", "image", "bucket", "instance_type", "project", "max_run")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TABLES = ("data", "env", "request")


def parse_defaults(table: Mapping[str, Any], where: str, environ: Mapping[str, str] | None = None) -> JobDefaults:
    """Parse the settings of a profile's table.

    Role, image and instance type default to environment variables. Raises ConfigError for an invalid setting; the
    message begins with ``where``.
    """
    environ = os.environ if environ is None else environ
    found = {name: table[name] for name in SETTINGS if name in table}
    for name, value in found.items():
        wanted: tuple[type, str] = (str, "a string")
        if name in _TABLES:
            wanted = (dict, "a table")
        elif name not in _TEXTS:
            wanted = (bool, "true or false") if name == "checkpoint" else (int, "a whole number")
        if not isinstance(value, wanted[0]) or (wanted[0] is int and isinstance(value, bool)):
            raise ConfigError(f"{where}: {name} must be {wanted[1]}.")
    for name in ("data", "env"):
        for key, value in found.get(name, {}).items():
            if not isinstance(value, str):
                raise ConfigError(f"{where}: {name}.{key} must be a string.")
    try:
        if "max_run" in found:
            found["max_run"] = seconds(found["max_run"])
        links = {link_path(path): S3Address.parse(address) for path, address in found.get("data", {}).items()}
    except InvalidOption as error:
        raise ConfigError(f"{where}: {error}") from error
    given = {name: environ.get(variable) or None for name, variable in _VARIABLES.items()}
    return JobDefaults(**{**given, **found, "data": links})


def seconds(text: str) -> int:
    """Parse ``90m``, ``12h``, ``3d`` or a number of seconds, as seconds. Raises InvalidOption for any other text."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd]?)", text.strip())
    if not found:
        raise InvalidOption(f"{text!r} is not a time: it must look like 90m, 12h or 3d.")
    return int(found[1]) * _UNITS[found[2] or "s"]


def time_text(time: int) -> str:
    """Return seconds as text that ``seconds`` parses, in the largest unit that gives a whole number: ``12h``."""
    unit = next(unit for unit in reversed(_UNITS) if time % _UNITS[unit] == 0)
    return f"{time // _UNITS[unit]}{'' if unit == 's' else unit}"
