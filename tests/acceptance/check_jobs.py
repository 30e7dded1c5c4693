"""What the queue promises its users, by its API and by `smq`."""

import json
from typing import Any

import boto3
import pytest

import sagemaker_queue
from sagemaker_queue import Conflict, InvalidRequest, JobDetail, StalePolicy
from tests.acceptance.account import ENDED, POOL, PROJECT, Account
from tests.acceptance.conftest import ENDS_WHEN_TOLD, FOREVER
from tests.acceptance.plan import CAPACITY, LONGEST_SECONDS

# Its second attempt finds what the first one kept, and ends.
RESUMES = f"""{ENDS_WHEN_TOLD}
import os, pathlib
kept = pathlib.Path(os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints"), "step")
begin = step = int(kept.read_text()) if kept.exists() else 0
print("begins at step", "more" if begin else 0, flush=True)
while not begin:
    step += 1
    new = kept.with_suffix(".new")
    new.write_text(str(step))
    new.replace(kept)
    if step == 3: print("it has kept", flush=True)
    time.sleep(0.2)
"""


def check_nothing_stands_between_us_and_the_queue(account: Account) -> None:
    told = json.loads(account.smq("doctor", "--json"))
    assert told["healthy"], told


def check_a_command_runs_and_its_log_is_read(account: Account) -> None:
    account.uses(1)
    (account.folder / "words.txt").write_text("hello from the folder\n")
    name = account.name("command")
    account.smq(
        *("submit", "--name", name, "--role", account.settings.role, "--image", account.settings.image),
        *("--instance-type", account.settings.instance_type, "--bucket", account.settings.bucket),
        *("--max-run", str(LONGEST_SECONDS), "--volume", "10", "--project", PROJECT, "--", "cat", "words.txt"),
    )
    assert "hello from the folder" in account.smq("logs", "-f", name).splitlines()
    job = account.queue.job(name)
    assert (job.state, job.attempt) == ("completed", 1)
    described = account.sagemaker.describe_training_job(TrainingJobName=job.training_job_name)
    assert described["TrainingJobStatus"] == "Completed"
    tags = account.sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert {"Key": "queue-job", "Value": name} in tags
    assert name in account.smq("ls", "--all")


def check_a_job_is_preempted_and_goes_on_from_its_checkpoint(account: Account) -> None:
    account.uses(CAPACITY, 1, CAPACITY)
    low = account.submit("low", RESUMES, instances=CAPACITY, priority=1)
    account.wait_line(low, "it has kept")
    high = account.submit("high", "print('it was urgent')", priority=9)
    account.wait_state(high, "completed")
    job = account.wait_state(low, "completed")
    assert [attempt.outcome for attempt in job.attempts] == ["preempted", "completed"]
    assert "begins at step more" in account.smq("logs", low)
    states = [event["state"] for event in json.loads(account.smq("events", low, "--json"))]
    assert states.count("running") == 2
    assert states.index("running") < states.index("stopping") < states.index("preempted") < len(states) - 1


def check_a_gang_starts_as_a_whole(account: Account) -> None:
    account.uses(1, CAPACITY)
    first = account.submit("first", FOREVER)
    account.wait_state(first, "running")
    gang = account.submit("gang", "print('one of the gang', flush=True)", instances=CAPACITY)
    waits = wait_planned(account, gang)
    assert (waits.state, waits.position) == ("pending", 1)
    assert waits.reason is not None and waits.reason.code == "WAITING_FOR_CAPACITY"
    assert first in account.smq("why", gang)
    account.smq("cancel", first)
    account.wait_state(gang, "completed")
    assert account.smq("logs", gang).count("one of the gang") == CAPACITY


