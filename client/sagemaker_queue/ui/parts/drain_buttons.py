"""Buttons of admins to drain a pool, to change the drain, and to end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from nicegui import ui

from api_contract.models import JobSummary, PoolDrain, PoolStatus
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import amount, moment
from sagemaker_queue.presentation.tables.fleet_tables import (
    drain_effects,
    drain_sentence,
    drain_text,
    undrain_sentence,
)
from sagemaker_queue.ui.tab import Tab, show_message
from sagemaker_queue.workflows.usage.period import moment_ahead

_STOPS = {"preemptible": "preemptible jobs", "all": "all jobs", "none": "no jobs"}
_LONGEST_REASON = 300  # characters; the API's limit


class DrainButtons:
    """The buttons of all pools, and their dialogs.

    A dialog stays open while new views replace the cards of the pools, so the dialogs have an element of their own.
    """

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._dialogs = ui.element()

    def add(self, pool: PoolStatus) -> None:
        """Add the buttons of a pool, if the user is an admin of the queue."""
        if not self._tab.view.identity.admin:
            return
        with ui.row().classes("gap-1 mt-2"):
            if pool.drain is None:
                self._button("Drain", pool, self._ask_drain)
            else:
                self._button("Change drain", pool, self._ask_drain)
                self._button("Undrain", pool, self._ask_undrain)

    def _button(self, name: str, pool: PoolStatus, does: Callable[[PoolStatus], Any]) -> None:
        button = ui.button(name, on_click=partial(does, pool)).props("outline no-caps dense").classes("px-2")
        button.props["aria-label"] = f"{name} {pool.name}"

    async def _ask_drain(self, pool: PoolStatus) -> None:
        with self._dialogs:
            dialog = _drain_dialog(pool, jobs_in(pool, self._tab.view.live))
            wanted = await dialog
            dialog.delete()
            if wanted is not None:
                answer = await self._tab.ask(self._tab.queue.drain, pool.name, **wanted)
                self._report(drain_sentence(answer) if answer else None)

    async def _ask_undrain(self, pool: PoolStatus) -> None:
        with self._dialogs:
            with ui.dialog() as dialog, ui.card():
                ui.label(f"End the drain of {pool.name}? Jobs start there again.")
                with ui.row():
                    ui.button("End the drain", on_click=lambda: dialog.submit(True)).props("no-caps")
                    ui.button("Keep it", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
            is_sure = await dialog
            dialog.delete()
            if is_sure:
                answer = await self._tab.ask(self._tab.queue.undrain, pool.name)
                self._report(undrain_sentence(answer) if answer else None)

    def _report(self, sentence: str | None) -> None:
        if sentence:
            show_message(f"{sentence}.")
        self._tab.hurry()


def jobs_in(pool: PoolStatus, jobs: Iterable[JobSummary]) -> list[JobSummary]:
    """Return the jobs that hold instances of a pool, or GPUs of a shared instance of the pool; leave out carriers."""
    active = [job for job in jobs if not (job.waits or job.finished)]
    carriers = {job.job for job in active if job.carries is not None and pool.name in job.slots}
    return [job for job in active if job.carries is None and (pool.name in job.slots or job.carrier in carriers)]


def drain_remarks(drain: PoolDrain, jobs: list[JobSummary]) -> list[str]:
    """Return remarks about a drain: by whom, since when and why; which jobs it stops; how many jobs are left."""
    stopping = sum(job.state == "stopping" for job in jobs)
    left = f"{amount(len(jobs), 'job')} left" if jobs else "no job is left"
    return [
        drain_text(drain),
        f"jobs that it stops: {_STOPS.get(drain.stops, drain.stops)}",
        f"{left}, {stopping} being stopped" if stopping else left,
    ]


def _drain_dialog(pool: PoolStatus, jobs: list[JobSummary]) -> ui.dialog:
    """Return the dialog of a drain, whose result is the arguments of ``QueueClient.drain``, or None."""
    drain = pool.drain
    later = moment(drain.at) if drain and not drain.in_force else ""
    with ui.dialog() as dialog, ui.card():
        ui.label(f"Drain {pool.name}").classes("text-lg")
        ui.label(
            "From that time on, no job starts there. Stopped jobs wait again in their former positions. They resume "
            "from "
            "their checkpoints in another pool that they accept, or after the drain."
        )
        at = ui.input("From", value=later, validation=_fault_of).classes("w-full")
        at.props('hint="now if empty; 2026-11-22T18:00 (UTC), or 30m, 12h, 7d from now"')
        reason = ui.input("Reason", value=drain.reason if drain else "").props(f"maxlength={_LONGEST_REASON}")
        reason.classes("w-full")
        ui.label("Running jobs that are stopped:").classes("mt-2")
        stops = ui.radio(_STOPS, value=drain.stops if drain and drain.stops in _STOPS else "preemptible")
        effect = ui.label().props("role=status").classes("text-sm")

        def show_effect() -> None:
            stopped = sum(
                stops.value == "all" or (stops.value == "preemptible" and job.may_be_preempted) for job in jobs
            )
            clauses = drain_effects(stopped, len(jobs) - stopped, now=not at.value)
            effect.set_text(f"For the jobs that run now: {', '.join(clauses) or 'no job runs there'}.")

        def submit() -> None:
            if at.validate():
                when = moment_ahead(at.value.strip()) if at.value and at.value.strip() else None
                dialog.submit({"at": when, "reason": (reason.value or "").strip(), "stops": stops.value})

        with ui.row():
            ui.button("Drain", on_click=submit).props("no-caps color=negative")
            ui.button("Leave it", on_click=lambda: dialog.submit(None)).props("flat no-caps")
    at.on_value_change(show_effect)
    stops.on_value_change(show_effect)
    show_effect()
    return dialog


def _fault_of(text: str | None) -> str | None:
    """Return what is wrong with the time of a drain, or None."""
    try:
        if text and text.strip():
            moment_ahead(text.strip())
    except InvalidOption as error:
        return str(error)
    return None
