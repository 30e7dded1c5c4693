"""A TabularCloudPredictor of AutoGluon-Cloud, with a custom image and program instead of AutoGluon's."""

import json
import sys
from pathlib import Path

import pandas as pd
from autogluon.cloud import TabularCloudPredictor

request = json.loads(Path(sys.argv[1]).read_text())
algorithm = request["AlgorithmSpecification"]
name = request["TrainingJobName"]
predictor = TabularCloudPredictor(cloud_output_path=f"s3://clients/{name}", role=request["RoleArn"])
predictor.fit(
    train_data=pd.DataFrame({"x": [1, 2, 3], "y": [2, 4, 6]}),
    predictor_init_args={"label": "y"},
    predictor_fit_args={},
    instance_type=request["ResourceConfig"]["InstanceType"],
    job_name=name,
    custom_image_uri=algorithm["TrainingImage"],
    backend_overrides={
        "CreateTrainingJob": {
            "AlgorithmSpecification": {"ContainerEntrypoint": algorithm["ContainerEntrypoint"]},
            "Environment": request["Environment"],
            "CheckpointConfig": request["CheckpointConfig"],
            "Tags": request["Tags"],
        }
    },
)
predictor.download_trained_predictor()  # an empty archive, which must exist
assert predictor.get_fit_job_status() == "Completed", predictor.get_fit_job_status()
