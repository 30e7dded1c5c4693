"""``smq show``, ``events``, ``why`` and ``plan``: what they tell of one job."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from tests.client.samples import DETAIL, SEE, Job, job, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

PAGE = """\
job1
  State         preempted
  Priority      1
  Position      2
  Reason        2 of 2 instances are used by jobs of higher priority (PoolFull)
  See           docs/reference/reasons.md#poolfull
  Project       default
  Owner         arn:aws:iam::123456789012:user/ann
  Instances     1
  Submitted     2026-11-21 10:00:00
  Ran           3 minutes 55 seconds
  Waited        ...
  Training job  job1-qstamp-1

Attempts
  No.  Training Job    Started              Ended                Ran    Outcome
-----  --------------  -------------------  -------------------  -----  ---------
    1  job1-qstamp-1   2026-11-21 10:00:05  2026-11-21 10:04:00  3m55s  preempted

History
Time (UTC)             Attempt  State      Cause
-------------------  ---------  ---------  -------------------
2026-11-21 10:00:00          0  pending    submitted
2026-11-21 10:04:00          1  preempted  job4 has priority 3

Request
  Instances    1 x ml.p5.48xlarge
  Role         arn:aws:iam::123456789012:role/training
  Checkpoints  s3://bucket/job1
  Tags         priority=1
