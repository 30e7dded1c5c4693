"""A SageMakerTrainingJobTask of Flyte, run locally: its connector creates the job, polls it and returns its outputs."""

import json
import sys
from pathlib import Path

from flytekitplugins.awssagemaker_training import SageMakerTrainingJobTask

request = json.loads(Path(sys.argv[1]).read_text())
train = SageMakerTrainingJobTask(name="train", config=request, region="us-east-1")
result = train()
assert result["TrainingJobName"] == request["TrainingJobName"], result
assert result["ModelArtifacts"]["S3ModelArtifacts"].endswith("/output/model.tar.gz"), result
