"""``smq policy check``, ``preview`` and ``apply``, and ``smq plan --capacity``: what would change, and who is asked."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.policy import check
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON
from tests.client.samples import SEE, refused
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

YAML = """\
pools:
- {name: p5, instance_type: ml.p5.48xlarge, capacity: 4}
projects:
- name: a
  quota: {p5: 4}
"""
POLICY = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 4}],
    "projects": [{"name": "a", "quota": {"p5": 4}}],
}
APPLIED = {"version": 3, "policy": {**POLICY, "departments": [{"name": "d"}]}, "warnings": []}
NEWER = {**APPLIED, "version": 4, "policy": POLICY}
AT, IN_HALF_AN_HOUR, IN_FIVE_HOURS, UNTIL = (
    f"2026-11-21T{time}Z" for time in ("10:00:00", "10:30:10", "15:00:00", "18:00:00")
)
PREVIEW: dict[str, Any] = {
    "policyVersion": 3,
    "at": AT,
    "until": UNTIL,
    "starts": [{"job": f"train-{number}", "slots": {"p5": 1}} for number in range(9)],
    "moreStarts": 3,
    "keptWaiting": ["lucky"],
    "evictions": [{"job": f"old-{number}", "claimant": f"new-{number}", "rule": "reclaim"} for number in range(5)],
    "moreEvictions": 1,
    "unstartable": [
        {"job": "gang-1", "reason": {"code": "NEVER_FITS", "message": "It asks for 8 p5, and there are 4."}},
        {"job": "gang-2", "reason": {"code": "NEVER_FITS", "message": "It asks for 8 p5, and there are 4."}},
    ],
    "sooner": [
        {"job": "eval-1", "startNow": None, "startThen": IN_HALF_AN_HOUR},
        *({"job": f"eval-{n}", "startNow": IN_FIVE_HOURS, "startThen": IN_HALF_AN_HOUR} for n in range(2, 7)),
    ],
    "moreSooner": 7,
    "later": [{"job": "late", "startNow": AT, "startThen": None}],
    "projects": [
        {
            **{"project": "a", "waiting": 12, "known": 12, "waitNow": 18000.0, "waitThen": 3600.0},
            **{"usedNow": {"p5": 4}, "usedThen": {"p5": 6, "c6": 1}},
        },
        {"project": "same", "waiting": 1, "known": 1, "waitNow": 60.0, "waitThen": 60.0, "usedNow": {}, "usedThen": {}},
    ],
    "notLookedAt": [
        "The starts of 2 waiting jobs are unknown: the runtimes of other jobs are unknown, or SageMaker refuses the "
        "launches."
    ],
}
PAGE = """\
Compared with version 3 of the policy, now and over the next 8 hours:
  12 jobs would start now: train-0, train-1, train-2, train-3, train-4, train-5 and 6 more.
  1 job would not start now: lucky.
  old-0 would be stopped for new-0 (reclaim).
  old-1 would be stopped for new-1 (reclaim).
  old-2 would be stopped for new-2 (reclaim).
  old-3 would be stopped for new-3 (reclaim).
  ... and 2 more would be stopped.
  gang-1, gang-2 could not start any more: It asks for 8 p5, and there are 4.
  13 jobs would start sooner:
    eval-1 in 30m instead of not within 8 hours
    eval-2 in 30m instead of in 5h00m
    eval-3 in 30m instead of in 5h00m
    eval-4 in 30m instead of in 5h00m
    ... and 9 more
  1 job would start later:
    late not within 8 hours instead of now

Project  Waiting  Mean Wait Now  Mean Wait Then  Uses Now  Uses Then
a             12  5h00m          1h00m           4 p5      1 c6, 6 p5

The starts of 2 waiting jobs are unknown: the runtimes of other jobs are unknown, or SageMaker refuses the launches.
"""
BRIEF = """\

