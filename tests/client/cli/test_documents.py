"""Policies and requests as text: what is read, what is refused and where, and how two are compared."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_queue import InvalidDocument, PolicyAnswer
from sagemaker_queue.presentation.documents import policy_difference, policy_text, read_document, with_settings

POLICY: dict[str, Any] = {
    "settings": {"patience": None, "min_runtime": 600},
    "projects": [
        {"quota": {"p5": 2}, "department": "research", "name": "vision", "over_quota": "no", "members": ["arn:a", "b"]},
        {"name": "nlp"},
    ],
    "departments": [{"quota": {"p5": 3, "c6": 1}, "name": "research"}],
    "pools": [{"capacity": 4, "name": "p5", "instance_type": "ml.p5.48xlarge"}],
}

TEXT = """\
pools:
- {name: p5, instance_type: ml.p5.48xlarge, capacity: 4}
departments:
- name: research
  quota: {c6: 1, p5: 3}
projects:
- name: vision
  department: research
  members: ['arn:a', b]
  over_quota: 'no'
  quota: {p5: 2}
- {name: nlp}
settings: {min_runtime: 600, patience: null}
"""


def read(text: str) -> dict[str, Any]:
    return read_document("-", io.StringIO(text))


def test_a_policy_is_written_in_one_form_that_people_read() -> None:
    assert policy_text(POLICY) == TEXT


def test_what_is_written_can_be_read_again() -> None:
    assert read(TEXT) == POLICY


texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=9)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(texts, plain, max_size=4))
def test_every_document_survives_being_written_and_read(document: dict[str, Any]) -> None:
    text = policy_text(document)
    assert read(text) == document
    assert policy_text(read(text)) == text


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: [x, 2]\n", '{"a": 1, "b": ["x", 2]}', '{\n\t"a": 1,\n\t"b": ["x", 2]\n}', "{a: 1, b: [x, 2]}"],
)
def test_yaml_and_json_are_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    assert read_document(str(file), io.StringIO()) == read(text) == {"a": 1, "b": ["x", 2]}


def test_parts_can_be_written_once_and_used_twice() -> None:
    text = "common: &c {quota: {p5: 1}, x: 1}\nmine: {<<: *c, x: 2}\n"
    assert read(text)["mine"] == {"quota": {"p5": 1}, "x": 2}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3\n", "standard input: line 3, column 1: the key 'a' is given for the second time."),
        ("a:\n- {x: 1, x: 2}\n", "standard input: line 2, column 10: the key 'x' is given for the second time."),
        ('{"a": 1,\n "a": 2}', "standard input: line 2, column 2: the key 'a' is given for the second time."),
        ("a: [1, 2\n", "standard input: line 2, column 1: while parsing a flow sequence, expected ',' or ']'"),
        ("a: !!python/object:os.system {}\n", "line 1, column 4: could not determine a constructor"),
        ("a: 2026-11-21\n", "put dates into quotes"),
        (
            "x: 1\na: 2026-02-30\n",
            "standard input: line 2, column 4: this is not a valid number, date or Boolean; put text",
        ),
        ("a: 0x_\n", "line 1, column 4: this is not a valid number"),
        ('a: !!int ""\n', "line 1, column 4: this is not a valid number"),
        ("a: [1, !!bool 7]\n", "line 1, column 8: this is not a valid number"),
        ("a: !!timestamp 7\n", "line 1, column 4: this is not a valid number"),
        pytest.param("[" * 9_000, "standard input has too many levels", id="brackets"),
        pytest.param("- " * 9_000, "standard input has too many levels", id="lists"),
        ("a: .nan\n", "for which JSON has no type"),
        ("a: &a [*a]\n", "for which JSON has no type"),
        ("? [1]\n: 2\n", "found unhashable key"),
        ("a: \x00\n", "neither YAML nor JSON"),
        ("", "must contain a mapping of fields, not nothing"),
        ("- 1\n", "must contain a mapping of fields, not a value"),
        ("a: 1\n---\nb: 1\n", "expected a single document"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read(text)
    assert complaint in str(refused.value)


@pytest.mark.skipif(not hasattr(sys, "get_int_max_str_digits"), reason="this Python reads integers of any length")
@pytest.mark.parametrize("text", ["a: {}\n", '{{"a": {}}}'])
def test_integers_with_too_many_digits(text: str) -> None:
    with pytest.raises(InvalidDocument, match="line 1, column .: this is not a valid number"):
        read(text.format("9" * 5_000))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a: \xff")
    for name, complaint in [("none.yaml", "No such file"), ("", "Is a directory"), ("latin", "the text is not UTF-8")]:
        with pytest.raises(InvalidDocument, match=complaint):
            read_document(str(tmp_path / name), io.StringIO())


def test_the_order_of_fields_is_no_difference() -> None:
    shuffled = json.loads(json.dumps(POLICY, sort_keys=True))
    assert policy_difference(PolicyAnswer(3, POLICY), shuffled, "policy.yaml") == ""


def test_the_order_of_projects_is_one() -> None:
    turned = {**POLICY, "projects": POLICY["projects"][::-1]}
    assert policy_difference(PolicyAnswer(3, POLICY), turned, "policy.yaml")


def test_a_difference_is_shown_as_diff_does() -> None:
    changed = yaml.safe_load(TEXT.replace("capacity: 4", "capacity: 6"))
    assert policy_difference(PolicyAnswer(3, POLICY), changed, "policy.yaml").splitlines()[:6] == [
        "--- applied (version 3)",
        "+++ policy.yaml",
        "@@ -1,5 +1,5 @@",
        " pools:",
        "-- {name: p5, instance_type: ml.p5.48xlarge, capacity: 4}",
        "+- {name: p5, instance_type: ml.p5.48xlarge, capacity: 6}",
    ]


SETTINGS = {"order": "shortest", "patience": None}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "# a\npools:\n- {name: p}  # x\nprojects:\n- name: a\n  quota: {p: 2}  # two\n\n# end\n",
            "# a\npools:\n- {name: p}  # x\nprojects:\n- name: a\n  quota: {p: 2}  # two\n\n# end\n"
            "settings:\n  order: shortest\n  patience: null\n",
        ),
        (
            "settings:  # s\n  patience: 1800  # half an hour\n  window: 5  # w\n\n# next\npools: []\n",
            "settings:  # s\n  patience: null  # half an hour\n  window: 5  # w\n  order: shortest\n\n# next\n"
            "pools: []\n",
        ),
        ("settings: {window: 5}\npools: []", "settings: {patience: null, order: shortest, window: 5}\npools: []"),
        ("settings:\npools: []\n", "settings: {patience: null, order: shortest}\npools: []\n"),
        ("settings: null # x\npools: []", "settings: {patience: null, order: shortest} # x\npools: []"),
        ("pools: []\nsettings:\n    window: 3", "pools: []\nsettings:\n    window: 3\n    order: shortest\n"
        "    patience: null\n"),
        ('{"pools": []}', '{"settings": {"patience": null, "order": "shortest"}, "pools": []}'),
        ('{"settings": {"order": "submission"}}', '{"settings": {"patience": null, "order": "shortest"}}'),
    ],
)  # fmt: skip
def test_settings_are_changed_and_all_other_text_stays(before: str, after: str) -> None:
    assert with_settings(before, SETTINGS, "policy.yaml") == after


@pytest.mark.parametrize("text", ["a: &x {patience: 3}\nsettings: *x\n", '{\n\t"pools": []\n}'])
def test_settings_that_cannot_be_changed_are_printed(text: str) -> None:
    with pytest.raises(InvalidDocument, match=r'put these settings into it: order: "shortest", patience: null\.'):
        with_settings(text, SETTINGS, "policy.yaml")


@given(st.dictionaries(st.sampled_from(["order", "patience", "window", "stretch"]), st.integers(0, 9) | st.none()))
def test_a_policy_in_canonical_form_is_changed_as_wanted(settings: dict[str, Any]) -> None:
    changed = with_settings(policy_text(POLICY), settings, "policy.yaml")
    assert yaml.safe_load(changed) == {**POLICY, "settings": {**POLICY["settings"], **settings}}
