"""Pools of other regions and accounts on the whole system: launches, results, preemption, and a region that breaks."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.deployment import create_bucket
from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.injection import Faults
from local_cloud.sites.emulated_site import EmulatedSite
from tests.system.conftest import FOREVER, WAIT, System
from tests.system.test_shell import Person
from tests.system.test_utilization import age_record, report

HOME = EmulatedSite("000000000000", "us-east-1")
OHIO = EmulatedSite("000000000000", "us-east-2")
LAB = EmulatedSite("111111111111", "us-east-2")
P5 = "ml.p5.48xlarge"
BUCKETS = {"us-east-1": "system", "us-east-2": "system-ohio"}
WRITES = """
import os
print("hello", flush=True)
open(os.path.join(os.environ["SM_MODEL_DIR"], "model"), "w").write("m")
"""
# Counts to a number, a tenth of a second for each step, and goes on from its checkpoint. It does not end before that.
COUNTS = """
import os, time
folder = "/opt/ml/checkpoints"
file = os.path.join(os.environ.get("SM_CHECKPOINT_DIR", folder), "step")
begin = step = int(open(file).read()) if os.path.exists(file) else 0
print("begins at", step, "in", os.environ["AWS_REGION"], flush=True)
while not begin or step < {steps}:
    step += 1
    with open(file + ".new", "w") as new:
        new.write(str(step))
    os.replace(file + ".new", file)
    time.sleep(0.1)
