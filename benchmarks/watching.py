"""Cost of following a waiting job: `python benchmarks/watching.py [--active N] [--waiting N]`.

The client's follower calls the queue's API during an hour of simulated time. The tables are in memory and count read
units by the sizes of rows. A tick comes every two minutes. Nothing else uses the queue, so no reads are shared.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from api_contract.models import JobDetail
from benchmarks import prices  # noqa: E402
from job_queue.adapters.items import job_item, live_key  # noqa: E402
from job_queue.domain.job import Job  # noqa: E402
from job_queue.services.outlook import OutlookService  # noqa: E402
from local_cloud.dynamodb.key_throttle import PartitionKey  # noqa: E402
from local_cloud.dynamodb.units import Item, query_units, size_of  # noqa: E402
from sagemaker_queue.workflows.job_logs.follower import Follower  # noqa: E402
from tests.jobs import a_job  # noqa: E402
from tests.memory_tables import MemoryTables  # noqa: E402
from tests.queue_harness import Harness  # noqa: E402
from tests.unit.queue_api import Api  # noqa: E402

HOUR = 3600.0
TICK_SECONDS = 120.0  # less than the age at which a plan, or an outlook, counts as old
MEMORY_GB = 1.0  # memory of the function, as in template.yaml
CALL_SECONDS = 0.005  # seconds that the function waits for one call of DynamoDB
OWN_SECONDS = 0.010  # assumed processor time of the function per request; the benchmark prints its own measurement
LOOK_AHEAD_SECONDS = 2.0  # processor time for each computation of the outlook
LOG_BYTES = 600  # logged by Lambda for one invocation


class HourOverError(Exception):
    """The simulated hour is over."""


class CountedTables(MemoryTables):
    """Tables in memory that count the calls that read, and their read units.

    :param whole: the tables with the rows.
    :param consistent: whether reads are strongly consistent, which doubles their units.
    """

    def __init__(self, whole: MemoryTables, *, consistent: bool) -> None:
        super().__init__()
        self.rows = whole.rows
        self._consistent = consistent
        self.units = 0.0
        self.calls = 0

    def _read(self, key: PartitionKey, rows: Sequence[Item], *, consistent: bool = True) -> None:
        self.calls += 1
        self.units += query_units(map(size_of, rows), consistent=consistent and self._consistent)


@dataclass(frozen=True)
class Watch:
    """The requests of one follower in an hour, and their use of the function and the tables."""

    requests: int
    read_units: float
    calls: int
    own_seconds: float  # measured processor time of the requests

    @property
    def lambda_seconds(self) -> float:
        """The seconds for which the function runs."""
        return self.requests * OWN_SECONDS + self.calls * CALL_SECONDS

    @property
    def cents(self) -> float:
        """The price of the hour, in cents."""
        dollars = (
            self.requests * (prices.API_REQUEST + prices.LAMBDA_REQUEST)
            + self.lambda_seconds * MEMORY_GB * prices.LAMBDA_ARM_GB_SECOND
            + self.read_units * prices.READ_UNIT
            + self.requests * LOG_BYTES / 1e9 * prices.LOG_GB
        )
        return 100 * dollars


def a_queue(active: int, waiting: int) -> Harness:
    """Return a queue with a full fleet and waiting jobs, the last of which is called `followed`."""
    queue = Harness(slots=active)
    for number in range(active):
        queue.accept(f"a-job-that-runs-{number:04}", 5)
    queue.wake()
    for number in range(waiting - 1):
        _store(queue, a_job(f"a-job-that-waits-{number:04}", priority=2))
    queue.submit("followed", 1, HyperParameters={f"parameter-{number}": "x" * 50 for number in range(40)})
    queue.tick(0)
    return queue


def _store(queue: Harness, job: Job) -> None:
    key = live_key(job)
    assert key
    queue.tables.rows["sagemaker-queue-lines", key["line"], key["position"]] = {**key, **job_item(job)}


def watch_for_an_hour(queue: Harness, *, foreseen: bool) -> Watch:
    """Follow a waiting job for an hour in which its state does not change.

    :param foreseen: whether the queue computes an outlook, which may have the expected start of the job.
    """
    consistent, eventual = CountedTables(queue.tables, consistent=True), CountedTables(queue.tables, consistent=False)
    api = Api(queue=queue, consistent=consistent, eventual=eventual)
    outlook = OutlookService(queue.repository, queue.dry_run.cluster, queue.clock)
    end = queue.now + HOUR
    next_tick = queue.now
    own = 0.0

    def pause(seconds: float) -> None:
        nonlocal next_tick
        until = queue.now + seconds
        while next_tick <= min(until, end):
            queue.now = next_tick
            queue.tick(0)
            if foreseen:
                stop = time.process_time() + LOOK_AHEAD_SECONDS
                outlook.refresh(lambda: time.process_time() < stop)  # noqa: B023  (called before `stop` changes)
            next_tick += TICK_SECONDS
        queue.now = until
        if until >= end:
            raise HourOverError

    class Asked:
        """A stand-in for the client. It calls the queue's API directly, and measures the processor time."""

        requests = 0

        def job(self, name: str) -> JobDetail:
            nonlocal own
            began = time.process_time()
            status, answer = api.call("GET", f"/jobs/{name}")
            own += time.process_time() - began
            assert (status, answer["state"]) == (200, "pending")
            self.requests += 1
            return JobDetail.from_json(answer)

    asked: Any = Asked()
    with suppress(HourOverError):
        pause(0)
        for _ in Follower(asked, None, pause=pause).follow("followed"):
            pass
    units, calls = consistent.units + eventual.units, consistent.calls + eventual.calls
    return Watch(asked.requests, units, calls, own)


def main() -> int:
    """Print the table: a small and a large queue, with and without an outlook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--active", type=int, default=500)
    parser.add_argument("--waiting", type=int, default=500)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| active + waiting | start foreseen | requests | read units | Lambda ms each (own here) | cents |")
    print("|---|---|---|---|---|---|")
    for active, waiting in ((10, 10), (arguments.active, arguments.waiting)):
        for foreseen in (True, False):
            watch = watch_for_an_hour(a_queue(active, waiting), foreseen=foreseen)
            each = 1000 * watch.lambda_seconds / watch.requests
            own = 1000 * watch.own_seconds / watch.requests
            print(
                f"| {active} + {waiting} | {'yes' if foreseen else 'no'} | {watch.requests} | {watch.read_units:.0f} "
                f"| {each:.0f} ({own:.1f}) | {watch.cents:.3f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
