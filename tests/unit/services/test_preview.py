"""POST /policy/preview: what another policy or other capacities would change, on a queue in memory."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from job_queue.api.previews import MOST_LISTED
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import TakesTooLong
from job_queue.domain.fleet.training_plans import PlanPart
from job_queue.scheduler import Policy
from job_queue.services.preview import TIME_LIMIT_SECONDS, PreviewService
from job_queue.simulation.forecast_input import ForecastInput
from job_queue.simulation.workload import Overheads
from tests.jobs import NOW, OWNER, P5, a_body
from tests.queue_harness import Harness
from tests.unit.queue_api import ADMIN, P4, STRANGER, Api, Governed, a_policy

HOUR = 3600
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"


def preview(api: Api, caller: str = STRANGER, **wanted: Any) -> tuple[int, Any]:
    before = copy.deepcopy(api.queue.tables.rows)
    woken = list(api.queue.woken)
    answer = api.call("POST", "/policy/preview", json.dumps(wanted), caller=caller)
    assert api.queue.tables.rows == before
    assert api.queue.woken == woken
    return answer


def pools(p5: int = 4, p4: int = 4) -> list[dict[str, Any]]:
    return [
        {"name": "p5", "instance_type": P5, "capacity": p5},
        {"name": "p4", "instance_type": P4, "capacity": p4},
    ]


def busy(jobs: int = 6, hours: int = 2) -> Governed:
    """Four jobs of vision run on p5, the others wait. Each may run for so many hours."""
    api = Governed()
    limit = {"StoppingCondition": {"MaxRuntimeInSeconds": hours * HOUR}}
    for number in range(jobs):
        api.queue.now += 1
        tags = [{"Key": "project", "Value": "vision"}]
        assert api.call("POST", "/add-job", a_body(f"job{number}", None, Tags=tags, **limit))[0] == 202
    return api


def names(parts: list[dict[str, Any]]) -> list[str]:
    return [part["job"] for part in parts]


def test_more_capacity_starts_who_waits_and_says_what_would_be_refused() -> None:
    api = busy()
    status, answer = preview(api, capacity={"p5": 5})
    assert status == 200
    assert answer["policyVersion"] == 1
    assert answer["starts"] == [{"job": "job4", "slots": {"p5": 1}}]
    assert answer["warnings"] == answer["inUse"] == answer["notLookedAt"] == []
    (vision,) = answer["projects"]
    assert (vision["usedNow"], vision["usedThen"]) == ({"p5": 4}, {"p5": 5})
    assert (vision["waiting"], vision["known"]) == (2, 2)
    assert vision["waitThen"] < vision["waitNow"]


def test_a_capacity_above_the_ceiling_is_looked_at_and_leaves_the_other_pools_what_they_have() -> None:
    api = busy(9)
    api.queue.policies.max_capacity = 8
    _, answer = preview(api, capacity={"p5": 6})
    assert names(answer["starts"]) == ["job4", "job5"]
    (warning,) = answer["warnings"]
    assert "MaxCapacity" in warning
    _, answer = preview(api, capacity={"p5": 6, "p4": 5})
    assert names(answer["starts"]) == ["job4", "job5"]


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        pytest.param({}, [], id="the same policy"),
        pytest.param(
            {"projects": ["vision"]}, ["New submissions to the project nlp would be refused."], id="a project less"
        ),
        pytest.param(
            {"projects": ["default", "vision", "nlp"]},
            [],
            id="a project more, and none has to be named",
        ),
        pytest.param(
            {"pools": ["p5"]},
            [
                "New submissions that name the pool p4 (tag pools) would be refused.",
                f"New submissions with the instance type {P4} would be refused.",
            ],
            id="a pool less",
        ),
        pytest.param(
            {"own": {"vision": ["p5"]}},
            [f"New submissions to the project vision with the instance type {P4} would be refused."],
            id="a pool less for a project",
        ),
    ],
)
def test_submissions_that_only_the_other_policy_would_refuse_are_named(
    change: dict[str, Any], sentences: list[str]
) -> None:
    own = change.get("own", {})
    kept, named = change.get("pools", ("p5", "p4")), change.get("projects", ("vision", "nlp"))
    projects = [{"name": name, **({"pools": own[name]} if name in own else {})} for name in named]
    api = Governed(departments=[], projects=[{"name": "vision"}, {"name": "nlp"}])
    policy = a_policy(pools=[it for it in pools() if it["name"] in kept], projects=projects, departments=[])
    _, answer = preview(api, policy=policy, hours=0)
    assert answer["refusedSubmissions"] == sentences


def test_after_the_default_policy_a_project_must_be_named_and_other_instance_types_are_refused() -> None:
    api = Governed()
    assert api.call("POST", "/policy/rollback", json.dumps({"to": 0, "version": 1}), caller=ADMIN)[0] == 200
    _, answer = preview(api, policy=a_policy(pools=pools()), hours=0)
    assert answer["refusedSubmissions"] == [
        "New submissions to the project default would be refused.",
        "New submissions that name no project would be refused (tag project, smq submit --project), except from users "
        "who are members of only one project.",
        "New submissions that name the pool default (tag pools) would be refused.",
        f"New submissions with an instance type other than {P5} and {P4} would be refused.",
    ]
    assert api.put(a_policy(pools=pools()), version=2)[0] == 200
    status, refused = api.call("POST", "/add-job", a_body("job", None))
    assert (status, refused["errors"][0]["message"]) == (400, "The job names no project.")


def test_a_policy_above_the_ceiling_is_looked_at_and_could_not_be_applied() -> None:
    api = busy(9)
    api.queue.policies.max_capacity = 8
    policy = a_policy(pools=pools(p5=10))
    _, answer = preview(api, policy=policy)
    assert names(answer["starts"]) == ["job4", "job5", "job6", "job7", "job8"]
    (warning,) = answer["warnings"]
    assert "MaxCapacity" in warning
    assert api.put(policy, version=1)[0] == 400


def test_a_plan_pool_without_a_capacity_gets_no_instances_above_the_ceiling() -> None:
    queue = Harness()
    queue.training.plans = {PLAN: (PlanPart(9, int(NOW) - HOUR, int(NOW) + 10 * HOUR),)}
    winter = {"name": "winter", "instance_type": P5, "training_plan": PLAN}

    def document(p4: int) -> dict[str, Any]:
        on_demand = {"name": "p4", "instance_type": P4, "capacity": p4}
        return {"pools": [winter, on_demand], "projects": [{"name": "default", "quota": {"winter": 9}}]}

    queue.repository.apply_policy(json.dumps(document(p4=3)), 0, "ada", queue.now)
    queue.policies.max_capacity = 4
    for name in ("a", "b", "c"):
        queue.submit(name)
    assert list(queue.states().values()) == ["running", "pending", "pending"]
    _, answer = preview(Api(queue=queue), policy=document(p4=5))
    assert (len(answer["warnings"]), answer["starts"]) == (1, [])


def test_shared_pools_that_the_stack_does_not_support_are_a_warning() -> None:
    api = busy(9)
    policy = a_policy(pools=[{**pool, "shared": True, "gpus": 8} for pool in pools()])
    assert not preview(api, policy=policy)[1]["warnings"]
    api.queue.policies.may_share = False
    _, answer = preview(api, policy=policy)
    assert any("shared" in warning for warning in answer["warnings"]), answer["warnings"]
    assert api.put(policy, version=1)[0] == 400


def test_less_capacity_than_the_quotas_is_looked_at_too() -> None:
    api = busy(6)
    status, answer = preview(api, capacity={"p5": 1})
    assert status == 200
    assert "quota" in " ".join(answer["warnings"])
    assert names(answer["later"]) == ["job5"]  # job4 starts when the first of four ends, and it after that
    assert answer["evictions"] == []


def test_without_a_policy_the_default_pool_may_have_another_capacity() -> None:
    api = Api(slots=1)
    api.add("one")
    api.add("two")
    _, answer = preview(api, capacity={"default": 2})
    assert names(answer["starts"]) == ["two"]


def test_a_policy_that_takes_a_quota_away_says_who_would_be_stopped_for_whom() -> None:
    api = busy(4)
    api.tagged("claims", project="nlp")
    projects = a_policy()["projects"]
    projects[0]["quota"], projects[1]["quota"] = {"p5": 0}, {"p5": 3}
    for number in range(2):
        api.tagged(f"more{number}", project="nlp")
    _, answer = preview(api, policy=a_policy(projects=projects))
    assert {(it["claimant"], it["rule"]) for it in answer["evictions"]} == {("more0", "reclaim"), ("more1", "reclaim")}
    assert answer["starts"] == []


def test_what_the_policy_drops_is_told_as_apply_would_refuse_it() -> None:
    api = busy()
    without = a_policy(projects=a_policy()["projects"][1:])
    _, answer = preview(api, policy=without)
    refused = api.put(without, version=1)[1]
    assert answer["inUse"] == [error["message"] for error in refused["errors"]]
    assert {(it["job"], it["reason"]["code"]) for it in answer["unstartable"]} == {
        ("job4", "NO_SUCH_POOL"),
        ("job5", "NO_SUCH_POOL"),
    }


def test_002_a_quota_below_running_non_preemptible_jobs_is_told_as_apply_would_refuse_it() -> None:
    api = Governed()
    for name in ("lab0", "lab1"):
        api.tagged(name, project="vision", preemptible="false")
    projects = a_policy()["projects"]
    projects[0]["quota"] = {"p5": 1}
    _, answer = preview(api, policy=a_policy(projects=projects))
    refused = api.put(a_policy(projects=projects), version=1)[1]
    assert answer["inUse"] == [error["message"] for error in refused["errors"]]
    assert "lab0, lab1" in answer["inUse"][0]
    allowed = a_policy(projects=projects, settings={"allow_oversubscription": True})
    assert preview(api, policy=allowed)[1]["inUse"] == []


def test_a_job_that_fits_no_more_is_named() -> None:
    api = busy()
    api.tagged("theirs", project="ops")
    _, answer = preview(api, policy=a_policy(pools=pools(p5=4, p4=0)), hours=0)
    assert (names(answer["unstartable"]), answer["until"]) == ([], answer["at"])
    limited = a_policy()
    limited["projects"][0]["limit"] = {"p5": 0, "p4": 0}
    limited["projects"][0]["quota"] = {}
    _, answer = preview(api, policy=limited)
    assert names(answer["unstartable"]) == ["job4", "job5"]
    assert all(it["reason"]["message"] for it in answer["unstartable"])


def test_a_policy_is_refused_as_apply_would_refuse_it() -> None:
    api = busy()
    api.queue.policies.max_capacity = 8
    documents: list[object] = [
        a_policy(projects=[]),
        {"pools": 3},
        "x",
        None,
        [],
        {**a_policy(), "x" * 70_000: [1] * 70_000},
    ]
    for document in documents:
        asked, applied = preview(api, policy=document), api.put(document, version=1)
        assert asked == applied
        assert asked[0] in {400, 413}


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"hours": 3}, None),
        ({"capacity": {}}, "capacity"),
        ({"capacity": {"p5": -1}}, "capacity"),
        ({"capacity": {"p5": 1.5}}, "capacity"),
        ({"capacity": {"p5": 10**30}}, "capacity"),
        ({"capacity": {"p5": True}}, "capacity"),
        ({"capacity": {"no\nsuch": 1}}, "capacity"),
        ({"capacity": ["p5"]}, "capacity"),
        ({"capacity": {"p5": 1}, "policy": a_policy()}, "capacity"),
        ({"capacity": {"p5": 1}, "hours": -1}, "hours"),
        ({"capacity": {"p5": 1}, "hours": 49}, "hours"),
        ({"capacity": {"p5": 1}, "hours": "8"}, "hours"),
        ({"capacity": {"p5": 1}, "futures": 10**9}, "futures"),
        ({"capacity": {f"pool{number}": 1 for number in range(500)}}, "capacity"),
    ],
)
@pytest.mark.attack
def test_what_makes_no_sense_is_refused_with_its_field(wanted: dict[str, Any], field: str | None) -> None:
    status, refused = preview(Governed(), **wanted)
    assert (status, refused["code"], refused["field"]) == (400, "InvalidRequest", field)
    assert len(refused["errors"]) <= 21


@pytest.mark.attack
def test_a_stranger_sees_no_value_of_a_request_and_nothing_that_a_program_said() -> None:
    secret = "hunter2-s3cret"
    api = Governed()
    tags = [{"Key": "project", "Value": "vision"}, {"Key": "retries", "Value": "3"}]
    for number in range(6):
        request = a_body(f"job{number}", None, Tags=tags, Environment={"KEY": secret}, HyperParameters={"x": secret})
        assert api.call("POST", "/add-job", request)[0] == 202
    api.queue.end("job0-qstamp-1", "Failed", failure=f"AlgorithmError: {secret}")
    assert f"AlgorithmError: {secret}" in json.dumps(api.call("GET", "/jobs/job0")[1]["history"])
    limited = a_policy()
    limited["projects"][0] |= {"limit": {"p5": 0, "p4": 0}, "quota": {}}
    for wanted in ({"policy": limited}, {"capacity": {"p5": 1}}, {"capacity": {"p5": 100}}):
        status, answer = preview(api, STRANGER, **wanted)
        assert status == 200
        assert secret not in json.dumps(answer)


# --- how far it is looked ahead -----------------------------------------------------------------------


class Ticking:
    """A clock that goes on by so much each time that somebody looks at it."""

    def __init__(self, now: float, seconds: float) -> None:
        self.now, self.seconds = now, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def service(api: Api, seconds: float = 0, **more: Any) -> PreviewService:
    queue = api.queue
    return PreviewService(queue.policies, queue.dry_run.cluster, Ticking(queue.now, seconds), **more)


@pytest.mark.attack
def test_however_many_wait_it_ends_in_time_and_says_what_to_ask_instead() -> None:
    """So much time passes with each look at the clock, that is with each moment of a future, that none is finished."""
    api = busy(8)
    looked = Ticking(api.queue.now, TIME_LIMIT_SECONDS / 4)
    queue = api.queue
    with pytest.raises(TakesTooLong):
        PreviewService(queue.policies, queue.dry_run.cluster, looked).of_capacity({"p5": 5}, 8 * HOUR)
    assert looked.now - queue.now < 2 * TIME_LIMIT_SECONDS
    status, answer = preview(slow(api), capacity={"p5": 5})
    assert (status, answer["code"], answer["field"]) == (422, "TakesTooLong", "hours")
    assert "0 hours" in answer["remedy"]
    status, answer = preview(api, capacity={"p5": 5}, hours=0)
    assert (status, names(answer["starts"])) == (200, ["job4"])


def slow(api: Governed) -> Governed:
    """The same queue, whose clock goes on by itself."""
    clock = Ticking(api.queue.now, TIME_LIMIT_SECONDS / 4)
    api.queue.clock = clock  # type: ignore[method-assign]
    slower = Api(queue=api.queue)
    api.resolver = slower.resolver
    return api


@pytest.mark.parametrize(
    ("before", "after", "field", "more"),
    [(0, 5000, "starts", "moreStarts"), (5000, 0, "keptWaiting", "moreKeptWaiting")],
)
def test_long_lists_are_cut_and_counted(before: int, after: int, field: str, more: str) -> None:
    api = Api(slots=0)
    api.queue.policies.max_capacity = 10_000
    document = {
        "pools": [{"name": "p5", "instance_type": P5, "capacity": before}],
        "projects": [{"name": "default"}],
        "settings": {"window": 1000},
    }
    api.queue.repository.apply_policy(json.dumps(document), 0, "ada", api.queue.now)
    for number in range(MOST_LISTED + 7):
        api.queue.accept(f"job{number:04}", 1)
    _, answer = preview(api, capacity={"p5": after})
    assert (len(answer[field]), answer[more]) == (MOST_LISTED, 7)


def test_more_jobs_than_were_read_are_mentioned() -> None:
    api = busy(6)
    projects = a_policy(settings={"window": 1})
    assert api.put(projects, version=1)[0] == 200
    _, answer = preview(api, capacity={"p5": 5})
    assert any("window" in sentence for sentence in answer["notLookedAt"])


def test_who_waits_for_jobs_of_which_nobody_knows_how_long_they_run_is_counted() -> None:
    """A day is SageMaker's default of a limit, and tells nothing; less is better than not to know."""
    api = busy(hours=24)
    _, answer = preview(api, capacity={"p5": 3})
    assert [(it["waiting"], it["known"], it["waitNow"]) for it in answer["projects"]] == [(2, 0, None)]
    assert any("2 waiting jobs" in sentence for sentence in answer["notLookedAt"])
    _, answer = preview(busy(hours=23), capacity={"p5": 3}, hours=48)
    assert [(it["waiting"], it["known"]) for it in answer["projects"]] == [(2, 2)]


