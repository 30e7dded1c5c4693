"""A ModelTrainer of the SageMaker SDK v3, without a session argument; the trainer creates the job's name itself."""

import json
import sys
from pathlib import Path

from sagemaker.core.shapes import Tag
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode

request = json.loads(Path(sys.argv[1]).read_text())
Path("code").mkdir()
Path("code/train.py").write_text(request["Environment"]["SCRIPT"])
trainer = ModelTrainer(
    training_image=request["AlgorithmSpecification"]["TrainingImage"],
    role=request["RoleArn"],
    base_job_name=request["TrainingJobName"],
    source_code=SourceCode(source_dir="code", command="python train.py"),
    compute=Compute(instance_type=request["ResourceConfig"]["InstanceType"], instance_count=1),
    tags=[Tag(key=tag["Key"], value=tag["Value"]) for tag in request["Tags"]],
    checkpoint_config=CheckpointConfig(s3_uri=request["CheckpointConfig"]["S3Uri"]),
)
trainer.train(wait=True, logs=True)
assert trainer._latest_training_job.training_job_status == "Completed"
