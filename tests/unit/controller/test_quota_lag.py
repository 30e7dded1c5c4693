"""Quota lag: SageMaker counts instances of jobs that have ended, and the queue takes that for no lack of capacity."""

import heapq
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.backoff import LONGEST_SECONDS
from job_queue.domain.capacity_backoff import LAG_SECONDS, LONGEST_LAG_SECONDS, CapacityBackoff
from job_queue.domain.domain_events import CycleEnded, DomainEvent
from job_queue.domain.job import Job
from job_queue.domain.launching.launch_rate import CreateRate
from job_queue.domain.requests.training_request import TrainingRequest
from tests.fake_sagemaker import FakeTraining, quota_refusal
from tests.jobs import OWNER, P5
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

T = TypeVar("T")
SLOTS = 8
RATE = CreateRate(1, 1)
IN_TIME = 30  # seconds from the return of an instance's quota to the next launch


class Account(FakeTraining):
    """An account with a quota of eight instances, which comes back some seconds after each end."""

    def __init__(self, lag: float, limit: int = SLOTS) -> None:
        super().__init__()
        self.lag = lag
        self.limit = limit
        self.came_back: dict[str, float] = {}  # training job -> epoch seconds from which its quota is free again
        self.launched: dict[str, float] = {}  # training job -> epoch seconds
        self.refused: list[float] = []  # epoch seconds of each refusal

    def create(self, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        ((_, wanted), *_) = TrainingRequest.read(request).resources.demand[0].items()
        used = self.in_use() + sum(
            sum(self.jobs[name].instance_counts.values()) for name, at in self.came_back.items() if at > self.clock()
        )
        if used + wanted > self.limit:
            self.calls.append(("create", request["TrainingJobName"]))
            self.refused.append(self.clock())
            return LaunchResult.NO_CAPACITY, quota_refusal(request, self.limit, used)
        self.launched[request["TrainingJobName"]] = self.clock()
        return super().create(request)

    def end(self, name: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        super().end(name, status, secondary, failure)
        self.came_back[name] = self.clock() + self.lag


class Lasting:
    """Notes how many jobs and pools each cycle has reported as refused for long."""

    def __init__(self) -> None:
        self.most = 0

    def notify(self, event: DomainEvent) -> None:
        if isinstance(event, CycleEnded):
            self.most = max(self.most, event.lasting_refusals)


class Timeline(Harness):
    """A queue in simulated time: ticks, events and wake-ups arrive while an invocation sleeps."""

    def __init__(self, account: Account, slots: int = SLOTS, create_rate: CreateRate = RATE) -> None:
        self.account = account
        self.lasting = Lasting()
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        super().__init__(slots, training=account, create_rate=create_rate, notify=self.lasting.notify)

    def at(self, moment: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._numbers), act))

    def sleep(self, seconds: float) -> None:
        self.pass_to(self.now + seconds)

    def pass_to(self, moment: float) -> None:
        """Let happen what is due until then."""
        while self._agenda and self._agenda[0][0] <= moment:
            due, _, act = heapq.heappop(self._agenda)
            self.now = max(self.now, due)
            act()
            self._begin_woken()
        self.now = max(self.now, moment)

    def _begin_woken(self) -> None:
        while self.woken:
            self.at(self.now + 0.2, self._woken(self.woken.pop(0)))

    def _woken(self, by: str) -> Callable[[], None]:
        return lambda: self.controller.wake(self.invocation(may_wait=True, woken_by=by))

    def seen_at(self, moment: float, look: Callable[[], T]) -> T:
        """Let happen what is due until then; gives what is to be seen then. Whoever sleeps may sleep for longer."""
        seen: list[T] = []
        self.at(moment, lambda: seen.append(look()))
        self.pass_to(moment)
        return seen[0]

    def tick_each_minute(self, minutes: int) -> None:
        for minute in range(1, minutes + 1):
            self.at(self.now + 60 * minute, lambda: self.controller.tick(self.invocation(may_wait=True)))

    def end_at(self, moment: float, attempt: str) -> None:
        """A training job ends, and its event arrives at once."""

        def act() -> None:
            self.account.end(attempt)
            self.controller.training_job_changed(self.account.event(attempt), self.invocation(may_wait=True))

        self.at(moment, act)


