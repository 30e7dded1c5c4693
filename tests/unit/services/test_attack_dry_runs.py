"""Somebody floods POST /plan, and looks at everything, while somebody else submits: nobody waits for a dry run."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from job_queue.adapters.dynamodb import Item, Key
from job_queue.adapters.sagemaker import LaunchResult
from tests.jobs import a_body
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness
from tests.unit.queue_api import STRANGER, Api

pytestmark = pytest.mark.attack

LOOKS = [
    ("POST", "/plan"),
    ("POST", "/policy/preview"),
    ("GET", "/queue"),
    ("GET", "/jobs"),
    ("GET", "/jobs/waits"),
    ("GET", "/policy"),
]
BODIES = {"/plan": a_body("mine"), "/policy/preview": '{"capacity": {"default": 3}, "hours": 0.5}'}


class Counting(MemoryTables):
    """Tables that note what is read, and how many rows at most."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []

    def get(self, table: str, key: Key) -> Item | None:
        row = super().get(table, key)
        self.reads.append(("get", 1))
        return row

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        rows = super().query(table, line, limit, after)
        self.reads.append(("query", len(rows) if limit is None else limit))
        return rows


def look(api: Api) -> None:
    """Everything that changes nothing, once."""
    for method, path in LOOKS:
        status, answer = api.call(method, path, BODIES.get(path), STRANGER)
        assert status == 200, answer


def test_a_flood_in_the_middle_of_a_cycle_changes_and_delays_nothing() -> None:
    api = Api(slots=1)
    queue = api.queue
    queue.submit("runs", 9)
    queue.submit("waits", 1)
    create = queue.training.create
    floods = 0

    def create_in_a_flood(request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        nonlocal floods
        before = copy.deepcopy(queue.tables.rows)
        for _ in range(20):
            look(api)
            floods += 1
        assert queue.tables.rows == before, "no lease, no wake-up, no row"
        return create(request)

    queue.training.create = create_in_a_flood  # type: ignore[method-assign]
    queue.end("runs-qstamp-1")
    assert floods == 20
    assert queue.state("waits") == "running", "the cycle has kept its lease and gone on"


@pytest.mark.parametrize(("method", "path"), LOOKS)
def test_each_look_reads_no_more_the_more_wait(method: str, path: str) -> None:
    reads = []
    for jobs in (120, 300):
        tables = Counting()
        api = Api(queue=Harness(slots=1, tables=tables))
        api.queue.accept("waits", 9)
        for number in range(jobs):
            api.queue.accept(f"job{number}", 1)
        tables.reads.clear()
        status, answer = api.call(method, path, BODIES.get(path), STRANGER)
        assert status == 200, answer
        reads.append(tables.reads)
    assert reads[0] == reads[1]
    assert len(reads[0]) <= 12
    assert sum(rows for _, rows in reads[0]) <= 300