"""


class TestShow:
    def test_a_page_for_people(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, DETAIL)
        assert main(["show", "job1"]) == 0
        page, complaints = capsys.readouterr()
        assert (re.sub(r"(?m)(Waited +).*", r"\1...", page), complaints) == (PAGE, "")
        assert server.received[0].path == "/prod/jobs/job1"

    def test_an_ended_job_tells_how_long_what_and_where(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = {"attempt": 1, "trainingJobName": "j-qstamp-1", "outcome": "preempted"}
        second = {"attempt": 2, "trainingJobName": "j-qstamp-2", "outcome": "completed"}
        request = {
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
            "HyperParameters": {"command": '["python", "train.py", ', "command_2": '"--name", "a b"]'},
            "StoppingCondition": {"MaxRuntimeInSeconds": 93_600},
        }
        times = {"entryTime": "2026-11-21T10:00:00Z", "stateSince": "2026-11-21T12:00:10Z"}
        attempts = [
            {**first, "started": "2026-11-21T10:10:00Z", "ended": "2026-11-21T10:20:00Z"},
            {**second, "started": "2026-11-21T11:00:00Z", "ended": "2026-11-21T12:00:00Z"},
        ]
        server.answers(200, {"job": "j", "state": "completed", **times, "attempts": attempts, "request": request})
        assert main(["show", "j"]) == 0
        page = capsys.readouterr().out
        assert re.search(r"State +completed, \d+ \w+( \d+ \w+)? ago\n", page)
        assert re.search(r"Ran +1 hour 10 minutes in 2 attempts\n", page)
        assert re.search(r"Waited +50 minutes 10 seconds\n", page)
        assert re.search(r"Command +python train.py --name 'a b'\n", page)
        assert re.search(r"Output +s3://bucket/out/j-qstamp-2/output/\n", page)
        assert re.search(r"Maximum runtime +1 day 2 hours\n", page)

    @pytest.mark.parametrize(
        ("request_", "command"),
        [
            ({"HyperParameters": {"sagemaker_program": '"train.py"'}}, "train.py"),
            ({"AlgorithmSpecification": {"ContainerEntrypoint": ["sh", "-c", "a b"]}}, "sh -c 'a b'"),
            ({"HyperParameters": {"command": "(not shown)", "sagemaker_program": "x.py"}}, "x.py"),
            ({}, None),
        ],
    )
    def test_the_command_of_any_job(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], request_: Any, command: str | None
    ) -> None:
        server.answers(200, {"job": "j", "state": "running", "request": {"RoleArn": "r", **request_}})
        assert main(["show", "j"]) == 0
        found = re.search(r"Command +(.*)\n", capsys.readouterr().out)
        assert (found and found[1]) == command

    def test_when_it_is_cut_off(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"job": "job1", "state": "running", "cutOff": "2026-11-27T09:30:00Z"})
        assert main(["show", "job1"]) == 0
        line = "  Cut off    at 2026-11-27 09:30:00: its training plan ends, and it waits again\n"
        assert line in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("action", "cause", "told"),
        [
            ("notify", "", "is only announced"),
            ("next_pool", "; it may now run in p5 and p4", "may run in the further pools of its project"),
            ("next_pool", "; its project has no further", "keeps waiting, as its project has no further pools"),
        ],
    )
    def test_a_start_that_was_missed(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], action: str, cause: str, told: str
    ) -> None:
        missed = {"state": "pending", "cause": f"it had not started by 2026-11-27 09:30:00 UTC (tag start_by){cause}"}
        late = {"startBy": "2026-11-27T09:30:00Z", "startByAction": action, "startMissed": True}
        server.answers(200, {"job": "job1", "state": "pending", **late, "history": [missed]})
        assert main(["show", "job1"]) == 0
        page = " ".join(capsys.readouterr().out.split())
        assert f"Start by 2026-11-27 09:30:00; it had not started by then, and {told} " in page

    def test_hangs_of_earlier_attempts_and_the_action(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {"job": "job1", "state": "running", "onHang": "requeue", "hangs": 1})
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert re.search(r"If it hangs +it is stopped, and resumes from its checkpoint\n", page)
        assert re.search(r"Hung before +1 attempt, stopped by the queue\n", page)

    def test_the_sizes_that_it_accepts_and_has_had(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        attempts: Any = DETAIL["attempts"]
        waits = {"job": "job1", "state": "preempted", "instances": 8, "sizes": [8, 4, 2]}
        server.answers(200, {**waits, "attempts": [{**attempts[0], "instances": 4}]})
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert "Instances  8, 4, 2\n" in page
        assert "No.  Training Job      Instances  Started" in page
        assert "job1-qstamp-1             4  2026" in page
        server.answers(200, {**waits, "state": "running", "instances": 2, "slots": {"p5": 2}})
        assert main(["show", "job1"]) == 0
        assert "Accepts    8, 4, 2\n" in capsys.readouterr().out

    def test_region_and_account_of_attempts(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        here: Any = DETAIL["attempts"][0]  # type: ignore[index]
        place = {"region": "us-east-2", "account": "222222222222"}
        there = {**here, **place, "attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": None, "ended": None}
        request = {"OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"}}
        server.answers(200, {**DETAIL, **place, "state": "running", "attempts": [here, there], "request": request})
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert re.search(r"Region +us-east-2\n", page) and re.search(r"Account +222222222222\n", page)
        first, second = (line for line in page.splitlines() if re.match(r" +[12] +job1-qstamp", line))
        assert "us-east-2" not in first and re.search(r"job1-qstamp-2 +us-east-2 +222222222222 ", second)
        assert "s3://bucket/out/job1-qstamp-2/output/ (in the project's bucket of us-east-2)" in page

    def test_little_is_known(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"job": "job1", "state": "running", "cancelRequested": True})
        assert main(["show", "job1"]) == 0
        assert "running (cancelled, being stopped)" in capsys.readouterr().out

    def test_json_for_programs(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, DETAIL)
        assert main(["show", "job1", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert {name: printed[name] for name in DETAIL} == DETAIL

    def test_no_such_job(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(404, refused("NotFound", "There is no job job9."))
        assert main(["show", "job9"]) == 3
        assert capsys.readouterr() == ("", f"smq: There is no job job9.\n{SEE}notfound\n")

    def test_held_jobs_and_their_pools(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, job("job1", "pending", 1, held=True, preemptible=False, pools=["p5", "p4"], instances=2))
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert "Held         yes: it starts only after smq release" in page
        assert "Preemptible  no: it uses only quota" in page
        assert "Pools        p5, p4" in page
        assert "Instances    2" in page

    def test_a_job_at_its_own_limit_is_not_preemptible(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, job("job1", "running", 1, maxPreemptions=1, preemptions=1))
        assert main(["show", "job1"]) == 0
        assert "Preemptible  no: it uses only quota" in capsys.readouterr().out


LONG = "failed, retry 1 of 3: AlgorithmError: " + "word " * 40

EVENTS = {
    **DETAIL,
    "history": [
        {"at": "2026-11-21T10:00:00Z", "state": "pending", "attempt": 1, "cause": "submitted"},
        {"at": "2026-11-21T10:04:00Z", "state": "pending", "attempt": 1, "cause": LONG},
    ],
}


class TestEvents:
    def test_each_transition_with_the_whole_of_its_cause(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, EVENTS)
        assert main(["events", "job1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["Time", "(UTC)", "Attempt", "State", "Cause"]
        assert lines[2].split() == ["2026-11-21", "10:00:00", "1", "pending", "submitted"]
        assert lines[3].startswith(
            "2026-11-21 10:04:00          1  pending  failed, retry 1 of 3: AlgorithmError: word"
        )
        assert len(lines) > 5
        assert max(map(len, lines)) < 120
        assert " ".join(lines).count("word") == 40
        assert server.received[0].path == "/prod/jobs/job1"

    def test_the_same_for_programs(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, EVENTS)
        assert main(["events", "job1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == EVENTS["history"]

    def test_the_page_about_a_job_shows_the_latest_and_says_where_the_others_are(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        many = [{"at": f"2026-11-21T10:{minute:02}:00Z", "state": "pending", "cause": "x"} for minute in range(30)]
        server.answers(200, {**DETAIL, "history": many, "retries": 3, "retried": 1})
        assert main(["show", "job1"]) == 0
        page = capsys.readouterr().out
        assert "History (the latest 10; smq events job1 shows all)" in page
        assert "10:20:00" in page and "10:19:00" not in page
        assert "Retries       1 of 3 used" in page


WAITING = job(
    "job3",
    "pending",
    1,
    position=2,
    reason={"code": "WAITING_FOR_CAPACITY", "message": "Needs 2 instances of p5; 1 of 4 is free."},
    why={
        "ahead": ["job2"],
        "blockers": [f"train-{number}" for number in range(12)],
        "advice": ["Ask for 1 instance instead of 2.", "Wait for train-0, which\nends at 14:00 at the latest."],
    },
)

WHY = """\
job3 waits, 2nd in the queue.
  Needs 2 instances of p5; 1 of 4 is free. (WAITING_FOR_CAPACITY)
  See docs/reference/reasons.md#waiting_for_capacity

