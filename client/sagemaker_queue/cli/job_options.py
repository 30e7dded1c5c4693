"""The options by which ``submit``, ``sweep`` and ``plan`` are told of a job, and the job that they make."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.completion import files, instance_types, job_names, projects
from sagemaker_queue.cli.documents import read_document
from sagemaker_queue.cli.parser import bundled, checked, connection, option
from sagemaker_queue.config.job_defaults import JobDefaults, seconds
from sagemaker_queue.config.queue_config import find_defaults
from sagemaker_queue.data_links import S3Address, is_address, parse_link
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import MEGABYTE, one_line
from sagemaker_queue.packaging.command import LAUNCHERS, CommandJob, DataLink

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.storage import Storage

HOME = "sagemaker-queue"  # the folder of the bucket for all that smq brings there
_NAMED = 10  # of the files that are not packed
_LONGEST_STEM = 30
_LETTERS = "bcdfghjkmnpqrstvwxz"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidOption(f"{text!r} has no name: it must look like NAME=VALUE.")
    if not equals and name not in os.environ:
        raise InvalidOption(f"{text!r} has no value, and this environment has none either: write {text}=VALUE.")
    return name, value if equals else os.environ[name]


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise InvalidOption(
            f"{text!r} is not a number of instances: write one, or those that it accepts, such as 8,4,2."
        )
    sizes = tuple(int(word) for word in words)
    if any(larger <= smaller for larger, smaller in zip(sizes, sizes[1:])):
        raise InvalidOption(f"{text!r} must fall, as more instances are better: such as 8,4,2.")
    return sizes


def _dependency(text: str) -> str:
    if not text or re.search(r"[\s+,]", text):
        raise InvalidOption(f"{text!r} is not a job: name one, and give --after once for each.")
    return text


def _checkpoint(text: str) -> str:
    """An address, or nothing; the first word of the command is neither."""
    if text and not is_address(text):
        raise InvalidOption(
            f"{text!r} is not an S3 address. If the command begins with it, write -- before it: "
            f"--checkpoint -- {one_line(text)} ..."
        )
    return text


@dataclass(frozen=True)
class JobOptions:
    """What the options say of a job; None where they say nothing."""

    instances: tuple[int, ...]  # that it accepts, best first
    instance_type: str | None
    image: str | None
    volume: int | None  # GB
    max_run: int | None  # seconds
    launcher: str | None
    processes: int | None
    folder: Path
    data: tuple[tuple[str, S3Address], ...]
    fast_file: bool
    checkpoint: str | None  # an address; empty: one of the job's own
    bucket: str | None
    max_code: int  # MB
    include_secrets: tuple[str, ...]  # patterns
    name: str | None
    priority: int | None
    project: str | None
    retries: int | None
    max_parallel: int | None
    after: tuple[str, ...]
    role: str | None
    env: tuple[tuple[str, str], ...]
    tag: tuple[tuple[str, str], ...]
    request: str | None  # a file


_positive = click.IntRange(min=1)
_resources = partial(option, section="what it runs on")
_files = partial(option, section="its files")
_rights = partial(option, section="how it is treated")

job_options = bundled(
    "options",
    JobOptions,
    _resources(
        "-n",
        "--instances",
        metavar="COUNT",
        type=checked(_sizes),
        default="1",
        help="instances (default 1); several numbers, such as 8,4,2: it accepts fewer where more are not free",
    ),
    _resources(
        "-t",
        "--instance-type",
        metavar="TYPE",
        shell_complete=instance_types,
        help="such as ml.p5.48xlarge (or the profile's)",
    ),
    _resources("--image", metavar="URI", help="any image with sh and Python 3.6 or later (or the profile's)"),
    _resources("--volume", metavar="GB", type=_positive, help="disk of each instance (default 30)"),
    _resources("--max-run", metavar="TIME", type=checked(seconds), help="such as 90m, 12h or 3d (default 1d)"),
    _resources(
        "--launcher",
        type=click.Choice(LAUNCHERS),
        help="start it by torchrun or Open MPI's mpirun, in one world of all instances",
    ),
    _resources(
        "--processes",
        metavar="N",
        type=_positive,
        help="of the launcher on each instance (default: one for each GPU)",
    ),
    _files(
        "--folder",
        metavar="DIR",
        type=Path,
        default=Path(),
        shell_complete=files,
        help="the working folder (default: .)",
    ),
    _files(
        "--data",
        metavar="PATH=S3",
        type=checked(parse_link),
        multiple=True,
        help="a folder or file in S3 that appears at a path of the working folder; several are possible",
    ),
    _files("--fast-file", is_flag=True, help="read data from S3 when it is used, not before the command starts"),
    _files(
        "--checkpoint",
        metavar="[S3]",
        is_flag=False,
        flag_value="",
        type=checked(_checkpoint),
        help="keep the folder that SM_CHECKPOINT_DIR names for the next attempt, at an address of the job's own, "
        "or at the one given",
    ),
    _files("--bucket", help="for code, output and checkpoints (default: the profile's, or the SDK's own)"),
    _files("--max-code", metavar="MB", type=_positive, default=100, help="code that may be packed (default 100)"),
    _files(
        "--include-secrets",
        metavar="PATTERN",
        multiple=True,
        help="pack these files although keys or passwords may be in them (written as in .gitignore)",
    ),
    _rights("--name", help="of the job, or of the sweep (default: made from the command)"),
    _rights("--priority", metavar="P", type=int, help="a whole number; the higher, the sooner"),
    _rights("--project", metavar="X", shell_complete=projects, help="whom it counts for (or the profile's)"),
    _rights("--retries", metavar="N", type=int, help="how often it is tried again after it failed by itself"),
    _rights(
        "--max-parallel",
        metavar="N",
        type=_positive,
        help="jobs of its group (--tag group=X; a sweep is one) that may run at a time",
    ),
    _rights(
        "--after",
        metavar="JOB[:any]",
        type=checked(_dependency),
        multiple=True,
        shell_complete=job_names,
        help="start it once this job has completed; with :any, however it ends. Several are possible",
    ),
    _rights("--role", metavar="ARN", help="the role that SageMaker runs it under (or the profile's)"),
    _rights("--env", metavar="K=V", type=checked(_pair), multiple=True, help="an environment variable"),
    _rights("--tag", metavar="K=V", type=checked(_pair), multiple=True, help="a tag"),
    _rights(
        "--request",
        metavar="FILE",
        shell_complete=files,
        help="more of the CreateTrainingJob request, such as VpcConfig, in JSON or YAML; options win",
    ),
)


@contextmanager
def described_job(
    queue: QueueClient, options: JobOptions, command: Sequence[str]
) -> Iterator[tuple[CommandJob, Code, Storage]]:
    """Give the job that the options describe, its packed code, and S3; nothing is uploaded.

    Raises QueueError if something is missing or cannot be packed.
    """
    from sagemaker_queue.packaging.code import packed_code  # noqa: PLC0415  # boto3
    from sagemaker_queue.packaging.storage import Storage  # noqa: PLC0415

    named = connection()
    defaults = find_defaults(url=named.url, profile=named.profile)
    if not command:
        raise InvalidOption("No command is given: write it at the end, such as: -- python train.py")
    role = _needed(options.role or defaults.role, "--role", "role")
    image = _needed(options.image or defaults.image, "--image", "image")
    instance_type = _needed(options.instance_type or defaults.instance_type, "--instance-type", "instance_type")
    storage = Storage.of(queue.config)
    home = S3Address(options.bucket or defaults.bucket or storage.default_bucket(), HOME)
    links = {**defaults.data, **dict(options.data)}
    more = dict(defaults.request)
    if options.request:
        more |= read_document(options.request, sys.stdin)
    wants_checkpoints = options.checkpoint is not None or defaults.checkpoint
    limit = options.max_code * MEGABYTE
    with packed_code(
        options.folder,
        home / "code",
        leave_out=list(links),
        include_secrets=options.include_secrets,
        limit=limit,
    ) as code:
        _tell_what_stays(code.archive.kept_back)
        yield (
            CommandJob(
                name=options.name or default_name(command),
                command=tuple(command),
                image=image,
                role=role,
                instance_type=instance_type,
                code=code.address,
                program=code.program,
                source=code.archive.source,
                output=home / "output",
                instances=options.instances[0],
                sizes=options.instances if len(options.instances) > 1 else (),
                volume=options.volume or defaults.volume or 30,
                max_run=options.max_run or defaults.max_run or seconds("1d"),
                data=tuple(_link(path, address, options, storage) for path, address in sorted(links.items())),
                env={**defaults.env, **dict(options.env)},
                tags=_tags(options, defaults),
                checkpoints=S3Address.parse(options.checkpoint) if options.checkpoint else None,
                checkpoint_home=home / "checkpoints" if wants_checkpoints else None,
                launcher=options.launcher,
                processes=options.processes,
                more=more,
            ),
            code,
            storage,
        )


def _tell_what_stays(kept_back: Sequence[str]) -> None:
    if not kept_back:
        return
    named = ", ".join(one_line(name) for name in kept_back[:_NAMED])
    others = f" and {len(kept_back) - _NAMED} more" if len(kept_back) > _NAMED else ""
    print(
        f"smq: not packed, as keys and passwords may be in it: {named}{others}. What a job needs of it belongs into AWS"
        " Secrets Manager; a ! before its name in .smqignore, or --include-secrets PATTERN, packs it all the same.",
        file=sys.stderr,
    )


def default_name(command: Sequence[str]) -> str:
    """Return a name that tells the command and is nobody else's."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"{stem(command)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{suffix}"


