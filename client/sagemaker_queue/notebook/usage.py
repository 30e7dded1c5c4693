"""What was used, as an object that notebooks show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.actions.usage.budgets import Left, budgets_of, what_is_left
from sagemaker_queue.actions.usage.sums import KEYS, PriceList, Usage, summed
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import did_you_mean
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.frames import frame_of

if TYPE_CHECKING:
    import pandas as pd

    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import PastAttempt


@dataclass(frozen=True)
class UsageReport:
    """Who used how much. docs/usage.md says what each figure means."""

    by: str
    """What it is summed up by."""
    parts: Mapping[str, Usage]
    """What each used, who used most first; ``hours()`` has the figures."""
    total: Usage
    """What all used together."""
    budgets: tuple[Left, ...]
    """What is left of the policy's budgets."""
    priced: bool
    """Whether the policy has prices; without them, cost is 0."""

    def to_frame(self) -> pd.DataFrame:
        """Return a frame of pandas, a row for each, figures in hours. Raises ImportError without pandas."""
        rows = [{self.by: key, **used.hours()} for key, used in self.parts.items()]
        return frame_of([dict(row) for row in rows], [self.by, *self.total.hours()])

    def _repr_html_(self) -> str:
        return html.usage(self.by, self.parts, self.total, self.budgets, priced=self.priced)


def usage_report(
    queue: QueueClient, by: str, attempts: Iterable[PastAttempt], projects: tuple[str, ...]
) -> UsageReport:
    """Sum attempts up. Raises InvalidOption if there is no such ``by``."""
    if by not in KEYS:
        raise InvalidOption(f"Usage is not summed up by {by!r}, but by {', '.join(KEYS)}.{did_you_mean(by, KEYS)}")
    policy, now = queue.policy().policy, datetime.now(timezone.utc)
    prices = PriceList(policy.get("prices") or {})
    parts, total = summed(attempts, by, prices)
    left = what_is_left(queue, budgets_of(policy, projects, now), now).left
    return UsageReport(by, parts, total, left, bool(prices))
