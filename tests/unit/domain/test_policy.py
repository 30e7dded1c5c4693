"""The policy: what it may say, and what it makes of a request."""

from dataclasses import replace
from typing import Any

import pytest

from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import Portability, of_sizes, waiting_queue
from job_queue.domain.policy import (
    MOST_COMBINATIONS,
    alternatives,
    default_policy,
    needs_one_known_type,
    request_for_slots,
)
from job_queue.domain.policy_validation import parse_policy
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import UNLIMITED, JobState, Prices
from job_queue.scheduler.documents.policy_schema import (
    HIGHEST_PRICE,
    MAX_PRIORITY,
    MOST_INSTANCES,
    MOST_POOLS,
    MOST_PRICES,
    MOST_QUOTA_HOLDERS,
    MOST_WAITING,
    WIDEST_WINDOW,
)
from tests.jobs import P5, a_job, a_request
from tests.unit.queue_api import P4, a_policy


def refusal(document: object) -> str:
    with pytest.raises(InvalidRequest) as error:
        parse_policy(document)
    assert (error.value.field or "").partition(".")[0] == "policy"
    return error.value.message


# --- the document ------------------------------------------------------------------------------------


HUGE = 10**99


def small(**changes: Any) -> dict[str, Any]:
    return {
        "pools": [{"name": "p5", "instance_type": P5, "capacity": 4}],
        "projects": [{"name": "default"}],
        **changes,
    }


def project(**fields: Any) -> dict[str, Any]:
    return small(projects=[{"name": "default", **fields}])


