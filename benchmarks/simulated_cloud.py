"""A simulated AWS account, in which the queue's own functions run in simulated time.

API Gateway, Lambda, DynamoDB and SageMaker are simulated. DynamoDB limits the rate of each partition key. Invocations
run concurrently, each with an App of its own, as in Lambda. Every call and every row that is read takes a fixed time,
so the figures are the same on any machine.
"""

import copy
import heapq
import io
import itertools
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from aws_lambda_powertools.event_handler.api_gateway import BaseRouter
from greenlet import getcurrent, greenlet

from job_queue import lambda_function
from job_queue.adapters.dynamodb import try_again
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.app import App
from local_cloud.dynamodb.key_throttle import AWS_LIMITS, KeyAccess, PartitionKey
from local_cloud.sagemaker.account.options import Rate
from local_cloud.sagemaker.account.throttling import CallBucket
from tests.fake_sagemaker import FakeTraining
from tests.jobs import NOW, ROLE
from tests.metered_tables import UnitTables, again
from tests.payloads import api_event

TABLE_SECONDS = 0.006  # for a call of DynamoDB
ROW_SECONDS = 0.0003  # to unpack a row with boto3 and to plan with the row, on the 0.57 cores that 1 GB of Lambda has
TRAINING_SECONDS = {"create": 0.4, "describe": 0.15, "page": 0.3, "stop": 0.2}
ASYNC_SECONDS = 0.2  # from an event to its invocation
MOST_ASYNC_SECONDS = 300.0  # longest pause between two tries of an event that Lambda throttles
LAMBDA_SECONDS = 45.0
TRIES, MOST_PAUSE_SECONDS = 5, 8.0  # tries of the client, longest pause between two tries
READ_METHODS = ("GET",)


class Timeline:
    """Simulated time. Processes are greenlets; the process with the earliest wake-up runs next."""

    def __init__(self) -> None:
        self.now = NOW
        self._due: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()
        self._hub = getcurrent()

    @property
    def outside(self) -> bool:
        """True if the caller is not a process of this timeline."""
        return getcurrent() is self._hub

    def spawn(self, work: Callable[[], object], after: float = 0.0) -> None:
        """Start a process after some seconds of simulated time."""
        self._wake(greenlet(work, parent=self._hub), after)

    def sleep(self, seconds: float) -> None:
        """Let the present process wait. Outside of a process, only advance the time."""
        if self.outside:
            self.now += seconds
            return
        self._wake(getcurrent(), seconds)
        self.switch()

    def switch(self) -> None:
        """Let other processes run until the present process is woken."""
        router: Any = BaseRouter  # Powertools has the present request in class attributes; restored below
        seen = router.__dict__.get("current_event"), router.__dict__.get("lambda_context")
        self._hub.switch()
        router.current_event, router.lambda_context = seen

    def wake(self, process: Any) -> None:
        """Let a waiting process continue now."""
        self._wake(process, 0.0)

    def run(self, until: float) -> None:
        """Run processes up to a time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, process = heapq.heappop(self._due)
            process.switch()
        self.now = max(self.now, until)

    def _wake(self, process: Any, after: float) -> None:
        heapq.heappush(self._due, (self.now + after, next(self._numbers), process))


class Pool:
    """A thread pool whose threads are processes of simulated time."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def submit(self, work: Callable[[], Any]) -> "Task":
        """Start work concurrently. Outside of a process, the work runs only when its result is requested."""
        task = Task(self._timeline, work)
        if not self._timeline.outside:
            self._timeline.spawn(task.run)
        return task


class Task:
    """Work that was submitted to a pool, like a Future."""

    def __init__(self, timeline: Timeline, work: Callable[[], Any]) -> None:
        self._timeline = timeline
        self._work = work
        self._done = False
        self._answer: Any = None
        self._error: Exception | None = None
        self._waiting: Any = None

    def run(self) -> None:
        """Execute the work and wake the process that waits for its result."""
        try:
            self._answer = self._work()
        except Exception as error:  # noqa: BLE001  (raised by `result`)
            self._error = error
        self._done = True
        if self._waiting is not None:
            self._timeline.wake(self._waiting)

    def result(self) -> Any:
        """Wait until the work has ended; return its result, or raise its error."""
        if not self._done and self._timeline.outside:
            self.run()
        elif not self._done:
            self._waiting = getcurrent()
            self._timeline.switch()
        if self._error is not None:
            raise self._error
        return self._answer


