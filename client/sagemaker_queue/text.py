"""Tables, facts and times as text for people."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from tabulate import MIN_PADDING, tabulate

from sagemaker_queue.models import JobSummary

LONGEST_CELL, LEAST_CELL = 72, 10
LEAST_WIDTH = 40  # of sentences, on however narrow a terminal
MEGABYTE = 1_000_000
_GAP = "  "  # between two columns


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


def shortened(text: str | None) -> str:
    """Cut a sentence to what a table bears; ``smq show`` has the whole."""
    return str(cut(" ".join((text or "").split()), LONGEST_CELL))


def short_owner(arn: str | None) -> str | None:
    """Return ``alice`` for a user's ARN, ``Role/session`` for an assumed role's, ``root`` for the account's."""
    resource = (arn or "").rpartition(":")[2]
    return resource.partition("/")[2] or resource or None


def standing(job: JobSummary) -> str:
    """Return where a job stands and why, as one sentence."""
    return f"{job.job} is {state_and_reason(job, 'in the queue')}"


def state_and_reason(job: JobSummary, among: str) -> str:
    """Return the state of a job, its number ``among`` others if it waits, and why it is so."""
    place = f", number {job.position} {among}" if job.position else ""
    reason = f": {clean(job.reason.message)}" if job.reason and job.reason.message else ""
    return f"{job.state}{place}{reason}"


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
) -> str:
    """Return rows below headers, numbers to the right.

    What is long in the column ``wrapped`` takes several lines. Of a table that is wider than ``width`` the widest
    words are cut, in all columns but those of ``whole``, as far as it makes sense. A ``compact`` one has no line below
    its headers, and no more space than it needs.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    columns = list(zip(*cells, strict=True))
    # A job may be called 007 or 1e3: only what is a number is aligned like one.
    words = [index for index, column in enumerate(columns) if any(isinstance(cell, str) for cell in column)]
    widths = [
        max(len(header) + (0 if compact else MIN_PADDING), *(len(str(cell)) for cell in column))
        for header, column in zip(headers, columns, strict=False)  # without rows there are no columns
    ]
    flexible = [index for index in words if headers[index] == wrapped or not (wrapped or headers[index] in whole)]
    if wrapped:
        widths = [min(column, LONGEST_CELL) if index in flexible else column for index, column in enumerate(widths)]
    if width is not None:
        widths = _narrowed(widths, flexible, headers, width)
    if not wrapped:
        cells = [[cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in cells]
    if compact:
        sides = ["left" if index in words else "right" for index in range(len(headers))]
        return tabulate([headers, *cells], tablefmt="plain", disable_numparse=True, missingval="", colalign=sides)
    return tabulate(
        cells,
        headers=headers,
        disable_numparse=words,
        missingval="",
        maxcolwidths=[most if index in flexible else None for index, most in enumerate(widths)] if wrapped else None,
    )


def _narrowed(widths: list[int], flexible: list[int], headers: Sequence[str], width: int) -> list[int]:
    """Take from the widest of the flexible columns until the table fits, or nothing more can be taken."""
    widths = list(widths)
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - width):
        left = [index for index in flexible if widths[index] > max(LEAST_CELL, len(headers[index]) + MIN_PADDING)]
        if not left:
            break
        widths[max(left, key=widths.__getitem__)] -= 1
    return widths


def cut(cell: object, width: int) -> object:
    """Cut words to that width, and show that they were."""
    return f"{cell[: width - 1]}…" if isinstance(cell, str) and len(cell) > width else cell


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


def file_size(count: int) -> str:
    """Return ``12 bytes``, ``3.4 kB``, ``12.3 MB`` or ``1.2 GB`` for a number of bytes."""
    if count < 1000:
        return amount(count, "byte")
    power, unit = next((one for one in ((9, "GB"), (6, "MB")) if count >= 10 ** one[0]), (3, "kB"))
    return f"{count / 10**power:,.1f} {unit}"