Ahead of it
  job2

Blocked by (these jobs hold the instances)
  train-0, train-1, train-2, train-3, train-4, train-5, train-6, train-7, train-8, train-9 and 2 more

How to start it sooner
  - Ask for 1 instance instead of 2.
  - Wait for train-0, which ends at 14:00 at the latest.
"""


class TestWhy:
    @pytest.mark.parametrize(("ahead", "more"), [(19, "and 9 more"), (20, "and more")])
    def test_of_those_ahead_the_queue_names_the_first(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], ahead: int, more: str
    ) -> None:
        why = {"ahead": [f"job-{number}" for number in range(ahead)], "blockers": [], "advice": []}
        server.answers(200, {**WAITING, "position": 48, "why": why})
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr().out.endswith(f"job-8, job-9 {more}\n")

    @pytest.mark.parametrize("command", ["why", "show"])
    def test_when_it_is_expected_to_start(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        message = "Between 20 min and 3 h (8 of 10). Half of such jobs start by 2026-11-21 14:20 UTC."
        server.answers(200, {**WAITING, "expectedStart": {"message": message, "start": "2026-11-21T14:20:00Z"}})
        assert main([command, "job3"]) == 0
        assert message in capsys.readouterr().out

    @pytest.mark.parametrize(("hours", "in_how_long"), [(2.51, "in 2h30m."), (-1, "soon.")])
    def test_when_it_is_expected_to_end(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], hours: float, in_how_long: str, now: datetime
    ) -> None:
        end = now + timedelta(hours=hours)
        server.answers(200, {"job": "job3", "state": "running", "expectedEnd": end.isoformat()})
        assert main(["show", "job3"]) == 0
        assert f"At about {end:%Y-%m-%d %H:%M} UTC, {in_how_long}" in capsys.readouterr().out

    def test_its_gpus_do_nothing(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], now: datetime
    ) -> None:
        since = now - timedelta(hours=2.01)
        server.answers(200, {"job": "job3", "state": "running", "idleSince": since.isoformat()})
        assert main(["show", "job3"]) == 0
        told = f"its GPUs have done nothing for 2 hours, since {since:%Y-%m-%d %H:%M:%S}"
        assert told in capsys.readouterr().out

    def test_it_has_saved_nothing(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], now: datetime
    ) -> None:
        since = now - timedelta(hours=2.01)
        server.answers(200, {"job": "job3", "state": "running", "unsavedSince": since.isoformat()})
        assert main(["show", "job3"]) == 0
        assert "no checkpoint in the 2 hours of this attempt, which a preemption would lose" in capsys.readouterr().out

    def test_a_job_that_waits(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, WAITING)
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == (WHY, "")
        assert server.received[0].path == "/prod/jobs/job3?advice=true"

    def test_an_older_queue_gives_the_reason_alone(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, {name: value for name, value in WAITING.items() if name != "why"})
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == ("\n".join(WHY.splitlines()[:3]) + "\n", "")

    @pytest.mark.parametrize(
        ("state", "reason", "text"),
        [
            ("running", None, "job3 does not wait: it is running.\n"),
            (
                "failed",
                {"code": "FAILED", "message": "Out of memory"},
                "job3 does not wait: it failed.\n  Out of memory (FAILED)\n",
            ),
        ],
    )
    def test_a_job_that_does_not_wait(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], state: str, reason: object, text: str
    ) -> None:
        server.answers(200, job("job3", state, 1, reason=reason, why=None))
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == (text, "")

    @pytest.mark.parametrize(
        ("state", "since"), [("stopped", "it was stopped 2h00m ago."), ("running", "it is running, for 2h00m.")]
    )
    def test_since_when(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], state: str, since: str, now: datetime
    ) -> None:
        then = now - timedelta(hours=2, seconds=1)
        server.answers(200, job("job3", state, 1, stateSince=then.isoformat()))
        assert main(["why", "job3"]) == 0
        assert capsys.readouterr() == (f"job3 does not wait: {since}\n", "")

    def test_json(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, WAITING)
        assert main(["why", "job3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {name: WAITING[name] for name in WAITING if name != "priority"}


REQUEST = {"TrainingJobName": "job5", "ResourceConfig": {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2}}
PLANS = [
    (
        {"wouldStart": True, "slots": {"p5": 2}, "evicts": [], "warnings": ["It writes no checkpoints."]},
        """\
