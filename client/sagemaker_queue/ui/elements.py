"""Elements that several pages share: tables, columns, figures and headings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import events, ui
from plotly import graph_objects as go

from api_contract.models import JobSummary
from sagemaker_queue.jobs.formatting import age, short_owner, stage_word, visible
from sagemaker_queue.ui.view import View

Row = Mapping[str, object]
_ROW_HEIGHT, _HEADER_HEIGHT = 34, 38
_BROWSER_SECONDS = 30.0  # maximum wait for an answer of the browser, which may be busy
_AGES_SECONDS = 5.0  # seconds between two updates of relative times
_EACH_COLUMN = {
    "resizable": True,
    "minWidth": 70,
    "suppressHeaderMenuButton": True,
    "wrapHeaderText": True,
    "autoHeaderHeight": True,
}
# Names are set as text, never as HTML, because names are user input. Behind a proxy, addresses have a prefix.
_LINK = """params => {
  if (!params.value) return '';
  const link = document.createElement('a');
  link.textContent = params.value;
  link.href = (window.path_prefix || '') + '/job/' + encodeURIComponent(params.value);
  return link;
}"""


def heading(text: str, level: int = 1) -> None:
    """Add a heading of the page."""
    with ui.element(f"h{level}").classes("m-0"):
        ui.label(text)


class Grid:
    """A table that users can sort, filter and use by keyboard. The table stays fast with thousands of rows."""

    def __init__(self, columns: Sequence[Mapping[str, Any]], empty: str, *, height: str, **options: Any) -> None:
        self.element = ui.aggrid(
            {
                "columnDefs": list(columns),
                "defaultColDef": _EACH_COLUMN,
                "rowData": [],
                "rowHeight": _ROW_HEIGHT,
                "headerHeight": _HEADER_HEIGHT,
                "suppressFieldDotNotation": True,
                "enableCellTextSelection": True,
                ":getRowId": "params => params.data.id",
                "overlayNoRowsTemplate": f"<span>{empty}</span>",
                **({"domLayout": "autoHeight"} if height == "auto" else {}),
                **options,
            },
            auto_size_columns=not any("flex" in column for column in columns),
        )
        self.element.style("height: auto" if height == "auto" else f"height: {height}")
        self._rows: list[Row] = []
        self.element.on("gridReady", self._send)
        if timed := [column["field"] for column in columns if ":valueFormatter" in column]:
            ui.timer(
                _AGES_SECONDS, lambda: self.element.run_grid_method("refreshCells", {"columns": timed, "force": True})
            )

    def rows(self, rows: Sequence[Row]) -> None:
        """Show these rows; selection and scroll position are kept."""
        if rows != self._rows:
            self._rows = list(rows)
            self._send()

    def filter(self, text: str) -> None:
        """Show only the rows that contain these words."""
        self.element.run_grid_method("setGridOption", "quickFilterText", text)

    async def only_row(self) -> str | None:
        """Return the id of the row if the filter shows exactly one row."""
        grid = f"getElement({self.element.id}).api"
        only = f"{grid}.getDisplayedRowCount() === 1 ? {grid}.getDisplayedRowAtIndex(0).id : null"
        row: str | None = await self.element.client.run_javascript(f"return {only}", timeout=_BROWSER_SECONDS)
        return row

    async def selected(self) -> list[str]:
        """Return the ids of the selected rows."""
        rows = await self.element.run_grid_method("getSelectedRows", timeout=_BROWSER_SECONDS)
        return [str(row["id"]) for row in rows]

    def _send(self) -> None:
        shown = [{key: visible(it) if isinstance(it, str) else it for key, it in row.items()} for row in self._rows]
        self.element.run_grid_method("setGridOption", "rowData", shown)


def grid(columns: Sequence[Mapping[str, Any]], empty: str, *, height: str = "60vh", **options: Any) -> Grid:
    """Add a table."""
    return Grid(columns, empty, height=height, **options)


def job_column(name: str) -> dict[str, Any]:
    """Return a column of jobs' names, each a link to the job's page."""
    return {"field": "job", "headerName": name, ":cellRenderer": _LINK, "width": 170, "pinned": "left"}


def number_column(field: str, name: str, decimals: int = 0, **more: Any) -> dict[str, Any]:
    """Return a column of numbers with a fixed number of decimals."""
    format = {":valueFormatter": f"params => smqNumber(params.value, {decimals})"}
    return {"field": field, "headerName": name, "type": "rightAligned", **format, **more}


def time_column(field: str, name: str, how: str = "", **more: Any) -> dict[str, Any]:
    """Return a column of times, given in seconds since the epoch; shown relative to now, or in UTC for ``at``.

    ``how`` is the form: ``for``, ``ago``, ``in``, ``in about`` or ``at``. A form with a digit is shown in place of the
    time, and so is the form of a missing time. Without ``how``, the cell ``<field>How`` of each row has the form.
    """
    form = f"'{how}'" if how else f"params.data.{field}How"
    format = {":valueFormatter": f"params => smqWhen(params.value, {form})"}
    return {"field": field, "headerName": name, **format, **more}


def seconds(time: datetime | None) -> float | None:
    """Return a time as seconds since the epoch, for ``time_column``."""
    return time.timestamp() if time else None


def state_text(job: JobSummary) -> str:
    """Return a job's state, with a remark if the job hangs, is idle or is on hold; else the stage, or the state."""
    if job.hung_since:
        return f"{job.state}, hangs for {age(job.hung_since)}"
    if job.idle_since:
        return f"{job.state}, idle for {age(job.idle_since)}"
    return f"{job.state}, on hold" if job.held else stage_word(job) or job.state


def job_cells(job: JobSummary) -> dict[str, object]:
    """Return the cells that a job's row has in every table, with the row's id."""
    return {
        "id": job.job,
        "job": job.job,
        "state": state_text(job),
        "project": job.project,
        "owner": short_owner(job.owner),
    }


def job_plot(description: str) -> ui.plotly:
    """Add an empty figure in which a click on a bar opens the page of its job."""
    plot = figure_plot(description)

    def clicked(event: events.GenericEventArguments) -> None:
        for point in event.args.get("points", []):
            custom = point.get("customdata") or [""]
            if custom[0]:
                ui.navigate.to(f"/job/{custom[0]}")
                return

    plot.on("plotly_click", clicked)
    return plot


def figure_plot(description: str) -> ui.plotly:
    """Add an empty figure, with a ``description`` for screen readers."""
    plot = ui.plotly(go.Figure()).classes("w-full")
    return plot.props(f'role=img aria-label="{description}"')


def fact(name: str, value: object) -> None:
    """Add a name and a value to a grid of two columns."""
    ui.label(name).classes("smq-faint")
    ui.label(str(value)).style("overflow-wrap: anywhere")


def getting_started(view: View) -> None:
    """Add instructions for a first job if the queue is empty and no attempt has ended recently."""
    if view.live or view.past:
        return
    with ui.column().classes("smq-card gap-1"):
        ui.label("No job runs, waits or has ended recently.").classes("text-lg")
        ui.label("Submit a command from the folder of your code:")
        ui.code("smq submit -- python train.py", language="bash")
        ui.label("or an estimator of the SageMaker SDK, with the session of the queue:")
        ui.code(
            "from sagemaker_queue import QueueTrainingJobSession\n"
            "estimator = PyTorch(..., sagemaker_session=QueueTrainingJobSession())\nestimator.fit()",
            language="python",
        )
