"""The page about a job: reasons to wait, attempts, log, history, request and results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from nicegui import ui

from api_contract.models import JobDetail
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import (
    NOT_ESTIMATED,
    age,
    end_sentence,
    file_size,
    instances,
    is_not_estimated_yet,
    moment,
    one_line,
    ordinal,
    short_owner,
    stage_sentence,
    visible,
)
from sagemaker_queue.jobs.packaging.storage import Stored
from sagemaker_queue.presentation.tables.failure_tables import (
    failure_facts,
    failure_lines,
    failure_title,
    shown_failure,
)
from sagemaker_queue.presentation.tables.jobs import (
    attempt_headers,
    attempt_rows,
    hang_sentence,
    limit_facts,
)
from sagemaker_queue.queue.data_links import S3Address
from sagemaker_queue.ui.elements import fact, figure_plot, heading
from sagemaker_queue.ui.figures.timeline import timeline_figure, timeline_text
from sagemaker_queue.ui.parts.job_buttons import JobButtons
from sagemaker_queue.ui.parts.job_checkpoints import checkpoints_button
from sagemaker_queue.ui.parts.job_log import fit, show_log
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View
from sagemaker_queue.workflows.attempt_storage import address_there, last_launched, storage_there
from sagemaker_queue.workflows.results import checkpoints_of, results_of

_FILES = 200  # maximum number of files that are listed in the results
_AHEAD = 10  # maximum number of jobs ahead, and of blockers, that are listed by name


async def job_page(tab: Tab, name: str) -> None:  # noqa: PLR0915  (one statement for each element)
    """Add the elements of a job's page to a tab; the job is read again with every new view of the tab."""
    job = await tab.ask(tab.queue.job, name)
    if job is None:
        heading(name)
        ui.label("The queue has no job of this name, or no longer stores it.")
        return
    with ui.row().classes("items-center w-full justify-between"):
        heading(job.job)
        actions = JobButtons(tab)
    actions.select([name])
    about = ui.column().classes("w-full gap-2")
    plot = figure_plot(timeline_text(job))
    with ui.tabs().props("no-caps align=left").classes("w-full") as tabs:
        for title in ("Log", "History", "Request", "Results"):
            ui.tab(title)
    with ui.tab_panels(tabs, value="Log", animated=False).classes("w-full"):
        with ui.tab_panel("Log"):
            log = show_log(tab, name)
        with ui.tab_panel("History"):
            history = ui.column().classes("w-full")
        with ui.tab_panel("Request"):
            ui.code(json.dumps(dict(job.request), indent=2), language="json").classes("w-full")
        with ui.tab_panel("Results"):
            results = ui.column().classes("w-full")
    shown: list[tuple[object, ...]] = []
    advice: dict[str, tuple[str, ...]] = {}  # code of the reason to wait -> the queue's advice about this reason

    async def advise() -> None:
        """Request advice on changes that would let the job start.

        Advice is requested only after a click, because the queue must compute plans for it.
        """
        latest = await tab.ask(tab.queue.job, name, advice=True)
        if latest is not None and latest.why:
            advice.clear()
            advice[_reason(latest)] = latest.why.advice
            show(latest)

    def show(job: JobDetail) -> None:
        actions.update({job.job: job})
        fit(log, job)
        plot.update_figure(timeline_figure(job, tab.view.at, tab.theme))
        about.clear()
        with about:
            _about(job, advice.get(_reason(job)), advise)
            _failure(job)
        state = (job.state, len(job.history), tab.dark)
        if shown == [state]:
            return
        shown[:] = [state]
        history.clear()
        with history:
            _history(job)
        results.clear()
        with results:
            _results(tab, job)

    async def look(_: View) -> None:
        latest = await tab.ask(tab.queue.job, name)
        if latest is not None:
            show(latest)

    show(job)
    tab.on_update(look)


def _reason(job: JobDetail) -> str:
    return job.reason.code if job.reason else ""


def _about(job: JobDetail, advice: Sequence[str] | None, advise: Callable[[], Awaitable[None]]) -> None:
    with ui.row().classes("gap-4 w-full items-stretch"):
        with ui.column().classes("smq-card grow gap-1").style("flex-basis: 420px"):
            ui.label(_headline(job)).classes("text-lg")
            if job.hung_since:
                ui.label(hang_sentence(job))
            elif job.idle_since:
                ui.label(f"Its GPUs have been idle for {age(job.idle_since)}.")
            if job.unsaved_since:
                ui.label(f"No checkpoint for {age(job.unsaved_since)}: a preemption would lose this work.")
            if job.reason and job.reason.message:
                ui.label(visible(job.reason.message))
            if job.expected_start:
                ui.label(f"Expected start: {job.expected_start.message}")
            elif job.waits and is_not_estimated_yet(job):
                ui.label(f"Expected start: {NOT_ESTIMATED}")
            elif job.expected_end:
                ui.label(f"Expected end: {end_sentence(job.expected_end)}")
            if job.why:
                _names("Ahead of it", job.why.ahead)
                _names("Blocked by", job.why.blockers)
                if advice is None:
                    ui.button("Show advice", on_click=advise).props("flat dense no-caps")
                for remedy in advice or ():
                    ui.label(f"Advice: {visible(remedy)}")
        with ui.grid(columns="auto 1fr").classes("smq-card gap-x-4 gap-y-1").style("flex-basis: 320px"):
            facts = {
                "Project": job.project,
                "Owner": short_owner(job.owner),
                "Group": job.group,
                "Priority": job.priority,
                "Instances": instances(job.slots or job.last_slots) or job.instances if job.gpus is None else None,
                "GPUs": None if job.gpus is None else f"{job.gpus:g} of a shared instance",
                "Shared instance": job.carrier,
                "Submitted": f"{moment(job.entry_time)} UTC",
                "Interactive": "yes" if job.interactive else None,
                "Preemptible": None if job.may_be_preempted else "no",
                "On hold": "yes: it starts after it is released" if job.held else None,
                **limit_facts(job),
                "Retries": f"{job.retried} of {job.retries} used" if job.retries else None,
            }
            for title, value in facts.items():
                if value not in (None, ""):
                    fact(title, value)


