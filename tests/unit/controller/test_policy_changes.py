"""Changes of the policy while jobs live: whatever a policy drops or renames, cycles go on planning."""

import json
from typing import Any

from job_queue.adapters.sagemaker import LaunchResult
from tests.jobs import OWNER, a_request
from tests.queue_harness import Harness

P5 = {"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 2}
G5 = {"name": "g5", "instance_type": "ml.g5.xlarge", "capacity": 2, "keep_warm": 1800}


def apply(queue: Harness, **document: Any) -> None:
    stored = queue.repository.policy()
    text = json.dumps({"pools": [P5], **document})
    queue.repository.apply_policy(text, stored.version if stored else 0, OWNER, queue.now)
    queue.wake()


def resources(kind: str, **more: Any) -> dict[str, Any]:
    return {"InstanceType": kind, "InstanceCount": 1, "VolumeSizeInGB": 30, **more}


def submit(queue: Harness, name: str, project: str, kind: str = "ml.p5.48xlarge", **more: Any) -> None:
    request = a_request(name, ResourceConfig=resources(kind, **more), Tags=[{"Key": "project", "Value": project}])
    queue.submissions.submit(request, OWNER)
    queue.wake()


def test_a_new_department_may_have_the_name_of_a_removed_project_with_jobs() -> None:
    queue = Harness(slots=2)
    apply(queue, projects=[{"name": "research", "quota": {"p5": 2}}])
    for name in ("old1", "old2", "old3"):
        submit(queue, name, "research")
    assert list(queue.states().values()) == ["running", "running", "pending"]
    vision = {"name": "vision", "department": "research", "quota": {"p5": 2}}
    apply(queue, departments=[{"name": "research", "quota": {"p5": 2}}], projects=[vision])
    submit(queue, "new1", "vision")
    submit(queue, "new2", "vision")
    assert (queue.state("old1"), queue.state("old2")) == ("stopping", "stopping"), "the removed project has no quota"
    queue.end("old1-qstamp-1", "Stopped")
    queue.end("old2-qstamp-1", "Stopped")
    assert (queue.state("new1"), queue.state("new2")) == ("running", "running")


def test_a_pool_with_warm_instances_may_be_removed() -> None:
    queue = Harness(slots=4)
    apply(queue, pools=[P5, G5], projects=[{"name": "default", "quota": {"p5": 2, "g5": 2}}])
    submit(queue, "first", "default", "ml.g5.xlarge", KeepAlivePeriodInSeconds=1800)
    queue.end("first-qstamp-1")
    assert queue.repository.external()[0].warm is not None
    queue.accept("second", None, ResourceConfig=resources("ml.g5.xlarge", KeepAlivePeriodInSeconds=1800))
    apply(queue, projects=[{"name": "default", "quota": {"p5": 2}}])
    submit(queue, "other", "default")
    queue.tick()
    assert (queue.state("second"), queue.state("other")) == ("pending", "running")


def test_a_job_that_is_refused_after_its_pool_has_gone_waits_for_another_pool() -> None:
    """Without the fields that its pool added, its request may be wrong."""
    queue = Harness(slots=4)
    project = {"name": "research", "quota": {"p5": 2}}
    apply(queue, pools=[P5, G5], projects=[project])
    queue.training.script = ["never"]
    tags = [{"Key": "project", "Value": "research"}, {"Key": "pools", "Value": "g5+p5"}]
    queue.submissions.submit(a_request("job1", Tags=tags), OWNER)
    queue.wake()
    assert (queue.state("job1"), queue.job("job1").slots) == ("starting", {"g5": 1})
    apply(queue, projects=[project])
    queue.training.script = [(LaunchResult.REFUSED, "ValidationException: The instance type is not supported.")]
    queue.tick(20 * 60)  # the first call can no longer take effect
    assert queue.state("job1") == "pending"
    assert queue.repository.metadata().capacity_backoffs == {}
    queue.tick(60)
    assert (queue.state("job1"), queue.job("job1").slots) == ("running", {"p5": 1})
