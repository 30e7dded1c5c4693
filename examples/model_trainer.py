"""Queue a training job by a ModelTrainer of the SageMaker SDK v3: what changes for you is one argument.

Try it without an AWS account (`make setup` makes an environment that has the SDK v3):

    .venv/bin/python -m local_cloud exec -- .venv-sdk3/bin/python examples/model_trainer.py
"""

import os
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.shapes import Tag
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode

import sagemaker_queue

session = Session(boto_session=sagemaker_queue.boto_session())  # the queue

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_code=SourceCode(
        source_dir=str(Path(__file__).parent),
        command="python train.py --steps 10 --seconds-per-step 0.1",
    ),
    compute=Compute(instance_type="ml.p5.48xlarge", instance_count=1),
    base_job_name="example",
    checkpoint_config=CheckpointConfig(  # so that it can be preempted
        s3_uri=f"s3://{session.default_bucket()}/checkpoints/example-model-trainer",
    ),
    tags=[Tag(key="priority", value="100")],  # the higher, the sooner
    sagemaker_session=session,
)
trainer.train()
print(trainer._latest_training_job.training_job_name, "has completed")
