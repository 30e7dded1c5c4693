"""The table of job options: it defines the options of ``smq submit``, the keywords in Python, and parts of messages.

The rows of the table are read from annotations. So this module has no ``from __future__ import annotations``, which
would turn annotations into texts. The annotations must be valid in Python 3.9.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Callable, Literal, Optional, TypedDict, Union

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import one_line
from sagemaker_queue.jobs.times import iso_time
from sagemaker_queue.queue.config.job_defaults import seconds
from sagemaker_queue.queue.data_links import is_address, parse_link

_WHOLE = 10  # tenths in a whole GPU
_START_BY_ACTIONS = ("notify", "cancel", "next_pool")
_RELATIVE = re.compile(r"[1-9][0-9]{0,8}[smhd]")
_TEN_YEARS = 10 * 365 * 86_400  # seconds


@dataclass(frozen=True)
class JobOption:
    """An option of ``smq``; its key in JOB_OPTIONS is the keyword in Python."""

    # The names, such as -n --instances, and then the name of the value, in brackets if the value is optional. Messages
    # about requests use the first name.
    usage: str
    help: str
    section: str  # the heading in the help
    # Converts the option's text ("" if it has no value) to the keyword's value; bool: the option is a flag.
    read: Callable[[str], Any] = str
    least: Optional[int] = None
    choices: tuple[str, ...] = ()
    collect: Optional[Callable[[Iterable[Any]], Any]] = None  # combines the values, if the option may be repeated
    completion: Optional[Literal["files", "instance_types", "job_names", "projects"]] = None
    field: Optional[str] = None  # the field of the request; messages may leave out the parts in brackets
    tag: Optional[str] = None  # the scheduling tag that carries the value
    tag_text: Callable[[Any], Optional[str]] = str  # converts the keyword's value to the tag's text; None: no tag

    @property
    def names(self) -> list[str]:
        """The option's names in ``smq``."""
        return [word for word in self.usage.split() if word.startswith("-")]

    @property
    def metavar(self) -> Optional[str]:
        """The name of the option's value in the help of ``smq``."""
        return next((word for word in self.usage.split() if not word.startswith("-")), None)


def accepted_sizes(instances: Union[int, Sequence[int]], text: Optional[str] = None) -> tuple[int, ...]:
    """Return the accepted numbers of instances, best first.

    Raises InvalidOption unless the numbers are positive and decrease. The message quotes ``text`` (default: the
    numbers).
    """
    sizes = (instances,) if isinstance(instances, int) else tuple(instances)
    text = ",".join(map(str, sizes)) if text is None else text
    if not sizes or not all(size > 0 for size in sizes):
        raise InvalidOption(
            f"{text!r} is not a number of instances: write one number, or the accepted numbers, such as 8,4,2."
        )
    if any(larger <= smaller for larger, smaller in zip(sizes, sizes[1:])):
        raise InvalidOption(f"{text!r} must decrease, such as 8,4,2: the largest number is tried first.")
    return sizes


def _sizes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    return accepted_sizes([int(word) for word in words] if all(word.isdecimal() for word in words) else [], text)


def _sizes_tag(instances: Union[int, Sequence[int]]) -> Optional[str]:
    sizes = accepted_sizes(instances)
    return " ".join(map(str, sizes)) if len(sizes) > 1 else None


def _link(text: str) -> tuple[str, str]:
    path, address = parse_link(text)
    return path, str(address)


def _checkpoint(text: str) -> Union[bool, str]:
    """Return the S3 address, or True for empty text. Raises InvalidOption for other text, such as a command."""
    if text and not is_address(text):
        raise InvalidOption(
            f"{text!r} is not an S3 address. If the command begins with it, write -- before it: "
            f"--checkpoint -- {one_line(text)} ..."
        )
    return text or True


def _gpus(text: str) -> float:
    """Parse a number of GPUs: a whole number, or tenths of one GPU. Raises InvalidOption for any other text."""
    try:
        tenths = round(float(text) * 10, 6)
    except ValueError:
        tenths = 0
    if not 0 < tenths < math.inf or tenths != int(tenths) or (tenths > _WHOLE and tenths % _WHOLE):
        raise InvalidOption(
            f"{text!r} is not a number of GPUs: write a whole number, or tenths of one GPU, such as 1, 4 or 0.5."
        )
    return tenths / _WHOLE


