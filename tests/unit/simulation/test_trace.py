"""Traces as they are read: interactive jobs, jobs of the history, and projects that a policy lacks."""

from pathlib import Path
from typing import Any

import pytest

from job_queue.scheduler import Policy, Pool, Project
from job_queue.simulation.trace import Regrouping, TraceConversion, TraceError, TraceJob, read_trace

POLICY = Policy(
    (Pool("p5", 2, gpus=8), Pool("v100", 1)),
    (Project("all", interactive_pools=("v100",), training_pools=("p5",)),),
)


def trace(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(("job_id,submit_s,duration_s,gpus,interactive", *rows)))
    return path


def test_interactive_jobs_are_not_preemptible_and_have_whole_instances_of_their_pools(tmp_path: Path) -> None:
    rows = read_trace(trace(tmp_path, "lab,0,60,1,true", "t1,0,60,1,false", "t2,0,60,1,"))
    lab, *training = TraceConversion().jobs(rows, POLICY)
    assert (lab.interactive, lab.preemptible, lab.demand, lab.gpus) == (True, False, ({"v100": 1},), None)
    for job in training:
        assert (job.interactive, job.preemptible, job.demand, job.gpus) == (False, True, ({"p5": 1},), 10)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 2: interactive must be true or false, not 'maybe'"):
        read_trace(trace(tmp_path, "lab,0,60,1,maybe"))


TYPES = Policy(
    (
        Pool("p5", 2, instance_type="ml.p5.48xlarge"),
        Pool("p5-spot", 2, instance_type="ml.p5.48xlarge", spot=True),
        Pool("cpu", 9, instance_type="ml.c6i.xlarge"),
    ),
    (Project("vision"), Project("nlp", pools=("cpu",))),
)


def row(name: str, group: str = "vision", **more: Any) -> TraceJob:
    return TraceJob(name, 0, 60, more.pop("gpus", 8), group, **more)


def test_a_job_of_the_history_has_its_instances_in_the_pools_of_their_type() -> None:
    jobs = TraceConversion().jobs(
        [
            row("spot", pool="p5-spot", instances=1),
            row("cpus", pool="cpu", gpus=0, instances=3),
            row("gone", pool="p4", instances=1),
            row("elsewhere", "nlp", pool="p5", instances=1),
        ],
        TYPES,
    )
    assert [job.demand for job in jobs] == [
        ({"p5": 1}, {"p5-spot": 1}),
        ({"cpu": 3},),
        ({"p5": 1}, {"p5-spot": 1}, {"cpu": 1}),
        ({"cpu": 1},),
    ]


def test_a_job_that_had_a_whole_instance_shares_none() -> None:
    whole, part = TraceConversion().jobs([row("whole", gpus=1, instances=1), row("part", gpus=1)], POLICY)
    assert (whole.gpus, part.gpus) == (None, 10)


def test_projects_are_renamed_or_left_out() -> None:
    rows = [row("a", "old"), row("b", "older"), row("c", ""), row("d")]
    changed = Regrouping((("old", "vision"), ("(none)", "nlp")), ("older",)).apply(rows)
    assert [(job.name, job.group) for job in changed] == [("a", "vision"), ("c", "nlp"), ("d", "vision")]
    with pytest.raises(TraceError, match=r"the trace has no project 'oldest'; it has \(none\), old, older, vision"):
        Regrouping(excluded=("oldest",)).apply(rows)
    with pytest.raises(TraceError, match="all jobs of the trace are excluded"):
        Regrouping(excluded=("old",)).apply(rows[:1])


def test_all_projects_that_a_policy_lacks_are_named_at_once_with_the_remedy() -> None:
    message = (
        r"the policy has no project old \(2 jobs\), \(none\) \(1 job\): add --map-project 'old=NAME' to count these "
        r"jobs for another project \(the policy has vision, nlp\), or --exclude-project 'old' to leave them out"
    )
    with pytest.raises(TraceError, match=message):
        TraceConversion().jobs([row("a", "old"), row("b", "old"), row("c", ""), row("d")], TYPES)
