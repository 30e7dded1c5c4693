"""``smq failures``, ``smq failures check``, and the failure of a job in ``show``, ``ls``, ``history`` and ``wait``."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from api_contract.models import JobSummary
from sagemaker_queue.cli import main
from sagemaker_queue.presentation.text.job_text import TERMINAL_COLUMNS, jobs_screen
from tests.client.samples import ATTEMPT, DETAIL, FAILED, FAILURE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

OUT = {**ATTEMPT, "job": "job4", "outcome": "failed", "lostSeconds": None, "failureClass": "gpu_memory"}
AGAIN = {**OUT, "attempt": 3, "ended": "2026-11-21T16:00:00Z", "lostSeconds": 1800}
BOBS = {
    **{**OUT, "job": "job5", "failureClass": "user_error", "project": "speech", "instances": {"ml.g5.xlarge": 1}},
    **{"owner": "arn:aws:sts::123456789012:assumed-role/Team/bob", "instanceCount": 1, "ranSeconds": 900.0},
}
NO_INSTANCES = {
    **BOBS,
    "job": "job6",
    "outcome": "stopped",
    "failureClass": "capacity",
    "began": None,
    "ranSeconds": 0.0,
}
EARLIER = {**BOBS, "job": "job7", "failureClass": None}
ALL = (ATTEMPT, OUT, AGAIN, BOBS, NO_INSTANCES, EARLIER)


def answers(server: ScriptedServer, *attempts: dict[str, Any]) -> None:
    server.answers(200, {"attempts": list(attempts), "next": None})


def test_failures_by_class(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL)
    assert main(["failures"]) == 0
    assert (
        capsys.readouterr().out
        == """\
Class             Failures    Jobs    Owners    Lost-h  Latest (UTC)
--------------  ----------  ------  --------  --------  -------------------
gpu_memory               2       1         1      5.00  2026-11-21 16:00:00
(not recorded)           1       1         1      0.25  2026-11-21 13:41:35
capacity                 1       1         1      0.00  2026-11-21 13:41:35
user_error               1       1         1      0.25  2026-11-21 13:41:35
all                      5       4         2      5.50  2026-11-21 16:00:00
"""
    )


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("class", {"gpu_memory": 2, "(not recorded)": 1, "capacity": 1, "user_error": 1}),
        ("project", {"speech": 3, "vision": 2}),
        ("owner", {"Team/bob": 3, "ann": 2}),
        ("instance-type", {"ml.g5.xlarge": 3, "ml.p5.48xlarge": 2}),
    ],
)
def test_failures_by_each_key(
    by: str, expected: dict[str, int], server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(server, *ALL)
    assert main(["failures", "--by", by, "--json", "--since", "2026-11-01"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each[by]: each["failures"] for each in found["failures"]} == expected
    assert list(expected) == [each[by] for each in found["failures"]]
    assert (found["total"]["failures"], found["total"]["jobs"]) == (5, 4)
    assert found["total"]["classes"] == {"gpu_memory": 2, "(not recorded)": 1, "capacity": 1, "user_error": 1}
    assert "since=2026-11-01" in server.received[0].path


def test_the_most_common_class_of_each_project(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL)
    assert main(["failures", "--by", "project", "--owner", "ann"]) == 0
    title, _, vision, total = capsys.readouterr().out.splitlines()
    assert title.endswith("Most Common") and vision.endswith("gpu_memory (2)") and total.startswith("all")


def test_failures_as_csv(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, OUT, {**BOBS, "failureClass": "=cmd()"})
    assert main(["failures", "--csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["class"], second["class"], second["lost_hours"]) == ("'=cmd()", "gpu_memory", "4.0")


def test_no_failures(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, ATTEMPT)
    assert main(["failures"]) == 0
    assert capsys.readouterr() == ("", "No attempt has failed in that time.\n")


def test_the_command_is_part_of_no_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failures", "chekc", "job1"]) == 2
    assert "There is no command 'chekc'. Did you mean 'check'?" in capsys.readouterr().err
    assert main(["failures", "--by", "clas"]) == 2


def test_check_names_both_rules(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, FAILED)
    assert main(["failures", "check", "job1"]) == 0
    assert (
        capsys.readouterr().out
        == """\
job1, attempt 1: gpu_memory
  CUDA ran out of memory.

Action at that time
  fail
  by the rule: built-in: gpu_memory, fail

Action by the rules in force now
  retry
  by the rule: failure_rules 1 of the policy: failure_class gpu_memory, retry
