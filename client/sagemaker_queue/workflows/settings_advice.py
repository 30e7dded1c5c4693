"""Read the queue's history and simulate it on this machine, to give advice on the settings of a policy.

The simulator needs a newer Python than the client. Therefore the simulator is imported only when it is used.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from api_contract.history import PastAttempt
from sagemaker_queue.errors import InvalidDocument, InvalidOption
from sagemaker_queue.workflows.history_csv import write_history_csv

if TYPE_CHECKING:
    from job_queue.simulation.experiments.advice import SettingsAdvice, ShowProgress
    from job_queue.simulation.trace import TraceJob
    from sagemaker_queue.queue.client import QueueClient

REQUIRED_PYTHON = (3, 11)  # the Python that the queue's rules and the simulator need
LEAST_MINUTES, MOST_MINUTES = 0.1, 24 * 60.0  # limits of the time for all simulations together


def require_python(name: str) -> None:
    """Raise InvalidOption if this Python is too old for ``name``, a command or a part of the page."""
    if sys.version_info < REQUIRED_PYTHON:
        needed, present = (".".join(map(str, version[:2])) for version in (REQUIRED_PYTHON, sys.version_info))
        raise InvalidOption(f"{name} needs Python {needed} or newer; this is {present}")


def read_history(queue: QueueClient, weeks: int, counted: Callable[[int], object]) -> list[TraceJob]:
    """Return the attempts of the last weeks as the jobs of a trace, as ``smq simulate`` reads them.

    ``counted`` is called with the number of attempts that have been read: 0 at first. Raises QueueError.
    """
    from job_queue.simulation.trace import TraceError, parse_trace  # noqa: PLC0415

    text = io.StringIO()
    since = datetime.now(timezone.utc) - timedelta(weeks=weeks)
    write_history_csv(_counted(queue.history(since), counted), text)
    if text.getvalue().count("\n") <= 1:
        return []
    try:
        return parse_trace(text.getvalue(), "the history")
    except TraceError as error:
        raise _unusable(error) from None


def _counted(attempts: Iterable[PastAttempt], counted: Callable[[int], object]) -> Iterator[PastAttempt]:
    counted(0)
    for number, attempt in enumerate(attempts, start=1):
        counted(number)
        yield attempt


def advise(
    policy: Mapping[str, Any],
    trace: list[TraceJob],
    minutes: float,
    show: ShowProgress,
    *,
    renamed: tuple[tuple[str, str], ...] = (),
    excluded: tuple[str, ...] = (),
) -> SettingsAdvice:
    """Simulate the jobs of a trace under a policy and under changes of its settings, and return the advice.

    ``show`` is called with the progress. Projects of the trace can be ``renamed`` to projects of the policy, or
    ``excluded``. Raises InvalidOption if a project is missing, and InvalidDocument for an invalid policy.
    """
    from job_queue.scheduler import DocumentError  # noqa: PLC0415
    from job_queue.simulation.command import advise_on_history  # noqa: PLC0415
    from job_queue.simulation.trace import Regrouping, TraceError  # noqa: PLC0415

    try:
        return advise_on_history(policy, trace, Regrouping(renamed, excluded), minutes, show)
    except TraceError as error:
        raise _unusable(error) from None
    except DocumentError as error:
        raise InvalidDocument(f"The policy in force cannot be read by this version of smq: {error}.") from None


def _unusable(error: Exception) -> InvalidOption:
    return InvalidOption(f"The history cannot be simulated: {error}.")
