"""``smq status`` and ``smq policy``: what they print, what they send, and how they end."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sagemaker_queue.cli import main
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON
from tests.client.samples import P5, SEE, STATUS, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


pytestmark = pytest.mark.usefixtures("address")

PAGE = """\
Policy version 3; 1 job active, 2 waiting.

Pool    Instance Type      Capacity    Used    External    Free    Stopping
------  ---------------  ----------  ------  ----------  ------  ----------
p5      ml.p5.48xlarge            8       6           1       1           2
c6      any                       4       0           0       4           0

Project                Pool      Quota    Share    Used    Limit    Waiting
---------------------  ------  -------  -------  ------  -------  ---------
research (department)  p5            5        5       4                   2
research/vision        p5            3        4       4        6          2
                       c6            2        0       0
ops                    p5            0        0       0        0          0
idle                                                                      0
"""


TROUBLE: dict[str, Any] = {
    **STATUS,
    "pauses": [
        {
            "pool": "p5",
            "instanceType": None,
            "instances": 4,
            "refusals": 3,
            "lastRefusal": None,
            "until": "2026-11-21T10:05:30Z",
        },
        {"pool": "default", "instanceType": "ml.g5.xlarge", "instances": 1, "refusals": 1},
        {"pool": "plan", "until": "2026-11-21T10:05:30Z", "atFault": "ValidationException: The plan has expired."},
        {"pool": "ohio", "until": "2026-11-21T10:05:30Z", "unreachable": True},
        {
            **{"pool": "late", "instanceType": "ml.g5.xlarge", "refusals": 0, "until": "2026-11-21T10:05:30Z"},
            "quotaLag": "SageMaker still counts 8 of 8 instances of ml.g5.xlarge as in use, and the queue knows of 0.",
        },
    ],
    "external": [
        {"trainingJobName": "notebook-test-17", "slots": {"p5": 1, "c6": 2}, "since": None, "stopping": False},
        {"trainingJobName": "old-qstamp-3", "slots": {"p5": 1}, "since": None, "stopping": True},
        {"trainingJobName": "serverless", "slots": {}, "since": None, "stopping": False},
    ],
}

TROUBLE_PAGE = """
Backing off: SageMaker had no instances

Pool                    Instances      Refusals  Last Refusal    Next Try (UTC)
----------------------  -----------  ----------  --------------  -------------------
p5                      4 or more             3                  2026-11-21 10:05:30
default (ml.g5.xlarge)  1 or more             1

Pool plan backs off: check its settings in the policy; the next job is tried at 2026-11-21 10:05:30 UTC.
SageMaker: ValidationException: The plan has expired.

Pool ohio backs off: its region or account does not respond; the next job is tried at 2026-11-21 10:05:30 UTC.

Pool late (ml.g5.xlarge) waits for the quota of jobs that have ended; the next job is tried at 2026-11-21 10:05:30 UTC.
SageMaker still counts 8 of 8 instances of ml.g5.xlarge as in use, and the queue knows of 0.

Started outside the queue

Training Job                                          Pool      Instances  Seen For
----------------------------------------------------  ------  -----------  ----------
notebook-test-17                                      p5                1
                                                      c6                2
old-qstamp-3 (left over by the queue, being stopped)  p5                1
serverless
"""


class TestStatus:
    def test_pools_that_back_off_and_jobs_from_elsewhere_are_told(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, TROUBLE)
        assert main(["status"]) == 0
        assert capsys.readouterr().out == PAGE + TROUBLE_PAGE

    def test_a_page_for_people(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, STATUS)
        assert main(["status"]) == 0
        assert capsys.readouterr() == (PAGE, "")
        assert server.received[0].path == "/prod/queue"

    def test_who_has_a_market_of_its_own(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        plan = {"market": "training_plan", "trainingPlan": "winter"}
        times = {"opens": "2026-11-20T10:00:00Z", "closes": "2026-11-27T09:30:00Z"}
        pools = [
            {**P5, **plan, **times},
            {**P5, "name": "later", **plan, "trainingPlan": "spring"},
            {**P5, "name": "cheap", "market": "spot"},
            P5,
        ]
        server.answers(200, {**STATUS, "pools": pools, "departments": [], "projects": []})
        assert main(["status"]) == 0
        assert (
            capsys.readouterr().out.partition("Not bought on demand")[2]
            == """

