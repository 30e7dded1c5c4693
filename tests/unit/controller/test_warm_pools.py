"""Warm pools: they are counted, used by who matches, and released for who does not."""

import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, TrainingJob, training_job
from job_queue.controller.launcher import SIGNATURE_SECONDS
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import InvalidRequest, Unavailable
from job_queue.domain.fleet.warm_matching import warm_slots
from job_queue.domain.fleet.warm_pools import RELEASE_AGAIN_SECONDS
from job_queue.domain.job import ExternalTrainingJob, WarmPool, iso
from job_queue.domain.launching.launch_rate import CreateRate
from job_queue.domain.policy import AppliedPolicy
from job_queue.domain.policy_validation import parse_policy
from job_queue.domain.requests.training_request import TrainingRequest
from tests.jobs import NOW, P5, ROLE, a_request
from tests.queue_harness import FAST, Harness, LastFirst

WARM = 600
G5 = "ml.g5.xlarge"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"
XID = "AlgorithmError: NVRM: Xid 79, GPU has fallen off the bus, exit code: 1"


def a_queue(
    capacity: int = 1,
    *,
    keep_warm: int | None = WARM,
    create_rate: CreateRate = FAST,
    of: type[Harness] = Harness,
    **settings: Any,
) -> Harness:
    queue = of(slots=capacity, create_rate=create_rate)
    pool = {"name": "p5", "instance_type": P5, "capacity": capacity, "keep_warm": keep_warm}
    projects = [{"name": "default", "quota": {"p5": capacity}}]
    policy = {"pools": [pool], "projects": projects, "settings": settings}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    return queue


def resources(instances: int = 1, **more: Any) -> dict[str, Any]:
    return {"InstanceType": P5, "InstanceCount": instances, "VolumeSizeInGB": 30, **more}


def kept(queue: Harness, name: str) -> int | None:
    seconds: int | None = queue.training.requests[name]["ResourceConfig"].get("KeepAlivePeriodInSeconds")
    return seconds


def warm_pools(queue: Harness) -> set[str]:
    return {job.name for job in queue.repository.external() if job.warm}


# --- kept --------------------------------------------------------------------------------------------


def test_instances_are_kept_while_jobs_that_match_wait_and_no_longer() -> None:
    queue = a_queue()
    for number in range(3):
        queue.accept(f"job{number}", 1)
    queue.wake()
    for number in range(3):
        queue.end(f"job{number}-qstamp-1")
    assert [kept(queue, f"job{number}-qstamp-1") for number in range(3)] == [WARM, WARM, None]
    assert queue.training.reused == {"job0-qstamp-1": "job1-qstamp-1", "job1-qstamp-1": "job2-qstamp-1"}
    assert warm_pools(queue) == set()


@pytest.mark.parametrize(
    "other",
    [
        {"ResourceConfig": resources(VolumeSizeInGB=31)},
        {"RoleArn": ROLE + "-other"},
        {"EnableNetworkIsolation": True},
        {"ResourceConfig": resources(2)},
    ],
)
def test_nothing_is_kept_for_who_does_not_match(other: dict[str, Any]) -> None:
    queue = a_queue(2)
    queue.settings = queue.settings.__class__(max_capacity=2, allowed_role_arns=("*",))
    queue.submissions._settings = queue.settings
    queue.accept("first", 9, ResourceConfig=resources(2) if "RoleArn" in other else resources())
    queue.accept("other", 1, **other)
    queue.accept("third", 1, **other)
    queue.wake()
    assert kept(queue, "first-qstamp-1") is None


def test_nothing_is_kept_for_a_cluster_of_groups_or_without_the_setting() -> None:
    groups = [{"InstanceGroupName": "a", "InstanceType": P5, "InstanceCount": 1}]
    queue = a_queue()
    for name in ("a", "b"):
        queue.accept(name, 1, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    queue.wake()
    assert kept(queue, "a-qstamp-1") is None
    cold = a_queue(keep_warm=None)
    for name in ("a", "b"):
        cold.accept(name, 1)
    cold.wake()
    assert kept(cold, "a-qstamp-1") is None


def test_what_the_request_says_itself_stays() -> None:
    queue = a_queue()
    queue.accept("a", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=60))
    queue.accept("b", 1)
    queue.wake()
    assert kept(queue, "a-qstamp-1") == 60


