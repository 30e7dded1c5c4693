"""Load in simulated time and on a local cloud: `python benchmarks/load.py [--only simulated | real] [...]`.

In simulated time (`followed_load.py`): 500 jobs run, 500 wait, and 1,000 people follow the waiting jobs. The 500
running jobs end at once, and 500 new jobs are submitted in a minute. The load is measured without and with followers,
in an ordinary account and in a new account, which has a Lambda concurrency of 10. DynamoDB throttles partition keys as
AWS does. The figures are the same on any machine.

On a local cloud, 16 threads first submit many jobs at once. Then a storm of SageMaker's events arrives during a long
backlog, while short jobs start and end and a user calls the API. The events are repeated ends of jobs, and events of
unknown jobs. The status is 1 if a job is lost, a call or an event fails, or the short jobs do not all complete.
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
SHORT = "ml.g5.xlarge"  # instance type of the short jobs
LONG = "ml.p5.48xlarge"
PATIENCE = 600.0  # maximum seconds to wait for a condition


@dataclass
class Times:
    """The seconds of calls, and their errors."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Call a function and record its time. Return its result; None after a QueueError, which is recorded."""
        began = time.monotonic()
        try:
            return function(*arguments)
        except QueueError as error:
            self.errors.append(str(error))
            return None
        finally:
            self.seconds.append(time.monotonic() - began)

    def row(self, name: str, wall: float) -> str:
        """Return a row of the table.

        :param wall: seconds in which all calls were made.
        """
        ranked = sorted(self.seconds)
        p99 = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
        figures = f"{statistics.median(ranked):.2f} | {p99:.2f} | {ranked[-1]:.2f}"
        return f"| {name} | {len(ranked)} | {len(ranked) / wall:.0f} | {figures} | {len(self.errors)} |"


class Events:
    """The delivery of SageMaker's events. Events of ended jobs are kept, so that `storm` can repeat these events."""

    def __init__(self) -> None:
        self.targets: RuleTargets | None = None
        self.ended: list[str] = []

    def __call__(self, event: dict[str, Any]) -> None:
        """Deliver an event."""
        if event["detail"]["TrainingJobStatus"] in ("Completed", "Stopped", "Failed"):
            self.ended.append(json.dumps(event))
        if self.targets:
            self.targets.deliver(event)

    def storm(self) -> Iterator[str]:
        """Yield events without end: repeated events of ended jobs, alternately with events of unknown jobs."""
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
        """Submit jobs from all threads at once; return the times of the calls, and the seconds for all of them.

        :param kind: instance type.
        :param seconds: runtime of each job.
        """
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
        """Send events while short jobs run and a user calls the API.

        Return the times of the user's calls, the seconds of the whole storm, and the number of events.

        :param a_second: events a second.
        """
        times, over = Times(), threading.Event()
        self.submit(SHORT_JOBS, SHORT, 0.2, priority=9)
        user = threading.Thread(target=self._look, args=(times, over))
        user.start()
        began, sent = time.monotonic(), list[Future[Any]]()
        with ThreadPoolExecutor(THREADS) as pool:
            for number, event in enumerate(self._events.storm()):
                due = began + number / a_second
                if due > began + seconds:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                # Calls are synchronous, because the local cloud starts a process for an asynchronous call if no process
                # is idle.
                invoke = partial(self._function.invoke, FunctionName=self._cloud.function_name)
                sent.append(pool.submit(invoke, Payload=event))
        wall = time.monotonic() - began
        over.set()
        user.join()
        failed = [answer["FunctionError"] for call in sent if "FunctionError" in (answer := call.result())]
        times.errors += [f"an event met an error: {error}" for error in failed]
        return times, wall, len(sent)

    def completed(self) -> int:
        """Return the number of completed jobs."""
        return sum(job.state == "completed" for job in self._queue.jobs("finished"))

    def lost(self) -> list[str]:
        """Return the submitted jobs that the queue does not list exactly once."""
        known = Counter(job.job for job in [*self._queue.jobs("live"), *self._queue.jobs("finished")])
        return [name for name in self._names if known[name] != 1]

    def wait(self, what: str, reached: Callable[[], bool]) -> bool:
        """Wait for a condition; return False if the condition is not true after PATIENCE seconds.

        :param what: the condition, for the message.
        """
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
    """Print the tables; return the exit status."""
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
    """Print the table of a local cloud; return the exit status."""
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
