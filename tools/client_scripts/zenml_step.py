"""A pipeline of ZenML with one step. ZenML's SageMaker step operator runs the step, with a service connector's key."""

import json
import os
import sys
from pathlib import Path

from zenml import pipeline
from zenml.client import Client
from zenml.config import DockerSettings
from zenml.integrations.aws.flavors.sagemaker_step_operator_flavor import SagemakerStepOperatorSettings
from zenml.steps import CommandStep

request = json.loads(Path(sys.argv[1]).read_text())
registry, image = request["AlgorithmSpecification"]["TrainingImage"].split("/")
client = Client()
connector = client.create_service_connector(
    name="aws",
    connector_type="aws",
    auth_method="secret-key",
    configuration={
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "region": os.environ["AWS_REGION"],
    },
    verify=False,
)[0]
components = {
    "orchestrator": ("local", {}),
    "artifact_store": ("s3", {"path": "s3://clients/zenml"}),
    "container_registry": ("default", {"uri": registry}),
    "image_builder": ("local", {}),
    "step_operator": ("sagemaker", {"role": request["RoleArn"], "bucket": "clients"}),
}
for kind, (flavor, configuration) in components.items():
    client.create_stack_component(name="ours", flavor=flavor, component_type=kind, configuration=configuration)
client.update_stack_component("ours", "step_operator", connector_id=connector.id)
client.create_stack("ours", dict.fromkeys(components, "ours"))
client.activate_stack("ours")

script = request["Environment"]["SCRIPT"]
# A variable has at most 512 characters, so the script is sent in four parts. A script above 2,000 characters is cut.
parts = {f"PART{number}": script[number * 500 :][:500] for number in range(4)}
step = CommandStep(
    name="train",
    command=[
        "python",
        "-c",
        "import os; exec(''.join(os.environ.get(f'PART{number}', '') for number in range(4)))",
    ],
    step_operator="ours",
    settings={
        "docker": DockerSettings(parent_image=f"{registry}/{image}", skip_build=True),
        "step_operator": SagemakerStepOperatorSettings(
            estimator_args={
                "instance_type": request["ResourceConfig"]["InstanceType"],
                "output_path": request["OutputDataConfig"]["S3OutputPath"],
                "checkpoint_s3_uri": request["CheckpointConfig"]["S3Uri"],
                "tags": request["Tags"],
            },
            environment={name: part for name, part in parts.items() if part},
        ),
    },
)


@pipeline(name=request["TrainingJobName"], enable_cache=False)
def train() -> None:
    """Run the only step of the pipeline."""
    step()


assert str(train().status) == "completed"
