"""Settings of a job that runs a command, and the job that they describe with the defaults of the profile."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_queue.config.job_defaults import JobDefaults, seconds
from sagemaker_queue.data_links import S3Address
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import MEGABYTE
from sagemaker_queue.packaging.command import CommandJob, DataLink

if TYPE_CHECKING:
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.storage import S3Storage

HOME = "sagemaker-queue"  # the folder in the bucket for everything that the client uploads and its jobs write
_WHOLE = 10  # tenths of a GPU in a whole one
_LONGEST_STEM = 30
_LETTERS = "bcdfghjkmnpqrstvwxz"


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job; None: the setting was not given."""

    instances: tuple[int, ...] = (1,)  # accepted numbers of instances, best first
    instance_type: str | None = None
    image: str | None = None
    volume: int | None = None  # GB
    max_run: int | None = None  # seconds
    launcher: str | None = None
    processes: int | None = None
    folder: Path = Path()
    data: tuple[tuple[str, S3Address], ...] = ()
    fast_file: bool = False
    checkpoint: str | None = None  # an address; empty: a folder of the job's own
    bucket: str | None = None
    max_code: int = 100  # MB
    include_secrets: tuple[str, ...] = ()  # patterns
    name: str | None = None
    priority: int | None = None
    project: str | None = None
    retries: int | None = None
    max_parallel: int | None = None
    gpus: float | None = None  # GPUs on a shared instance: a whole number, or tenths of one GPU
    after: tuple[str, ...] = ()
    role: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    tag: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class InteractiveSettings:
    """Settings of ``submit --interactive``: a job in which users open shells."""

    idle_end: int  # seconds without a shell after which a job without a command ends

    @staticmethod
    def check(request: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Raise InvalidOption if no shell can be opened in a job with this request and these tags."""
        if "gpus" in tags:
            raise InvalidOption(
                "A job with --gpus shares an instance, and a shell in it would also open the jobs beside it: leave out"
                " --gpus, and choose a small instance type (-t) if one GPU is enough; or leave out --interactive, and"
                " give a command."
            )
        if request.get("EnableNetworkIsolation"):
            raise InvalidOption(
                "EnableNetworkIsolation cuts the container off from Session Manager, so nobody can have a shell in it:"
                " leave it out of the request, or leave out --interactive."
            )


@contextmanager
def job_from_settings(
    settings: JobSettings,
    command: Sequence[str],
    defaults: JobDefaults,
    storage: S3Storage,
    *,
    more: Mapping[str, Any],
    option_text: Callable[[str], str],
    interactive: InteractiveSettings | None = None,
) -> Iterator[tuple[CommandJob, Code]]:
    """Yield the job that the settings describe, and its packed code; upload nothing.

    ``more`` are further fields of the request. ``option_text`` returns a setting as the user writes it, such as --role,
    for messages. Raises QueueError if a setting is missing or the folder cannot be packed.
    """
    from sagemaker_queue.packaging.code import packed_code  # noqa: PLC0415  # boto3

    def needed(value: str | None, setting: str) -> str:
        if not value:
            raise InvalidOption(
                f"No {setting} is set: give {option_text(setting)}, set SAGEMAKER_QUEUE_{setting.upper()}, "
                f"or once: smq config set {setting} ..."
            )
        return value

    role = needed(settings.role or defaults.role, "role")
    image = needed(settings.image or defaults.image, "image")
    instance_type = needed(settings.instance_type or defaults.instance_type, "instance_type")
    home = S3Address(settings.bucket or defaults.bucket or storage.default_bucket(), HOME)
    links = {**defaults.data, **dict(settings.data)}
    request = {**defaults.request, **more}
    tags = {**(_kind(settings) if interactive else {}), **_tags(settings, defaults)}
    if interactive:
        interactive.check(request, tags)
    wants_checkpoints = settings.checkpoint is not None or defaults.checkpoint
    with packed_code(
        settings.folder,
        home / "code",
        leave_out=list(links),
        include_secrets=settings.include_secrets,
        limit=settings.max_code * MEGABYTE,
    ) as code:
        yield (
            CommandJob(
                name=settings.name or default_name(command or ("shell",)),
                command=tuple(command),
                image=image,
                role=role,
                instance_type=instance_type,
                code=code.address,
                program=code.program,
                source=code.archive.source,
                output=home / "output",
                instances=settings.instances[0],
                sizes=settings.instances if len(settings.instances) > 1 else (),
                volume=settings.volume or defaults.volume or 30,
                max_run=settings.max_run or defaults.max_run or seconds("1d"),
                data=tuple(_link(path, address, settings, storage) for path, address in sorted(links.items())),
                env={**defaults.env, **dict(settings.env)},
                tags=tags,
                checkpoints=S3Address.parse(settings.checkpoint) if settings.checkpoint else None,
                checkpoint_home=home / "checkpoints" if wants_checkpoints else None,
                launcher=settings.launcher,
                processes=settings.processes,
                interactive=bool(interactive),
                idle_end=interactive.idle_end if interactive and not command else None,
                more=request,
            ),
            code,
        )


def default_name(command: Sequence[str]) -> str:
    """Return a unique name that contains the command's stem, the time in UTC and four random letters."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"{stem(command)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{suffix}"


def stem(command: Sequence[str]) -> str:
    """Return a short name for a command: the name of its script, its module or its program."""
    scripts = [Path(word).stem for word in command if word.endswith((".py", ".sh"))]
    modules = [word.rpartition(".")[2] for flag, word in zip(command, command[1:]) if flag == "-m"]
    called = [*scripts[:1], *modules[:1], Path(command[0]).name][0]
    return re.sub(r"[^A-Za-z0-9]+", "-", called).strip("-")[:_LONGEST_STEM].rstrip("-") or "job"


def decreasing_sizes(sizes: Sequence[int], text: str) -> tuple[int, ...]:
    """Return the accepted numbers of instances. Raises InvalidOption, quoting ``text``, unless they decrease."""
    if not sizes or not all(size > 0 for size in sizes):
        raise InvalidOption(
            f"{text!r} is not a number of instances: write one, or those that it accepts, such as 8,4,2."
        )
    if any(larger <= smaller for larger, smaller in zip(sizes, sizes[1:])):
        raise InvalidOption(f"{text!r} must fall, as more instances are better: such as 8,4,2.")
    return tuple(sizes)


def gpus(text: str) -> float:
    """Parse a number of GPUs: a whole number, or tenths of one GPU. Raises InvalidOption for any other text."""
    try:
        tenths = round(float(text) * 10, 6)
    except ValueError:
        tenths = 0
    if tenths <= 0 or tenths != int(tenths) or (tenths > _WHOLE and tenths % _WHOLE):
        raise InvalidOption(f"{text!r} is no number of GPUs: write whole ones, or tenths of one, such as 1, 4 or 0.5.")
    return tenths / _WHOLE


def dependency(text: str) -> str:
    """Return the text if it can be the name of a job to start after, else raise InvalidOption."""
    if not text or re.search(r"[\s+,]", text):
        raise InvalidOption(f"{text!r} is not a job: name one, and each job by itself.")
    return text


def _link(path: str, address: S3Address, settings: JobSettings, storage: S3Storage) -> DataLink:
    is_file = bool(address.key) and not address.key.endswith("/") and storage.is_file(address)
    return DataLink(path, address, is_file, "FastFile" if settings.fast_file else "File")


def _kind(settings: JobSettings) -> dict[str, str]:
    """Return the tags of an interactive job; none if the settings make the job preemptible."""
    preemptible = dict(settings.tag).get("preemptible", "false").strip().lower()
    return {} if preemptible in ("true", "yes", "1") else {"interactive": "true", "preemptible": "false"}


def _tags(settings: JobSettings, defaults: JobDefaults) -> dict[str, str]:
    named = {
        "project": settings.project or defaults.project,
        "priority": settings.priority,
        "retries": settings.retries,
        "max_parallel": settings.max_parallel,
        "gpus": None if settings.gpus is None else f"{settings.gpus:g}",
        "after": " ".join(settings.after) or None,
    }
    return {**{key: str(value) for key, value in named.items() if value is not None}, **dict(settings.tag)}
