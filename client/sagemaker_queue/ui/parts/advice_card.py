"""The card with advice on settings, from simulations of the queue's history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import duration, visible
from sagemaker_queue.ui.elements import grid, heading
from sagemaker_queue.ui.tab import Tab, show_message
from sagemaker_queue.workflows.advice_run import AdviceRun
from sagemaker_queue.workflows.settings_advice import LEAST_MINUTES, MOST_MINUTES

if TYPE_CHECKING:
    from job_queue.simulation.experiments.advice_report import AdviceReport

TryPolicy = Callable[[Mapping[str, Any]], Awaitable[None]]
_WEEKS = {1: "1 week", 4: "4 weeks", 8: "8 weeks"}
_MINUTES = 5  # default time limit for all simulations together
_CELL_PADDING, _LETTER_WIDTH = 40, 7.5  # pixels
_LOOK_SECONDS = 0.5  # between two updates of the progress


class AdviceCard:
    """The card: the length of the history, the progress of the simulations, and the advice.

    The tab keeps the run, so a user may visit other pages meanwhile. ``tries`` maps the name of each tried policy to
    the function that replaces this policy.
    """

    def __init__(self, tab: Tab, tries: Mapping[str, TryPolicy]) -> None:
        self._tab = tab
        self._tries = tries
        self._shown: AdviceRun | None = None
        with ui.column().classes("smq-card gap-2 w-full"):
            heading("Advice on settings", 2)
            ui.label(
                "Simulate the history of the queue under the policy in force and under changes of its settings, on the "
                "machine of smq ui. Nothing is applied. The command smq policy advise does the same, and can leave out "
                "or rename projects."
            ).classes("smq-faint")
            with ui.row().classes("items-center gap-4"):
                self._weeks = ui.toggle(dict(_WEEKS), value=4).props('aria-label="length of the history"')
                self._minutes = ui.number("Minutes at most", value=_MINUTES, min=LEAST_MINUTES, max=MOST_MINUTES)
                self._minutes.props("dense outlined").classes("w-36")
                self._start = ui.button("Simulate the history", on_click=self._begin).props("outline no-caps")
                self._cancel = ui.button("Cancel", on_click=tab.cancel_advice).props("outline no-caps")
            self._bar = ui.linear_progress(0, show_value=False, size="10px").props('aria-label="simulations"')
            self._progress = ui.label()
            self._status = _text("").props("role=status")
            self._result = ui.column().classes("gap-2 w-full")
        ui.timer(_LOOK_SECONDS, self._look)

    def _begin(self) -> None:
        try:
            self._tab.advice = AdviceRun(self._tab.queue, self._weeks.value, self._minutes.value or _MINUTES)
        except QueueError as error:
            show_message(str(error), is_error=True)
            return
        self._status.set_text("")
        self._result.clear()
        self._look()

    def _look(self) -> None:
        """Show the progress of the run, or its outcome once it has ended."""
        run = self._tab.advice
        is_running = run is not None and run.is_running
        self._start.set_enabled(not is_running)
        for element in (self._cancel, self._bar, self._progress):
            element.set_visibility(is_running)
        if run is None:
            return
        if is_running:
            text, part = progress_of(run)
            self._progress.set_text(text)
            self._bar.set_value(part or 0)
            self._bar.props(**{"add" if part is None else "remove": "indeterminate"})
        elif run is not self._shown:
            self._shown = run
            self._show(run)

    def _show(self, run: AdviceRun) -> None:
        self._result.clear()
        if isinstance(run.outcome, str):
            self._status.set_text(visible(run.outcome))
            return
        assert run.policy is not None
        self._status.set_text(f"Version {run.policy.version} of the policy is in force. {run.outcome.basis}")
        with self._result:
            self._report(run.outcome, run.policy.policy)

    def _report(self, report: AdviceReport, policy: Mapping[str, Any]) -> None:
        from job_queue.simulation.experiments.advice_report import CLASS_HEADERS, HEADERS, LEGEND  # noqa: PLC0415

        if report.rows:
            _table(HEADERS, report.rows)
        for remark in report.remarks:
            _text(remark)
        if report.classes:
            _table(CLASS_HEADERS, report.classes)
        _text(report.conclusion)
        if report.lines:
            self._lines(report, policy)
        if report.rows:
            _text(LEGEND).classes("smq-faint")

    def _lines(self, report: AdviceReport, policy: Mapping[str, Any]) -> None:
        """Add the advised lines, and buttons to try and to download them."""
        lines = "\n".join(report.lines)
        advised = {**policy, "settings": {**(policy.get("settings") or {}), **report.settings}}
        ui.code(lines, language="yaml").classes("w-full")
        buttons: dict[str, Callable[[], object]] = {
            f"Try as {name}": partial(try_policy, advised) for name, try_policy in self._tries.items()
        }
        buttons["Download"] = partial(ui.download.content, f"{lines}\n", "settings.yaml", "text/yaml")
        with ui.row():
            for text, action in buttons.items():
                ui.button(text, on_click=action).props("outline no-caps dense").classes("px-2")


def progress_of(run: AdviceRun) -> tuple[str, float | None]:
    """Return the progress of a run as text, and the finished fraction; None if the fraction is unknown."""
    progress = run.progress
    if isinstance(progress, int):
        return f"Reading the history: {progress:,} attempts.", None
    time = f"{duration(progress.elapsed)} of at most {duration(run.minutes * 60)}"
    text = f"{progress.done} of about {progress.expected} simulations, {time}. Now: {progress.title}."
    return text, min(1.0, max(progress.done / progress.expected, progress.elapsed / (run.minutes * 60)))


def _text(text: str) -> ui.label:
    return ui.label(visible(text)).style("overflow-wrap: anywhere")


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Add a table of a report, whose first column has unique names and stays in view."""
    columns: list[dict[str, Any]] = [
        {
            "field": str(number),
            "headerName": header,
            "sortable": False,
            "minWidth": _CELL_PADDING + _LETTER_WIDTH * max(map(len, cells)),
            **({"type": "rightAligned"} if number else {"pinned": "left"}),
        }
        for number, (header, *cells) in enumerate(zip(headers, *rows))
    ]
    table = grid(columns, "Nothing.", height="auto")
    table.rows([{"id": row[0], **{str(number): cell for number, cell in enumerate(row)}} for row in rows])
