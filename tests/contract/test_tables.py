"""What the five verbs promise, and what DynamoDB refuses them, on each database."""

from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from job_queue.adapters.dynamodb import Check, Delete, Put, Update
from job_queue.domain.errors import Refused, Unavailable
from tests.contract.conftest import Database
from tests.waiting import until

KB = 1000
WRONG = (Unavailable, ValueError, TypeError, KeyError)  # DynamoDB says no; the tables in memory may say more
LINE = "waiting#default#ml.p5.48xlarge"


def live(database: Database, position: str, **attributes: Any) -> Put:
    return Put(database.lines, {"line": LINE, "position": position, **attributes})


def key(position: str) -> dict[str, str]:
    return {"line": LINE, "position": position}


def positions(database: Database, *bounds: Any) -> list[str]:
    return [row["position"] for row in database.tables.query(database.lines, LINE, *bounds)]


def finished(database: Database, name: str, since: str) -> Put:
    return Put(database.jobs, {"jobName": name, "finished": "yes", "stateSince": since})


# --- rows ---------------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was_put(database: Database) -> None:
    row = {
        **{"jobName": "job1", "text": "größer ☂", "empty": "", "yes": True, "nothing": None, "number": -(10**30)},
        **{"list": [], "nested": {"a": [{"b": 1}], "c": {}}},
    }
    database.tables.transact([Put(database.jobs, row)])
    assert database.tables.get(database.jobs, {"jobName": "job1"}) == row
    assert database.tables.get(database.jobs, {"jobName": "job2"}) is None


def test_a_number_that_is_not_whole_is_refused(database: Database) -> None:
    with pytest.raises(WRONG):
        database.tables.transact([Put(database.jobs, {"jobName": "job1", "number": 0.5})])
    with pytest.raises(WRONG):
        database.tables.update(Update(database.jobs, {"jobName": "job1"}, set={"deep": [{"number": 0.5}]}))


@pytest.mark.parametrize("name", ["", "ö" * 1025])
def test_a_key_has_letters_and_at_most_2048_bytes(database: Database, name: str) -> None:
    with pytest.raises(WRONG):
        database.tables.transact([Put(database.jobs, {"jobName": name})])
    with pytest.raises(WRONG):
        database.tables.get(database.jobs, {"jobName": name})
    database.tables.transact([Put(database.jobs, {"jobName": "ö" * 1024})])


@pytest.mark.parametrize("position", ["", "ö" * 513])
def test_a_position_has_letters_and_at_most_1024_bytes(database: Database, position: str) -> None:
    with pytest.raises(WRONG):
        database.tables.transact([live(database, position)])
    database.tables.transact([live(database, "ö" * 512)])


def test_a_row_has_at_most_400_kilobytes(database: Database) -> None:
    database.tables.transact([Put(database.jobs, {"jobName": "job1", "jobDetails": "x" * 399 * KB})])
    with pytest.raises(WRONG):
        database.tables.transact([Put(database.jobs, {"jobName": "job2", "jobDetails": "x" * 410 * KB})])
    with pytest.raises(WRONG):
        database.tables.update(Update(database.jobs, {"jobName": "job1"}, set={"more": "x" * 11 * KB}))
    assert database.tables.get(database.jobs, {"jobName": "job2"}) is None
    row = database.tables.get(database.jobs, {"jobName": "job1"})
    assert row is not None
    assert "more" not in row


# --- updates ------------------------------------------------------------------------------------------


def test_an_update_changes_what_it_names_and_makes_a_row_that_is_not_there(database: Database) -> None:
    made = database.tables.update(Update(database.jobs, {"jobName": "job1"}, set={"a": 1, "list": [1]}, add={"n": 2}))
    assert made == {"jobName": "job1", "a": 1, "list": [1], "n": 2}
    changed = Update(database.jobs, {"jobName": "job1"}, add={"n": 3}, append={"list": [2]}, remove=["a", "missing"])
    assert database.tables.update(changed) == {"jobName": "job1", "list": [1, 2], "n": 5}


def test_an_update_that_changes_nothing_is_refused(database: Database) -> None:
    """An empty UpdateExpression is no expression."""
    database.tables.update(Update(database.jobs, {"jobName": "job1"}, set={"a": 1}))
    with pytest.raises(WRONG):
        database.tables.transact([Update(database.jobs, {"jobName": "job1"}, when=Attr("a").eq(1)), *_two(database)])


def test_nothing_is_appended_to_a_list_that_is_not_there(database: Database) -> None:
    with pytest.raises(WRONG):
        database.tables.update(Update(database.jobs, {"jobName": "job1"}, append={"list": [1]}))
    assert database.tables.get(database.jobs, {"jobName": "job1"}) is None


def test_what_is_no_number_is_not_added_to(database: Database) -> None:
    database.tables.update(Update(database.jobs, {"jobName": "job1"}, set={"text": "x"}))
    with pytest.raises(WRONG):
        database.tables.update(Update(database.jobs, {"jobName": "job1"}, add={"text": 1}))


