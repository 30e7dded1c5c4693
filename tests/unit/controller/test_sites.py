"""Pools of other regions and accounts: launches, stops, ends, lists, external jobs, and regions that do not respond."""

import json
from collections import Counter
from typing import Any

import pytest

from job_queue.adapters.records.claimed_places import LOCK_SECONDS
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.domain_events import DomainEvent, SilentSites
from job_queue.domain.errors import Conflict, InvalidRequest
from job_queue.domain.fleet.sites import HomeSite, Origin, Site, name_in
from job_queue.domain.policy import why_pools_are_unusable
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import REMEDIES, WaitReason
from job_queue.services.policy_conflicts import conflicts
from tests.fake_sagemaker import FakeTraining
from tests.jobs import OWNER, P5, a_request
from tests.queue_harness import Harness
from tests.unit.controller.test_deadlines import at, tagged
from tests.unit.queue_api import Api

OHIO = Site("us-east-2")
ROLE_OF_LAB = "arn:aws:iam::222222222222:role/sagemaker-queue-satellite-us-east-2"
LAB = Site("us-east-2", ROLE_OF_LAB)
BUCKETS = {"us-east-1": "bucket", "us-east-2": "bucket-ohio"}
ACCOUNT = "123456789012"


def a_policy(home: int = 1, ohio: int = 1, role: str | None = None, **project: Any) -> dict[str, Any]:
    far = {"name": "ohio", "instance_type": P5, "capacity": ohio, "region": "us-east-2"}
    return {
        "pools": [{"name": "home", "instance_type": P5, "capacity": home}, {**far, **({"role": role} if role else {})}],
        "projects": [
            {"name": "default", "quota": {"home": home, "ohio": ohio}, "bucket_by_region": BUCKETS, **project}
        ],
    }


def a_queue(*args: Any, **options: Any) -> Harness:
    queue = Harness(slots=10)
    queue.repository.apply_policy(json.dumps(a_policy(*args, **options)), 0, "ada", queue.now)
    return queue


def ohio_of(queue: Harness, site: Site = OHIO) -> FakeTraining:
    return queue.training.at(site)


def origin(account: str | None, region: str | None) -> Origin:
    return Origin(region or "us-east-1", account or ACCOUNT, HomeSite("us-east-1", ACCOUNT))


def event(queue: Harness, attempt: str, site: Site = OHIO) -> None:
    """An event of another site arrives."""
    queue.now += 1
    detail = ohio_of(queue, site).event(attempt)
    queue.controller.training_job_changed(detail, queue.invocation(), origin(site.account, site.region))


def why(queue: Harness, name: str) -> tuple[WaitReason, str]:
    _, decided = queue.forecast()
    (hold,) = [hold for hold in decided.holds if hold.job == name]
    return hold.reason, hold.message


def test_the_second_job_runs_in_the_other_region() -> None:
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2")
    assert list(queue.training.jobs) == ["job1-qstamp-1"]
    assert list(ohio_of(queue).jobs) == ["job2-qstamp-1"]
    assert queue.job("job1").site is None and queue.job("job2").site == OHIO
    sent = ohio_of(queue).requests["job2-qstamp-1"]
    assert sent["OutputDataConfig"]["S3OutputPath"] == "s3://bucket-ohio/output"
    assert sent["CheckpointConfig"]["S3Uri"] == "s3://bucket-ohio/checkpoints/job2"
    assert sent["AlgorithmSpecification"]["TrainingImage"] == "123456789012.dkr.ecr.us-east-2.amazonaws.com/train:1"
    home = queue.training.requests["job1-qstamp-1"]
    assert home["OutputDataConfig"]["S3OutputPath"] == "s3://bucket/output"


def test_in_another_account_a_job_has_the_role_of_that_account() -> None:
    queue = a_queue(0, role=ROLE_OF_LAB)
    queue.submit("job1")
    sent = ohio_of(queue, LAB).requests["job1-qstamp-1"]
    assert sent["RoleArn"] == "arn:aws:iam::222222222222:role/training"
    assert queue.job("job1").site == LAB


def test_an_end_in_the_other_region_is_recorded_by_its_event() -> None:
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2")
    ohio_of(queue).end("job2-qstamp-1")
    event(queue, "job2-qstamp-1")
    assert queue.state("job2") == "completed"
    assert queue.record("job2").attempts[0].site == OHIO


