"""Answers of an older or a newer queue: what is missing or unknown does no harm."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_contract.shape import Answer, UnreadableError
from sagemaker_queue.models import (
    Cancellation,
    JobDetail,
    JobPage,
    JobSummary,
    PlanAnswer,
    PolicyAnswer,
    QueueStatus,
    Submission,
)

JsonObject = dict[str, Any]

texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2100, 1, 1), timezones=st.one_of(st.none(), st.timezones()))
times = moments.map(lambda moment: moment.isoformat())
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def json_objects(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[JsonObject]:
    """Objects with the members a version of the queue may or may not send, and some that no version knows."""
    unknown = st.dictionaries(texts.map(lambda name: "new-" + name), anything, max_size=2)
    known = st.fixed_dictionaries(required, optional={name: st.none() | value for name, value in optional.items()})
    return st.builds(lambda one, other: {**one, **other}, unknown, known)


def lists_of(items: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[list[JsonObject]]:
    return st.lists(items, max_size=2)


slots = st.dictionaries(texts, numbers, max_size=2)
SUMMARY: dict[str, st.SearchStrategy[Any]] = {
    "priority": numbers,
    "project": texts,
    "owner": texts,
    "instances": numbers,
    "entryTime": times,
    "stateSince": times,
    "attempt": numbers,
    "trainingJobName": texts,
    "position": numbers,
    "reason": json_objects({}, {"code": texts, "message": texts}),
    "cancelRequested": st.booleans(),
    "held": st.booleans(),
    "preemptible": st.booleans(),
    "pools": st.lists(texts, max_size=2),
    "slots": slots,
}
NAMED = {"job": texts, "state": texts}
summaries = json_objects(NAMED, SUMMARY)
attempts = json_objects({"attempt": numbers}, {"trainingJobName": texts, "started": times, "outcome": texts})
transitions = json_objects({"state": texts}, {"at": times, "attempt": numbers, "cause": texts})
pools = json_objects(
    {"name": texts},
    {"instanceType": texts, **dict.fromkeys(("capacity", "used", "external", "stopping", "free"), numbers)},
)
SHARE: dict[str, st.SearchStrategy[Any]] = {
    "quota": slots,
    "limit": slots,
    "share": slots,
    "used": slots,
    "waiting": numbers,
    "moreWaiting": st.booleans(),
}
departments = json_objects({"name": texts}, SHARE)
projects = json_objects({"name": texts}, {**SHARE, "department": texts})
names = st.lists(texts, max_size=2)
whys = json_objects({}, {"ahead": names, "blockers": names, "advice": names})
plans = json_objects(
    {},
    {
        "wouldStart": st.booleans(),
        "slots": slots,
        "evicts": lists_of(json_objects({"job": texts}, {"rule": texts})),
        "position": numbers,
        "reason": json_objects({}, {"code": texts, "message": texts}),
        "ahead": names,
        "blockers": names,
        "warnings": names,
    },
)
policies = json_objects(
    {"version": numbers},
    {
        "policy": st.dictionaries(texts, anything, max_size=2),
        "appliedBy": texts,
        "appliedAt": times,
        "warnings": names,
    },
)
details = json_objects(
    NAMED,
    {
        **SUMMARY,
        "history": lists_of(transitions),
        "attempts": lists_of(attempts),
        "request": st.dictionaries(texts, anything, max_size=2),
        "why": whys,
    },
)
answers = st.one_of(
    st.tuples(st.just(JobSummary), summaries),
    st.tuples(st.just(Submission), json_objects(NAMED, {**SUMMARY, "warnings": st.lists(texts, max_size=2)})),
    st.tuples(st.just(Cancellation), json_objects(NAMED, SUMMARY)),
    st.tuples(st.just(JobDetail), details),
    st.tuples(st.just(JobPage), json_objects({"jobs": lists_of(summaries)}, {"next": texts})),
    st.tuples(
        st.just(QueueStatus),
        json_objects(
            {},
            {
                "pools": lists_of(pools),
                "active": lists_of(summaries),
                "waiting": lists_of(summaries),
                "moreWaiting": st.booleans(),
                "departments": lists_of(departments),
                "projects": lists_of(projects),
                "policyVersion": numbers,
            },
        ),
    ),
    st.tuples(st.just(PlanAnswer), plans),
    st.tuples(st.just(PolicyAnswer), policies),
)


@given(answers)
def test_every_answer_can_be_read_and_written_again(case: tuple[type[Answer], JsonObject]) -> None:
    kind, data = case
    answer = kind.from_json(data)
    written = answer.to_json()
    assert kind.from_json(written) == answer
    for name in data.keys() & written.keys() - {"entryTime", "stateSince", "appliedAt"}:
        if isinstance(data[name], str | int):
            assert written[name] == data[name]


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
