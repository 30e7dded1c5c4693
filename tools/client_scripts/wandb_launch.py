"""A run of Weights & Biases Launch on SageMaker, started as by its agent, but without a server."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from wandb.sdk.launch._project_spec import LaunchProject
from wandb.sdk.launch.environment.aws_environment import AwsEnvironment
from wandb.sdk.launch.loader import registry_from_config, runner_from_config

request = json.loads(Path(sys.argv[1]).read_text())
image = request["AlgorithmSpecification"]["TrainingImage"]


async def main() -> None:
    """Launch the run, and wait for its end like the agent."""
    # A stand-in for the client of W&B's server, with only the attributes that the runner uses.
    api: Any = SimpleNamespace(settings={"base_url": "https://api.wandb.ai"}, api_key="0" * 40)
    item = {
        "entity": "us",
        "project": "models",
        "docker": {"docker_image": image},
        "resource": "sagemaker",
        "resource_args": {"sagemaker": request},
    }
    environment = AwsEnvironment.from_default()
    registry = registry_from_config(None, environment)
    runner = runner_from_config("sagemaker", api, {"SYNCHRONOUS": False}, environment, registry)
    run = await runner.run(LaunchProject.from_spec(item, api), image)
    assert await run.wait(), await run.get_status()
    log = await run.get_logs()
    assert ":step 1" in log and ":step 4" in log, log


asyncio.run(main())
