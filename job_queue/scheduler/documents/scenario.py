"""Read scenario files, which describe a snapshot in YAML or JSON (docs/developers/scheduling-rules.md)."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from job_queue.scheduler.carriers.allocations import WHOLE, GpuAllocation
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
    NOTHING,
    ActiveJob,
    Calendar,
    Carrier,
    Drain,
    DrainStops,
    JobState,
    PastUse,
    PausedPool,
    Slots,
    Snapshot,
    WaitingJob,
    covers,
)


def read_scenario(path: Path) -> Snapshot:
    """Read a scenario file: JSON if its name ends in .json, else YAML.

    :raises OSError: the file cannot be read.
    :raises DocumentError: the file is not a scenario; the message names the path of the fault.
    """
    try:
        content = path.read_text(encoding="utf-8")
        parsed = json.loads(content) if path.suffix == ".json" else yaml.safe_load(content)
    except (ValueError, yaml.YAMLError) as error:
        raise DocumentError(str(path), f"neither YAML nor JSON: {' '.join(str(error).split())}") from None
    return scenario_from_document(parsed)


def scenario_from_document(content: object) -> Snapshot:
    """Return the snapshot that a scenario describes.

    Without `now`, the time of the snapshot is the latest entry, start or checkpoint of its jobs.

    :raises DocumentError: the document is not a scenario; the message names the path of the fault.
    """
    readers: dict[str, Reader] = {
        "expect": lambda value, _: value,  # the plan that the tests expect
        "policy": policy_from_document,
        "active": list_of(_active_job),
        "carriers": list_of(_carrier),
        "waiting": list_of(_waiting_job),
        "now": _time,
        "external": document.slots,
        "reserved": mapping_of(document.slots, "jobs to slots"),
        "paused": mapping_of(_pause, "pools to pauses"),
        "calendars": mapping_of(_calendar, "pools to calendars"),
        "drains": mapping_of(_drain, "pools to drains"),
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
    """Expand the shorthand `reserved_for` of the scenario format.

    The slots of the stopping job are reserved for the waiting job. The scenario may have reserved these slots already.
    So they are added only if the waiting job's reservation covers none of its alternatives.

    :param makes_room_for: stopping job -> the waiting job that gets its slots.
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
    """Return an active job, and the name of the waiting job for which it stops, or None if there is no such job."""
    readers = _JOB | {
        "slots": _need,
        "state": _active_state,
        "started": _time,
        "demand": list_of(_need),
        "checkpoint": _time,
        "idle_since": _time,
        "reserved_for": document.text,
        "seat": _allocation,
    }
    required = ["job", "project", "priority", "entered"]
    if not isinstance(content, Mapping) or "seat" not in content:
        required.append("slots")
    fields = {"slots": NOTHING, **read_fields(content, path, readers, required=required)}
    if fields.get("seat") is not None and fields["slots"]:
        raise DocumentError(path, "has a seat on a carrier and slots: leave out one of them")
    reserved_for = fields.pop("reserved_for", None)
    fields["allocation"] = fields.pop("seat", None)
    job = ActiveJob(name=fields.pop("job"), **{"state": JobState.RUNNING, **_not_preemptible(fields, path)})
    if reserved_for is not None and job.state is not JobState.STOPPING:
        raise DocumentError(
            f"{path}.reserved_for", f"only a stopping job makes room for another; this one is {job.state}"
        )
    return job, reserved_for


def _waiting_job(content: object, path: str) -> WaitingJob:
    readers = _JOB | {
        "demand": list_of(_need),
        "held": document.boolean,
        "not_before": _time,
        "backoff_until": _time,
        "checkpoint": _time,
        "warm": document.boolean,
        "more_wait": document.boolean,
        "left_idle": document.boolean,
        "after": list_of(_dependency),
        "gpus": _tenths,
    }
    fields = read_fields(content, path, readers, required=("job", "project", "priority", "demand", "entered"))
    if "gpus" in fields and any(sum(need.values()) != 1 for need in fields["demand"]):
        raise DocumentError(f"{path}.demand", "a job that asks for GPUs runs on 1 instance")
    fields.pop("checkpoint", None)  # the checkpoint of an earlier attempt; a plan uses checkpoints of active jobs only
    return WaitingJob(name=fields.pop("job"), **_not_preemptible(fields, path))


