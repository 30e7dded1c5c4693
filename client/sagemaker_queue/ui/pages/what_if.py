"""what_if."""

from __future__ import annotations

from sagemaker_queue.ui.elements import heading
from sagemaker_queue.ui.tab import Tab


def what_if_page(tab: Tab) -> None:
    """Build the page."""
    heading("what_if")
