"""The state that the pages of one browser tab share: the queue, its latest answer, and dark mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import run, ui

from api_contract.models import JobSummary
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import visible
from sagemaker_queue.ui.figures.style import Theme
from sagemaker_queue.ui.view import View
from sagemaker_queue.workflows.advice_run import AdviceRun
from sagemaker_queue.workflows.poller import Poller

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

T = TypeVar("T")
LOOK_SECONDS = 1.0  # seconds between two checks for a new answer of the poller; a check sends no request


@dataclass
class Tab:
    """A browser tab. All tabs share the poller."""

    queue: QueueClient
    poller: Poller[View]
    dark: bool = False
    advice: AdviceRun | None = None  # the latest run

    def cancel_advice(self) -> None:
        """End the run of simulations, if there is one."""
        if self.advice:
            self.advice.cancel()

    @property
    def theme(self) -> Theme:
        """Theme of the figures."""
        return Theme(self.dark)

    @property
    def view(self) -> View:
        """Latest view of the queue."""
        return self.poller.latest

    def on_update(self, show: Callable[[View], Awaitable[None] | None]) -> None:
        """Call ``show`` now, and after each new view or change of dark mode, until the calling page is closed."""
        shown: tuple[View, bool] | None = None

        async def look() -> None:
            nonlocal shown
            if shown is None or shown[0] is not self.view or shown[1] != self.dark:
                shown = (self.view, self.dark)
                awaitable = show(shown[0])
                if awaitable is not None:
                    await awaitable

        ui.timer(LOOK_SECONDS, look)

    async def ask(self, question: Callable[..., T], *arguments: Any, **options: Any) -> T | None:
        """Call ``question`` in a thread, and return the result; after a QueueError, show a message and return None."""
        try:
            return await run.io_bound(question, *arguments, **options)
        except QueueError as error:
            show_message(str(error), is_error=True)
            return None

    def may_change(self, job: JobSummary) -> bool:
        """Return whether this user may change the job: the user owns the job, or is an administrator."""
        identity = self.view.identity
        return identity.admin or job.owner == identity.owner

    def hurry(self) -> None:
        """Make the poller send a request at once."""
        self.poller.hurry()


def show_message(text: str, *, is_error: bool = False) -> None:
    """Show a message for four seconds; an error stays until the user closes it."""
    ui.notify(
        visible(text),
        type="negative" if is_error else "positive",
        position="top",
        close_button="Close" if is_error else False,
        timeout=0 if is_error else 4000,
        multi_line=True,
    )
