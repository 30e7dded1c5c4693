"""What ``submit``, ``sweep`` and ``plan`` may be told of a job: the options of ``smq submit``, as keywords."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Union, cast

from sagemaker_queue.actions.job_settings import JobSettings, dependency, falling
from sagemaker_queue.config.job_defaults import seconds
from sagemaker_queue.data_links import S3Address, link_path
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import did_you_mean

if TYPE_CHECKING:
    import os

Method = TypeVar("Method", bound=Callable[..., Any])
Command = Union[str, Sequence[str]]


class JobKeywords(TypedDict, total=False):
    """What is said of a job that runs a command, all of it optional.

    What is not said is as the profile has it, as for ``smq submit``.
    """

    instances: int | Sequence[int]
    """Instances (default 1); several numbers, such as ``[8, 4, 2]``: it accepts fewer where more are not free."""
    instance_type: str
    """Such as ``"ml.p5.48xlarge"`` (or the profile's)."""
    image: str
    """Any image with sh and Python 3.6 or later (or the profile's)."""
    volume: int
    """Disk of each instance in GB (default 30)."""
    max_run: str | int
    """Such as ``"90m"``, ``"12h"`` or ``"3d"``, or seconds (default one day)."""
    launcher: str
    """``"torchrun"`` or ``"mpirun"``: start it in one world of all instances."""
    processes: int
    """Of the launcher on each instance (default: one for each GPU)."""
    folder: str | os.PathLike[str]
    """The working folder (default: that of the notebook or script)."""
    data: Mapping[str, str]
    """Folders or files in S3 that appear at paths of the working folder: ``{"data": "s3://bucket/folder"}``."""
    fast_file: bool
    """Read data from S3 when it is used, not before the command starts."""
    checkpoint: bool | str
    """Keep the folder that ``SM_CHECKPOINT_DIR`` names for the next attempt: ``True``, or at an address in S3."""
    bucket: str
    """For code, output and checkpoints (default: the profile's, or the SDK's own)."""
    max_code: int
    """MB of code that may be packed (default 100)."""
    include_secrets: Iterable[str]
    """Patterns as in .gitignore: pack these files although keys or passwords may be in them."""
    name: str
    """Of the job, or of the sweep (default: made from the command). The same call again is the same job."""
    priority: int
    """The higher, the sooner."""
    project: str
    """Whom it counts for (or the profile's)."""
    retries: int
    """How often it is tried again after it failed by itself."""
    max_parallel: int
    """Jobs of its group (a sweep is one) that may run at a time."""
    gpus: float
    """GPUs of an instance that it shares with others: 1, 4, or 0.5 of one."""
    after: str | Iterable[str]
    """Start it once these jobs have completed; with ``:any`` behind a name, however it ends."""
    role: str
    """ARN of the role that SageMaker runs it under (or the profile's)."""
    env: Mapping[str, str]
    """Environment variables."""
    tag: Mapping[str, str]
    """Tags."""
    more: Mapping[str, Any]
    """More of the CreateTrainingJob request, such as ``VpcConfig``; the other keywords win."""


def shows_keywords(method: Method) -> Method:
    """Let notebooks complete and show the keywords of a method that takes ``**job``."""
    signature = inspect.signature(method)
    kept = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    annotations = {name: getattr(kind, "__forward_arg__", kind) for name, kind in JobKeywords.__annotations__.items()}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]
    cast(Any, method).__signature__ = signature.replace(parameters=[*kept, *added])
    return method


def words_of(command: Command) -> tuple[str, ...]:
    """Return the words of a command, which is split as a shell would. Raises InvalidOption if there are none."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not words:
        raise InvalidOption('No command is given, such as "python train.py".')
    return tuple(words)


def settings_of(job: JobKeywords) -> tuple[JobSettings, Mapping[str, Any]]:
    """Return what is said of a job, and what there is more of its request.

    Raises TypeError for a keyword that there is not, InvalidOption for a value that makes no sense.
    """
    known: Mapping[str, Any] = {name: value for name, value in job.items() if value is not None}
    for name in known:
        if name not in JobKeywords.__annotations__:
            raise TypeError(f"There is no keyword {name!r}.{did_you_mean(name, JobKeywords.__annotations__)}")
    read = {name: _READERS[name](value) if name in _READERS else value for name, value in known.items()}
    more = read.pop("more", {})
    return JobSettings(**read), more


def _sizes(value: int | Sequence[int]) -> tuple[int, ...]:
    sizes = [value] if isinstance(value, int) else list(value)
    return falling(sizes, ",".join(map(str, sizes)))


def _pairs(value: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(member)) for name, member in value.items())


def _links(value: Mapping[str, str]) -> tuple[tuple[str, S3Address], ...]:
    return tuple((link_path(path), S3Address.parse(str(address))) for path, address in value.items())


def _checkpoint(value: bool | str) -> str | None:
    if isinstance(value, bool):
        return "" if value else None
    return str(S3Address.parse(value))


def _after(value: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(dependency(job) for job in ([value] if isinstance(value, str) else value))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "instances": _sizes,
    "max_run": lambda value: seconds(str(value)),
    "folder": Path,
    "data": _links,
    "checkpoint": _checkpoint,
    "include_secrets": lambda patterns: (patterns,) if isinstance(patterns, str) else tuple(patterns),
    "after": _after,
    "env": _pairs,
    "tag": _pairs,
}
