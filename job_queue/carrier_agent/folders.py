"""A member's own /opt/ml, below the carrier's, and what it is told of it.

Two members cannot both have /opt/ml. A member's tree is told by the SM_* variables, and `/opt/ml` at the beginning of
a word of its command, or of a variable's value, becomes its tree. A path that is written in its code does not.
"""

import json
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping

OPT_ML = "/opt/ml"
HOST = "algo-1"
OF_THE_CARRIER = ("SM_", "TRAINING_JOB_", "SAGEMAKER_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")

Json = Dict[str, Any]


class Folders:
    """The tree of one member.

    :param root: where it is; nothing is there yet.
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
                raise ValueError(f"{name!r} is no name of a channel")

    def make(self) -> None:
        """Make the folders and the files of configuration."""
        for folder in (self.model, self.output / "data", self.checkpoints, self.home, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        config = self.root / "input" / "config"
        config.mkdir(parents=True, exist_ok=True)
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
            (config / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    @property
    def home(self) -> Path:
        """Its HOME."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """Its TMPDIR."""
        return self.root / "tmp"

    def command(self) -> List[str]:
        """What runs."""
        algorithm = self._request.get("AlgorithmSpecification") or {}
        words = [*(algorithm.get("ContainerEntrypoint") or []), *(algorithm.get("ContainerArguments") or [])]
        return [self._moved(str(word)) for word in words]

    def environment(self, inherited: Mapping[str, str]) -> Dict[str, str]:
        """All variables, those of its GPUs apart."""
        kept = {name: value for name, value in inherited.items() if not name.startswith(OF_THE_CARRIER)}
        asked = {str(name): self._moved(str(value)) for name, value in (self._request.get("Environment") or {}).items()}
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
        return {**kept, **own, **channels, **asked}

    def used(self) -> int:
        """Bytes on the disk."""
        total = 0
        for folder, _, files in os.walk(str(self.root)):
            for name in files:
                try:
                    status = Path(folder, name).lstat()
                except OSError:
                    continue
                total += min(status.st_size, status.st_blocks * 512) if status.st_nlink else 0
        return total

    def remove(self) -> None:
        """Nothing of it stays."""
        shutil.rmtree(str(self.root), ignore_errors=True)

    def _moved(self, text: str) -> str:
        return str(self.root) + text[len(OPT_ML) :] if text == OPT_ML or text.startswith(OPT_ML + "/") else text
