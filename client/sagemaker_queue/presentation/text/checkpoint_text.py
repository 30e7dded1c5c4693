"""The checkpoints of a job as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sagemaker_queue.jobs.formatting import age, amount, file_size
from sagemaker_queue.presentation.text.layout import table

if TYPE_CHECKING:
    from sagemaker_queue.jobs.checkpoint_layouts import Checkpoint
    from sagemaker_queue.workflows.saved_checkpoints import JobCheckpoints

HEADERS = ("Step", "Layout", "Files", "Size", "Age", "Name", "")
RESUMES = "resumes from it"


def checkpoints_page(listed: JobCheckpoints, width: int | None) -> str:
    """Return a table of a job's checkpoints, a line with the totals, and a line about other files in the folder."""
    lines = [checkpoints_table(listed.checkpoints, width)] if listed.checkpoints else []
    return "\n".join([*lines, *checkpoint_totals(listed)])


def checkpoint_totals(listed: JobCheckpoints) -> list[str]:
    """Return a line about the number and size of a job's checkpoints, and a line about other files if there are any."""
    size = file_size(sum(one.size for one in listed))
    known = (
        f"{amount(len(listed), 'checkpoint')}, {size}" if listed.checkpoints else "No checkpoint with a known layout"
    )
    lines = [f"{known}, in {listed.address}"]
    if listed.others:
        newest = max(listed.others, key=lambda file: file.modified)
        size = file_size(sum(file.size for file in listed.others))
        lines.append(
            f"{amount(len(listed.others), 'other file')}, {size}; the newest is {newest.path}, "
            f"{age(newest.modified)} old"
        )
    return lines


def checkpoints_table(checkpoints: Sequence[Checkpoint], width: int | None) -> str:
    """Return a table with a row for each checkpoint."""
    return table(HEADERS, checkpoint_rows(checkpoints), width=width, compact=True, right=("Step", "Files", "Size"))


def checkpoint_rows(checkpoints: Sequence[Checkpoint]) -> list[list[object]]:
    """Return a row for each checkpoint, below ``HEADERS``."""
    return [
        [
            "-" if one.step is None else str(one.step),
            one.layout,
            str(len(one.files)),
            file_size(one.size),
            age(one.modified),
            one.name,
            checkpoint_state(one),
        ]
        for one in checkpoints
    ]


def checkpoint_state(one: Checkpoint) -> str:
    """Return why a checkpoint is incomplete, or that the job resumes from it; empty for other checkpoints."""
    return f"incomplete: {one.incomplete}" if one.incomplete else RESUMES if one.resumes else ""
