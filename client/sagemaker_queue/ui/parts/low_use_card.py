"""The table of low GPU use: running jobs that are idle or hang, and ended attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from sagemaker_queue.jobs.formatting import short_owner
from sagemaker_queue.ui.elements import grid, heading, job_cells, job_column, number_column
from sagemaker_queue.ui.view import View
from sagemaker_queue.workflows.usage.low_use import LOW_PERCENT, LowUse


def low_use_card() -> Callable[[View, Sequence[LowUse]], None]:
    """Add the table, and return the function that updates it from a view and ended attempts."""
    heading("Jobs with low GPU use", 2)
    ui.label(
        f"Running jobs whose GPUs are idle, and ended attempts with a mean GPU utilization below {LOW_PERCENT} %."
    ).classes("smq-faint")
    table = grid(
        [
            job_column("Job"),
            {"field": "state", "headerName": "State"},
            {"field": "project", "headerName": "Project"},
            {"field": "owner", "headerName": "Owner"},
            number_column("gpuHours", "GPU hours", 1),
            number_column("mean", "GPU use, %"),
            number_column("unused", "Unused GPU hours", 1),
        ],
        "No job has a low GPU use.",
        height="auto",
    )

    def update(view: View, ended: Sequence[LowUse]) -> None:
        idle = [job_cells(job) for job in view.status.active if job.idle_since or job.hung_since]
        table.rows([*idle, *map(_row, ended)])

    return update


def _row(found: LowUse) -> dict[str, Any]:
    attempt = found.attempt
    return {
        "id": f"{attempt.job} {attempt.attempt} {attempt.submitted}",
        "job": attempt.job,
        "state": f"{attempt.outcome} (attempt {attempt.attempt})",
        "project": attempt.project,
        "owner": short_owner(attempt.owner),
        "gpuHours": found.gpu_hours,
        "mean": attempt.gpu_mean_percent,
        "unused": found.unused_gpu_hours,
    }
