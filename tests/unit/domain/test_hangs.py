"""Hangs: who is looked at, what counts as silence, and what becomes of an attempt that hangs."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import EndReport
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.expectations.hangs import (
    MOST_HANGS,
    MOST_LOOKUPS,
    Activity,
    is_requeued,
    may_hang,
    silence_of,
    suspects,
)
from job_queue.domain.job import Job, JobRecord, epoch, iso
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import GpuAllocation, JobState, OnHang, Policy, Pool, Project, Settings
from tests.jobs import NOW, P5, a_job

SILENT = 1800.0


def running(name: str = "a", **changes: Any) -> Job:
    job = a_job(name, state=JobState.RUNNING, launched=f"{name}-qstamp-1", started=iso(NOW - 7200), slots={"p5": 1})
    return replace(job, **changes)


def a_policy(project: Project | None = None, **settings: Any) -> Policy:
    pools = (Pool("p5", 8, P5),)
    return Policy(pools, (project or Project("default"),), settings=Settings(**settings))


@pytest.mark.parametrize("log", [True, False, None])
@pytest.mark.parametrize("checkpoint", [True, False, None])
def test_only_silence_of_both_is_silence_and_missing_data_never_is(log: bool | None, checkpoint: bool | None) -> None:
    assert Activity(log, checkpoint).is_silent is ((log, checkpoint) == (False, False))


@pytest.mark.parametrize(
    ("changes", "looked_at"),
    [
        ({}, True),
        ({"interactive": True, "preemptible": False}, False),
        ({"cancelled": True}, False),
        ({"requeued_by": "ann"}, False),
        ({"hung": 1}, False),  # it was noticed already
        ({"state": JobState.STOPPING}, False),
        ({"state": JobState.STARTING, "started": None}, False),
        ({"gpus": 10, "carrier_attempt": "c", "allocation": GpuAllocation("c", (0,))}, False),
        ({"carries": 8}, False),
    ],
)
def test_jobs_that_may_hang(changes: dict[str, Any], looked_at: bool) -> None:
    assert may_hang(running(**changes)) is looked_at


def test_suspects_are_those_whose_gpus_are_idle_for_long_some_at_a_time_in_turn() -> None:
    jobs = [running(f"j{number:02}") for number in range(MOST_LOOKUPS + 3)]
    applied = AppliedPolicy(a_policy(), 1, {})
    cluster = ClusterState(Metadata(), applied, {job.name: job for job in jobs}, {}, ())
    idle = {job.launched or "": NOW - SILENT for job in jobs}
    first = suspects(cluster, idle, NOW, 0)
    second = suspects(cluster, idle, NOW, 1)
    assert len(first) == len(second) == MOST_LOOKUPS
    assert {job.name for job in (*first, *second)} == {job.name for job in jobs}
    assert suspects(cluster, dict.fromkeys(idle, NOW - SILENT + 1), NOW, 0) == []
    assert suspects(cluster, {}, NOW, 0) == [], "no figures, no suspects"


def test_the_project_goes_before_the_settings_and_null_looks_for_no_hangs() -> None:
    job = running()
    assert silence_of(job, a_policy()) == SILENT
    assert silence_of(job, a_policy(silent=None)) is None
    assert silence_of(job, a_policy(Project("default", silent=60), silent=None)) == 60


@pytest.mark.parametrize(("tag", "project", "settings"), list(itertools.product([None, "notify", "requeue"], repeat=3)))
def test_the_tag_goes_before_the_project_and_the_project_before_the_settings(
    tag: str | None, project: str | None, settings: str | None
) -> None:
    policy = a_policy(
        Project("default", on_hang=OnHang(project) if project else None), on_hang=OnHang(settings or "notify")
    )
    assert is_requeued(running(on_hang=tag), policy) is ((tag or project or settings) == "requeue")
    assert is_requeued(running(on_hang=tag, preemptible=False), policy) is (tag == "requeue")
    assert is_requeued(running(on_hang=tag, max_preemptions=1, preempted_in_all=1), policy) is (tag == "requeue")
    assert not is_requeued(running(on_hang=tag, hangs=MOST_HANGS), policy)


def record_of(job: Job) -> JobRecord:
    return JobRecord(job, "{}")


def ended(job: Job, status: str) -> state_machine.JobTransition:
    report = EndReport(NOW - 7200, NOW - 7200, NOW + 60, {P5: 1}, keeps_checkpoints=True, checkpoint=NOW - 3600)
    failure = "AlgorithmError: exit code 137" if status == "Failed" else None
    return state_machine.end(record_of(job), Ending(status, failure=failure, report=report), NOW + 60)


def test_an_attempt_that_hangs_is_stopped_and_its_job_waits_in_its_old_place() -> None:
    job = running(preempted=(), retries=2, entered=iso(NOW - 7300))
    noticed = state_machine.record_hang(job, NOW - SILENT, NOW, requeue=True)
    assert noticed.cause is not None
    assert noticed.cause.startswith("hangs: no log line, no checkpoint and idle GPUs")
    assert (noticed.new.state, noticed.new.hung, noticed.new.hangs) == ("running", int(NOW - SILENT), 1)
    stopping = state_machine.stop_hung(noticed.new, NOW)
    assert stopping.new.is_interrupted
    for status in ("Stopped", "Failed"):
        end = ended(stopping.new, status)
        new = end.new
        assert (new.state, new.entered, new.attempt) == ("preempted", job.entered, job.attempt + 1)
        assert (new.hung, new.requeue_hung, new.hangs) == (None, False, 1)
        assert (new.preempted, new.retried) == ((), 0), "no preemption and no failure"
        assert end.ended is not None
        assert end.account is not None
        assert (end.ended.outcome, end.account.outcome) == ("hung", "hung")
        assert (end.account.hung, end.account.lost) == (SILENT + 60, 3660)


def test_completed_wins_and_so_does_a_cancellation() -> None:
    hanging = state_machine.record_hang(running(), NOW - SILENT, NOW, requeue=True).new
    stopping = state_machine.stop_hung(hanging, NOW).new
    assert ended(stopping, "Completed").new.state == "completed"
    assert ended(replace(stopping, cancelled=True), "Stopped").new.state == "stopped"


def test_a_mark_without_a_requeue_stops_nothing() -> None:
    noticed = state_machine.record_hang(running(), NOW - SILENT, NOW, requeue=False)
    assert (noticed.new.requeue_hung, noticed.new.hangs) == (False, 0)
    assert not replace(noticed.new, state=JobState.STOPPING).is_interrupted
    end = ended(noticed.new, "Completed")
    assert end.account is not None
    assert (end.account.outcome, end.account.hung) == ("completed", SILENT + 60)
    assert epoch(end.account.ended) == NOW + 60