def test_a_lost_end_in_the_other_region_is_found_by_the_tick() -> None:
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2")
    ohio_of(queue).end("job2-qstamp-1", "Failed", failure="AlgorithmError: it broke")
    queue.tick()
    assert queue.state("job2") == "failed"


def test_a_lost_stage_in_the_other_region_is_found_by_the_tick() -> None:
    queue = a_queue(0)
    queue.submit("job1")
    ohio_of(queue).progress("job1-qstamp-1", "Downloading")
    queue.tick()
    queue.tick()
    assert queue.job("job1").stage == "Downloading"


@pytest.mark.parametrize("place", [(None, None), ("222222222222", "us-east-2"), (None, "eu-west-1")])
def test_an_event_of_another_place_ends_nothing(place: tuple[str | None, str | None]) -> None:
    """A training job with the attempt's name and tags in another place is not the attempt."""
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2")
    forged = {**ohio_of(queue).event("job2-qstamp-1"), "TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}
    queue.controller.training_job_changed(forged, queue.invocation(), origin(*place))
    assert queue.state("job2") == "running"


def test_an_external_job_in_the_other_region_takes_a_slot_there() -> None:
    queue = a_queue()
    ohio_of(queue).create({**a_request("theirs"), "Tags": []})
    queue.tick()
    (external,) = queue.repository.external()
    assert (external.name, external.training_job_name, external.site) == ("theirs@us-east-2/", "theirs", OHIO)
    queue.submit("job1")
    queue.submit("job2")
    assert (queue.state("job1"), queue.state("job2")) == ("running", "pending")
    ohio_of(queue).end("theirs")
    queue.tick()
    assert queue.repository.external() == [] and queue.job("job2").site == OHIO


def test_training_jobs_of_one_name_in_two_regions_are_two() -> None:
    queue = a_queue(2, 2)
    queue.training.create({**a_request("same"), "Tags": []})
    ohio_of(queue).create({**a_request("same"), "Tags": []})
    queue.tick()
    assert {job.name for job in queue.repository.external()} == {"same", "same@us-east-2/"}
    queue.end("same")
    assert {job.name for job in queue.repository.external()} == {"same@us-east-2/"}


def test_a_preempted_job_resumes_where_its_checkpoint_is() -> None:
    queue = a_queue(1, 1)
    queue.submit("first")
    queue.submit("second")
    ohio_of(queue).run("second-qstamp-1", queue.now)
    queue.tick(3 * 3600)
    queue.submit(
        "urgent",
        9,
        ResourceConfig={"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30},
        Tags=[{"Key": "priority", "Value": "9"}, {"Key": "pools", "Value": "ohio"}],
    )
    assert queue.state("second") == "stopping"
    ohio_of(queue).end("second-qstamp-1", "Stopped")
    event(queue, "second-qstamp-1")
    assert queue.job("urgent").site == OHIO and queue.state("second") == "preempted"
    queue.end("first-qstamp-1")
    queue.tick()
    assert queue.state("second") == "preempted"  # a free slot in the other region is of no use to it
    ohio_of(queue).end("urgent-qstamp-1")
    event(queue, "urgent-qstamp-1")
    assert queue.job("second").site == OHIO and queue.job("second").launched == "second-qstamp-2"


def test_a_job_that_was_stopped_before_its_instances_came_stays_where_it_was() -> None:
    """Without times of SageMaker, its attempt counts as one that has run, and it ran there."""
    queue = a_queue(1, 1)
    queue.submit("job1", Tags=[{"Key": "pools", "Value": "ohio"}])
    queue.change("job1", requeue=True)
    ohio_of(queue).end("job1-qstamp-1", "Stopped")
    event(queue, "job1-qstamp-1")
    assert queue.job("job1").launched == "job1-qstamp-2"
    assert queue.job("job1").site == OHIO and queue.job("job1").resumes_at == OHIO


def test_with_replicated_checkpoints_it_resumes_anywhere() -> None:
    queue = a_queue(1, 1, checkpoints_replicated=True)
    queue.submit("first")
    queue.submit("second")
    queue.change("second", requeue=True, held=True)
    ohio_of(queue).end("second-qstamp-1", "Stopped")
    event(queue, "second-qstamp-1")
    ohio_of(queue).create({**a_request("theirs"), "Tags": []})
    queue.end("first-qstamp-1")
    queue.tick()
    queue.change("second", held=False)
    assert queue.state("second") == "running" and queue.job("second").site is None


def test_a_job_without_a_bucket_there_stays_home() -> None:
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2", OutputDataConfig={"S3OutputPath": "s3://elsewhere/output"})
    assert queue.state("job2") == "pending"
    queue.end("job1-qstamp-1")
    assert queue.job("job2").site is None and queue.state("job2") == "running"


RULE = {"RuleConfigurationName": "overfit", "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/rules"}


@pytest.mark.parametrize(
    "regional",
    [
        {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}},
        {"DebugRuleConfigurations": [RULE]},
        {"ProfilerRuleConfigurations": [RULE]},
    ],
)
def test_a_job_with_a_resource_of_its_region_stays_home(regional: dict[str, Any]) -> None:
    queue = a_queue()
    queue.submit("job1")
    queue.submit("job2", **regional)
    assert queue.state("job2") == "pending"
    queue.end("job1-qstamp-1")
    assert queue.job("job2").site is None and queue.state("job2") == "running"


def test_a_job_that_its_only_pool_cannot_run_is_told_why() -> None:
    queue = a_queue()
    network = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    request = a_request("job1", VpcConfig=network, **tagged(pools="ohio"))
    _, _, advice = queue.dry_run.what_if(queue.submissions.validate(request, OWNER).job)
    assert advice == [REMEDIES[WaitReason.NO_SUCH_POOL]]
    queue.submissions.submit(request, OWNER, preflight=False)
    assert why(queue, "job1") == (
        WaitReason.NO_SUCH_POOL,
        "No pool that it accepts can run it; its project may use the pools home and ohio. It cannot run in ohio: its "
        "VpcConfig names a resource of the queue's region and account.",
    )


def test_pools_that_a_late_job_cannot_use_are_no_further_pools() -> None:
    queue = a_queue()
    queue.submit("first")
    network = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    late = tagged(start_by=at(60), start_by_action="next_pool")
    accepted = queue.accept("late", None, VpcConfig=network, **late)
    assert any("has no further pools in which it could run" in warning for warning in accepted.warnings)
    queue.tick(90)
    (cause,) = [it.cause for it in queue.record("late").history if it.cause.startswith("it had not started")]
    assert cause.endswith("(tag start_by); its project has no further pools in which it could run")
    assert queue.job("late").pools == ()


def test_a_heterogeneous_cluster_with_pools_in_two_regions_is_told_so() -> None:
    policy = a_policy()
    policy["pools"][1]["instance_type"] = "ml.g5.xlarge"
    queue = Harness(slots=10)
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    groups = [
        {"InstanceType": kind, "InstanceCount": 1, "InstanceGroupName": name}
        for name, kind in (("a", P5), ("b", "ml.g5.xlarge"))
    ]
    request = a_request("job1", ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    queue.submissions.submit(request, OWNER, preflight=False)
    reason, message = why(queue, "job1")
    assert reason is WaitReason.NO_SUCH_POOL
    assert message.endswith(
        "Its instance types are in pools of different regions or accounts, and a job runs in one of them."
    )


# --- what a job may use there ------------------------------------------------------------------------

MALLORY = f"arn:aws:iam::{ACCOUNT}:user/mallory"


@pytest.mark.parametrize(
    ("roles", "site"),
    [
        ([f"arn:aws:iam::{ACCOUNT}:role/*"], None),
        ([f"arn:aws:iam::{ACCOUNT}:role/*", "arn:aws:iam::222222222222:role/training-b"], None),
        ([f"arn:aws:iam::{ACCOUNT}:role/*", "arn:aws:iam::222222222222:role/training"], LAB),
    ],
)
def test_a_job_runs_there_only_under_a_role_of_its_project(roles: list[str], site: Site | None) -> None:
    queue = a_queue(0, role=ROLE_OF_LAB, roles=roles)
    queue.submit("job1")
    assert queue.job("job1").site == site
    if site is None:
        job, policy = queue.job("job1"), queue.policies.of(queue.repository.policy()).policy
        assert why_pools_are_unusable(job, policy) == (
            "It cannot run in ohio: its role there, arn:aws:iam::222222222222:role/training, is not among the roles of "
            "project default."
        )


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("first", ["bucket", "bucket-ohio"])
@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_folder_is_one_place_in_the_buckets_of_all_regions(own: bool, first: str, below: str) -> None:  # noqa: FBT001
    queue = a_queue()
    queue.accept("job1", CheckpointConfig={"S3Uri": f"s3://{first}/ck/job"})
    second = {"S3Uri": f"s3://{'bucket-ohio' if first == 'bucket' else 'bucket'}/ck/job{below}"}
    if own:
        queue.accept("job2", CheckpointConfig=second)
        return
    with pytest.raises(Conflict, match="live job of .*/ada"):
        queue.accept("job2", owner=MALLORY, CheckpointConfig=second)
    queue.cancel("job1")
    queue.now += LOCK_SECONDS
    queue.accept("job2", owner=MALLORY, CheckpointConfig=second)


def test_a_place_that_was_claimed_before_the_policy_had_buckets_is_still_claimed() -> None:
    queue = a_queue(bucket_by_region={})
    queue.accept("job1", CheckpointConfig={"S3Uri": "s3://bucket-ohio/ck/job"})
    queue.repository.apply_policy(json.dumps(a_policy()), 1, "ada", queue.now)
    with pytest.raises(Conflict, match="live job of .*/ada"):
        queue.accept("job2", owner=MALLORY, CheckpointConfig={"S3Uri": "s3://bucket/ck/job"})


@pytest.mark.parametrize(
    ("buckets", "lost"),
    [
        ({}, "us-east-1, us-east-2"),
        ({"us-east-1": "bucket", "us-east-2": "another"}, "us-east-2"),
        ({**BUCKETS, "ap-south-1": "bucket-mumbai"}, None),
    ],
)
def test_a_map_of_buckets_that_live_jobs_need_is_dropped_by_force_only(
    buckets: dict[str, str], lost: str | None
) -> None:
    queue = a_queue()
    new = parse_policy(a_policy(bucket_by_region=buckets))
    assert not list(conflicts(queue.forecast()[0], new)), "no job needs the map"
    queue.submit("job1")
    found = [it.message for it in conflicts(queue.forecast()[0], new)]
    assert found == (
        []
        if lost is None
        else [
            f"bucket_by_region of default would lose or change the bucket of {lost}, and the folders of job1 may be in "
            "it."
        ]
    )


def test_with_more_regions_the_folders_of_live_jobs_stay_claimed() -> None:
    """The bucket of a region that comes first among the regions is not that by which the claim is known."""
    queue = a_queue()
    queue.accept("job1", CheckpointConfig={"S3Uri": "s3://bucket/ck/job"})
    more = a_policy(bucket_by_region={**BUCKETS, "ap-south-1": "bucket-mumbai"})
    queue.repository.apply_policy(json.dumps(more), 1, "ada", queue.now)
    for bucket in ("bucket", "bucket-ohio", "bucket-mumbai"):
        with pytest.raises(Conflict, match="live job of .*/ada"):
            queue.accept("job2", owner=MALLORY, CheckpointConfig={"S3Uri": f"s3://{bucket}/ck/job"})


def test_permitted_folders_are_permitted_in_the_buckets_of_all_regions() -> None:
    policy = a_policy(buckets=["bucket/team", "bucket-ohio/team"])
    parse_policy(policy)
    policy["projects"][0]["buckets"].append("bucket/more")
    with pytest.raises(InvalidRequest, match="nothing that permits 'bucket-ohio/more'"):
        parse_policy(policy)
    queue = Harness(slots=10)
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)  # by an earlier version
    queue.submit("job1", **_in("bucket/team", "job1"))
    queue.submit("job2", **_in("bucket/team", "job2"))
    assert (queue.state("job1"), queue.state("job2")) == ("running", "pending")


def _in(folder: str, job: str) -> dict[str, Any]:
    output, checkpoints = f"s3://{folder}/output", f"s3://{folder}/checkpoints/{job}"
    return {"OutputDataConfig": {"S3OutputPath": output}, "CheckpointConfig": {"S3Uri": checkpoints}}


@pytest.mark.parametrize("bucket", ["bucket/folder", "s3://bucket", "Bucket", ""])
def test_what_is_no_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_policy(a_policy(bucket_by_region={"us-east-1": "bucket", "us-east-2": bucket}))


def test_a_request_that_the_other_site_refuses_is_not_wrong_at_home() -> None:
    queue = a_queue(0, 1)
    missing = "ValidationException: No S3 objects found under S3 URL s3://bucket-ohio/data"
    ohio_of(queue).script = [(LaunchResult.REFUSED, missing)]
    queue.submit("job1")
    assert queue.state("job1") == "pending"
    assert "No S3 objects found" in str(queue.job("job1").reason)
    assert not queue.repository.metadata().capacity_backoffs, "the next job may be launched there"


@pytest.mark.parametrize("role", [None, ROLE_OF_LAB])
def test_a_job_starts_on_the_warm_pool_of_another_one_there(role: str | None) -> None:
    queue = a_queue(0, 1, role=role)
    there = ohio_of(queue, Site("us-east-2", role))
    kept = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30, "KeepAlivePeriodInSeconds": 600}
    queue.submit("job1", ResourceConfig=kept)
    there.end("job1-qstamp-1")
    queue.tick()
    assert [job.name for job in queue.repository.external() if job.warm]
    queue.submit("job2")
    assert queue.state("job2") == "running"
    assert there.reused == {"job1-qstamp-1": "job2-qstamp-1"}


