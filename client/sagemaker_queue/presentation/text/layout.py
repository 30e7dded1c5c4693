"""Tables, facts and sentences laid out for the width of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from os.path import commonprefix

from sagemaker_queue.jobs.formatting import LONGEST_CELL, clean, cut

LEAST_CELL = 10  # the minimum width, in characters, to which cells are cut
LEAST_WIDTH = 40  # the minimum width of wrapped sentences, also on narrower terminals
_GAP = "  "  # between two columns
_HEADER_PADDING = 2  # characters by which tabulate makes a column wider than its header


def folded(text: str, width: int | None, *, indent: str = "  ", hanging: str = "") -> str:
    """Indent a sentence and wrap it to the width; further lines have the additional indentation ``hanging``."""
    if width is None:
        return f"{indent}{text}"
    return textwrap.fill(
        text,
        max(width, LEAST_WIDTH),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def facts(known_facts: Mapping[str, object], width: int | None = None) -> str:
    """Return names and values, one pair on each line, long values wrapped; omit values that are None or empty."""
    known = {name: clean(value) for name, value in known_facts.items() if value not in (None, "")}
    longest = max(map(len, known))
    return "\n".join(
        # A value without blanks, such as an ARN, is not wrapped, so that users can copy it.
        folded(f"{name:<{longest}}  {value}", width if " " in str(value) else None, hanging=" " * (longest + 2))
        for name, value in known.items()
    )


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    wrapped: str | None = None,
    width: int | None = None,
    whole: Collection[str] = (),
    compact: bool = False,
    right: Collection[str] = (),
    middle: Collection[str] = (),
) -> str:
    """Return a table. Numbers are aligned right. The columns ``right`` contain numbers as text, also aligned right.

    Long text in the column ``wrapped`` takes several lines. If the table is wider than ``width``, the widest columns
    of text are cut until the table fits, but not below LEAST_CELL. The columns ``whole`` are not cut, and the columns
    ``middle`` are cut in the middle. A ``compact`` table has no line below the headers, and no padding.
    """
    from tabulate import tabulate  # noqa: PLC0415  # slow to import

    cells = [[clean(cell) for cell in row] for row in rows]
    columns = list(zip(*cells))
    # A job may have the name 007 or 1e3: only values of a numeric type are aligned as numbers.
    text_columns = [index for index, column in enumerate(columns) if any(isinstance(cell, str) for cell in column)]
    widths = [
        max(len(header) + (0 if compact else _HEADER_PADDING), *(len(str(cell)) for cell in column))
        for header, column in zip(headers, columns)  # without rows there are no columns
    ]
    flexible = [
        index for index in text_columns if headers[index] == wrapped or not (wrapped or headers[index] in whole)
    ]
    if wrapped:
        widths = [min(column, LONGEST_CELL) if index in flexible else column for index, column in enumerate(widths)]
    if width is not None:
        widths = _narrowed(widths, flexible, headers, width, 0 if compact else _HEADER_PADDING)
    if not wrapped:
        cuts = [cut_in_the_middle if header in middle else _cut_all for header in headers]
        cells = [
            list(row) for row in zip(*(each(column, most) for each, column, most in zip(cuts, zip(*cells), widths)))
        ]
    if compact:
        sides = [
            "left" if index in text_columns and header not in right else "right" for index, header in enumerate(headers)
        ]
        return tabulate([headers, *cells], tablefmt="plain", disable_numparse=True, missingval="", colalign=sides)
    return tabulate(
        cells,
        headers=headers,
        disable_numparse=text_columns,
        missingval="",
        colalign=["right" if header in right else "left" for header in headers] if right and rows else None,
        maxcolwidths=[most if index in flexible else None for index, most in enumerate(widths)] if wrapped else None,
    )


def columns_that_fit(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int, leave_out: Sequence[str]
) -> list[int]:
    """Return the indices of the columns that fit into a compact table of that width.

    The columns ``leave_out`` are omitted, in that order, until the other columns fit. Cells with text count as at most
    LEAST_CELL wide, because text can be cut.
    """
    least = [
        max(
            len(header),
            *(min(len(str(cell)), LEAST_CELL) if isinstance(cell, str) else len(str(cell)) for cell in cells),
        )
        for header, cells in zip(headers, zip(*rows))
    ]
    fitting = list(range(len(least)))
    for header in leave_out:
        if sum(least[index] + len(_GAP) for index in fitting) - len(_GAP) <= width:
            break
        fitting = [index for index in fitting if headers[index] != header]
    return fitting


def _narrowed(
    widths: list[int], flexible: list[int], headers: Sequence[str], width: int, padding: int = _HEADER_PADDING
) -> list[int]:
    """Return the widths, with the widest flexible columns narrowed until the table fits, or all are at the minimum."""
    widths = list(widths)
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - width):
        left = [index for index in flexible if widths[index] > max(LEAST_CELL, len(headers[index]) + padding)]
        if not left:
            break
        widths[max(left, key=widths.__getitem__)] -= 1
    return widths


def _cut_all(column: Sequence[object], width: int) -> list[object]:
    return [cut(cell, width) for cell in column]


def cut_in_the_middle(column: Sequence[object], width: int) -> list[object]:
    """Cut names to that width so that they still differ.

    Usually beginning and end remain: ``resnet-lr-…seed-7``. If several names would then look the same, the part in
    which they differ remains instead of the end: ``bert…lr-0.2-…``.
    """
    names_by_cut: dict[object, set[str]] = {}  # cut name -> the names with this cut form
    for name in column:
        if isinstance(name, str):
            names_by_cut.setdefault(_without_middle(name, width), set()).add(name)
    shown: list[object] = []
    for name in column:
        short = _without_middle(name, width)
        same_cut = names_by_cut.get(short, ())
        shown.append(_around(str(name), width, len(commonprefix(list(same_cut)))) if len(same_cut) > 1 else short)
    return shown


def _without_middle(name: object, width: int) -> object:
    if not isinstance(name, str) or len(name) <= width:
        return name
    tail = width // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _around(name: str, width: int, place: int) -> str:
    """Return the beginning of a name, and the text around ``place``, where the name differs from similar names."""
    head = width // 3
    room = width - head - 2  # characters for the text between two ellipses
    begin = max(head, place - room // 2)
    return f"{name[:head]}…{name[begin : begin + room]}…"
