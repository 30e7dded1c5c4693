"""Apply plans to a scenario until nothing changes, and convert plans to plain data."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from job_queue.scheduler.carriers.allocations import WHOLE, GpuAllocation
from job_queue.scheduler.carriers.shared_plan import plan
from job_queue.scheduler.model import (
    NOTHING,
    ActiveJob,
    Carrier,
    JobState,
    Plan,
    Slots,
    Snapshot,
    WaitingJob,
    stopping_drain,
)
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.sharing.ledger import past_use_after
from job_queue.scheduler.victims import preempted_in_all

MAX_ROUNDS = 50  # maximum number of plans in a run


@dataclass
class ScenarioRun:
    """A snapshot to which plans are applied. The time of the snapshot does not change."""

    snapshot: Snapshot

    def apply(self, decided: Plan) -> bool:
        """Carry out a plan: stopping jobs end, starting jobs run, evicted jobs stop, new jobs start.

        All members of an evicted carrier stop with the carrier. Jobs that a drain stops are also stopped. Return
        whether anything changed.
        """
        before = self.snapshot
        evicted = {eviction.job for eviction in decided.evictions}
        waiting = {job.name: job for job in before.waiting}
        pools = {carrier.name: carrier.pool for carrier in before.carriers}
        active, ended = [], []
        for job in before.active:
            if job.state is not JobState.STOPPING:
                leaves = job.name in evicted or (job.allocation is not None and job.allocation.carrier in evicted)
                runs = job.state is JobState.RUNNING and not job.stop_denied
                leaves = leaves or (runs and _is_drained(job, pools, before))
                state = JobState.STOPPING if leaves else JobState.RUNNING
                started = before.now if job.started is None else job.started
                active.append(replace(job, state=state, started=started, comes_back=leaves))
                continue
            if job.started is not None:
                ended.append((job.project, job.owner, job.slots, job.started))
            if job.comes_back:
                made_room = not _is_drained(job, pools, before)  # a stop by a drain is no preemption
                waiting[job.name] = replace(
                    _waiting(job, before),
                    preemptions=job.preemptions + made_room,
                    preempted_in_all=preempted_in_all(job) + made_room,
                )
        for start in decided.starts:
            active.append(_starting(waiting.pop(start.job), start.slots, None, before.now))
        for it in decided.allocations:
            active.append(_starting(waiting.pop(it.job), NOTHING, it.allocation, before.now))
        self.snapshot = replace(
            before,
            active=tuple(active),
            waiting=tuple(waiting.values()),
            carriers=_carriers(
                before, decided, {job.allocation.carrier for job in active if job.allocation is not None}
            ),
            reserved=decided.reservations,
            past_use=past_use_after(before.policy, before.past_use, before.now, ended),
        )
        return self.snapshot != before


def _is_drained(job: ActiveJob, pools: Mapping[str, str], before: Snapshot) -> bool:
    """Return whether a drain stops a job.

    :param pools: the pool of each carrier.
    """
    own = job.slots if job.allocation is None else [pools[job.allocation.carrier]]
    return stopping_drain(before.drains, own, before.now, preemptible=job.preemptible) is not None


def _carriers(before: Snapshot, decided: Plan, used: set[str]) -> tuple[Carrier, ...]:
    """Return the earlier carriers that have not ended, and the new ones."""
    gone = {eviction.job for eviction in decided.evictions} | set(decided.carriers_to_close)
    carriers = []
    for it in before.carriers:
        if it.state is not JobState.STOPPING:
            state = JobState.STOPPING if it.name in gone else JobState.RUNNING
            since = None if it.name in used else it.empty_since or before.now
            carriers.append(replace(it, state=state, empty_since=since))
    jobs = {job.name: job for job in before.waiting}
    gpus = {pool.name: pool.gpus or 0 for pool in before.policy.pools}
    for launch in decided.launches:
        leader, (pool, *_) = jobs[launch.members[0]], launch.slots
        carriers.append(
            Carrier(
                name=_new_name(leader.name, {it.name for it in carriers}),
                pool=pool,
                project=leader.project,
                kind=leader.kind,
                gpus=gpus[pool],
                state=JobState.STARTING,
                started=before.now,
                preemptible=leader.preemptible,
                owner=leader.owner,
            )
        )
    return tuple(carriers)


def _new_name(leader: str, taken: set[str]) -> str:
    """Return `carrier-<leader>`, with a number if that name is taken."""
    names = (f"carrier-{leader}" + (f"-{number}" if number else "") for number in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _starting(job: WaitingJob, slots: Slots, allocation: GpuAllocation | None, now: float) -> ActiveJob:
    return ActiveJob(
        slots=slots, allocation=allocation, state=JobState.STARTING, started=now, demand=job.demand, **_common(job)
    )


def _waiting(job: ActiveJob, before: Snapshot) -> WaitingJob:
    if job.allocation is None:
        return WaitingJob(demand=job.demand or (job.slots,), **_common(job))
    pools = {carrier.name: carrier.pool for carrier in before.carriers}
    return WaitingJob(
        demand=job.demand or ({pools[job.allocation.carrier]: 1},), gpus=job.allocation.size, **_common(job)
    )


def _common(job: ActiveJob | WaitingJob) -> dict[str, Any]:
    """Return the fields that active and waiting jobs have in common."""
    names = ("name", "project", "priority", "entered", "preemptible", "interactive", "max_runtime", "expected")
    others = ("owner", "group", "max_parallel", "kind", "preemptions", "preempted_in_all", "max_preemptions")
    return {name: getattr(job, name) for name in (*names, *others)}


def plan_to_document(decided: Plan) -> dict[str, Any]:
    """Convert a plan to plain data. Fields of carriers are included only if they are not empty."""
    carriers = {
        "seat": [{"job": it.job, **allocation_to_document(it.allocation)} for it in decided.allocations],
        "launch": [{"members": list(it.members), "slots": dict(it.slots)} for it in decided.launches],
        "close": list(decided.carriers_to_close),
    }
    return {
        "start": [{"job": start.job, "slots": dict(start.slots)} for start in decided.starts],
        "evict": [{"job": evict.job, "for": evict.claimant, "rule": evict.rule.value} for evict in decided.evictions],
        "hold": [{"job": hold.job, "reason": hold.reason.value, "message": hold.message} for hold in decided.holds],
        "shares": {pool: dict(shares) for pool, shares in decided.shares.items()},
        **{name: content for name, content in carriers.items() if content},
    }


def allocation_to_document(allocation: GpuAllocation) -> dict[str, Any]:
    """Convert an allocation to plain data, as in scenario files."""
    part = {"part": allocation.tenths / WHOLE} if allocation.tenths < WHOLE else {}
    return {"carrier": allocation.carrier, "gpus": list(allocation.gpus), **part}


def run_until_stable(snapshot: Snapshot) -> dict[str, Any]:
    """Plan and apply until nothing changes, at most MAX_ROUNDS times; return all rounds and the final state."""
    run, settings = ScenarioRun(snapshot), snapshot.policy.settings
    rounds: list[dict[str, Any]] = []
    stable = False
    while not stable and len(rounds) < MAX_ROUNDS:
        decided = plan(run.snapshot)
        rounds.append(plan_to_document(decided))
        stable = not run.apply(decided)
    return {
        "rounds": rounds,
        "stable": stable,
        "active": {job.name: _held(job) for job in sorted(run.snapshot.active, key=lambda job: job.name)},
        "waiting": [job.name for job in sorted(run.snapshot.waiting, key=partial(waiting_order, settings=settings))],
        "slots": _slots_by_project(run.snapshot),
        **_carriers_at_the_end(run.snapshot),
    }


def _held(job: ActiveJob) -> Mapping[str, Any]:
    return dict(job.slots) if job.allocation is None else allocation_to_document(job.allocation)


def _slots_by_project(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    held: dict[str, Counter[str]] = {project.name: Counter() for project in snapshot.policy.projects}
    for job in snapshot.active:
        held[job.project].update(job.slots)
    for carrier in snapshot.carriers:
        held[carrier.project][carrier.pool] += 1
    return {project: dict(slots) for project, slots in held.items() if slots}


def _carriers_at_the_end(snapshot: Snapshot) -> dict[str, Any]:
    """Return the pool of each carrier; empty if there is no carrier."""
    return {"carriers": {it.name: it.pool for it in snapshot.carriers}} if snapshot.carriers else {}