"""
    )
    assert len(server.received) == 1


def test_check_explains_the_built_in_action(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    now = {**FAILURE, "actionNow": "fail", "ruleNow": "built-in: gpu_memory, fail"}
    now |= {"action": "retry", "freshInstances": True}
    server.answers(200, {**FAILED, "failure": now})
    assert main(["failures", "check", "job1"]) == 0
    out = capsys.readouterr().out
    assert "No rule of the job (its tag retry_on), of its project or of the policy" in out
    assert "retry, on fresh instances" in out


def test_check_of_an_older_queue(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, {**FAILED, "failure": {**FAILURE, "actionNow": None, "ruleNow": None}})
    assert main(["failures", "check", "job1"]) == 0
    assert "This queue does not say which rule would match now." in capsys.readouterr().out


def test_check_without_a_failure(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, DETAIL)
    assert main(["failures", "check", "job1"]) == 3
    assert "No attempt of job1 has failed" in capsys.readouterr().err


def test_check_for_programs(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, FAILED)
    assert main(["failures", "check", "job1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job": "job1", **FAILURE}


# --- other commands ----------------------------------------------------------------------------------


def test_show_names_class_cause_remedy_rule_and_last_lines(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, FAILED)
    assert main(["show", "job1"]) == 0
    out = capsys.readouterr().out
    assert (
        out.partition("\n\n")[2].partition("\n\nAttempts")[0]
        == """\
Failure of attempt 1
  Class          gpu_memory
  Cause          CUDA ran out of memory.
  What to do     Use a smaller batch.
  First to fail  algo-2 rank 3
  Exit code      1
  Action         fail
  Rule           built-in: gpu_memory, fail