class Calls:
    """Access to the tables. Each call takes simulated time and is counted.

    :param consistent: whether reads are strongly consistent, which doubles their units.
    """

    def __init__(self, cloud: "SimulatedCloud", *, consistent: bool = True) -> None:
        self._cloud = cloud
        self._consistent = consistent

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._cloud.tables, verb)

        def call(*args: Any, **options: Any) -> Any:
            cloud = self._cloud
            cloud.counts[f"DynamoDB {verb}"] += 1

            def made() -> Any:
                cloud.timeline.sleep(TABLE_SECONDS)
                cloud.tables.consistent = self._consistent
                return method(*args, **options)

            if verb == "transact":
                return try_again(made, cloud.timeline.sleep)
            answer = again(made, cloud.timeline.sleep)
            if isinstance(answer, list):
                cloud.timeline.sleep(ROW_SECONDS * len(answer))
            return answer

        return call


class Tables(UnitTables):
    """Tables that record the units of each partition key in each second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(AWS_LIMITS, clock)
        self._now = clock
        self._units_by_second: defaultdict[tuple[KeyAccess, PartitionKey, int], float] = defaultdict(float)

    def charge(self, access: KeyAccess, units: Mapping[PartitionKey, float]) -> None:
        """Charge the units of a call to its partition keys, and record them."""
        super().charge(access, units)
        for key, count in units.items():
            self._units_by_second[access, key, int(self._now())] += count

    def hottest(self, access: KeyAccess, since: float) -> tuple[float, str]:
        """Return the most units of any key in one second, and the key.

        :param since: epoch seconds.
        """
        found = [
            (count, key) for (kind, key, at), count in self._units_by_second.items() if kind is access and at >= since
        ]
        count, key = max(found, default=(0.0, PartitionKey("", "")))
        return count, key.value


class SimulatedTraining(FakeTraining):
    """SageMaker's training API. Each call takes simulated time and is counted."""

    def __init__(self, cloud: "SimulatedCloud") -> None:
        super().__init__()
        self.clock = lambda: cloud.timeline.now
        for verb, seconds in TRAINING_SECONDS.items():
            setattr(self, verb, self._slow(cloud, verb, seconds))

    def _slow(self, cloud: "SimulatedCloud", verb: str, seconds: float) -> Callable[..., Any]:
        method = getattr(self, verb)

        def call(*args: Any) -> Any:
            cloud.counts[f"SageMaker {verb}"] += 1
            cloud.timeline.sleep(seconds)
            return method(*args)

        return call


class Output(io.StringIO):
    """The output stream of the functions' logs and metrics, which counts characters and records the times of cycles."""

    def __init__(self, cloud: "SimulatedCloud") -> None:
        super().__init__()
        self._cloud = cloud

    def write(self, text: str) -> int:
        """Count a line or a part of a line. A metric CycleTime is never split between two calls."""
        self._cloud.counts["log bytes"] += len(text)
        if '"CycleTime"' in text:
            found = json.loads(text)["CycleTime"]
            self._cloud.cycles += [(self._cloud.timeline.now, value / 1000) for value in found]
        return len(text)


