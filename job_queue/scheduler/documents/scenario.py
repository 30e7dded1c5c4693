"""Scenario files: a snapshot written down, and the run from it to the stable state (scheduling rules, section 8)."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from job_queue.scheduler.documents import policy_document as document
from job_queue.scheduler.documents.policy_document import (
    DocumentError,
    Reader,
    list_of,
    mapping_of,
    policy_from_document,
    read_fields,
    shown,
)
from job_queue.scheduler.model import (
    ActiveJob,
    Calendar,
    JobState,
    PausedPool,
    Plan,
    Slots,
    Snapshot,
    Start,
    WaitingJob,
    covers,
)
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.planner import plan
from job_queue.scheduler.sharing.budget import PastUse
from job_queue.scheduler.sharing.ledger import after

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
        raise DocumentError(str(path), f"neither YAML nor JSON: {' '.join(str(error).split())}") from None
    return scenario_from_document(parsed)


def scenario_from_document(content: object) -> Snapshot:
    """The snapshot that a scenario describes. Without `now`, it is the latest time that the scenario names.

    :raises DocumentError: it is no scenario; the message says where it fails.
    """
    readers: dict[str, Reader] = {
        "expect": lambda value, _: value,  # what the tests compare the plan with
        "policy": policy_from_document,
        "active": list_of(_active_job),
        "waiting": list_of(_waiting_job),
        "now": _time,
        "external": document.slots,
        "reserved": mapping_of(document.slots, "jobs to slots"),
        "paused": mapping_of(_pause, "pools to pauses"),
        "calendars": mapping_of(_calendar, "pools to calendars"),
        "past_use": mapping_of(_past_use, "projects to what they have used"),
    }
    fields = read_fields(content, "scenario", readers, required=("policy",))
    fields.pop("expect", None)
    entries = fields.pop("active", ())
    makes_room_for = {job.name: waiting for job, waiting in entries if waiting is not None}
    active, waiting = tuple(job for job, _ in entries), fields.get("waiting", ())
    snapshot = Snapshot(active=active, **{"now": _latest(active, waiting), **fields})
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


def _active_job(content: object, path: str) -> tuple[ActiveJob, str | None]:
    """A job, and for whom it stops."""
    readers = _JOB | {
        "slots": _need,
        "state": _active_state,
        "started": _time,
        "demand": list_of(_need),
        "checkpoint": _time,
        "idle_since": _time,
        "reserved_for": document.text,
    }
    fields = read_fields(content, path, readers, required=("job", "project", "priority", "slots", "entered"))
    reserved_for = fields.pop("reserved_for", None)
    job = ActiveJob(name=fields.pop("job"), **{"state": JobState.RUNNING, **fields})
    if reserved_for is not None and job.state is not JobState.STOPPING:
        raise DocumentError(
            f"{path}.reserved_for", f"only a stopping job makes room for another; this one is {job.state}"
        )
    return job, reserved_for


def _waiting_job(content: object, path: str) -> WaitingJob:
    readers = _JOB | {
        "demand": list_of(_need),
        "held": document.truth,
        "backoff_until": _time,
        "checkpoint": _time,
        "warm": document.truth,
        "more_wait": document.truth,
        "after": list_of(_dependency),
    }
    fields = read_fields(content, path, readers, required=("job", "project", "priority", "demand", "entered"))
    fields.pop("checkpoint", None)  # what a job that ran before has saved; it matters once it runs
    return WaitingJob(name=fields.pop("job"), **fields)


def _need(value: object, path: str) -> Slots:
    need: Slots = document.slots(value, path)
    if not need or not all(need.values()):
        raise DocumentError(path, f"must name at least one pool, and 1 instance or more of each, not {shown(value)}")
    return need


def _pause(content: object, path: str) -> PausedPool:
    readers = {"until": _time, "instances": document.count}
    return PausedPool(**read_fields(content, path, readers, required=("until",)))


def _calendar(content: object, path: str) -> Calendar:
    readers = {"instances": document.count, "opens": _time, "closes": _time}
    return Calendar(**read_fields(content, path, readers, required=("instances", "opens", "closes")))


def _past_use(content: object, path: str) -> PastUse:
    amounts = mapping_of(document.amount, "names to instance-seconds")
    readers = {"lately": amounts, "lately_by_owner": amounts, "spent": document.amount, "spent_by_owner": amounts}
    return PastUse(**read_fields(content, path, readers, required=()))


def _active_state(value: object, path: str) -> JobState:
    states = {state.value: state for state in JobState if state.holds_slots}
    if not isinstance(value, str) or value not in states:
        raise DocumentError(path, f"must be {', '.join(states)}, not {shown(value)}")
    return states[value]


def _time(value: object, path: str) -> float:
    """An ISO 8601 time; YAML may have read it already. Without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise DocumentError(path, f"must be a time such as 2026-11-20T12:00:00Z, not {shown(value)}")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _dependency(value: object, path: str) -> tuple[str, bool]:
    name, _, outcome = document.text(value, path).partition(":")
    if outcome not in ("", "ok", "any"):
        raise DocumentError(path, f"must be a job, and perhaps :ok or :any, not {shown(value)}")
    return name, outcome == "any"