Pool    Market         Training Plan    Starts (UTC)         Taken Back (UTC)
------  -------------  ---------------  -------------------  -------------------
p5      training plan  winter           2026-11-20 10:00:00  2026-11-27 09:30:00
later   training plan  spring           not known yet        not known yet
cheap   spot
"""
        )

    def test_without_a_policy(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {**STATUS, "policyVersion": 0})
        assert main(["status"]) == 0
        assert capsys.readouterr().out.startswith(
            "No policy is applied, so all jobs share one pool (smq policy show); 1 job active, 2 waiting.\n"
        )

    def test_more_jobs_wait_than_the_queue_counts(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        vision = {"name": "vision", "quota": {"p5": 1}, "waiting": 2, "moreWaiting": True}
        server.answers(200, {**STATUS, "moreWaiting": True, "departments": [], "projects": [vision]})
        assert main(["status"]) == 0
        headline, *_, row = capsys.readouterr().out.splitlines()
        assert headline == "Policy version 3; 1 job active, 2+ waiting."
        assert row.split() == ["vision", "p5", "1", "0", "0", "2+"]

    def test_an_older_queue(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        pool = {name: value for name, value in P5.items() if name != "instanceType"}
        server.answers(200, {"pools": [pool], "active": [], "waiting": []})
        assert main(["status"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("0 jobs active, 0 waiting.\n\nPool")
        assert "Quota" not in text

    def test_pools_of_other_regions_and_accounts_are_named(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        there = {**STATUS["pools"][0], "name": "p5-ohio", "region": "us-east-2", "account": "222222222222"}
        outside = {"trainingJobName": "tuning-1", "slots": {"p5-ohio": 1}, "region": "us-east-2"}
        server.answers(200, {**STATUS, "pools": [*STATUS["pools"], there], "external": [outside]})
        assert main(["status"]) == 0
        page = capsys.readouterr().out
        rows = [line.split() for line in page.splitlines()]
        assert "Region     Account" in page
        assert ["p5-ohio", "ml.p5.48xlarge", "us-east-2", "222222222222", "8", "6", "1", "1", "2"] in rows
        assert ["p5", "ml.p5.48xlarge", "8", "6", "1", "1", "2"] in rows
        assert "tuning-1 in us-east-2  p5-ohio" in page

    def test_json(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, STATUS)
        assert main(["status", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["pools"] == [
            pool | {"gpus": None, "gpusUsed": 0.0, "drain": None, "region": None, "account": None}
            for pool in STATUS["pools"]
        ]
        assert printed["departments"] == STATUS["departments"]
        assert printed["projects"][:2] == STATUS["projects"][:2]
        assert [one["job"] for one in printed["waiting"]] == ["job2", "job3"]


POLICY = {
    "pools": [{"name": "p5", "capacity": 2}],
    "projects": [{"name": "a", "quota": {"p5": 2}}],
}
YAML = """\
pools:
- {name: p5, capacity: 2}
projects:
- name: a
  quota: {p5: 2}
"""
APPLIED = {"version": 3, "policy": POLICY, "appliedBy": "arn:aws:iam::1:user/ann", "appliedAt": "2026-11-21T10:00:00Z"}
DIFF = """\
--- applied (version 3)
+++ -
@@ -1,5 +1,5 @@
 pools:
-- {name: p5, capacity: 2}
+- {name: p5, capacity: 4}
 projects:
 - name: a
   quota: {p5: 2}
"""


@pytest.fixture
def larger(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A policy with a larger pool stands on the standard input."""
    text = YAML.replace("capacity: 2", "capacity: 4")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    document: dict[str, Any] = yaml.safe_load(text)
    return document


