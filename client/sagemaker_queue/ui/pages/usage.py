"""usage."""

from __future__ import annotations

from sagemaker_queue.ui.elements import heading
from sagemaker_queue.ui.tab import Tab


def usage_page(tab: Tab) -> None:
    """Build the page."""
    heading("usage")