@pytest.mark.parametrize(
    ("pool", "what"),
    [
        ({"keep_warm": 3601}, "at most 3600"),
        ({"keep_warm": 1.5}, "a whole number"),
        ({"keep_warm": 60, "spot": True}, "no spot instances"),
    ],
)
def test_a_policy_asks_for_what_sagemaker_does(pool: dict[str, Any], what: str) -> None:
    pools = [{"name": "p5", "instance_type": P5, "capacity": 1, **pool}]
    with pytest.raises(InvalidRequest, match=what):
        parse_policy({"pools": pools, "projects": [{"name": "a", "quota": {"p5": 1}}]})


# --- used and released -------------------------------------------------------------------------------


def left_warm(queue: Harness, name: str = "first", instances: int = 1, **request: Any) -> None:
    """A job of the queue ends, and leaves its instances warm."""
    queue.submit(name, 1, ResourceConfig=resources(instances, KeepAlivePeriodInSeconds=3600), **request)
    queue.end(f"{name}-qstamp-1")
    assert f"{name}-qstamp-1" in warm_pools(queue)


def test_a_job_that_matches_starts_on_the_warm_pool() -> None:
    queue = a_queue(6)
    left_warm(queue, instances=6)
    queue.submit("next", 1, ResourceConfig=resources(6))
    assert queue.state("next") == "running"
    assert queue.training.reused == {"first-qstamp-1": "next-qstamp-1"}
    assert queue.training.in_use() == 6
    assert warm_pools(queue) == set()


def test_a_warm_pool_in_the_way_is_released_before_the_launch() -> None:
    queue = a_queue(6)
    left_warm(queue, instances=6)
    queue.submit("next", 1, ResourceConfig=resources(1))
    assert queue.state("next") == "running"
    calls = [call for call in queue.training.calls if call[0] in ("create", "release")]
    assert calls[-2:] == [("release", "first-qstamp-1"), ("create", "next-qstamp-1")]
    assert queue.training.in_use() == 1


def ends_beside(queue: Harness, kind: str, name: str, *how: str, first: bool = False) -> None:
    """Let an attempt end, and its event arrive, after the next read of this kind of jobs.

    :param first: before that read.
    """
    read = getattr(queue.repository, kind)

    def reads() -> Any:
        setattr(queue.repository, kind, read)
        found = None if first else read()
        queue.training.end(name, *how)
        queue.controller.reconciler.handle_event(queue.training.event(name))
        return read() if first else found

    setattr(queue.repository, kind, reads)


def test_an_attempt_that_ends_between_the_reads_is_counted_by_its_job_or_by_its_warm_pool() -> None:
    queue = a_queue(of=LastFirst)
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.accept("next", 1, EnableNetworkIsolation=True)
    ends_beside(queue, "external", "first-qstamp-1")
    queue.wake()
    queue.wake()  # as whoever brought the news does
    calls = [call for call in queue.training.calls if call[0] in ("create", "release")]
    assert calls[-2:] == [("release", "first-qstamp-1"), ("create", "next-qstamp-1")]
    assert queue.training.in_use() == 1


def test_a_job_that_returns_to_its_waiting_queue_between_the_reads_keeps_its_slots_until_the_next_cycle() -> None:
    queue = a_queue()
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.submit("next", 2, EnableNetworkIsolation=True)
    assert queue.state("first") == "stopping"
    ends_beside(queue, "external", "first-qstamp-1", "Stopped")
    queue.wake()
    assert queue.state("first") == "preempted"
    queue.wake()
    calls = [call for call in queue.training.calls if call[0] in ("create", "release")]
    assert calls[-2:] == [("release", "first-qstamp-1"), ("create", "next-qstamp-1")]
    assert queue.training.in_use() == 1