def _not_preemptible(fields: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the fields of a job, with `preemptible` false if the job is interactive.

    :raises DocumentError: the job is interactive, and its field `preemptible` is true.
    """
    if not fields.get("interactive"):
        return fields
    if fields.get("preemptible"):
        raise DocumentError(f"{path}.preemptible", "an interactive job is not preemptible: leave it out, or say false")
    return {**fields, "preemptible": False}


def _carrier(content: object, path: str) -> Carrier:
    readers = {
        "carrier": document.text,
        "pool": document.text,
        "project": document.text,
        "kind": document.text,
        "gpus": _at_least_one,
        "state": _active_state,
        "started": _time,
        "empty_since": _time,
        "preemptible": document.boolean,
        "owner": document.text,
    }
    fields = read_fields(content, path, readers, required=("carrier", "pool", "project", "gpus", "started"))
    return Carrier(name=fields.pop("carrier"), **{"kind": "", "state": JobState.RUNNING, **fields})


def _allocation(content: object, path: str) -> GpuAllocation:
    readers = {"carrier": document.text, "gpus": list_of(document.count), "part": _tenths}
    fields = read_fields(content, path, readers, required=("carrier", "gpus"))
    part = fields.get("part", WHOLE)
    if not fields["gpus"] or part > WHOLE or (part < WHOLE and len(fields["gpus"]) > 1):
        raise DocumentError(path, "is on one or several whole GPUs, or on a part of one")
    return GpuAllocation(fields["carrier"], fields["gpus"], part)


def _tenths(value: object, path: str) -> int:
    """Read whole GPUs, or a part of one GPU in steps of 0.1. Return tenths of GPUs."""
    tenths = round(document.amount(value, path) * WHOLE, 6)
    if not tenths or tenths != int(tenths) or (tenths > WHOLE and tenths % WHOLE):
        raise DocumentError(path, f"must be whole GPUs, or tenths of one such as 0.5, not {shown(value)}")
    return int(tenths)


def _need(value: object, path: str) -> Slots:
    need: Slots = document.slots(value, path)
    if not need or not all(need.values()):
        raise DocumentError(path, f"must name at least one pool, and 1 instance or more of each, not {shown(value)}")
    return need


def _pause(content: object, path: str) -> PausedPool:
    readers = {"until": _time, "instances": document.count, "unreachable": document.text}
    return PausedPool(**read_fields(content, path, readers, required=("until",)))


def _calendar(content: object, path: str) -> Calendar:
    readers = {"instances": document.count, "opens": _time, "closes": _time}
    return Calendar(**read_fields(content, path, readers, required=("instances", "opens", "closes")))


def _drain(content: object, path: str) -> Drain:
    readers = {"at": _seconds, "by": document.text, "reason": document.text, "stops": _drain_stops}
    return Drain(**read_fields(content, path, readers, required=("at",)))


def _seconds(value: object, path: str) -> int:
    return int(_time(value, path))


def _drain_stops(value: object, path: str) -> DrainStops:
    kinds = {kind.value: kind for kind in DrainStops}
    if not isinstance(value, str) or value not in kinds:
        raise DocumentError(path, f"must be {', '.join(kinds)}, not {shown(value)}")
    return kinds[value]


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
    """Read an ISO 8601 time, which YAML may have parsed already. A time without a zone is UTC."""
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
    "priority": document.integer,
    "entered": _time,
    "preemptible": document.boolean,
    "interactive": document.boolean,
    "max_runtime": document.amount,
    "owner": document.text,
    "group": document.text,
    "max_parallel": _at_least_one,
    "expected": document.amount,
    "kind": document.text,
    "preemptions": document.count,
    "preempted_in_all": document.count,
    "max_preemptions": document.count,
}
"""Fields that active and waiting jobs have in common."""


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
    _check_carriers(snapshot, projects, pools)
    for name in snapshot.past_use.keys() - projects:
        raise DocumentError("scenario.past_use", f"there is no project {name!r}")
    by_pool: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("external", snapshot.external),
        ("calendars", snapshot.calendars),
        ("drains", snapshot.drains),
    )
    for field, named in by_pool:
        for pool in named.keys() - pools:
            raise DocumentError(f"scenario.{field}", f"there is no pool {pool!r}")


def _check_carriers(snapshot: Snapshot, projects: Collection[str], pools: Collection[str]) -> None:
    carriers = {carrier.name: carrier for carrier in snapshot.carriers}
    if len(carriers) < len(snapshot.carriers):
        raise DocumentError("scenario.carriers", "a name is used twice")
    for carrier in snapshot.carriers:
        if carrier.project not in projects or carrier.pool not in pools:
            raise DocumentError("scenario.carriers", f"{carrier.name} names an unknown project or pool")
    taken: Counter[tuple[str, int]] = Counter()
    for job in snapshot.active:
        if job.allocation is None:
            continue
        if job.allocation.carrier not in carriers:
            raise DocumentError("scenario.active", f"{job.name} names the unknown carrier {job.allocation.carrier!r}")
        for gpu in job.allocation.gpus:
            taken[job.allocation.carrier, gpu] += job.allocation.tenths
            if gpu >= carriers[job.allocation.carrier].gpus or taken[job.allocation.carrier, gpu] > WHOLE:
                raise DocumentError(
                    "scenario.active", f"{job.name} has no room on GPU {gpu} of {job.allocation.carrier}"
                )
