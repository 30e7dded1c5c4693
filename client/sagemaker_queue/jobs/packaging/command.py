"""Make the CreateTrainingJob request of ``smq submit``, and the request and name of a resubmission.

{data:NAME} in the command is checked here. ``container/run.py`` replaces {data:NAME} by a path, and runs the command.
The image needs sh and Python.
"""

from __future__ import annotations

import json
import posixpath
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import MEGABYTE, did_you_mean
from sagemaker_queue.jobs.hyperparameters import in_pieces
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS, JobKeywords, accepted_sizes, relative_times, tags_of
from sagemaker_queue.queue.config.job_defaults import seconds
from sagemaker_queue.queue.config.queue_config import find_defaults
from sagemaker_queue.queue.data_links import S3Address, link_path

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.code import Code
    from sagemaker_queue.jobs.packaging.storage import S3Storage
    from sagemaker_queue.queue.client import QueueClient

Json = dict[str, Any]

HOME = "sagemaker-queue"  # the folder in the bucket for everything that the client uploads and its jobs write
CODE_CHANNEL = "code"
LONGEST_NAME = 63
_LONGEST_STEM = 30
_LETTERS = "bcdfghjkmnpqrstvwxz"
_CHANNELS = 20  # SageMaker's limit on input channels
_LONGEST_CHANNEL = 64
_DATED_TAGS = ("not_before", "start_by", "start_by_action")  # a resubmission leaves these tags out
# {data:NAME} is a path, {{data:NAME}} is an escaped {data:NAME}, and ${data:...} belongs to the shell. run.py has the
# same pattern.
PLACEHOLDER = re.compile(r"\{\{data:([^{}]+)\}\}|(?<!\$)\{data:([^{}]+)\}")

# The entry point compares run.py with the digest in the request, and runs exactly the compared bytes. The local cloud
# may have no /opt/ml, and names the channel's folder in SM_CHANNEL_CODE. SageMaker allows 256 characters in an
# argument, and no line feed, so _VERIFY is passed in pieces. With -I, no file beside run.py and no environment variable
# can replace a module of Python.
_SHELL = 'exec "$(command -v python3 || command -v python)" -I -c "$1$2$3" "$4"'
_VERIFY = (
    'import hashlib,os,sys;d=os.environ.get("SM_CHANNEL_CODE") or "/opt/ml/input/data/code";f=d+"/run.py";'
    'b=open(f,"rb").read();m="run.py differs from the submitted file: it was changed in S3, and is not run.";'
    'hashlib.sha256(b).hexdigest()==sys.argv[1] or [print("[smq]",m,flush=True),'
    'open(d.rsplit("/",3)[0]+"/output/failure","w").write(m),sys.exit(1)];'  # SageMaker's FailureReason
    'exec(compile(b,f,"exec"),{"__name__":"__main__","__file__":f})'
)
_PIECES = 3  # $1 to $3


