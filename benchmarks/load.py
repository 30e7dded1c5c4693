"""Load in simulated time and on a local cloud: `python benchmarks/load.py [--only simulated | real] [...]`.

In simulated time (`followed_load.py`): 500 jobs run, 500 wait, 1,000 people follow those that wait, 500 jobs end at
once, and 500 are submitted in a minute; once without followers and once with them, in an ordinary account and in a new
one, which has a Lambda concurrency of 10. DynamoDB throttles partition keys as AWS does. The figures are the same on
any machine.

On a local cloud: first many submissions at once, from 16 threads. Then, with a long backlog, a storm of SageMaker's
events (repeated ones of jobs that have ended, progress of those that run, jobs that nobody knows) while short jobs come
and go and somebody uses the API. At the end nothing may be lost, the API must have answered, and jobs must have gone on
starting: else it ends with status 1.
"""

import argparse
import itertools
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

from benchmarks.followed_load import Polling, Scenario, table  # noqa: E402
from local_cloud.aws.stack import LocalCloud  # noqa: E402
from local_cloud.dynamodb.key_throttle import AWS_LIMITS  # noqa: E402
from local_cloud.sagemaker.events import RuleTargets  # noqa: E402
from sagemaker_queue import QueueClient, QueueError  # noqa: E402

THREADS = 16
SLOTS = 4
SHORT_JOBS = 20
SHORT = "ml.g5.xlarge"  # the type of the jobs that come and go
LONG = "ml.p5.48xlarge"
PATIENCE = 600.0  # seconds for what is under way to come to an end


@dataclass
class Times:
    """How long calls took, and what went wrong."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def call(self, what: Any, *arguments: Any) -> Any:
        """Call it, measured."""
        began = time.monotonic()
        try:
            return what(*arguments)
        except QueueError as error:
            self.errors.append(str(error))
            return None
        finally:
            self.seconds.append(time.monotonic() - began)

    def row(self, name: str, wall: float) -> str:
        """A row of the table."""
        ranked = sorted(self.seconds)
        p99 = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
        figures = f"{statistics.median(ranked):.2f} | {p99:.2f} | {ranked[-1]:.2f}"
        return f"| {name} | {len(ranked)} | {len(ranked) / wall:.0f} | {figures} | {len(self.errors)} |"


class Events:
    """SageMaker's events: delivered, and kept to be sent again."""

    def __init__(self) -> None:
        self.targets: RuleTargets | None = None
        self.ended: list[str] = []

    def __call__(self, event: dict[str, Any]) -> None:
        """Take in an event and pass it on."""
        if event["detail"]["TrainingJobStatus"] in ("Completed", "Stopped", "Failed"):
            self.ended.append(json.dumps(event))
        if self.targets:
            self.targets.deliver(event)

    def storm(self) -> Iterator[str]:
        """Old news again, and news of jobs that nobody knows, in turns."""
        for number in itertools.count():
            if number % 2 and self.ended:
                yield self.ended[number % len(self.ended)]
            else:
                detail = {"TrainingJobName": f"nobody{number}", "TrainingJobStatus": "InProgress", "Tags": {}}
                yield json.dumps({"source": "aws.sagemaker", "detail": detail})


