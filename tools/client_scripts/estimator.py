"""An estimator of the SageMaker SDK v2, without a session argument."""

import json
import sys
from pathlib import Path

from sagemaker.estimator import Estimator

request = json.loads(Path(sys.argv[1]).read_text())
estimator = Estimator(
    image_uri=request["AlgorithmSpecification"]["TrainingImage"],
    container_entry_point=request["AlgorithmSpecification"]["ContainerEntrypoint"],
    role=request["RoleArn"],
    instance_type=request["ResourceConfig"]["InstanceType"],
    instance_count=1,
    environment=request["Environment"],
    output_path=request["OutputDataConfig"]["S3OutputPath"],
    checkpoint_s3_uri=request["CheckpointConfig"]["S3Uri"],
    tags=request["Tags"],
)
estimator.fit(job_name=request["TrainingJobName"], wait=True, logs="All")
assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