def pool(**fields: Any) -> dict[str, Any]:
    return small(pools=[{"name": "p5", "instance_type": P5, "capacity": 4, **fields}])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "mapping"),
        (small(pools=[]), "no pools"),
        (small(projects=[]), "no projects"),
        (
            a_policy(departments=[{"name": "research", "quota": {"p5": 2}}]),
            "project quotas of research add up to 3 p5, its quota is 2",
        ),
        (project(quota={"p6": 1}), "quota of default names the pool p6, which does not exist"),
        (project(pools=["p6"]), "pools of default names the pool p6"),
        (project(quota={"p5": 2}, limit={"p5": 1}), "its limit only 1"),
        (project(quota={"p5": -1}), "negative"),
        (small(pools=[{"name": "a", "capacity": 1}, {"name": "b", "capacity": 1}]), "no instance_type"),
        (pool(capacity=HUGE), "capacity of p5"),
        (pool(capacity=MOST_INSTANCES + 1), "capacity of p5"),
        (pool(capacity=1.5), "whole number"),
        (pool(min_runtime=HUGE), "number from 0"),
        (pool(min_runtime=1e17), "min_runtime of p5"),
        (pool(name="x" * 64), "is not a name"),
        (pool(name="p 5"), "is not a name"),
        (pool(name="p5,p4"), "is not a name"),
        (pool(name="p5+p4"), "is not a name"),
        (pool(name="-p5"), "is not a name"),
        (pool(name="p5\n"), "is not a name"),
        (pool(name="п5"), "is not a name"),
        (pool(instance_type="p5.48xlarge"), "instance_type of p5"),
        (pool(instance_type="x" * 10_000), "instance_type of p5"),
        (pool(training_plan="arn:x"), "training_plan of p5"),
        (project(over_quota=HUGE), "number from 0"),
        (project(over_quota=1e17), "over_quota of default"),
        (project(quota={"p5": HUGE}), "quota of default"),
        (project(limit={"p5": HUGE}), "limit of default"),
        (project(quota={"x" * 5000: 1}), "does not exist"),
        (project(priority_ceiling=HUGE), "priority_ceiling of default"),
        (project(priority_ceiling=-MAX_PRIORITY - 1), "priority_ceiling of default"),
        (project(members=["*", 7]), "members[1]"),
        (project(members={"a": 1}), "must be a list"),
        (project(members=["*", "ada"]), "'ada' among the members of default is not an ARN"),
        (project(members=["arn:aws:sts::111122223333:assumed-role/Research"]), "give the role's ARN"),
        (project(members=["x" * 10_000]), "is not an ARN"),
        (small(settings={"window": 0}), "settings.window"),
        (small(settings={"window": HUGE}), "settings.window"),
        (small(settings={"window": WIDEST_WINDOW + 1}), "settings.window"),
        (small(settings={"max_waiting": 0}), "settings.max_waiting"),
        (small(settings={"max_waiting": MOST_WAITING + 1}), "settings.max_waiting"),
        (small(settings={"aging": 0}), "settings.aging"),
        (small(settings={"aging": 5e-324}), "settings.aging"),
        (small(settings={"order": "longest"}), "policy.settings.order: must be submission or shortest, not 'longest'"),
        (small(settings={"order": ["shortest"]}), "policy.settings.order: must be submission or shortest"),
        (small(settings={"backfill": True}), "policy.settings.backfill: must be bounded or predicted, not True"),
        (small(settings={"stretch": 0}), "settings.stretch must be above 0, and at most 10000"),
        (small(settings={"stretch": 10_001}), "settings.stretch"),
        (small(settings={"patience": 1e18}), "settings.patience"),
        (small(settings={"usage_half_life": 59}), "settings.usage_half_life must be at least 60 seconds, or null"),
        (small(settings={"usage_half_life": 1e17}), "settings.usage_half_life may be at most"),
        (small(settings={"usage_half_life": "1d"}), "policy.settings.usage_half_life: must be a number from 0"),
        (project(budget=500), "policy.projects[0].budget: must be a mapping of fields"),
        (project(budget={"period": "month"}), "policy.projects[0].budget: the field instance_hours is missing"),
        (project(budget={"instance_hours": 9}), "policy.projects[0].budget: the field period is missing"),
        (
            project(budget={"instance_hours": 9, "period": "year"}),
            "policy.projects[0].budget.period: must be day, week, month or a number of days, not 'year'",
        ),
        (project(budget={"instance_hours": 9, "period": 0}), "or a number of days, not 0"),
        (project(budget={"instance_hours": 9, "period": True}), "or a number of days, not True"),
        (project(budget={"instance_hours": 9, "period": 367}), "period in the budget of default may be at most 366"),
        (project(owner_budget={"instance_hours": 0, "period": "day"}), "instance_hours in the owner_budget of default"),
        (project(budget={"instance_hours": HUGE, "period": "day"}), "number from 0"),
        (project(budget={"instance_hours": 1e10, "period": "day"}), "must be above 0, and at most 1000000000"),
        (project(budget={"instance_hours": 9, "period": "day", "kind": "firm"}), "must be hard or soft, not 'firm'"),
        (project(budget={"instance_hours": 9, "period": UNLIMITED}), "period in the budget of default may be at most"),
        (small(settings={"window": UNLIMITED}), "window"),
        (small(settings={"max_waiting": UNLIMITED}), "max_waiting"),
        (project(priority_ceiling=UNLIMITED), "priority_ceiling"),
        (small(pools=[{"name": "p", "instance_type": P5, "capacity": UNLIMITED}]), "the field capacity is missing"),
        (small(pools=[{"name": "p", "capacity": 1, "shared": True, "gpus": UNLIMITED}]), "gpus of p"),
        (project(budget={"hours": 9}), "the field instance_hours is missing"),
        (small(pools=[{"name": f"p{n}", "instance_type": P5, "capacity": 1} for n in range(MOST_POOLS + 1)]), "pools"),
        (small(projects=[{"name": f"p{n}"} for n in range(MOST_QUOTA_HOLDERS + 1)]), "departments and projects"),
        (
            small(projects=[{"name": f"p{n}", "quota": {f"q{n}": 1}} for n in range(MOST_QUOTA_HOLDERS)]),
            "more faults",
        ),
        (small(projects=[{"name": "a", "colour" * 9000: 1}]), "unknown field"),
        (small(prices=[1]), "must map instance types to prices"),
        (small(prices={P5: "98"}), f"policy.prices.{P5}: must be a number from 0"),
        (small(prices={P5: -1}), "must be a number from 0"),
        (small(prices={P5: True}), "must be a number from 0"),
        (small(prices={P5: float("nan")}), "must be a number from 0"),
        (small(prices={P5: HUGE}), "must be a number from 0"),
        (small(prices={P5: HIGHEST_PRICE + 1}), f"a price of {P5} is above"),
        (small(prices={P5: {"spot": HIGHEST_PRICE + 1}}), f"a price of {P5} is above"),
        (small(prices={P5: {"reserved": 1}}), "unknown field 'reserved'; known are on_demand, spot, training_plan"),
        (small(projects=[{"name": "a", "limits": {"p5": 1}}]), "unknown field 'limits'; did you mean limit? Known are"),
        (small(prices={"p5": 98}), "'p5', which is not a SageMaker instance type"),
        (small(prices={f"ml.p{n}.large": 1 for n in range(MOST_PRICES + 1)}), "prices of 501 instance types"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, str) else "",
)
def test_a_policy_that_may_not_be_applied_is_refused_with_its_fault(document: object, words: str) -> None:
    message = refusal(document)
    assert words in message
    assert len(message) < 5000


def test_all_issues_are_in_one_message() -> None:
    message = refusal(a_policy(projects=[{"name": "a", "quota": {"p6": 1}, "pools": ["p7"]}]))
    assert "p6" in message
    assert "p7" in message


