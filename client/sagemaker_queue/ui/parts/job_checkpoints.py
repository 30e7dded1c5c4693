"""The checkpoints of a job on its page. S3 is listed only on request, with the user's own credentials."""

from __future__ import annotations

from nicegui import ui

from sagemaker_queue.jobs.checkpoint_layouts import Checkpoint
from sagemaker_queue.jobs.formatting import clean, cut, file_size
from sagemaker_queue.presentation.text.checkpoint_text import checkpoint_state, checkpoint_totals
from sagemaker_queue.ui.elements import grid, number_column, seconds, time_column
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.workflows.saved_checkpoints import JobCheckpoints, list_checkpoints

_SHOWN = 200  # maximum number of the newest checkpoints that are shown
_LONGEST = 200  # maximum characters of a text with file names, since the job's program chooses them


def checkpoints_button(tab: Tab, name: str) -> None:
    """Add a button that lists a job's checkpoints, with a command that starts another job from a chosen checkpoint."""
    area = ui.column().classes("w-full gap-2")

    async def look() -> None:
        listed = await tab.ask(list_checkpoints, tab.queue, name)
        area.clear()
        if listed is not None:
            with area:
                _show(listed)

    ui.button("List the checkpoints", on_click=look).props("flat no-caps dense")


def _show(listed: JobCheckpoints) -> None:
    newest = sorted(listed, key=lambda one: one.modified, reverse=True)[:_SHOWN]
    if newest:
        _table(newest)
    if len(listed) > len(newest):
        ui.label(f"The newest {_SHOWN} are shown.").classes("smq-faint")
    for line in checkpoint_totals(listed):
        ui.label(_bounded(line)).classes("text-sm").style("overflow-wrap: anywhere")
    steps = sorted({one.step for one in newest if one.step is not None and not one.incomplete}, reverse=True)
    if not steps:
        return
    with ui.row().classes("items-center"):
        ui.label("To start another job from step")
        chosen = ui.select(steps, value=steps[0]).props('dense outlined aria-label="step"')
        command = ui.code(_command(listed.job, steps[0]), language="bash")
    chosen.on_value_change(lambda: command.set_content(_command(listed.job, chosen.value)))


def _command(job: str, step: int) -> str:
    return f"smq resubmit {job} --from {step}"


def _table(checkpoints: list[Checkpoint]) -> None:
    table = grid(
        [
            number_column("step", "Step", width=110),
            number_column("files", "Files", width=80),
            {"field": "size", "headerName": "Size", "type": "rightAligned", "width": 110},
            time_column("saved", "Saved", "ago", width=120),
            {"field": "layout", "headerName": "Layout", "width": 140},
            {"field": "state", "headerName": "State", "width": 240, "tooltipField": "state"},
            {"field": "name", "headerName": "Name", "flex": 1, "minWidth": 160, "tooltipField": "name"},
        ],
        "No checkpoint.",
        height=f"{min(len(checkpoints), 8) * 34 + 60}px",
    )
    table.rows(
        [
            {
                "id": str(number),
                "step": one.step,
                "files": len(one.files),
                "size": file_size(one.size),
                "saved": seconds(one.modified),
                "layout": one.layout,
                "state": _bounded(checkpoint_state(one)) or "complete",
                "name": _bounded(one.name),
            }
            for number, one in enumerate(checkpoints)
        ]
    )


def _bounded(text: str) -> str:
    """Return text with names of files on one line, without unprintable characters, and not too long."""
    return str(cut(clean(text), _LONGEST))