def check_waiting_and_running_jobs_are_cancelled(account: Account) -> None:
    account.uses(CAPACITY)
    runs = account.submit("runs", FOREVER, instances=CAPACITY)
    waits = account.submit("waits", FOREVER)
    account.wait_line(runs, "it runs")
    assert account.queue.cancel(waits).state == "stopped"
    assert account.queue.cancel(runs).cancel_requested
    stopped = account.wait_state(runs, "stopped")
    assert stopped.training_job_name is not None
    assert account.status(stopped.training_job_name) == "Stopped"
    assert account.queue.cancel(runs).was_finished
    with pytest.raises(Conflict):
        account.queue.change(runs, priority=5)


def check_a_job_that_was_started_past_the_queue_counts(account: Account) -> None:
    account.uses(1, CAPACITY)
    theirs = account.start_past_the_queue("theirs", FOREVER)
    account.wait("the queue to see it", lambda: theirs in account.external_jobs())
    mine = account.submit("mine", "print('it was my turn')", instances=CAPACITY)
    assert account.queue.job(mine).state == "pending"
    (pool,) = account.queue.queue().pools
    assert (pool.name, pool.external, pool.free) == (POOL, 1, CAPACITY - 1)
    assert account.status(theirs) == "InProgress"
    account.sagemaker.stop_training_job(TrainingJobName=theirs)
    account.wait_state(mine, "completed")
    assert account.status(theirs) == "Stopped"


def check_a_policy_shares_and_is_refused_when_stale(account: Account) -> None:
    before = account.queue.policy()
    with pytest.raises(InvalidRequest, match="capacity"):
        account.apply(account.policy_of(-1))
    ceiling = account.apply(account.policy_of(CAPACITY, priority_ceiling=5, quota={POOL: 0}, limit={POOL: 0}))
    assert ceiling.version == before.version + 1
    try:
        with pytest.raises(StalePolicy):
            account.queue.apply_policy(account.policy_of(1), before.version)
        with pytest.raises(InvalidRequest, match="its limit is"):
            account.submit("limited", FOREVER)
        limited = account.queue.submit(account.request("limited", FOREVER), preflight=False)
        held = wait_planned(account, limited.job)
        assert held.reason is not None and held.reason.code in ("NEVER_FITS", "OVER_LIMIT")
        with pytest.raises(sagemaker_queue.QueueError, match="priority"):
            account.submit("above", FOREVER, priority=6)
        assert account.queue.cancel(held.job).state == "stopped"
        (account.folder / "policy.yaml").write_text(account.smq("policy", "show"))
        assert account.smq("policy", "diff", "policy.yaml") == ""
        assert PROJECT in account.smq("status")
    finally:
        account.apply(before.policy)


def check_boto3_sees_a_job_under_its_own_name(account: Account) -> None:
    account.uses(1)
    hooked = sagemaker_queue.boto_session(boto3.Session(region_name=account.queue.region))
    make = hooked.client
    sagemaker = make("sagemaker")
    request = account.request("plain", FOREVER)
    name = request["TrainingJobName"]
    sagemaker.create_training_job(**request)
    described = sagemaker.describe_training_job(TrainingJobName=name)
    assert (described["TrainingJobName"], described["TrainingJobStatus"]) == (name, "InProgress")
    account.wait_line(name, "it runs")
    sagemaker.stop_training_job(TrainingJobName=name)
    assert account.wait("the job to end", lambda: ended(sagemaker, name)) == "Stopped"
    streams = make("logs").describe_log_streams(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
    )["logStreams"]
    assert streams and all(stream["logStreamName"].startswith(f"{name}/") for stream in streams)


def wait_planned(account: Account, name: str) -> JobDetail:
    """Wait until a plan includes a waiting job, and return the job: another invocation may have made plans before."""

    def planned() -> JobDetail | None:
        job = account.queue.job(name)
        return None if job.reason is None or job.reason.code in ("NOT_PLANNED_YET", "STARTING_SOON") else job

    found: JobDetail = account.wait(f"a plan with {name}", planned)
    return found


def ended(sagemaker: Any, name: str) -> str | None:
    """How it ended, as SageMaker's API says; None while it lives."""
    status: str = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    return status if status in ENDED else None
