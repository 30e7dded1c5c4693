"""Tables, facts and sentences laid out for the width of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from os.path import commonprefix

from sagemaker_queue.formatting import LONGEST_CELL, clean, cut

LEAST_CELL = 10
LEAST_WIDTH = 40  # of sentences, on however narrow a terminal
_GAP = "  "  # between two columns
_HEADER_PADDING = 2  # tabulate makes a column so much wider than its header


def folded(text: str, width: int | None, *, indent: str = "  ", hanging: str = "") -> str:
    """Indent a sentence, and break it up where it is longer than that width; what follows hangs below it."""
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
    """Return names and values, one pair a line or, folded, a few; what is not known is left out."""
    known = {name: clean(value) for name, value in known_facts.items() if value not in (None, "")}
    longest = max(map(len, known))
    return "\n".join(
        # What has no blanks, such as an ARN, is left in one piece for those who copy it.
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
    """Return rows below headers, numbers to the right, and the columns ``right``, whose numbers are texts.

    What is long in the column ``wrapped`` takes several lines. Of a table that is wider than ``width`` the widest
    words are cut, in all columns but those of ``whole``, as far as it makes sense, those of ``middle`` in the middle.
    A ``compact`` one has no line below its headers, and no more space than it needs.
    """
    from tabulate import tabulate  # noqa: PLC0415  # it takes its time

    cells = [[clean(cell) for cell in row] for row in rows]
    columns = list(zip(*cells))
    # A job may be called 007 or 1e3: only what is a number is aligned like one.
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
    """Return which columns a compact table of that width has room for, without the first few of ``leave_out``.

    Words count with what is left of them when they are cut.
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
    """Take from the widest of the flexible columns until the table fits, or nothing more can be taken."""
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
    """Cut names to that width such that they still differ: ``resnet-lr-…seed-7``, or ``bert…lr-0.2-…`` if need be."""
    alike: dict[object, set[str]] = {}  # shown alike
    for name in column:
        if isinstance(name, str):
            alike.setdefault(_without_middle(name, width), set()).add(name)
    shown: list[object] = []
    for name in column:
        short = _without_middle(name, width)
        same = alike.get(short, ())
        shown.append(_around(str(name), width, len(commonprefix(list(same)))) if len(same) > 1 else short)
    return shown


def _without_middle(name: object, width: int) -> object:
    if not isinstance(name, str) or len(name) <= width:
        return name
    tail = width // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _around(name: str, width: int, place: int) -> str:
    """Keep the beginning, and what is around a place in the middle, where others differ."""
    head = width // 3
    room = width - head - 2  # for what is between two ellipses
    begin = max(head, place - room // 2)
    return f"{name[:head]}…{name[begin : begin + room]}…"