def test_an_external_job_there_takes_no_slot_of_a_pool_at_home_that_has_the_name_of_its_type() -> None:
    other = "ml.g5.xlarge"
    policy = a_policy()
    policy["pools"][0] = {"name": other, "instance_type": other, "capacity": 1}
    policy["projects"][0]["quota"] = {other: 1}
    queue = Harness(slots=10)
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    resources = {"InstanceType": other, "InstanceCount": 1, "VolumeSizeInGB": 30}
    ohio_of(queue).create({**a_request("theirs", ResourceConfig=resources), "Tags": []})
    queue.tick()
    queue.submit("job1", ResourceConfig=resources)
    assert queue.state("job1") == "running"


# --- a region that does not respond ------------------------------------------------------------------


def test_a_job_that_cannot_be_launched_there_runs_at_home() -> None:
    queue = a_queue(0, 1)
    ohio_of(queue).unreachable = True
    queue.submit("job1")
    assert queue.state("job1") == "pending"
    assert why(queue, "job1") == (
        WaitReason.REGION_UNREACHABLE,
        why(queue, "job1")[1],
    )
    assert why(queue, "job1")[1].startswith("The region of pool ohio does not respond. The next try is at ")
    queue.repository.apply_policy(json.dumps(a_policy(1, 1)), 1, "ada", queue.now)
    queue.wake()
    assert queue.state("job1") == "running" and queue.job("job1").site is None