class TestPolicyShow:
    def test_it_can_be_applied_again(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, APPLIED)
        assert main(["policy", "show"]) == 0
        header, _, text = capsys.readouterr().out.partition("\n")
        assert header == "# Version 3, applied by arn:aws:iam::1:user/ann at 2026-11-21 10:00:00 UTC."
        assert text == YAML

    def test_all_fields_are_shown(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        rule = {"action": "retry free", "match": "NCCL*: timeout", "exit_code": 1, "fresh_instances": True}
        document = {
            **POLICY,
            "projects": [
                {
                    "name": "a",
                    "max_preemptions": 2,
                    "silent": None,
                    "on_hang": "notify",
                    "failure_rules": [{**rule, "failure_class": "hardware"}],
                }
            ],
            "settings": {
                "max_preemptions": 5,
                "preempted_min_runtime": 600,
                "preempted_min_runtime_limit": 7200,
                "silent": 900,
                "on_hang": "requeue",
            },
            "interactive": {"first": False, "max_per_owner": None},
            "failure_rules": [rule, {"action": "fail", "failure_class": "user_error"}],
            "a_field_of_a_later_version": {"x": [1, None, True]},
        }
        server.answers(200, {**APPLIED, "policy": document})
        assert main(["policy", "show"]) == 0
        text = capsys.readouterr().out
        assert yaml.safe_load(text) == document
        shown = "{action: retry free, exit_code: 1, fresh_instances: true, match: 'NCCL*: timeout'}"
        assert f"failure_rules:\n- {shown}\n" in text

    def test_nobody_applied_one(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"version": 0, "policy": POLICY, "appliedBy": None, "appliedAt": None})
        assert main(["policy", "show"]) == 0
        assert capsys.readouterr().out.startswith("# Version 0: no policy has been applied")

    def test_json(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, APPLIED)
        assert main(["policy", "show", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == APPLIED

    def test_a_queue_that_knows_no_policies(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        refused = {"x-amzn-ErrorType": "MissingAuthenticationTokenException"}
        server.answers(403, {"message": "Missing Authentication Token"}, refused)
        assert main(["policy", "show"]) == 2
        assert "is the queue as new as this client?" in capsys.readouterr().err


class TestPolicyDiff:
    def test_the_same(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "policy.json").write_text(json.dumps(dict(reversed(POLICY.items()))))
        server.answers(200, APPLIED)
        assert main(["policy", "diff", str(tmp_path / "policy.json")]) == 0
        assert capsys.readouterr() == ("", "")

    @pytest.mark.usefixtures("larger")
    def test_another(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, APPLIED)
        assert main(["policy", "diff", "-"]) == 1
        assert capsys.readouterr() == (DIFF, "")
        assert [one.method for one in server.received] == ["GET", "POST"]  # the policy, and what the queue says to it

    @pytest.mark.skipif(sys.version_info < REQUIRED_PYTHON, reason="the queue's rules need a newer Python")
    def test_what_is_wrong_with_the_file_is_told(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        wrong = {**POLICY, "projects": [{"name": "a", "quota": {"p6": 1}}]}
        (tmp_path / "policy.json").write_text(json.dumps(wrong))
        server.answers(200, APPLIED)
        assert main(["policy", "diff", str(tmp_path / "policy.json")]) == 2
        out, errors = capsys.readouterr()
        assert "p6" in out
        assert f"smq: {tmp_path / 'policy.json'}: " in errors and "the pool p6, which does not exist" in errors

    def test_what_the_queue_has_against_it_is_told(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / "policy.json").write_text(json.dumps({**POLICY, "departments": []}))
        server.answers(200, APPLIED)
        server.answers(400, refused("InvalidRequest", "The pools have more than MaxCapacity.", "policy.pools"))
        assert main(["policy", "diff", str(tmp_path / "policy.json")]) == 2
        assert "policy.json: The pools have more than MaxCapacity." in capsys.readouterr().err

    def test_trouble_is_no_difference(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(403, refused("Forbidden", "You may not look."))
        assert main(["policy", "diff", "policy.yaml"]) == 2
        server.answers(200, APPLIED)
        assert main(["policy", "diff", "no-such-file.yaml"]) == 2
        assert capsys.readouterr() == (
            "",
            f"smq: You may not look.\n{SEE}forbidden\n"
            "smq: no-such-file.yaml cannot be read: No such file or directory.\n",
        )


class TestPolicyApply:
    def test_the_difference_is_shown_and_applied(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], larger: dict[str, Any]
    ) -> None:
        server.answers(200, APPLIED)
        server.answers(200, {"policyVersion": 3})
        server.answers(200, {**APPLIED, "version": 4, "policy": larger, "warnings": ["Nobody may use c6."]})
        assert main(["policy", "apply", "-"]) == 0
        assert capsys.readouterr() == (
            f"{DIFF}\nVersion 4 is applied.\n",
            "\nIf it is applied:\n  Nothing of note would change.\nsmq: warning: Nobody may use c6.\n",
        )
        put = server.received[2]
        assert (put.method, put.path) == ("PUT", "/prod/policy")
        assert json.loads(put.body) == {"policy": larger, "version": 3, "force": False}

    def test_force_and_a_version(self, server: ScriptedServer, larger: dict[str, Any]) -> None:
        server.answers(200, APPLIED)
        server.answers(200, {"policyVersion": 3})
        server.answers(200, {**APPLIED, "version": 3, "policy": larger})
        assert main(["policy", "apply", "--force", "--version", "2", "-"]) == 0
        assert json.loads(server.received[2].body) == {"policy": larger, "version": 2, "force": True}

    def test_nothing_to_change(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / "policy.yaml").write_text(YAML)
        server.answers(200, APPLIED)
        assert main(["policy", "apply", str(tmp_path / "policy.yaml")]) == 0
        assert capsys.readouterr() == ("Nothing to change: version 3, which is in force, is the same.\n", "")


class TestHistory:
    """Earlier versions of the policy."""

    def test_the_history_is_a_table(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        by = "arn:aws:iam::1:user/ann"
        latest = {"version": 3, "appliedBy": by, "appliedAt": "2026-11-21T10:00:00Z", "restored": 1}
        server.answers(200, {"versions": [latest, {**latest, "version": 2, "restored": None}]})
        assert main(["policy", "history"]) == 0
        first, second = capsys.readouterr().out.splitlines()[2:]
        assert first.split() == ["3", "2026-11-21", "10:00:00", "ann", "version", "1"]
        assert second.split() == ["2", "2026-11-21", "10:00:00", "ann"]
        assert server.received[0].path == "/prod/policy/history"

    def test_there_may_be_none(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"versions": []})
        assert main(["policy", "history"]) == 0
        assert capsys.readouterr().out == "No policy has been applied.\n"

    def test_an_earlier_version_is_shown(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {**APPLIED, "version": 2})
        assert main(["policy", "show", "--version", "2"]) == 0
        assert capsys.readouterr().out.startswith("# Version 2, applied by")
        assert server.received[0].path == "/prod/policy?version=2"

    def test_a_queue_that_keeps_none_is_not_believed(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, APPLIED)
        assert main(["policy", "show", "--version", "2"]) != 0
        assert "keeps no earlier versions" in capsys.readouterr().err

    def test_a_rollback_shows_what_it_changes_and_names_what_was_read(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, APPLIED)
        server.answers(200, {**APPLIED, "version": 1, "policy": {**POLICY, "pools": [{"name": "old"}]}})
        server.answers(500, {})  # no preview
        server.answers(200, {**APPLIED, "version": 4, "warnings": ["Nobody may use c6."]})
        assert main(["policy", "rollback", "1", "--force"]) == 0
        told = capsys.readouterr()
        assert "+++ version 1" in told.out
        assert told.out.endswith("Version 4 is applied; it is the same as version 1.\n")
        assert told.err.startswith("smq: no preview: ") and told.err.endswith("smq: warning: Nobody may use c6.\n")
        assert json.loads(server.received[3].body) == {"to": 1, "version": 3, "force": True}
        assert server.received[3].path == "/prod/policy/rollback"
