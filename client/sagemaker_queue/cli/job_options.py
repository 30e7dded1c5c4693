"""The options by which ``submit``, ``sweep`` and ``plan`` are told of a job, and the job that they make."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sagemaker_queue.cli.documents import read_document
from sagemaker_queue.config.job_defaults import JobDefaults, seconds
from sagemaker_queue.config.queue_config import find_defaults
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.packaging.command import LAUNCHERS, CommandJob, DataLink
from sagemaker_queue.packaging.links import S3Address, parse_link
from sagemaker_queue.text import MEGABYTE

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.storage import Storage

HOME = "sagemaker-queue"  # the folder of the bucket for all that smq brings there
_LONGEST_STEM = 30
_LETTERS = "bcdfghjkmnpqrstvwxz"

T = TypeVar("T")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a job is."""
    resources = parser.add_argument_group("what it runs on")
    resources.add_argument(
        "-n", "--instances", metavar="COUNT", type=_positive, default=1, help="instances (default 1)"
    )
    resources.add_argument("-t", "--instance-type", metavar="TYPE", help="such as ml.p5.48xlarge (or the profile's)")
    resources.add_argument(
        "--image", metavar="URI", help="any image with sh and Python 3.7 or later (or the profile's)"
    )
    resources.add_argument("--volume", metavar="GB", type=_positive, help="disk of each instance (default 30)")
    resources.add_argument(
        "--max-run", metavar="TIME", type=checked(seconds), help="such as 90m, 12h or 3d (default 1d)"
    )
    resources.add_argument(
        "--launcher", choices=LAUNCHERS, help="start it by torchrun or Open MPI's mpirun, in one world of all instances"
    )
    resources.add_argument(
        "--processes", metavar="N", type=_positive, help="of the launcher on each instance (default: one for each GPU)"
    )
    files = parser.add_argument_group("its files")
    files.add_argument("--folder", metavar="DIR", type=Path, default=Path(), help="the working folder (default: .)")
    files.add_argument(
        "--data",
        metavar="PATH=S3",
        type=checked(parse_link),
        action="append",
        default=[],
        help="a folder or file in S3 that appears at a path of the working folder; several are possible",
    )
    files.add_argument(
        "--fast-file", action="store_true", help="read data from S3 when it is used, not before the command starts"
    )
    files.add_argument(
        "--checkpoint",
        metavar="S3",
        nargs="?",
        const="",
        help="keep the folder that SM_CHECKPOINT_DIR names for the next attempt, at an address of the job's own, "
        "or at the one given",
    )
    files.add_argument("--bucket", help="for code, output and checkpoints (default: the profile's, or the SDK's own)")
    files.add_argument(
        "--max-code", metavar="MB", type=_positive, default=100, help="code that may be packed (default 100)"
    )
    rights = parser.add_argument_group("how it is treated")
    rights.add_argument("--name", help="of the job, or of the sweep (default: made from the command)")
    rights.add_argument("--priority", metavar="P", type=int, help="a whole number; the higher, the sooner")
    rights.add_argument("--project", metavar="X", help="whom it counts for (or the profile's)")
    rights.add_argument(
        "--retries", metavar="N", type=int, help="how often it is tried again after it failed by itself"
    )
    rights.add_argument("--role", metavar="ARN", help="the role that SageMaker runs it under (or the profile's)")
    rights.add_argument(
        "--env", metavar="K=V", type=checked(_pair), action="append", default=[], help="an environment variable"
    )
    rights.add_argument("--tag", metavar="K=V", type=checked(_pair), action="append", default=[], help="a tag")
    rights.add_argument(
        "--request",
        metavar="FILE",
        help="more of the CreateTrainingJob request, such as VpcConfig, in JSON or YAML; options win",
    )


