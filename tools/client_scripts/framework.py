"""A framework's estimator of the SageMaker SDK v2, without a session argument; the estimator uploads its script."""

import json
import sys
from pathlib import Path
from typing import Any

from sagemaker.huggingface import HuggingFace
from sagemaker.sklearn import SKLearn
from sagemaker.tensorflow import TensorFlow
from sagemaker.xgboost import XGBoost

request = json.loads(Path(sys.argv[1]).read_text())
image = request["AlgorithmSpecification"]["TrainingImage"]
estimators: dict[str, tuple[type[Any], dict[str, str]]] = {
    "huggingface": (
        HuggingFace,
        {"transformers_version": "4.56.2", "pytorch_version": "2.8.0", "py_version": "py312"},
    ),
    "tensorflow": (TensorFlow, {"framework_version": "2.19.0", "py_version": "py312"}),
    "sklearn": (SKLearn, {"image_uri": image}),  # SKLearn's own images do not run on GPU instances
    "xgboost": (XGBoost, {"framework_version": "3.0-5", "py_version": "py3"}),
}
kind, versions = estimators[sys.argv[2]]

Path("code").mkdir()
Path("code/train.py").write_text(request["Environment"]["SCRIPT"])
estimator = kind(
    entry_point="train.py",
    source_dir="code",
    role=request["RoleArn"],
    instance_type=request["ResourceConfig"]["InstanceType"],
    instance_count=1,
    base_job_name=request["TrainingJobName"],
    output_path=request["OutputDataConfig"]["S3OutputPath"],
    checkpoint_s3_uri=request["CheckpointConfig"]["S3Uri"],
    tags=request["Tags"],
    hyperparameters={"epochs": 3},
    **versions,
)
estimator.fit(wait=True, logs="All")
assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
