"""What remains of attempts: written with their ends, read by ranges of time."""

from dataclasses import replace

import pytest

from job_queue.adapters.dynamodb import Tables
from job_queue.adapters.job_repository import JobRepository, writes_of
from job_queue.adapters.records.attempt_history import MOST_DAYS, AttemptHistory
from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import AttemptRecord, EndReport, MeasuredUtilization
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.job import iso
from tests.contract.conftest import HISTORY_SECONDS, USAGE_SECONDS, Database
from tests.contract.test_job_repository import _record, leased, running
from tests.jobs import NOW, OWNER, P5
from tests.memory_tables import MemoryTables

DAY = 86_400
LATER = NOW + 100 * DAY


@pytest.fixture
def history(database: Database) -> AttemptHistory:
    return AttemptHistory(database.tables, database.history, USAGE_SECONDS)


def an_account(ended: float, name: str = "job1", **changes: object) -> AttemptRecord:
    account = AttemptRecord(
        job=name,
        submission="s1",
        attempt=1,
        training_job_name=f"{name}-qstamp-1",
        project="default",
        owner=OWNER,
        outcome="completed",
        priority=-3,
        slots={"p5": 2},
        instances={P5: 2},
        submitted=iso(NOW),
        waiting_since=iso(NOW),
        launched=iso(NOW),
        ended=iso(ended),
    )
    return replace(account, **changes)  # type: ignore[arg-type]


def kept(tables: Tables, history: AttemptHistory, *accounts: AttemptRecord) -> None:
    for account in accounts:
        tables.transact([history.write(account)])


def everything(history: AttemptHistory, since: float, until: float, limit: int, now: float = LATER) -> list[list[str]]:
    """The jobs of each page."""
    pages, after = [], None
    while True:
        page = history.page(since, until, limit, now, after)
        pages.append([found.job for found in page.attempts])
        after = page.following
        if after is None:
            return pages


def test_an_end_is_recorded_with_what_remains_of_its_attempt(
    repository: JobRepository, history: AttemptHistory
) -> None:
    job = running(repository, leased(repository))
    record = _record(repository)
    report = EndReport(NOW + 1, NOW + 60, NOW + 120.5, {P5: 2}, "spot", "research")
    end = state_machine.end(record, Ending("Completed", report=report), NOW + 121)
    repository.apply(end, NOW + 121)
    (found,) = history.page(NOW, NOW + DAY, 10, NOW + 121).attempts
    assert found == end.account
    assert (found.job, found.began, found.ended) == (job.name, iso(NOW + 60), iso(NOW + 120.5))
    assert (found.department, found.market, found.instances) == ("research", "spot", {P5: 2})


def test_of_two_that_end_the_same_attempt_one_is_refused(repository: JobRepository, history: AttemptHistory) -> None:
    running(repository, leased(repository))
    record = _record(repository)
    repository.apply(state_machine.end(record, Ending("Completed"), NOW + 1), NOW + 1)
    with pytest.raises(Refused):
        repository.apply(state_machine.end(record, Ending("Failed"), NOW + 2), NOW + 2)
    (found,) = history.page(NOW, NOW + DAY, 10, NOW + DAY).attempts
    assert found.outcome == "completed"


def test_an_end_without_what_remains_is_not_recorded(repository: JobRepository) -> None:
    running(repository, leased(repository))
    end = state_machine.end(_record(repository), Ending("Completed"), NOW + 1)
    with pytest.raises(ValueError, match="do not agree"):
        repository.apply(replace(end, account=None), NOW + 1)


def test_the_writes_of_an_end_are_counted(repository: JobRepository) -> None:
    running(repository, leased(repository))
    end = state_machine.end(_record(repository), Ending("Completed"), NOW + 1)
    assert writes_of(end) == len(repository._transition_writes(end, NOW + 1))