job5 would start at once on 2 instances of p5. No job would be stopped for it.

Warnings
  - It writes no checkpoints.
""",
    ),
    (
        {
            "wouldStart": True,
            "slots": {"p5": 1, "c6": 2},
            "evicts": [
                {"job": "job1", "rule": "preempt"},
                {"job": "job2", "rule": "reclaim"},
                {"job": "job3", "rule": "consolidate"},
                {"job": "job4", "rule": "lottery"},
            ],
        },
        """\
job5 would start on 1 instance of p5 and 2 instances of c6 as soon as 4 jobs have stopped.

Jobs to be stopped for it, which then wait again
  - job1, by preempt: a lower priority in the same project
  - job2, by reclaim: its project holds more than it is entitled to
  - job3, by consolidate: the job can continue in another pool that it accepts
  - job4, by lottery
""",
    ),
    (
        {"wouldStart": False, "slots": None, "evicts": [{"job": "job1", "rule": "preempt"}]},
        """\
job5 would start as soon as 1 job has stopped.

Jobs to be stopped for it, which then wait again
  - job1, by preempt: a lower priority in the same project
""",
    ),
    (
        {
            "wouldStart": False,
            "slots": None,
            "evicts": [],
            "position": 3,
            "reason": {"code": "OVER_LIMIT", "message": "vision may hold 3 instances of p5 and holds 2."},
            "ahead": ["job2", "job3"],
            "blockers": ["job1"],
            "warnings": [],
        },
        """\
job5 would wait, 3rd in the queue.
  vision may hold 3 instances of p5 and holds 2. (OVER_LIMIT)
  See docs/reference/reasons.md#over_limit

Ahead of it
  job2, job3

Blocked by (these jobs hold the instances)
  job1
""",
    ),
]


class TestPlan:
    @pytest.mark.parametrize(("answer", "text"), PLANS)
    def test_it_is_told_in_words(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: Job, text: str
    ) -> None:
        (tmp_path / "request.json").write_text(json.dumps(REQUEST))
        server.answers(200, answer)
        assert main(["plan", str(tmp_path / "request.json")]) == 0
        assert capsys.readouterr() == (text, "")
        assert (server.received[0].method, server.received[0].path) == ("POST", "/prod/plan")
        assert json.loads(server.received[0].body) == REQUEST

    def test_from_standard_input_for_a_program(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(REQUEST)))
        server.answers(200, PLANS[1][0])
        assert main(["plan", "-", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["wouldStart"], printed["slots"], printed["reason"]) == (True, {"p5": 1, "c6": 2}, None)

    def test_no_such_file(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", "nowhere.json"]) == 2
        assert capsys.readouterr() == ("", "smq: nowhere.json cannot be read: No such file or directory.\n")
        assert server.received == []