def test_the_status_names_a_region_that_does_not_respond_only_during_the_backoff() -> None:
    queue = a_queue(0, 1)
    ohio_of(queue).unreachable = True
    queue.submit("job1")
    api = Api(queue=queue)
    (pause,) = api.call("GET", "/queue")[1]["pauses"]
    assert (pause["pool"], pause["unreachable"], pause["atFault"]) == ("ohio", True, None)
    queue.now += 3600
    assert api.call("GET", "/queue")[1]["pauses"] == []


def test_a_region_that_responds_again_is_used_at_once() -> None:
    queue = a_queue(0, 1)
    ohio_of(queue).unreachable = True
    queue.submit("job1")
    for _ in range(10):
        queue.tick()
    assert queue.state("job1") == "pending"
    ohio_of(queue).unreachable = False
    queue.tick()
    assert queue.job("job1").site == OHIO and queue.state("job1") == "running"
    assert [name for call, name in ohio_of(queue).calls if call == "create"][-1] == "job1-qstamp-1"


def test_a_site_that_responds_ends_no_backoff_of_another_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = a_policy(0, 1)
    policy["pools"].append({**policy["pools"][1], "name": "ohio/lab", "role": ROLE_OF_LAB})
    queue = Harness(slots=10)
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    ohio_of(queue, LAB).unreachable = True
    ended: list[str] = []
    monkeypatch.setattr(queue.repository, "end_capacity_backoff", lambda it: ended.append(it.capacity_key))
    queue.tick()
    queue.tick()
    assert list(queue.repository.metadata().capacity_backoffs) == ["ohio/lab"]
    assert ended == []


