"""Classes of failures on real parts: processes that fail, their logs, and the function's right to read them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import System

POLICY = {
    "pools": [{"name": "m5", "instance_type": "ml.m5.large", "capacity": 4}],
    "projects": [{"name": "default", "quota": {"m5": 4}}],
    "failure_rules": [{"exit_code": 75, "action": "retry free"}],
}

IMPORT = "import nosuch"
# The first host may have been stopped before it wrote anything, so it goes on from the mark of the other one, too.
LOST_PEER = """
import json, os, pathlib, sys, time
host = json.loads(pathlib.Path('/opt/ml/input/config/resourceconfig.json').read_text())['current_host']
folder = pathlib.Path(os.environ['SM_CHECKPOINT_DIR'])
if list(folder.glob('mark-algo-2' if host == 'algo-2' else 'mark-*')): sys.exit(0)
(folder / ('mark-' + host)).write_text('step 7')
if host == 'algo-2':
    print('[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 600000 ms', flush=True)
    sys.exit(1)
time.sleep(600)
"""

# The text is PyTorch's, since there is no GPU here.
GPU_MEMORY = "raise RuntimeError('CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity)')"
FULL_DISK = "open('/dev/full', 'w').write('x' * 100_000)"
KILLED = "import signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(policy=POLICY) as cloud:
        yield cloud


def on_m5(count: int = 1, **tags: str) -> dict[str, Any]:
    return {
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 30},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


@pytest.mark.thorough
def test_an_import_error_is_not_retried_and_the_reason_names_the_module(system: System) -> None:
    system.submit("broken", IMPORT, **on_m5(retries="3"))
    system.wait_state("broken", "failed")
    job = system.job("broken")
    assert (len(job.attempts), job.retried, job.failure_class) == (1, 0, "user_error")
    assert job.reason is not None
    assert "[user_error: The module nosuch is not installed" in job.reason.message
    assert job.failure is not None
    assert any("No module named 'nosuch'" in line for line in job.failure.lines)
    assert (job.failure.rank, job.failure.action, job.attempts[0].failure_class) == ("algo-1", "fail", "user_error")


@pytest.mark.parametrize(
    ("name", "script", "failure_class", "attempts", "words"),
    [
        ("gpu-memory", GPU_MEMORY, "gpu_memory", 1, "smaller batch"),
        ("disk", FULL_DISK, "disk_full", 1, "VolumeSizeInGB"),
        ("killed", KILLED, "memory", 2, "exit code: 137"),
    ],
)
def test_a_process_that_lacks_memory_or_disk_space_has_the_class_and_a_remedy(
    system: System, name: str, script: str, failure_class: str, attempts: int, words: str
) -> None:
    system.submit(name, script, **on_m5(retries="1"))
    system.wait_state(name, "failed")
    job = system.job(name)
    assert (job.failure_class, len(job.attempts), job.retried) == (failure_class, attempts, attempts - 1)
    assert job.failure is not None
    assert words in f"{job.failure.remedy} {job.failure.lines} {job.reason}"


def test_a_lost_peer_is_retried_free_from_the_checkpoint(system: System) -> None:
    system.submit("pair", LOST_PEER, **on_m5(2))
    system.wait_state("pair", "completed")
    job = system.job("pair")
    assert ([it.outcome for it in job.attempts], job.retried, job.free_retries) == (["failed", "completed"], 0, 1)
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.rank) == ("communication", "algo-2 rank 1")
    assert any(it.cause.startswith("failed, retried free: AlgorithmError") for it in job.history)


def test_a_rule_of_the_policy_and_the_exit_code_decide(system: System) -> None:
    script = (
        "import pathlib, sys; mark = pathlib.Path(os.environ['SM_CHECKPOINT_DIR'], 'mark')\n"
        "if not mark.exists(): mark.write_text('here'); sys.exit(75)"
    )
    system.submit("again", script, **on_m5())
    system.wait_state("again", "completed")
    job = system.job("again")
    assert ([it.outcome for it in job.attempts], job.retried, job.free_retries) == (["failed", "completed"], 0, 1)
    assert job.failure is not None
    assert job.failure.rule == "failure_rules 1 of the policy: exit_code 75, retry free"


def test_without_the_right_to_read_logs_the_reason_decides(system: System) -> None:
    iam, functions = system.cloud.client("iam"), system.cloud.client("lambda")
    role = functions.get_function_configuration(FunctionName=system.cloud.function_name)["Role"].rpartition("/")[2]
    before = iam.get_role_policy(RoleName=role, PolicyName="queue")["PolicyDocument"]
    fewer = [it for it in before["Statement"] if it["Sid"] != "ReadTheLogsOfTrainingJobs"]
    assert len(fewer) == len(before["Statement"]) - 1
    iam.put_role_policy(RoleName=role, PolicyName="queue", PolicyDocument=json.dumps({**before, "Statement": fewer}))
    try:
        system.submit("unread", "import sys; sys.exit(137)", **on_m5())
        system.wait_state("unread", "failed")
        job = system.job("unread")
        assert job.failure is not None
        assert (job.failure_class, job.failure.lines, job.failure.rank) == ("memory", (), None)
    finally:
        iam.put_role_policy(RoleName=role, PolicyName="queue", PolicyDocument=json.dumps(before))