def eight_jobs(queue: Timeline) -> list[str]:
    """Eight jobs that run, and eight that wait."""
    for number in range(2 * SLOTS):
        queue.accept(f"job{number:02}", 100 - number)
    queue.controller.wake(queue.invocation(may_wait=True))
    queue.pass_to(queue.now + 60)
    running = list(queue.account.launched)
    assert len(running) == SLOTS
    for attempt in running:
        queue.account.give_instances(attempt, queue.now)
    queue.pass_to(queue.now + 600)
    return running


def backoffs(queue: Harness) -> list[CapacityBackoff]:
    return list(queue.repository.metadata().capacity_backoffs.values())


def next_launches(queue: Timeline, running: list[str]) -> list[float]:
    return sorted(at for name, at in queue.account.launched.items() if name not in running)


@pytest.mark.thorough
@pytest.mark.parametrize("create_rate", [CreateRate(1, 1), CreateRate(1, 5)], ids=["no burst", "burst"])
@pytest.mark.parametrize("apart", [2.0, 0.0, 12.0])
@pytest.mark.parametrize("lag", [0.0, 30.0, 60.0, 180.0, 500.0])
def test_each_next_job_starts_soon_after_its_quota_has_come_back(
    lag: float, apart: float, create_rate: CreateRate
) -> None:
    queue = Timeline(Account(lag), create_rate=create_rate)
    running = eight_jobs(queue)
    began = queue.now
    queue.tick_each_minute(20)
    for number, attempt in enumerate(running):
        queue.end_at(began + 1 + apart * number, attempt)
    queue.pass_to(began + 1200)
    launched = next_launches(queue, running)
    assert len(launched) == SLOTS
    late = [at - back for at, back in zip(launched, sorted(queue.account.came_back.values()), strict=True)]
    assert max(late) <= IN_TIME, late
    assert queue.lasting.most == 0
    assert len(queue.account.refused) <= 3 + (lag + 7 * apart) / LAG_SECONDS * (1 + create_rate.burst / 2)


def test_lag_counts_no_failure_and_leaves_nothing_behind() -> None:
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    for attempt in running:
        queue.end_at(queue.now, attempt)
    waiting = [f"job{number:02}" for number in range(SLOTS, 2 * SLOTS)]
    (backoff,), jobs = queue.seen_at(queue.now + 50, lambda: (backoffs(queue), list(map(queue.job, waiting))))
    assert queue.account.refused
    assert (backoff.failures, backoff.is_lag, backoff.is_lasting) == (0, True, False)
    assert [(it.state, it.tries, it.refusals) for it in jobs] == [("pending", 0, 0)] * SLOTS
    queue.pass_to(queue.now + 60)
    assert backoffs(queue) == []
    assert len(next_launches(queue, running)) == SLOTS


def test_one_job_at_a_time_is_tried_while_quota_is_late() -> None:
    queue = Timeline(Account(300))
    running = eight_jobs(queue)
    for attempt in running:
        queue.end_at(queue.now, attempt)
    queue.pass_to(queue.now + 290)
    tries = queue.account.refused
    assert 10 <= len(tries) <= 16
    assert all(later - earlier >= LAG_SECONDS - 1 for earlier, later in itertools.pairwise(tries))


def test_without_ticks_the_tries_go_on() -> None:
    """Each try is promised by the one before it: the schedule is not needed."""
    queue = Timeline(Account(100))
    running = eight_jobs(queue)
    queue.end_at(queue.now, running[0])
    queue.pass_to(queue.now + 100 + LAG_SECONDS + 5)
    assert len(next_launches(queue, running)) == 1


