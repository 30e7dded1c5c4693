"""``smq usage``: what attempts have used, summed up."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from api_contract.history import PastAttempt
from api_contract.models import OUTCOMES
from job_queue.scheduler import Budget, period_end, period_start
from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.accounting.usage import usage_page
from sagemaker_queue.workflows.usage import budgets
from sagemaker_queue.workflows.usage.budgets import period_of
from sagemaker_queue.workflows.usage.cause_sums import CauseUsage, usage_sums
from sagemaker_queue.workflows.usage.causes import Cause, held_milliseconds, milliseconds_by_cause
from sagemaker_queue.workflows.usage.sums import KEYS, PriceList, Usage, sum_usage
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
GPU-h leaves out 0.50 instance-hours of types without GPUs or of unknown types.
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


def test_the_utilization_of_gpus_is_weighted_by_gpu_hours_and_leaves_out_what_was_not_measured(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    half = {**ATTEMPT, "gpuMeanPercent": 50}
    nothing = {**ATTEMPT, "job": "job2", "ranSeconds": 3600.0, "gpuMeanPercent": 0}
    answers(server, half, nothing, {**ATTEMPT, "job": "job3"})
    assert main(["usage", "--json"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert (total["gpu_hours"], total["measured_gpu_hours"], total["used_gpu_hours"]) == (80, 48, 16)
    answers(server, half, nothing, {**ATTEMPT, "job": "job3"})
    assert main(["usage"]) == 0
    headers, row, _ = (re.split(r" {2,}", line.strip()) for line in _table(capsys.readouterr().out))
    assert dict(zip(headers, row))["GPU %"] == "33"


def _table(page: str) -> list[str]:
    headers, _, *rows = page.splitlines()
    return [headers, *rows]


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


@pytest.mark.parametrize(("by", "there"), [("region", "us-east-2"), ("account", "222222222222")])
def test_regions_and_accounts_are_told_apart(
    by: str, there: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(server, {**ATTEMPT, by: there}, {**ATTEMPT, "job": "job2", "ranSeconds": 900.0, "lostSeconds": 0})
    assert main(["usage", "--by", by, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each[by], each["instance_hours"]) for each in found["usage"]] == [(there, 4), ("(the queue's)", 0.5)]


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
    assert capsys.readouterr() == ("", "No attempt ended in that time.\n")


@pytest.mark.parametrize("by", KEYS)
def test_the_parts_are_together_the_whole(by: str) -> None:
    two_pools = {**ATTEMPT, "slots": {"a": 1, "b": 2}, "instances": {P5: 1, G5: 2}, "instanceCount": 3, "gpus": None}
    attempts = [PastAttempt.from_json(one) for one in (*ALL, two_pools)]
    parts, total = sum_usage(attempts, by, PriceList(PRICES))
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


# --- by cause ----------------------------------------------------------------------------------------

FAILED = {**ATTEMPT, "job": "job4", "outcome": "failed", "lostSeconds": None}
CAUSES_PAGE = """\
Cause                    Instance-h    Share    Cost
---------------------  ------------  -------  ------
useful                         5.17     83 %  388.17
waiting for instances          0.24      4 %    0.00
lost to preemptions            0.33      5 %   33.33
lost to failures               0.50      8 %    0.00
all                            6.24    100 %  421.50

The policy has no price for 0.50 of the instance-hours.

Useful part for each project:

