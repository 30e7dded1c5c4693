"""Hangs with real processes: what hangs is noticed once and, if wished, stopped and resumed; what is active is not.

The local cloud has no GPUs, so the test reports idle GPUs to CloudWatch, as SageMaker does. All jobs have idle GPUs.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.time_warp import TimeWarp
from sagemaker_queue.cli import main
from tests.system.conftest import FOREVER, System
from tests.system.test_idle import gpus_did
from tests.system.test_notifications import Mailbox

pytestmark = pytest.mark.thorough

SILENT = 30.0  # seconds; on a busy machine, the lines of a job that writes all the time may be ten seconds late
POLICY: dict[str, Any] = {
    "pools": [{"name": "default", "capacity": 8}],
    "projects": [{"name": "default", "quota": {"default": 8}}],
    "settings": {"silent": SILENT},
}
# The first attempt says so, keeps a checkpoint and hangs; it does not even end when it is told to stop.
HANGS = """
import os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step")
if kept.exists():
    print("resumed at", kept.read_text(), flush=True)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept.write_text("7")
    print("step 7", flush=True)
    time.sleep(1000)
"""
SAYS = "print('here', flush=True)\n"
DOTS = "import time\nwhile True: print('.', flush=True); time.sleep(0.5)"
# Writes one line, and then a checkpoint every half second.
SAVES = f"""{SAYS}
import os, pathlib, time
for step in range(10000):
    pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step").write_text(str(step))
    time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=8, parameters={"CheckpointBuckets": "system"}, stop_grace=2) as cloud:
        yield cloud


def tagged(**tags: str) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def test_what_hangs_is_noticed_once_and_what_is_active_or_not_known_is_left_alone(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, mailbox = system.cloud, Mailbox(system)
    cloud.client("s3").create_bucket(Bucket="unlisted")
    system.queue.apply_policy(POLICY, system.queue.policy().version)
    names = ["requeued", "noticed", "dots", "saves", "mute", "unlisted", "nothing", "shell"]
    system.run("requeued", HANGS, **tagged(on_hang="requeue"))
    system.run("noticed", SAYS + FOREVER, CheckpointConfig={"S3Uri": "s3://system/none-yet"})
    system.run("dots", DOTS)
    system.run("saves", SAVES)
    system.run("mute")  # writes no line at all, so nothing is known of its log
    system.run("unlisted", SAYS + FOREVER, CheckpointConfig={"S3Uri": "s3://unlisted/checkpoints"})
    system.run("nothing", SAYS + FOREVER)  # its GPUs report nothing
    system.run("shell", SAYS + FOREVER, **tagged(interactive="true"))
    said = [f"{name}-qstamp-1" for name in names if name != "mute"]
    system.wait("a line of each", lambda: all(system.log(attempt) for attempt in said))
    silent_from = time.time() + SILENT + 2  # the latest lines are older than this by then
    system.wait("a time of silence", lambda: time.time() > silent_from)
    warp = TimeWarp(cloud)
    for name in names:
        if name != "nothing":
            gpus_did(system, f"{name}-qstamp-1", 0.0)
    warp.have_run_for(names, 3600.0)
    system.wait("the hang", lambda: system.job("noticed").hung_since, each_time=cloud.tick)
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    system.wait("requeued to run again", lambda: len(system.job("requeued").attempts) == 2, each_time=cloud.tick)
    system.wait_state("requeued", "completed")
    assert system.log("requeued-qstamp-2") == ["resumed at 7"]
    assert [it.outcome for it in system.job("requeued").attempts] == ["hung", "completed"]
    record = {it.attempt: it for it in system.queue.history() if it.job == "requeued"}
    assert record[1].hung_seconds is not None
    assert record[1].hung_seconds >= SILENT
    assert (record[2].hung_seconds, system.job("requeued").hangs) == (None, 1)
    for name in ("dots", "saves", "mute", "unlisted", "nothing", "shell"):
        job = system.job(name)
        assert (job.state, job.hung_since, len(job.attempts)) == ("running", None, 1), name
    noticed = system.job("noticed")
    assert (noticed.state, len(noticed.attempts), noticed.hangs) == ("running", 1, 0)

    def activity() -> str:
        capsys.readouterr()
        assert main(["ls", "-o", "job,activity"]) == 0
        shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines()[2:])
        return shown.get("noticed", "")

    system.wait("the listing to show the hang", lambda: activity().startswith("hung "))
    assert main(["show", "noticed"]) == 0
    assert "no log line, no checkpoint and idle GPUs" in capsys.readouterr().out
    system.wait("the events", lambda: "Hung" in mailbox.types("requeued") and "Hangs" in mailbox.types("noticed"))
    assert mailbox.types("noticed").count("Hangs") == 1
    (event,) = [it["detail"] for it in mailbox.of("noticed") if it["detail-type"].endswith("Hangs")]
    assert "seems to hang: no log line, no checkpoint and idle GPUs" in event["notice"]
    assert event["requeued"] is False
