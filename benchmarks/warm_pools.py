"""Time that warm pools save in a sweep: `python benchmarks/warm_pools.py [--jobs N] [--provisioning SECONDS]`.

The queue's own code schedules 20 jobs of two minutes on two instances, in simulated time and on a fake SageMaker. A
training job takes three minutes to get new instances, and ten seconds to start on instances that are kept warm.
"""

import argparse
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.jobs import P5  # noqa: E402
from tests.queue_harness import Harness  # noqa: E402

TICK_SECONDS = 60.0
INSTANCES = 2


@dataclass(frozen=True)
class Sweep:
    """The jobs of a sweep, and the seconds that SageMaker takes."""

    jobs: int
    seconds: float  # training time of each job
    provisioning: float  # seconds until new instances are ready
    warm_start: float  # seconds until a job starts on warm instances


@dataclass(frozen=True)
class Result:
    """The times of a sweep."""

    seconds: float  # from the submission of the first job to the end of the last
    waited: float  # seconds that jobs waited for instances, summed over all jobs
    idle: float  # billed instance-seconds in which instances were kept warm


def run(sweep: Sweep, keep_warm: int | None) -> Result:
    """Run a sweep in a pool with the given setting `keep_warm` (seconds; None: no warm pools)."""
    queue = Harness()
    pool = {"name": "p5", "instance_type": P5, "capacity": INSTANCES, "keep_warm": keep_warm}
    policy = {"pools": [pool], "projects": [{"name": "default", "quota": {"p5": INSTANCES}}]}
    queue.repository.apply_policy(json.dumps(policy), 0, "benchmark", queue.now)
    began = queue.now
    for number in range(sweep.jobs):
        queue.accept(f"trial{number:02}")
    queue.wake()
    ends: dict[str, float] = {}
    waited = idle = 0.0
    tick = queue.now + TICK_SECONDS
    while True:
        for name in queue.training.jobs:
            if name not in ends:
                start = sweep.warm_start if name in queue.training.reused.values() else sweep.provisioning
                ends[name] = queue.now + start + sweep.seconds
                waited += start
        running = {name: end for name, end in ends.items() if not queue.training.jobs[name].ended}
        if not running and len(ends) == sweep.jobs:
            return Result(queue.now - began, waited, idle)
        now = min(tick, *running.values()) if running else tick
        idle += len(queue.training.warm_pools) * (now - queue.now)
        queue.now = now
        for name, end in running.items():
            if end <= now:
                queue.training.end(name)
                if queue.controller.reconciler.handle_event(queue.training.event(name)):
                    queue.wake()
        if now >= tick:
            queue.tick(0)
            tick += TICK_SECONDS


def main() -> int:
    """Print the times without and with warm pools as a table. Return 1 if warm pools save no time, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120, help="that each job trains")
    parser.add_argument("--provisioning", type=float, default=180, help="seconds until new instances are there")
    parser.add_argument("--warm", type=float, default=10, help="seconds until a job starts on warm instances")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sweep = Sweep(options.jobs, options.seconds, options.provisioning, options.warm)
    print("| keep_warm | minutes | minutes waited for instances | instance-minutes kept idle |\n|---|---|---|---|")
    results = {keep_warm: run(sweep, keep_warm) for keep_warm in (None, 600)}
    for keep_warm, result in results.items():
        figures = (f"{seconds / 60:.1f}" for seconds in (result.seconds, result.waited, result.idle))
        print(f"| {keep_warm or 'none'} | {' | '.join(figures)} |")
    return 0 if results[600].seconds < results[None].seconds else 1


if __name__ == "__main__":
    sys.exit(main())