@pytest.mark.parametrize("second", [None, LaunchResult.NO_QUOTA, LaunchResult.NO_CAPACITY, LaunchResult.REFUSED])
def test_a_warm_pool_counts_until_the_launch_on_it_is_accepted(second: LaunchResult | None) -> None:
    """:param second: the answer to the second call of the launch; None: the job is cancelled before it."""
    queue = a_queue()
    left_warm(queue)
    queue.training.script = [LaunchResult.THROTTLED, *([second] if second else [])]
    queue.submit("next", 1)
    assert queue.state("next") == "starting"
    assert "first-qstamp-1" in warm_pools(queue)
    queue.accept("other", 1, EnableNetworkIsolation=True)
    if second is None:
        queue.cancel("next")
    for _ in range(3):
        queue.now += 2
        queue.wake()
    assert queue.training.in_use() == 1


def test_a_job_that_returns_to_its_waiting_queue_after_that_was_read_is_missed_by_no_plan() -> None:
    queue = a_queue(of=LastFirst)
    queue.submit("high", 9)
    queue.change("high", requeue=True)
    queue.accept("low", 1, EnableNetworkIsolation=True)
    ends_beside(queue, "active", "high-qstamp-1", "Stopped", first=True)
    queue.wake()
    assert queue.states() == {"high": "running", "low": "pending"}


def test_nobody_is_launched_while_the_instances_are_still_kept() -> None:
    queue = a_queue()
    left_warm(queue)
    queue.training.releases = False
    queue.submit("next", 1, EnableNetworkIsolation=True)
    queue.tick(RELEASE_AGAIN_SECONDS / 2)
    assert queue.state("next") == "pending"
    assert queue.training.in_use() == 1
    assert queue.training.calls.count(("release", "first-qstamp-1")) == 1, "not in each cycle"
    queue.tick(RELEASE_AGAIN_SECONDS)
    assert queue.training.calls.count(("release", "first-qstamp-1")) == 2
    queue.training.warm_pools.clear()
    queue.tick(5)
    assert queue.state("next") == "running"


