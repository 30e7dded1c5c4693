"""``smq history``: what it asks the queue for, and how it shows attempts."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from api_contract.history import PastAttempt
from sagemaker_queue.cli import main
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.presentation.text.accounting.history_text import history_table
from sagemaker_queue.workflows.usage.period import moment_of
from tests.client.samples import ATTEMPT

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

STARVED = {
    **{**ATTEMPT, "job": "job2", "owner": "arn:aws:sts::123456789012:assumed-role/Team/bob", "project": "speech"},
    **{
        "began": None,
        "ranSeconds": 0,
        "provisionedSeconds": 7200,
        "outcome": "stopped",
        "gpus": None,
        "lostSeconds": None,
    },
}

TABLE = """\
Job Name      Attempt  Owner     Project    Pool      Instances  Submitted (UTC)      Waited    Provisioned    Ran    Outcome
----------  ---------  --------  ---------  ------  -----------  -------------------  --------  -------------  -----  ---------
job1                2  ann       vision     p5                2  2026-11-21 10:00:00  1h40m     1m35s          2h00m  preempted
job2                2  Team/bob  speech     p5                2  2026-11-21 10:00:00  1h40m     2h00m                 stopped
"""  # noqa: E501


def page(*attempts: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    return {"attempts": list(attempts), "next": following}


def asked(server: ScriptedServer) -> list[dict[str, str]]:
    """The queries of the requests."""
    found = [parse_qs(urlsplit(request.path).query) for request in server.received]
    return [{name: values[0] for name, values in query.items()} for query in found]


def test_a_table_of_two_pages(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, page(ATTEMPT, following="token"))
    server.answers(200, page(STARVED))
    assert main(["history", "--since", "2026-11-21", "--until", "2026-11-22T12:30+01:00"]) == 0
    assert capsys.readouterr().out == TABLE
    first, second = asked(server)
    expected = {"since": "2026-11-21T00:00:00Z", "until": "2026-11-22T11:30:00Z", "limit": "500"}
    assert (first, second) == (expected, {**expected, "next": "token"})


def test_the_utilization_of_gpus_is_shown_if_there_is_any(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, page({**ATTEMPT, "gpuMeanPercent": 0}, {**STARVED, "gpuMeanPercent": None}))
    assert main(["history"]) == 0
    headers, _, first, second = capsys.readouterr().out.splitlines()
    begin = headers.index("GPU %")
    assert [line[begin : begin + 5].strip() for line in (first, second)] == ["0", ""]


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_on_a_terminal_columns_are_left_out_until_the_table_fits(columns: int) -> None:
    attempts = [PastAttempt.from_json({**one, "job": "resnet-50-imagenet"}) for one in (ATTEMPT, STARVED)]
    lines = history_table(attempts, columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[1].split()[0] == "resnet-50-imagenet" and "…" not in " ".join(lines)
    assert ("2026-11-21 10:00:00" in lines[1]) == ("Submitted (UTC)" in lines[0])
    assert {"Ran", "Outcome", "Instances"} <= set(lines[0].split())


def test_it_begins_seven_days_ago(server: ScriptedServer) -> None:
    server.answers(200, page())
    before = datetime.now(timezone.utc) - timedelta(days=7)
    assert main(["history"]) == 0
    (query,) = asked(server)
    since = datetime.fromisoformat(query["since"].replace("Z", "+00:00"))
    assert before <= since <= datetime.now(timezone.utc) - timedelta(days=7)


@pytest.mark.parametrize(
    ("arguments", "shown", "query"),
    [
        (["job2"], ["job2"], {}),
        (["--owner", "ann"], ["job1"], {}),
        (["--owner", "arn:aws:iam::123456789012:user/ann"], ["job1"], {"owner": "arn:aws:iam::123456789012:user/ann"}),
        (["--owner", "ann,bob"], ["job1", "job2"], {}),
        (["--project", "vision"], ["job1"], {"project": "vision"}),
        (["--project", "v*"], ["job1"], {}),
        (["--group", "lr"], ["job1", "job2"], {}),
        (["--group", "none"], [], {}),
    ],
)
def test_what_the_queue_can_leave_out_it_is_asked_to(
    arguments: list[str],
    shown: list[str],
    query: dict[str, str],
    server: ScriptedServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.answers(200, page(ATTEMPT, STARVED))
    assert main(["history", *arguments, "--json"]) == 0
    assert [attempt["job"] for attempt in json.loads(capsys.readouterr().out)] == shown
    (sent,) = asked(server)
    assert {name: text for name, text in sent.items() if name not in ("since", "limit")} == query


def test_json_has_all_that_the_queue_says(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, page(ATTEMPT))
    assert main(["history", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found == ATTEMPT


def test_csv_has_a_line_for_each_attempt(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, page({**ATTEMPT, "group": "=1+1\n"}, STARVED))
    assert main(["history", "--csv"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 3 and "\r" not in out
    first, second = csv.DictReader(io.StringIO(out))
    assert (first["job_id"], first["attempt"], first["submit_s"]) == ("job1", "2", "1795255200.0")
    assert (first["duration_s"], first["ran_s"], first["lost_s"]) == ("6600.0", "7200.0", "600")
    assert (first["gpus"], second["gpus"], first["group"], first["priority"]) == ("16", "0", "vision", "-1")
    assert (first["user"], first["job_group"]) == ("arn:aws:iam::123456789012:user/ann", "'=1+1")
    assert (first["launched"], second["began"], second["lost_s"]) == ("2026-11-21 11:40:00", "", "")


def test_csv_names_region_and_account(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, page(ATTEMPT, {**ATTEMPT, "region": "us-east-2", "account": "222222222222"}))
    assert main(["history", "--csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["region"], first["account"]) == ("", "")
    assert (second["region"], second["account"]) == ("us-east-2", "222222222222")


def test_nothing_is_said_as_such(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, page())
    assert main(["history"]) == 0
    assert capsys.readouterr() == ("", "No attempt ended in that time.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--since", "2026-13-01"], "'2026-13-01' is not a time"),
        (["--since", "0001-01-01T00:00+14:00"], "is not a time"),
        (["--since", "2026-11-22", "--until", "2026-11-22"], "--until must be later than --since"),
        (["--csv", "--json"], "--json cannot be given together with --csv"),
        (["--mine", "--owner", "ann"], "cannot be given together"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", *arguments]) == 2
    assert message in capsys.readouterr().err


NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(days=14)),
        ("2026-11-22T12:00Z", NOW),
        ("2026-11-22T12:00", NOW),
        (" 2026-11-22T12:00z ", NOW),
        (" 12h ", NOW - timedelta(hours=12)),
        ("2026-11-22T13:00:00+01:00", NOW),
    ],
)
def test_times(text: str, time: datetime) -> None:
    assert moment_of(text, NOW) == time


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "1.5h", "999999d", "٣d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidOption):
        moment_of(text, NOW)
