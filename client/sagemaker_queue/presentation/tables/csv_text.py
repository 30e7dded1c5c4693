"""Tables as CSV, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from sagemaker_queue.jobs.formatting import csv_cell
from sagemaker_queue.presentation.tables.usage_tables import Hours

_EXACT = 6  # decimals of an hour, so that figures are exact to 4 milliseconds


def csv_text(headers: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a line of headers and a line for each row, with cells made safe by ``csv_cell``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def usage_csv(by: str, parts: Mapping[str, Hours], total: Hours) -> str:
    """Return a CSV line for each part, such as a project. ``total`` only names the columns and has no line."""
    return csv_text([by, *total.hours()], [[key, *exact(used.hours()).values()] for key, used in parts.items()])


def exact(hours: Mapping[str, float]) -> dict[str, float]:
    """Return the figures rounded to six decimals."""
    return {name: round(value, _EXACT) for name, value in hours.items()}