def stem(command: Sequence[str]) -> str:
    """Return what a command is called: its script's, its module's or its program's name."""
    scripts = [Path(word).stem for word in command if word.endswith((".py", ".sh"))]
    modules = [word.rpartition(".")[2] for flag, word in zip(command, command[1:]) if flag == "-m"]
    called = [*scripts[:1], *modules[:1], Path(command[0]).name][0]
    return re.sub(r"[^A-Za-z0-9]+", "-", called).strip("-")[:_LONGEST_STEM].rstrip("-") or "job"


def _link(path: str, address: S3Address, options: JobOptions, storage: Storage) -> DataLink:
    is_file = bool(address.key) and not address.key.endswith("/") and storage.is_file(address)
    return DataLink(path, address, is_file, "FastFile" if options.fast_file else "File")


def _tags(options: JobOptions, defaults: JobDefaults) -> dict[str, str]:
    named = {
        "project": options.project or defaults.project,
        "priority": options.priority,
        "retries": options.retries,
        "max_parallel": options.max_parallel,
        "after": " ".join(options.after) or None,
    }
    return {**{key: str(value) for key, value in named.items() if value is not None}, **dict(options.tag)}


def _needed(value: str | None, option: str, setting: str) -> str:
    if not value:
        raise InvalidOption(
            f"No {setting} is set: give {option}, set SAGEMAKER_QUEUE_{setting.upper()}, or once: "
            f"smq config set {setting} ..."
        )
    return value