def test_a_price_is_that_of_every_market_or_of_one() -> None:
    prices = parse_policy(a_policy(prices={P5: 98.3, "ml.g5.xlarge": {"spot": 0.5}})).prices
    assert prices == {P5: 98.3, "ml.g5.xlarge": Prices(spot=0.5)}
    assert parse_policy(a_policy()).prices == {}


def test_oversubscription_may_be_allowed() -> None:
    generous = a_policy(
        departments=[{"name": "research", "quota": {"p5": 9}}], settings={"allow_oversubscription": True}
    )
    assert parse_policy(generous).departments[0].quota == {"p5": 9}


# --- what a demand asks for --------------------------------------------------------------------------


def test_a_demand_is_served_by_the_pools_of_its_type() -> None:
    policy = parse_policy(a_policy())
    assert alternatives(a_job(project="vision", demand=({P5: 2},)), policy) == ({"p5": 2},)
    assert alternatives(a_job(project="vision", demand=({P5: 2}, {P4: 4})), policy) == ({"p5": 2}, {"p4": 4})
    assert alternatives(a_job(project="vision", demand=({P5: 1, P4: 2},)), policy) == ({"p5": 1, "p4": 2},)


def test_a_type_that_no_allowed_pool_has_is_no_pool() -> None:
    policy = parse_policy(a_policy())
    assert alternatives(a_job(project="ops", demand=({P5: 1},)), policy) == ({P5: 1},)
    assert alternatives(a_job(project="vision", demand=({"ml.g5.xlarge": 1},)), policy) == ({"ml.g5.xlarge": 1},)


def test_the_tag_pools_names_alternatives_in_its_order() -> None:
    policy = parse_policy(a_policy())
    job = a_job(project="vision", demand=({P5: 2},), pools=("p4", "p5"))
    assert alternatives(job, policy) == ({"p4": 2}, {"p5": 2})


def test_the_tag_pools_leaves_a_job_on_its_training_plan() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    pools = [
        {"name": "plan", "instance_type": P5, "capacity": 4, "training_plan": plan},
        {"name": "p5", "instance_type": P5, "capacity": 4},
        {"name": "p4", "instance_type": P4, "capacity": 4},
    ]
    policy = parse_policy({"pools": pools, "projects": [{"name": "default"}]})
    planned = a_job(demand=({P5: 2},), plans=(plan,), pools=("p5", "p4", "plan"))
    assert alternatives(planned, policy) == ({"plan": 2},)
    assert alternatives(replace(planned, pools=("p5", "p4")), policy) == ()
    of_types = replace(planned, demand=({P5: 2}, {P4: 1}), plans=(plan, None))
    assert alternatives(of_types, policy) == ({"p4": 1}, {"plan": 2})
    assert alternatives(replace(planned, plans=()), policy) == ({"p5": 2}, {"p4": 2}, {"plan": 2})


def test_the_best_size_comes_first_in_each_pool() -> None:
    policy = parse_policy(a_policy())
    elastic = of_sizes(({P5: 4},), (4, 2))
    assert elastic == ({P5: 4}, {P5: 2})
    assert alternatives(a_job(project="vision", demand=elastic), policy) == ({"p5": 4}, {"p5": 2})
    named = a_job(project="vision", demand=elastic, pools=("p4", "p5"))
    assert alternatives(named, policy) == ({"p4": 4}, {"p5": 4}, {"p4": 2}, {"p5": 2})
    of_types = a_job(project="vision", demand=of_sizes(({P5: 4}, {P4: 4}), (4, 2)))
    assert alternatives(of_types, policy) == ({"p5": 4}, {"p4": 4}, {"p5": 2}, {"p4": 2})
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    planned = a_job(demand=elastic, plans=(plan, plan))
    pools = [{"name": "plan", "instance_type": P5, "training_plan": plan}, {"name": "p5", "instance_type": P5}]
    pools[1]["capacity"] = 9  # type: ignore[assignment]
    with_plan = parse_policy({"pools": pools, "projects": [{"name": "default"}]})
    assert alternatives(planned, with_plan) == ({"plan": 4}, {"plan": 2})


def test_sizes_are_told_from_other_alternatives() -> None:
    assert a_job(demand=({P5: 4}, {P5: 2})).sizes == (4, 2)
    assert a_job(demand=({P5: 4}, {P4: 4}, {P5: 2}, {P4: 2})).sizes == (4, 2)
    for demand in (({P5: 4},), ({P5: 2}, {P4: 4}), ({P5: 1, P4: 2},)):
        assert a_job(demand=demand).sizes == ()