def _time_tag(time: Union[str, datetime]) -> str:
    """Return a time as the text of a tag, ISO 8601 in UTC. ``2h`` means two hours from now. Raises InvalidOption.

    A text without a zone is in UTC; a datetime without a zone is local time, as in Python.
    """
    if isinstance(time, str) and _RELATIVE.fullmatch(time.strip()):
        time = datetime.now(timezone.utc) + timedelta(seconds=min(seconds(time), _TEN_YEARS))
    try:
        time = iso_time(time) if isinstance(time, str) else time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{time!r} is not a time: write 2026-11-28, 2026-11-28T18:00 (UTC), or 90m, 2h or 3d from now."
        ) from None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _start_by_tag(time: Union[str, datetime]) -> str:
    """Return a time, or ``TIME:ACTION``, as the text of a tag. Raises InvalidOption."""
    if isinstance(time, str):
        before, colon, action = time.rpartition(":")
        if colon and action in _START_BY_ACTIONS:
            return f"{_time_tag(before)}:{action}"
    return _time_tag(time)


def _checked(convert: Callable[[str], str], text: str) -> str:
    """Return the text of a time unchanged, so that ``relative_times`` finds it. Raises InvalidOption if invalid."""
    convert(text)
    return text


def _seconds_tag(time: Union[str, int]) -> str:
    return str(seconds(str(time)))


def _dependency(text: str) -> str:
    """Return the text if it can be the name of a job to start after, else raise InvalidOption."""
    if not text or re.search(r"[\s+,]", text):
        raise InvalidOption(f"{text!r} is not the name of a job: name one job, and repeat the option for others.")
    return text


def _dependencies_tag(jobs: Union[str, Iterable[str]]) -> Optional[str]:
    return " ".join(map(_dependency, [jobs] if isinstance(jobs, str) else jobs)) or None


def _retry_rule(text: str) -> str:
    """Return rules as the text of the tag ``retry_on``: ``retry free`` becomes one word. Raises InvalidOption."""
    rules = " ".join(text.replace("retry free", "retry-free").split())
    if not rules:
        raise InvalidOption(
            f"{text!r} is not a rule: name an exit code or a class, such as 137 or communication=retry-free."
        )
    return rules


def _retry_tag(rules: Union[str, Iterable[str]]) -> Optional[str]:
    return " ".join(map(_retry_rule, [rules] if isinstance(rules, str) else rules)) or None


