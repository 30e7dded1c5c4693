"""Scenario files: a snapshot written down, and the run from it to the stable state."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from job_queue.scheduler.documents import policy_document as document
from job_queue.scheduler.documents.policy_document import DocumentError, Fields, policy_from_document, shown
from job_queue.scheduler.documents.simulation import Run
from job_queue.scheduler.model import ActiveJob, JobState, PausedPool, Plan, Slots, Snapshot, WaitingJob, covers
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.planner import plan

ROUNDS = 50  # a run that is not stable by then is given up


def read_scenario(path: Path) -> Snapshot:
    """Read a scenario file, YAML or (by its name) JSON.

    :raises OSError: the file cannot be read.
    :raises DocumentError: it is no scenario; the message says where it fails.
    """
    try:
        content = path.read_text(encoding="utf-8")
        parsed = json.loads(content) if path.suffix == ".json" else yaml.safe_load(content)
    except (ValueError, yaml.YAMLError) as error:
        raise DocumentError(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}") from None
    return scenario_from_document(parsed)


def scenario_from_document(content: object) -> Snapshot:
    """The snapshot that a scenario describes. Without `now`, it is the latest time that the scenario names.

    :raises DocumentError: it is no scenario; the message says where it fails.
    """
    fields = Fields(content, "scenario")
    fields.one("expect", lambda value, _: value, default=None)
    policy = fields.one("policy", policy_from_document)
    entries = fields.list_of("active", _active_job, default=())
    active = tuple(job for job, _ in entries)
    makes_room_for = {job.name: waiting for job, waiting in entries if waiting is not None}
    waiting = fields.list_of("waiting", _waiting_job, default=())
    snapshot = Snapshot(
        policy=policy,
        now=fields.one("now", _time, default=_latest(active, waiting)),
        active=active,
        waiting=waiting,
        external=fields.one("external", document.slots, default={}),
        reserved=fields.one("reserved", _reservations, default={}),
        paused=fields.one("paused", _pauses, default={}),
    )
    fields.end()
    _check_names(snapshot)
    return with_stops_for(snapshot, makes_room_for)


def with_stops_for(snapshot: Snapshot, makes_room_for: Mapping[str, str]) -> Snapshot:
    """The scenario format's shorthand `reserved_for`, written out.

    What a job that stops for another leaves is set aside for that other. It may be counted in the reservation that the
    scenario names already, or come on top of it; so it is added only where that reservation is not enough.

    :param makes_room_for: stopping job -> the waiting job that it makes room for.
    """
    demands = {job.name: job.demand for job in snapshot.waiting}
    stopping: dict[str, Counter[str]] = defaultdict(Counter)
    for job in snapshot.active:
        if job.name in makes_room_for:
            stopping[makes_room_for[job.name]].update(job.slots)
    reserved = dict(snapshot.reserved)
    for name, slots in stopping.items():
        named = reserved.get(name, {})
        if not any(covers(named, need) for need in demands.get(name, ())):
            reserved[name] = {pool: named.get(pool, 0) + slots[pool] for pool in sorted(named.keys() | slots.keys())}
    active = tuple(replace(job, comes_back=True) if job.name in makes_room_for else job for job in snapshot.active)
    return replace(snapshot, active=active, reserved=reserved)


def plan_to_document(decided: Plan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "start": [{"job": start.job, "slots": dict(start.slots)} for start in decided.starts],
        "evict": [{"job": it.job, "for": it.claimant, "rule": it.rule.value} for it in decided.evictions],
        "hold": [{"job": it.job, "reason": it.reason.value, "message": it.message} for it in decided.holds],
        "shares": {pool: dict(shares) for pool, shares in decided.shares.items()},
    }


def run_until_stable(snapshot: Snapshot) -> dict[str, Any]:
    """Plan and apply until nothing changes, at most ROUNDS times: the rounds and where they led, as plain data."""
    run = Run(snapshot)
    rounds: list[dict[str, Any]] = []
    stable = False
    while not stable and len(rounds) < ROUNDS:
        decided = plan(run.snapshot)
        rounds.append(plan_to_document(decided))
        stable = not run.apply(decided)
    return {
        "rounds": rounds,
        "stable": stable,
        "active": {job.name: dict(job.slots) for job in sorted(run.snapshot.active, key=lambda job: job.name)},
        "waiting": [job.name for job in sorted(run.snapshot.waiting, key=waiting_order)],
        "slots": _slots_by_project(run.snapshot),
    }


def _slots_by_project(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {project.name: {} for project in snapshot.policy.projects}
    for job in snapshot.active:
        for pool, count in job.slots.items():
            held[job.project][pool] = held[job.project].get(pool, 0) + count
    return {project: slots for project, slots in held.items() if slots}


# --- reading --------------------------------------------------------------------------------------


def _active_job(content: object, path: str) -> tuple[ActiveJob, str | None]:
    """A job, and for whom it stops."""
    fields = Fields(content, path)
    job = ActiveJob(
        name=fields.one("job", document.text),
        project=fields.one("project", document.text),
        priority=fields.one("priority", document.whole),
        slots=fields.one("slots", _need),
        state=fields.one("state", _active_state, default=JobState.RUNNING),
        entered=fields.one("entered", _time),
        started=fields.one("started", _time, default=None),
        preemptible=fields.one("preemptible", document.truth, default=True),
        demand=fields.list_of("demand", _need, default=()),
        checkpoint=fields.one("checkpoint", _time, default=None),
        max_runtime=fields.one("max_runtime", document.amount, default=None),
    )
    reserved_for = fields.one("reserved_for", document.text, default=None)
    fields.end()
    if reserved_for is not None and job.state is not JobState.STOPPING:
        raise DocumentError(f"{path}.reserved_for: only a stopping job makes room for another; this one is {job.state}")
    return job, reserved_for


def _waiting_job(content: object, path: str) -> WaitingJob:
    fields = Fields(content, path)
    job = WaitingJob(
        name=fields.one("job", document.text),
        project=fields.one("project", document.text),
        priority=fields.one("priority", document.whole),
        demand=fields.list_of("demand", _need),
        entered=fields.one("entered", _time),
        preemptible=fields.one("preemptible", document.truth, default=True),
        held=fields.one("held", document.truth, default=False),
        backoff_until=fields.one("backoff_until", _time, default=None),
        max_runtime=fields.one("max_runtime", document.amount, default=None),
    )
    fields.one("checkpoint", _time, default=None)  # what a job that ran before has saved; it matters once it runs
    fields.end()
    return job


def _need(value: object, path: str) -> Slots:
    need = document.slots(value, path)
    if not need or not all(need.values()):
        raise DocumentError(f"{path}: must name at least one pool, and 1 instance or more of each, not {shown(value)}")
    return need


def _reservations(value: object, path: str) -> Mapping[str, Slots]:
    if not isinstance(value, Mapping):
        raise DocumentError(f"{path}: must map jobs to slots, not {shown(value)}")
    return {document.text(job, path): document.slots(slots, f"{path}.{job}") for job, slots in value.items()}


def _pauses(value: object, path: str) -> Mapping[str, PausedPool]:
    if not isinstance(value, Mapping):
        raise DocumentError(f"{path}: must map pools to pauses, not {shown(value)}")
    return {document.text(pool, path): _pause(pause, f"{path}.{pool}") for pool, pause in value.items()}


def _pause(content: object, path: str) -> PausedPool:
    fields = Fields(content, path)
    paused = PausedPool(
        until=fields.one("until", _time),
        instances=fields.one("instances", document.count, default=1),
    )
    fields.end()
    return paused


def _active_state(value: object, path: str) -> JobState:
    states = {state.value: state for state in JobState if state.holds_slots}
    if not isinstance(value, str) or value not in states:
        raise DocumentError(f"{path}: must be {', '.join(states)}, not {shown(value)}")
    return states[value]


def _time(value: object, path: str) -> float:
    """An ISO 8601 time; YAML may have read it already. Without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise DocumentError(f"{path}: must be a time such as 2026-11-20T12:00:00Z, not {shown(value)}")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _latest(active: tuple[ActiveJob, ...], waiting: tuple[WaitingJob, ...]) -> float:
    times = [time for job in active for time in (job.entered, job.started, job.checkpoint)]
    times += [job.entered for job in waiting]
    return max((time for time in times if time is not None), default=0.0)


def _check_names(snapshot: Snapshot) -> None:
    projects = {project.name for project in snapshot.policy.projects}
    pools = {pool.name for pool in snapshot.policy.pools}
    seen: set[str] = set()
    jobs = [(job.name, job.project) for job in snapshot.active]
    jobs += [(job.name, job.project) for job in snapshot.waiting]
    for name, project in jobs:
        if name in seen:
            raise DocumentError(f"scenario: there are two jobs {name!r}")
        if project not in projects:
            raise DocumentError(f"scenario: {name} names the unknown project {project!r}")
        seen.add(name)
    for pool in snapshot.external.keys() - pools:
        raise DocumentError(f"scenario.external: there is no pool {pool!r}")