def _at_least_one(value: object, path: str) -> int:
    count: int = document.count(value, path)
    if not count:
        raise DocumentError(path, "must be 1 or more, not 0")
    return count


_JOB: dict[str, Reader] = {
    "job": document.text,
    "project": document.text,
    "priority": document.whole,
    "entered": _time,
    "preemptible": document.truth,
    "max_runtime": document.amount,
    "owner": document.text,
    "group": document.text,
    "max_parallel": _at_least_one,
    "expected": document.amount,
}
"""What active and waiting jobs have in common."""


def _latest(active: tuple[ActiveJob, ...], waiting: tuple[WaitingJob, ...]) -> float:
    times = [time for job in active for time in (job.entered, job.started, job.checkpoint)]
    times += [job.entered for job in waiting]
    return max((time for time in times if time is not None), default=0.0)


def _check_names(snapshot: Snapshot) -> None:
    projects = {project.name for project in snapshot.policy.projects}
    pools = {pool.name for pool in snapshot.policy.pools}
    seen: set[str] = set()
    jobs: tuple[ActiveJob | WaitingJob, ...] = (*snapshot.active, *snapshot.waiting)
    for job in jobs:
        if job.name in seen:
            raise DocumentError("scenario", f"there are two jobs {job.name!r}")
        if job.project not in projects:
            raise DocumentError("scenario", f"{job.name} names the unknown project {job.project!r}")
        seen.add(job.name)
    for name in snapshot.past_use.keys() - projects:
        raise DocumentError("scenario.past_use", f"there is no project {name!r}")
    for field, named in (("external", snapshot.external), ("calendars", snapshot.calendars)):
        for pool in named.keys() - pools:
            raise DocumentError(f"scenario.{field}", f"there is no pool {pool!r}")


# --- running -----------------------------------------------------------------------------------------


@dataclass
class Run:
    """A snapshot that plans are applied to; its time stands still."""

    snapshot: Snapshot

    def apply(self, decided: Plan) -> bool:
        """Carry out a plan: what was stopping is gone, what was starting runs, evicted jobs stop, new ones start.

        Gives whether anything changed.
        """
        before = self.snapshot
        evicted = {eviction.job for eviction in decided.evictions}
        waiting = {job.name: job for job in before.waiting}
        active, ended = [], []
        for job in before.active:
            if job.state is not JobState.STOPPING:
                state = JobState.STOPPING if job.name in evicted else JobState.RUNNING
                started = before.now if job.started is None else job.started
                active.append(replace(job, state=state, started=started, comes_back=job.name in evicted))
                continue
            if job.started is not None:
                ended.append((job.project, job.owner, job.slots, job.started))
            if job.comes_back:
                waiting[job.name] = WaitingJob(demand=job.demand or (job.slots,), **_common(job))
        for start in decided.starts:
            active.append(_starting(waiting.pop(start.job), start, before.now))
        self.snapshot = replace(
            before,
            active=tuple(active),
            waiting=tuple(waiting.values()),
            reserved=decided.reservations,
            past_use=after(before.policy, before.past_use, before.now, ended),
        )
        return self.snapshot != before


def _starting(job: WaitingJob, start: Start, now: float) -> ActiveJob:
    return ActiveJob(slots=start.slots, state=JobState.STARTING, started=now, demand=job.demand, **_common(job))


def _common(job: ActiveJob | WaitingJob) -> dict[str, Any]:
    """The fields that a job has in either form."""
    names = ("name", "project", "priority", "entered", "preemptible", "max_runtime", "expected")
    return {name: getattr(job, name) for name in (*names, "owner", "group", "max_parallel")}


def plan_to_document(decided: Plan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "start": [{"job": start.job, "slots": dict(start.slots)} for start in decided.starts],
        "evict": [{"job": evict.job, "for": evict.claimant, "rule": evict.rule.value} for evict in decided.evictions],
        "hold": [{"job": hold.job, "reason": hold.reason.value, "message": hold.message} for hold in decided.holds],
        "shares": {pool: dict(shares) for pool, shares in decided.shares.items()},
    }


def run_until_stable(snapshot: Snapshot) -> dict[str, Any]:
    """Plan and apply until nothing changes, at most ROUNDS times: the rounds and where they led, as plain data."""
    run, settings = Run(snapshot), snapshot.policy.settings
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
        "waiting": [job.name for job in sorted(run.snapshot.waiting, key=partial(waiting_order, settings=settings))],
        "slots": _slots_by_project(run.snapshot),
    }


def _slots_by_project(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {project.name: {} for project in snapshot.policy.projects}
    for job in snapshot.active:
        for pool, count in job.slots.items():
            held[job.project][pool] = held[job.project].get(pool, 0) + count
    return {project: slots for project, slots in held.items() if slots}
