"""Buttons to hold, release, requeue, cancel and prioritise jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nicegui import ui

from api_contract.models import JobSummary
from sagemaker_queue.jobs.formatting import amount
from sagemaker_queue.ui.tab import Tab, show_message

_NAMED = 8  # maximum number of jobs that a question names


class JobButtons:
    """The buttons for the selected jobs; only buttons for permitted actions are enabled."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._jobs: Mapping[str, JobSummary] = {}
        self._chosen: list[str] = []
        with ui.row().classes("gap-1"):
            self._hold = self._button("Hold", "pause", self._hold_all)
            self._hold_now = self._button("Hold now", "pause_circle", self._hold_all_now)
            self._release = self._button("Release", "play_arrow", self._release_all)
            self._requeue = self._button("Requeue", "replay", self._requeue_all)
            self._priority = self._button("Priority", "swap_vert", self._ask_priority)
            self._cancel = self._button("Cancel", "stop", self._ask_cancel)
        self._refused = ui.label("Only the owner of a job or an administrator may change it.")
        self._refused.classes("text-sm smq-faint")
        self._enable()

    def update(self, jobs: Mapping[str, JobSummary]) -> None:
        """Set the known jobs by name, among which ``select`` chooses."""
        self._jobs = jobs
        self._enable()

    def select(self, names: Iterable[str]) -> None:
        """Set the names of the selected jobs."""
        self._chosen = list(names)
        self._enable()

    def _button(self, name: str, icon: str, action: Callable[[], Any]) -> ui.button:
        return ui.button(name, icon=icon, on_click=action).props("outline no-caps dense").classes("px-2")

    def _enable(self) -> None:
        selected = self._selected_jobs()
        allowed = bool(selected) and all(self._tab.may_change(job) for job in selected)
        self._refused.set_visibility(bool(selected) and not allowed)
        self._hold.set_enabled(allowed and any(not job.held for job in selected))
        self._hold_now.set_enabled(allowed and any(_runs(job) for job in selected))
        self._release.set_enabled(allowed and any(job.held for job in selected))
        self._requeue.set_enabled(allowed and bool(selected) and all(_runs(job) for job in selected))
        self._priority.set_enabled(allowed)
        self._cancel.set_enabled(allowed)

    def _selected_jobs(self) -> list[JobSummary]:
        jobs = [self._jobs[name] for name in self._chosen if name in self._jobs]
        return [job for job in jobs if not job.finished]

    async def _hold_all(self) -> None:
        await self._apply_to_each("held", lambda name: self._tab.queue.change(name, held=True))

    async def _hold_all_now(self) -> None:
        await self._apply_to_each("held", lambda name: self._tab.queue.change(name, held=True, now=True))

    async def _requeue_all(self) -> None:
        await self._apply_to_each("requeued", self._tab.queue.requeue)

    async def _release_all(self) -> None:
        await self._apply_to_each("released", lambda name: self._tab.queue.change(name, held=False))

    async def _ask_priority(self) -> None:
        selected = self._selected_jobs()
        with ui.dialog() as dialog, ui.card():
            ui.label(f"New priority of {_short_list(selected)}")
            given = ui.number("priority", value=selected[0].priority, precision=0, format="%d").props("autofocus")
            with ui.row():
                ui.button("Change", on_click=lambda: dialog.submit(given.value))
                ui.button("Leave it", on_click=lambda: dialog.submit(None)).props("flat")
        given.on("keydown.enter", lambda: dialog.submit(given.value))
        wanted = await dialog
        dialog.delete()
        if wanted is not None:
            await self._apply_to_each("changed", lambda name: self._tab.queue.change(name, priority=int(wanted)))

    async def _ask_cancel(self) -> None:
        selected = self._selected_jobs()
        running = sum(not job.waits for job in selected)
        with ui.dialog() as dialog, ui.card():
            ui.label(f"Cancel {_short_list(selected)}?")
            if running:
                ui.label(f"{amount(running, 'job')} would be stopped.")
            with ui.row():
                ui.button(
                    "Cancel them" if len(selected) > 1 else "Cancel it", on_click=lambda: dialog.submit(True)
                ).props("color=negative")
                ui.button("Keep", on_click=lambda: dialog.submit(False)).props("flat autofocus")
        is_sure = await dialog
        dialog.delete()
        if is_sure:
            await self._apply_to_each("cancelled", self._tab.queue.cancel)

    async def _apply_to_each(self, done: str, action: Callable[[str], Any]) -> None:
        names = [job.job for job in self._selected_jobs()]
        changed = [name for name in names if await self._tab.ask(action, name) is not None]
        if changed:
            show_message(f"{changed[0] if len(changed) == 1 else amount(len(changed), 'job')} {done}.")
        self._tab.hurry()


def _runs(job: JobSummary) -> bool:
    return job.state in ("starting", "running") and not job.cancel_requested and not job.is_carrier


def _short_list(jobs: list[JobSummary]) -> str:
    names = [job.job for job in jobs[:_NAMED]]
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(names) + more
