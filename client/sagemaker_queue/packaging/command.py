"""The CreateTrainingJob request of ``smq submit``, which runs a command by ``container/run.py``.

The image needs sh and Python.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sagemaker_queue.data_links import S3Address
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import did_you_mean

Json = dict[str, Any]

CODE_CHANNEL = "code"
LAUNCHERS = ("torchrun", "mpirun")
LONGEST_NAME = 63
_LONGEST_VALUE = 2500  # characters of a hyperparameter's value
_CHANNELS = 20  # SageMaker's limit on input channels
_LONGEST_CHANNEL = 64
# {data:NAME} is a path, {{data:NAME}} is an escaped {data:NAME}, and ${data:...} belongs to the shell; also in run.py.
PLACEHOLDER = re.compile(r"\{\{data:([^{}]+)\}\}|(?<!\$)\{data:([^{}]+)\}")

# The program compares run.py with the digest in the request, and runs the bytes that it has compared. Where there is
# no /opt/ml, the local cloud names the channel's folder in SM_CHANNEL_CODE. SageMaker allows 256 characters in an
# argument, and no line feed. -I: no file beside run.py and no environment variable can replace a module of Python.
_SHELL = 'exec "$(command -v python3 || command -v python)" -I -c "$1$2$3" "$4"'
_VERIFY = (
    'import hashlib,os,sys;d=os.environ.get("SM_CHANNEL_CODE") or "/opt/ml/input/data/code";f=d+"/run.py";'
    'b=open(f,"rb").read();m="run.py is not what was submitted: somebody has changed it in S3. It is not run.";'
    'hashlib.sha256(b).hexdigest()==sys.argv[1] or [print("[smq]",m,flush=True),'
    'open(d.rsplit("/",3)[0]+"/output/failure","w").write(m),sys.exit(1)];'  # SageMaker's FailureReason
    'exec(compile(b,f,"exec"),{"__name__":"__main__","__file__":f})'
)
_PIECES = 3  # $1 to $3


def entry_point(program: str) -> list[str]:
    """Return the container entry point that runs run.py only if its SHA-256 is ``program``."""
    length = -(-len(_VERIFY) // _PIECES)
    pieces = [_VERIFY[start : start + length] for start in range(0, len(_VERIFY), length)]
    return ["/bin/sh", "-c", _SHELL, "smq", *pieces, program]


@dataclass(frozen=True)
class DataLink:
    """Data in S3 that is visible at a path in the working folder."""

    path: str
    address: S3Address
    is_file: bool = False
    mode: str = "File"  # or FastFile: streamed from S3 when it is read


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
    source: str  # SHA-256 of the code, unzipped, and its size
    output: S3Address
    instances: int = 1
    sizes: tuple[int, ...] = ()  # numbers of instances that the job accepts, best first; empty: only `instances`
    volume: int = 30  # GB
    max_run: int = 86_400  # seconds
    data: tuple[DataLink, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    checkpoints: S3Address | None = None  # exactly this folder
    checkpoint_home: S3Address | None = None  # the folder in which the job gets its own checkpoint folder
    launcher: str | None = None
    processes: int | None = None  # on each instance; None: one per accelerator
    interactive: bool = False  # users may open shells in it
    idle_end: int | None = None  # seconds without a shell after which the job ends; set only if there is no command
    more: Mapping[str, Any] = field(default_factory=dict)  # further request fields; the attributes above override them

    def request(self) -> Json:
        """Return the CreateTrainingJob request. Raises InvalidOption if there is no request for it."""
        channels = self._channels()
        places = self._places(channels)
        paths = {link.path: _place(name, link) for name, link in channels.items()}
        settings = {
            **_in_pieces("command", json.dumps(self.command)),
            **(_in_pieces("data", json.dumps(paths)) if paths else {}),
            **({} if places is None else _in_pieces("places", json.dumps(places))),
            "source": self.source,
            **({"launcher": self.launcher} if self.launcher else {}),
            **({"processes": str(self.processes)} if self.processes else {}),
            **({"idle_end": str(self.idle_end)} if self.idle_end else {}),
        }
        tags = {**({"instances": " ".join(map(str, self.sizes))} if self.sizes else {}), **self.tags}
        checkpoints = self.checkpoints
        if self.checkpoint_home and not checkpoints:
            # The digest in the name keeps checkpoints apart from those of an earlier job of the same name.
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
                "InstanceCount": self.instances,
                "VolumeSizeInGB": self.volume,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": self.max_run},
            **({"CheckpointConfig": {"S3Uri": str(checkpoints)}} if checkpoints else {}),
            **({"RemoteDebugConfig": {"EnableRemoteDebug": True}} if self.interactive else {}),
            **({"Environment": dict(self.env)} if self.env else {}),
            **({"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}),
        }
        return _overridden(self.more, request)

    def _places(self, channels: Mapping[str, DataLink]) -> dict[str, str] | None:
        """Return name -> path below /opt/ml/input/data for each {data:NAME} of the command; None without any."""
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
                meant = did_you_mean(name, known)
                raise InvalidOption(
                    f"The command has {{data:{name}}}, but the job has no data of that name.{meant} "
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


def resubmission(
    request: Mapping[str, Any],
    name: str,
    *,
    priority: int | None = None,
    after: Sequence[str] = (),
    resume: bool = False,
) -> Json:
    """Return a copy of a request under another name; unless ``resume``, with a checkpoint folder of its own."""
    again = {**request, "TrainingJobName": name}
    if "CheckpointConfig" in request and not resume:
        kept = S3Address.parse(request["CheckpointConfig"]["S3Uri"])
        again["CheckpointConfig"] = {**request["CheckpointConfig"], "S3Uri": str(_sibling_folder(kept, request, name))}
    named = {"priority": None if priority is None else str(priority), "after": " ".join(after) or None}
    changes = {key: value for key, value in named.items() if value is not None}
    if changes:
        others = [tag for tag in request.get("Tags", []) if tag["Key"] not in changes]
        again["Tags"] = [*others, *({"Key": key, "Value": value} for key, value in changes.items())]
    return again


def next_name(name: str) -> str:
    """Return the name of the next resubmission: ``job-r2`` for ``job``, ``job-r3`` for ``job-r2``."""
    again = re.fullmatch(r"(.+)-r([1-9][0-9]{0,3})", name)
    base, number = (again[1], int(again[2]) + 1) if again else (name, 2)
    return f"{base[: LONGEST_NAME - len(f'-r{number}')].rstrip('-')}-r{number}"


def _sibling_folder(folder: S3Address, request: Mapping[str, Any], name: str) -> S3Address:
    """Return a folder beside the given one, so that two jobs never share a checkpoint folder."""
    key, old = folder.key.rstrip("/"), request["TrainingJobName"]
    parts = [name if part == old else part for part in key.split("/")]
    return replace(folder, key="/".join(parts) if old in key.split("/") else f"{key}-{name}")


def _channel_names(request: Mapping[str, Any]) -> list[str]:
    """Return the channel names in a part of a request that has not been validated."""
    channels = request.get("InputDataConfig")
    named = [it.get("ChannelName") for it in channels if isinstance(it, Mapping)] if isinstance(channels, list) else []
    return [name for name in named if isinstance(name, str)]


def _place(channel: str, link: DataLink) -> str:
    """Return the path of data below /opt/ml/input/data."""
    return f"{channel}/{link.address.name}" if link.is_file else channel


def _channel(name: str, address: S3Address, mode: str) -> Json:
    source = {"S3DataType": "S3Prefix", "S3Uri": str(address), "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}


def _in_pieces(name: str, text: str) -> dict[str, str]:
    """Split a long text into several hyperparameters: name, name_2, name_3."""
    pieces = [text[start : start + _LONGEST_VALUE] for start in range(0, len(text), _LONGEST_VALUE)]
    return {name if number == 1 else f"{name}_{number}": piece for number, piece in enumerate(pieces, start=1)}


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
