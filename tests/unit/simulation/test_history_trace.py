"""What `smq history --csv` writes is a trace."""

from pathlib import Path

from api_contract.history import PastAttempt
from job_queue.simulation.command import simulate
from job_queue.simulation.options import SimulationOptions
from job_queue.simulation.trace import read_trace
from sagemaker_queue.workflows.history_csv import write_history_csv
from tests.client.samples import ATTEMPT

AGAIN = {**ATTEMPT, "attempt": 3, "outcome": "completed", "lostSeconds": None, "ranSeconds": 100.5, "priority": 5}
CPU = {**ATTEMPT, "job": "job2", "gpus": None, "maxRuntimeSeconds": None, "priority": 0}
LATER = {**ATTEMPT, "submitted": "2026-12-21T10:00:00Z"}


def written(folder: Path, *attempts: dict[str, object]) -> Path:
    path = folder / "history.csv"
    with path.open("w", encoding="utf-8") as stream:
        write_history_csv(map(PastAttempt.from_json, attempts), stream)
    return path


def test_the_attempts_of_a_job_are_one_job_and_what_was_lost_is_not_its_work(tmp_path: Path) -> None:
    first, other = read_trace(written(tmp_path, ATTEMPT, CPU, AGAIN))
    assert (first.name, first.duration, first.gpus, first.priority) == ("job1", 6600 + 100.5, 16, 5)
    assert (first.group, first.user, first.max_runtime) == ("vision", "arn:aws:iam::123456789012:user/ann", 86400)
    assert (other.name, other.gpus, other.max_runtime) == ("job2", 0, None)
    assert first.submitted == other.submitted == 1_795_255_200


def test_another_job_of_the_same_name_is_another_job(tmp_path: Path) -> None:
    names = [(job.name, job.duration) for job in read_trace(written(tmp_path, ATTEMPT, LATER, AGAIN))]
    assert names == [("job1", 6700.5), ("job1 (2)", 6600)]


def test_it_can_be_simulated_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, ATTEMPT, CPU, AGAIN)
    assert simulate(SimulationOptions(trace=path, capacity=2, priorities=(), json=True)) == 0


def test_members_are_jobs_and_their_carrier_is_none(tmp_path: Path) -> None:
    carrier = {**CPU, "job": "carrier--vision--1", "carries": 8, "gpus": 8}
    member = {**CPU, "gpus": 0.5, "carrier": "carrier--vision--1", "instanceCount": 0, "instances": {}}
    jobs = read_trace(written(tmp_path, carrier, member))
    assert [(job.name, job.gpus) for job in jobs] == [("job2", 0.5)]