Project      Instance-h    Useful-h    Useful
---------  ------------  ----------  --------
vision             4.58        4.17      91 %
speech             1.66        1.00      60 %
"""


def test_the_page_by_cause(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, ATTEMPT, AGAIN, OTHER, {**CPU, "outcome": "failed"}, prices=PRICES)
    assert main(["usage", "--by", "cause"]) == 0
    assert capsys.readouterr().out == CAUSES_PAGE


def test_json_by_cause_has_the_causes_of_each_project(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(server, ATTEMPT, OTHER)
    assert main(["usage", "--by", "cause", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["cause"] for each in found["usage"]] == ["useful", "provisioning", "preemption", "failure"]
    vision, speech = found["projects"]
    assert (vision["project"], vision["preemption_hours"], vision["useful_percent"]) == ("vision", 0.333333, 90.47)
    assert vision["instance_hours"] == pytest.approx(
        sum(vision[f"{each['cause']}_hours"] for each in found["usage"]), abs=1e-5
    )
    assert speech["failure_hours"] == 0


def test_csv_by_cause(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, FAILED)
    assert main(["usage", "--by", "cause", "--csv"]) == 0
    rows = {row["cause"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert rows["failure"]["instance_hours"] == "4.0" and rows["useful"]["instance_hours"] == "0.0"


def test_no_attempt_has_no_cause(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server)
    assert main(["usage", "--by", "cause"]) == 0
    assert capsys.readouterr() == ("", "No attempt ended in that time.\n")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"outcome": "completed"}, {Cause.USEFUL: 1000, Cause.PREEMPTION: 0, Cause.FAILURE: 0}),
        ({"outcome": "stopped"}, {Cause.USEFUL: 1000}),
        ({"outcome": "preempted"}, {Cause.USEFUL: 1000, Cause.PREEMPTION: 0}),
        ({"outcome": "preempted", "lostSeconds": 300}, {Cause.USEFUL: 700, Cause.PREEMPTION: 300}),
        ({"outcome": "requeued", "lostSeconds": 300}, {Cause.USEFUL: 700, Cause.PREEMPTION: 300}),
        ({"outcome": "failed"}, {Cause.USEFUL: 0, Cause.FAILURE: 1000}),
        ({"outcome": "failed", "lostSeconds": 300}, {Cause.USEFUL: 700, Cause.FAILURE: 300}),
        ({"outcome": "failed", "lostSeconds": 0}, {Cause.USEFUL: 1000, Cause.FAILURE: 0}),
        ({"outcome": "completed", "lostSeconds": 300}, {Cause.USEFUL: 1000}),
        # The hang is the end of the lost work.
        ({"outcome": "failed", "lostSeconds": 300, "hungSeconds": 200}, {Cause.HUNG: 200, Cause.FAILURE: 100}),
        ({"outcome": "requeued", "lostSeconds": 100, "hungSeconds": 200}, {Cause.HUNG: 200, Cause.PREEMPTION: 0}),
        ({"outcome": "failed", "hungSeconds": 200}, {Cause.HUNG: 200, Cause.FAILURE: 800, Cause.USEFUL: 0}),
        ({"outcome": "completed", "idleSeconds": 400}, {Cause.IDLE: 400, Cause.USEFUL: 600}),
        ({"outcome": "failed", "idleSeconds": 400}, {Cause.IDLE: 0, Cause.FAILURE: 1000}),
        ({"outcome": "preempted", "lostSeconds": 9999, "idleSeconds": 9999}, {Cause.PREEMPTION: 1000, Cause.IDLE: 0}),
        ({"outcome": "completed", "hungSeconds": 9999}, {Cause.HUNG: 1000, Cause.USEFUL: 0}),
    ],
)
def test_the_causes_of_an_attempt(fields: dict[str, Any], expected: dict[Cause, int]) -> None:
    attempt = PastAttempt.from_json({**ATTEMPT, "lostSeconds": None, "ranSeconds": 1000.0, **fields})
    found = milliseconds_by_cause(attempt)
    assert {cause: found[cause] / 1000 for cause in expected} == expected
    assert found[Cause.PROVISIONING] == 95_000
    assert (Cause.HUNG in found, Cause.IDLE in found) == ("hungSeconds" in fields, "idleSeconds" in fields)


def test_causes_add_up_to_the_total_exactly() -> None:
    draw = random.Random(35)

    def seconds(most: float) -> float:
        return round(draw.choice((0.0, draw.uniform(0, most))), 3)

    def attempt() -> dict[str, Any]:
        measured = {name: draw.choice((None, round(seconds(9000)))) for name in ("hungSeconds", "idleSeconds")}
        return {
            **{**ATTEMPT, **measured, "outcome": draw.choice(OUTCOMES), "instanceCount": draw.choice((0, 1, 3, 64))},
            **{"ranSeconds": seconds(1e6), "provisionedSeconds": seconds(1e4)},
            **{"lostSeconds": draw.choice((None, round(seconds(1e6)))), "project": draw.choice(("a", "b", None))},
        }

    attempts = [PastAttempt.from_json(attempt()) for _ in range(2000)]
    for one in attempts:
        split = milliseconds_by_cause(one)
        assert sum(split.values()) == held_milliseconds(one) and min(split.values()) >= 0
    sums = usage_sums(attempts, "cause", PriceList(PRICES))
    parts = {key: part for key, part in sums.parts.items() if isinstance(part, CauseUsage)}
    assert isinstance(sums.total, CauseUsage) and list(parts) == [cause.value for cause in Cause]
    assert sum(part.held for part in parts.values()) == sums.total.held
    assert sum(project.held for project in sums.projects.values()) == sums.total.held
    for project in sums.projects.values():
        assert sum(project.causes.values()) == project.held
    assert sum(part.cost for part in parts.values()) == pytest.approx(sums.total.cost)
    usage, total = sum_usage(attempts, "project", PriceList(PRICES))
    assert total.hours()["cost"] == pytest.approx(sums.total.cost)
    assert total.hours()["lost_hours"] == pytest.approx(parts["preemption"].hours()["instance_hours"])


# --- budgets -----------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("month", (2026, 11, 1), (2026, 12, 1)),
        ("week", (2026, 11, 16), (2026, 11, 23)),
        ("day", (2026, 11, 20), (2026, 11, 21)),
        (14, (2026, 11, 9), (2026, 11, 23)),
    ],
)
def test_periods_of_budgets_are_the_queues(period: str | int, begins: tuple[int, ...], ends: tuple[int, ...]) -> None:
    days = {"month": None, "week": 7, "day": 1}.get(str(period), period)
    queues = Budget(1, days)  # type: ignore[arg-type]
    assert period_of(period, NOW) == (datetime(*begins, tzinfo=timezone.utc), datetime(*ends, tzinfo=timezone.utc))  # type: ignore[misc, arg-type]
    assert tuple(it.timestamp() for it in period_of(period, NOW)) == (
        period_start(queues, NOW.timestamp()),
        period_end(queues, NOW.timestamp()),
    )


BUDGETS = {
    "projects": [
        {"name": "vision", "budget": {"instance_hours": 10, "period": "day"}},
        {"name": "speech", "owner_budget": {"instance_hours": 5, "period": 366, "kind": "soft"}},
        {"name": "free"},
    ]
}


def with_budgets(server: ScriptedServer, began: datetime, running: list[dict[str, Any]]) -> None:
    """Two attempts of vision and speech, which began then and ran for an hour."""
    server.answers(200, {"version": 3, "policy": {"pools": [], **BUDGETS}})
    server.answers(200, {"attempts": [ATTEMPT], "next": None})
    times = {"began": began.isoformat(), "ended": (began + timedelta(hours=1)).isoformat(), "instanceCount": 2}
    bobs = {**ATTEMPT, **times, "project": "speech", "owner": "arn:aws:iam::123456789012:user/bob"}
    server.answers(200, {"attempts": [{**ATTEMPT, **times}, bobs], "next": None})
    server.answers(200, {"jobs": running, "next": None})


def a_while_ago() -> datetime:
    """Over an hour ago, and today, unless it is not yet two o'clock."""
    return datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=1, minutes=1)


