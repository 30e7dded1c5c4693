"""Validation of requests that hypothesis makes from the service model: fitting, with one fault, and any JSON at all."""

import json
from copy import deepcopy
from typing import Any

from botocore.validate import ParamValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.validation import MOST_ISSUES, ValidationIssue, against_model, against_sagemaker
from tests.training_requests import shape
from tests.unit.validation.generated_requests import field_of, generated, parts_of, some_members, spoilt


def issues(request: object) -> list[ValidationIssue]:
    return against_model(request, shape())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)
member_names = st.sampled_from(sorted(shape().members))


@settings(max_examples=150, deadline=None)
@given(json_values | st.dictionaries(member_names, json_values, max_size=6))
def test_no_json_is_too_strange(request: Any) -> None:
    found = issues(request)
    assert len(found) <= MOST_ISSUES
    json.dumps([[issue.field, issue.message] for issue in found], ensure_ascii=False).encode()
    if isinstance(request, dict):
        against_sagemaker(request)


@generated
@given(st.data())
def test_what_fits_the_model_is_accepted(data: st.DataObject) -> None:
    request = data.draw(some_members())
    assert issues(request) == []
    assert not ParamValidator().validate(request, shape()).has_errors()
    against_sagemaker(request)


@generated
@given(st.data())
def test_one_fault_is_found_where_it_is(data: st.DataObject) -> None:
    request = data.draw(some_members())
    path, found = data.draw(st.sampled_from(parts_of(request, shape())))
    wrong = deepcopy(request)
    place: Any = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = data.draw(st.sampled_from(spoilt(found)))
    named = [issue.field for issue in issues(wrong)]
    assert named
    assert all(field.startswith(field_of(path)) for field in named), (named, path)