def in_doubt(queue: Harness, name: str, **request: Any) -> None:
    """A launch that is not answered; then instances that it counts on turn out to be kept warm."""
    queue.training.script = ["never"]
    queue.submit(name, 1, **request)
    queue.training.create(a_request("theirs", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("theirs")


def test_a_launch_that_is_tried_again_has_its_instances_released_first() -> None:
    queue = a_queue()
    in_doubt(queue, "next", EnableNetworkIsolation=True)
    queue.tick()
    calls = [call for call in queue.training.calls if call[0] in ("create", "release")]
    assert calls[-2:] == [("release", "theirs"), ("create", "next-qstamp-1")]
    assert queue.state("next") == "running"
    assert queue.training.in_use() == 1


def test_it_is_not_tried_again_while_its_instances_are_kept() -> None:
    queue = a_queue()
    in_doubt(queue, "next", EnableNetworkIsolation=True)
    queue.training.releases = False
    queue.tick()
    assert queue.training.calls.count(("create", "next-qstamp-1")) == 1
    queue.training.warm_pools.clear()
    queue.tick(5)
    assert queue.state("next") == "running"


def test_of_two_the_more_important_is_tried_again_and_a_match_takes_what_is_kept() -> None:
    queue = a_queue(2)
    queue.training.script = ["never", "never"]
    queue.accept("more", 9, EnableNetworkIsolation=True)
    queue.submit("less", 1, EnableNetworkIsolation=True)
    queue.training.create(a_request("theirs", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("theirs")
    queue.training.releases = False
    queue.tick()
    assert queue.states() == {"more": "running", "less": "starting"}
    other = a_queue()
    in_doubt(other, "next")
    other.tick()
    assert other.state("next") == "running"
    assert other.training.reused == {"theirs": "next-qstamp-1"}
    assert ("release", "theirs") not in other.training.calls


def test_a_warm_pool_is_not_released_for_a_less_important_attempt_if_a_repeated_attempt_matches_it() -> None:
    """Otherwise SageMaker refuses the attempt that matches: its instances are being released."""
    queue = a_queue(3)
    queue.training.script = ["never", "never"]
    queue.accept("matches", 9, ResourceConfig=resources(2))
    queue.submit("other", 1, EnableNetworkIsolation=True)
    queue.training.create(a_request("theirs", ResourceConfig=resources(instances=2, KeepAlivePeriodInSeconds=3600)))
    queue.training.end("theirs")
    queue.tick()
    assert queue.states() == {"matches": "running", "other": "running"}
    assert queue.training.reused == {"theirs": "matches-qstamp-1"}
    assert ("release", "theirs") not in queue.training.calls


def test_a_warm_pool_of_a_launch_that_is_tried_again_is_not_given_to_another_start() -> None:
    queue = a_queue(2)
    in_doubt(queue, "next")
    left_warm(queue, "odd", instances=1, EnableNetworkIsolation=True)
    queue.accept("second", 1)
    queue.tick()
    assert queue.states() == {"next": "running", "second": "running"}
    assert queue.training.reused == {"theirs": "next-qstamp-1"}
    calls = [call for call in queue.training.calls if call[0] == "release" or call[1] == "second-qstamp-1"]
    assert calls[:2] == [("release", "odd-qstamp-1"), ("create", "second-qstamp-1")]
    assert warm_pools(queue) == set()
    assert queue.training.in_use() == 2


def test_the_instances_of_a_hardware_failure_are_released_and_no_job_starts_on_them() -> None:
    queue = a_queue(2)
    for name in ("first", "second", "third"):
        queue.accept(name, 1)
    queue.wake()
    queue.end("first-qstamp-1", "Failed", failure=XID)
    assert ("release", "first-qstamp-1") in queue.training.calls
    queue.end(
        "second-qstamp-1", "Failed", failure="AlgorithmError: ModuleNotFoundError: No module named 'x', exit code: 1"
    )
    queue.tick(61)
    assert ("release", "second-qstamp-1") not in queue.training.calls
    assert "first-qstamp-1" not in queue.training.reused
    assert queue.training.reused.get("second-qstamp-1") in ("third-qstamp-1", "first-qstamp-2")


def test_if_sagemaker_does_not_release_the_instances_of_a_hardware_failure_they_are_counted_and_not_used() -> None:
    queue = a_queue(1)
    for name in ("first", "second"):
        queue.accept(name, 1)
    queue.wake()
    queue.training.releases = False
    queue.end("first-qstamp-1", "Failed", failure=XID)
    queue.tick(61)
    assert queue.training.reused == {}
    assert queue.training.in_use() == 1


def test_what_is_freed_for_a_job_is_nobody_elses_meanwhile() -> None:
    queue = a_queue(2)
    left_warm(queue)
    queue.training.releases = False
    queue.submit("large", 5, ResourceConfig=resources(2))
    queue.submit("small", 9)
    assert queue.states() == {"large": "pending", "small": "running"}, "its priority is higher"
    other = a_queue(2)
    left_warm(other)
    other.training.releases = False
    other.submit("large", 5, ResourceConfig=resources(2))
    other.submit("small", 1)
    assert other.states() == {"large": "pending", "small": "pending"}


def test_what_a_release_leaves_over_is_not_free_before_it_is_released() -> None:
    queue = a_queue(2)
    left_warm(queue, instances=2)
    queue.training.releases = False
    queue.accept("next", 9)
    queue.accept("second", 1)
    queue.wake()
    assert queue.states() == {"next": "pending", "second": "pending"}
    queue.training.warm_pools.clear()
    queue.tick(5)
    assert queue.states() == {"next": "running", "second": "running"}


def test_a_free_instance_is_taken_before_a_warm_one_is_released() -> None:
    queue = a_queue(2)
    left_warm(queue)
    queue.submit("next", 1, EnableNetworkIsolation=True)
    assert queue.state("next") == "running"
    assert warm_pools(queue) == {"first-qstamp-1"}
    assert ("release", "first-qstamp-1") not in queue.training.calls


def test_what_is_kept_beyond_the_capacity_is_released_before_anybody_starts_on_the_rest() -> None:
    queue = a_queue(1)
    left_warm(queue)
    queue.training.create(
        a_request("theirs", RoleArn=ROLE + "-2", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    )
    queue.training.end("theirs")
    queue.tick()
    assert warm_pools(queue) == {"first-qstamp-1", "theirs"}
    queue.submit("next", 1)
    assert queue.state("next") == "running"
    assert queue.training.reused == {"first-qstamp-1": "next-qstamp-1"}
    calls = [call for call in queue.training.calls if call[0] == "release" or call[1] == "next-qstamp-1"]
    assert calls[:2] == [("release", "theirs"), ("create", "next-qstamp-1")]
    assert queue.training.in_use() == 1


def test_a_match_takes_the_warm_pool_and_leaves_the_free_instance_to_who_does_not_match() -> None:
    queue = a_queue(2)
    left_warm(queue)
    queue.accept("other", 9, EnableNetworkIsolation=True)
    queue.accept("match", 1)
    queue.wake()
    assert queue.states() == {"other": "running", "match": "running"}
    assert queue.training.reused == {"first-qstamp-1": "match-qstamp-1"}
    assert ("release", "first-qstamp-1") not in queue.training.calls


def test_the_instances_of_a_match_are_nobody_elses() -> None:
    queue = a_queue(3)
    left_warm(queue, "two", instances=2)
    queue.submit("one", 1, EnableNetworkIsolation=True, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.end("one-qstamp-1")
    queue.accept("other", 9, EnableInterContainerTrafficEncryption=True)
    queue.accept("match", 1, ResourceConfig=resources(2))
    queue.wake()
    assert queue.states() == {"other": "running", "match": "running"}
    assert [name for call, name in queue.training.calls if call == "release"] == ["one-qstamp-1"]
    assert queue.training.reused == {"two-qstamp-1": "match-qstamp-1"}


def test_the_end_of_an_external_job_makes_room_though_its_instances_are_kept() -> None:
    queue = a_queue()
    queue.training.create(a_request("theirs", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.tick()
    queue.submit("next", 1, EnableNetworkIsolation=True)
    assert queue.state("next") == "pending"
    queue.end("theirs")
    assert queue.state("next") == "running"


def test_a_repeated_event_keeps_what_is_known_of_a_warm_pool() -> None:
    queue = a_queue()
    left_warm(queue)
    queue.training.releases = False
    queue.submit("next", 1, EnableNetworkIsolation=True)
    (before,) = queue.repository.external()
    queue.event("first-qstamp-1")
    (after,) = queue.repository.external()
    assert before.warm
    assert before.warm.releasing
    assert after.warm == before.warm


def test_one_that_nobody_waits_for_is_released_first() -> None:
    queue = a_queue(3)
    left_warm(queue, "wanted")
    queue.submit("unwanted", 1, EnableNetworkIsolation=True, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.end("unwanted-qstamp-1")
    queue.accept("large", 9, ResourceConfig=resources(2))
    queue.accept("match", 1)
    queue.wake()
    assert queue.states() == {"large": "running", "match": "running"}
    assert ("release", "wanted-qstamp-1") not in queue.training.calls


# --- what SageMaker says -----------------------------------------------------------------------------


def test_a_warm_pool_of_others_counts_and_is_found_by_a_tick() -> None:
    queue = a_queue()
    queue.training.create(a_request("theirs", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("theirs")
    queue.tick()
    assert warm_pools(queue) == {"theirs"}
    assert queue.dry_run.cluster().warm() == {"p5": 1}
    assert queue.dry_run.cluster().external_slots() == {}
    queue.submit("next", 1, EnableNetworkIsolation=True)
    assert queue.state("next") == "running"
    assert queue.training.in_use() == 1


def test_one_that_the_queue_may_not_release_counts_in_its_own_pool() -> None:
    policy = parse_policy(
        {
            "pools": [
                {"name": "first", "instance_type": P5, "capacity": 2},
                {"name": "second", "instance_type": P5, "capacity": 2, "keep_warm": 600},
            ],
            "projects": [{"name": "default"}],
        }
    )
    kept = WarmPool("f", int(NOW) + 600, pool="second", fixed=True)
    left = ExternalTrainingJob("old-qstamp-1", {P5: 2}, iso(NOW), warm=kept)
    cluster = ClusterState(Metadata(), AppliedPolicy(policy), {}, {}, (left,))
    assert cluster.external_slots() == {"second": 2}


def test_one_that_the_queue_may_not_release_counts_as_an_external_job() -> None:
    queue = a_queue()
    left_warm(queue)
    queue.training.releases = queue.training.may_release = False
    queue.submit("next", 1, EnableNetworkIsolation=True)
    queue.tick()
    assert queue.state("next") == "pending"
    assert queue.dry_run.cluster().external_slots() == {"p5": 1}
    assert queue.training.calls.count(("release", "first-qstamp-1")) == 1
    queue.tick(3600)
    assert queue.state("next") == "running"


def test_one_that_has_expired_is_dropped() -> None:
    queue = a_queue()
    left_warm(queue)
    queue.tick(3600)
    assert warm_pools(queue) == set()


def test_a_lost_end_of_an_attempt_that_leaves_its_instances_is_found() -> None:
    queue = a_queue()
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.training.end("first-qstamp-1")
    queue.tick()
    assert queue.state("first") == "completed"
    assert warm_pools(queue) == {"first-qstamp-1"}


def test_if_sagemaker_does_not_use_it_after_all_it_is_counted_again() -> None:
    queue = a_queue(2)
    left_warm(queue)
    spare = dict(queue.training.warm_pools)
    queue.submit("next", 1)
    queue.training.warm_pools |= spare
    assert warm_pools(queue) == set()
    queue.tick()
    assert warm_pools(queue) == {"first-qstamp-1"}


@pytest.mark.parametrize("result", [LaunchResult.REFUSED, LaunchResult.NOT_NOW])
def test_if_sagemaker_refuses_the_launch_it_is_counted_at_once(result: LaunchResult) -> None:
    queue = a_queue()
    left_warm(queue)
    queue.training.script = [result]
    queue.submit("next", 1)
    assert warm_pools(queue) == {"first-qstamp-1"}
    queue.submit("other", 1, EnableNetworkIsolation=True)
    assert queue.state("other") == "running"
    assert queue.training.in_use() == 1


def test_what_somebody_leaves_who_took_an_attempts_name_stays_counted() -> None:
    queue = a_queue(create_rate=CreateRate(per_second=0.001, burst=1))
    queue.training.create(a_request("next-qstamp-1", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("next-qstamp-1")
    queue.tick()
    queue.submit("next", 1)
    assert queue.training.calls.count(("create", "next-qstamp-1")) == 2, "theirs, and the one that was refused"
    assert queue.state("next") == "pending", "its next attempt has another name, and waits for the rate of launches"
    assert warm_pools(queue) == {"next-qstamp-1"}


def test_a_warm_pool_with_the_name_of_an_unanswered_launch_counts() -> None:
    """Another person has taken the name, and the event of that training job is lost."""
    queue = a_queue(2)
    queue.training.script = ["never"]
    queue.submit("next", 1, EnableNetworkIsolation=True)
    queue.training.create(a_request("next-qstamp-1", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("next-qstamp-1")
    queue.tick()
    assert queue.state("next") == "starting", "the first call may still take effect"
    assert warm_pools(queue) == {"next-qstamp-1"}
    queue.submit("other", 1, EnableNetworkIsolation=True)
    queue.tick(SIGNATURE_SECONDS + 120)
    assert queue.job("next").launched == "next-qstamp-2"
    assert queue.states() == {"next": "running", "other": "running"}
    assert queue.training.in_use() == 2, "the warm pool was released, so SageMaker refuses no launch"


def test_a_warm_pool_with_the_name_of_a_refused_launch_counts() -> None:
    """A tick reads the list while the launch is being recorded, and a later walk need not come to the same page."""
    queue = a_queue()
    queue.training.create(a_request("next-qstamp-1", ResourceConfig=resources(KeepAlivePeriodInSeconds=3600)))
    queue.training.end("next-qstamp-1")
    create = queue.training.create

    def refused(request: Any) -> tuple[LaunchResult, str]:
        queue.training.create = create  # type: ignore[method-assign]
        queue.controller.reconciler.compare(queue.repository.metadata(), lambda: True)
        return LaunchResult.NO_CAPACITY, "no capacity"

    queue.training.create = refused  # type: ignore[method-assign]
    queue.submit("next", 1, EnableNetworkIsolation=True)
    assert queue.state("next") == "pending"
    assert warm_pools(queue) == {"next-qstamp-1"}


def test_a_lost_answer_and_a_lost_end_of_an_attempt_leave_its_warm_pool_to_the_next_call() -> None:
    queue = a_queue()
    queue.training.script = ["lost"]
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.training.end("first-qstamp-1")
    queue.controller.reconciler.compare(queue.repository.metadata(), lambda: True)
    assert queue.state("first") == "starting"
    assert warm_pools(queue) == set(), "the attempt's slots count"
    queue.tick()
    assert queue.state("first") == "completed"
    assert warm_pools(queue) == {"first-qstamp-1"}


@pytest.mark.attack
@pytest.mark.parametrize("by_event", [False, True])
def test_a_training_job_that_took_the_name_of_a_warm_pools_counts_by_itself(by_event: bool) -> None:
    """Its record was that of the warm pool, and was dropped when a job started on the warm pool."""
    queue = a_queue(2)
    left_warm(queue)
    queue.training.release("first-qstamp-1")
    assert queue.training.delete("first-qstamp-1", keeps_trace=False)
    queue.now += queue.training.deletion_seconds + 1
    queue.start_outside("first-qstamp-1")
    if by_event:
        queue.controller.reconciler.handle_event(queue.training.event("first-qstamp-1"))
    else:
        queue.tick()
    (theirs,) = queue.repository.external()
    assert (theirs.name, theirs.warm) == ("first-qstamp-1", None)
    queue.submit("next", 1)
    queue.submit("third", 1)
    assert {job.name for job in queue.repository.external()} == {"first-qstamp-1"}
    assert queue.state("third") == "pending"


def test_a_comparison_keeps_the_release_of_a_warm_pool_that_an_event_has_recorded_meanwhile() -> None:
    queue = a_queue()
    queue.training.script = ["lost"]
    queue.training.releases = False
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    describe = queue.training.describe

    def described_after_the_event(name: str) -> TrainingJob | None:
        queue.training.describe = describe  # type: ignore[method-assign]
        queue.controller.reconciler.handle_event(queue.training.event(name))
        return describe(name)

    queue.training.end("first-qstamp-1", "Failed", failure=XID)
    queue.training.describe = described_after_the_event  # type: ignore[method-assign]
    queue.controller.reconciler.compare(queue.repository.metadata(), lambda: True)
    (left,) = queue.repository.external()
    assert left.warm is not None
    assert (left.warm.pool, left.warm.releasing is not None) == ("p5", True)


@pytest.mark.parametrize(
    ("reported", "plan", "counted_in"),
    [
        ({P5: 1}, None, "p5"),
        ({P5: 1}, PLAN, "reserved"),
        ({G5: 1}, None, "g5"),  # a copy on another instance type
        ({P5: 1}, None, "p5-again"),  # a pool that is not the first with this instance type
    ],
)
def test_a_warm_pool_counts_in_its_attempts_pool_if_it_can_be_of_that_pool(
    reported: dict[str, int], plan: str | None, counted_in: str
) -> None:
    pools: dict[str, dict[str, Any]] = {
        "p5": {"instance_type": P5},
        "reserved": {"instance_type": P5, "training_plan": PLAN},
        "p5-again": {"instance_type": P5},
        "g5": {"instance_type": G5},
    }
    described = [{"name": name, "capacity": 2, **pool} for name, pool in pools.items()]
    projects = [{"name": "default", "quota": {"p5": 1}}]
    policy = parse_policy({"pools": described, "projects": projects})
    attempts_pool = "reserved" if counted_in in ("p5", "g5") else counted_in
    warm = WarmPool("digest", 100, pool=attempts_pool)
    job = ExternalTrainingJob("a-qstamp-1", reported, "2026-01-01T00:00:00Z", plan=plan, warm=warm)
    assert warm_slots(job, policy) == {counted_in: sum(reported.values())}


def test_a_late_event_does_not_bring_a_used_one_back() -> None:
    queue = a_queue()
    left_warm(queue)
    late = queue.training.event("first-qstamp-1")
    queue.submit("next", 1)
    queue.controller.reconciler.handle_event(late)
    assert warm_pools(queue) == set()


@pytest.mark.parametrize(("status", "kept_warm"), [("Available", True), ("Terminated", False), ("Reused", False)])
def test_the_status_of_a_warm_pool(status: str, kept_warm: bool) -> None:
    request = a_request("a", ResourceConfig=resources(KeepAlivePeriodInSeconds=60))
    report = {**request, "TrainingJobStatus": "Completed", "WarmPoolStatus": {"Status": status}}
    found = training_job(report, {})
    assert (found.warm is not None) is kept_warm
    if found.warm:
        assert found.warm.footprint == TrainingRequest.read(request).footprint


def test_what_a_refusal_to_release_means() -> None:
    class Client:
        def __init__(self, code: str) -> None:
            self._code = code

        def update_training_job(self, **request: Any) -> None:
            assert request == {"TrainingJobName": "a", "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
            raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, "UpdateTrainingJob")

    def release(code: str) -> bool:
        return SageMakerTraining(cast(Any, Client(code)), cast(Any, None)).release("a")

    assert release("ValidationException"), "it has none any more"
    assert not release("AccessDeniedException")
    with pytest.raises(Unavailable, match="ThrottlingException"):
        release("ThrottlingException")


# --- among equals ------------------------------------------------------------------------------------


def test_among_equals_who_fits_a_warm_pool_goes_first() -> None:
    queue = a_queue()
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.accept("older", 1, EnableNetworkIsolation=True)
    queue.accept("fitting", 1)
    queue.end("first-qstamp-1")
    assert queue.states() == {"older": "pending", "fitting": "running"}


def test_warmth_beats_no_priority() -> None:
    queue = a_queue()
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.accept("higher", 2, EnableNetworkIsolation=True, Tags=[{"Key": "priority", "Value": "1"}])
    queue.accept("urgent", 2, EnableNetworkIsolation=True)
    queue.accept("fitting", 1)
    queue.end("first-qstamp-1")
    assert queue.state("urgent") == "running"


def test_nobody_is_passed_who_has_waited_longer_than_patience() -> None:
    queue = a_queue(patience=600)
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.accept("older", 1, EnableNetworkIsolation=True)
    queue.accept("fitting", 1)
    queue.now += 601
    queue.end("first-qstamp-1")
    assert queue.states() == {"older": "running", "fitting": "pending"}


def test_one_warm_pool_brings_one_job_forward() -> None:
    queue = a_queue(2)
    queue.submit("first", 1, ResourceConfig=resources(KeepAlivePeriodInSeconds=3600))
    queue.submit("second", 1, EnableNetworkIsolation=True)
    queue.accept("older", 1, EnableNetworkIsolation=True)
    queue.accept("fitting", 1)
    queue.accept("fitting-too", 1)
    queue.training.end("second-qstamp-1")
    queue.end("first-qstamp-1")
    queue.end("second-qstamp-1")
    assert queue.states() == {"older": "running", "fitting": "running", "fitting-too": "pending"}


# --- drained -----------------------------------------------------------------------------------------


def test_the_warm_pools_of_a_drained_pool_are_released_although_a_job_that_matches_waits() -> None:
    queue = a_queue(2)
    for number in range(3):
        queue.accept(f"job{number}", 1)
    queue.wake()
    queue.training.releases = False
    queue.drain("p5", stops="none")
    queue.end("job0-qstamp-1")
    queue.tick()
    assert ("release", "job0-qstamp-1") in queue.training.calls
    assert (queue.state("job1"), queue.state("job2")) == ("running", "pending")
    queue.training.releases = True
    queue.tick(RELEASE_AGAIN_SECONDS)
    queue.tick()
    assert warm_pools(queue) == set()
    queue.undrain("p5")
    assert queue.state("job2") == "running"


def test_a_warm_pool_is_kept_until_the_time_of_the_drain() -> None:
    queue = a_queue(1)
    queue.accept("job0", 1)
    queue.accept("job1", 1)
    queue.wake()
    queue.drain("p5", at=datetime.fromtimestamp(queue.now + 3600, UTC), stops="none")
    queue.end("job0-qstamp-1")
    assert ("release", "job0-qstamp-1") not in queue.training.calls