def pair(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE; NAME without = gets its value from the environment. Raises InvalidOption."""
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidOption(f"{text!r} has no name: it must look like NAME=VALUE.")
    if not equals and name not in os.environ:
        raise InvalidOption(f"{text!r} has no value, and this environment has none either: write {text}=VALUE.")
    return name, value if equals else os.environ[name]


_resource = partial(JobOption, section="instances and image")
_file = partial(JobOption, section="files and data")
_scheduling = partial(JobOption, section="scheduling and settings")


class JobKeywords(TypedDict, total=False):
    """The settings of a job that runs a command, all optional.

    The profile provides the defaults, as for ``smq submit``.
    """

    instances: Annotated[
        "int | Sequence[int]",
        _resource(
            "-n --instances COUNT",
            "number of instances (default 1); with 8,4,2, the job starts on 4 or 2 if more are not free",
            read=_sizes,
            field="[ResourceConfig.]InstanceCount",
            tag="instances",
            tag_text=_sizes_tag,
        ),
    ]
    """Number of instances (default 1). With ``[8, 4, 2]``, the job starts on 4 or 2 if more are not free."""
    instance_type: Annotated[
        "str",
        _resource(
            "-t --instance-type TYPE",
            "instance type, such as ml.p5.48xlarge (default: the profile's)",
            completion="instance_types",
            field="[ResourceConfig.]InstanceType",
        ),
    ]
    """Instance type such as ``"ml.p5.48xlarge"`` (default: the profile's)."""
    image: Annotated[
        "str",
        _resource(
            "--image URI",
            "any image with sh and Python 3.6 or later (default: the profile's)",
            field="[AlgorithmSpecification.]TrainingImage",
        ),
    ]
    """Any image with sh and Python 3.6 or later (default: the profile's)."""
    volume: Annotated[
        "int",
        _resource(
            "--volume GB",
            "disk size of each instance in GB (default 30)",
            read=int,
            least=1,
            field="[ResourceConfig.]VolumeSizeInGB",
        ),
    ]
    """Disk of each instance in GB (default 30)."""
    max_run: Annotated[
        "str | int",
        _resource(
            "--max-run TIME",
            "longest runtime of an attempt, such as 90m, 12h or 3d (default 1d)",
            read=seconds,
            field="[StoppingCondition.]MaxRuntimeInSeconds",
        ),
    ]
    """Longest runtime, such as ``"90m"``, ``"12h"`` or ``"3d"``, or in seconds (default: one day)."""
    launcher: Annotated[
        "str",
        _resource(
            "--launcher",
            "start the command with torchrun or Open MPI's mpirun, as one group of processes on all instances",
            choices=("torchrun", "mpirun"),
        ),
    ]
    """``"torchrun"`` or ``"mpirun"``: start the command's processes on all instances, as one group (world)."""
    processes: Annotated[
        "int",
        _resource(
            "--processes N", "processes of the launcher on each instance (default: one for each GPU)", read=int, least=1
        ),
    ]
    """Processes of the launcher on each instance (default: one for each GPU)."""
    folder: Annotated[
        "str | os.PathLike[str]",
        _file("--folder DIR", "the working folder (default: .)", read=Path, completion="files"),
    ]
    """The working folder (default: the notebook's or script's)."""
    data: Annotated[
        "Mapping[str, str]",
        _file(
            "--data PATH=S3",
            "make a folder or file in S3 available at a path of the working folder; may be repeated",
            read=_link,
            collect=dict,
        ),
    ]
    """Folders or files in S3 that appear at paths of the working folder: ``{"data": "s3://bucket/folder"}``."""
    fast_file: Annotated[
        "bool", _file("--fast-file", "read data from S3 on first use, not before the command starts", read=bool)
    ]
    """Read data from S3 on first use, not before the command starts."""
    checkpoint: Annotated[
        "bool | str",
        _file(
            "--checkpoint [S3]",
            "keep the folder that SM_CHECKPOINT_DIR names for the next attempt, at the given S3 address or at an "
            "address of the job's own",
            read=_checkpoint,
            field="CheckpointConfig[.S3Uri]",
        ),
    ]
    """Keep the folder that ``SM_CHECKPOINT_DIR`` names for the next attempt: ``True``, or an address in S3."""
    bucket: Annotated[
        "str",
        _file(
            "--bucket",
            "bucket for code, output and checkpoints (default: the profile's, else the SageMaker SDK's)",
            field="[OutputDataConfig.]S3OutputPath",
        ),
    ]
    """Bucket for code, output and checkpoints (default: the profile's, else the SageMaker SDK's)."""
    max_code: Annotated[
        "int", _file("--max-code MB", "largest size of the packed code in MB (default 100)", read=int, least=1)
    ]
    """Largest size of the code in MB (default 100)."""
    include_secrets: Annotated[
        "Iterable[str]",
        _file(
            "--include-secrets PATTERN",
            "pack files although they may contain keys or passwords (patterns as in .gitignore)",
            collect=tuple,
        ),
    ]
    """Patterns as in .gitignore of files to pack although they may contain keys or passwords."""
    name: Annotated[
        "str",
        _scheduling(
            "--name", "name of the job or of the sweep (default: made from the command)", field="TrainingJobName"
        ),
    ]
    """Name of the job or sweep (default: made from the command). Repeating a call with a name returns the same job."""
    priority: Annotated[
        "int",
        _scheduling(
            "--priority P",
            "a whole number; jobs with a higher priority start first within a project",
            read=int,
            tag="priority",
        ),
    ]
    """Priority, a whole number. Within a project, jobs with a higher priority come first."""
    project: Annotated[
        "str",
        _scheduling("--project X", "project of the job (default: the profile's)", completion="projects", tag="project"),
    ]
    """Project of the job (default: the profile's)."""
    retries: Annotated[
        "int",
        _scheduling(
            "--retries N", "how often the job is tried again after it failed by itself", read=int, tag="retries"
        ),
    ]
    """Maximum number of retries after the job failed by itself."""
    retry_on: Annotated[
        "str | Iterable[str]",
        _scheduling(
            "--retry-on RULE",
            "the action after a failure, by exit code or class: 137, communication=retry-free, user_error=fail; may "
            "be repeated",
            read=_retry_rule,
            collect=tuple,
            tag="retry_on",
            tag_text=_retry_tag,
        ),
    ]
    """Rules for failures, before those of the policy: ``137``, ``communication=retry-free`` or ``text:lost_peer=fail``.
    Without ``retries``, a rule that retries allows three retries."""
    on_hang: Annotated[
        "str",
        _scheduling(
            "--on-hang ACTION",
            "the action if the job hangs: notify, or requeue (stop it and start it again)",
            tag="on_hang",
        ),
    ]
    """Action when the job hangs: ``notify``, or ``requeue`` to stop it and start it again (default: the policy's)."""
    max_parallel: Annotated[
        "int",
        _scheduling(
            "--max-parallel N",
            "how many jobs of its group (--tag group=X, or its sweep) may run at the same time",
            read=int,
            least=1,
            tag="max_parallel",
        ),
    ]
    """Maximum number of jobs of the job's group (tag ``group``, or its sweep) that run at the same time."""
    gpus: Annotated[
        "float",
        _scheduling(
            "--gpus N",
            "GPUs of an instance shared with other jobs: 1, 4, or 0.5 of one GPU (in pools with shared: true)",
            read=_gpus,
            tag="gpus",
            tag_text="{:g}".format,
        ),
    ]
    """GPUs on an instance that is shared with other jobs: 1, 4, or 0.5 of one GPU."""
    after: Annotated[
        "str | Iterable[str]",
        _scheduling(
            "--after JOB[:any]",
            "start the job after this job has completed, or with :any has finished in any way; may be repeated",
            read=_dependency,
            collect=tuple,
            completion="job_names",
            tag="after",
            tag_text=_dependencies_tag,
        ),
    ]
    """Start the job after these jobs have completed; for ``NAME:any``, after that job has finished in any way."""
    not_before: Annotated[
        "str | datetime",
        _scheduling(
            "--not-before TIME",
            "do not start the job earlier: 2026-11-28T18:00 (UTC without a zone), or 2h for in two hours",
            read=partial(_checked, _time_tag),
            tag="not_before",
            tag_text=_time_tag,
        ),
    ]
    """Do not start the job earlier: ISO 8601 (UTC without a zone), a datetime, or ``"2h"`` for in two hours."""
    start_by: Annotated[
        "str | datetime",
        _scheduling(
            "--start-by TIME",
            "the time by which the job should have started, such as 6h; see --start-by-action",
            read=partial(_checked, _start_by_tag),
            tag="start_by",
            tag_text=_start_by_tag,
        ),
    ]
    """Time by which the job should have started, in a form of ``not_before``; see ``start_by_action``."""
    start_by_action: Annotated[
        "str",
        _scheduling(
            "--start-by-action",
            "the action at --start-by: notify (default), cancel the job, or let it run in further pools of its project",
            choices=_START_BY_ACTIONS,
            tag="start_by_action",
        ),
    ]
    """``"notify"`` (default), ``"cancel"`` or ``"next_pool"``: what happens if the job has not started in time."""
    max_total_runtime: Annotated[
        "str | int",
        _scheduling(
            "--max-total-runtime TIME",
            "longest runtime of all attempts together, such as 12h or 3d",
            read=seconds,
            tag="max_total_runtime",
            tag_text=_seconds_tag,
        ),
    ]
    """Longest runtime of all attempts together, such as ``"12h"`` or ``"3d"``, or in seconds."""
    max_preemptions: Annotated[
        "int",
        _scheduling(
            "--max-preemptions N",
            "how often the job may be stopped to make room; after that it uses only its project's quota, and is not "
            "stopped",
            read=int,
            least=0,
            tag="max_preemptions",
        ),
    ]
    """How often the job may be stopped to make room. Then the job uses only its project's quota, and is not stopped."""
    role: Annotated[
        "str", _scheduling("--role ARN", "ARN of the job's execution role (default: the profile's)", field="RoleArn")
    ]
    """ARN of the job's execution role (default: the profile's)."""
    env: Annotated[
        "Mapping[str, str]",
        _scheduling(
            "--env K=V",
            "an environment variable of the job; may be repeated",
            read=pair,
            collect=dict,
            field="Environment",
        ),
    ]
    """Environment variables."""
    tag: Annotated[
        "Mapping[str, str]", _scheduling("--tag K=V", "a tag of the job; may be repeated", read=pair, collect=dict)
    ]
    """Tags."""
    more: Annotated[
        "Mapping[str, Any]",
        _scheduling(
            "--request FILE",
            "further fields of the CreateTrainingJob request, such as VpcConfig, in JSON or YAML; options override "
            "them",
            completion="files",
        ),
    ]
    """Further fields of the CreateTrainingJob request, such as ``VpcConfig``; the other keywords override them."""


JOB_OPTIONS: Mapping[str, JobOption] = {
    name: annotation.__metadata__[0] for name, annotation in JobKeywords.__annotations__.items()
}
# The default name of a sweep contains a hash that depends on the order of the tags, so this order must never change.
_TAG_ORDER = ("instances", "project", *JOB_OPTIONS)


def tags_of(options: Mapping[str, object]) -> dict[str, str]:
    """Return the scheduling tags of job options; None stands for an option that is not given.

    Raises InvalidOption for an invalid value.
    """
    rows = {name: JOB_OPTIONS[name] for name in _TAG_ORDER if options.get(name) is not None}
    texts = {row.tag: row.tag_text(options[name]) for name, row in rows.items() if row.tag}
    return {tag: text for tag, text in texts.items() if text is not None}


def relative_times(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the tags whose times are given relative to now, such as ``2h``: their texts differ in each call."""
    texts = {name: str(options.get(name)).partition(":")[0].strip() for name in ("not_before", "start_by")}
    return tuple(name for name, text in texts.items() if _RELATIVE.fullmatch(text))


def with_times_of(tags: Mapping[str, str], stored: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return ``tags`` with the times of ``stored`` in the tags ``names``; an action after a time is not replaced."""
    size = len(_time_tag("1s"))
    return {**tags, **{name: stored[name][:size] + tags[name][size:] for name in names if name in stored}}
