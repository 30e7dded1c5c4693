"""Bodies: what is no JSON object that can be read in one way only is refused, with its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.errors import InvalidRequest
from job_queue.validation.json_text import DEEPEST, json_object


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    return '{"a": ' + opening * (levels - 1) + closing * (levels - 1) + "}"


def refusal(body: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        json_object(body, "an example")
    return caught.value


@pytest.mark.parametrize(
    ("body", "words", "field"),
    [
        ("", "not JSON", None),
        ("\x00", "not JSON", None),
        ("{} {}", "not JSON", None),
        ("\ufeff{}", "BOM", None),
        ("{'a': 1}", "not JSON", None),
        ("[]", "must be a JSON object: an example", None),
        ('"text"', "must be a JSON object", None),
        ("null", "must be a JSON object", None),
        ("7", "must be a JSON object", None),
        ('{"a": NaN}', "not a number", "a"),
        ('{"a": [0, -Infinity]}', "not a number", "a[1]"),
        ('{"a": {"b": 1e999}}', "not a number", "a.b"),
        (f'{{"a": {"9" * 101}}}', "not a number", "a"),
        (f'{{"a": -{"9" * 5000}}}', "not a number", "a"),
        ('{"a": {"b": 1, "c": 2, "b": 1}}', "'b' stands twice", "b"),
        (r'{"a": "\ud800"}', "half a character", "a"),
        (r'{"a": {"\udfff": 1}}', "half a character", r"a['\udfff']"),
        ('{"a": "\ud800"}', "half a character", "a"),
        (nested(DEEPEST + 1), "nested too deeply", None),
        (nested(960), "nested too deeply", None),
        (nested(200_000), "nested too deeply", None),
        (nested(100_000, '{"a": ', "}").replace("{}", '{"a": 1}'), "nested too deeply", None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_refused(body: str, words: str, field: str | None) -> None:
    error = refusal(body)
    assert words in error.message
    assert error.field == field
    assert len(error.message) < 300
    error.message.encode()


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        nested(DEEPEST),
        '{"a": "\\u0000 é 😀", "A": 1.5, "n": null}',
        ' {"a": ' + "9" * 100 + "}\n",
        r'{"a": "\ud83d\ude00"}',
    ],
    ids=lambda body: repr(body)[:40],
)
def test_what_is_read(body: str) -> None:
    assert json_object(body, "an example") == json.loads(body)


texts = st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_any_object_is_read_as_it_is_or_refused(content: dict[str, Any]) -> None:
    body = json.dumps(content)
    try:
        assert json_object(body, "an example") == content
    except InvalidRequest:
        assert "NaN" in body or "Infinity" in body or r"\ud" in body


@given(st.text())
def test_any_text_is_read_or_refused(body: str) -> None:
    try:
        json_object(body, "an example")
    except InvalidRequest as error:
        assert error.message.endswith(".")
