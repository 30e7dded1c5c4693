"""The environment of one instance: the folders of /opt/ml, configuration files, variables and the command."""

import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.container import image, toolkit

OPT_ML = "/opt/ml"

_INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "USER")
_LONGEST_VARIABLE = 128 * 1024  # bytes with name and final NUL; Linux starts no program with a longer variable
_FOLDERS = ("input/config", "input/data", "model", "output/data", "output/intermediate", "code")
# Python before 3.11.4 (3.11.2 in Debian 12) cannot check archives. The check may be skipped for the user's own archive.
MEMBER_CHECK: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class Instance:
    """One host of the cluster. The folder `root` appears as /opt/ml in the container."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.cluster = cluster
        self.host = host
        self.root = cluster.folder / host
        self.output = cluster.folder / f"{host}.log"
        self.source = cluster.folder / f"{host}-source"
        """The folder of the user's code, until the image's program `train` copies it to /opt/ml/code."""
        self.checkpoints = cluster.folder / f"{host}-checkpoints"
        self.stage = cluster.folder / f"{host}-stage"
        """A working folder in which launch.py prepares the mounts."""
        self._temporary = cluster.folder / f"{host}-tmp"
        self._hosts_file = cluster.folder / "hosts"
        self._python = cluster.folder / f"{host}-python"
        self._visible = OPT_ML if cluster.mounted else str(self.root)

    @property
    def shard(self) -> int:
        """The index of the host in the cluster, from 0."""
        return self.cluster.hosts.index(self.host)

    @property
    def cwd(self) -> str:
        """The working directory of the command."""
        return self.path("code")

    def path(self, below: str) -> str:
        """Return the path of a folder below /opt/ml, as the script sees it."""
        return f"{self._visible}/{below}"

    def prepare(self) -> None:
        """Create the folders, the configuration files and the output file, which begins with notes on limitations."""
        self.checkpoints.mkdir(parents=True)
        self._temporary.mkdir(parents=True)
        if self._checkpoints_inside:
            link = self.root / PurePosixPath(self.cluster.checkpoint_path).relative_to(OPT_ML)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.checkpoints)
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        config = self.root / "input" / "config"
        _write(config / "hyperparameters.json", self.cluster.request.get("HyperParameters", {}))
        _write(config / "resourceconfig.json", toolkit.resource_config(self.cluster, self.host))
        _write(config / "inputdataconfig.json", toolkit.input_data_config(self.cluster))
        if self.cluster.entrypoint:
            image.create_python(self._python)
        hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
        self._hosts_file.write_text(f"{hosts}\n127.0.0.1 {' '.join(self.cluster.hosts)}\n")
        self.output.write_text("".join(f"[local cloud] {line}\n" for line in self._limits()))

    def unpack_code(self, archive: Path) -> None:
        """Unpack the user's sourcedir.tar.gz for the image's `train`. Raise tarfile.TarError or OSError."""
        with tarfile.open(archive) as tar:
            tar.extractall(self.source, **MEMBER_CHECK)  # noqa: S202
        image.write_train_script(self.cluster.folder, self.host, self.source, self.cwd, self.script)

    @property
    def mounts(self) -> list[tuple[Path, str]]:
        """The folders and files to show to the process at other paths: pairs of source and target."""
        if not self.cluster.mounted:
            return []
        mounts = [(self.root, OPT_ML), (self._hosts_file, "/etc/hosts")]
        if self._checkpoints_mounted:
            mounts.append((self.checkpoints, self.cluster.checkpoint_path))
        return mounts

    @property
    def command(self) -> list[str]:
        """The command of the container's first process: the request's entrypoint, or that of SageMaker's own images."""
        return self.cluster.entrypoint or list(image.ENTRYPOINT)

    @property
    def script(self) -> list[str]:
        """The command that runs the script, with its hyperparameters as arguments."""
        script = self.cluster.script or ""
        interpreter = sys.executable if script.endswith(".py") else "/bin/sh"
        return [interpreter, script, *toolkit.user_arguments(self.cluster)]

    def environment(self) -> dict[str, str]:
        """Return all environment variables of the process.

        If names are equal, the toolkit's variables take precedence, then the request's, then the emulator's.
        """
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {
            "TMPDIR": str(self._temporary),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([self.path("code"), *self.cluster.python_path]),
            "TRAINING_JOB_NAME": self.cluster.name,
            "TRAINING_JOB_ARN": self.cluster.arn,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.cluster.master_port),
        }
        if self.cluster.entrypoint:
            own["PATH"] = os.pathsep.join([str(self._python / "bin"), self.cluster.base_environment["PATH"]])
        requested: dict[str, str] = self.cluster.request.get("Environment", {})
        toolkits = {name: value for name, value in self._toolkit.items() if _fits(name, value)}
        return inherited | dict(self.cluster.base_environment) | own | requested | toolkits

    @property
    def _toolkit(self) -> dict[str, str]:
        return toolkit.variables(self.cluster, self.host, self.path, self._checkpoint_directory)

    @property
    def _checkpoints_inside(self) -> bool:
        return PurePosixPath(self.cluster.checkpoint_path).is_relative_to(OPT_ML)

    @property
    def _checkpoints_mounted(self) -> bool:
        """Whether the checkpoint folder is mounted outside /opt/ml."""
        return self.cluster.mounted and not self._checkpoints_inside

    @property
    def _checkpoint_directory(self) -> str:
        """The path of the checkpoint folder, as the script sees it."""
        if self._checkpoints_inside:
            return self.path(str(PurePosixPath(self.cluster.checkpoint_path).relative_to(OPT_ML)))
        return self.cluster.checkpoint_path if self._checkpoints_mounted else str(self.checkpoints)

    def _limits(self) -> Iterator[str]:
        """Yield a sentence for each feature of AWS's containers that the script lacks here."""
        if not self.cluster.mounted:
            yield f"{OPT_ML} cannot be shown on this machine: use the SM_* variables, such as SM_CHECKPOINT_DIR"
        if not self._checkpoints_inside and not self._checkpoints_mounted:
            path = self.cluster.checkpoint_path
            yield f"{path} cannot be shown on this machine: write checkpoints to SM_CHECKPOINT_DIR"
        if any(name.endswith("_enabled") and value is True for name, value in self.cluster.hyperparameters.items()):
            yield "launchers of distributed training are not emulated: the script runs once on each instance"
        if left_out := [name for name, value in self._toolkit.items() if not _fits(name, value)]:
            path = self.path("input/config/hyperparameters.json")
            yield f"too long for the environment of a process: {', '.join(left_out)}; {path} has all hyperparameters"


def _fits(name: str, value: str) -> bool:
    return len(os.fsencode(f"{name}={value}")) < _LONGEST_VARIABLE


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
