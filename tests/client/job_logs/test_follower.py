"""A job followed through its attempts, and how that is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_queue import NotFound, Unavailable
from sagemaker_queue.cli import main as smq
from sagemaker_queue.jobs.formatting import concise, end_of_attempt
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.job_logs.choice import LineChoice
from sagemaker_queue.workflows.job_logs.follower import (
    OUTAGES_ENDURED,
    AttemptEnded,
    Follower,
    JobEvent,
    Outage,
    StateReport,
)
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer, render_events
from tests.client.samples import refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


class Logs:
    """CloudWatch Logs in memory: what a follower asks of it."""

    def __init__(self) -> None:
        self.streams: dict[str, list[str]] = {}
        self.failures: list[str] = []  # codes of the errors to come

    def write(self, stream: str, *messages: str) -> None:
        self.streams.setdefault(stream, []).extend(messages)

    def get_paginator(self, operation: str) -> Logs:
        assert operation == "describe_log_streams"
        return self

    def paginate(self, *, logGroupName: str, logStreamNamePrefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        assert logGroupName == "/aws/sagemaker/TrainingJobs"
        self._fail("DescribeLogStreams")
        for name in sorted(self.streams):
            if name.startswith(logStreamNamePrefix):
                yield {"logStreams": [{"logStreamName": name}]}

    def get_log_events(self, *, logStreamName: str, nextToken: str = "0", **_: Any) -> dict[str, Any]:  # noqa: N803
        self._fail("GetLogEvents")
        begin = int(nextToken)
        messages = self.streams[logStreamName][begin : begin + 2]
        events = [{"timestamp": begin + number, "message": text} for number, text in enumerate(messages)]
        return {"events": events, "nextForwardToken": str(begin + len(messages))}

    def _fail(self, operation: str) -> None:
        if self.failures:
            code = self.failures.pop(0)
            raise ClientError({"Error": {"Code": code, "Message": code}}, operation)


def just_now() -> datetime:
    """Return a time that is less than a minute ago during the whole test, also on a slow machine."""
    return datetime.now(timezone.utc) + timedelta(hours=1)


class Scene:
    """A queue that answers by script, and the log, which may grow at each pause."""

    def __init__(self, server: ScriptedServer, queue: QueueClient) -> None:
        self.server, self.queue, self.logs = server, queue, Logs()
        self.pauses: list[Callable[[], None]] = []  # what happens in each

    def answer(self, state: str, *outcomes: str | None, **more: Any) -> None:
        """One answer: the job's state, and how its attempts ended (None: it runs)."""
        now = just_now()
        attempts = [
            {
                "attempt": number,
                "trainingJobName": f"job1-qstamp-{number}",
                "outcome": outcome,
                "ended": now.isoformat() if outcome else None,
            }
            for number, outcome in enumerate(outcomes, start=1)
        ]
        history = [
            {"state": "preempted", "attempt": number, "cause": "made room for job2"}
            for number, outcome in enumerate(outcomes, start=1)
            if outcome == "preempted"
        ]
        self.server.answers(200, {"job": "job1", "state": state, "attempts": attempts, "history": history, **more})

    def pause(self, seconds: float) -> None:
        if self.pauses:
            self.pauses.pop(0)()

    def follow(self, **options: Any) -> list[JobEvent]:
        return list(Follower(self.queue, self.logs, pause=self.pause, **options).follow("job1"))


@pytest.fixture
def scene(server: ScriptedServer, queue: QueueClient) -> Scene:
    return Scene(server, queue)


def short(events: list[JobEvent]) -> list[str]:
    """What happened, in short; what does not change is told once."""
    happened: list[str] = []
    state = ""
    for event in events:
        if isinstance(event, LogLine):
            happened.append(f"{event.attempt}/{event.instance} {event.message}")
        elif isinstance(event, StateReport):
            happened += [event.job.state] if event.job.state != state else []
            state = event.job.state
        elif isinstance(event, AttemptEnded):
            happened.append(f"{event.attempt.attempt} {event.attempt.outcome}: {event.cause}")
        elif isinstance(event, Outage):
            happened.append(type(event.error).__name__)
    return happened


