"""Two trials of Syne Tune, each a training job of its SageMakerBackend; the first job is preempted."""

import json
import sys
from pathlib import Path

from sagemaker.pytorch import PyTorch
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import SageMakerBackend
from syne_tune.config_space import choice
from syne_tune.optimizer.baselines import RandomSearch

SCRIPT = """
import argparse, os
from syne_tune import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--first", type=int)
first = parser.parse_known_args()[0].first
if first:
    exec(os.environ["SCRIPT"])
Reporter()(loss=float(first))
"""

request = json.loads(Path(sys.argv[1]).read_text())
Path("code").mkdir()
Path("code/trial.py").write_text(SCRIPT)
Path("code/requirements.txt").write_text("dill\nnumpy\npandas\nsortedcontainers\n")  # the packages of the image
estimator = PyTorch(
    entry_point="trial.py",
    source_dir="code",
    role=request["RoleArn"],
    instance_type=request["ResourceConfig"]["InstanceType"],
    instance_count=1,
    framework_version="2.8.0",
    py_version="py312",
    environment=request["Environment"],
    output_path=request["OutputDataConfig"]["S3OutputPath"],
    tags=request["Tags"],
)
tuner = Tuner(
    trial_backend=SageMakerBackend(sm_estimator=estimator, s3_path=request["CheckpointConfig"]["S3Uri"]),
    scheduler=RandomSearch({"first": choice([0, 1])}, metric="loss", points_to_evaluate=[{"first": 1}, {"first": 0}]),
    stop_criterion=StoppingCriterion(max_num_trials_completed=2),
    n_workers=1,
    sleep_time=1,
    # Otherwise, Syne Tune 0.13.0 loses a trial if another trial ends between its two requests for states.
    start_jobs_without_delay=True,
    tuner_name=request["TrainingJobName"],
    suffix_tuner_name=False,
)
tuner.run()
number, best = tuner.best_config()
assert best["first"] == 0, (number, best)