# --- conditions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        (Attr("n").lt(6), True),
        (Attr("n").lt(5), False),
        (Attr("missing").lt(6), False),
        (Attr("text").lt(6), False),
        (Attr("n").gt(4), True),
        (Attr("n").gt(5), False),
        (Attr("missing").gt(4), False),
        (Attr("text").gt(4), False),
        (Attr("n").eq(5), True),
        (Attr("n").eq("5"), False),
        (Attr("one").eq(True), False),
        (Attr("missing").eq(5), False),
        (Attr("nothing").eq(None), True),
        (Attr("missing").eq(None), False),
        (Attr("nothing").exists(), True),
        (Attr("nothing").not_exists(), False),
        (Attr("missing").not_exists() | Attr("n").lt(5), True),
        (Attr("missing").not_exists() & Attr("n").lt(5), False),
    ],
    ids=lambda value: str(value.get_expression()["operator"]) if hasattr(value, "get_expression") else str(value),
)
def test_a_condition_is_about_what_is_there(database: Database, condition: Any, met: bool) -> None:
    database.tables.transact([Put(database.jobs, {"jobName": "job1", "n": 5, "one": 1, "text": "x", "nothing": None})])
    change = Update(database.jobs, {"jobName": "job1"}, set={"changed": True}, when=condition)
    if met:
        assert database.tables.update(change)["changed"] is True
        return
    with pytest.raises(Refused) as refused:
        database.tables.update(change)
    assert refused.value.items[0]["n"] == 5


def test_a_refused_transaction_tells_which_rows_and_leaves_all_as_it_was(database: Database) -> None:
    database.tables.transact([live(database, "a", n=1), live(database, "b", n=2)])
    with pytest.raises(Refused) as refused:
        database.tables.transact(
            [
                live(database, "c"),
                Delete(database.lines, key("a"), Attr("n").eq(7)),
                Check(database.lines, key("none"), Attr("line").exists()),
                Update(database.lines, key("b"), set={"n": 9}),
            ]
        )
    assert refused.value.items == {1: {**key("a"), "n": 1}, 2: {}}
    assert [row.get("n") for row in database.tables.query(database.lines, LINE)] == [1, 2]


# --- transactions -------------------------------------------------------------------------------------


def test_a_transaction_has_at_most_a_hundred_writes(database: Database) -> None:
    rows = [live(database, f"{number:03}") for number in range(101)]
    with pytest.raises(WRONG):
        database.tables.transact(rows)
    database.tables.transact(rows[:100])
    assert len(positions(database)) == 100


def test_a_transaction_has_one_write_at_least(database: Database) -> None:
    with pytest.raises(WRONG):
        database.tables.transact([])


def test_a_transaction_writes_a_row_once(database: Database) -> None:
    with pytest.raises(WRONG):
        database.tables.transact([live(database, "a"), Delete(database.lines, key("a"))])
    assert positions(database) == []


def test_a_transaction_has_at_most_4_megabytes(database: Database) -> None:
    rows = [Put(database.jobs, {"jobName": f"job{number}", "jobDetails": "x" * 390 * KB}) for number in range(11)]
    with pytest.raises(WRONG):
        database.tables.transact(rows)
    database.tables.transact(rows[:10])


# --- queries ------------------------------------------------------------------------------------------


def test_a_line_is_ordered_by_the_bytes_of_its_positions(database: Database) -> None:
    given = ["b", "a", "Z", "ä", "10", "9", "☂", "😀", "￼"]
    database.tables.transact([live(database, position) for position in given])
    assert positions(database) == sorted(given, key=str.encode)


def test_a_line_can_be_read_in_parts(database: Database) -> None:
    database.tables.transact([live(database, position) for position in "abcd"])
    assert positions(database, 2) == ["a", "b"]
    assert positions(database, 2, "b") == ["c", "d"]
    assert positions(database, None, "bb") == ["c", "d"]
    assert positions(database, 9, "d") == []


def test_a_line_of_more_than_a_megabyte_is_read_whole(database: Database) -> None:
    """DynamoDB answers at most 1 MB at a time."""
    for position in "abcdef":
        database.tables.transact([live(database, position, details="x" * 300 * KB)])
    assert positions(database) == list("abcdef")
    assert positions(database, 5) == list("abcde")


def test_an_index_lists_what_has_its_attribute_in_pages_latest_first(database: Database) -> None:
    database.tables.transact([Put(database.jobs, {"jobName": "live", "stateSince": "2026-01-09"})])
    database.tables.transact([finished(database, f"job{n}", f"2026-01-0{n}") for n in range(1, 5)])
    assert until(lambda: _index(database, 3) == ["job4", "job3", "job2", "job1"])
    first, after = database.tables.page(database.jobs, "finished", 2, None)
    database.tables.transact([Delete(database.jobs, {"jobName": first[-1]["jobName"]})])
    assert until(lambda: _index(database, 3) == ["job4", "job2", "job1"])
    second, _ = database.tables.page(database.jobs, "finished", 2, after)
    assert [row["jobName"] for row in second] == ["job2", "job1"]


def test_a_page_that_is_full_may_have_an_empty_one_behind_it(database: Database) -> None:
    """DynamoDB does not look whether there is more."""
    database.tables.transact([finished(database, f"job{n}", f"2026-01-0{n}") for n in (1, 2)])
    assert until(lambda: len(_index(database, 9)) == 2)
    _, after = database.tables.page(database.jobs, "finished", 2, None)
    assert after is not None
    assert database.tables.page(database.jobs, "finished", 2, after) == ([], None)


def test_rows_of_the_same_moment_come_once_each(database: Database) -> None:
    database.tables.transact([finished(database, f"job{n}", "2026-01-01") for n in range(7)])
    assert until(lambda: sorted(_index(database, 2)) == [f"job{n}" for n in range(7)])


def _index(database: Database, limit: int) -> list[str]:
    """All names in the index, read page by page."""
    names: list[str] = []
    after = None
    while True:
        rows, after = database.tables.page(database.jobs, "finished", limit, after)
        names += [row["jobName"] for row in rows]
        if after is None:
            return names


def _two(database: Database) -> list[Put]:
    return [live(database, "a"), live(database, "b")]