def test_a_job_is_followed_through_a_preemption(scene: Scene) -> None:
    first, second = "job1-qstamp-1/algo-1-1700000001", "job1-qstamp-2/algo-1-1700000002"
    scene.logs.write(first, "a", "b", "c")
    scene.answer("pending")
    scene.answer("running", None)
    scene.answer("preempted", "preempted")
    scene.answer("running", "preempted", None)
    scene.answer("completed", "preempted", "completed")
    scene.answer("completed", "preempted", "completed")

    def late() -> None:
        """The last line of the first attempt comes after its end, when the second writes already."""
        scene.logs.write(second, "f")
        scene.logs.write(first, "e")

    scene.pauses = [
        lambda: None,
        lambda: scene.logs.write(first, "d"),
        late,
        lambda: scene.logs.write(second, "g"),
        lambda: scene.logs.write(second, "h"),
    ]
    assert short(scene.follow()) == [
        "pending",
        "running",
        *["1/algo-1 a", "1/algo-1 b", "1/algo-1 c", "1/algo-1 d", "1/algo-1 e"],
        "1 preempted: made room for job2",
        *["2/algo-1 f", "2/algo-1 g", "2/algo-1 h"],
        "2 completed: ",
        "completed",
    ]


def test_all_instances_are_read_also_those_that_write_later(scene: Scene) -> None:
    scene.logs.write("job1-qstamp-1/algo-1-1700000001", "a")
    for state in (None, None, "completed", "completed"):
        scene.answer("completed" if state else "running", state, instances=2)
    scene.pauses = [lambda: scene.logs.write("job1-qstamp-1/algo-2-1700000003", "b")]
    assert short(scene.follow())[:3] == ["running", "1/algo-1 a", "1/algo-2 b"]


def test_the_stream_of_the_ssm_agent_is_not_an_instance(scene: Scene) -> None:
    own = "job1-qstamp-1/algo-1-1700000001"
    scene.logs.write(f"{own}/ssm", "agent")
    for outcome in (None, None, "completed", "completed"):
        scene.answer("completed" if outcome else "running", outcome)
    scene.pauses = [lambda: scene.logs.write(own, "a")]
    assert short(scene.follow()) == ["running", "1/algo-1 a", "1 completed: ", "completed"]


def test_all_instances_are_read_of_an_attempt_that_had_more_than_the_job_has_now(scene: Scene) -> None:
    first = {"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": None, "instances": 2}
    scene.logs.write("job1-qstamp-1/algo-1-1700000001", "a")
    scene.answer("running", attempts=[first], instances=1)
    ended = {**first, "outcome": "completed", "ended": just_now().isoformat()}
    scene.answer("completed", attempts=[ended], instances=1)
    scene.answer("completed", attempts=[ended], instances=1)
    scene.pauses = [lambda: scene.logs.write("job1-qstamp-1/algo-2-1700000003", "b")]
    assert short(scene.follow())[:3] == ["running", "1/algo-1 a", "1/algo-2 b"]


