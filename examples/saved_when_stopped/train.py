"""A training script that saves when its job is stopped: a checkpoint costs too much to be written after each step."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--until", type=Path, metavar="FILE", help="instead of --steps: train until this file is there")
parser.add_argument("--minutes-between-checkpoints", type=float, default=30)
arguments = parser.parse_args()

folder = Path(os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints"))
folder.mkdir(parents=True, exist_ok=True)
checkpoint = folder / "progress.json"
done = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
saved_at = time.monotonic()
print(f"starting at step {done}", flush=True)


def save() -> None:
    """Write the checkpoint, whole or not at all."""
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps(done))
    new.replace(checkpoint)
    print(f"saved at step {done}", flush=True)


# The step that runs is finished first, so that nothing is done twice.
stops: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))


def finished() -> bool:
    """Whether it has trained enough."""
    return bool(arguments.until.exists() if arguments.until else done >= arguments.steps)


while not finished():
    time.sleep(0.1)  # here your network would learn something
    done += 1
    print(f"step {done}", flush=True)
    if stops or time.monotonic() - saved_at > arguments.minutes_between_checkpoints * 60:
        save()
        saved_at = time.monotonic()
    if stops:
        sys.exit()

Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), "model.json").write_text(json.dumps(done))
