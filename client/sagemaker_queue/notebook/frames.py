"""Answers of the queue as pandas DataFrames; pandas is optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from api_contract.models import Expectation, Reason
from api_contract.shape import Answer

if TYPE_CHECKING:
    import pandas as pd


_OMITTED = frozenset({"history", "attempts", "request", "why"})  # fields of a job that do not fit into a cell


def to_frame(answers: Iterable[Answer]) -> pd.DataFrame:
    """Return a DataFrame with a row for each answer of the queue, such as jobs, attempts or ``status.pools``.

    The columns are the answers' fields, except a job's history, attempts, request and explanation (``why``). The
    column ``reason`` has a reason's message, and ``reason_code`` its code. Of an expected start, the frame has only the
    median (``Expectation.start``). Times are in UTC. A field with several values is one text, such as ``p5=2 c6=1``.
    Raises ImportError if pandas is not installed.
    """
    known = list(answers)
    shapes = dict.fromkeys(type(answer) for answer in known)
    columns = dict.fromkeys(name for shape in shapes for name in _columns(shape))
    return frame_of([dict(_cells(answer)) for answer in known], list(columns))


def frame_of(rows: list[dict[str, object]], columns: list[str]) -> pd.DataFrame:
    """Return a DataFrame. Raises ImportError if pandas is not installed."""
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise ImportError("A frame needs pandas: pip install pandas") from error
    frame: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
    return frame


def _columns(shape: type[Answer]) -> Iterator[str]:
    for name in shape.__struct_fields__:
        if name not in _OMITTED:
            yield name
        if name == "reason":
            yield "reason_code"


def _cells(answer: Answer) -> Iterator[tuple[str, object]]:
    for name in _columns(type(answer)):
        if name != "reason_code":
            yield name, _plain(getattr(answer, name))
        else:
            reason = getattr(answer, "reason", None)
            yield name, reason.code if isinstance(reason, Reason) else None


def _plain(value: object) -> object:
    if isinstance(value, Reason):
        return value.message
    if isinstance(value, Expectation):
        return value.start
    if isinstance(value, Mapping):
        return " ".join(f"{key}={member}" for key, member in value.items())
    if isinstance(value, tuple):
        return " ".join(str(_plain(member)) for member in value)
    return value if value is None or isinstance(value, (str, int, float, datetime)) else str(value)