def test_a_job_that_ended_long_ago_is_read_once(scene: Scene) -> None:
    ended = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    scene.logs.write("job1-qstamp-1/algo-1-1700000001", "a")
    attempts = [{"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "failed", "ended": ended}]
    scene.answer("failed", attempts=attempts)
    assert short(scene.follow()) == ["1/algo-1 a", "1 failed: ", "failed"]


def test_a_launch_that_was_refused_leaves_nothing_behind(scene: Scene) -> None:
    def attempt(number: int, outcome: str | None) -> dict[str, Any]:
        return {"attempt": number, "trainingJobName": f"job1-qstamp-{number}", "outcome": outcome}

    scene.logs.write("job1-qstamp-2/algo-1-1700000001", "a")
    scene.answer("starting", attempts=[attempt(1, None)])
    scene.answer("pending")
    scene.answer("running", attempts=[attempt(2, None)])
    for _ in range(2):
        scene.answer("completed", attempts=[attempt(2, "completed")])
    assert short(scene.follow()) == ["starting", "pending", "running", "2/algo-1 a", "2 completed: ", "completed"]


def test_one_attempt_only(scene: Scene) -> None:
    scene.logs.write("job1-qstamp-1/algo-1-1700000001", "a")
    for _ in range(2):
        scene.answer("running", "preempted", None)
    assert "1/algo-1 a" in short(scene.follow(lines=LineChoice(attempt=1)))


def test_an_outage_of_cloudwatch_loses_nothing(scene: Scene) -> None:
    for host in (1, 2):
        scene.logs.write(f"job1-qstamp-1/algo-{host}-1700000001", f"from {host}")
    for _ in range(2):
        scene.answer("running", None, instances=2)
    for _ in range(2):
        scene.answer("completed", "completed", instances=2)
    # The first instance is read, the second is not.
    get, calls = scene.logs.get_log_events, []

    def fail_at_third(**arguments: Any) -> dict[str, Any]:
        calls.append(arguments)
        if len(calls) == 3:
            scene.logs.failures.append("ThrottlingException")
        return get(**arguments)

    scene.logs.get_log_events = fail_at_third  # type: ignore[method-assign]
    happened = short(scene.follow())
    assert happened[:4] == ["running", "ClientError", "1/algo-1 from 1", "1/algo-2 from 2"]
    assert [line for line in happened if "from" in line] == ["1/algo-1 from 1", "1/algo-2 from 2"]


def test_logs_that_may_not_be_read(scene: Scene) -> None:
    scene.logs.failures = ["AccessDeniedException"]
    scene.answer("running", None)
    with pytest.raises(ClientError):
        scene.follow()


def test_the_queue_is_asked_again_but_not_for_ever(scene: Scene, server: ScriptedServer) -> None:
    queue = QueueClient(url=server.url, pause_seconds=0, tries=1)
    server.answers(503, {"message": "later"})
    scene.answer("completed")
    events = list(Follower(queue, None, pause=scene.pause).follow("job1"))
    assert short(events) == ["Unavailable", "completed"]
    for _ in range(OUTAGES_ENDURED + 1):
        server.answers(503, {"message": "later"})
    with pytest.raises(Unavailable):
        list(Follower(queue, None, pause=scene.pause).follow("job1"))


def test_there_is_no_such_job(scene: Scene, server: ScriptedServer) -> None:
    server.answers(404, refused("NotFound", "There is no job job1."))
    with pytest.raises(NotFound):
        scene.follow()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def get_screen(self) -> list[str]:
        """What a terminal shows after all that was written."""
        lines = [""]
        for piece in self.getvalue().replace("\r\x1b[K", "\x00").split("\n"):
            lines[-1] += piece
            lines[-1] = lines[-1].rpartition("\x00")[2]
            lines.append("")
        return lines[:-1]


def events(scene: Scene) -> Iterator[JobEvent]:
    scene.logs.write("job1-qstamp-1/algo-1-1700000001", "a line")
    scene.answer("pending", position=2)
    scene.answer("pending", position=1)
    scene.answer("running", None)
    scene.answer("preempted", "preempted", position=1)
    scene.answer("preempted", "preempted", position=1)
    scene.answer("completed", "preempted")
    return Follower(scene.queue, scene.logs, pause=scene.pause).follow("job1")


def test_elsewhere_than_on_a_terminal_each_change_is_a_line(scene: Scene) -> None:
    output, notes = io.StringIO(), io.StringIO()
    job = render_events(events(scene), JobLogRenderer(output, notes))
    assert job is not None and job.state == "completed"
    assert output.getvalue() == "a line\n"
    assert notes.getvalue().splitlines() == [
        "job1 is pending, 2nd in the queue",
        "job1 is pending, 1st in the queue",
        "job1 is running",
        "job1 was preempted (attempt 1): made room for job2",
        "job1 is preempted, 1st in the queue",
        "job1 completed",
    ]


def test_on_a_terminal_one_line_changes_in_place(scene: Scene) -> None:
    terminal = Terminal()
    render_events(events(scene), JobLogRenderer(terminal, terminal))
    assert terminal.get_screen() == [
        "a line",
        "job1 was preempted (attempt 1): made room for job2",
        "job1 completed",
        "",
    ]


def test_ctrl_c_says_how_to_cancel_and_asks_nothing(scene: Scene, server: ScriptedServer) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    notes = io.StringIO()
    scene.answer("pending", position=1)
    scene.pauses = [interrupt]
    follower = Follower(scene.queue, scene.logs, pause=scene.pause)
    with pytest.raises(KeyboardInterrupt):
        render_events(follower.follow("job1"), JobLogRenderer(io.StringIO(), notes))
    assert notes.getvalue().splitlines()[-1] == "job1 stays in the queue; to cancel it: smq cancel job1"
    assert [received.method for received in server.received] == ["GET"]


@pytest.mark.parametrize(("state", "said"), [("running", "continues to run"), ("preempted", "stays in the queue")])
def test_ctrl_c_says_what_the_job_does(scene: Scene, state: str, said: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    notes = io.StringIO()
    scene.answer(state)
    scene.pauses = [interrupt]
    follower = Follower(scene.queue, None, pause=scene.pause)
    with pytest.raises(KeyboardInterrupt):
        render_events(follower.follow("job1"), JobLogRenderer(io.StringIO(), notes))
    assert notes.getvalue().splitlines()[-1] == f"job1 {said}; to cancel it: smq cancel job1"


TRACEBACK = (
    'AlgorithmError: ExecuteUserScriptError: ExitCode 1 ErrorMessage "Traceback (most recent call last): File train.py,'
    " line 3, in <module> ValueError: invalid literal for int() with base 10: 'x'\""
)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            f"{TRACEBACK} [user_error: ValueError: invalid literal]",
            "ValueError: invalid literal (exit code 1)",
        ),
        ("AlgorithmError: , exit code: 137", "exit code 137"),
        (
            'failed, retry 1 of 2: AlgorithmError: ExecuteUserScriptError:\nExitCode 3\nErrorMessage ""',
            "failed, retry 1 of 2: exit code 3",
        ),
        ("AlgorithmError: exit code: 1\nTraceback\nKeyError: 'lr'", "exit code 1: KeyError: 'lr'"),
        ("AlgorithmError: something else", "AlgorithmError: something else"),
        ("CapacityError: none", "CapacityError: none"),
    ],
)
def test_a_failed_program_is_reported_in_short(text: str, short: str) -> None:
    assert concise(text) == short


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("failed, retry 1 of 2: AlgorithmError: exit code: 3", "failed (exit code 3); retry 1 of 2"),
        ("failed, retried free: AlgorithmError: exit code: 3", "failed (exit code 3); retried free"),
        ("failed: AlgorithmError: exit code: 3", "failed: exit code 3"),
        ("", "failed"),
    ],
)
def test_the_end_of_an_attempt_is_said_once(cause: str, said: str) -> None:
    assert end_of_attempt("failed", cause) == said