def test_lag_beyond_ten_minutes_is_a_refusal_like_any_other() -> None:
    queue = Timeline(Account(3600))
    running = eight_jobs(queue)
    began = queue.now
    queue.tick_each_minute(120)
    for attempt in running:
        queue.end_at(queue.now, attempt)
    (backoff,) = queue.seen_at(began + LONGEST_LAG_SECONDS - 5, lambda: backoffs(queue))
    assert (backoff.failures, backoff.is_lag) == (0, True)
    (backoff,) = queue.seen_at(began + LONGEST_LAG_SECONDS + 60, lambda: backoffs(queue))
    assert backoff.failures >= 1
    assert not backoff.is_lag
    assert queue.seen_at(began + 1700, lambda: queue.lasting.most) == 0
    assert queue.seen_at(began + 3600, lambda: queue.lasting.most) == 1
    queue.pass_to(began + 3600 + LONGEST_SECONDS + 120)
    assert next_launches(queue, running)


def test_a_quota_below_the_policy_is_no_lag() -> None:
    """The queue counts as many instances as SageMaker does: others of the pool's slots never were in the quota."""
    queue = Timeline(Account(0, limit=4))
    for number in range(6):
        queue.accept(f"job{number}", 100 - number)
    queue.controller.wake(queue.invocation(may_wait=True))
    queue.pass_to(queue.now + 5)
    assert len(queue.account.launched) == 4
    (backoff,) = backoffs(queue)
    assert (backoff.failures, backoff.lag) == (1, None)


def test_training_jobs_of_others_that_the_queue_knows_are_no_lag() -> None:
    queue = Timeline(Account(0, limit=4))
    queue.start_outside("theirs", 4)
    queue.controller.tick(queue.invocation())
    queue.submit("job1")
    (backoff,) = backoffs(queue)
    assert (backoff.failures, backoff.lag) == (1, None)


def test_training_jobs_of_others_that_the_queue_does_not_know_yet_are_taken_for_lag() -> None:
    queue = Timeline(Account(0, limit=4))
    queue.start_outside("theirs", 4)
    queue.submit("job1")
    assert [(it.failures, it.is_lag) for it in backoffs(queue)] == [(0, True)]


def test_a_warm_pool_that_the_queue_knows_is_no_lag() -> None:
    queue = Timeline(Account(0, limit=1))
    queue.submit("job1", ResourceConfig=kept(P5, 600))
    queue.end("job1-qstamp-1")
    queue.submit("other", ResourceConfig=kept(P5, 600, volume=99))
    assert queue.repository.external()[0].warm is not None
    assert [it.is_lag for it in backoffs(queue)] == [False]


def test_a_launch_on_a_warm_pool_that_is_gone_meets_lag() -> None:
    """The warm pool was promised to the launch, so that the queue knows of none of the instances in use."""
    queue = Timeline(Account(0, limit=1))
    queue.submit("job1", ResourceConfig=kept(P5, 600))
    queue.end("job1-qstamp-1")
    queue.account.warm_pools.clear()
    queue.account.came_back["job1-qstamp-1"] = queue.now + 300
    queue.submit("job2", ResourceConfig=kept(P5, 600))
    assert [it.is_lag for it in backoffs(queue)] == [True]


def kept(kind: str, seconds: int, volume: int = 30) -> dict[str, Any]:
    return {
        "InstanceType": kind,
        "InstanceCount": 1,
        "VolumeSizeInGB": volume,
        "KeepAlivePeriodInSeconds": seconds,
    }


def test_the_end_of_a_job_counts_failures_from_the_beginning_again() -> None:
    queue = Timeline(Account(0, limit=4))
    for number in range(6):
        queue.accept(f"job{number}", 100 - number)
    queue.tick_each_minute(40)
    queue.pass_to(queue.now + 2000)
    assert backoffs(queue)[0].failures > 3
    queue.account.lag = 120  # job4 is tried at once, and meets lag
    queue.end_at(queue.now + 1, "job0-qstamp-1")
    seen = queue.seen_at(queue.now + 10, lambda: backoffs(queue))
    assert [(it.failures, it.is_lag) for it in seen] == [(0, True)]
    queue.pass_to(queue.now + 120 + LAG_SECONDS)
    assert "job4-qstamp-1" in queue.account.launched


