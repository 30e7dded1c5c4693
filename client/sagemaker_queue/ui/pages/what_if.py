"""The page What if: previews of two changed policies, side by side, and advice on settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import yaml
from nicegui import ui

from api_contract.preview import PreviewAnswer
from sagemaker_queue.errors import InvalidDocument, QueueError
from sagemaker_queue.jobs.formatting import amount, duration
from sagemaker_queue.presentation.documents import document_in
from sagemaker_queue.ui.elements import figure_plot, heading
from sagemaker_queue.ui.figures.waits import waits_figure
from sagemaker_queue.ui.parts.advice_card import AdviceCard
from sagemaker_queue.ui.tab import Tab

_HOURS = {1: "1 h", 8: "8 h", 24: "24 h", 48: "48 h"}
_MOST_FACTOR, _MOST_AT_LEAST = 3, 8  # a slider's maximum is 3 times the present value, and at least 8
_NAMED = 5  # maximum number of jobs that a preview names for each change
_DELAY = 0.6  # seconds from the last move of a slider to the request
_ONE_PREVIEW = threading.Lock()  # the queue refuses a second preview of the same caller at the same time


async def what_if_page(tab: Tab) -> None:
    """Add the elements of the page to a tab; a preview is requested after each change by the user."""
    applied = await tab.ask(tab.queue.policy)
    with ui.row().classes("items-center w-full justify-between"):
        heading("What if")
        hours = ui.toggle(_HOURS, value=8).props('aria-label="hours to look ahead"')
    ui.label(
        "The queue simulates its live jobs under another policy. Nothing is changed, and no job is stopped."
    ).classes("smq-faint")
    if applied is None:
        return
    document = dict(applied.policy)
    if not document.get("pools"):
        ui.label("The default policy has nothing to change. Write a policy and apply it: smq policy apply FILE")
        AdviceCard(tab, {})
        return
    sides: list[_TriedPolicy] = []
    with ui.grid(columns="repeat(auto-fit, minmax(min(100%, 460px), 1fr))").classes("w-full gap-4"):
        for name in ("A", "B"):
            with ui.column().classes("smq-card gap-2 w-full"):
                sides.append(_TriedPolicy(tab, name, document, lambda: float(hours.value or 0)))
    waits = ui.column().classes("w-full")
    AdviceCard(tab, {side.name: side.try_policy for side in sides})

    def draw() -> None:
        answers = {side.name: side.answer for side in sides if side.answer is not None}
        waits.clear()
        if not answers:
            return
        with waits:
            plot = figure_plot("Mean wait of each project, now, under A and under B")
        plot.update_figure(waits_figure(answers, tab.theme))

    async def ask_all() -> None:
        for side in sides:
            await side.ask()

    for side in sides:
        side.on_answer = draw
    hours.on_value_change(ask_all)


class _TriedPolicy:
    """A tried policy: the policy in force, changed by sliders or as text."""

    def __init__(self, tab: Tab, name: str, document: Mapping[str, Any], hours: Callable[[], float]) -> None:
        self.name = name
        self.answer: PreviewAnswer | None = None
        self.on_answer: Callable[[], None] = lambda: None
        self._tab = tab
        self._hours = hours
        self._tries = 0  # number of requests and invalid texts so far; the answer to an older request is dropped
        self._document: Any = deepcopy(dict(document))
        heading(name, 2)
        with ui.expansion("Capacities and quotas", value=True).classes("w-full"):
            self._sliders = ui.column().classes("w-full gap-0")
        with ui.expansion("The whole policy, as text").classes("w-full"):
            self._text = ui.codemirror(_as_yaml(self._document), language="YAML", theme="basicLight").classes("w-full")
            self._text.style("max-height: 320px")
            with ui.row():
                ui.button("Try this text", on_click=self._read).props("outline no-caps dense").classes("px-2")
                ui.button("Download", on_click=self._save).props("outline no-caps dense").classes("px-2")
        self._result = ui.column().classes("gap-1 w-full").props("role=status")
        self._show(["Move a slider to see its effect."])
        self._timer = ui.timer(_DELAY, self.ask, active=False)
        self._build_sliders()

    def _build_sliders(self) -> None:
        """Build a slider for the capacity of each pool, and for each quota that a project has or could have."""
        self._sliders.clear()
        with self._sliders:
            for pool in self._document["pools"]:
                self._slider(f"{pool['name']}: {{}} instances", pool, "capacity")
            for project in self._document.get("projects", []):
                quota = project.setdefault("quota", {})
                own = {*quota, *(project.get("pools") or [])}
                for name in [pool["name"] for pool in self._document["pools"]]:
                    if not own or name in own:
                        self._slider(f"{project['name']}: quota of {{}} on {name}", quota, name)

    def _slider(self, title: str, holder: dict[str, Any], key: str) -> None:
        now = int(holder.get(key, 0))
        most = max(_MOST_AT_LEAST, now * _MOST_FACTOR)
        with ui.row().classes("items-center w-full no-wrap gap-3"):
            label = ui.label(title.format(now)).classes("text-sm").style("flex: 0 0 45%")
            slider = ui.slider(min=0, max=most, step=1, value=now).props(f'label snap aria-label="{title.format("n")}"')

        def move() -> None:
            holder[key] = int(slider.value)
            changed = f", now {now}" if holder[key] != now else ""
            label.set_text(f"{title.format(holder[key])}{changed}")
            self._text.set_value(_as_yaml(self._document))
            self._timer.active = False
            self._timer.active = True

        slider.on_value_change(move)

    async def _read(self) -> None:
        try:
            read = document_in(self._text.value or "", "The text")
        except InvalidDocument as error:
            self._tries += 1
            self._fail(str(error))
            return
        await self._replace(read)

    async def try_policy(self, document: Mapping[str, Any]) -> None:
        """Try another policy, and scroll to its preview."""
        ui.run_javascript(f"getHtmlElement({self._result.id}).scrollIntoView({{block: 'center'}})")
        self._text.set_value(_as_yaml(document))
        await self._replace(deepcopy(dict(document)))

    async def _replace(self, document: Any) -> None:
        self._document = document
        try:
            self._build_sliders()
        except (AttributeError, KeyError, TypeError, ValueError):
            self._sliders.clear()  # an invalid policy: the queue's answer says what is wrong
        await self.ask()

    def _save(self) -> None:
        ui.download.content(self._text.value or "", f"policy-{self.name.lower()}.yaml", "text/yaml")

    async def ask(self) -> None:
        """Request and show the preview of this policy, unless a newer try begins before the answer arrives."""
        self._timer.active = False
        self._tries += 1
        this_try = self._tries
        self._show(["Asking ..."])
        answer = await self._tab.ask(
            _previewed, self._tab, deepcopy(self._document), self._hours(), lambda: this_try == self._tries
        )
        if this_try != self._tries:
            return
        if isinstance(answer, str):
            self._fail(answer)
        elif answer is not None:
            self.answer = answer
            self._show(preview_sentences(answer))
            self.on_answer()

    def _fail(self, message: str) -> None:
        """Show an error in place of the earlier preview, also in the figure."""
        self.answer = None
        self._show([message])
        self.on_answer()

    def _show(self, sentences: list[str]) -> None:
        self._result.clear()
        with self._result:
            for sentence in sentences:
                ui.label(sentence).style("white-space: pre-wrap; overflow-wrap: anywhere")


def _as_yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)


def _previewed(
    tab: Tab, document: Mapping[str, Any], hours: float, is_newest: Callable[[], bool]
) -> PreviewAnswer | str | None:
    """Return the preview of a policy, or the message of a QueueError.

    Wait for the end of other previews. Return None, without a request, if a newer try has begun meanwhile.
    """
    try:
        with _ONE_PREVIEW:
            return tab.queue.preview(document, hours=hours) if is_newest() else None
    except QueueError as error:
        return str(error)


def preview_sentences(answer: PreviewAnswer) -> list[str]:
    """Return sentences about the changes in a preview."""
    parts = []
    if answer.starts:
        parts.append(_counted([each.job for each in answer.starts], answer.more_starts, "would start now"))
    if answer.kept_waiting:
        parts.append(_counted(list(answer.kept_waiting), answer.more_kept_waiting, "would not start now"))
    for each in answer.evictions[:_NAMED]:
        parts.append(f"{each.job} would be stopped for {each.claimant} ({each.rule}).")
    if answer.unstartable:
        parts.append(_counted([each.job for each in answer.unstartable], answer.more_unstartable, "could never start"))
    if answer.sooner:
        parts.append(_counted([each.job for each in answer.sooner], answer.more_sooner, "would start sooner"))
    if answer.later:
        parts.append(_counted([each.job for each in answer.later], answer.more_later, "would start later"))
    for project in answer.projects:
        if project.wait_now is not None and project.wait_then is not None and project.wait_now != project.wait_then:
            now, then = duration(project.wait_now), duration(project.wait_then)
            parts.append(f"{project.project}: a mean wait of {then} instead of {now}.")
    remarks = answer.in_use or answer.refused_submissions
    nothing = "No job would start, be stopped or wait longer." if remarks else "Nothing would change for live jobs."
    force = [
        "To apply it anyway, use --force: running jobs continue, and waiting jobs that no longer fit keep waiting."
    ]
    return [
        *(parts or [nothing]),
        *answer.refused_submissions,
        *answer.warnings,
        *answer.in_use,
        *(force if answer.in_use else []),
    ]


def _counted(names: list[str], more: int, what: str) -> str:
    count = len(names) + more
    left = f" and {count - _NAMED} more" if count > _NAMED else ""
    return f"{amount(count, 'job')} {what}: {', '.join(names[:_NAMED])}{left}."
