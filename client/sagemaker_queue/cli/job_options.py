"""The options of ``submit``, ``sweep`` and ``plan`` that describe a job, and the job that they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagemaker_queue.actions import job_settings
from sagemaker_queue.actions.job_settings import JobSettings, decreasing_sizes, dependency, gpus
from sagemaker_queue.actions.submission import storage_of
from sagemaker_queue.cli.completion import files, instance_types, job_names, projects
from sagemaker_queue.cli.documents import read_document
from sagemaker_queue.cli.output import print_note
from sagemaker_queue.cli.parser import bundled, checked, connection, option
from sagemaker_queue.config.job_defaults import seconds
from sagemaker_queue.config.queue_config import find_defaults
from sagemaker_queue.data_links import is_address, parse_link
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import one_line
from sagemaker_queue.packaging.command import LAUNCHERS, CommandJob

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.storage import S3Storage

_NAMED = 10  # files that a message about files that are not packed names


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidOption(f"{text!r} has no name: it must look like NAME=VALUE.")
    if not equals and name not in os.environ:
        raise InvalidOption(f"{text!r} has no value, and this environment has none either: write {text}=VALUE.")
    return name, value if equals else os.environ[name]


def _sizes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    return decreasing_sizes([int(word) for word in words] if all(word.isdecimal() for word in words) else [], text)


def _checkpoint(text: str) -> str:
    """Return the S3 address, or empty text. Raises InvalidOption for other words, such as the command's first."""
    if text and not is_address(text):
        raise InvalidOption(
            f"{text!r} is not an S3 address. If the command begins with it, write -- before it: "
            f"--checkpoint -- {one_line(text)} ..."
        )
    return text


@dataclass(frozen=True)
class JobOptions(JobSettings):
    """The options that describe a job; None: the option was not given."""

    request: str | None = None  # a file


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
        "--gpus",
        metavar="N",
        type=checked(gpus),
        help="GPUs of an instance that it shares with others: 1, 4, or 0.5 of one (pools with shared: true)",
    ),
    _rights(
        "--after",
        metavar="JOB[:any]",
        type=checked(dependency),
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
def job_from_options(
    queue: QueueClient,
    options: JobOptions,
    command: Sequence[str],
    interactive: job_settings.InteractiveSettings | None = None,
) -> Iterator[tuple[CommandJob, Code, S3Storage]]:
    """Yield the job that the options describe, its packed code, and S3; upload nothing.

    Print the files that are kept back. Raises QueueError if a setting is missing or the folder cannot be packed.
    """
    named = connection()
    defaults = find_defaults(url=named.url, profile=named.profile)
    if not command and not interactive:
        raise InvalidOption("No command is given: write it at the end, such as: -- python train.py")
    if not command and options.launcher:
        raise InvalidOption("--launcher starts a command, and none is given: write it at the end, after --.")
    more = read_document(options.request, sys.stdin) if options.request else {}
    storage = storage_of(queue)
    described = job_settings.job_from_settings(
        options,
        command,
        defaults,
        storage,
        more=more,
        option_text=lambda setting: f"--{setting.replace('_', '-')}",
        interactive=interactive,
    )
    with described as (job, code):
        _print_kept_back(code.archive.kept_back)
        if code.archive.has("compile.sh", "compile.aml.sh"):
            print_note("The job runs compile.sh and not compile.aml.sh: the folder has both.")
        yield job, code, storage


def _print_kept_back(kept_back: Sequence[str]) -> None:
    if not kept_back:
        return
    named = ", ".join(one_line(name) for name in kept_back[:_NAMED])
    others = f" and {len(kept_back) - _NAMED} more" if len(kept_back) > _NAMED else ""
    print(
        f"smq: not packed, as keys and passwords may be in it: {named}{others}. What a job needs of it belongs into AWS"
        " Secrets Manager; a ! before its name in .smqignore, or --include-secrets PATTERN, packs it all the same.",
        file=sys.stderr,
    )
