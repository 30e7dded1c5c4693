"""``smq usage``: what attempts have used, summed up."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.accounting.sums import KEYS, PriceList, Usage, summed
from sagemaker_queue.models import PastAttempt
from tests.client.samples import ATTEMPT

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

P5, G5 = "ml.p5.48xlarge", "ml.g5.xlarge"
# Two instances for two hours, one of them borrowed, ten minutes lost; then one for half an hour, on the spot market.
AGAIN = {
    **{**ATTEMPT, "attempt": 3, "outcome": "completed", "ended": "2026-11-22T00:00:00Z", "lostSeconds": None},
    **{"slots": {"p5-spot": 1}, "instances": {P5: 1}, "market": "spot", "instanceCount": 1, "gpus": 8},
    **{"ranSeconds": 1800.0, "waitedSeconds": 1200.0, "borrowed": 0},
}
OTHER = {
    **{**ATTEMPT, "job": "job2", "project": "speech", "department": None, "group": None, "borrowed": 0},
    **{"owner": "arn:aws:sts::123456789012:assumed-role/Team/bob", "slots": {"g5": 4}, "instances": {G5: 4}},
    **{"instanceCount": 4, "gpus": 4, "ranSeconds": 900.0, "lostSeconds": None, "waitedSeconds": 0.0},
}
CPU = {**OTHER, "job": "job3", "slots": {"cpu": 2}, "instances": {"ml.m5.large": 2}, "instanceCount": 2, "gpus": None}
PRICES = {P5: {"on_demand": 100, "spot": 40}, G5: 1.5}
ALL = (ATTEMPT, AGAIN, OTHER, CPU)

PAGE = """\
Project      Jobs    Attempts    Instance-h    GPU-h    In Quota    Borrowed    Lost    Waited    Cost
---------  ------  ----------  ------------  -------  ----------  ----------  ------  --------  ------
vision          1           2          4.50    36.00        2.50        2.00    0.33      2.00  420.00
speech          2           2          1.50     1.00        1.50        0.00    0.00      0.00    1.50
all             3           4          6.00    37.00        4.00        2.00    0.33      2.00  421.50

The policy has no price for 0.50 of the instance-hours.
0.50 instance-hours are of types that have no GPUs, or new ones.
"""


def answers(server: ScriptedServer, *attempts: dict[str, Any], prices: Any = None) -> None:
    server.answers(200, {"version": 3, "policy": {"pools": [], **({} if prices is None else {"prices": prices})}})
    server.answers(200, {"attempts": list(attempts), "next": None})


def test_a_page_for_people(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL, prices=PRICES)
    assert main(["usage"]) == 0
    assert capsys.readouterr().out == PAGE


def test_without_prices_nothing_is_said_of_cost(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, ATTEMPT)
    assert main(["usage"]) == 0
    out = capsys.readouterr().out
    assert "Cost" not in out and "price" not in out and "2.00" in out


@pytest.mark.parametrize(
    ("by", "hours"),
    [
        ("project", {"vision": 4.5, "speech": 1.5}),
        ("owner", {"ann": 4.5, "Team/bob": 1.5}),
        ("group", {"lr": 4.5, "(none)": 1.5}),
        ("pool", {"p5": 4, "g5": 1, "cpu": 0.5, "p5-spot": 0.5}),
        ("department", {"research": 4.5, "(none)": 1.5}),
        ("day", {"2026-11-21": 5.5, "2026-11-22": 0.5}),
    ],
)
def test_it_can_be_summed_up_for_each(
    by: str, hours: dict[str, float], server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(server, *ALL)
    assert main(["usage", "--by", by, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["by"] == by
    assert [(each[by], each["instance_hours"]) for each in found["usage"]] == list(hours.items())
    assert found["total"]["instance_hours"] == 6


def test_csv_has_all_figures(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL, prices=PRICES)
    assert main(["usage", "--csv", "--since", "2026-11-01"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["project"], first["cost"], first["provisioned_hours"]) == ("vision", "420.0", "0.079167")
    assert (second["project"], second["unpriced_hours"], second["unknown_gpu_hours"]) == ("speech", "0.5", "0.5")


def test_an_empty_table_still_has_its_columns(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server)
    assert main(["usage", "--by", "day", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("day,jobs,attempts,instance_hours")


def test_nothing_is_said_as_such(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server)
    assert main(["usage"]) == 0
    assert capsys.readouterr() == ("", "Nothing has ended in that time.\n")


@pytest.mark.parametrize("by", KEYS)
def test_the_parts_are_together_the_whole(by: str) -> None:
    two_pools = {**ATTEMPT, "slots": {"a": 1, "b": 2}, "instances": {P5: 1, G5: 2}, "instanceCount": 3, "gpus": None}
    attempts = [PastAttempt.from_json(one) for one in (*ALL, two_pools)]
    parts, total = summed(attempts, by, PriceList(PRICES))
    for name, whole in total.hours().items():
        if name not in ("jobs", "attempts"):
            assert sum(used.hours()[name] for used in parts.values()) == pytest.approx(whole), name


@pytest.mark.parametrize(
    ("market", "instance_type", "price"),
    [
        ("on_demand", P5, 100.0),
        ("spot", P5, 40.0),
        ("training_plan", P5, None),
        (None, P5, 100.0),  # its pool is gone
        ("training_plan", G5, 1.5),  # one price for all
        ("on_demand", "ml.m5.large", None),
    ],
)
def test_prices(market: str | None, instance_type: str, price: float | None) -> None:
    assert PriceList(PRICES).of(instance_type, market) == price


def test_more_cannot_be_lost_or_borrowed_than_there_was() -> None:
    usage = Usage()
    usage.add(PastAttempt.from_json({**ATTEMPT, "lostSeconds": 9000, "borrowed": 7}), 1, PriceList({}))
    assert usage.lost == usage.borrowed == usage.ran == 2 * 7200