If it is applied, now and over the next 8 hours:
  12 jobs would start now: train-0, train-1, train-2 and 9 more.
  1 job would not start now: lucky.
  old-0 would be stopped for new-0 (reclaim).
  old-1 would be stopped for new-1 (reclaim).
  ... and 4 more would be stopped.
  gang-1, gang-2 could not start any more: It asks for 8 p5, and there are 4.
  13 jobs would start sooner:
    eval-1 in 30m instead of not within 8 hours
    eval-2 in 30m instead of in 5h00m
    ... and 11 more
  1 job would start later:
    late not within 8 hours instead of now

The starts of 2 waiting jobs are unknown: the runtimes of other jobs are unknown, or SageMaker refuses the launches.
"""
NOTHING = {"policyVersion": 3, "at": AT, "until": UNTIL}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(YAML)
    return str(path)


class TestPreview:
    def test_a_page(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, PREVIEW)
        assert main(["policy", "preview", policy]) == 0
        assert capsys.readouterr() == (PAGE, "")
        (asked,) = server.received
        assert (asked.method, asked.path) == ("POST", "/prod/policy/preview")
        assert json.loads(asked.body) == {"policy": POLICY, "hours": 8}

    def test_nothing_changes(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, {**NOTHING, "until": AT})
        assert main(["policy", "preview", "--hours", "0", policy]) == 0
        page = "Compared with version 3 of the policy, now:\n  Nothing of note would change.\n"
        assert capsys.readouterr().out == page
        assert json.loads(server.received[0].body)["hours"] == 0

    def test_a_refusal(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, {**NOTHING, "warnings": ["The pools have more than MaxCapacity instances."]})
        assert main(["policy", "preview", policy]) == 0
        out = capsys.readouterr().out
        assert "The pools have more than MaxCapacity instances." in out and "Nothing of note" not in out

    def test_more_changes_than_the_answer_lists(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        evictions = [{"job": "a", "claimant": "b", "rule": "Priority"}]
        waits = [{"job": "late", "startNow": AT, "startThen": None}]
        more = {"evictions": evictions, "moreEvictions": 5, "later": waits, "moreLater": 7}
        more |= {"keptWaiting": ["first"], "moreKeptWaiting": 9}
        server.answers(200, {**NOTHING, **more})
        assert main(["policy", "preview", policy]) == 0
        out = capsys.readouterr().out
        assert "10 jobs would not start now: first and 9 more." in out
        assert "... and 5 more would be stopped." in out and "... and 7 more\n" in f"{out}\n"

    def test_what_it_drops(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, {**NOTHING, "inUse": ["The project b still has job1."]})
        assert main(["policy", "preview", policy]) == 0
        out = capsys.readouterr().out
        assert "  No job would start, be stopped or wait longer.\n" in out
        assert out.endswith(
            "\nThe project b still has job1.\nApplying it takes --force: running jobs continue, "
            "and waiting jobs that no longer fit wait with a reason.\n"
        )

    def test_json(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, PREVIEW)
        assert main(["policy", "preview", "--json", policy]) == 0
        assert json.loads(capsys.readouterr().out).items() >= {**PREVIEW, "moreLater": 0}.items()

    def test_each_fault_is_a_line(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        faults = [refused("InvalidRequest", message, "policy")["errors"][0] for message in ("One.", "Two.")]
        server.answers(400, {"errors": faults})
        assert main(["policy", "preview", policy]) == 1
        assert capsys.readouterr().err == f"smq: One.\nTwo.\n{SEE}invalidrequest\n"

    @pytest.mark.parametrize("hours", ["-1", "49", "nan", "x"])
    def test_hours_that_cannot_be(self, hours: str, server: ScriptedServer, policy: str) -> None:
        assert main(["policy", "preview", "--hours", hours, policy]) == 2
        assert server.received == []

    def test_each_job_has_one_statement(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        reason = {"code": "NO_SUCH_POOL", "message": "No pool of vision has its instance type."}
        late = [{"job": name, "startNow": AT, "startThen": None} for name in ("v2", "v3", "other")]
        never = [{"job": name, "reason": reason} for name in ("v2", "v3")]
        server.answers(200, {**NOTHING, "unstartable": never, "later": late, "keptWaiting": ["v2", "v3", "other"]})
        assert main(["policy", "preview", policy]) == 0
        out = capsys.readouterr().out
        assert [out.count(name) for name in ("v2", "v3", "other")] == [1, 1, 1]
        assert "1 job would start later:\n    other not within 8 hours instead of now" in out
        assert "would not start now" not in out

    def test_no_remedy_that_does_not_help(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        ceiling = "The policy cannot be applied: its pools have 8 instances together, and the queue may use 2."
        server.answers(200, {**NOTHING, "inUse": ["The project b still has job1."], "warnings": [ceiling]})
        assert main(["policy", "preview", policy]) == 0
        assert "--force" not in capsys.readouterr().out


class TestCapacity:
    def test_it_is_asked_for_instead_of_a_job(self, server: ScriptedServer, capsys: Captured) -> None:
        server.answers(200, {**PREVIEW, "warnings": ["Its pools have 12 instances together."]})
        assert main(["plan", "--capacity", "p5=10,p4=0", "--hours", "24"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Compared with version 3")
        assert "\nIts pools have 12 instances together.\n" in out
        assert json.loads(server.received[0].body) == {"capacity": {"p5": 10, "p4": 0}, "hours": 24}

    def test_a_pool_may_have_any_name(self, server: ScriptedServer, capsys: Captured) -> None:
        server.always_answers(200, NOTHING)
        assert main(["plan", "--json", "--capacity", "a=b/c=1"]) == 0
        assert json.loads(server.received[0].body)["capacity"] == {"a=b/c": 1}
        assert json.loads(capsys.readouterr().out)["policyVersion"] == 3

    @pytest.mark.parametrize(
        "text", ["", "p5", "=5", "p5=", "p5=-1", "p5=1.5", "p5=1,", "p5=1,p5=2", "p5=²", "p5=" + "9" * 99]
    )
    def test_what_is_no_capacity(self, text: str, server: ScriptedServer, capsys: Captured) -> None:
        assert main(["plan", "--capacity", text]) == 2
        assert "--capacity" in capsys.readouterr().err
        assert server.received == []

    @pytest.mark.parametrize(
        "words",
        [["--capacity", "p5=1", "--", "true"], ["--capacity", "p5=1", "request.json"], [], ["--hours", "3", "x"]],
    )
    def test_one_thing_at_a_time(self, words: list[str], server: ScriptedServer, capsys: Captured) -> None:
        assert main(["plan", *words]) == 2
        assert "--capacity" in capsys.readouterr().err
        assert server.received == []


@pytest.mark.skipif(sys.version_info < REQUIRED_PYTHON, reason="the queue's rules need a newer Python")
class TestCheck:
    """Whether it could be applied."""

    def test_a_good_one(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, NOTHING)
        assert main(["policy", "check", policy]) == 0
        assert capsys.readouterr().out == (
            f"{policy} can be applied: 1 pool, 1 project.\n"
            "Checked: syntax and rules (on this machine), MaxCapacity and live jobs (by the queue, compared with "
            "version 3). Nothing was applied.\n"
        )
        assert json.loads(server.received[0].body) == {"policy": POLICY, "hours": 0}

    def test_offline_no_queue_is_asked(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        assert main(["policy", "check", "--offline", policy]) == 0
        assert capsys.readouterr().out == (
            f"{policy} can be applied: 1 pool, 1 project.\n"
            "Checked: syntax and rules (on this machine). Not checked: MaxCapacity, live jobs, shared instances, and "
            "the queue's own region and account, because no queue was asked (--offline).\n"
        )
        assert server.received == []

    def test_without_a_queue(self, monkeypatch: pytest.MonkeyPatch, capsys: Captured, policy: str) -> None:
        monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
        assert main(["policy", "check", policy]) == 0
        assert "Checked: syntax and rules (on this machine). Not checked:" in capsys.readouterr().out

    @pytest.mark.parametrize("trouble", ["hangs up", "an older queue", "forbidden", "nonsense"])
    def test_a_queue_that_does_not_answer(
        self, trouble: str, server: ScriptedServer, capsys: Captured, policy: str
    ) -> None:
        unanswered(server, trouble)
        assert main(["policy", "check", policy]) == 0
        assert "Checked: syntax and rules (on this machine). Not checked:" in capsys.readouterr().out
        assert len(server.received) == 1

    def test_each_fault_is_a_line_here_and_there(
        self, server: ScriptedServer, capsys: Captured, tmp_path: Path
    ) -> None:
        path = tmp_path / "wrong.yaml"
        path.write_text(YAML.replace("{p5: 4}", "{p6: 4}") + "settings: {window: 0, stretch: 0}\n")
        other = "policy: a rule of a newer queue is broken."
        server.answers(400, refused("InvalidRequest", other, "policy"))
        assert main(["policy", "check", str(path)]) == 1
        *faults, checked = capsys.readouterr().out.splitlines()
        assert [fault.split(": ", 1)[0] for fault in faults] == [str(path)] * 4
        for what, fault in zip(("window", "stretch", "p6", other), faults):
            assert what in fault
        assert checked.startswith(
            "Checked: syntax and rules (on this machine), MaxCapacity and live jobs (by the queue)"
        )

    def test_the_same_fault_is_said_once(self, server: ScriptedServer, capsys: Captured, tmp_path: Path) -> None:
        path = tmp_path / "wrong.yaml"
        path.write_text(YAML.replace("capacity: 4", "capacity: many"))
        message = "policy.pools[0].capacity: must be a whole number, not 'many'."
        server.answers(400, refused("InvalidRequest", message, "policy.pools[0].capacity"))
        assert main(["policy", "check", str(path)]) == 1
        assert capsys.readouterr().out.splitlines()[:2] == [
            f"{path}: {message}",
            "There may be more faults, which are found when these are corrected.",
        ]

    def test_more_than_the_queue_may_use_is_a_fault(
        self, server: ScriptedServer, capsys: Captured, policy: str
    ) -> None:
        ceiling = "The policy cannot be applied: its pools have 4 instances together, and the queue may use 2."
        server.answers(200, {**NOTHING, "inUse": ["The project b still has job1."], "warnings": [ceiling]})
        assert main(["policy", "check", policy]) == 1
        assert capsys.readouterr().out.splitlines()[:2] == [
            f"{policy}: {ceiling}",
            f"{policy}: The project b still has job1.",
        ]

    def test_what_live_jobs_use_is_a_fault(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, {**NOTHING, "inUse": ["The project b still has job1."]})
        assert main(["policy", "check", policy]) == 1
        assert capsys.readouterr().out.startswith(f"{policy}: The project b still has job1.\n")

    def test_the_standard_input(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
        assert main(["policy", "check", "--offline", "-"]) == 1
        assert capsys.readouterr().out.startswith("standard input: policy: the field pools is missing.\n")

    def test_a_file_that_is_none(self, server: ScriptedServer, capsys: Captured, tmp_path: Path) -> None:
        (tmp_path / "no.yaml").write_text("pools: [")
        assert main(["policy", "check", str(tmp_path / "no.yaml")]) == 2
        assert main(["policy", "check", str(tmp_path / "not-there.yaml")]) == 2
        assert "line 1" in capsys.readouterr().err
        assert server.received == []

    def test_an_older_python_leaves_it_to_the_queue(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured, policy: str
    ) -> None:
        monkeypatch.setattr(check, "REQUIRED_PYTHON", (99, 0))
        server.answers(200, NOTHING)
        assert main(["policy", "check", policy]) == 0
        assert (
            "Checked by the queue: syntax, rules, MaxCapacity and live jobs, compared with version 3"
            in capsys.readouterr().out
        )
        assert main(["policy", "check", "--offline", policy]) == 2
        assert "need Python 99.0" in capsys.readouterr().err


def unanswered(server: ScriptedServer, trouble: str) -> None:
    if trouble == "hangs up":
        server.hangs_up()
    elif trouble == "an older queue":
        headers = {"x-amzn-ErrorType": "MissingAuthenticationTokenException"}
        server.answers(403, {"message": "Missing Authentication Token"}, headers)
    elif trouble == "forbidden":
        server.answers(403, refused("Forbidden", "You may not."))
    elif trouble == "too slow":
        server.answers(504, {"message": "Endpoint request timed out"})
    elif trouble == "asked too often":
        server.answers(429, {"message": "Too Many Requests"})
    elif trouble == "another body":
        server.answers(400, refused("InvalidRequest", "hours is unknown here.", "hours"))
    else:
        server.answers(200, {"at": ["?"]})


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def typing(text: str) -> None:
        monkeypatch.setattr("sys.stdin", Typed(text))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    return typing


class TestApply:
    """It shows what would change, and asks where there is somebody to ask."""

    def test_without_a_terminal_it_is_shown_beside_the_output_and_applied(
        self, server: ScriptedServer, capsys: Captured, policy: str
    ) -> None:
        for answer in (APPLIED, PREVIEW, NEWER):
            server.answers(200, answer)
        assert main(["policy", "apply", policy]) == 0
        out, errors = capsys.readouterr()
        assert out.endswith("\nVersion 4 is applied.\n")
        assert "Apply it?" not in out + errors
        assert errors == BRIEF
        assert [(one.method, one.path) for one in server.received] == [
            *(("GET", "/prod/policy"), ("POST", "/prod/policy/preview"), ("PUT", "/prod/policy")),
        ]

    @pytest.mark.parametrize("typed", ["y\n", "YES\n"])
    def test_a_person_who_says_yes(
        self, typed: str, server: ScriptedServer, capsys: Captured, policy: str, at_a_terminal: Callable[[str], None]
    ) -> None:
        at_a_terminal(typed)
        for answer in (APPLIED, PREVIEW, NEWER):
            server.answers(200, answer)
        assert main(["policy", "apply", policy]) == 0
        out, errors = capsys.readouterr()
        assert errors == ""
        assert (
            out.index("+++")
            < out.index("would start now")
            < out.index("Apply it? [y/N] ")
            < out.index("Version 4 is applied")
        )

    @pytest.mark.parametrize("typed", ["n\n", "\n", "", "yep\n"])
    def test_a_person_who_does_not(
        self, typed: str, server: ScriptedServer, capsys: Captured, policy: str, at_a_terminal: Callable[[str], None]
    ) -> None:
        at_a_terminal(typed)
        for answer in (APPLIED, PREVIEW):
            server.answers(200, answer)
        assert main(["policy", "apply", policy]) == 1
        assert capsys.readouterr().out.endswith("Nothing is changed.\n")
        assert [one.method for one in server.received] == ["GET", "POST"]

    def test_yes_asks_nobody(
        self, server: ScriptedServer, capsys: Captured, policy: str, at_a_terminal: Callable[[str], None]
    ) -> None:
        at_a_terminal("")
        for answer in (APPLIED, PREVIEW, NEWER):
            server.answers(200, answer)
        assert main(["policy", "apply", "--yes", policy]) == 0
        assert "Apply it?" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        "trouble",
        ["hangs up", "an older queue", "forbidden", "too slow", "asked too often", "another body", "nonsense"],
    )
    def test_no_preview_keeps_nobody_from_applying(
        self, trouble: str, server: ScriptedServer, capsys: Captured, policy: str
    ) -> None:
        server.answers(200, APPLIED)
        unanswered(server, trouble)
        server.answers(200, NEWER)
        assert main(["policy", "apply", policy]) == 0
        out, errors = capsys.readouterr()
        assert out.endswith("Version 4 is applied.\n")
        assert errors.startswith("smq: no preview: ")
        assert [one.method for one in server.received] == ["GET", "POST", "PUT"]  # it is asked for once

    def test_a_policy_that_is_refused_is_not_asked_about(
        self, server: ScriptedServer, capsys: Captured, policy: str, at_a_terminal: Callable[[str], None]
    ) -> None:
        at_a_terminal("y\n")
        server.answers(200, APPLIED)
        server.answers(400, refused("InvalidRequest", "It has no pools.", "policy"))
        assert main(["policy", "apply", policy]) == 1
        out, errors = capsys.readouterr()
        assert errors == f"smq: It has no pools.\n{SEE}invalidrequest\n"
        assert "Apply it?" not in out
        assert [one.method for one in server.received] == ["GET", "POST"]

    @pytest.mark.parametrize(
        ("problem", "arguments", "asks"),
        [
            ({"warnings": ["Its pools have 8 instances together."]}, [], False),
            ({"warnings": ["Its pools have 8 instances together."]}, ["--force"], False),
            ({"inUse": ["The project b still has job1."]}, [], False),
            ({"inUse": ["The project b still has job1."]}, ["--force"], True),
        ],
    )
    def test_a_question_whose_answer_can_only_be_an_error_is_not_asked(  # noqa: PLR0913
        self,
        problem: dict[str, Any],
        arguments: list[str],
        asks: bool,
        server: ScriptedServer,
        capsys: Captured,
        policy: str,
        at_a_terminal: Callable[[str], None],
    ) -> None:
        at_a_terminal("y\n")
        for answer in (APPLIED, {**NOTHING, **problem}, NEWER):
            server.answers(200, answer)
        assert main(["policy", "apply", policy, *arguments]) == (0 if asks else 1)
        out = capsys.readouterr().out
        assert ("Apply it?" in out) == asks
        assert ("Nothing is changed: the queue would refuse this policy." in out) != asks
        assert len(server.received) == (3 if asks else 2)

    def test_what_says_the_same_is_not_looked_at(self, server: ScriptedServer, capsys: Captured, policy: str) -> None:
        server.answers(200, {**APPLIED, "policy": POLICY})
        assert main(["policy", "apply", policy]) == 0
        assert len(server.received) == 1

    @pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1)])
    def test_a_rollback_is_previewed_and_asks_like_any_other_change(  # noqa: PLR0913
        self,
        typed: str,
        code: int,
        server: ScriptedServer,
        capsys: Captured,
        at_a_terminal: Callable[[str], None],
    ) -> None:
        at_a_terminal(typed)
        for answer in (APPLIED, {**APPLIED, "version": 1, "policy": POLICY}, PREVIEW, NEWER):
            server.answers(200, answer)
        assert main(["policy", "rollback", "1"]) == code
        out = capsys.readouterr().out
        assert out.index("+++ version 1") < out.index("would start now") < out.index("Apply it? [y/N] ")
        assert json.loads(server.received[2].body)["policy"] == POLICY
        assert len(server.received) == (4 if code == 0 else 3)

    def test_a_rollback_with_yes_does_not_ask(
        self, server: ScriptedServer, capsys: Captured, at_a_terminal: Callable[[str], None]
    ) -> None:
        at_a_terminal("")
        for answer in (APPLIED, {**APPLIED, "version": 1, "policy": POLICY}, PREVIEW, NEWER):
            server.answers(200, answer)
        assert main(["policy", "rollback", "1", "--yes"]) == 0
        out = capsys.readouterr().out
        assert "Apply it?" not in out and out.endswith("Version 4 is applied; it is the same as version 1.\n")

    def test_at_a_real_terminal(self, server: ScriptedServer, policy: str) -> None:
        for answer in (APPLIED, PREVIEW, NEWER):
            server.answers(200, answer)
        command = [sys.executable, "-m", "sagemaker_queue", "--url", server.url, "policy", "apply", policy]
        with Terminal(command, columns=100, lines=60) as terminal:
            terminal.shows("would start now", "Apply it? [y/N]")
            assert [one.method for one in server.received] == ["GET", "POST"]
            terminal.press("y\r")
            assert terminal.end() == 0
        assert b"Version 4 is applied" in terminal.written

    def test_ctrl_c_at_the_question_changes_nothing(self, server: ScriptedServer, policy: str) -> None:
        for answer in (APPLIED, PREVIEW):
            server.answers(200, answer)
        command = [sys.executable, "-m", "sagemaker_queue", "--url", server.url, "policy", "apply", policy]
        with Terminal(command, columns=100, lines=60) as terminal:
            terminal.shows("Apply it? [y/N]")
            terminal.press("\x03")
            assert terminal.end() == 130
        assert [one.method for one in server.received] == ["GET", "POST"]