class Load:
    """The parts of the benchmark, on one local cloud."""

    def __init__(self, cloud: LocalCloud, events: Events) -> None:
        self._cloud = cloud
        self._events = events
        self._queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
        self._function = cloud.client("lambda")
        self._names: list[str] = []

    def submit(self, count: int, kind: str, seconds: float, priority: int = 0) -> tuple[Times, float]:
        """That many jobs at once, from all threads; also gives the seconds that it took."""
        times, began = Times(), time.monotonic()
        names = [f"job{len(self._names) + number:05}" for number in range(count)]
        self._names += names
        with ThreadPoolExecutor(THREADS) as pool:
            calls = [
                pool.submit(times.call, self._queue.submit, self._request(name, kind, seconds, priority))
                for name in names
            ]
        for call in calls:
            call.result()
        return times, time.monotonic() - began

    def storm(self, a_second: int, seconds: float) -> tuple[Times, float, int]:
        """Events at this rate while people look and short jobs run; also gives the seconds and the events sent."""
        times, over = Times(), threading.Event()
        self.submit(SHORT_JOBS, SHORT, 0.2, priority=9)
        people = threading.Thread(target=self._look, args=(times, over))
        people.start()
        began, sent = time.monotonic(), list[Future[Any]]()
        with ThreadPoolExecutor(THREADS) as pool:
            for number, event in enumerate(self._events.storm()):
                due = began + number / a_second
                if due > began + seconds:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                # Each is waited for: without AWS's bounds, a process is started for every event that meets busy ones.
                invoke = partial(self._function.invoke, FunctionName=self._cloud.function_name)
                sent.append(pool.submit(invoke, Payload=event))
        wall = time.monotonic() - began
        over.set()
        people.join()
        failed = [answer["FunctionError"] for call in sent if "FunctionError" in (answer := call.result())]
        times.errors += [f"an event met an error: {error}" for error in failed]
        return times, wall, len(sent)

    def completed(self) -> int:
        """How many jobs are."""
        return sum(job.state == "completed" for job in self._queue.jobs("finished"))

    def lost(self) -> list[str]:
        """Jobs that were accepted, and of which the queue knows nothing, or twice."""
        known = Counter(job.job for job in [*self._queue.jobs("live"), *self._queue.jobs("finished")])
        return [name for name in self._names if known[name] != 1]

    def wait(self, what: str, reached: Callable[[], bool]) -> bool:
        """Wait until it is so, but not for ever."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > deadline:
                print(f"Waited {PATIENCE:.0f} s in vain for {what}.", file=sys.stderr)
                return False
            time.sleep(1)
        return True

    def _look(self, times: Times, over: threading.Event) -> None:
        while not over.wait(0.5):
            times.call(self._queue.job, self._names[-1])
            times.call(self._queue.queue)

    def _request(self, name: str, kind: str, seconds: float, priority: int) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "RoleArn": self._cloud.role,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["sleep", str(seconds)],
            },
            "OutputDataConfig": {"S3OutputPath": "s3://load/output"},
            "ResourceConfig": {"InstanceType": kind, "InstanceCount": 1, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            "CheckpointConfig": {"S3Uri": f"s3://load/checkpoints/{name}"},
            "Tags": [{"Key": "priority", "Value": str(priority)}],
        }


def main() -> int:
    """Print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=500, help="jobs submitted at once (default 500)")
    parser.add_argument("--backlog", type=int, default=2000, help="jobs that wait during the storm (default 2000)")
    parser.add_argument("--events", type=int, default=50, help="events a second (default 50)")
    parser.add_argument("--seconds", type=float, default=60, help="how long the storm lasts (default 60)")
    parser.add_argument("--only", choices=("simulated", "real"), help="one part alone")
    parser.add_argument("--followers", type=int, default=1000, help="people who follow jobs (default 1000)")
    parser.add_argument("--active", type=int, default=500, help="jobs that run; as many wait and end (default 500)")
    parser.add_argument("--pause", type=float, help="seconds between two requests (default: the client's schedule)")
    parser.add_argument("--followed", type=float, default=300, help="seconds of following before (default 300)")
    options = parser.parse_args()
    if options.only != "real":
        polling = Polling(options.pause, options.followed)
        scenario = Scenario(active=options.active, waiting=options.active, polling=polling)
        for line in table(scenario, (0, options.followers), (1000, 10)):
            print(line, flush=True)
    return 0 if options.only == "simulated" else real(options)


def real(options: argparse.Namespace) -> int:
    """Print the table of a local cloud; returns the exit status."""
    events = Events()
    with LocalCloud(slots=SLOTS, deliver=events, key_limits=AWS_LIMITS) as cloud:
        events.targets = RuleTargets(cloud.client("events"), cloud.client("lambda"))
        cloud.client("s3").create_bucket(Bucket="load")
        load = Load(cloud, events)
        print("| what | calls | a second | median s | 99 % s | longest s | errors |")
        print("|---|---|---|---|---|---|---|", flush=True)
        many, wall = load.submit(options.submissions, LONG, 3600)
        print(many.row(f"submissions from {THREADS} threads", wall), flush=True)
        rest, _ = load.submit(max(0, options.backlog - options.submissions), LONG, 3600)
        looks, wall, sent = load.storm(options.events, options.seconds)
        print(looks.row(f"people looking, {options.backlog} jobs waiting, {sent / wall:.0f} events a second", wall))
        during = load.completed()
        all_done = load.wait("the short jobs to complete", lambda: load.completed() == SHORT_JOBS)
        lost = load.lost()
        errors = [*many.errors, *rest.errors, *looks.errors]
        print(
            f"\n{during} of {SHORT_JOBS} short jobs were completed when the storm ended, {load.completed()} soon after."
        )
        throttled = cloud.throttled_calls
        print(f"Jobs lost: {len(lost)}. Calls that failed: {len(errors)}. Calls of throttled keys: {throttled}.")
        for line in [*lost[:5], *errors[:5]]:
            print(f"  {line}", file=sys.stderr)
    return 0 if all_done and not lost and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
