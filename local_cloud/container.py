"""What one instance of a job finds: the folders of /opt/ml, its configuration files, its environment, its command."""

import json
import os
import shlex
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from local_cloud.jobs import InstanceGroup

OPT_ML = "/opt/ml"
DEFAULT_CHECKPOINTS = "/opt/ml/checkpoints"

_TOOLKIT_PREFIX = "sagemaker_"
_INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "USER")


@dataclass(frozen=True)
class Gang:
    """What the instances of one job have in common."""

    name: str
    arn: str
    request: Mapping[str, Any]
    groups: tuple[InstanceGroup, ...]
    folder: Path
    master_port: int
    mounted: bool
    """Whether a process sees its folder at /opt/ml; otherwise only its environment says where it is."""
    base_environment: Mapping[str, str]
    python_path: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """algo-1, algo-2, ..."""
        return [f"algo-{number}" for number in range(1, sum(group.count for group in self.groups) + 1)]

    @property
    def checkpoints(self) -> Path:
        """The checkpoint folder: one for all instances, as if S3 kept them the same at every moment."""
        return self.folder / "checkpoints"

    @property
    def checkpoint_path(self) -> str:
        """Where the script is told to write checkpoints, if paths are as in a container."""
        path: str = self.request.get("CheckpointConfig", {}).get("LocalPath") or DEFAULT_CHECKPOINTS
        return path.rstrip("/")

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """As the SDK encodes them: JSON, or else plain text."""
        return {key: _decode(value) for key, value in self.request.get("HyperParameters", {}).items()}

    @property
    def user_hyperparameters(self) -> dict[str, Any]:
        """Those meant for the script."""
        return {key: value for key, value in self.hyperparameters.items() if not key.startswith(_TOOLKIT_PREFIX)}

    @property
    def channels(self) -> list[dict[str, Any]]:
        """The input channels."""
        return list(self.request.get("InputDataConfig", []))

    @property
    def script(self) -> str | None:
        """The program of a script-mode job."""
        return self.hyperparameters.get("sagemaker_program")

    @property
    def entrypoint(self) -> list[str]:
        """ContainerEntrypoint and ContainerArguments, or nothing: an image's own program cannot be run here."""
        algorithm = self.request["AlgorithmSpecification"]
        if "ContainerEntrypoint" not in algorithm:
            return []
        return [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])]

    def group_of(self, host: str) -> InstanceGroup:
        """The group that a host belongs to."""
        number = self.hosts.index(host)
        for group in self.groups:
            if number < group.count:
                return group
            number -= group.count
        raise ValueError(host)

    def hosts_of(self, group: InstanceGroup) -> list[str]:
        """The hosts of a group."""
        return [host for host in self.hosts if self.group_of(host) == group]