def test_a_region_that_does_not_respond_delays_no_other_one() -> None:
    queue = a_queue(2, 1)
    queue.submit("job1")
    queue.submit("job2")
    queue.submit("job3")
    assert queue.job("job3").site == OHIO
    ohio_of(queue).unreachable = True
    queue.training.end("job1-qstamp-1")
    queue.tick()
    assert queue.state("job1") == "completed"
    assert queue.state("job3") == "running"  # it keeps its slot until SageMaker reports otherwise
    queue.submit("job4")
    assert queue.job("job4").site is None and queue.state("job4") == "running"
    ohio_of(queue).end("job3-qstamp-1")
    queue.tick()
    assert queue.state("job3") == "running"
    ohio_of(queue).unreachable = False
    queue.tick()
    assert queue.state("job3") == "completed"


def test_an_unanswered_launch_in_a_region_is_sent_nowhere_else() -> None:
    queue = a_queue(0, 1)
    ohio_of(queue).script = ["lost"]
    queue.submit("job1")
    ohio_of(queue).unreachable = True
    queue.repository.apply_policy(json.dumps(a_policy(1, 1)), 1, "ada", queue.now)
    for _ in range(30):
        queue.tick()
    assert queue.state("job1") == "starting" and not queue.training.jobs
    ohio_of(queue).unreachable = False
    queue.tick()
    queue.tick()
    assert queue.state("job1") == "running" and list(ohio_of(queue).jobs) == ["job1-qstamp-1"]


