"""Finished attempts as CSV, which is also a trace for the simulator."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from typing import TextIO

from api_contract.history import PastAttempt
from sagemaker_queue.jobs.formatting import csv_cell


def write_history_csv(attempts: Iterable[PastAttempt], stream: TextIO) -> None:
    """Write a CSV line for each attempt as soon as the attempt is read.

    The first eight columns are the columns of a trace (docs/operate/simulate.md), so that ``smq simulate`` can read
    the file.
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV)
    for attempt in attempts:
        row = _row(attempt)
        writer.writerow([csv_cell(row[column]) for column in _CSV])


_CSV = (
    *("job_id", "submit_s", "duration_s", "gpus", "group", "user", "priority", "max_runtime_s"),
    *("attempt", "outcome", "training_job", "project", "department", "job_group", "pool", "instance_types"),
    *("instances", "market", "submitted", "waiting_since", "launched", "began", "ended"),
    *("waited_s", "provisioned_s", "ran_s", "borrowed", "lost_s", "made_room_for", "image", "carrier", "carries"),
    *("gpu_mean_percent", "gpu_p95_percent", "gpu_memory_mean_percent", "gpu_memory_p95_percent"),
    *("memory_mean_percent", "memory_p95_percent"),
    *("failure_class", "region", "account"),
)


def _row(attempt: PastAttempt) -> Mapping[str, object]:
    # A failed attempt counts with its whole runtime, because it may be the job's last attempt.
    lost = 0 if attempt.outcome == "failed" else attempt.lost_seconds or 0
    kept = max(0.0, attempt.ran_seconds - lost)
    return {
        "job_id": attempt.job,
        "submit_s": round(attempt.submitted.timestamp(), 3) if attempt.submitted else 0,
        "duration_s": round(kept, 3),  # without the work that a preemption lost, which a later attempt repeats
        "gpus": f"{attempt.gpus or 0:g}",
        "group": attempt.project,
        "user": attempt.owner,
        "priority": attempt.priority,
        "max_runtime_s": attempt.max_runtime_seconds,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "training_job": attempt.training_job_name,
        "project": attempt.project,
        "department": attempt.department,
        "job_group": attempt.group,
        "pool": "+".join(attempt.slots),
        "instance_types": "+".join(attempt.instances),
        "instances": attempt.instance_count,
        "market": attempt.market,
        "submitted": attempt.submitted,
        "waiting_since": attempt.waiting_since,
        "launched": attempt.launched,
        "began": attempt.began,
        "ended": attempt.ended,
        "waited_s": attempt.waited_seconds,
        "provisioned_s": attempt.provisioned_seconds,
        "ran_s": attempt.ran_seconds,
        "borrowed": attempt.borrowed,
        "lost_s": attempt.lost_seconds,
        "made_room_for": attempt.made_room_for,
        "image": attempt.image,
        "carrier": attempt.carrier,
        "carries": attempt.carries,
        "gpu_mean_percent": attempt.gpu_mean_percent,
        "gpu_p95_percent": attempt.gpu_p95_percent,
        "gpu_memory_mean_percent": attempt.gpu_memory_mean_percent,
        "gpu_memory_p95_percent": attempt.gpu_memory_p95_percent,
        "memory_mean_percent": attempt.memory_mean_percent,
        "memory_p95_percent": attempt.memory_p95_percent,
        "failure_class": attempt.failure_class,
        "region": attempt.region,  # empty: the queue's region
        "account": attempt.account,
    }
