"""Interactive jobs: document 002 (Run:ai), "Interactive, Training and Inference" and "Allocation & Preemption"."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from job_queue.scheduler import (
    ActiveJob,
    Interactive,
    JobState,
    Plan,
    Policy,
    Rule,
    Snapshot,
    WaitingJob,
    WaitReason,
    plan,
)
from job_queue.scheduler.documents.policy_document import DocumentError, policy_from_document
from job_queue.scheduler.documents.scenario import scenario_from_document
from tests.builders import a_policy, a_snapshot, active, department, project, starting, stopping, waiting
from tests.unit.scheduler.decided import evicted, reasons, started
from tests.unit.scheduler.snapshots import SMALL, Kind, snapshots


def lab(name: str, *need: Any, **fields: Any) -> WaitingJob:
    """An interactive job that waits."""
    return waiting(name, *need, **{"interactive": True, "preemptible": False, "priority": 0, **fields})


def open_lab(name: str, slots: Any = 1, **fields: Any) -> ActiveJob:
    """An interactive job that runs."""
    return active(name, slots, **{"interactive": True, "preemptible": False, "priority": 0, **fields})


# --- within quota --------------------------------------------------------------------------------------


def test_it_waits_for_one_stop_and_nobody_else_is_stopped_meanwhile() -> None:
    policy = a_policy(2, [project("a", 2)])
    first = plan(a_snapshot(active("t1", priority=50), active("t2", priority=9), lab("lab"), policy=policy))
    assert list(evicted(first)) == ["t1"] or list(evicted(first)) == ["t2"]
    assert [eviction.rule for eviction in first.evictions] == [Rule.PREEMPT]
    reserved = {"lab": {"p5": 1}}
    later = a_snapshot(stopping("t1", comes_back=True), active("t2", priority=9), lab("lab"), policy=policy)
    decided = plan(replace(later, reserved=reserved))
    assert not decided.evictions
    assert reasons(decided) == {"lab": WaitReason.WAITING_FOR_STOPPING}


def test_a_gang_of_instances_takes_as_many_as_it_needs_and_no_more() -> None:
    running = [active(f"t{number}", priority=number, ran=1000 * (number + 1)) for number in range(4)]
    decided = plan(a_snapshot(*running, lab("lab", 2), policy=a_policy(4, [project("a", 4)])))
    assert set(evicted(decided)) == {"t0", "t1"}, "those that lose least"


def test_a_guaranteed_runtime_holds() -> None:
    policy = a_policy(1, [project("a", 1)], min_runtime=900)
    decided = plan(a_snapshot(active("t", ran=60), lab("lab"), policy=policy))
    assert not decided.evictions
    message = decided.holds[0].message
    assert "guaranteed to run until" in message


def test_a_job_that_is_being_launched_is_waited_for() -> None:
    decided = plan(a_snapshot(starting("t", priority=50), lab("lab"), policy=a_policy(1, [project("a", 1)])))
    assert not decided.evictions
    assert not started(decided)


def test_a_start_of_the_same_plan_is_not_made_where_an_interactive_job_needs_the_slot() -> None:
    policy = a_policy({"p5": 1, "p4": 1}, ["a"])
    decided = plan(a_snapshot(waiting("t", {"p5": 1}, priority=50), lab("lab", {"p5": 1}, waited=1), policy=policy))
    assert started(decided) == {"lab": {"p5": 1}}
    assert reasons(decided) == {"t": WaitReason.WAITING_FOR_CAPACITY}
    assert "No job of its project runs there." not in decided.holds[0].message


def test_training_behind_it_says_that_it_is_interactive() -> None:
    policy = a_policy(2, [project("a", 2)], min_runtime=9000)
    decided = plan(a_snapshot(active("t", 2, ran=60), lab("lab"), waiting("t2", priority=50), policy=policy))
    (hold,) = [hold for hold in decided.holds if hold.job == "t2"]
    assert hold.reason is WaitReason.BEHIND_HIGHER_PRIORITY
    assert hold.message.startswith("Waits behind lab (interactive), which also waits for instances.")
    assert hold.ahead == ("lab",)


def test_the_department_bounds_it_as_well() -> None:
    policy = a_policy(4, [project("a", 2, department="x"), project("b", 2, department="x")], [department("x", 2)])
    held = [open_lab("b1", project="b"), open_lab("b2", project="b")]
    decided = plan(a_snapshot(*held, lab("lab"), policy=policy))
    assert reasons(decided) == {"lab": WaitReason.OVER_QUOTA_NON_PREEMPTIBLE}


def test_beyond_quota_it_keeps_no_training_job_from_preempting() -> None:
    policy = a_policy(2, [project("a", 2)])
    jobs = (open_lab("l1"), active("low", priority=1), lab("l2", 2), waiting("high", priority=9))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert list(evicted(decided)) == ["low"]
    assert reasons(decided) == {"l2": WaitReason.OVER_QUOTA_NON_PREEMPTIBLE, "high": WaitReason.WAITING_FOR_STOPPING}


# --- owners ----------------------------------------------------------------------------------------------


def test_an_owner_has_as_many_as_the_policy_allows() -> None:
    jobs = [lab(f"l{number}", owner="ann", waited=100 - number) for number in range(4)]
    policy = replace(a_policy(9), interactive=Interactive(max_per_owner=2))
    decided = plan(a_snapshot(open_lab("l", owner="ann"), *jobs, lab("other", owner="bob"), policy=policy))
    assert started(decided).keys() == {"l0", "other"}
    assert reasons(decided) == dict.fromkeys(("l1", "l2", "l3"), WaitReason.OWNER_LIMIT)
    hold = decided.holds[0]
    assert hold.blockers == ("l", "l0")
    assert hold.message == (
        "An owner may have 2 interactive jobs at a time (interactive.max_per_owner in the policy). "
        "It waits until l and l0 have ended."
    )


def test_beyond_quota_is_said_before_the_limit_of_its_owner() -> None:
    jobs = (open_lab("l1", owner="ann"), lab("l2", owner="ann"))
    decided = plan(a_snapshot(*jobs, policy=a_policy(2, [project("a", 1)])))
    assert reasons(decided) == {"l2": WaitReason.OVER_QUOTA_NON_PREEMPTIBLE}
    assert "jobs that are not preemptible hold 1 of it" in decided.holds[0].message


@pytest.mark.parametrize("department_quota", [0, 2])
def test_a_job_without_quota_takes_no_place_of_its_owner(department_quota: int) -> None:
    projects = [project("a", 0 if department_quota else 1, department="x"), project("b", 2)]
    policy = a_policy(4, projects, [department("x", department_quota)])
    jobs = (lab("l1", owner="ann", project="a", waited=100), lab("l2", owner="ann", project="b", waited=50))
    decided = plan(a_snapshot(*jobs, policy=policy))
    assert started(decided).keys() == {"l2"}
    assert reasons(decided) == {"l1": WaitReason.OVER_QUOTA_NON_PREEMPTIBLE}


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING, JobState.STOPPING])
def test_whatever_holds_slots_counts(state: JobState) -> None:
    jobs = (open_lab("l", owner="ann", state=state), lab("l1", owner="ann"))
    assert reasons(plan(a_snapshot(*jobs, policy=9))) == {"l1": WaitReason.OWNER_LIMIT}


def test_of_those_that_wait_the_first_is_the_one_with_slots_set_aside() -> None:
    jobs = (stopping("t", 2, comes_back=True), lab("l1", owner="ann", waited=900), lab("l2", owner="ann"))
    decided = plan(replace(a_snapshot(*jobs, policy=2), reserved={"l2": {"p5": 1}}))
    assert reasons(decided) == {"l2": WaitReason.WAITING_FOR_STOPPING, "l1": WaitReason.OWNER_LIMIT}
    assert "another job of its owner comes first" in next(it for it in decided.holds if it.job == "l1").message


@pytest.mark.parametrize("settings", [Interactive(max_per_owner=None), Interactive(first=False)])
def test_owners_are_not_limited_without_a_limit_or_without_the_feature(settings: Interactive) -> None:
    jobs = [lab(f"l{number}", owner="ann") for number in range(3)]
    assert len(started(plan(a_snapshot(*jobs, policy=replace(a_policy(9), interactive=settings))))) == 3


# --- documents -------------------------------------------------------------------------------------------

DOCUMENT = {"pools": [{"name": "p5", "capacity": 1}], "projects": [{"name": "a"}]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, Interactive(first=True, max_per_owner=1, idle_end=3600)),
        ({"first": False}, Interactive(first=False)),
        ({"max_per_owner": None}, Interactive(max_per_owner=None)),
        ({"max_per_owner": 3, "idle_end": 60}, Interactive(max_per_owner=3, idle_end=60)),
    ],
)
def test_a_policy_says_how_interactive_jobs_are_treated(document: dict[str, Any], expected: Interactive) -> None:
    assert policy_from_document({**DOCUMENT, "interactive": document}).interactive == expected
    assert policy_from_document(DOCUMENT).interactive == Interactive()


@pytest.mark.parametrize("document", [{"first": 1}, {"max_per_owner": -1}, {"idle_end": "1h"}, {"most": 1}, []])
def test_what_a_policy_says_wrong_is_named(document: object) -> None:
    with pytest.raises(DocumentError, match=r"policy\.interactive"):
        policy_from_document({**DOCUMENT, "interactive": document})


def test_in_a_scenario_an_interactive_job_is_not_preemptible() -> None:
    job = {"job": "lab", "project": "a", "priority": 0, "entered": "2026-11-20T11:00:00Z", "interactive": True}
    found = scenario_from_document({"policy": DOCUMENT, "waiting": [{**job, "demand": [{"p5": 1}]}]})
    assert (found.waiting[0].interactive, found.waiting[0].preemptible) == (True, False)
    found = scenario_from_document({"policy": DOCUMENT, "active": [{**job, "slots": {"p5": 1}}]})
    assert (found.active[0].interactive, found.active[0].preemptible) == (True, False)
    with pytest.raises(DocumentError, match=r"waiting\[0\]\.preemptible"):
        scenario_from_document({"policy": DOCUMENT, "waiting": [{**job, "demand": [{"p5": 1}], "preemptible": True}]})


# --- properties ------------------------------------------------------------------------------------------

ordinary = settings(deadline=None)
QUIET = replace(SMALL, patience=False, pauses=False, movers=False, guarantees=False, shrunk=False, oversubscribed=False)


def with_interactive(snapshot: Snapshot) -> Snapshot:
    """Make jobs of the lowest two priorities, and all that may not be stopped, interactive."""

    def changed(job: Any) -> Any:
        interactive = not job.preemptible or (isinstance(job, WaitingJob) and job.priority <= 2)
        owner = f"owner-{job.priority}-{len(job.name)}"
        return replace(job, interactive=interactive, preemptible=not interactive, owner=owner)

    return replace(snapshot, active=tuple(map(changed, snapshot.active)), waiting=tuple(map(changed, snapshot.waiting)))


def held(jobs: Iterable[tuple[str, Any]], snapshot: Snapshot) -> Counter[tuple[str, str]]:
    """Slots by queue and pool of jobs, each given by its project and its slots."""
    departments = {it.name: it.department for it in snapshot.policy.projects}
    found: Counter[tuple[str, str]] = Counter()
    for name, slots in jobs:
        for queue in filter(None, (name, departments.get(name))):
            for pool, count in slots.items():
                found[queue, pool] += count
    return found


def quotas(policy: Policy) -> Counter[tuple[str, str]]:
    holders = [*((it.name, it.quota) for it in policy.projects), *((it.name, it.quota) for it in policy.departments)]
    return Counter({(name, pool): count for name, quota in holders for pool, count in quota.items()})


@ordinary
@given(snapshots(Kind()))
def test_an_interactive_job_is_never_preempted(snapshot: Snapshot) -> None:
    snapshot = with_interactive(snapshot)
    interactive = {job.name for job in snapshot.active if job.interactive}
    assert not interactive & {eviction.job for eviction in plan(snapshot).evictions}


@ordinary
@given(snapshots(Kind()))
def test_interactive_jobs_never_exceed_the_quota(snapshot: Snapshot) -> None:
    snapshot = with_interactive(snapshot)
    decided, waits = plan(snapshot), {job.name: job for job in snapshot.waiting}
    before = held(((job.project, job.slots) for job in snapshot.active if job.interactive), snapshot)
    new = [(waits[it.job].project, it.slots) for it in decided.starts if waits[it.job].interactive]
    new += [(waits[name].project, slots) for name, slots in decided.reservations.items()
            if name in waits and waits[name].interactive and waits[name].name in _stays(decided)]  # fmt: skip
    quota = quotas(snapshot.policy)
    for place, count in held(new, snapshot).items():
        assert before[place] + count <= quota[place], place


def _stays(decided: Plan) -> set[str]:
    return {hold.job for hold in decided.holds if hold.reason is WaitReason.WAITING_FOR_STOPPING}


@ordinary
@given(snapshots(QUIET))
def test_within_quota_it_never_waits_behind_training_of_its_project(snapshot: Snapshot) -> None:
    snapshot = with_interactive(snapshot)
    decided, waits = plan(snapshot), {job.name: job for job in snapshot.waiting}
    gone = {eviction.job for eviction in decided.evictions}
    stay = [job for job in snapshot.active if job.name not in gone and job.state is not JobState.STOPPING]
    taken = [(it.job, it.slots) for it in decided.starts]
    taken += [(name, slots) for name, slots in decided.reservations.items() if name in waits]
    free: Counter[str] = Counter({pool.name: pool.capacity for pool in snapshot.policy.pools})
    free.subtract(snapshot.external)
    for slots in (*(job.slots for job in stay), *(slots for _, slots in taken)):
        free.subtract(slots)
    after = [(job, job.slots) for job in stay] + [(waits[name], slots) for name, slots in taken]
    quota = quotas(snapshot.policy)
    for hold in decided.holds:
        job = waits[hold.job]
        possible = hold.reason not in (
            WaitReason.HELD_BY_USER,
            WaitReason.BACKOFF,
            WaitReason.NO_SUCH_POOL,
            WaitReason.NEVER_FITS,
        )
        if (
            not job.interactive
            or not possible
            or hold.reason is WaitReason.OWNER_LIMIT
            or job.name in decided.reservations
        ):
            continue
        # What its project's training jobs hold that could leave, or would start in its place.
        training = [
            (it, slots) for it, slots in after if it.project == job.project and not it.interactive and _may_go(it)
        ]
        names = {it.name for it, _ in training}
        others = held(((it.project, slots) for it, slots in after if it.name not in names), snapshot)
        # A job that is not preemptible uses quota until it has stopped.
        stopping = [(it, it.slots) for it in snapshot.active if it not in stay and not it.preemptible]
        fixed = held(((it.project, slots) for it, slots in after + stopping if not it.preemptible), snapshot)
        room = free + sum((Counter(slots) for _, slots in training), Counter())
        for need in job.demand:
            asked = held([(job.project, need)], snapshot)
            within = all(max(others[place], fixed[place]) + count <= quota[place] for place, count in asked.items())
            assert not (within and all(room[pool] >= count for pool, count in need.items())), (job, hold)


def _may_go(job: ActiveJob | WaitingJob) -> bool:
    return isinstance(job, WaitingJob) or job.state is JobState.RUNNING
