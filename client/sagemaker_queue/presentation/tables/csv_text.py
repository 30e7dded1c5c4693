"""Tables as CSV, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sagemaker_queue.jobs.formatting import moment
from sagemaker_queue.presentation.tables.usage_tables import Hours

_BEGINS_FORMULA = ("=", "+", "-", "@", "\t")
_EXACT = 6  # decimals of an hour: 4 milliseconds


def csv_text(headers: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a line of headers and a line for each row, with cells made safe by ``cell``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def usage_csv(by: str, parts: Mapping[str, Hours], total: Hours) -> str:
    """Return a line for each part; ``total`` gives the names of the columns."""
    return csv_text([by, *total.hours()], [[key, *exact(used.hours()).values()] for key, used in parts.items()])


def exact(hours: Mapping[str, float]) -> dict[str, float]:
    """Return the figures rounded to six decimals."""
    return {name: round(value, _EXACT) for name, value in hours.items()}


def cell(value: object) -> object:
    """Return a value as a cell on one line that no spreadsheet executes as a formula; times are in UTC."""
    if isinstance(value, datetime):
        return moment(value)
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(_BEGINS_FORMULA) else text
