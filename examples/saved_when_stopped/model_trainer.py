"""A ModelTrainer of the SDK v3 whose script hears SIGTERM: the launcher is the first process of its container.

Try it without an AWS account (`make setup` makes an environment that has the SDK v3):

    .venv/bin/python -m local_cloud exec -- .venv-sdk3/bin/python examples/saved_when_stopped/model_trainer.py
"""

import os
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode

import sagemaker_queue
from sagemaker_queue import launcher

session = Session(boto_session=launcher.use(sagemaker_queue.boto_session()))  # passes SIGTERM on to train.py

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_code=SourceCode(source_dir=str(Path(__file__).parent), command="python train.py --steps 100"),
    compute=Compute(instance_type="ml.p5.48xlarge", instance_count=1),
    base_job_name="saved-by-trainer",
    checkpoint_config=CheckpointConfig(s3_uri=f"s3://{session.default_bucket()}/checkpoints/saved-by-trainer"),
    sagemaker_session=session,
)
trainer.train()
print(trainer._latest_training_job.training_job_name, "has completed")