def test_jobs_of_whatever_sizes_wait_in_one_queue() -> None:
    """Each waiting queue is a read in every cycle."""
    assert waiting_queue("a", ({P5: 4}, {P5: 2})) == waiting_queue("a", ({P5: 1},))
    assert needs_one_known_type(a_job(project="vision", demand=({P5: 4}, {P5: 2})), parse_policy(a_policy()))


def test_several_pools_of_a_type_are_tried_in_the_projects_order() -> None:
    pools = [{"name": f"p{n}", "instance_type": P5, "capacity": 9} for n in range(6)]
    policy = parse_policy({"pools": pools, "projects": [{"name": "a", "pools": ["p3", "p1"]}, {"name": "b"}]})
    assert alternatives(a_job(project="a", demand=({P5: 1},)), policy) == ({"p3": 1}, {"p1": 1})
    mixed = a_job(project="b", demand=({P5: 1, "ml.x": 1},))
    assert len(alternatives(mixed, policy)) <= MOST_COMBINATIONS


def test_combinations_in_several_regions_leave_room_for_those_in_one() -> None:
    away = {"region": "us-west-2"}
    pools = [{"name": "p5", "instance_type": P5, "capacity": 9}]
    pools += [{"name": f"far{n}", "instance_type": P4, "capacity": 9, **away} for n in range(MOST_COMBINATIONS)]
    pools += [{"name": "p4", "instance_type": P4, "capacity": 9}]
    policy = parse_policy({"pools": pools, "projects": [{"name": "a"}]})
    job = a_job(project="a", demand=({P5: 1, P4: 2},), portability=Portability())
    assert alternatives(job, policy) == ({"p5": 1, "p4": 2},)


def test_002_the_list_of_a_project_counts_among_pools_of_the_type_that_the_request_names() -> None:
    """Document 002, "Default node-pool list": here it is no default across instance types; the tag is, as docs say."""
    policy = parse_policy(a_policy())
    assert policy.projects[0].pools == ("p5", "p4")
    plain = a_job(project="vision", demand=({P4: 1},))
    assert alternatives(plain, policy) == ({"p4": 1},)
    assert alternatives(replace(plain, pools=("p5", "p4")), policy) == ({"p5": 1}, {"p4": 1})


def test_a_project_that_is_gone_allows_nothing() -> None:
    assert alternatives(a_job(project="gone", demand=({P5: 1},)), parse_policy(a_policy())) == ({P5: 1},)


def test_sagemaker_gets_a_plain_request_for_the_chosen_alternative() -> None:
    policy = parse_policy(a_policy())
    request = a_request()
    request["ResourceConfig"] = {
        "InstancePreferences": [{"InstanceType": P5, "InstanceCount": 1}, {"InstanceType": P4, "InstanceCount": 2}],
        "VolumeSizeInGB": 30,
    }
    job = a_job(project="vision", demand=({P5: 1}, {P4: 2}), slots={"p4": 2}, state=JobState.STARTING)
    sent = request_for_slots(TrainingRequest.read(request), job, policy)["ResourceConfig"]
    assert sent == {"InstanceType": P4, "InstanceCount": 2, "VolumeSizeInGB": 30}


def test_sagemaker_gets_a_plain_request_for_the_chosen_size() -> None:
    policy = parse_policy(a_policy())
    job = a_job(project="vision", demand=({P5: 4}, {P5: 2}), slots={"p5": 2}, state=JobState.STARTING)
    request = a_request(instances=4)
    assert request_for_slots(TrainingRequest.read(request), job, policy)["ResourceConfig"] == request[
        "ResourceConfig"
    ] | {"InstanceCount": 2}
    anywhere = default_policy(8).policy
    job = a_job(demand=({P5: 4}, {P5: 2}), slots={"default": 2}, state=JobState.STARTING)
    assert request_for_slots(TrainingRequest.read(request), job, anywhere)["ResourceConfig"] == request[
        "ResourceConfig"
    ] | {"InstanceCount": 2}


def test_a_pools_training_plan_and_spot_go_into_the_request() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    pools = [
        {"name": "plan", "instance_type": P5, "capacity": 1, "training_plan": plan},
        {"name": "spot", "instance_type": P5, "capacity": 1, "spot": True},
    ]
    policy = parse_policy({"pools": pools, "projects": [{"name": "default"}]})
    planned = request_for_slots(TrainingRequest.read(a_request()), a_job(slots={"plan": 1}), policy)
    assert planned["ResourceConfig"]["TrainingPlanArn"] == plan
    assert "EnableManagedSpotTraining" not in planned
    spot = request_for_slots(TrainingRequest.read(a_request()), a_job(slots={"spot": 1}), policy)
    assert spot["EnableManagedSpotTraining"] is True
    assert spot["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 86400}
    assert "TrainingPlanArn" not in spot["ResourceConfig"]