def entry_point(digest: str) -> list[str]:
    """Return the container entry point that runs run.py only if its SHA-256 is ``digest``."""
    length = -(-len(_VERIFY) // _PIECES)
    pieces = [_VERIFY[start : start + length] for start in range(0, len(_VERIFY), length)]
    return ["/bin/sh", "-c", _SHELL, "smq", *pieces, digest]


@dataclass(frozen=True)
class DataLink:
    """Data in S3 that is visible at a path in the working folder."""

    path: str
    address: S3Address
    is_file: bool = False
    mode: str = "File"  # or FastFile: streamed from S3 on reading


@dataclass(frozen=True)
class CommandJob:
    """The job that ``smq submit`` describes: command, code, image, instances and data."""

    name: str
    command: tuple[str, ...]
    image: str
    role: str
    instance_type: str
    code: S3Address  # the folder with source.tar.gz and run.py
    program: str  # SHA-256 of run.py
    source: str  # SHA-256 of the unzipped code, and its size in bytes
    output: S3Address
    instances: tuple[int, ...] = (1,)  # numbers of instances that the job accepts, best first
    volume: int = 30  # GB
    max_run: int = 86_400  # seconds
    data: tuple[DataLink, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    relative_times: tuple[str, ...] = ()  # the tags with times that were given relative to now
    checkpoints: S3Address | None = None  # the checkpoint folder, if the user has named it
    checkpoint_home: S3Address | None = None  # without `checkpoints`: the job gets a folder of its own in this folder
    launcher: str | None = None
    processes: int | None = None  # processes on each instance; None: one per accelerator
    interactive: bool = False  # users may open shells in the job
    idle_end: int | None = None  # seconds without a shell after which the job ends; set only if there is no command
    more: Mapping[str, Any] = field(default_factory=dict)  # further request fields; the attributes above override them

    def request(self) -> Json:
        """Return the CreateTrainingJob request. Raises InvalidOption for unknown data names or too many data links."""
        channels = self._channels()
        places = self._places(channels)
        paths = {link.path: _place(name, link) for name, link in channels.items()}
        settings = {
            **in_pieces("command", json.dumps(self.command)),
            **(in_pieces("data", json.dumps(paths)) if paths else {}),
            **({} if places is None else in_pieces("places", json.dumps(places))),
            "source": self.source,
            **({"launcher": self.launcher} if self.launcher else {}),
            **({"processes": str(self.processes)} if self.processes else {}),
            **({"idle_end": str(self.idle_end)} if self.idle_end else {}),
        }
        checkpoints = self.checkpoints
        if self.checkpoint_home and not checkpoints:
            # The code's digest is in the name, so that an earlier job of this name with other code has another folder.
            checkpoints = self.checkpoint_home / f"{self.name}-{self.code.name[:8]}"
        request = {
            "TrainingJobName": self.name,
            "RoleArn": self.role,
            "AlgorithmSpecification": {
                "TrainingImage": self.image,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": entry_point(self.program),
            },
            "HyperParameters": settings,
            "InputDataConfig": [
                _channel(CODE_CHANNEL, self.code.folder, "File"),
                *(
                    _channel(name, link.address if link.is_file else link.address.folder, link.mode)
                    for name, link in channels.items()
                ),
            ],
            "OutputDataConfig": {"S3OutputPath": str(self.output)},
            "ResourceConfig": {
                "InstanceType": self.instance_type,
                "InstanceCount": self.instances[0],
                "VolumeSizeInGB": self.volume,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": self.max_run},
            **({"CheckpointConfig": {"S3Uri": str(checkpoints)}} if checkpoints else {}),
            **({"RemoteDebugConfig": {"EnableRemoteDebug": True}} if self.interactive else {}),
            **({"Environment": dict(self.env)} if self.env else {}),
            **({"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]} if self.tags else {}),
        }
        return _overridden(self.more, request)

    def identity(self) -> Json:
        """Return the request with the command's stem as name, and without relative times.

        So a repeated call of ``smq sweep`` gives the same identity.
        """
        tags = {name: value for name, value in self.tags.items() if name not in self.relative_times}
        return replace(self, name=stem(self.command), tags=tags).request()

    def _places(self, channels: Mapping[str, DataLink]) -> dict[str, str] | None:
        """Return name -> path below /opt/ml/input/data for each {data:NAME} of the command.

        Return None if the command has neither {data:NAME} nor {{data:NAME}}: run.py then leaves the command unchanged.
        """
        found = [placeholder for word in self.command for placeholder in PLACEHOLDER.finditer(word)]
        if not found:
            return None
        others = _channel_names(self.more)
        by_path = {link.path: _place(name, link) for name, link in channels.items()}
        by_channel = {name: _place(name, link) for name, link in channels.items()}
        known = {**{name: name for name in others}, **by_channel, **by_path}
        places = {}
        for name in (placeholder[2] for placeholder in found if placeholder[2]):
            place = known.get(name) or by_path.get(posixpath.normpath(name))
            if place is None:
                names = ", ".join([*by_path, *others]) or "none"
                suggestion = did_you_mean(name, known)
                raise InvalidOption(
                    f"The command has {{data:{name}}}, but the job has no data of that name.{suggestion} "
                    f"It has: {names}. --data PATH=s3://... gives it more; write {{{{data:{name}}}}} if braces are "
                    "meant."
                )
            places[name] = place
        return places

    def _channels(self) -> dict[str, DataLink]:
        if len(self.data) >= _CHANNELS:
            raise InvalidOption(f"There are {len(self.data)} data links; a job can have {_CHANNELS - 1}.")
        channels: dict[str, DataLink] = {}
        for link in self.data:
            base = re.sub(r"[^A-Za-z0-9]+", "-", link.path).strip("-")[: _LONGEST_CHANNEL - 3] or "data"
            name, number = base, 2
            while name == CODE_CHANNEL or name in channels:
                name, number = f"{base}-{number}", number + 1
            channels[name] = link
        return channels


@dataclass(frozen=True)
class InteractiveSettings:
    """Settings of ``submit --interactive``: a job in which users open shells."""

    idle_end: int  # seconds without a shell after which a job without a command ends

    @staticmethod
    def check(request: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Raise InvalidOption if no shell can be opened in a job with this request and these tags."""
        if "gpus" in tags:
            raise InvalidOption(
                "A job with --gpus shares an instance, and a shell in it would also give access to other jobs: "
                "leave out --gpus, and choose a small instance type (-t) if one GPU is enough; or leave out "
                "--interactive, and give a command."
            )
        if request.get("EnableNetworkIsolation"):
            raise InvalidOption(
                "EnableNetworkIsolation separates the container from Session Manager, so no shell can be opened: "
                "leave it out of the request, or leave out --interactive."
            )


@contextmanager
def packed_job(
    queue: QueueClient,
    options: JobKeywords,
    command: Sequence[str],
    *,
    option_text: Callable[[str], str],
    interactive: InteractiveSettings | None = None,
) -> Iterator[tuple[CommandJob, Code, S3Storage]]:
    """Yield the job that the options and the profile's defaults describe, its packed code, and S3; upload nothing.

    ``option_text`` returns an option as the user writes it, such as --role, for messages. Raises QueueError if an
    option is missing or invalid, or if the folder cannot be packed.
    """
    from sagemaker_queue.jobs.packaging.code import packed_code  # noqa: PLC0415  # boto3
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415

    def needed(value: str | None, option: str) -> str:
        if not value:
            raise InvalidOption(
                f"No {option} is set: give {option_text(option)}, set SAGEMAKER_QUEUE_{option.upper()}, "
                f"or once: smq config set {option} ..."
            )
        return value

    storage = S3Storage.of(queue.config, queue.aws_session())
    defaults = find_defaults(*queue.named)
    instances = accepted_sizes(options.get("instances", 1))
    max_run = seconds(str(options["max_run"])) if "max_run" in options else defaults.max_run
    links = {link_path(path): S3Address.parse(str(address)) for path, address in options.get("data", {}).items()}
    links = {**defaults.data, **links}
    mode = "FastFile" if options.get("fast_file") else "File"
    checkpoint = options.get("checkpoint")
    checkpoints = S3Address.parse(checkpoint) if isinstance(checkpoint, str) else None
    patterns = options.get("include_secrets", ())
    own_tags = _texts(options.get("tag", {}))
    tags = {**({"project": defaults.project} if defaults.project else {}), **tags_with_options(options, option_text)}
    role = needed(options.get("role") or defaults.role, "role")
    image = needed(options.get("image") or defaults.image, "image")
    instance_type = needed(options.get("instance_type") or defaults.instance_type, "instance_type")
    home = S3Address(options.get("bucket") or defaults.bucket or storage.default_bucket(), HOME)
    request = {**defaults.request, **(options.get("more") or {})}
    if interactive:
        is_preemptible = own_tags.get("preemptible", "false").strip().lower() in ("true", "yes", "1")
        tags = {**({} if is_preemptible else {"interactive": "true", "preemptible": "false"}), **tags}
        interactive.check(request, tags)
    with packed_code(
        Path(options.get("folder", ".")),
        home / "code",
        leave_out=list(links),
        include_secrets=(patterns,) if isinstance(patterns, str) else tuple(patterns),
        limit=options.get("max_code", 100) * MEGABYTE,
    ) as code:
        yield (
            CommandJob(
                name=options.get("name") or default_name(command or ("shell",)),
                command=tuple(command),
                image=image,
                role=role,
                instance_type=instance_type,
                code=code.address,
                program=code.program,
                source=code.archive.source,
                output=home / "output",
                instances=instances,
                volume=options.get("volume") or defaults.volume or 30,
                max_run=max_run or seconds("1d"),
                data=tuple(_link(path, address, mode, storage) for path, address in sorted(links.items())),
                env={**defaults.env, **_texts(options.get("env", {}))},
                tags=tags,
                relative_times=relative_times(options),
                checkpoints=checkpoints,
                checkpoint_home=home / "checkpoints" if checkpoint or defaults.checkpoint else None,
                launcher=options.get("launcher"),
                processes=options.get("processes"),
                interactive=bool(interactive),
                idle_end=interactive.idle_end if interactive and not command else None,
                more=request,
            ),
            code,
            storage,
        )


def tags_with_options(options: JobKeywords, option_text: Callable[[str], str]) -> dict[str, str]:
    """Return the tags of a job: the tags that job options set, and the tags that the option ``tag`` names.

    Raises InvalidOption if a tag contradicts an option. ``option_text`` returns an option as the user writes it.
    """
    explicit_tags, by_options = _texts(options.get("tag", {})), tags_of(options)
    for name, row in JOB_OPTIONS.items():
        if row.tag in explicit_tags and by_options.get(row.tag, explicit_tags[row.tag]) != explicit_tags[row.tag]:
            raise InvalidOption(
                f"{option_text(name)} is {by_options[row.tag]} and {option_text('tag')} {row.tag} is "
                f"{explicit_tags[row.tag]}: give only one of them."
            )
    return {**by_options, **explicit_tags}


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


def resubmission(
    request: Mapping[str, Any],
    name: str,
    *,
    tags: Mapping[str, str] | None = None,
    resume: bool = False,
    from_step: int | None = None,
) -> Json:
    """Return a copy of a request under another name, with a new checkpoint folder; with ``resume``, the same folder.

    ``tags`` replace the request's tags of the same keys. The name of the new folder contains ``from_step``, so that
    resubmissions from different steps have different requests. The tags ``not_before``, ``start_by`` and
    ``start_by_action`` were meant for the old job, and are left out.
    """
    again = {**request, "TrainingJobName": name}
    if "CheckpointConfig" in request and not resume:
        kept = S3Address.parse(request["CheckpointConfig"]["S3Uri"])
        folder = _sibling_folder(kept, request, name)
        if from_step is not None:
            folder = replace(folder, key=f"{folder.key}-from-{from_step}")
        again["CheckpointConfig"] = {**request["CheckpointConfig"], "S3Uri": str(folder)}
    changes = dict(tags or {})
    dated = [tag["Key"] for tag in request.get("Tags", []) if tag["Key"] in _DATED_TAGS]
    if changes or dated:
        others = [tag for tag in request.get("Tags", []) if tag["Key"] not in (*changes, *dated)]
        again["Tags"] = [*others, *({"Key": key, "Value": value} for key, value in changes.items())]
    return again


def next_name(name: str) -> str:
    """Return the name of the next resubmission: ``job-r2`` for ``job``, ``job-r3`` for ``job-r2``."""
    again = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", name)
    base, number = (again[1], int(again[2]) + 1) if again else (name, 2)
    return f"{base[: LONGEST_NAME - len(f'-r{number}')].rstrip('-')}-r{number}"


def _texts(pairs: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in pairs.items()}


def _link(path: str, address: S3Address, mode: str, storage: S3Storage) -> DataLink:
    is_file = bool(address.key) and not address.key.endswith("/") and storage.is_file(address)
    return DataLink(path, address, is_file, mode)


def _sibling_folder(folder: S3Address, request: Mapping[str, Any], name: str) -> S3Address:
    """Return the folder with the new name in place of the old job's name, or appended if the old name is missing."""
    key, old = folder.key.rstrip("/"), request["TrainingJobName"]
    parts = [name if part == old else part for part in key.split("/")]
    return replace(folder, key="/".join(parts) if old in key.split("/") else f"{key}-{name}")


def _channel_names(request: Mapping[str, Any]) -> list[str]:
    """Return the channel names in an incomplete request that has not been validated."""
    channels = request.get("InputDataConfig")
    named = [it.get("ChannelName") for it in channels if isinstance(it, Mapping)] if isinstance(channels, list) else []
    return [name for name in named if isinstance(name, str)]


def _place(channel: str, link: DataLink) -> str:
    """Return the path of data below /opt/ml/input/data."""
    return f"{channel}/{link.address.name}" if link.is_file else channel


def _channel(name: str, address: S3Address, mode: str) -> Json:
    source = {"S3DataType": "S3Prefix", "S3Uri": str(address), "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}


def _overridden(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """Return ``below`` overridden by ``above``, at every level; Tags and InputDataConfig are concatenated."""
    merged: Json = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _overridden(merged[key], value)
        elif isinstance(value, list) and isinstance(merged.get(key), list) and key in ("Tags", "InputDataConfig"):
            merged[key] = [*value, *merged[key]]
        else:
            merged[key] = value
    return merged
