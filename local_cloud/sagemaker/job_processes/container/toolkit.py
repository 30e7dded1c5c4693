"""SageMaker's training toolkit: the script's arguments, SM_* variables and configuration files for a request."""

import json
import os
from collections.abc import Callable
from typing import Any

from local_cloud.sagemaker.job_processes.cluster import TOOLKIT_PREFIX, Cluster


def user_arguments(cluster: Cluster) -> list[str]:
    """Return the user's hyperparameters as command-line arguments, in the order of their names."""
    arguments = []
    for name, value in sorted(cluster.user_hyperparameters.items()):
        if isinstance(value, dict):
            text = ",".join(f"{key}={item}" for key, item in sorted(value.items()))
        else:
            text = str(value)
        arguments += [f"--{name}" if len(name) > 1 else f"-{name}", text]
    return arguments


def resource_config(cluster: Cluster, host: str) -> dict[str, Any]:
    """Return the content of input/config/resourceconfig.json for one host."""
    group = cluster.group_of(host)
    return {
        "current_host": host,
        "current_instance_type": group.instance_type,
        "current_group_name": group.name,
        "hosts": cluster.hosts,
        "instance_groups": [
            {"instance_group_name": group.name, "instance_type": group.instance_type, "hosts": cluster.hosts_of(group)}
            for group in cluster.groups
        ],
        "network_interface_name": "lo",
    }


def input_data_config(cluster: Cluster) -> dict[str, Any]:
    """Return the content of input/config/inputdataconfig.json."""
    mode = cluster.request["AlgorithmSpecification"]["TrainingInputMode"]
    config = {}
    for channel in cluster.channels:
        source = channel["DataSource"]["S3DataSource"]
        config[channel["ChannelName"]] = {
            "TrainingInputMode": channel.get("InputMode", mode),
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        if "ContentType" in channel:
            config[channel["ChannelName"]]["ContentType"] = channel["ContentType"]
    return config


def variables(cluster: Cluster, host: str, path: Callable[[str], str], checkpoints: str) -> dict[str, str]:
    """Return the SM_* variables of one host. Values that are not strings are encoded as JSON.

    :param path: a function that returns the path of a folder below /opt/ml, as the script sees it.
    :param checkpoints: the path of the checkpoint folder, as the script sees it.
    """
    resources = resource_config(cluster, host)
    script = cluster.script or ""
    channels = [channel["ChannelName"] for channel in cluster.channels]
    values: dict[str, Any] = {
        "hosts": cluster.hosts,
        "current_host": host,
        "current_instance_type": resources["current_instance_type"],
        "current_instance_group": resources["current_group_name"],
        "network_interface_name": "lo",
        "resource_config": resources,
        "input_data_config": input_data_config(cluster),
        "hps": cluster.user_hyperparameters,
        "user_args": user_arguments(cluster),
        "user_entry_point": script,
        "module_name": script.removesuffix(".py"),
        "module_dir": cluster.hyperparameters.get("sagemaker_submit_directory", path("code")),
        "log_level": cluster.hyperparameters.get("sagemaker_container_log_level", 20),
        "framework_params": {k: v for k, v in cluster.hyperparameters.items() if k.startswith(TOOLKIT_PREFIX)},
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
    values["training_env"] = values | {"job_name": cluster.name}
    values |= {f"channel_{name}": path(f"input/data/{name}") for name in channels}
    values |= {f"hp_{name}": value for name, value in cluster.user_hyperparameters.items()}
    return {f"SM_{name.upper()}": _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