def test_a_gang_that_waits_for_its_quota_is_not_overtaken_by_smaller_jobs() -> None:
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    for number in range(SLOTS, 2 * SLOTS):
        queue.cancel(f"job{number:02}")
    queue.accept("gang", 500, instances=4)
    began = queue.now
    for number, attempt in enumerate(running[:4]):
        queue.end_at(began + 15 * number, attempt)
    queue.at(began + 83, lambda: queue.submit("small", 1))  # when the quota of two instances has come back
    queue.pass_to(began + 45 + 60 + IN_TIME)
    assert set(queue.account.launched) - set(running) == {"gang-qstamp-1"}


def test_a_gang_that_waits_for_its_quota_is_not_parked_behind_smaller_jobs() -> None:
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    for number in range(SLOTS, 2 * SLOTS):
        queue.cancel(f"job{number:02}")
    document = {
        "pools": [{"name": "default", "capacity": SLOTS}],
        "projects": [{"name": "default", "quota": {"default": SLOTS}}],
        "settings": {"window": 2},
    }
    queue.repository.apply_policy(json.dumps(document), 0, OWNER, queue.now)
    queue.accept("gang", 500, instances=4)
    for number in range(6):
        queue.accept(f"small{number}", 1)
    began = queue.now
    for number, attempt in enumerate(running[:4]):
        queue.end_at(began + 15 * number, attempt)
    queue.tick_each_minute(3)
    assert queue.seen_at(began + 50, lambda: queue.job("gang").parked) is None, "no later job could start either"
    queue.pass_to(began + 45 + 60 + IN_TIME)
    assert set(queue.account.launched) - set(running) == {"gang-qstamp-1"}