Last log lines of algo-2 rank 3
  step 41
  torch.OutOfMemoryError: CUDA out of memory."""
    )
    assert "failed: gpu_memory" in out.partition("\n\nAttempts")[2]
    assert "  See " not in out  # the reason of a finished job is no reason to wait


def test_colours_and_titles_of_log_lines_are_left_out(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {**FAILED, "failure": {**FAILURE, "lines": ["\x1b[1mred\x1b[0m \x1b]0;title\x07text"]}})
    assert main(["show", "job1"]) == 0
    assert "\n  red text\n" in capsys.readouterr().out


def test_show_of_a_job_that_is_tried_again(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, {**FAILED, "state": "pending", "failure": {**FAILURE, "lines": []}})
    assert main(["show", "job1"]) == 0
    out = capsys.readouterr().out
    assert "Last failure, of attempt 1" in out and "Last log lines" not in out


def test_show_of_a_job_that_has_completed_after_a_failure(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {**FAILED, "state": "completed"})
    assert main(["show", "job1"]) == 0
    assert "Last failure" not in capsys.readouterr().out


def test_callers_without_the_right_to_see_values_see_class_and_remedy(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {**FAILED, "failure": {**FAILURE, "sentence": "", "lines": [], "rank": None}})
    assert main(["show", "job1"]) == 0
    section = capsys.readouterr().out.partition("Failure of attempt 1\n")[2].partition("\n\n")[0]
    assert "Cause" not in section and "gpu_memory" in section and "Use a smaller batch." in section


def test_ls_has_the_class_as_the_beginning_of_the_reason(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    appended = {"code": "FAILED", "message": "AlgorithmError: , exit code: 1 [gpu_memory: CUDA ran out of memory.]"}
    jobs = [FAILED, {**FAILED, "job": "job2", "reason": None}, {**FAILED, "job": "job3", "reason": appended}]
    server.answers(200, {"jobs": jobs, "next": None})
    assert main(["ls", "--failed", "-o", "job,state,failure,reason"]) == 0
    _, _, first, second, third = capsys.readouterr().out.splitlines()
    assert third.endswith("  gpu_memory: CUDA ran out of memory. exit code 1")
    assert first.split(maxsplit=3)[1:] == ["failed", "gpu_memory", "gpu_memory: CUDA ran out of memory."]
    assert second.split(maxsplit=3)[1:] == ["failed", "gpu_memory", "gpu_memory"]


def test_ls_on_a_narrow_terminal_has_the_class_as_the_reason() -> None:
    job = JobSummary.from_json(FAILED)
    screen = jobs_screen([job], TERMINAL_COLUMNS, 80, as_asked=False, colours=False)
    assert screen.splitlines()[1].split()[-1] == "gpu_memory"


def test_a_job_that_waits_again_has_the_reason_to_wait(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    again = {**FAILED, "state": "pending", "reason": {"code": "BACKOFF", "message": "Tried again at 10:00."}}
    server.answers(200, {"jobs": [again], "next": None})
    assert main(["ls", "-o", "job,reason"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split(maxsplit=1)[1] == "Tried again at 10:00."


def test_history_has_the_class_in_the_outcome(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, OUT)
    assert main(["history"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("failed: gpu_memory")
    answers(server, OUT)
    assert main(["history", "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["outcome"], row["failure_class"], row["duration_s"]) == ("failed", "gpu_memory", "7200.0")


def test_wait_names_the_class(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.always_answers(200, FAILED)
    assert main(["wait", "job1"]) == 4
    assert "job1 failed (gpu_memory): CUDA ran out of memory." in "".join(capsys.readouterr())


# --- GPUs that hardware failures name ----------------------------------------------------------------

GPU, OTHER_GPU = ("GPU-" + digit * 8 + "-0000-4000-8000-" + digit * 12 for digit in "ab")
BROKEN = {**OUT, "failureClass": "hardware", "gpuUuids": [GPU, OTHER_GPU], "trainingJobName": "job4-qstamp-2"}
BROKEN_AGAIN = {**BOBS, "failureClass": "hardware", "gpuUuids": [GPU], "trainingJobName": "job5-qstamp-1"}


def test_failures_by_gpu_name_the_training_jobs(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL, BROKEN, BROKEN_AGAIN)
    assert main(["failures", "--by", "gpu"]) == 0
    title, _, first, second, total = capsys.readouterr().out.splitlines()
    assert title.split("  ")[0] == "GPU" and title.endswith("Latest Training Jobs")
    assert first.split()[:4] == [GPU, "2", "2", "2"] and first.endswith("job4-qstamp-2, job5-qstamp-1")
    assert second.split()[:4] == [OTHER_GPU, "1", "1", "1"] and second.endswith("job4-qstamp-2")
    assert total.split()[:4] == ["all", "2", "2", "2"], "an attempt with two GPUs counts once, others do not count"


def test_failures_by_gpu_for_programs(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("--json", "--csv"):
        answers(server, *ALL, BROKEN, BROKEN_AGAIN)
        assert main(["failures", "--by", "gpu", form]) == 0
    text = capsys.readouterr().out
    found, end = json.JSONDecoder().raw_decode(text)
    assert [(it["gpu"], it["training_jobs"]) for it in found["failures"]] == [
        (GPU, "job4-qstamp-2 job5-qstamp-1"),
        (OTHER_GPU, "job4-qstamp-2"),
    ]
    first, _ = csv.DictReader(io.StringIO(text[end:].lstrip()))
    assert (first["gpu"], first["training_jobs"]) == (GPU, "job4-qstamp-2 job5-qstamp-1")


def test_no_failure_has_named_a_gpu(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers(server, *ALL)
    assert main(["failures", "--by", "gpu"]) == 0
    assert capsys.readouterr() == ("", "No hardware failure in that time has named a GPU in its log.\n")


def test_show_names_the_gpus_that_returned(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    uuids = [GPU, OTHER_GPU, *(f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(6))]
    returned = [
        {"uuid": GPU, "failures": 1, "latest": "2026-11-21T15:00:00Z"},
        {"uuid": "GPU-\x1b[2J", "failures": 2, "latest": None},
    ]
    failure = {**FAILURE, "failureClass": "hardware", "gpuUuids": uuids, "returnedGpus": returned}
    failure |= {"action": "retry free", "freshInstances": True, "instanceCheck": True}
    server.answers(200, {**FAILED, "failure": failure})
    assert main(["show", "job1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"GPUs {GPU}, {OTHER_GPU}, " in out and " and 4 more Returned GPUs" in out
    assert f"{GPU}: 1 other hardware failure within a day, the latest at 2026-11-21 15:00:00" in out
    assert "2 other hardware failures within a day" in out and "\x1b" not in out
    assert "Action retry free, on fresh instances that SageMaker checks Rule" in out


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"action": "fail", "freshInstances": True}, "fail"),
        ({"action": "retry", "freshInstances": True}, "retry, on fresh instances"),
        ({"action": "retry", "instanceCheck": True}, "retry, on instances that SageMaker checks"),
    ],
)
def test_the_action_says_what_becomes_of_the_instances(
    failure: dict[str, Any], expected: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {**FAILED, "failure": {**FAILURE, **failure}})
    assert main(["show", "job1"]) == 0
    assert f"Action         {expected}\n" in capsys.readouterr().out
