"""Section 1: quota and fair share."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from job_queue.scheduler import Project, WaitingJob, oversubscriptions, plan
from job_queue.scheduler.fair_share import weight_of
from job_queue.scheduler.sharing.division import Recipient, divide
from tests.builders import NOW, a_policy, a_snapshot, active, department, project, stopping, stopping_for, waiting


@pytest.mark.parametrize(
    ("have", "recipients", "parts"),
    [
        pytest.param(8, [(3, 3, 9), (1, 1, 9)], [6, 2], id="the rest by weight"),
        pytest.param(8, [(3, 1, 9), (1, 3, 9)], [4, 4], id="the weight need not be the quota"),
        pytest.param(8, [(3, 3, 2), (1, 1, 9)], [2, 6], id="what one does not ask for, the other may have"),
        pytest.param(8, [(3, 3, 2), (1, 1, 3)], [2, 3], id="nobody gets more than it asks"),
        pytest.param(8, [(3, 0, 9), (1, 1, 9)], [3, 5], id="weight 0 gets its quota and no more"),
        pytest.param(8, [(3, 0, 9), (1, 0, 9)], [3, 1], id="nobody has a weight: the rest is nobody's"),
        pytest.param(2, [(3, 3, 9), (3, 3, 9)], [1, 1], id="quotas that add up to more are scaled"),
        pytest.param(3, [(3, 3, 9), (3, 3, 9)], [2, 1], id="... the odd slot in policy order"),
        pytest.param(4, [(1, 1, 1), (8, 1, 8)], [0, 4], id="... or by the largest remainder"),
        pytest.param(4, [(2, 2, 9), (1, 1, 9)], [3, 1], id="the odd slot by the largest remainder"),
        pytest.param(8, [(4, 4, 7), (2, 2, 3)], [5, 3], id="... whoever that is"),
        pytest.param(5, [(0, 1, 9), (0, 1, 9)], [3, 2], id="... and in policy order where they are equal"),
        pytest.param(9, [(0, 1, 1), (0, 1, 4), (0, 1, 9)], [1, 4, 4], id="who asks little leaves, again and again"),
        pytest.param(10, [(0, 1, 1), (0, 2, 9), (0, 2, 9)], [1, 5, 4], id="round down only at the end"),
        pytest.param(0, [(1, 1, 9)], [0], id="nothing to divide"),
    ],
)
def test_divide(have: int, recipients: Sequence[tuple[int, int, int]], parts: list[int]) -> None:
    assert divide(have, [Recipient(quota, Fraction(weight), asks) for quota, weight, asks in recipients]) == parts


@pytest.mark.parametrize(
    ("queue", "weight"),
    [
        (project("a", 3), 3),
        (project("a", 0), 1),
        (project("a", 3, over_quota=0.0), 0),
        (project("a", 3, over_quota=0.5), Fraction(1, 2)),
        (department("x", 3), 3),
        (department("x", 0), 1),
    ],
)
def test_weight(queue: Project, weight: Fraction) -> None:
    assert weight_of(queue, "p5") == weight


def test_departments_divide_first() -> None:
    projects = [project("a", 2, department="x"), project("b", 1, department="x"), project("c", 3, department="y")]
    policy = a_policy(6, projects, [department("x", 3), department("y", 3)])
    jobs = [waiting(f"{name}{n}", project=name) for name in "ac" for n in range(6)]
    assert plan(a_snapshot(*jobs, policy=policy)).shares == {"p5": {"x": 3, "y": 3, "a": 3, "b": 0, "c": 3}}


def test_where_more_jobs_wait_than_were_read_their_project_asks_for_all_there_is() -> None:
    policy = a_policy(6, [project("a", 0), project("b", 0)])
    others = [waiting(f"b{n}", project="b") for n in range(6)]

    def share(*jobs: WaitingJob) -> int:
        return plan(a_snapshot(*jobs, *others, policy=policy)).shares["p5"]["a"]

    assert share(waiting("a0", project="a")) == 1
    assert share(waiting("a0", project="a", more_wait=True)) == 3
    assert share(waiting("a0", project="a", more_wait=True, held=True)) == 0


def test_a_project_without_a_department_stands_beside_departments() -> None:
    policy = a_policy(6, [project("a", 0, department="x"), project("b", 0)], [department("x", 0)])
    jobs = [waiting(f"{name}{n}", project=name) for name in "ab" for n in range(6)]
    assert plan(a_snapshot(*jobs, policy=policy)).shares == {"p5": {"x": 3, "a": 3, "b": 3}}


def test_external_jobs_make_the_pool_smaller() -> None:
    jobs = [waiting(f"w{n}") for n in range(6)]
    for external, share in ((0, 4), (3, 1), (5, 0)):
        decided = plan(a_snapshot(*jobs, policy=a_policy(4, [project("a", 4)]), external={"p5": external}))
        assert decided.shares == {"p5": {"a": share}}


@pytest.mark.parametrize(
    ("jobs", "share"),
    [
        ([waiting("w", 2)], 2),
        ([waiting("w", 2, 3, 1)], 3),  # its largest alternative
        ([waiting("w", {"p4": 1}, {"p5": 1})], 1),  # in every pool it could run in
        ([active("r", 2), waiting("w", 1)], 3),
        ([active("r", 1, demand=({"p5": 1}, {"p5": 2}))], 2),
        ([waiting("w", 2, held=True)], 0),
        ([waiting("w", 2, backoff_until=NOW + 1)], 0),
        ([waiting("w", 9)], 0),  # never fits
        ([waiting("w", 9, 2)], 2),
        ([waiting("w", {"p5": 1, "none": 1})], 0),
        ([stopping("s", 2)], 0),  # will not come back
        ([stopping_for("w", "s", 2)], 2),
        ([stopping("s", 2, comes_back=True)], 2),
    ],
)
def test_what_jobs_ask_for(jobs: list[object], share: int) -> None:
    policy = a_policy({"p5": 4, "p4": 4}, [Project("a", quota={"p5": 4, "p4": 4})])
    assert plan(a_snapshot(*jobs, policy=policy)).shares["p5"]["a"] == share


def test_nobody_asks_for_more_than_its_limit() -> None:
    jobs = [waiting(f"{name}{n}", project=name) for name in "ab" for n in range(6)]
    projects = [project("a", 1, limit=2), project("b", 1)]
    assert plan(a_snapshot(*jobs, policy=a_policy(6, projects))).shares == {"p5": {"a": 2, "b": 4}}
    projects = [project("a", 1, department="x"), project("b", 1)]
    policy = a_policy(6, projects, [department("x", 1, limit=2)])
    assert plan(a_snapshot(*jobs, policy=policy)).shares == {"p5": {"x": 2, "a": 2, "b": 4}}


def test_a_job_asks_only_in_the_pools_of_its_project() -> None:
    policy = a_policy({"p5": 2, "p4": 2}, [Project("a", quota={"p4": 2}, pools=("p4",))])
    job = waiting("w", {"p5": 1}, {"p4": 1})
    assert plan(a_snapshot(job, policy=policy)).shares == {"p5": {"a": 0}, "p4": {"a": 1}}


def test_oversubscriptions_are_told() -> None:
    projects = [project("a", 2, department="x"), project("b", 3, department="x"), project("c", 4)]
    policy = a_policy(6, projects, [department("x", 3)])
    assert list(oversubscriptions(policy)) == [
        "project quotas of x add up to 5 p5, its quota is 3",
        "quotas of the pool p5 add up to 7, it has 6",
    ]
    assert list(oversubscriptions(a_policy(7, projects[2:], [department("x", 3)]))) == []


def test_a_pool_without_jobs_has_shares_too() -> None:
    assert plan(a_snapshot(policy=a_policy(2))).shares == {"p5": {"a": 0}}
