"""Fits a line to the points of a data set; run as `python train.py --data points`, here or by `smq submit`."""

import argparse
import csv
import os
import time
from pathlib import Path

import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="a folder below data/")
parser.add_argument("--pause", type=float, default=0.0, help="seconds for each step")
arguments = parser.parse_args()

settings = yaml.safe_load(Path("settings.yaml").read_text())
with (Path("data") / arguments.data / "points.csv").open() as file:
    points = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]

# SM_CHECKPOINT_DIR is set in the container; what is there is kept for the next attempt.
checkpoint = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"), "line.yaml")
checkpoint.parent.mkdir(parents=True, exist_ok=True)
first, slope, offset = yaml.safe_load(checkpoint.read_text()) if checkpoint.exists() else (0, 0.0, 0.0)
print(f"step {first}, {len(points)} points", flush=True)

for step in range(first + 1, settings["steps"] + 1):
    errors = [slope * x + offset - y for x, y in points]
    slope -= settings["rate"] * sum(error * x for error, (x, _) in zip(errors, points, strict=True)) / len(points)
    offset -= settings["rate"] * sum(errors) / len(points)
    time.sleep(arguments.pause)
    unfinished = checkpoint.with_suffix(".new")
    unfinished.write_text(yaml.safe_dump([step, slope, offset]))
    unfinished.replace(checkpoint)  # whole or not at all, whenever the job is stopped

print(f"y = {slope:.3f} x + {offset:.3f}")