def _failure(job: JobDetail) -> None:
    """Add the class, the cause and the remedy of a job's failure, and the log lines of the rank that failed first."""
    failure = shown_failure(job)
    if failure is None:
        return
    with ui.column().classes("smq-card w-full gap-2"):
        heading(failure_title(job, failure), 2)
        with ui.grid(columns="auto 1fr").classes("gap-x-4 gap-y-1"):
            for title, value in failure_facts(failure).items():
                if value not in (None, ""):
                    fact(title, visible(str(value)))
        if failure.lines:
            ui.label("Last log lines" + (f" of {visible(failure.rank)}" if failure.rank else "")).classes("smq-faint")
            with ui.column().classes("gap-0"):
                for line in failure_lines(failure):
                    ui.label(line).classes("font-mono text-sm").style("overflow-wrap: anywhere; white-space: pre-wrap")


def _headline(job: JobDetail) -> str:
    since = age(job.state_since)
    if job.waits:
        position = f", {ordinal(job.position)} in the queue" if job.position else ""
        return f"Waiting{position}, for {since}"
    if job.finished:
        return f"{job.state.capitalize()} {since} ago"
    stopping = " (cancelled, being stopped)" if job.cancel_requested else ""
    stage = f": {stage_sentence(job)}, for {age(job.secondary_status_since)}" if stage_sentence(job) else ""
    return f"{job.state.capitalize()}{stopping}, for {age(job.started or job.state_since)}{stage}"


def _names(title: str, names: tuple[str, ...]) -> None:
    if names:
        with ui.row().classes("gap-2 items-baseline"):
            ui.label(f"{title}:")
            for name in names[:_AHEAD]:
                ui.link(name, f"/job/{name}")
            if len(names) > _AHEAD:
                ui.label("and more")


def _history(job: JobDetail) -> None:
    if job.attempts:
        headers = attempt_headers(job)
        with ui.grid(columns=f"repeat({len(headers)}, auto)").classes("gap-x-6 gap-y-1"):
            for title in headers:
                ui.label(title).classes("font-medium")
            for row in attempt_rows(job):
                for value in row:
                    ui.label("" if value is None else visible(str(value)))
    with ui.grid(columns="auto auto auto 1fr").classes("gap-x-6 gap-y-1"):
        for title in ("Time (UTC)", "Attempt", "State", "Cause"):
            ui.label(title).classes("font-medium")
        for change in job.history:
            ui.label(moment(change.at))
            ui.label(str(change.attempt or ""))
            ui.label(change.state)
            ui.label(visible(change.cause)).style("overflow-wrap: anywhere")


def _results(tab: Tab, job: JobDetail) -> None:
    get = f"smq get {job.job}"
    _files_section(tab, job, "Results", _found(results_of, job), get, "Results are available after its end.")
    saved = _found(checkpoints_of, job)
    _files_section(tab, job, "Checkpoints", saved, f"{get} --checkpoints", "The job saves no checkpoints.")
    if saved is not None:
        checkpoints_button(tab, job.job)


def _found(where: Callable[[JobDetail], S3Address], job: JobDetail) -> S3Address | None:
    try:
        return where(job)
    except QueueError:
        return None


def _files_section(tab: Tab, job: JobDetail, title: str, address: S3Address | None, command: str, nothing: str) -> None:
    heading(title, 2)
    if address is None:
        ui.label(nothing).classes("smq-faint")
        return
    ui.label(str(address)).classes("font-mono text-sm")
    with ui.row().classes("items-center"):
        ui.label("Download:")
        ui.code(command, language="bash")
    listing = ui.column().classes("gap-0")

    async def list_files() -> None:
        found = await tab.ask(_files, tab, job, address)
        listing.clear()
        with listing:
            for stored in found or []:
                key = one_line(stored.address.key)  # chosen by the job's program
                ui.label(f"{key}  {file_size(stored.size)}").classes("font-mono text-sm")
            if found is not None and not found:
                ui.label("No files.").classes("smq-faint")

    ui.button("List files", on_click=list_files).props("flat no-caps dense")


def _files(tab: Tab, job: JobDetail, address: S3Address) -> list[Stored]:
    attempt = last_launched(job)
    attempt_address = address_there(tab.queue, job, attempt, address)
    return list(islice(storage_there(tab.queue, job, attempt, attempt_address).objects(attempt_address), _FILES))
