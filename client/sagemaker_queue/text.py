"""Tables, facts and times as text for people."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tabulate import tabulate

LONGEST_CELL = 72


def age(since: datetime | None) -> str:
    """Return the time since then in its two largest units: ``3d4h``, ``2h05m``, ``41s``."""
    if since is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"


def moment(time: datetime | None) -> str:
    """Return the time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if time else ""


def shortened(text: str | None) -> str | None:
    """Cut a sentence to what a table bears; ``smq show`` has the whole."""
    one_line = " ".join((text or "").split())
    return one_line if len(one_line) <= LONGEST_CELL else f"{one_line[: LONGEST_CELL - 1]}…"


def facts(known_facts: Mapping[str, object]) -> str:
    """Return names and values, one pair a line; what is not known is left out."""
    known = {name: clean(value) for name, value in known_facts.items() if value not in (None, "")}
    width = max(map(len, known))
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in known.items())


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], wrapped: str | None = None) -> str:
    """Return rows below headers, numbers to the right; what is long in the column ``wrapped`` takes several lines."""
    cells = [[clean(cell) for cell in row] for row in rows]
    # A job may be called 007 or 1e3: only what is a number is aligned like one.
    columns = list(zip(*cells, strict=True))
    words = [index for index, column in enumerate(columns) if any(isinstance(cell, str) for cell in column)]
    widths = [LONGEST_CELL if header == wrapped else None for header in headers]
    return tabulate(
        cells, headers=headers, disable_numparse=words, missingval="", maxcolwidths=widths if wrapped else None
    )


def clean(cell: object) -> object:
    """Keep each cell on its line: reasons can come from a training script's own output."""
    if not isinstance(cell, str):
        return cell
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(cell.split()))


def amount(count: int, thing: str) -> str:
    """Return ``1 job`` or ``2 jobs``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def instances(slots: Mapping[str, int]) -> str:
    """Return ``2 instances of p5 and 1 instance of c6``."""
    return " and ".join(f"{amount(count, 'instance')} of {clean(pool)}" for pool, count in slots.items())