def test_a_launch_elsewhere_does_not_wait_until_the_quota_is_tried_again() -> None:
    """Two launches at the rate of one a second, while an invocation sleeps until the next try of another type."""
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    queue.account.limit = 100
    queue.account.lag = 0
    refusing = queue.account.create

    def create(request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        if request["ResourceConfig"]["InstanceType"] == P5:
            return LaunchResult.NO_CAPACITY, quota_refusal(request, 8, 8)
        return refusing(request)

    queue.account.create = create  # type: ignore[method-assign]
    for attempt in running[:4]:
        queue.end_at(queue.now, attempt)
    assert queue.seen_at(queue.now + 3, lambda: backoffs(queue))[0].is_lag
    other = {"InstanceType": "ml.g5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30}
    for name in ("other1", "other2", "other3"):
        queue.accept(name, 1, ResourceConfig=other)
    began = queue.now
    queue.at(began, lambda: queue.controller.wake(queue.invocation()))
    queue.pass_to(began + 6)
    launched = [name for name in queue.account.launched if name.startswith("other")]
    assert len(launched) == 3


def test_the_reason_says_what_sagemaker_counts_and_when_the_next_try_is() -> None:
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    for attempt in running:
        queue.end_at(queue.now, attempt)
    api = Api(queue=queue)
    names = ("job08", "job09")  # that was tried, and another
    for reason in queue.seen_at(
        queue.now + 10, lambda: [api.call("GET", f"/jobs/{name}")[1]["reason"] for name in names]
    ):
        assert reason["code"] == "BACKOFF"
        assert "SageMaker still counts 8 of 8 instances of ml.p5.48xlarge as in use" in reason["message"]
        assert "The next try, with the first job of the queue, is at" in reason["message"]
        assert reason["message"].count("SageMaker still counts") == 1


def test_the_queue_reports_quota_lag_and_no_lack_of_instances() -> None:
    queue = Timeline(Account(60))
    running = eight_jobs(queue)
    for attempt in running:
        queue.end_at(queue.now, attempt)
    api = Api(queue=queue)
    paths = ("/queue", "/jobs/job08")
    status, job = queue.seen_at(queue.now + 10, lambda: [api.call("GET", path)[1] for path in paths])
    (pause,) = status["pauses"]
    counted = (
        f"SageMaker still counts 8 of 8 instances of {P5} as in use, and the queue knows of 7 (ResourceLimitExceeded)."
    )
    assert (pause["quotaLag"], pause["atFault"], pause["instances"], pause["refusals"]) == (counted, None, 1, 0)
    causes = [entry["cause"] for entry in job["history"]]
    assert any(cause.endswith(f": {counted}") for cause in causes), causes
    queue.pass_to(queue.now + 60)
    assert api.call("GET", "/queue")[1]["pauses"] == []


def test_a_heterogeneous_cluster_meets_the_lag_of_the_type_that_sagemaker_names() -> None:
    queue = Timeline(Account(0))
    kinds = {"p5": P5, "g5": "ml.g5.48xlarge"}
    pools = [{"name": pool, "instance_type": kind, "capacity": 4} for pool, kind in kinds.items()]
    policy = {"pools": pools, "projects": [{"name": "default", "quota": {"p5": 4, "g5": 4}}]}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    groups = [{"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": 1} for name, kind in kinds.items()]
    request = {"ResourceConfig": {"InstanceType": P5, "InstanceCount": 1}}
    queue.account.script = [(LaunchResult.NO_CAPACITY, quota_refusal(request, 4, 4))]
    queue.account.limit = 100
    queue.submit("both", 9, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    assert [(it.capacity_key, it.is_lag) for it in backoffs(queue)] == [("p5", True)]
    both: Job = queue.job("both")
    assert (both.tries, both.refusals, both.backoff_until) == (0, 0, None)


def test_a_heterogeneous_cluster_with_a_pool_of_spot_instances_meets_the_lag_of_the_spot_quota() -> None:
    queue = Timeline(Account(0))
    pools = [
        {"name": "p5", "instance_type": P5, "capacity": 4},
        {"name": "g5", "instance_type": "ml.g5.48xlarge", "capacity": 4, "spot": True},
    ]
    policy = {"pools": pools, "projects": [{"name": "default", "quota": {"p5": 4, "g5": 4}}]}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    groups = [
        {"InstanceGroupName": pool["name"], "InstanceType": pool["instance_type"], "InstanceCount": 1} for pool in pools
    ]
    spot = {"ResourceConfig": {"InstanceType": P5, "InstanceCount": 1}, "EnableManagedSpotTraining": True}
    queue.account.script = [(LaunchResult.NO_CAPACITY, quota_refusal(spot, 4, 4))]
    queue.submit("both", 9, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    assert queue.job("both").reason == (
        f"SageMaker still counts 4 of 4 instances of {P5} as in use, and the queue knows of 0 (ResourceLimitExceeded)."
    )


def test_a_launch_whose_pool_was_removed_meets_the_lag_of_its_quota() -> None:
    queue = Timeline(Account(0))
    for version, pool in enumerate(("before", "after")):
        pools = [{"name": pool, "instance_type": P5, "capacity": 4}]
        policy = {"pools": pools, "projects": [{"name": "default", "quota": {pool: 4}}]}
        queue.repository.apply_policy(json.dumps(policy), version, "ada", queue.now)
        if pool == "before":
            queue.account.script = ["never"]
            queue.submit("job1")
    assert queue.job("job1").slots == {"before": 1}
    on_demand = {"ResourceConfig": {"InstanceType": P5, "InstanceCount": 1}}
    queue.account.script = [(LaunchResult.NO_CAPACITY, quota_refusal(on_demand, 4, 4))]
    queue.tick(600)
    assert queue.job("job1").reason == (
        f"SageMaker still counts 4 of 4 instances of {P5} as in use, and the queue knows of 0 (ResourceLimitExceeded)."
    )


def test_the_quota_of_all_types_together_is_late_too() -> None:
    queue = Timeline(Account(0, limit=100))
    message = (
        "ResourceLimitExceeded: The account-level service limit 'Number of instances across all training jobs' is 4 "
        "Instances, with current utilization of 4 Instances and a request delta of 1 Instances."
    )
    queue.account.script = [(LaunchResult.NO_QUOTA, message)]
    queue.submit("job1")
    assert [it.is_lag for it in backoffs(queue)] == [True]
    assert queue.job("job1").refusals == 0


@pytest.mark.parametrize(("soon", "is_promised"), [(3, True), (19, True), (20, False), (30, False)])
def test_another_promise_counts_only_if_it_looks_soon_enough(soon: int, is_promised: bool) -> None:  # noqa: FBT001
    repository, now = Harness().repository, Harness().now
    assert repository.promise("one", now, now + 50, now + 20, now + 22)
    assert repository.promise("two", now, now + 31, now + soon - 2, now + soon) is is_promised