@pytest.mark.parametrize("state", ["running", "stopping"])
def test_what_is_left_of_budgets_counts_what_ended_and_what_runs(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    began = a_while_ago()
    since = began + timedelta(minutes=31)  # half an hour ago
    times = {"started": since.isoformat(), "stateSince": (since + timedelta(minutes=25)).isoformat()}
    job = {"job": "job9", "state": state, "project": "speech", "instances": 4, **times}
    with_budgets(server, began, [{**job, "owner": "arn:aws:iam::123456789012:user/eve"}])
    before = datetime.now(timezone.utc)
    assert main(["usage", "--json"]) == 0
    after = datetime.now(timezone.utc)
    vision, *speech = json.loads(capsys.readouterr().out)["budgets"]
    assert (vision["project"], vision["owner"], vision["kind"], vision["instance_hours"]) == (
        "vision",
        None,
        "hard",
        10,
    )
    days = {time.replace(hour=0, minute=0, second=0, microsecond=0) for time in (before, after)}  # two at midnight
    in_period = [max(0.0, (began + timedelta(hours=1) - max(began, day)).total_seconds() / 3600) for day in days]
    assert any(vision["used_hours"] == pytest.approx(2 * hours, abs=1e-3) for hours in in_period)
    used = {each["owner"]: each["used_hours"] for each in speech}
    least, most = (4 * (time - since).total_seconds() / 3600 for time in (before, after))
    assert used.keys() == {"bob", "eve"} and used["bob"] == 2
    assert least - 1e-3 <= used["eve"] <= most + 1e-3
    assert {each["owner"]: each["left_hours"] for each in speech}["bob"] == 3
    assert len(server.received) == 4


def test_owners_with_one_name_in_two_accounts_have_a_budget_each(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    began = a_while_ago()
    job = {"job": "job9", "state": "running", "project": "speech", "instances": 1, "started": began.isoformat()}
    with_budgets(server, began, [{**job, "owner": "arn:aws:iam::210987654321:user/bob"}])
    assert main(["usage", "--json"]) == 0
    budgets = json.loads(capsys.readouterr().out)["budgets"]
    speech = [each["used_hours"] for each in budgets if each["project"] == "speech" and each["owner"] == "bob"]
    assert len(speech) == 2 and speech[0] == 2


def test_the_page_tells_what_is_left_and_until_when(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    with_budgets(server, a_while_ago(), [])
    assert main(["usage"]) == 0
    page = capsys.readouterr().out.partition("Remaining budgets:")[2]
    assert "Left-h" in page and "366 days" in page and "soft" in page
    assert re.search(r"speech +bob +5\.00 +2\.00 +3\.00", page)


def test_budgets_of_other_projects_are_not_asked_for(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {"version": 3, "policy": {"pools": [], **BUDGETS}})
    server.answers(200, {"attempts": [ATTEMPT], "next": None})
    assert main(["usage", "--project", "free"]) == 0
    assert "budgets" not in capsys.readouterr().out
    assert len(server.received) == 2


def test_where_more_has_ended_than_is_read_it_says_so(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "MOST_ATTEMPTS", 1)
    with_budgets(server, a_while_ago(), [])
    assert main(["usage"]) == 0
    assert "More attempts have ended than were read" in capsys.readouterr().out


def test_it_fits_a_narrow_terminal() -> None:
    class Used:
        def hours(self) -> dict[str, float]:
            names = ("jobs", "attempts", "instance_hours", "gpu_hours", "in_quota_hours", "borrowed_hours")
            more = ("lost_hours", "waited_hours", "cost", "unpriced_hours", "unknown_gpu_hours")
            return {**dict.fromkeys((*names, *more), 0.0), "measured_gpu_hours": 1.0, "used_gpu_hours": 1.0}

    page = usage_page("project", {"language": Used()}, Used(), 80, priced=True).splitlines()
    assert page[0].split() == ["Project", "Jobs", "Attempts", "Inst-h", "GPU-h", "In", "Quota", *page[0].split()[7:]]
    assert len({len(line) for line in page}) == 1 and len(page[0]) <= 80
    assert "Instance-h" in usage_page("project", {"language": Used()}, Used(), 120, priced=True)


CARRIER = {
    **{**ATTEMPT, "job": "carrier--vision--1", "group": None, "slots": {"p5": 1}, "instances": {P5: 1}, "borrowed": 0},
    **{"instanceCount": 1, "gpus": 8, "carries": 8, "ranSeconds": 3600.0, "waitedSeconds": 60.0, "lostSeconds": None},
}
MEMBER = {
    **{
        **CARRIER,
        "job": "small",
        "slots": {"p5": 0},
        "instances": {},
        "instanceCount": 0,
        "gpus": 0.5,
        "carries": None,
    },
    **{"carrier": "carrier--vision--1", "carries": None, "ranSeconds": 1800.0, "waitedSeconds": 720.0},
}


@pytest.mark.parametrize("by", KEYS)
def test_an_instance_that_jobs_shared_counts_once_and_its_gpus_for_those_who_had_them(by: str) -> None:
    attempts = [PastAttempt.from_json(one) for one in (CARRIER, MEMBER, {**MEMBER, "job": "other", "gpus": 4})]
    parts, total = sum_usage(attempts, by, PriceList(PRICES))
    found = total.hours()
    assert (found["instance_hours"], found["cost"], found["gpu_hours"]) == (1, 100, 0.25 + 2)
    assert (found["jobs"], found["attempts"], found["waited_hours"]) == (2, 2, 0.4), "nobody has submitted the carrier"
    assert found["unknown_gpu_hours"] == found["unpriced_hours"] == 0
    assert len(parts) == 1, "what it used is where they are"


def test_an_instance_that_several_shared_is_theirs_by_the_gpu_hours_of_each() -> None:
    ann = {**MEMBER, "gpus": 3, "group": "lr"}
    bob = {**MEMBER, "job": "bobs", "gpus": 1, "owner": "arn:aws:sts::123456789012:assumed-role/Team/bob"}
    attempts = [PastAttempt.from_json(one) for one in (CARRIER, ann, bob)]
    by_owner, total = sum_usage(attempts, "owner", PriceList(PRICES))
    assert {key: used.hours()["instance_hours"] for key, used in by_owner.items()} == {"ann": 0.75, "Team/bob": 0.25}
    assert {key: used.hours()["cost"] for key, used in by_owner.items()} == {"ann": 75, "Team/bob": 25}
    by_group, _ = sum_usage(attempts, "group", PriceList(PRICES))
    assert {key: used.hours()["instance_hours"] for key, used in by_group.items()} == {"lr": 0.75, "(none)": 0.25}
    assert total.hours()["instance_hours"] == 1
    alone, _ = sum_usage([PastAttempt.from_json(CARRIER)], "owner", PriceList(PRICES))
    assert alone["ann"].hours()["instance_hours"] == 1, "whose job it was launched for"
