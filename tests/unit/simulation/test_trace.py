"""Traces as they are read: which rows are interactive jobs."""

from pathlib import Path

import pytest

from job_queue.scheduler import Policy, Pool, Project
from job_queue.simulation.trace import Reading, TraceError, read_trace

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
    lab, *training = Reading().jobs(rows, POLICY)
    assert (lab.interactive, lab.preemptible, lab.demand, lab.gpus) == (True, False, ({"v100": 1},), None)
    for job in training:
        assert (job.interactive, job.preemptible, job.demand, job.gpus) == (False, True, ({"p5": 1},), 10)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 2: interactive must be true or false, not 'maybe'"):
        read_trace(trace(tmp_path, "lab,0,60,1,maybe"))
