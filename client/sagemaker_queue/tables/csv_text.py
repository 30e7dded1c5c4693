"""Tables for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sagemaker_queue.formatting import moment
from sagemaker_queue.tables.usage import Hours

_BEGINS_FORMULA = ("=", "+", "-", "@", "\t")
_EXACT = 6  # decimals of an hour: four thousandths of a second


def csv_text(headers: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a line of headers, and one for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def usage_csv(by: str, parts: Mapping[str, Hours], total: Hours) -> str:
    """Return a line for each; ``total`` is of all together, and has the figures' names."""
    return csv_text([by, *total.hours()], [[key, *exact(used.hours()).values()] for key, used in parts.items()])


def exact(hours: Mapping[str, float]) -> dict[str, float]:
    """Return figures without the digits that mean nothing."""
    return {name: round(value, _EXACT) for name, value in hours.items()}


def cell(value: object) -> object:
    """Keep each cell on its line, and from being a formula where a spreadsheet opens it."""
    if isinstance(value, datetime):
        return moment(value)
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(_BEGINS_FORMULA) else text
