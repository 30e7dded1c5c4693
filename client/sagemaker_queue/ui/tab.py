"""What the pages of one browser tab share: the queue, what it has answered last, and how to ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import run, ui

from sagemaker_queue.actions.poller import Poller
from sagemaker_queue.errors import QueueError
from sagemaker_queue.formatting import visible
from sagemaker_queue.models import JobSummary
from sagemaker_queue.ui.figures.style import Theme
from sagemaker_queue.ui.view import View

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

T = TypeVar("T")
LOOK_SECONDS = 1.0  # between two looks at whether there are news; the queue is asked by the poller alone


@dataclass
class Tab:
    """One tab. Its elements belong to it alone, the poller to all."""

    queue: QueueClient
    poller: Poller[View]
    dark: bool = False

    @property
    def theme(self) -> Theme:
        """How figures are drawn in it."""
        return Theme(self.dark)

    @property
    def view(self) -> View:
        """What the queue has answered last."""
        return self.poller.latest

    def kept_fresh(self, show: Callable[[View], Awaitable[None] | None]) -> None:
        """Show what there is, now and when there are news, for as long as the place where this is called exists."""
        shown: tuple[View, bool] | None = None

        async def look() -> None:
            nonlocal shown
            if shown is None or shown[0] is not self.view or shown[1] != self.dark:
                shown = (self.view, self.dark)
                waits = show(shown[0])
                if waits is not None:
                    await waits

        ui.timer(LOOK_SECONDS, look)

    async def ask(self, question: Callable[..., T], *words: Any, **named: Any) -> T | None:
        """Ask the queue in a thread; None, and a message, if it refuses or does not answer."""
        try:
            return await run.io_bound(question, *words, **named)
        except QueueError as error:
            tell(str(error), is_bad=True)
            return None

    def may_change(self, job: JobSummary) -> bool:
        """Whether the queue would let this user hold, release or cancel the job."""
        identity = self.view.identity
        return identity.admin or job.owner == identity.owner

    def hurry(self) -> None:
        """Let the queue be asked at once."""
        self.poller.hurry()


def tell(text: str, *, is_bad: bool = False) -> None:
    """Show a message for some seconds; a bad one until it is closed."""
    ui.notify(
        visible(text),
        type="negative" if is_bad else "positive",
        position="top",
        close_button="Close" if is_bad else False,
        timeout=0 if is_bad else 4000,
        multi_line=True,
    )
