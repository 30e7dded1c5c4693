"""Interactive jobs on a local cloud whose pool is full: document 002 (Run:ai), "Allocation & Preemption"."""

from collections.abc import Iterator

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import FOREVER, System
from tests.system.test_queue import count

pytestmark = pytest.mark.thorough

POLICY = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 2}],
    "projects": [{"name": "vision", "quota": {"p5": 1}}, {"name": "nlp", "quota": {"p5": 1}}],
    "settings": {"window": 2, "preempted_min_runtime": 0},  # on a busy machine t1 may resume between two submissions
    "interactive": {"max_per_owner": 5},
}


@pytest.fixture(scope="module")
def full() -> Iterator[System]:
    with LocalCloud(slots=2, policy=POLICY) as cloud:
        yield System(cloud)


def submit(system: System, name: str, script: str, **tags: str) -> None:
    listed = [{"Key": key, "Value": value} for key, value in {"project": "vision", **tags}.items()]
    system.queue.submit(system.request(name, script, Tags=listed))


def test_within_quota_it_preempts_training_of_any_priority_and_beyond_it_waits(full: System) -> None:
    submit(full, "t1", count(10, "/nowhere"), priority="50")
    submit(full, "other", FOREVER, project="nlp")
    full.wait_state("t1", "running")
    full.wait_state("other", "running")
    for number in range(5):  # more than a cycle reads of a waiting queue
        submit(full, f"queued-{number}", "pass", priority="60")
    full.wait("t1 or a job of higher priority", lambda: full.state("t1") in ("running", "preempted"))
    submit(full, "lab", FOREVER, interactive="true")
    full.wait_state("lab", "running")
    assert full.state("other") == "running", "training of another project stays"
    submit(full, "lab2", FOREVER, interactive="true", priority="70")
    job = full.queue.job("lab2")
    assert job.interactive and not job.preemptible
    full.gives_reason("lab2", "OVER_QUOTA_NON_PREEMPTIBLE")
    full.queue.cancel("lab2")
    full.queue.cancel("lab")
    for number in range(5):
        full.wait_state(f"queued-{number}", "completed")
    full.wait_state("t1", "running")
    assert full.job("t1").attempt > 1, "it resumes"
