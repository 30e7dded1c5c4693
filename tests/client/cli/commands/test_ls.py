"""``smq ls``: which jobs, in what order, with what columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.presentation.tables.jobs import COLUMNS
from tests.client.samples import Job, job
from tests.counting import counted

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

# The tables of the article "A Priority Based Scheduler for Amazon SageMaker Training Jobs".
ARTICLE = [
    (
        [job("job2", "running", 2), job("job1", "running", 1), job("job3", "pending", 1)],
        """\
Job Name    State      Priority
----------  -------  ----------
job2        running           2
job1        running           1
job3        pending           1
""",
    ),
    (
        [
            job("job4", "running", 3),
            job("job2", "running", 2),
            job("job1", "preempted", 1),
            job("job3", "pending", 1),
        ],
        """\
Job Name    State        Priority
----------  ---------  ----------
job4        running             3
job2        running             2
job1        preempted           1
job3        pending             1
""",
    ),
    (
        [job("job4", "running", 3), job("job1", "running", 1), job("job3", "pending", 1)],
        """\
Job Name    State      Priority
----------  -------  ----------
job4        running           3
job1        running           1
job3        pending           1
""",
    ),
]


class TestLs:
    @pytest.mark.parametrize(("jobs", "table"), ARTICLE)
    def test_the_articles_tables(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], jobs: list[Job], table: str
    ) -> None:
        server.answers(200, {"jobs": jobs, "next": None})
        assert main(["ls"]) == 0
        assert capsys.readouterr() == (table, "")
        assert server.received[0].path == "/prod/jobs?state=live&limit=500"

    def test_names_that_look_like_numbers_stay_as_they_are(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {"jobs": [job("007", "pending", 1), job("1e3", "pending", 1)], "next": None})
        assert main(["ls"]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["007", "1e3"]

    def test_columns_in_the_order_given(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        reason = {"code": "Full", "message": "2 of 2 instances\nare\x1b[31m used"}
        waiting = job("job3", "pending", 1, position=1, reason=reason, owner="arn:aws:sts::1:assumed-role/Research/ann")
        server.answers(200, {"jobs": [job("job1", "running", 1), waiting], "next": None})
        assert main(["ls", "-o", "position,job, owner,reason"]) == 0
        assert capsys.readouterr().out == (
            "  Position  Job Name    Owner         Reason\n"
            "----------  ----------  ------------  -------------------------------\n"
            "            job1\n"
            "         1  job3        Research/ann  2 of 2 instances are?[31m used\n"
        ).replace("-------------------------------", "------------------------------")

    def test_every_column_can_be_shown(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [job("job1", "running", 1)], "next": None})
        assert main(["ls", "--columns", ",".join(COLUMNS)]) == 0
        header = capsys.readouterr().out.splitlines()[0]
        assert all(title in header for title, _ in COLUMNS.values())

    def test_wide(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], now: datetime) -> None:
        entry = (now - timedelta(hours=2, minutes=5, seconds=9)).isoformat()
        server.answers(200, {"jobs": [job("job1", "running", 1, attempt=2, entryTime=entry)], "next": None})
        assert main(["ls", "--wide"]) == 0
        header, _, row = capsys.readouterr().out.splitlines()
        assert header.split()[:4] == ["Job", "Name", "State", "Priority"]
        assert "Position" in header and "Reason" in header
        assert "2h05m" in row

    @pytest.mark.parametrize(
        ("state", "more", "shown"),
        [
            # what it has run, waited, its age, its place or run time
            ("running", {"started": -2, "stateSince": -2, "entryTime": -5}, "2h00m 3h00m 5h00m 2h00m"),
            ("running", {"stateSince": -2, "entryTime": -5}, "2h00m - 5h00m 2h00m"),  # of an older queue
            ("pending", {"stateSince": -1, "entryTime": -5, "position": 12}, "- 1h00m 5h00m 12th"),
            ("completed", {"started": -9, "stateSince": -8, "entryTime": -10}, "1h00m 1h00m 2h00m 1h00m"),
            ("failed", {"started": -9, "stateSince": -8, "entryTime": -20, "attempt": 2}, "1h00m - 12h00m 1h00m"),
            ("stopped", {"stateSince": -8, "entryTime": -10}, "- 2h00m 2h00m -"),
        ],
    )
    def test_how_long(
        self,
        server: ScriptedServer,
        capsys: pytest.CaptureFixture[str],
        state: str,
        more: dict[str, int],
        shown: str,
        now: datetime,
    ) -> None:
        hours = {name: (now + timedelta(hours=hours)).isoformat() for name, hours in more.items() if hours < 0}
        server.answers(200, {"jobs": [job("job1", state, 1, **{"attempt": 1, **more, **hours})]})
        assert main(["ls", "-o", "elapsed,waited,age,turn"]) == 0
        header, _, row = capsys.readouterr().out.splitlines()
        starts = [header.index(title) for title in ("Elapsed", "Waited", "Age", "Turn")]
        cells = [row[start:end].strip() or "-" for start, end in zip(starts, [*starts[1:], None])]
        assert " ".join(cells) == shown

    def test_slots_and_type_of_an_ended_job_stay(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        p5 = {"instanceTypes": ["ml.p5.48xlarge"], "slots": {}, "instances": 2}
        ended = [
            job("told", "completed", 1, lastSlots={"p5": 2}, **p5),
            job("listed", "completed", 1, started=hours_ago(1), **p5),
            job("never", "stopped", 1, **p5),
        ]
        server.answers(200, {"jobs": ended})
        assert main(["ls", "--all", "-o", "job,type,slots"]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
            ["told", "ml.p5.48xlarge", "2", "p5"],
            ["listed", "ml.p5.48xlarge", "2", "ml.p5.48xlarge"],
            ["never", "ml.p5.48xlarge"],
        ]

    @pytest.mark.parametrize(
        ("hours", "doubt", "shown"),
        [
            (2.51, None, "2h30m"),
            (2.51, "SPREAD", "~2h30m"),
            (-1, None, "soon"),
            (None, "FAR", "?"),
            (None, "NEVER", ""),
        ],
    )
    def test_when_a_queue_of_an_earlier_version_expects_them_to_start(
        self,
        server: ScriptedServer,
        capsys: pytest.CaptureFixture[str],
        hours: float | None,
        doubt: str | None,
        shown: str,
        now: datetime,
    ) -> None:
        start = None if hours is None else now + timedelta(hours=hours)
        expected = {"message": "", "start": start and start.isoformat(), "doubt": doubt}
        server.answers(200, {"jobs": [job("job1", "pending", 1, expectedStart=expected)]})
        assert main(["ls", "-o", "job,when"]) == 0
        assert capsys.readouterr().out.splitlines()[2].split()[1:] == ([shown] if shown else [])

    @pytest.mark.parametrize(("level", "shown"), [(0.8, "20m-3h"), (None, "~20m-3h")])
    def test_the_interval_of_their_expected_starts(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], level: float | None, shown: str, now: datetime
    ) -> None:
        earliest, likely, latest = ((now + timedelta(minutes=it)).isoformat() for it in (24, 60, 170))
        expected = {"earliest": earliest, "likely": likely, "latest": latest, "start": likely, "doubt": "SPREAD"}
        server.answers(200, {"jobs": [job("job1", "pending", 1, expectedStart={**expected, "level": level})]})
        assert main(["ls", "-o", "job,when"]) == 0
        assert capsys.readouterr().out.splitlines()[2].split()[1:] == [shown]

    @pytest.mark.parametrize(("hours", "shown"), [(2.51, "2h30m"), (-1, "soon"), (None, "")])
    def test_when_they_are_expected_to_end(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], hours: float | None, shown: str, now: datetime
    ) -> None:
        end = None if hours is None else (now + timedelta(hours=hours)).isoformat()
        server.answers(200, {"jobs": [job("job1", "running", 1, expectedEnd=end)]})
        assert main(["ls", "-o", "job,ends"]) == 0
        assert capsys.readouterr().out.splitlines()[2].split()[1:] == ([shown] if shown else [])

    def test_who_holds_instances_whose_gpus_do_nothing(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], now: datetime
    ) -> None:
        since = (now - timedelta(hours=2.01)).isoformat()
        server.answers(200, {"jobs": [job("held", "running", 1, idleSince=since), job("works", "running", 1)]})
        assert main(["ls", "-o", "job,state,activity,reason"]) == 0
        assert [line.split(None, 2) for line in capsys.readouterr().out.splitlines()[2:]] == [
            ["held", "running", "idle 2h00m  Its GPUs have done nothing for 2h00m."],
            ["works", "running", "running"],
        ]

    def test_an_empty_queue(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls"]) == 0
        assert capsys.readouterr() == ("", "The queue is empty.\n")

    @pytest.mark.parametrize(
        ("names", "arguments", "said"),
        [
            (["a"], [], "The queue is empty; 1 job has finished: add --all to list it.\n"),
            (["a", "b"], [], "The queue is empty; 2 jobs have finished: add --all to list them.\n"),
            (["lr-1", "lr-2", "b"], ["lr-*"], "No jobs match; 2 jobs have finished: add --all to list them.\n"),
            ([f"j{number}" for number in range(120)], [], "The queue is empty; 100 or more jobs have finished: add"),
        ],
    )
    def test_finished_jobs_are_counted_where_no_job_is_live(
        self,
        names: list[str],
        arguments: list[str],
        said: str,
        server: ScriptedServer,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        server.answers(200, {"jobs": [], "next": None})
        server.answers(200, {"jobs": [job(name, "completed", 1) for name in names], "next": None})
        assert main(["ls", *arguments]) == 0
        assert capsys.readouterr().err.startswith(said)
        assert [one.path.partition("&")[0] for one in server.received] == [
            "/prod/jobs?state=live",
            "/prod/jobs?state=finished",
        ]

    def test_an_option_by_its_name_in_other_tools_is_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ls", "--user", "ann"]) == 2
        assert "There is no option --user. Use --owner, which accepts the names in the column User." in (
            capsys.readouterr().err
        )
        assert main(["ls", "--watch"]) == 2
        assert "Use smq top" in capsys.readouterr().err

    def test_an_empty_queue_for_a_program(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls", "--json"]) == 0
        assert capsys.readouterr() == ("[]\n", "")

    def test_a_job_at_its_own_limit_is_not_preemptible(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs = [job(f"job{count}", "running", 1, maxPreemptions=2, preemptions=count) for count in (1, 2, 3)]
        server.answers(200, {"jobs": [*jobs, job("job4", "running", 1, preemptions=9)], "next": None})
        assert main(["ls", "-o", "job,preemptible"]) == 0
        rows = capsys.readouterr().out.splitlines()[2:]
        assert [row.split() for row in rows] == [["job1", "yes"], ["job2", "no"], ["job3", "no"], ["job4", "yes"]]

    def test_what_the_policy_says_of_a_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        held = job("job2", "pending", 1, held=True, preemptible=False, pools=["p5", "p4"], slots={})
        runs = job("job1", "running", 1, held=False, preemptible=True, pools=[], slots={"p5": 1, "c6": 2})
        server.answers(200, {"jobs": [runs, held], "next": None})
        assert main(["ls", "-o", "job,held,preemptible,pools,slots"]) == 0
        assert capsys.readouterr().out == (
            "Job Name    Held    Preemptible    Pools    Slots\n"
            "----------  ------  -------------  -------  ----------\n"
            "job1                yes                     1 p5, 2 c6\n"
            "job2        yes     no             p5, p4\n"
        )

    def test_json_has_the_apis_members(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        entry = "2026-11-21T10:00:00Z"
        server.answers(200, {"jobs": [job("job1", "running", 1, entryTime=entry, trainingJobName="job1-qstamp-1")]})
        assert main(["ls", "--json"]) == 0
        (printed,) = json.loads(capsys.readouterr().out)
        assert printed["entryTime"] == entry
        assert printed["trainingJobName"] == "job1-qstamp-1"
        assert printed["reason"] is None


def hours_ago(hours: int) -> str:
    return (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat()


ANN, BOB = "arn:aws:iam::123456789012:user/ann", "arn:aws:sts::123456789012:assumed-role/Research/bob"
MANY = [
    job("lr-1", "running", 3, project="vision", owner=ANN, group="lr", stateSince=hours_ago(2), entryTime=hours_ago(9)),
    job("big", "running", 2, project="nlp", owner=BOB, instances=8, stateSince=hours_ago(5), entryTime=hours_ago(6)),
    job("lr-2", "preempted", 2, project="vision", owner=ANN, group="lr", position=2, stateSince=hours_ago(1)),
    job("other", "pending", 1, project="nlp", owner=BOB, position=1, stateSince=hours_ago(3), entryTime=hours_ago(3)),
    job("lr-10", "pending", 1, project="video", owner=ANN, position=3, stateSince=hours_ago(4), entryTime=hours_ago(4)),
]


@pytest.fixture
def listed(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The names that ``smq ls`` prints of many jobs, in order."""

    def names(*arguments: str) -> list[str]:
        server.answers(200, {"jobs": MANY, "next": None})
        assert main(["ls", *arguments]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]

    return names


