"""The keywords of ``submit``, ``sweep`` and ``plan``, which are the options of ``smq submit``."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Union, cast

from sagemaker_queue.actions.job_settings import JobSettings, decreasing_sizes, dependency
from sagemaker_queue.config.job_defaults import seconds
from sagemaker_queue.data_links import S3Address, link_path
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import did_you_mean

if TYPE_CHECKING:
    import os

Method = TypeVar("Method", bound=Callable[..., Any])
Command = Union[str, Sequence[str]]


class JobKeywords(TypedDict, total=False):
    """The settings of a job that runs a command, all optional.

    The profile provides the defaults, as for ``smq submit``.
    """

    instances: int | Sequence[int]
    """Number of instances (default 1); several numbers, such as ``[8, 4, 2]``, accept fewer if more are not free."""
    instance_type: str
    """Instance type such as ``"ml.p5.48xlarge"`` (default: the profile's)."""
    image: str
    """Any image with sh and Python 3.6 or later (default: the profile's)."""
    volume: int
    """Disk of each instance in GB (default 30)."""
    max_run: str | int
    """Longest runtime, such as ``"90m"``, ``"12h"`` or ``"3d"``, or in seconds (default: one day)."""
    launcher: str
    """``"torchrun"`` or ``"mpirun"``: start the command in one world of all instances."""
    processes: int
    """Processes of the launcher on each instance (default: one for each GPU)."""
    folder: str | os.PathLike[str]
    """The working folder (default: the notebook's or script's)."""
    data: Mapping[str, str]
    """Folders or files in S3 that appear at paths of the working folder: ``{"data": "s3://bucket/folder"}``."""
    fast_file: bool
    """Read data from S3 on first use, not before the command starts."""
    checkpoint: bool | str
    """Keep the folder ``SM_CHECKPOINT_DIR`` for the next attempt: ``True``, or an address in S3."""
    bucket: str
    """Bucket for code, output and checkpoints (default: the profile's, else the SageMaker SDK's)."""
    max_code: int
    """Largest size of the code in MB (default 100)."""
    include_secrets: Iterable[str]
    """Patterns as in .gitignore of files to pack although they may contain keys or passwords."""
    name: str
    """Name of the job or of the sweep (default: made from the command). The same call with a name is the same job."""
    priority: int
    """Priority, a whole number: jobs with a higher one come first."""
    project: str
    """Project of the job (default: the profile's)."""
    retries: int
    """Number of retries after the job failed by itself."""
    max_parallel: int
    """Number of jobs of its group (a sweep is one) that may run at the same time."""
    gpus: float
    """GPUs on an instance that is shared with other jobs: 1, 4, or 0.5 of one GPU."""
    after: str | Iterable[str]
    """Start the job after these jobs have completed; with ``:any`` after a name, after that job has finished."""
    role: str
    """ARN of the job's execution role (default: the profile's)."""
    env: Mapping[str, str]
    """Environment variables."""
    tag: Mapping[str, str]
    """Tags."""
    more: Mapping[str, Any]
    """Further fields of the CreateTrainingJob request, such as ``VpcConfig``; the other keywords override them."""


def with_job_keywords(method: Method) -> Method:
    """Set the signature of a method with ``**job``, so that notebooks complete and show its keywords."""
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
    """Return the words of a command, split as by a shell. Raises InvalidOption if there are none."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not words:
        raise InvalidOption('No command is given, such as "python train.py".')
    return tuple(words)


def settings_of(job: JobKeywords) -> tuple[JobSettings, Mapping[str, Any]]:
    """Return the settings of a job, and the further fields of its request.

    Raises TypeError for an unknown keyword, and InvalidOption for an invalid value.
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
    return decreasing_sizes(sizes, ",".join(map(str, sizes)))


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
