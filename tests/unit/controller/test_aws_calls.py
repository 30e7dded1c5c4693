"""What a submission and an event cost: AWS calls one after the other, up to CreateTrainingJob, whatever the backlog."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from job_queue.adapters.items import job_item, live_key
from job_queue.adapters.metadata import Policies
from job_queue.adapters.records.outlook_record import OUTLOOK
from job_queue.controller.cycle import Controller
from job_queue.services.submission import SubmissionService
from tests.jobs import a_job
from tests.queue_harness import Harness
from tests.unit.controller.test_carriers import share, submit

MOST = 6
QUIET_TICK = 12  # calls of a tick that finds nothing to do
MOST_OF_FIRST = 8


class Meter:
    """Counts calls: all of them, and how many wait for one another."""

    def __init__(self, queue: Harness) -> None:
        self.total = self.depth = self.depth_at_create = self.rows = 0
        for verb in ("get", "query", "page", "update", "transact"):
            self._count(queue.tables, verb)
        for verb in ("create", "describe", "stop", "page"):
            self._count(queue.training, verb)
        training: Any = queue.training
        policy = Policies(queue.settings.max_capacity)
        queue.submissions = SubmissionService(
            queue.repository, training, policy, queue.settings, queue.clock, self.parallel
        )
        queue.controller = Controller(queue.repository, training, policy, queue.clock, self.parallel)

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Calls at the same time wait as long as the longest of them."""
        before, deepest, answers = self.depth, self.depth, []
        for call in calls:
            self.depth = before
            answers.append(call())
            deepest = max(deepest, self.depth)
        self.depth = deepest
        return answers

    def _count(self, owner: object, verb: str) -> None:
        original = getattr(owner, verb)

        def counted(*args: Any, **options: Any) -> Any:
            self.total += 1
            self.depth += 1
            if verb == "create":
                self.depth_at_create = self.depth
            answer = original(*args, **options)
            self.rows += len(answer) if verb == "query" else verb == "get"
            return answer

        setattr(owner, verb, counted)


def a_queue_with(backlog: int) -> Harness:
    """One slot, which is taken."""
    queue = Harness(slots=1)
    queue.submit("first", 1)
    for number in range(backlog):
        job = a_job(f"waiting{number}", priority=0)
        key = live_key(job)
        assert key
        queue.tables.rows["sagemaker-queue-lines", key["line"], key["position"]] = {**key, **job_item(job)}
    return queue


def submission_cost(backlog: int) -> Meter:
    queue = a_queue_with(backlog)
    queue.training.end("first-qstamp-1")
    queue.controller.reconciler.handle_event(queue.training.event("first-qstamp-1"))
    meter = Meter(queue)
    accepted = queue.accept("job1", 9)
    queue.controller.wake(queue.invocation(), accepted.metadata)
    assert queue.state("job1") == "running"
    return meter


def event_cost(backlog: int) -> Meter:
    """The end of an attempt that makes room, after which another job starts."""
    queue = a_queue_with(backlog)
    queue.submit("job1", 9)
    assert queue.states()["first"] == "stopping"
    queue.training.end("first-qstamp-1", "Stopped")
    meter = Meter(queue)
    queue.event("first-qstamp-1")
    assert queue.state("job1") == "running"
    return meter


@pytest.mark.parametrize("cost", [submission_cost, event_cost])
def test_few_calls_in_sequence_lead_to_a_launch_whatever_the_backlog(cost: Callable[[int], Meter]) -> None:
    none, some, many = (cost(backlog) for backlog in (0, 100, 10_000))
    assert max(meter.depth_at_create for meter in (none, some, many)) <= MOST
    assert 3 < none.depth_at_create < none.total, "the meter sees which calls wait for one another"
    assert (some.total, some.rows) == (many.total, many.rows)
    assert some.rows > 100


def tick_cost(queue: Harness) -> int:
    meter = Meter(queue)
    queue.tick()  # the first cycle of a process publishes its plan, as it does not know what is published
    before = meter.total
    queue.tick()
    return meter.total - before


def test_a_tick_makes_no_call_more_where_instances_could_be_shared_and_none_is() -> None:
    plain, shared = Harness(slots=2), Harness(slots=2)
    share(shared, 2)
    for queue in (plain, shared):
        queue.tick()
    assert tick_cost(shared) == tick_cost(plain) == QUIET_TICK
    submit(shared, "m0")
    assert tick_cost(shared) > QUIET_TICK


def test_a_tick_that_cannot_compare_makes_no_call_more_to_report_it() -> None:
    queue = Harness(slots=2)
    queue.tick()
    queue.training.down = True
    assert tick_cost(queue) < QUIET_TICK


def test_a_first_job_of_its_kind_takes_one_more_look() -> None:
    queue = Harness(slots=1)
    queue.wake()
    meter = Meter(queue)
    accepted = queue.accept("job1", 9)
    queue.controller.wake(queue.invocation(), accepted.metadata)
    assert queue.state("job1") == "running"
    assert meter.depth_at_create <= MOST_OF_FIRST


@pytest.mark.parametrize(
    ("settings", "waited", "rows"),
    [
        pytest.param({}, 1800, [], id="within patience"),
        pytest.param({}, 1900, ["told"], id="longer than patience"),
        pytest.param({"patience": 600}, 700, ["told"], id="a shorter patience"),
        pytest.param({"patience": None}, 1900, [], id="no patience"),
        pytest.param({"backfill": "bounded"}, 1900, [], id="bounded"),
        pytest.param({"order": "shortest"}, 60, ["told"], id="shortest first"),
        pytest.param({"order": "shortest"}, 1900, ["told"], id="shortest first, longer than patience"),
        pytest.param({"usage_half_life": 600}, 1900, ["latest"], id="past use"),
    ],
)
def test_a_cycle_reads_expected_runtimes_only_if_its_plan_depends_on_them(
    settings: dict[str, Any], waited: float, rows: list[str]
) -> None:
    queue = Harness(slots=1)
    document = {"pools": [{"name": "default", "capacity": 1}], "projects": [{"name": "default"}], "settings": settings}
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)
    queue.submit("runs")
    queue.submit("waits", instances=1)
    queue.now += waited
    read: list[str] = []
    get = queue.tables.get

    def counted(table: str, key: Any, **options: Any) -> Any:
        read.extend([key["position"]] if key.get("line") == OUTLOOK else [])
        return get(table, key, **options)

    queue.tables.get = counted  # type: ignore[method-assign]
    queue.wake()
    assert read == rows