class SimulatedCloud:
    """A simulated AWS account with the queue.

    :param concurrency: maximum concurrent executions of the account.
    :param reads: executions that are reserved for ReadFunction, which answers GET requests; 0: none.
    :param slots: instances that the queue may use.
    :param settings: further settings of the deployment.
    """

    def __init__(self, *, concurrency: int = 1000, reads: int = 10, slots: int = 500, **settings: Any) -> None:
        self.timeline = Timeline()
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of execution, by function
        self.cycles: list[tuple[float, float]] = []  # epoch seconds of the end, duration in seconds
        clock = lambda: self.timeline.now  # noqa: E731
        self.tables = Tables(clock)
        self.training = SimulatedTraining(self)
        self._settings = DeploymentSettings(max_capacity=slots, allowed_role_arns=(ROLE,), **settings)
        self._free = {"queue": concurrency - reads, "reads": reads}
        self._shared = reads == 0
        self._idle: dict[str, list[App]] = {"queue": [], "reads": []}
        limits = {"GET": Rate(20, 20), "POST": Rate(50, 100)}  # as in template.yaml
        self._gateway = {method: CallBucket(rate, clock) for method, rate in limits.items()}
        self._requests = itertools.count(1)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the queue's code use this cloud within a `with` block."""
        time = SimpleNamespace(
            time=lambda: self.timeline.now, monotonic=lambda: self.timeline.now, sleep=self.timeline.sleep
        )
        output = Output(self)
        with ExitStack() as stack:
            for name, replacement in {
                "boto3": SimpleNamespace(client=self._client),
                "DynamoDBTables": lambda client, **options: Calls(self, **options),
                "Training": lambda *parts: self.training,
                "ThreadPoolExecutor": lambda workers: Pool(self.timeline),
                "time": time,
            }.items():
                stack.enter_context(patch(f"job_queue.app.{name}", replacement))
            for handler in log.handlers:
                stack.enter_context(patch.object(handler, "stream", output))
            stack.enter_context(patch.object(sys, "stdout", output))
            results = lambda tasks, timeout: [task.result() for task in tasks]  # noqa: E731
            stack.enter_context(patch("job_queue.adapters.eventbridge.wait", results))
            random.seed(1)
            yield

    def take_over(self, other: "SimulatedCloud") -> None:
        """Copy the tables, training jobs and time of another cloud."""
        self.timeline.now = other.timeline.now
        self.tables.rows = copy.deepcopy(other.tables.rows)
        for name in ("jobs", "requests", "created"):
            setattr(self.training, name, dict(getattr(other.training, name)))

    # --- requests --------------------------------------------------------------------------------

    def ask(self, method: str, path: str, *, body: str | None = None, caller: str, **query: str) -> tuple[int, Any]:
        """Make a request, with retries like the client's; return the status and the content of the last answer."""
        status, content = 0, None
        for number in range(TRIES):
            if number:
                self.timeline.sleep(random.uniform(0, min(MOST_PAUSE_SECONDS, 0.5 * 2**number)))
            status, content = self._request(method, path, body, caller, query)
            if status not in (429, 500, 502, 503, 504):
                break
        return status, content

    def _request(self, method: str, path: str, body: str | None, caller: str, query: Any) -> tuple[int, Any]:
        kind = "reads" if method in READ_METHODS else "queue"
        self.counts[f"API {method}"] += 1
        if not self._gateway[method].take():
            self.counts[f"API {method} 429"] += 1
            return 429, None
        event = api_event(method, path, body=body, caller=caller, **query)
        answered, answer = self._invoke(kind, event)
        status = answer["statusCode"] if answered else 500  # the status of API Gateway if Lambda throttles
        if status >= 429:
            self.counts[f"API {method} {status}"] += 1
        return status, json.loads(answer["body"]) if answered and answer["body"] else None

    # --- events ----------------------------------------------------------------------------------

    def send(self, event: Mapping[str, Any], after: float = ASYNC_SECONDS) -> None:
        """Invoke the function with an event asynchronously. If Lambda throttles the call, try again later."""

        def deliver() -> None:
            pause = 1.0
            while not self._invoke("queue", event)[0]:
                self.counts["events postponed"] += 1
                self.timeline.sleep(pause)
                pause = min(MOST_ASYNC_SECONDS, 2 * pause)

        self.timeline.spawn(deliver, after)

    def end(self, attempt: str) -> None:
        """Complete a training job, and send SageMaker's event."""
        self.training.run(attempt, self.training.created[attempt], self.timeline.now)
        self.training.end(attempt)
        detail = self.training.event(attempt)
        self.send({"source": "aws.sagemaker", "detail-type": "SageMaker Training Job State Change", "detail": detail})

    def progress(self, attempt: str, secondary: str) -> None:
        """Change the SecondaryStatus of a training job, if it is in progress, and send SageMaker's event."""
        if attempt not in self.training.jobs or self.training.jobs[attempt].status != "InProgress":
            return
        self.training.progress(attempt, secondary)
        detail = self.training.event(attempt)
        self.send({"source": "aws.sagemaker", "detail-type": "SageMaker Training Job State Change", "detail": detail})

    def tick(self) -> None:
        """Send the event of the schedule."""
        self.send({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}})

    def _client(self, service: str, **_: Any) -> Any:
        return SimpleNamespace(put_events=self._put_events)

    def _put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        for entry in Entries:
            self.counts["EventBridge events"] += 1
            if entry["DetailType"] == "Wake Up":
                detail = json.loads(entry["Detail"])
                self.send({"source": entry["Source"], "detail-type": entry["DetailType"], "detail": detail})
        return {"Entries": [{} for _ in Entries]}

    # --- Lambda ----------------------------------------------------------------------------------

    def _invoke(self, function: str, event: Mapping[str, Any]) -> tuple[bool, Any]:
        """Invoke a function in an idle or new App. Return True and the answer; False and None if Lambda throttles."""
        pool = "queue" if self._shared else function
        if self._free[pool] <= 0:
            self.counts[f"Lambda {function} throttled"] += 1
            return False, None
        self._free[pool] -= 1
        began = self.timeline.now
        deadline = began + LAMBDA_SECONDS
        app = self._idle[function].pop() if self._idle[function] else App(self._settings)
        context: Any = SimpleNamespace(
            invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:queue",
            aws_request_id=f"request-{next(self._requests)}",
            get_remaining_time_in_millis=lambda: 1000 * (deadline - self.timeline.now),
        )
        try:
            answer = lambda_function._dispatch(app, dict(event), context)  # noqa: SLF001
            app.flush(context)
        finally:
            self._free[pool] += 1
            self._idle[function].append(app)
            self.counts[f"Lambda {function}"] += 1
            self.seconds[function] += self.timeline.now - began
        return True, answer
