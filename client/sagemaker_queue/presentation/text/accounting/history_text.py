"""Finished attempts as a table."""

from __future__ import annotations

from collections.abc import Iterable

from api_contract.history import PastAttempt
from sagemaker_queue.jobs.formatting import duration, gpus, moment, outcome, short_owner
from sagemaker_queue.presentation.text.layout import table

_GPU_PERCENT = "GPU %"
_HEADERS = [
    *("Job Name", "Attempt", "Owner", "Project", "Pool", "Instances"),
    *("Submitted (UTC)", "Waited", "Provisioned", "Ran", _GPU_PERCENT, "Outcome"),
]
_WHOLE = ("Job Name", "Submitted (UTC)")  # columns with cells that are never cut
# The columns that are omitted, in this order, until the table fits the terminal.
_OMITTED_FIRST = ("Provisioned", "Pool", "Project", _GPU_PERCENT, "Owner", "Submitted (UTC)", "Attempt", "Waited")


def history_table(attempts: Iterable[PastAttempt], width: int | None = None) -> str:
    """Return a line for each attempt, with the utilization of GPUs if it was measured for any attempt."""
    found = list(attempts)
    measured = any(attempt.gpu_mean_percent is not None for attempt in found)
    rows = [
        [
            attempt.job,
            attempt.attempt,
            short_owner(attempt.owner),
            attempt.project,
            "+".join(attempt.slots),
            _held(attempt),
            moment(attempt.submitted),
            duration(attempt.waited_seconds),
            duration(attempt.provisioned_seconds),
            duration(attempt.ran_seconds) if attempt.began else "",
            *([attempt.gpu_mean_percent] if measured else []),
            outcome(attempt.outcome, attempt.failure_class),
        ]
        for attempt in found
    ]
    headers = _HEADERS if measured else [header for header in _HEADERS if header != _GPU_PERCENT]
    if width is None:
        return table(headers, rows)
    shown = list(range(len(headers)))
    for left_out in ("", *_OMITTED_FIRST):
        shown = [index for index in shown if headers[index] != left_out]
        kept = [headers[index] for index in shown]
        page = table(kept, [[row[index] for index in shown] for row in rows], width=width, whole=_WHOLE, compact=True)
        if max(map(len, page.splitlines())) <= width:
            break
    return page


def _held(attempt: PastAttempt) -> int | str:
    """Return the attempt's number of instances, or its GPUs on a shared instance."""
    if attempt.carrier is None:
        return attempt.instance_count
    return gpus(attempt.gpus) if attempt.gpus is not None else "a part"