def test_what_is_known_of_a_job_counts_more_than_its_limit() -> None:
    def known(cluster: ClusterState, now: float) -> ForecastInput:
        return ForecastInput(cluster.snapshot(now), {"job0": (1800.0,)})

    api = busy()
    comparison = service(api, read_forecast_input=known).of_capacity({"p5": 4}, 8 * HOUR).comparison
    (vision,) = [it for it in comparison.projects if it.waiting]
    assert vision.wait_before == pytest.approx((1800 + 2 * HOUR + 180) / 2, abs=60)


def test_runtimes_that_are_expected_count_under_the_other_policy_too() -> None:
    """Shortest first: only the inputs have the expected runtimes."""
    api = busy(4)
    for name in ("long", "short"):
        api.queue.now += 1
        api.tagged(name, project="vision")
    expected = {"long": 9 * HOUR, "short": 1 * HOUR}

    def known(cluster: ClusterState, now: float) -> ForecastInput:
        snapshot = cluster.snapshot(now)
        waiting = tuple(replace(job, expected=float(expected[job.name])) for job in snapshot.waiting)
        runtimes = {job.name: (2.0 * HOUR,) for job in snapshot.active}
        runtimes |= {job.name: (float(expected[job.name]),) for job in waiting} | {"job0": (1.0 * HOUR,)}
        return ForecastInput(replace(snapshot, waiting=waiting), runtimes, overheads=Overheads(provisioning=0))

    changed = a_policy(settings={"order": "shortest", "patience": None})
    comparison = service(api, read_forecast_input=known).of_policy(changed, 12 * HOUR).comparison
    assert {wait.job: wait.difference < 0 for wait in comparison.waits} == {"short": True, "long": False}


def test_the_policy_that_is_looked_at_has_the_same_ceiling_as_the_one_that_holds() -> None:
    """One that was stored before the ceiling has as many instances as it allows; so has the one to compare with."""
    api = busy(8)
    api.queue.policies.max_capacity = 8
    seen: list[Policy] = []

    def noted(cluster: ClusterState, now: float) -> ForecastInput:
        seen.append(cluster.snapshot(now).policy)
        return ForecastInput(cluster.snapshot(now))

    found = service(api, read_forecast_input=noted).of_policy(a_policy(), 0)
    assert sum(pool.capacity for pool in seen[0].pools) == 8
    assert found.comparison.starts == ()


def test_owners_and_strangers_are_told_the_same() -> None:
    api = busy()
    assert preview(api, OWNER, capacity={"p5": 5}) == preview(api, STRANGER, capacity={"p5": 5})
