"""Answers of an older or a newer queue: what is missing or unknown does no harm."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from api_contract.models import JobSummary
from api_contract.routes import OPERATIONS
from api_contract.shape import Answer, UnreadableError

texts = st.text(max_size=20)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2100, 1, 1), timezones=st.one_of(st.none(), st.timezones()))
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def json_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """What any version of the queue may send for a type of an answer."""
    if isinstance(kind, inspect.StructType):
        known = {field.encode_name: json_of(field.type) for field in kind.fields}
        required = {field.encode_name: known.pop(field.encode_name) for field in kind.fields if field.required}
        optional = {name: st.none() | value for name, value in known.items()}
        unknown = st.dictionaries(texts.map(lambda name: "new-" + name), anything, max_size=2)
        sent = st.fixed_dictionaries(required, optional=optional)
        return st.builds(lambda extra, content: {**extra, **content}, unknown, sent)
    if isinstance(kind, inspect.Metadata):
        return json_of(kind.type)
    if isinstance(kind, inspect.UnionType):
        return st.one_of([json_of(inner) for inner in kind.types])
    if isinstance(kind, inspect.VarTupleType):
        return st.lists(json_of(kind.item_type), max_size=2)
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(texts, json_of(kind.value_type), max_size=2)
    return SCALARS[type(kind)]


SCALARS: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.AnyType: anything,
    inspect.BoolType: st.booleans(),
    inspect.DateTimeType: moments.map(lambda moment: moment.isoformat()),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.IntType: st.integers(-(2**31), 2**31),
    inspect.NoneType: st.none(),
    inspect.StrType: texts,
}


# Written in UTC, however they were sent.
TIMES = {
    "entryTime",
    "started",
    "stateSince",
    "appliedAt",
    "cutOff",
    "opens",
    "closes",
    "expectedEnd",
    "idleSince",
    "hungSince",
    "secondaryStatusSince",
    "unsavedSince",
    "notBefore",
    "startBy",
    "at",
    "until",
}
ANSWERS = [operation.answer for operation in OPERATIONS]


@given(st.sampled_from(ANSWERS).flatmap(lambda kind: st.tuples(st.just(kind), json_of(inspect.type_info(kind)))))
def test_every_answer_can_be_read_and_written_again(case: tuple[type[Answer], dict[str, Any]]) -> None:
    kind, sent = case
    answer = kind.from_json(sent)
    written = answer.to_json()
    assert kind.from_json(written) == answer
    for name in sent.keys() & written.keys() - TIMES:
        if isinstance(sent[name], (str, int)):
            assert written[name] == sent[name]


@pytest.mark.parametrize("missing", ["job", "state"])
def test_what_cannot_be_missing_is_named(missing: str) -> None:
    data = {"job": "job1", "state": "running"}
    del data[missing]
    with pytest.raises(UnreadableError, match=f"required field `{missing}`"):
        JobSummary.from_json(data)


def test_a_time_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(UnreadableError, match=r"datetime - at `\$.entryTime`"):
        JobSummary.from_json({"job": "job1", "state": "running", "entryTime": "yesterday"})


def test_slots_that_are_none_are_a_clear_error() -> None:
    with pytest.raises(UnreadableError, match=r"`object`, got `array` - at `\$.slots`"):
        JobSummary.from_json({"job": "job1", "state": "running", "slots": [1]})
