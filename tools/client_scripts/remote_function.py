"""A function with the decorator @remote of the SageMaker SDK v2 or v3, without a session argument."""

import json
import os
import sys
from pathlib import Path

try:
    from sagemaker.core.remote_function import CheckpointLocation, remote
except ImportError:  # v2
    from sagemaker.remote_function import CheckpointLocation, remote

request = json.loads(Path(sys.argv[1]).read_text())


@remote(
    image_uri=request["AlgorithmSpecification"]["TrainingImage"],
    role=request["RoleArn"],
    instance_type=request["ResourceConfig"]["InstanceType"],
    job_name_prefix=request["TrainingJobName"],
    s3_root_uri=request["OutputDataConfig"]["S3OutputPath"],
    tags=request["Tags"],
    # PATH leads to a Python with this SDK, as in an image on SageMaker.
    environment_variables={"PATH": os.environ["PATH"]},
)
def train(script: str, kept: "os.PathLike[str]") -> int:
    """Run the training script, and return the number of steps that it has stored."""
    exec(script, {})  # noqa: S102
    return int(Path(kept, "step").read_text())


steps = train(request["Environment"]["SCRIPT"], CheckpointLocation(request["CheckpointConfig"]["S3Uri"]))
assert steps > 3, steps
