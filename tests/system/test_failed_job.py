"""A real job that fails, and all commands that show its failure."""

import json
from typing import Any

import pytest

from sagemaker_queue.cli import main
from tests.system.conftest import System

OUT_OF_MEMORY = """
import sys
print("step 41", flush=True)
sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \\x1b[2J")
"""
RULE: dict[str, Any] = {"failure_class": "gpu_memory", "action": "retry", "fresh_instances": True}


@pytest.mark.thorough
def test_the_class_of_a_failure_in_all_commands(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)

    def smq(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(words)) == code
        return capsys.readouterr().out

    system.submit("oom", OUT_OF_MEMORY)
    assert "failed (gpu_memory)" in smq("wait", "oom", code=4)
    page = smq("show", "oom")
    for text in ("Class          gpu_memory", "What to do     Use a smaller batch", "built-in: gpu_memory, fail"):
        assert text in page
    assert "step 41" in page and "torch.OutOfMemoryError: CUDA out of memory." in page
    assert "\x1b" not in page
    assert "failed: gpu_memory" in page.partition("\nAttempts")[2]

    def listed() -> list[str]:
        rows = smq("ls", "--failed", "-o", "failure,reason").splitlines()[2:]
        return rows[0].split()[:2] if rows else []

    system.settles(listed, ["gpu_memory", "gpu_memory:"])

    (row,) = json.loads(smq("failures", "--json"))["failures"]
    assert (row["class"], row["failures"], row["jobs"], row["owners"]) == ("gpu_memory", 1, 1, 1)
    assert "gpu_memory (1)" in smq("failures", "--by", "instance-type")
    assert smq("history", "oom").rstrip().endswith("failed: gpu_memory")
    causes = json.loads(smq("usage", "--by", "cause", "--json"))
    hours = {each["cause"]: each["instance_hours"] for each in causes["usage"]}
    assert hours["failure"] > 0 == hours["useful"]

    assert "No rule of the job" in smq("failures", "check", "oom")
    answer = system.queue.policy()
    system.queue.apply_policy({**answer.policy, "failure_rules": [RULE]}, answer.version)

    def action_now() -> str | None:
        failure = system.job("oom").failure
        return failure.action_now if failure else None

    system.settles(action_now, "retry")  # reads may see the earlier policy for some seconds
    check = smq("failures", "check", "oom")
    assert "by the rule: built-in: gpu_memory, fail" in check.partition("Action by the rules in force now")[0]
    assert "failure_rules 1 of the policy" in check.partition("Action by the rules in force now")[2]
    assert json.loads(smq("failures", "check", "oom", "--json"))["actionNow"] == "retry"