def test_nothing_is_tried_in_a_region_that_did_not_respond_to_a_comparison() -> None:
    queue = a_queue(1, 3)
    queue.submit("job1")
    queue.submit("job2")
    ohio = ohio_of(queue)
    ohio.unreachable = True
    queue.tick()
    before = len(ohio.calls)
    queue.submit("job3", **tagged(pools="ohio", priority="1"))
    assert why(queue, "job3")[0] is WaitReason.REGION_UNREACHABLE and len(ohio.calls) == before
    queue.tick()
    queue.submit("job4", **tagged(pools="ohio", priority="1"))  # this comparison has prolonged the backoff
    assert why(queue, "job4")[0] is WaitReason.REGION_UNREACHABLE
    assert "create" not in [call for call, _ in ohio.calls[before:]]
    ohio.unreachable = False
    queue.tick()
    assert queue.job("job3").site == OHIO and queue.state("job3") == queue.state("job4") == "running"


def test_slots_at_home_serve_others_while_a_job_that_moves_there_cannot_be_stopped() -> None:
    queue = a_queue(1, 1, checkpoints_replicated=True)
    queue.submit("job1", **tagged(pools="home", priority="1"))
    queue.submit("moves")
    assert queue.job("moves").site == OHIO
    queue.submit("picky", **tagged(pools="ohio", priority="1"))
    queue.training.end("job1-qstamp-1")
    queue.tick(900)
    assert queue.state("moves") == "stopping"  # it makes room and moves home
    ohio_of(queue).unreachable = True
    queue.submit("other", **tagged(pools="home", priority="1"))
    assert queue.state("other") == "pending"
    queue.tick()
    assert queue.state("other") == "running" and queue.state("moves") == "stopping"
    ohio_of(queue).unreachable = False
    ohio_of(queue).end("moves-qstamp-1", "Stopped")
    queue.tick()
    assert queue.state("moves") == "running"  # it has waited for longer than the other one


# --- the policy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"region": "ohio"}, "is not the name of a region"),
        ({"role": "arn:aws:iam::1:role/x"}, "is not the ARN of a role"),
        ({"shared": True}, "is shared, but pools of another region or account cannot be shared yet"),
        (
            {"training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"},
            "is in us-east-2, and its training plan is not",
        ),
    ],
)
def test_a_wrong_pool_is_refused(changes: dict[str, Any], fault: str) -> None:
    policy = a_policy()
    policy["pools"][1] |= changes
    with pytest.raises(InvalidRequest, match=fault):
        parse_policy(policy)


def test_two_roles_in_one_account_and_region_are_refused() -> None:
    policy = a_policy(role=ROLE_OF_LAB)
    policy["pools"].append({**policy["pools"][1], "name": "more", "role": ROLE_OF_LAB + "-2"})
    with pytest.raises(InvalidRequest, match="more has another role than the other pools of us-east-2 of account 2"):
        parse_policy(policy)


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        ({"region": "us-east-1"}, "ohio is in the queue's own region and account: leave out"),
        ({"role": f"arn:aws:iam::{ACCOUNT}:role/satellite"}, "ohio is in the queue's own region and account"),
        ({"region": "us-east-1", "role": f"arn:aws:iam::{ACCOUNT}:role/satellite"}, "own region and account"),
        (
            {"region": "eu-west-1", "role": f"arn:aws:iam::{ACCOUNT}:role/satellite"},
            "ireland is in the same region and account as ohio",
        ),
        ({"region": "us-east-2", "role": f"arn:aws:iam::{ACCOUNT}:role/satellite"}, None),
        ({"role": "arn:aws:iam::222222222222:role/satellite"}, None),
    ],
)
def test_a_site_has_one_name(pool: dict[str, Any], fault: str | None) -> None:
    policy, home = a_policy(), HomeSite("us-east-1", ACCOUNT)
    del policy["pools"][1]["region"]
    policy["pools"][1] |= pool
    policy["pools"].append({"name": "ireland", "instance_type": P5, "capacity": 1, "region": "eu-west-1"})
    parse_policy(policy)  # without a queue, nobody knows
    if fault is None:
        parse_policy(policy, home=home)
        return
    with pytest.raises(InvalidRequest, match=fault):
        parse_policy(policy, home=home)


