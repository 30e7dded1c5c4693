"""Properties of plans with members, on random snapshots; the scenarios of tests/scenarios/shared say what is usual."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from job_queue.scheduler import (
    WHOLE,
    ActiveJob,
    Carrier,
    FreeGpus,
    GpuAllocation,
    JobState,
    Plan,
    Policy,
    Pool,
    Project,
    Rule,
    Settings,
    Snapshot,
    WaitingJob,
    WaitReason,
    plan,
)
from job_queue.scheduler.documents.scenario_run import ScenarioRun
from job_queue.scheduler.planner import plan_instances
from tests.builders import NOW
from tests.unit.scheduler import snapshots as plain

LONG = settings().max_examples > 100
ordinary = settings(max_examples=settings().max_examples * (3 if LONG else 1), deadline=None)

SIZES = (1, 3, 5, 9, 10, 10, 10, 20, 40, 80)
PROJECTS = ("a", "b")
KINDS = ("k1", "k2", "fixed")  # the last: of those that may not be stopped


def shared(seed: int) -> Snapshot:
    """A snapshot with carriers, members and whole-instance jobs."""
    draw = Random(seed)
    instances = draw.randint(0, 4)
    quotas = {name: draw.randint(0, max(1, instances)) for name in PROJECTS}
    settings = Settings(
        min_runtime=draw.choice((0, 0, 900)),
        patience=draw.choice((None, 1000.0)),
        allow_oversubscription=True,
        idle_after=draw.choice((None, 600.0)),
    )
    policy = Policy(
        pools=(Pool("p5", instances, "ml.p5.48xlarge", gpus=8, keep_warm=draw.choice((None, 600.0))),),
        projects=tuple(Project(name, quota={"p5": quotas[name]}) for name in PROJECTS),
        settings=settings,
    )
    carriers, active = [], []
    for number in range(draw.randint(0, instances)):
        started = NOW - draw.choice((60, 1200, 3000))
        if draw.random() < 0.3:
            active.append(whole_instance(draw, f"w{number}", started))
            continue
        carrier = a_carrier(draw, f"c{number}", started)
        carriers.append(carrier)
        if carrier.state is not JobState.STARTING:
            active.extend(carrier_attempt(draw, carrier))
    return Snapshot(
        policy=policy,
        now=NOW,
        active=tuple(active),
        waiting=tuple(one_waiting(draw, f"m{number}") for number in range(draw.randint(0, 12))),
        carriers=tuple(carriers),
        external={"p5": draw.choice((0, 0, 0, 1))},
    )


def whole_instance(draw: Random, name: str, started: float) -> ActiveJob:
    project, priority = draw.choice(PROJECTS), draw.randint(0, 3)
    state = draw.choice((JobState.RUNNING, JobState.STARTING))
    preemptible, group = draw.random() < 0.8, draw.choice((None, "g"))
    return ActiveJob(name, project, priority, {"p5": 1}, state, started, started, preemptible, group=group)


def a_carrier(draw: Random, name: str, started: float) -> Carrier:
    kind = draw.choice(KINDS)
    state = draw.choice((JobState.RUNNING, JobState.RUNNING, JobState.RUNNING, JobState.STARTING, JobState.STOPPING))
    return Carrier(name, "p5", draw.choice(PROJECTS), kind, 8, state, started, preemptible=kind != "fixed")


def carrier_attempt(draw: Random, carrier: Carrier) -> Iterator[ActiveJob]:
    row = FreeGpus(carrier.gpus)
    for number in range(draw.randint(0, 6)):
        size = draw.choice(SIZES)
        if (gpus := row.find_gpus(size)) is None:
            continue
        allocation = GpuAllocation(carrier.name, gpus, min(size, WHOLE))
        row.add(allocation)
        leaves = carrier.state is JobState.STOPPING or draw.random() < 0.15
        started = max(carrier.started, NOW - draw.choice((0, 300, 1200)))
        yield ActiveJob(
            name=f"{carrier.name}-{number}",
            project=carrier.project,
            priority=draw.randint(0, 3),
            slots={},
            state=JobState.STOPPING if leaves else draw.choice((JobState.RUNNING, JobState.STARTING)),
            entered=started,
            started=started,
            preemptible=carrier.preemptible,
            allocation=allocation,
            kind=carrier.kind,
            comes_back=leaves,
            max_runtime=draw.choice((None, 3600.0)),
        )


def one_waiting(draw: Random, name: str) -> WaitingJob:
    member, kind = draw.random() < 0.8, draw.choice(KINDS)
    return WaitingJob(
        name=name,
        project=draw.choice(PROJECTS),
        priority=draw.randint(0, 3),
        demand=({"p5": 1},),
        entered=NOW - draw.choice((0, 600, 1200, 3000)),
        gpus=draw.choice(SIZES) if member else None,
        kind=kind if member else "",
        preemptible=kind != "fixed" if member else draw.random() < 0.8,
        max_runtime=draw.choice((None, 600.0, 86400.0)),
        group=draw.choice((None, None, None, "g")),
        max_parallel=2,
    )


snapshots = st.builds(shared, st.integers(0, 2**32))


def rounds(snapshot: Snapshot, most: int = 12) -> Iterator[tuple[Snapshot, Plan]]:
    run = ScenarioRun(snapshot)
    for _ in range(most):
        before, decided = run.snapshot, plan(run.snapshot)
        yield before, decided
        if not run.apply(decided):
            return


def free_gpus(snapshot: Snapshot) -> dict[tuple[str, int], int]:
    free = {(it.name, gpu): WHOLE for it in snapshot.carriers for gpu in range(it.gpus)}
    for job in snapshot.active:
        for gpu in job.allocation.gpus if job.allocation else ():
            assert job.allocation is not None
            free[job.allocation.carrier, gpu] -= job.allocation.tenths
    return free


@ordinary
@given(snapshots)
def test_nobody_gets_what_another_has(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        free = free_gpus(before)
        for it in decided.allocations:
            for gpu in it.allocation.gpus:
                free[it.allocation.carrier, gpu] -= it.allocation.tenths
        assert all(left >= 0 for left in free.values())
        used = Counter(before.external)
        for job in before.active:
            used.update(job.slots)
        for slots in (*(it.slots for it in decided.starts), *(it.slots for it in decided.launches)):
            used.update(slots)
        starts = len(decided.starts) + len(decided.launches)
        assert not starts or used["p5"] + len(before.carriers) <= before.policy.pools[0].capacity


@ordinary
@given(snapshots)
def test_an_allocation_is_what_was_asked_for(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        jobs = {job.name: job for job in before.waiting}
        carriers = {carrier.name: carrier for carrier in before.carriers}
        for it in decided.allocations:
            job, carrier = jobs[it.job], carriers[it.allocation.carrier]
            assert it.allocation.size == job.gpus
            assert (carrier.project, carrier.kind) == (job.project, job.kind)
            assert carrier.state is JobState.RUNNING
            assert carrier.name not in {eviction.job for eviction in decided.evictions}
            assert carrier.name not in decided.carriers_to_close
        for launch in decided.launches:
            assert len({(jobs[name].project, jobs[name].kind) for name in launch.members}) == 1


@ordinary
@given(snapshots)
def test_everybody_is_told_once(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        told = (
            [it.job for it in decided.starts]
            + [it.job for it in decided.allocations]
            + [it.job for it in decided.holds]
        )
        assert sorted(told) == sorted(job.name for job in before.waiting)
        evicted = [eviction.job for eviction in decided.evictions]
        assert len(set(evicted)) == len(evicted)
        assert not set(evicted) & set(decided.carriers_to_close)


@ordinary
@given(snapshots)
def test_no_group_has_more_than_it_may(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        jobs = {job.name: job for job in before.waiting}
        active = Counter((job.project, job.group) for job in before.active if job.group is not None)
        for name in (*(it.job for it in decided.starts), *(it.job for it in decided.allocations)):
            job = jobs[name]
            if job.group is not None:
                active[job.project, job.group] += 1
                # A job that was active at first may have a group without a limit.
                assert job.max_parallel is None or active[job.project, job.group] <= job.max_parallel


@ordinary
@given(snapshots)
def test_who_may_not_leave_stays(snapshot: Snapshot) -> None:
    for before, decided in rounds(snapshot):
        jobs = {job.name: job for job in before.active}
        carriers = {carrier.name: carrier for carrier in before.carriers}
        for eviction in decided.evictions:
            if eviction.job in carriers:
                left = [job for job in before.active if job.allocation and job.allocation.carrier == eviction.job]
                assert carriers[eviction.job].preemptible
            else:
                left = [jobs[eviction.job]]
                assert left[0].state is not JobState.STOPPING
            assert all(job.preemptible for job in left)
        for carrier in decided.carriers_to_close:
            assert not any(job.allocation and job.allocation.carrier == carrier for job in before.active)


@ordinary
@given(snapshots)
def test_no_member_leaves_needlessly(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    active, waiting = {it.name: it for it in snapshot.active}, {it.name: it for it in snapshot.waiting}
    by_claimant: dict[str, list[ActiveJob]] = {}
    for it in decided.evictions:
        if it.job in active and active[it.job].allocation is not None and it.rule is Rule.PREEMPT:
            by_claimant.setdefault(it.claimant, []).append(active[it.job])
    for claimant, victims in by_claimant.items():
        assert len({it.allocation.carrier for it in victims if it.allocation}) == 1
        assert all(it.priority < waiting[claimant].priority for it in victims)
        size = waiting[claimant].gpus or 0
        assert sum(it.allocation.size for it in victims[1:] if it.allocation) < size


@ordinary
@given(snapshots, st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(snapshot: Snapshot, random: Random) -> None:
    other = plain.shuffled(snapshot, random)
    other = replace(other, carriers=tuple(random.sample(other.carriers, len(other.carriers))))
    assert plan(other) == plan(snapshot)


@ordinary
@given(snapshots)
@example(shared(17272004))  # a carrier was closed for a job, and another one launched for its members, without end
def test_it_comes_to_rest(snapshot: Snapshot) -> None:
    run = ScenarioRun(snapshot)
    for _ in range(40):
        if not run.apply(plan(run.snapshot)):
            return
    raise AssertionError("it goes on and on")


@ordinary
@given(snapshots)
def test_at_rest_nobody_waits_for_what_is_free(snapshot: Snapshot) -> None:
    run = ScenarioRun(replace(snapshot, policy=replace(snapshot.policy, settings=replace(Settings(), patience=None))))
    while run.apply(decided := plan(run.snapshot)):
        pass
    free = free_gpus(run.snapshot)
    limited = {hold.job for hold in decided.holds if hold.reason == "GROUP_LIMIT"}
    for job in run.snapshot.waiting:
        for carrier in run.snapshot.carriers:
            if job.gpus and (carrier.kind, carrier.project) == (job.kind, job.project) and job.name not in limited:
                whole = sum(free[carrier.name, gpu] == WHOLE for gpu in range(carrier.gpus))
                best = max(free[carrier.name, gpu] for gpu in range(carrier.gpus))
                assert best < job.gpus if job.gpus < WHOLE else whole < job.gpus // WHOLE


@ordinary
@given(plain.snapshots())
def test_without_members_the_plan_is_that_of_instances(snapshot: Snapshot) -> None:
    assert plan(snapshot) == plan_instances(snapshot)


@ordinary
@given(st.integers(0, 2**40))
def test_nobody_joins_a_carrier_that_leaves_once_no_runtime_is_guaranteed(seed: int) -> None:
    """Found by an attack: a stream of new members, each guaranteed to run, kept an instance of another project's.

    Members may join an empty carrier, but only in place of a new carrier: see the next test.
    """
    snapshot = shared(seed)
    if snapshot.policy.settings.min_runtime:
        used = {job.allocation.carrier for job in snapshot.active if job.allocation is not None}
        assert not due_for_eviction(snapshot) & used & {it.allocation.carrier for it in plan(snapshot).allocations}


def due_for_eviction(snapshot: Snapshot) -> set[str]:
    free = replace(snapshot.policy.settings, min_runtime=0)
    unprotected = plan(replace(snapshot, policy=replace(snapshot.policy, settings=free)))
    return {it.job for it in unprotected.evictions}


def with_empty_carriers(seed: int) -> Snapshot:
    """A full pool in which jobs of several instances wait, so that empty carriers are often due for eviction."""
    draw = Random(seed)
    instances = draw.randint(3, 5)
    own = draw.randint(2, instances - 1)
    policy = Policy(
        pools=(Pool("p5", instances, "ml.p5.48xlarge", gpus=8, keep_warm=600.0),),
        projects=(Project("a", quota={"p5": own}), Project("b", quota={"p5": instances - own})),
        settings=Settings(min_runtime=900, patience=draw.choice((None, 1000.0))),
    )
    carriers, active = [], []
    for number in range(instances - draw.randint(0, 1)):
        project, priority, started = draw.choice("aab"), draw.randint(0, 2), NOW - draw.choice((60, 1200))
        job = ActiveJob(f"w{number}", project, priority, {"p5": 1}, JobState.RUNNING, started, started)
        if draw.random() < 0.5:
            active.append(job)
            continue
        carriers.append(Carrier(f"c{number}", "p5", project, "k", 8, JobState.RUNNING, started))
        if draw.random() < 0.4:
            allocation = GpuAllocation(f"c{number}", (0,), WHOLE)
            active.append(replace(job, slots={}, allocation=allocation, kind="k"))
    waiting = []
    for number in range(draw.randint(2, 5)):
        several = number == 0 or draw.random() < 0.3
        waiting.append(
            WaitingJob(
                name=f"q{number}",
                project=draw.choice("aab"),
                priority=draw.randint(0, 3),
                demand=({"p5": draw.randint(2, 3) if several else 1},),
                entered=NOW - draw.randint(0, 2000),
                gpus=None if several else draw.choice((10, 40, 80)),
                kind="" if several else "k",
            )
        )
    return Snapshot(policy=policy, now=NOW, active=tuple(active), waiting=tuple(waiting), carriers=tuple(carriers))


@ordinary
@given(st.integers(0, 2**40))
@example(156)  # a member joins
def test_members_join_an_empty_carrier_that_is_due_for_eviction_only_in_place_of_a_new_one(seed: int) -> None:
    snapshot = with_empty_carriers(seed)
    decided, due = plan(snapshot), due_for_eviction(snapshot)
    joined = {it.job: it.allocation.carrier for it in decided.allocations if it.allocation.carrier in due}
    left = (replace(it, state=JobState.STOPPING) if it.name in joined.values() else it for it in snapshot.carriers)
    without = replace(snapshot, carriers=tuple(left))
    if due_for_eviction(without) == due - set(joined.values()):  # otherwise other carriers would be closed
        others = plan(without)
        launched = {name for it in others.launches for name in it.members}
        promised = {it.job for it in others.holds if it.reason is WaitReason.WAITING_FOR_STOPPING}
        assert joined.keys() <= launched | promised | {it.job for it in others.allocations}


def test_members_join_an_empty_carrier_whose_agent_is_ready_first() -> None:
    snapshot = with_empty_carriers(3043)  # two carriers are empty
    assert [(it.job, it.allocation.carrier) for it in plan(snapshot).allocations] == [("q1", "c2")]
    carriers = tuple(replace(it, ready=it.name != "c2") for it in snapshot.carriers)
    decided = plan(replace(snapshot, carriers=carriers))
    assert [(it.job, it.allocation.carrier) for it in decided.allocations] == [("q1", "c3")]


def test_a_carrier_without_members_has_no_priority_in_messages() -> None:
    (hold,) = (it for it in plan(with_empty_carriers(0)).holds if it.job == "q0")
    assert "It starts when c0 (a carrier on which no job stays) has stopped." in hold.message
    assert "c1 (priority 3)" in hold.message


@ordinary
@given(st.integers(0, 2**40))
@example(8)  # a carrier was closed before its agent was ready, and another one launched, without end
def test_with_empty_carriers_it_comes_to_rest(seed: int) -> None:
    """An agent needs time to start, so a carrier that has just begun to run takes no members yet."""
    run = ScenarioRun(with_empty_carriers(seed))
    for _ in range(60):
        takes = {it.name for it in run.snapshot.carriers if it.takes_members}
        runs = {it.name for it in run.snapshot.carriers if it.state is JobState.RUNNING}
        changed = run.apply(plan(run.snapshot))
        carriers = tuple(replace(it, ready=it.name in runs) for it in run.snapshot.carriers)
        run.snapshot = replace(run.snapshot, carriers=carriers)
        if not changed and takes == {it.name for it in carriers if it.takes_members}:
            return
    raise AssertionError("carriers are closed and launched without end")
