"""Texts about failures from public pages, and the classes that a person has assigned.

docs/developers/failure-classifier.md says how they were collected.
"""

import json
from urllib.parse import urlsplit

from job_queue.domain.failures import DEFAULT_ACTIONS, FailureAction, FailureClass
from tools.failure_matrix import SETS, TEXTS, public_texts


def test_nine_of_ten_texts_are_classified_as_a_person_does() -> None:
    texts = public_texts()
    wrong = [
        f"{text.address}: {text.expected}, not {text.failure.failure_class}" for text in texts if not text.is_right
    ]
    assert len(texts) >= 200
    assert len(wrong) <= len(texts) / 10, "\n".join(wrong)


def test_no_error_of_a_program_is_retried() -> None:
    errors = [text for text in public_texts() if text.expected is FailureClass.USER_ERROR]
    assert len(errors) >= 50
    retried = [text.address for text in errors if DEFAULT_ACTIONS[text.failure.failure_class] is not FailureAction.FAIL]
    assert not retried


def test_all_classes_have_texts() -> None:
    assert {text.expected for text in public_texts()} == set(FailureClass)


def test_each_text_has_one_public_address_and_is_short() -> None:
    addresses = [text.address for text in public_texts()]
    assert len(set(addresses)) == len(addresses)
    for text in public_texts():
        assert urlsplit(text.address).scheme == "https"
        assert text.reason or text.lines
        assert len(text.reason or "") + sum(map(len, text.lines)) <= 500, text.address
        assert text.set_name in SETS


def test_the_file_has_no_other_fields() -> None:
    for line in TEXTS.read_text().splitlines():
        assert json.loads(line).keys() <= {"address", "class", "set", "reason", "lines"}
