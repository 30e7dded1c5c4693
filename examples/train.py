"""A training script that can be preempted: it keeps its progress in a checkpoint and goes on from there."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--until", type=Path, metavar="FILE", help="instead of --steps: train until this file is there")
parser.add_argument("--seconds-per-step", type=float, default=0.25)
arguments = parser.parse_args()

# SageMaker keeps this folder in S3 (checkpoint_s3_uri) and brings it back when the job starts again.
folder = Path(os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints"))
folder.mkdir(parents=True, exist_ok=True)
checkpoint = folder / "progress.json"

# Where it hears of its stop, it finishes its step, so that nothing is done twice. Under the SDKs' own start it does
# not: then it is killed in some step, and that one is lost.
stops: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))

done, loss = 0, 1.0
if checkpoint.exists():
    done, loss = json.loads(checkpoint.read_text())
print(f"resuming at step {done}" if done else "starting from the beginning", flush=True)


def finished() -> bool:
    """Whether it has trained enough."""
    return bool(arguments.until.exists() if arguments.until else done >= arguments.steps)


while not finished():
    time.sleep(arguments.seconds_per_step)  # here your network would learn something
    done, loss = done + 1, loss * 0.97
    unfinished = checkpoint.with_suffix(".new")
    unfinished.write_text(json.dumps([done, loss]))
    unfinished.replace(checkpoint)  # whole or not at all, whenever the job is stopped
    print(f"step {done}: loss {loss:.4f}", flush=True)
    if stops:
        sys.exit("stopped")

Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), "model.json").write_text(json.dumps({"loss": loss}))
