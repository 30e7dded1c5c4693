"""A member's own tree in place of /opt/ml, and the member's command and variables adapted to this tree.

The members of a carrier cannot share one /opt/ml. So each member has a tree below the carrier's /opt/ml, and the
member's SM_* variables name this tree. If a word of the command or the value of a requested variable begins with
`/opt/ml`, the path of the tree replaces this beginning. Paths in the member's code are not replaced.
"""

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional

from .files import Directory, Parts, allocated, remove
from .pace import Pace

OPT_ML = "/opt/ml"
HOST = "algo-1"
CARRIER_VARIABLES = ("SM_", "TRAINING_JOB_", "SAGEMAKER_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")

Json = Dict[str, Any]


class Folders:
    """The tree of one member.

    :param root: the path of the tree, which does not exist yet.
    :param request: the fields of CreateTrainingJob, as the queue accepted them.
    """

    def __init__(self, root: Path, request: Json, attempt: str) -> None:
        self.root = root
        self._request, self._attempt = request, attempt
        self.channels = {
            str(it["ChannelName"]): root / "input" / "data" / str(it["ChannelName"])
            for it in request.get("InputDataConfig") or []
        }
        local = PurePosixPath((request.get("CheckpointConfig") or {}).get("LocalPath") or f"{OPT_ML}/checkpoints")
        inside = local.is_absolute() and PurePosixPath(OPT_ML) in local.parents and ".." not in local.parts
        self.checkpoints = root / (local.relative_to(OPT_ML) if inside else PurePosixPath("checkpoints"))
        self.model, self.output = root / "model", root / "output"
        self.failure = self.output / "failure"
        for name in self.channels:
            if "/" in name or name in (".", ".."):
                raise ValueError("a ChannelName of InputDataConfig is no name of a folder")
        self._parent: Optional[Directory] = None
        self._opened: Optional[Directory] = None

    @property
    def opened(self) -> Directory:
        """The tree that `make` created, as an open directory. A link that replaces the tree later is not followed."""
        if self._opened is None:
            raise ValueError("the folders are not made")
        return self._opened

    def parts(self, path: Path) -> Parts:
        """Return the names of a path of this tree, below its root."""
        return path.relative_to(self.root).parts

    def make(self) -> None:
        """Create the folders and the configuration files; raise OSError if the tree exists already."""
        os.mkdir(self.root.name, 0o777, dir_fd=self._members().fd)
        self._opened = self._members().below((self.root.name,))
        for folder in (self.model, self.output / "data", self.checkpoints, self.home, self.temporary):
            self.opened.below(self.parts(folder), make=True)
        instance_type = (self._request.get("ResourceConfig") or {}).get("InstanceType", "")
        resources = {
            "current_host": HOST,
            "current_instance_type": instance_type,
            "current_group_name": "homogeneousCluster",
            "hosts": [HOST],
            "network_interface_name": "eth0",
        }
        mode = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
        contents = {
            "hyperparameters": self._request.get("HyperParameters") or {},
            "resourceconfig": resources,
            "inputdataconfig": dict.fromkeys(self.channels, mode),
        }
        for name, content in contents.items():
            self.opened.write(("input", "config", f"{name}.json"), json.dumps(content).encode())

    @property
    def home(self) -> Path:
        """The member's HOME."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """The member's TMPDIR."""
        return self.root / "tmp"

    def command(self) -> List[str]:
        """Return the command: entry point and arguments, with /opt/ml replaced."""
        algorithm = self._request.get("AlgorithmSpecification") or {}
        words = [*(algorithm.get("ContainerEntrypoint") or []), *(algorithm.get("ContainerArguments") or [])]
        return [self._relocated(str(word)) for word in words]

    def environment(self, inherited: Mapping[str, str]) -> Dict[str, str]:
        """Return the member's variables, without variables for GPUs. Variables of the request replace all others.

        :param inherited: the carrier's variables.
        """
        kept = {name: value for name, value in inherited.items() if not name.startswith(CARRIER_VARIABLES)}
        requested = {
            str(name): self._relocated(str(value)) for name, value in (self._request.get("Environment") or {}).items()
        }
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PYTHONUNBUFFERED": "1",
            "TRAINING_JOB_NAME": self._attempt,
            "SM_MODEL_DIR": str(self.model),
            "SM_OUTPUT_DIR": str(self.output),
            "SM_OUTPUT_DATA_DIR": str(self.output / "data"),
            "SM_INPUT_DIR": str(self.root / "input"),
            "SM_INPUT_CONFIG_DIR": str(self.root / "input" / "config"),
            "SM_CHECKPOINT_DIR": str(self.checkpoints),
            "SM_HOSTS": json.dumps([HOST]),
            "SM_CURRENT_HOST": HOST,
            "SM_CHANNELS": json.dumps(sorted(self.channels)),
            "SM_HPS": json.dumps(self._request.get("HyperParameters") or {}),
        }
        channels = {f"SM_CHANNEL_{name.upper()}": str(path) for name, path in self.channels.items()}
        return {**kept, **own, **channels, **requested}

    def used(self, most: int) -> int:
        """Return the tree's bytes on the disk; raise LimitExceeded for more than `most` bytes, or too many files."""
        return allocated(self.opened, most)

    def failed_with(self, count: int) -> str:
        """Return the first `count` characters of `output/failure`; an empty text if there is no such regular file."""
        try:
            content = self.opened.open_file(self.parts(self.failure)).head(count * 4)
        except OSError:
            return ""
        return content.decode("utf-8", "replace").strip()[:count]

    def remove(self, pace: Pace) -> None:
        """Remove the tree; raise LimitExceeded if the time for that is over."""
        remove(self._members(), self.root.name, pace.check)

    def _members(self) -> Directory:
        """Return the folder of all members' trees, which the first call creates and opens."""
        if self._parent is None:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self._parent = Directory.at(str(self.root.parent))
        return self._parent

    def _relocated(self, text: str) -> str:
        return str(self.root) + text[len(OPT_ML) :] if text == OPT_ML or text.startswith(OPT_ML + "/") else text