"""


def policy(site: EmulatedSite, capacity: int = 1, **far: Any) -> dict[str, Any]:
    pool = {"name": "far", "instance_type": P5, "capacity": capacity, "region": site.region, **far}
    return {
        "pools": [{"name": "home", "instance_type": P5, "capacity": capacity}, pool],
        "projects": [{"name": "default", "quota": {"home": capacity, "far": capacity}, "bucket_by_region": BUCKETS}],
    }


def to_far(priority: int = 0) -> list[dict[str, str]]:
    return [{"Key": "priority", "Value": str(priority)}, {"Key": "pools", "Value": "far"}]


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=1, regions=("us-east-1", "us-east-2")) as cloud:
        create_bucket(cloud.site_session(OHIO).client("s3"), "system-ohio")
        yield cloud


@pytest.fixture(scope="module")
def of_module(cloud: LocalCloud) -> System:
    system = System(cloud)
    system.queue.apply_policy(policy(OHIO), version=0)
    return system


@pytest.fixture
def system(of_module: System) -> Iterator[System]:
    yield of_module
    of_module.empty()


def test_a_job_runs_in_the_other_region_under_its_name(system: System, tmp_path: Path) -> None:
    system.run("at-home", FOREVER)
    system.submit("abroad", WRITES)
    system.wait_state("abroad", "completed")
    job = system.job("abroad")
    assert (job.region, job.account, [it.region for it in job.attempts]) == ("us-east-2", None, ["us-east-2"])
    assert names_in(system.cloud, OHIO) == ["abroad-qstamp-1"]
    assert names_in(system.cloud, HOME) == ["at-home-qstamp-1"]
    person = Person(system, tmp_path)
    assert "hello" in person.smq("logs", "abroad").stdout
    shown = person.smq("show", "abroad").stdout
    assert "us-east-2" in shown
    got = person.smq("get", "abroad", str(tmp_path / "results"))
    assert [it.name for it in (tmp_path / "results").rglob("model*")], got


@pytest.mark.thorough
def test_a_preempted_job_resumes_in_its_region(system: System) -> None:
    system.run("long", COUNTS.format(steps=60), Tags=to_far())
    system.wait("a first checkpoint", lambda: "begins at 0 in us-east-2" in log_in_ohio(system, "long-qstamp-1"))
    system.submit("urgent", "print('done')", Tags=to_far(9))
    system.wait_state("urgent", "completed")
    system.wait_state("long", "completed")
    job = system.job("long")
    assert [(it.outcome, it.region) for it in job.attempts] == [("preempted", "us-east-2"), ("completed", "us-east-2")]
    (begins,) = [line for line in log_in_ohio(system, "long-qstamp-2") if line.startswith("begins at")]
    assert int(begins.split()[2]) > 0


def log_in_ohio(system: System, attempt: str) -> list[str]:
    logs = system.cloud.site_session(OHIO).client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    try:
        streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{attempt}/")["logStreams"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    read = [logs.get_log_events(logGroupName=group, logStreamName=it["logStreamName"])["events"] for it in streams]
    return [event["message"] for events in read for event in events]


def test_the_gpus_of_a_job_are_measured_in_its_region(system: System) -> None:
    system.submit("measured", "pass", Tags=to_far())
    system.wait_state("measured", "completed")
    ended = time.time() - 20 * 60
    age_record(system, "measured", 20)
    report(system.cloud.site_session(OHIO).client("cloudwatch"), "measured-qstamp-1", ended)
    system.run("live", FOREVER)

    def gpu() -> float | None:
        (found,) = [it for it in system.queue.history(datetime.now(UTC) - timedelta(hours=1)) if it.job == "measured"]
        return found.gpu_mean_percent

    system.wait("the figures", lambda: gpu() is not None, each_time=system.cloud.tick)
    assert gpu() == 50


def test_a_job_with_a_bucket_of_one_region_says_why_it_stays(system: System) -> None:
    system.run("first", FOREVER)
    system.submit("bound", OutputDataConfig={"S3OutputPath": "s3://other-bucket/output"})
    system.wait("the reason", lambda: "It cannot run in far: " in str(system.job("bound").reason))
    assert "bucket_by_region of project default does not have its bucket other-bucket" in str(
        system.job("bound").reason
    )


@pytest.mark.thorough
def test_forty_jobs_survive_a_broken_region_of_another_account() -> None:
    """Two regions and two accounts: an outage, throttled calls and lost events end nothing twice and lose nothing."""
    sites = ("us-east-1", "us-east-2")
    faults = {site: Faults({"lost": 0.3, "throttle": 0.3}, seed=7) for site in (LAB,)}
    with LocalCloud(slots=2, regions=sites, accounts=2, site_faults=faults) as cloud:
        create_bucket(cloud.site_session(LAB).client("s3"), "system-ohio")
        system = System(cloud)
        system.queue.apply_policy(policy(LAB, capacity=2, role=LAB.role_arn), version=0)
        stay = WAIT.format(file=str(cloud.folder / "go-on"))
        for number in range(4):
            system.submit(f"job-{number}", stay)
        system.wait("jobs in the other account", lambda: names_in(cloud, LAB))
        cloud.begin_outage(LAB)
        for number in range(4, 40):
            system.submit(f"job-{number}", "import time; time.sleep(0.5)")
        before = len(names_in(cloud, HOME))
        (cloud.folder / "go-on").touch()
        system.wait("more jobs at home during the outage", lambda: len(names_in(cloud, HOME)) >= before + 6)
        cloud.end_outage(LAB)
        system.wait("all jobs", lambda: not list(system.queue.jobs()), cloud.tick)
        jobs = [system.job(f"job-{number}") for number in range(40)]
        assert Counter(job.state for job in jobs) == {"completed": 40}
        assert all([it.outcome for it in job.attempts].count("completed") == 1 for job in jobs)
        everywhere = names_in(cloud, HOME) + names_in(cloud, LAB)
        assert len(everywhere) == len(set(everywhere)) == 40, Counter(everywhere).most_common(3)
        assert {job.account for job in jobs} == {None, LAB.account}
        for site in (HOME, LAB):
            assert max(cloud.training_of(site).most_in_use.values()) <= 2


def names_in(cloud: LocalCloud, site: EmulatedSite, **filters: Any) -> list[str]:
    """The training jobs of a site, by its SageMaker."""
    sagemaker = cloud.site_session(site).client("sagemaker")
    pages = sagemaker.get_paginator("list_training_jobs").paginate(**filters)
    return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