class TestFilters:
    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            (["lr-*"], ["lr-1", "lr-2", "lr-10"]),
            (["lr-?", "big"], ["lr-1", "big", "lr-2"]),
            (["lr-1"], ["lr-1"]),  # a name, not the beginning of one
            (["--group", "lr"], ["lr-1", "lr-2"]),
            (["--project", "vision"], ["lr-1", "lr-2"]),
            (["--project", "vi*"], ["lr-1", "lr-2", "lr-10"]),
            (["--project", "nlp, video"], ["big", "other", "lr-10"]),
            (["--owner", "ann"], ["lr-1", "lr-2", "lr-10"]),
            (["--owner", "bob"], ["big", "other"]),
            (["--owner", "Research/bob"], ["big", "other"]),
            (["--owner", BOB], ["big", "other"]),
            (["--owner", "Research"], []),
            (["lr-*", "--project", "vision", "--limit", "1"], ["lr-1"]),
        ],
    )
    def test_a_job_has_to_meet_every_condition(
        self, listed: Callable[..., list[str]], arguments: list[str], names: list[str]
    ) -> None:
        assert listed(*arguments) == names

    @pytest.mark.parametrize(
        ("option", "states"),
        [
            ("--running", "running,starting,stopping"),
            ("--waiting", "pending,preempted"),
            ("--failed", "failed"),
            ("--finished", "finished"),
            ("--all", "all"),
            ("--state=running,pending", "running,pending"),
        ],
    )
    def test_states_are_asked_of_the_queue(self, server: ScriptedServer, option: str, states: str) -> None:
        server.answers(200, {"jobs": [], "next": None})
        assert main(["ls", option]) == 0
        assert server.received[0].path == f"/prod/jobs?state={states.replace(',', '%2C')}&limit=500"

    def test_nothing_fits(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"jobs": MANY, "next": None})
        assert main(["ls", "nobody"]) == 0
        assert capsys.readouterr() == ("", "No jobs match.\n")

    def test_mine_are_those_of_whose_credentials_sign(
        self, listed: Callable[..., list[str]], sts: ScriptedServer
    ) -> None:
        answer = f"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{BOB}</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>"  # noqa: E501
        sts.answers(200, answer, {"Content-Type": "text/xml"})
        assert listed("--mine") == ["big", "other"]

    def test_mine_are_those_of_my_role_where_a_library_names_my_sessions(
        self, server: ScriptedServer, sts: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sessions = "arn:aws:sts::123456789012:assumed-role/Research"
        answer = f"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{sessions}/botocore-session-1791092141</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>"  # noqa: E501
        owners = {
            "new": "arn:aws:iam::123456789012:role/Research",
            "old": f"{sessions}/botocore-session-1700000000",
            "anns": f"{sessions}/ann",
            "others": "arn:aws:iam::123456789012:role/Search",
        }
        jobs = [job(name, "running", 1, owner=owner) for name, owner in owners.items()]
        for arguments, meant in [
            (["--mine"], ["new", "old"]),
            (["--owner", owners["new"]], ["new", "old", "anns"]),
            (["--owner", "Research/*"], ["new", "old", "anns"]),
            (["--owner", "ann"], ["anns"]),
        ]:
            sts.answers(200, answer, {"Content-Type": "text/xml"})
            server.answers(200, {"jobs": jobs})
            assert main(["ls", "-o", "job", *arguments]) == 0
            assert capsys.readouterr().out.split()[3:] == meant, arguments

    def test_nobody_says_who_i_am(self, sts: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        sts.answers(
            403, "<ErrorResponse><Error><Code>ExpiredToken</Code><Message>Too old</Message></Error></ErrorResponse>"
        )
        assert main(["ls", "--mine"]) == 2
        assert "does not say whose credentials" in capsys.readouterr().err


class TestSort:
    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            (["--sort", "queue"], ["lr-1", "big", "lr-2", "other", "lr-10"]),
            (["--sort", "running"], ["big", "lr-1", "lr-2", "other", "lr-10"]),
            (["--sort", "waiting"], ["lr-10", "other", "lr-2", "lr-1", "big"]),
            (["--sort", "position"], ["other", "lr-2", "lr-10", "lr-1", "big"]),
            (["--sort", "priority"], ["lr-1", "big", "lr-2", "other", "lr-10"]),
            (["--sort", "age"], ["lr-1", "big", "lr-10", "other", "lr-2"]),  # of one nobody knows
            (["--sort", "name"], ["big", "lr-1", "lr-10", "lr-2", "other"]),
            (["--sort", "project"], ["big", "other", "lr-10", "lr-1", "lr-2"]),
            (["--sort", "owner"], ["big", "other", "lr-1", "lr-2", "lr-10"]),
            (["--sort", "instances"], ["big", "lr-1", "lr-2", "other", "lr-10"]),
            (["--reverse"], ["lr-10", "other", "lr-2", "big", "lr-1"]),
            (["--sort", "name", "--reverse", "--limit", "2"], ["other", "lr-2"]),
        ],
    )
    def test_the_order(self, listed: Callable[..., list[str]], arguments: list[str], names: list[str]) -> None:
        assert listed(*arguments) == names

    def test_positions_stay_those_of_the_whole_queue(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {"jobs": MANY, "next": None})
        assert main(["ls", "--sort", "name", "--project", "video,vision", "-o", "job,position"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
        assert rows == [["lr-1"], ["lr-10", "3"], ["lr-2", "2"]]

    def test_the_first_few_take_no_more_pages_than_they_stand_on(self, server: ScriptedServer) -> None:
        server.answers(200, {"jobs": MANY, "next": "more"})
        assert main(["ls", "--limit", "2"]) == 0
        assert len(server.received) == 1

    def test_thousands_of_jobs(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        reason = {"code": "WAITING_FOR_CAPACITY", "message": "Needs 2 instances of p5; 1 of 4 is free. " * 5}
        for page in range(10):
            jobs = [job(f"job-{page}-{place}", "pending", 1, reason=reason) for place in range(500)]
            server.answers(200, {"jobs": jobs, "next": "more" if page < 9 else None})
        code, calls = counted(lambda: main(["ls", "--wide", "--sort", "name"]))
        assert code == 0
        assert calls < 12_000_000  # three times as many as it takes; each pair of jobs would be 25 million
        assert len(capsys.readouterr().out.splitlines()) == 5002