class TestSmqLogs:
    @pytest.fixture(autouse=True)
    def lines(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", scene.server.url)
        monkeypatch.setattr(QueueClient, "aws_client", lambda self, service: scene.logs)
        for attempt in (1, 2):
            for host in (1, 2):
                scene.logs.write(f"job1-qstamp-{attempt}/algo-{host}-1700000001", f"{attempt} of {host}")

    def run(self, scene: Scene, *arguments: str) -> int:
        for _ in range(2):
            scene.answer("failed", "preempted", "failed", instances=2)
        return smq(["logs", *arguments, "job1"])

    def test_all_attempts_in_order(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(scene) == 0
        assert capsys.readouterr().out.splitlines() == [
            "algo-1 | 1 of 1",
            "algo-2 | 1 of 2",
            "algo-1 | 2 of 1",
            "algo-2 | 2 of 2",
        ]

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            (["--tail", "3"], ["algo-2 | 1 of 2", "algo-1 | 2 of 1", "algo-2 | 2 of 2"]),
            (["--tail", "1", "--instance", "1"], ["algo-1 | 2 of 1"]),
            (["--tail", "0"], []),
            (["--tail", "9", "--attempt", "1"], ["algo-1 | 1 of 1", "algo-2 | 1 of 2"]),
            (["--since", "1970-01-01T00:00:00.001"], ["algo-1 | more"]),
            (["--timestamps", "--attempt", "2", "--instance", "2"], ["1970-01-01 00:00:00 algo-2 | 2 of 2"]),
        ],
    )
    def test_only_some_lines(
        self, scene: Scene, capsys: pytest.CaptureFixture[str], arguments: list[str], shown: list[str]
    ) -> None:
        if "--since" in arguments:
            scene.logs.write("job1-qstamp-2/algo-1-1700000001", "more")  # a millisecond after the first
        assert self.run(scene, *arguments) == 0
        assert capsys.readouterr().out.splitlines() == shown

    def test_a_line_tells_where_an_attempt_ends(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        for _ in range(2):
            scene.answer("completed", "preempted", "failed", "completed")
        assert smq(["logs", "job1"]) == 0
        assert capsys.readouterr().err.splitlines()[:2] == [
            "job1 was preempted (attempt 1): made room for job2",
            "job1: attempt 2 failed",
        ]

    def test_following_begins_with_the_last_lines(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        stream = "job1-qstamp-2/algo-1-1700000001"
        scene.pauses = [lambda: scene.logs.write(stream, "new", "newer")]
        scene.answer("running", "preempted", None)
        scene.answer("completed", "preempted", "completed")
        scene.answer("completed", "preempted", "completed")
        list_of = Follower(scene.queue, scene.logs, pause=scene.pause, lines=LineChoice(instance="1", tail=1)).follow
        assert [event.message for event in list_of("job1") if isinstance(event, LogLine)][-3:] == [
            "2 of 1",
            "new",
            "newer",
        ]

    def test_the_jobs_of_a_group(
        self, scene: Scene, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs = [{"job": name, "state": "failed", "priority": 1, "group": "g"} for name in ("job1", "job2")]
        server.answers(200, {"jobs": jobs, "next": None})
        for name in ("job1", "job2"):
            for _ in range(2):
                server.answers(
                    200,
                    {**jobs[0], "job": name, "attempts": [{"attempt": 1, "trainingJobName": "job1-qstamp-1"}]},
                )
        assert smq(["logs", "--group", "g", "--tail", "1"]) == 0
        assert capsys.readouterr().out.splitlines() == ["job1 | 1 of 2", "job2 | 1 of 2"]
        assert "state=all" in server.received[0].path
        for wrong in (["--group", "g", "-f"], ["--group", "g", "job1"], []):
            assert smq(["logs", *wrong]) == 2

    def test_a_job_of_a_group_without_the_wanted_attempt_does_not_stop_the_others(
        self, scene: Scene, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs = [{"job": name, "state": "failed", "priority": 1, "group": "g"} for name in ("job1", "job2")]
        server.answers(200, {"jobs": jobs, "next": None})
        server.answers(200, {**jobs[0], "attempts": []})
        for _ in range(2):
            server.answers(200, {**jobs[1], "attempts": [{"attempt": 1, "trainingJobName": "job1-qstamp-1"}]})
        assert smq(["logs", "--group", "g", "--attempt", "1", "--tail", "1"]) == 3
        told = capsys.readouterr()
        assert told.out.splitlines() == ["job2 | 1 of 2"]
        assert told.err.splitlines()[0] == "smq: job1 has no attempt 1; its attempts: none yet."

    @pytest.mark.parametrize("instance", ["2", "algo-2"])
    def test_one_attempt_and_one_instance(
        self, scene: Scene, capsys: pytest.CaptureFixture[str], instance: str
    ) -> None:
        assert self.run(scene, "--attempt", "2", "--instance", instance) == 0
        assert capsys.readouterr().out == "algo-2 | 2 of 2\n"

    def test_for_programs(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(scene, "--json") == 0
        first = json.loads(capsys.readouterr().out.splitlines()[0])
        expected = {"attempt": 1, "instance": "algo-1", "time": "1970-01-01T00:00:00.000Z", "message": "1 of 1"}
        assert first == expected

    @pytest.mark.parametrize(("instance", "follow"), [("3", []), ("algo-0", ["-f"]), ("gpu", [])])
    def test_an_instance_that_there_is_not(
        self, scene: Scene, capsys: pytest.CaptureFixture[str], instance: str, follow: list[str]
    ) -> None:
        assert self.run(scene, *follow, "--instance", instance) == 3
        assert capsys.readouterr().err == f"smq: job1 has no instance {instance}; its instances: algo-1 to algo-2.\n"

    def test_an_attempt_that_there_is_not(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(scene, "--attempt", "7") == 3
        assert "job1 has no attempt 7; its attempts: 1, 2." in capsys.readouterr().err

    def test_the_end_of_the_job_is_the_exit_code(self, scene: Scene) -> None:
        ended = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
        for state, code in (("failed", 4), ("completed", 0)):
            attempts = [{"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": state, "ended": ended}]
            scene.answer(state, attempts=attempts)
            assert smq(["logs", "-f", "job1"]) == code

    def test_logs_that_may_not_be_read(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        scene.logs.failures = ["AccessDeniedException"]
        assert self.run(scene) == 1
        assert "smq: The logs cannot be read from CloudWatch" in capsys.readouterr().err


class HourOverError(Exception):
    """The hour that is simulated is over."""


def followed_for_an_hour(scene: Scene, logs: Any, **options: Any) -> list[float]:
    """When the queue was asked, in seconds, of a job that does not change."""
    passed, asked = 0.0, list[float]()

    def pause(seconds: float) -> None:
        nonlocal passed
        asked.extend([passed] * (len(scene.server.received) - len(asked)))
        passed += seconds
        if passed > 3600:
            raise HourOverError

    with pytest.raises(HourOverError):
        list(Follower(scene.queue, logs, pause=pause, **options).follow("job1"))
    return asked


def always(scene: Scene, state: str, *attempts: dict[str, Any], **more: Any) -> None:
    scene.server.always_answers(200, {"job": "job1", "state": state, "attempts": attempts, "history": [], **more})


class CountedLogs(Logs):
    """Counts how often lines are asked for."""

    looks = 0

    def get_log_events(self, **arguments: Any) -> dict[str, Any]:
        self.looks += 1
        return super().get_log_events(**arguments)


def test_a_waiting_job_is_asked_about_more_and_more_rarely(scene: Scene) -> None:
    always(scene, "pending")
    asked = followed_for_an_hour(scene, None)
    assert 12 <= sum(time < 60 for time in asked) <= 17
    assert 85 <= len(asked) <= 145
    gaps = [after - before for before, after in zip(asked, asked[1:])]
    assert gaps[0] < 1.5 and min(gaps[5:]) >= 5 and max(gaps) <= 37.5


def test_a_job_far_from_its_start_is_asked_about_each_minute(scene: Scene) -> None:
    always(scene, "pending", askAgainAfter=60)
    assert 50 <= len(followed_for_an_hour(scene, None)) <= 85


def test_lines_of_a_running_job_come_as_soon_as_ever_while_the_queue_is_asked_rarely(scene: Scene) -> None:
    logs = CountedLogs()
    logs.write("job1-qstamp-1/algo-1-1", "one line")
    always(scene, "running", {"attempt": 1, "trainingJobName": "job1-qstamp-1"})
    asked = followed_for_an_hour(scene, logs)
    assert 85 <= len(asked) <= 145
    assert logs.looks >= 3600 / 7, "about each five seconds"


def test_a_poll_that_a_user_sets_is_the_shortest_pause(scene: Scene) -> None:
    always(scene, "pending")
    asked = followed_for_an_hour(scene, None, poll=120)
    assert min(after - before for before, after in zip(asked, asked[1:])) >= 120
