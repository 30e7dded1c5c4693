"""What SageMaker's training toolkit makes of a request: the script's arguments, SM_* variables, configuration files."""

import json
import os
from collections.abc import Callable
from typing import Any

from local_cloud.gang import TOOLKIT_PREFIX, Gang


def user_arguments(gang: Gang) -> list[str]:
    """The user's hyperparameters as command-line arguments, in the order of their names."""
    arguments = []
    for name, value in sorted(gang.user_hyperparameters.items()):
        if isinstance(value, dict):
            text = ",".join(f"{key}={item}" for key, item in sorted(value.items()))
        else:
            text = str(value)
        arguments += [f"--{name}" if len(name) > 1 else f"-{name}", text]
    return arguments


def resource_config(gang: Gang, host: str) -> dict[str, Any]:
    """input/config/resourceconfig.json of one host."""
    group = gang.group_of(host)
    return {
        "current_host": host,
        "current_instance_type": group.instance_type,
        "current_group_name": group.name,
        "hosts": gang.hosts,
        "instance_groups": [
            {"instance_group_name": each.name, "instance_type": each.instance_type, "hosts": gang.hosts_of(each)}
            for each in gang.groups
        ],
        "network_interface_name": "lo",
    }


def input_data_config(gang: Gang) -> dict[str, Any]:
    """input/config/inputdataconfig.json."""
    mode = gang.request["AlgorithmSpecification"]["TrainingInputMode"]
    config = {}
    for channel in gang.channels:
        source = channel["DataSource"]["S3DataSource"]
        config[channel["ChannelName"]] = {
            "TrainingInputMode": channel.get("InputMode", mode),
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        if "ContentType" in channel:
            config[channel["ChannelName"]]["ContentType"] = channel["ContentType"]
    return config


def variables(gang: Gang, host: str, path: Callable[[str], str], checkpoints: str) -> dict[str, str]:
    """The SM_* variables of one host; values that are no text are JSON.

    `path` gives a folder of /opt/ml as the script sees it; `checkpoints` is where the script writes them.
    """
    resources = resource_config(gang, host)
    script = gang.script or ""
    channels = [channel["ChannelName"] for channel in gang.channels]
    values: dict[str, Any] = {
        "hosts": gang.hosts,
        "current_host": host,
        "current_instance_type": resources["current_instance_type"],
        "current_instance_group": resources["current_group_name"],
        "network_interface_name": "lo",
        "resource_config": resources,
        "input_data_config": input_data_config(gang),
        "hps": gang.user_hyperparameters,
        "user_args": user_arguments(gang),
        "user_entry_point": script,
        "module_name": script.removesuffix(".py"),
        "module_dir": gang.hyperparameters.get("sagemaker_submit_directory", path("code")),
        "log_level": gang.hyperparameters.get("sagemaker_container_log_level", 20),
        "framework_params": {k: v for k, v in gang.hyperparameters.items() if k.startswith(TOOLKIT_PREFIX)},
        "num_cpus": os.cpu_count() or 1,
        "num_gpus": 0,
        "model_dir": path("model"),
        "input_dir": path("input"),
        "input_config_dir": path("input/config"),
        "output_dir": path("output"),
        "output_data_dir": path("output/data"),
        "output_intermediate_dir": path("output/intermediate"),
        "checkpoint_dir": checkpoints,
        "channels": sorted(channels),
    }
    values["training_env"] = values | {"job_name": gang.name}
    values |= {f"channel_{name}": path(f"input/data/{name}") for name in channels}
    values |= {f"hp_{name}": value for name, value in gang.user_hyperparameters.items()}
    return {f"SM_{name.upper()}": _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
