"""The edits that break a rule of the scheduler name lines that are there."""

from pathlib import Path

from tests.mutations.rules import MUTATIONS

SCHEDULER = Path(__file__).parents[2] / "job_queue" / "scheduler"


def test_each_edit_applies_once() -> None:
    # Beside the scheduler's own tests: those run on the broken copies, where an edit is made already.
    found = {edit.rule: (SCHEDULER / edit.module).read_text().count(edit.line) for edit in MUTATIONS}
    assert {rule: count for rule, count in found.items() if count != 1} == {}


def test_each_edit_changes_something_and_has_a_name_of_its_own() -> None:
    assert all(edit.line != edit.broken for edit in MUTATIONS)
    assert len({edit.rule for edit in MUTATIONS}) == len(MUTATIONS)