def test_all_that_an_attempt_has_comes_back(tables: Tables, history: AttemptHistory) -> None:
    whole = an_account(
        NOW + 1, began=iso(NOW), department="d", group="g", market="m", made_room_for="x", borrowed=1, lost=0,
        max_runtime=5, image="train:1",
    )  # fmt: skip
    kept(tables, history, whole)
    assert history.page(NOW, NOW + 2, 10, LATER).attempts == [whole]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_go_on_over_days_in_the_order_of_ends(tables: Tables, history: AttemptHistory, limit: int) -> None:
    ends = {"a": NOW, "b": NOW + 1, "c": NOW + 1.5, "d": NOW + 3 * DAY, "e": NOW + (3 + MOST_DAYS) * DAY}
    kept(tables, history, *(an_account(end, name) for name, end in reversed(ends.items())))
    pages = everything(history, NOW, LATER, limit)
    assert [name for page in pages for name in page] == list(ends)
    assert max(map(len, pages)) <= limit


def test_attempts_that_ended_at_the_same_time_are_all_there(tables: Tables, history: AttemptHistory) -> None:
    kept(tables, history, *(an_account(NOW, name) for name in "abc"))
    assert everything(history, NOW, NOW + 1, 2) == [["a", "b"], ["c"]]


def test_a_range_has_its_beginning_and_not_its_end(tables: Tables, history: AttemptHistory) -> None:
    kept(tables, history, *(an_account(NOW + second, name) for second, name in enumerate("abcd")))
    assert everything(history, NOW + 1, NOW + 3, 10) == [["b", "c"]]
    assert everything(history, NOW + 1, NOW + 1, 10) == [[]]


def test_what_is_older_than_is_kept_is_not_looked_for(tables: Tables, history: AttemptHistory) -> None:
    kept(tables, history, an_account(NOW, "old"), an_account(NOW + 2, "new"))
    assert everything(history, 0, NOW + DAY, 10, now=NOW + USAGE_SECONDS + 1)[0] == ["new"]


def test_rows_expire(database: Database, history: AttemptHistory) -> None:
    kept(database.tables, history, an_account(NOW + 0.5))
    (row,) = database.tables.query(database.history, iso(NOW)[:10])
    assert row["expires"] == int(NOW) + USAGE_SECONDS


def test_while_the_table_is_not_there_an_end_waits_for_it(database: Database) -> None:
    """As in an update from a version without it, which changes the function before the tables."""
    if isinstance(database.tables, MemoryTables):
        pytest.skip("the tests' own tables are always there")
    absent = AttemptHistory(database.tables, "sagemaker-queue-nowhere", USAGE_SECONDS)
    repository = JobRepository(database.tables, database.jobs, database.lines, HISTORY_SECONDS, absent)
    running(repository, leased(repository))
    end = state_machine.end(_record(repository), Ending("Completed"), NOW + 1)
    with pytest.raises(Unavailable):
        repository.apply(end, NOW + 1)
    assert _record(repository).job.state.holds_slots
    repository.attempts = AttemptHistory(database.tables, database.history, USAGE_SECONDS)
    repository.apply(end, NOW + 1)
    assert [found.job for found in repository.attempts.page(NOW, NOW + DAY, 10, NOW + DAY).attempts] == ["job1"]


def test_the_utilization_is_added_to_its_row_and_to_no_row_that_is_gone(
    database: Database, history: AttemptHistory
) -> None:
    account, other = an_account(NOW), an_account(NOW, "job2")
    kept(database.tables, history, account)
    measured = MeasuredUtilization(gpu_mean=0, gpu_p95=3, memory_mean=12)
    for it in (account, other):
        history.note_utilization(it, measured)
    assert history.page(NOW - 1, NOW + 1, 10, LATER).attempts == [replace(account, utilization=measured)]
    history.note_utilization(account, MeasuredUtilization())
    assert history.page(NOW - 1, NOW + 1, 10, LATER).attempts == [replace(account, utilization=MeasuredUtilization())]
