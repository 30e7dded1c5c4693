"""DynamoDB throttles partition keys: cycles are tried again within their time, and submissions lose nothing."""

from typing import Any

import pytest

from job_queue.adapters.dynamodb import Delete, Put, Update
from job_queue.domain.errors import Unavailable
from local_cloud.dynamodb.key_throttle import AWS_LIMITS, KeyAccess, KeyLimits, KeyThrottle, PartitionKey
from tests.jobs import OWNER, a_body
from tests.metered_tables import PatientTables, Throttled, UnitTables
from tests.payloads import api_event
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

LINES = "sagemaker-queue-lines"
CONTROL = PartitionKey(LINES, "control")


def throttled_harness(limits: KeyLimits = AWS_LIMITS, slots: int = 2) -> Harness:
    """A queue whose tables have the clock of its test."""
    clock: list[Harness] = []
    now = lambda: clock[0].now if clock else 0.0  # noqa: E731
    sleep = lambda seconds: clock[0].sleep(seconds)  # noqa: E731, PLW0108  (the queue is made later)
    queue = Harness(slots, PatientTables(limits, now, sleep))
    clock.append(queue)
    return queue


def exhaust(queue: Harness, key: PartitionKey, seconds: float, access: KeyAccess = KeyAccess.WRITE) -> None:
    """Leave a key without units for so long."""
    assert isinstance(queue.tables, UnitTables)
    throttle = queue.tables.throttle
    assert throttle
    limit = AWS_LIMITS.of(access)
    throttle.charge(access, {key: limit * (1 + seconds)})


def test_a_cycle_whose_key_is_throttled_is_tried_again_in_the_same_invocation() -> None:
    queue = throttled_harness()
    queue.submit("job1", 1)
    accepted = queue.accept("job2", 1)
    reads = queue.repository.active

    def hot() -> Any:
        queue.repository.active = reads  # type: ignore[method-assign]
        raise Unavailable("DynamoDB answered ThrottlingException; send the same request again.")

    queue.repository.active = hot  # type: ignore[method-assign]
    began = queue.now
    queue.controller.wake(queue.invocation(may_wait=True))
    assert queue.state(accepted.record.job.name) == "running"
    assert queue.now - began < 10


@pytest.mark.parametrize("access", list(KeyAccess))
def test_jobs_start_when_the_key_of_the_metadata_has_units_again(access: KeyAccess) -> None:
    queue = throttled_harness(slots=3)
    queue.submit("job1", 1)
    for number in range(2, 4):
        queue.accept(f"job{number}", 1)
    exhaust(queue, CONTROL, 15, access)
    queue.tick()
    queue.tick()
    assert queue.states() == {"job1": "running", "job2": "running", "job3": "running"}


def test_a_throttled_submission_is_answered_with_503_and_retry_after_and_the_same_request_succeeds() -> None:
    queue = throttled_harness()
    api = Api(queue=queue)
    exhaust(queue, PartitionKey("sagemaker-queue", "job1"), 60)
    event = api_event("POST", "/add-job", body=a_body("job1"), caller=OWNER)
    refused = api.resolver.resolve(event, {})  # type: ignore[arg-type]
    assert refused["statusCode"] == 503
    assert int(refused["multiValueHeaders"]["Retry-After"][0]) >= 1
    assert queue.repository.record("job1") is None, "nothing of it is stored"
    queue.now += 60
    accepted = api.resolver.resolve(event, {})  # type: ignore[arg-type]
    assert accepted["statusCode"] in (200, 201, 202)
    assert queue.repository.record("job1")


def test_a_submission_that_is_stored_is_accepted_though_its_cycle_is_throttled() -> None:
    queue = throttled_harness()
    queue.submit("job1", 1)
    api = Api(queue=queue)
    original = queue.repository.raise_generation

    def hot() -> int:
        exhaust(queue, CONTROL, 60)
        return original()

    queue.repository.raise_generation = hot  # type: ignore[method-assign]
    event = api_event("POST", "/add-job", body=a_body("job2"), caller=OWNER)
    assert api.resolver.resolve(event, {})["statusCode"] in (200, 201, 202)  # type: ignore[arg-type]
    queue.repository.raise_generation = original  # type: ignore[method-assign]
    queue.tick(120)
    assert queue.state("job2") == "running"


# --- the tables that throttle ------------------------------------------------------------------------


def test_units_are_those_of_dynamodb() -> None:
    tables = UnitTables()

    def units(access: KeyAccess, work: Any) -> float:
        before = tables.units[access]
        work()
        return tables.units[access] - before

    def row(position: str, size: int) -> dict[str, Any]:
        return {"line": "a", "position": position, "text": "x" * size}

    assert (
        units(KeyAccess.WRITE, lambda: tables.update(Update(LINES, {"line": "a", "position": "1"}, set={"n": 1}))) == 1
    )
    assert units(KeyAccess.WRITE, lambda: tables.transact([Put(LINES, row("2", 3000))])) == 6  # 3 KB, in a transaction
    assert units(KeyAccess.WRITE, lambda: tables.transact([Put(LINES, row("2", 10))])) == 6  # the larger version counts
    assert units(KeyAccess.WRITE, lambda: tables.transact([Delete(LINES, {"line": "a", "position": "2"})])) == 2
    assert units(KeyAccess.READ, lambda: tables.get(LINES, {"line": "a", "position": "1"})) == 1
    assert units(KeyAccess.READ, lambda: tables.get(LINES, {"line": "a", "position": "9"})) == 1  # nothing is found
    tables.transact([Put(LINES, row(f"{number}", 1000)) for number in range(3, 9)])
    assert units(KeyAccess.READ, lambda: tables.query(LINES, "a")) == 2  # sizes are added before they are rounded
    assert units(KeyAccess.READ, lambda: tables.query(LINES, "b")) == 1


def test_a_key_is_throttled_alone_until_its_units_are_back() -> None:
    now = [0.0]
    throttle = KeyThrottle(KeyLimits(reads=10, writes=5), lambda: now[0])
    one, other = PartitionKey(LINES, "a"), PartitionKey(LINES, "b")
    throttle.charge(KeyAccess.WRITE, {one: 10})
    assert throttle.exhausted(KeyAccess.WRITE, [other, one]) == one
    assert throttle.exhausted(KeyAccess.READ, [one]) is None
    now[0] = 1.0
    assert throttle.exhausted(KeyAccess.WRITE, [one]) == one, "as much as it had too much"
    now[0] = 1.1
    assert throttle.exhausted(KeyAccess.WRITE, [one]) is None
    now[0] = 1000.0
    throttle.charge(KeyAccess.WRITE, {one: 5})
    assert throttle.exhausted(KeyAccess.WRITE, [one]) == one, "no more than a second's units are saved up"


def test_a_throttled_transaction_changes_nothing() -> None:
    tables = UnitTables(KeyLimits(1, 1))
    tables.transact([Put(LINES, {"line": "a", "position": "1"})])
    with pytest.raises(Throttled):
        tables.transact([Put(LINES, {"line": "b", "position": "1"}), Put(LINES, {"line": "a", "position": "2"})])
    assert set(tables.rows) == {(LINES, "a", "1")}