class Instance:
    """One host of the gang; `root` is the folder that plays /opt/ml."""

    def __init__(self, gang: Gang, host: str) -> None:
        self.gang = gang
        self.host = host
        self.root = gang.folder / host
        self.output = gang.folder / f"{host}.log"
        self._visible = OPT_ML if gang.mounted else str(self.root)

    @property
    def shard(self) -> int:
        """Its place among the hosts, from 0."""
        return self.gang.hosts.index(self.host)

    def path(self, below: str) -> str:
        """A folder of /opt/ml, as the script sees it."""
        return f"{self._visible}/{below}"

    def prepare(self) -> None:
        """Make the folders and the configuration files."""
        self.gang.checkpoints.mkdir(exist_ok=True)
        self._temporary.mkdir(parents=True)
        self.output.touch()
        if self._checkpoints_inside:
            link = self.root / PurePosixPath(self.gang.checkpoint_path).relative_to(OPT_ML)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.gang.checkpoints)
        for folder in ("input/config", "input/data", "model", "output/data", "output/intermediate", "code"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        config = self.root / "input" / "config"
        _write(config / "hyperparameters.json", self.gang.request.get("HyperParameters", {}))
        _write(config / "resourceconfig.json", self._resource_config())
        _write(config / "inputdataconfig.json", self._input_data_config())
        hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
        self._hosts_file.write_text(hosts + f"\n127.0.0.1 {' '.join(self.gang.hosts)}\n")

    def unpack_code(self, archive: Path) -> None:
        """The user's sourcedir.tar.gz."""
        with tarfile.open(archive) as tar:
            tar.extractall(self.root / "code", filter="data")

    @property
    def stage(self) -> Path:
        """A folder for making mounts."""
        return self.gang.folder / f"{self.host}-stage"

    @property
    def mounts(self) -> list[tuple[Path, str]]:
        """What the process is to see elsewhere."""
        if not self.gang.mounted:
            return []
        mounts = [(self.root, OPT_ML), (self._hosts_file, "/etc/hosts")]
        if self._checkpoints_outside:
            mounts.append((self.gang.checkpoints, self.gang.checkpoint_path))
        return mounts

    @property
    def cwd(self) -> str:
        """Where the command runs."""
        return self.path("code")

    @property
    def command(self) -> list[str]:
        """What to run: the entrypoint as it is, or the script with its hyperparameters as arguments."""
        if self.gang.entrypoint:
            return self.gang.entrypoint
        assert self.gang.script is not None
        program = [sys.executable] if self.gang.script.endswith(".py") else ["/bin/sh"]
        return [*program, self.gang.script, *self._user_arguments()]

    def environment(self) -> dict[str, str]:
        """All variables of the process."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {
            "TMPDIR": str(self._temporary),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([self.path("code"), *self.gang.python_path]),
            "TRAINING_JOB_NAME": self.gang.name,
            "TRAINING_JOB_ARN": self.gang.arn,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.gang.master_port),
        }
        return inherited | dict(self.gang.base_environment) | own | self.gang.request.get("Environment", {}) | self._sm()

    @property
    def _temporary(self) -> Path:
        return self.gang.folder / f"{self.host}-tmp"

    @property
    def _hosts_file(self) -> Path:
        return self.gang.folder / "hosts"

    @property
    def _checkpoints_inside(self) -> bool:
        return PurePosixPath(self.gang.checkpoint_path).is_relative_to(OPT_ML)

    @property
    def _checkpoints_outside(self) -> bool:
        """Whether the checkpoint folder is to appear somewhere outside /opt/ml, and can."""
        path = Path(self.gang.checkpoint_path)
        # A new folder in / cannot be shown without changing the machine's own.
        return not self._checkpoints_inside and (path.is_dir() or len(path.parts) > 2 and Path(*path.parts[:2]).is_dir())

    def _checkpoint_directory(self) -> str:
        if self._checkpoints_inside:
            return self.path(str(PurePosixPath(self.gang.checkpoint_path).relative_to(OPT_ML)))
        if self.gang.mounted and self._checkpoints_outside:
            return self.gang.checkpoint_path
        return str(self.gang.checkpoints)

    def _user_arguments(self) -> list[str]:
        arguments = []
        for name, value in sorted(self.gang.user_hyperparameters.items()):
            if isinstance(value, dict):
                text = ",".join(f"{key}={item}" for key, item in sorted(value.items()))
            else:
                text = str(value)
            arguments += [f"--{name}" if len(name) > 1 else f"-{name}", text]
        return arguments

    def _resource_config(self) -> dict[str, Any]:
        group = self.gang.group_of(self.host)
        return {
            "current_host": self.host,
            "current_instance_type": group.instance_type,
            "current_group_name": group.name,
            "hosts": self.gang.hosts,
            "instance_groups": [
                {
                    "instance_group_name": each.name,
                    "instance_type": each.instance_type,
                    "hosts": self.gang.hosts_of(each),
                }
                for each in self.gang.groups
            ],
            "network_interface_name": "lo",
        }

    def _input_data_config(self) -> dict[str, Any]:
        mode = self.gang.request["AlgorithmSpecification"]["TrainingInputMode"]
        return {
            channel["ChannelName"]: {
                "TrainingInputMode": channel.get("InputMode", mode),
                "S3DistributionType": channel["DataSource"]["S3DataSource"].get(
                    "S3DataDistributionType", "FullyReplicated"
                ),
                "RecordWrapperType": channel.get("RecordWrapperType", "None"),
            }
            | ({"ContentType": channel["ContentType"]} if "ContentType" in channel else {})
            for channel in self.gang.channels
        }

    def _sm(self) -> dict[str, str]:
        """The SM_* variables as SageMaker's training toolkit sets them; values that are no text are JSON."""
        resources = self._resource_config()
        script = self.gang.script or ""
        values: dict[str, Any] = {
            "hosts": self.gang.hosts,
            "current_host": self.host,
            "current_instance_type": resources["current_instance_type"],
            "current_instance_group": resources["current_group_name"],
            "network_interface_name": "lo",
            "resource_config": resources,
            "input_data_config": self._input_data_config(),
            "hps": self.gang.user_hyperparameters,
            "user_args": self._user_arguments(),
            "user_entry_point": script,
            "module_name": script.removesuffix(".py"),
            "module_dir": self.gang.hyperparameters.get("sagemaker_submit_directory", self.path("code")),
            "log_level": self.gang.hyperparameters.get("sagemaker_container_log_level", 20),
            "framework_params": {
                key: value for key, value in self.gang.hyperparameters.items() if key.startswith(_TOOLKIT_PREFIX)
            },
            "num_cpus": os.cpu_count() or 1,
            "num_gpus": 0,
            "model_dir": self.path("model"),
            "input_dir": self.path("input"),
            "input_config_dir": self.path("input/config"),
            "output_dir": self.path("output"),
            "output_data_dir": self.path("output/data"),
            "output_intermediate_dir": self.path("output/intermediate"),
            "checkpoint_dir": self._checkpoint_directory(),
            "channels": sorted(channel["ChannelName"] for channel in self.gang.channels),
        }
        values["training_env"] = dict(values) | {"job_name": self.gang.name}
        for channel in self.gang.channels:
            values[f"channel_{channel['ChannelName']}"] = self.path(f"input/data/{channel['ChannelName']}")
        for name, value in self.gang.user_hyperparameters.items():
            values[f"hp_{name}"] = value
        return {f"SM_{name.upper()}": _text(value) for name, value in values.items()}


def python_wrappers(folder: Path) -> Path:
    """A folder to be first on PATH, in which `python` and `python3` are the interpreter that runs this."""
    folder.mkdir(parents=True)
    for name in ("python", "python3"):
        wrapper = folder / name
        # Not a link: a virtual environment is found by the path with which its Python is called.
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        wrapper.chmod(0o755)
    return folder


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