def test_projects_may_not_map_two_buckets_to_one() -> None:
    policy = a_policy()
    other = {"us-east-1": "bucket-of-others", "us-east-2": "bucket-ohio"}
    policy["projects"].append({"name": "others", "bucket_by_region": other})
    with pytest.raises(InvalidRequest, match="jobs of both could write to one place"):
        parse_policy(policy)


# --- events that do not come -------------------------------------------------------------------------


def test_ends_without_an_event_are_counted_by_site() -> None:
    told: list[DomainEvent] = []
    queue = Harness(slots=10, notify=told.append)
    queue.repository.apply_policy(json.dumps(a_policy(1, 2)), 0, "ada", queue.now)
    for number in range(3):
        queue.submit(f"job{number}")
    queue.tick()
    ohio_of(queue).end("job1-qstamp-1")
    queue.tick()
    ohio_of(queue).end("job2-qstamp-1")
    event(queue, "job2-qstamp-1")
    queue.tick()
    assert [it.count for it in told if isinstance(it, SilentSites)] == [0, 1, 0]


def test_without_other_sites_nothing_is_counted() -> None:
    told: list[DomainEvent] = []
    queue = Harness(notify=told.append)
    queue.submit("job1")
    queue.training.end("job1-qstamp-1")
    queue.tick()
    assert not [it for it in told if isinstance(it, SilentSites)]


# --- forty jobs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", [OHIO, LAB], ids=["region", "account"])
def test_forty_jobs_end_once_beside_a_partition_a_throttled_region_and_lost_events(site: Site) -> None:
    """The other region is throttled at first, and does not respond for ten minutes. Half of the events are lost."""
    queue, most = a_queue(4, 4, site.role), {"home": 4, "ohio": 4}
    ohio, names = ohio_of(queue, site), [f"job{number}" for number in range(40)]
    ohio.script = [*[LaunchResult.THROTTLED] * 6, "lost"]
    for name in names:
        queue.submit(name)
    completed: list[str] = []  # keys of attempts
    broken_from, broken_to = queue.now + 300, queue.now + 900
    at_home_while_broken = refused = 0
    for minute in range(120):
        ohio.unreachable = broken_from <= queue.now < broken_to
        before, calls = len(completed), len(ohio.calls)
        for sagemaker in (queue.training, ohio):
            for number, (name, job) in enumerate(list(sagemaker.jobs.items())):
                if job.ended or (minute + number) % 3 == 0:
                    continue
                sagemaker.end(name)
                completed.append(job.key)
                if len(completed) % 2 and not broken_from + 120 <= queue.now < broken_to:  # late ones still arrive
                    event(queue, name, site) if job.site else queue.event(name)
        queue.tick()
        held = Counter("ohio" if job.site else "home" for job in queue.repository.active())
        assert all(held[pool] <= count for pool, count in most.items())
        for pool, sagemaker in {"home": queue.training, "ohio": ohio}.items():
            assert sagemaker.in_use() <= most[pool]
        waiting = [name for name in names if queue.job(name).state.waits]
        if ohio.unreachable:  # all of these jobs accept both regions, so none of them waits beside a free slot at home
            at_home_while_broken += sum(name_in(key) == key for key in completed[before:])
            refused += sum(call == "create" for call, _ in ohio.calls[calls:])
            assert not waiting or held["home"] == most["home"]
        if not waiting and not held:
            break
    assert all(queue.state(name) == "completed" for name in names)
    assert sorted(map(name_in, completed)) == sorted(f"{name}-qstamp-1" for name in names)
    assert at_home_while_broken > 4 and refused and not ohio.script
    assert any(job.site for job in ohio.jobs.values()) and queue.now >= broken_to
