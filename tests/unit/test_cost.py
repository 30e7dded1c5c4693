"""What a job costs: a change may not make it dearer unawares."""

import pytest

from benchmarks import cost
from benchmarks.cost import DOLLARS, Counted, Units


def test_a_minute_and_a_job_cost_at_most_ten_percent_more_than_the_reference() -> None:
    reference, minute = cost.reference(), cost.idle_minute()
    dearer = cost.dearer(Counted(minute, cost.job(minute), reference.hour), reference)
    assert not dearer, f"{dearer} -- if this is wanted: python benchmarks/cost.py --keep"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_followed_hour_costs_at_most_ten_percent_more_than_the_reference() -> None:
    reference = cost.reference()
    dearer = cost.dearer(Counted(reference.minute, reference.job, cost.followed_hour()), reference)
    assert not dearer, f"{dearer} -- if this is wanted: python benchmarks/cost.py --keep"


def test_the_page_has_the_tables_of_the_reference() -> None:
    page = cost.PAGE.read_text()
    assert cost.written(page, cost.table(cost.reference())) == page, "python benchmarks/cost.py --keep"


def test_what_costs_more_is_reported_with_its_units() -> None:
    known: Units = dict.fromkeys(DOLLARS, 100.0)
    dear = {**known, "GB-seconds": 150.0}
    before = Counted(known, known, known)
    (line,) = cost.dearer(Counted(known, dear, known), before)
    assert line.startswith("job: ")
    assert line.endswith("(GB-seconds 100 -> 150)")
    assert cost.dearer(Counted(known, {**known, "GB-seconds": 101.0}, known), before) == []


def test_units_are_counted_the_same_each_time() -> None:
    assert cost.idle_minute() == cost.idle_minute()