@contextmanager
def described_job(
    queue: QueueClient, arguments: argparse.Namespace, command: list[str]
) -> Iterator[tuple[CommandJob, Code, Storage]]:
    """Give the job that the options describe, its packed code, and S3; nothing is uploaded.

    Raises QueueError if something is missing or cannot be packed.
    """
    from sagemaker_queue.packaging.code import packed_code  # noqa: PLC0415  # boto3
    from sagemaker_queue.packaging.storage import Storage  # noqa: PLC0415

    defaults = find_defaults(url=arguments.url, profile=arguments.profile)
    if not command:
        raise InvalidOption("No command is given: write it at the end, such as: -- python train.py")
    role = _needed(arguments.role or defaults.role, "--role", "role")
    image = _needed(arguments.image or defaults.image, "--image", "image")
    instance_type = _needed(arguments.instance_type or defaults.instance_type, "--instance-type", "instance_type")
    storage = Storage.of(queue.config)
    home = S3Address(arguments.bucket or defaults.bucket or storage.default_bucket(), HOME)
    links = {**defaults.data, **dict(arguments.data)}
    more = dict(defaults.request)
    if arguments.request:
        more |= read_document(arguments.request, sys.stdin)
    wants_checkpoints = arguments.checkpoint is not None or defaults.checkpoint
    limit = arguments.max_code * MEGABYTE
    with packed_code(arguments.folder, home / "code", leave_out=list(links), limit=limit) as code:
        yield (
            CommandJob(
                name=arguments.name or default_name(command),
                command=tuple(command),
                image=image,
                role=role,
                instance_type=instance_type,
                code=code.address,
                output=home / "output",
                instances=arguments.instances,
                volume=arguments.volume or defaults.volume or 30,
                max_run=arguments.max_run or defaults.max_run or seconds("1d"),
                data=tuple(_link(path, address, arguments, storage) for path, address in sorted(links.items())),
                env={**defaults.env, **dict(arguments.env)},
                tags=_tags(arguments, defaults),
                checkpoints=S3Address.parse(arguments.checkpoint) if arguments.checkpoint else None,
                checkpoint_home=home / "checkpoints" if wants_checkpoints else None,
                launcher=arguments.launcher,
                processes=arguments.processes,
                more=more,
            ),
            code,
            storage,
        )


def default_name(command: list[str]) -> str:
    """Return a name that tells the command and is nobody else's."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"{stem(command)}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{suffix}"


def stem(command: list[str]) -> str:
    """Return what a command is called: its script's, its module's or its program's name."""
    scripts = [Path(word).stem for word in command if word.endswith((".py", ".sh"))]
    modules = [word.rpartition(".")[2] for flag, word in zip(command, command[1:], strict=False) if flag == "-m"]
    called = [*scripts[:1], *modules[:1], Path(command[0]).name][0]
    return re.sub(r"[^A-Za-z0-9]+", "-", called).strip("-")[:_LONGEST_STEM].rstrip("-") or "job"


def _link(path: str, address: S3Address, arguments: argparse.Namespace, storage: Storage) -> DataLink:
    is_file = bool(address.key) and not address.key.endswith("/") and storage.is_file(address)
    return DataLink(path, address, is_file, "FastFile" if arguments.fast_file else "File")


def _tags(arguments: argparse.Namespace, defaults: JobDefaults) -> dict[str, str]:
    named = {
        "project": arguments.project or defaults.project,
        "priority": arguments.priority,
        "retries": arguments.retries,
    }
    return {**{key: str(value) for key, value in named.items() if value is not None}, **dict(arguments.tag)}


def _needed(value: str | None, option: str, setting: str) -> str:
    if not value:
        raise InvalidOption(
            f"It is not said with which {setting}: give {option}, set SAGEMAKER_QUEUE_{setting.upper()}, or once: "
            f"smq config set {setting} ..."
        )
    return value


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidOption(f"{text!r} has no name: it must look like NAME=VALUE.")
    if not equals and name not in os.environ:
        raise InvalidOption(f"{text!r} has no value, and this environment has none either: write {text}=VALUE.")
    return name, value if equals else os.environ[name]


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse tell which option was wrong."""

    def check(text: str) -> T:
        try:
            return read(text)
        except InvalidOption as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return check


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)
