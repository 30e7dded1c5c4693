"""Blocks of a tutorial: files to save, commands to type, and the outputs that the page shows below the commands.

A page marks its blocks as follows; all options are optional.

    <!-- file: train.py -->                      the fenced block below is a file to save
    ```sh                                        commands to type, one a line
    <!-- output -->                              the fenced block below is the output of the commands above
    <!-- output lines=6+3 -->                    ... of which the page shows the first six lines and the last three
    <!-- output repeat="[3-5] running" -->       ... the command is typed again until its output has this pattern,
                                                     where blanks of any width and line breaks count as one blank
    <!-- output interrupt="step 20" -->          ... Ctrl-C is pressed as soon as the output has this text
    <!-- output ignore="^step" -->               ... lines that match this pattern may differ
    <!-- output exit=1 -->                       ... the last command ends with this status
"""

import difflib
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LEFT_OUT = "..."

# Texts that differ between two runs, and the text that stands for them in a comparison.
_VARIABLE = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"https?://(127\.0\.0\.1|localhost):\d+(/\S*)?"), "ADDRESS"),
    (re.compile(r"/tmp/\S+"), "FOLDER"),  # noqa: S108
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b"), "DIGEST"),
    (re.compile(r"\b\d{12}\b"), "ACCOUNT"),
    (re.compile(r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"~?\b(\d+d)?(\d+h)?(\d+m)?(\d+s)?(?<=\d[dhms])(?![\w-])"), "DURATION"),
    (re.compile(r"\b(\d+(\.\d+)?|an?|one) (seconds?|minutes?|hours?|days?|s|min|h)\b"), "DURATION"),
    (re.compile(r"\bDURATION( and)? DURATION\b"), "DURATION"),
    (re.compile(r"\b(now|just now|DURATION ago|in DURATION)\b"), "WHEN"),
    (re.compile(r"\b\d[\d,.]* (bytes?|[kKMG]i?B)(?!\w)"), "SIZE"),
    (re.compile(r"\bstep [1-9]\d*"), "step N"),
    (re.compile(r"\$?\b\d+\.\d+\b"), "AMOUNT"),
    (re.compile(r"(?<=\s)[?…](?=\s)"), ""),  # ? for an unknown start, … for a start that is not known yet
    (re.compile(r"[-─━═]{3,}"), "---"),
    (re.compile(r"[ \t]+"), " "),
)  # fmt: skip


# Lines about jobs that are submitted while another invocation of the queue plans: the answer does not wait for a plan.
_UNPLANNED = re.compile(
    r"(?P<begin>\S+ is )(starting\b|pending: The queue has not planned since )"
    r"|(?P<count>\d+ jobs submitted: )(.* )?\d+ (starting|pending)\b"
)


@dataclass(frozen=True)
class Shown:
    """An output that a page shows, with the options of its marker."""

    text: str
    lines: tuple[int, int] | None = None
    repeat: str = ""
    interrupt: str = ""
    ignore: str = ""
    exit: int = 0

    def cut(self, printed: str) -> str:
        """Return the part of a printed text that the page shows."""
        lines = printed.splitlines()
        if not self.lines or len(lines) <= sum(self.lines) + 1:
            return printed
        first, last = self.lines
        return "\n".join([*lines[:first], LEFT_OUT, *lines[len(lines) - last :]])


@dataclass(frozen=True)
class Step:
    """One thing that a reader does: save a file, or type commands."""

    text: str
    file: str = ""
    shown: Shown | None = None

    @property
    def commands(self) -> list[str]:
        """The commands of the block; a line that ends with a backslash continues on the next line."""
        return [] if self.file else [one for one in re.split(r"(?<!\\)\n", self.text) if one.strip()]


@dataclass
class _Fence:
    language: str
    marker: str
    first: int  # the number of the line after the opening fence
    lines: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    """Return the steps of a page in their order. Raise ValueError if an output is not below commands."""
    found: list[Step] = []
    for fence in _fences(page):
        text = "\n".join(fence.lines)
        if fence.marker.startswith("file:"):
            found.append(Step(text, file=fence.marker.removeprefix("file:").strip()))
        elif fence.marker.startswith("output"):
            if not found or found[-1].file or found[-1].shown:
                raise ValueError(f"An output stands below no commands: {text}")
            found[-1] = Step(found[-1].text, shown=_shown(text, fence.marker))
        elif fence.language == "sh":
            found.append(Step(text))
    return found


def with_outputs(page: str, printed: Sequence[str]) -> str:
    """Return the page with these outputs, one for each step. The page keeps its output if the new one is similar."""
    lines = page.splitlines()
    all_steps = steps(page)
    outputs = [fence for fence in _fences(page) if fence.marker.startswith("output")]
    new = [(step.shown, text) for step, text in zip(all_steps, printed, strict=True) if step.shown]
    for fence, (shown, text) in reversed(list(zip(outputs, new, strict=True))):
        if difference(shown, text):
            lines[fence.first : fence.first + len(fence.lines)] = shown.cut(text).splitlines()
    return "\n".join(lines) + "\n"


def difference(shown: Shown, printed: str) -> str:
    """Return how a printed text differs from the shown one, as a diff; empty if both are similar."""
    expected, got = (similar(text, shown.ignore) for text in (shown.text, shown.cut(printed)))
    pairs = itertools.zip_longest(expected, got, fillvalue="")
    got = [_unplanned_alike(shows, _cut_off_alike(shows, prints)) for shows, prints in pairs][: len(got)]
    return "\n".join(difflib.unified_diff(expected, got, "on the page", "printed", lineterm=""))


def similar(text: str, ignore: str = "") -> list[str]:
    """Return a text's lines without differences between runs, such as times, sizes, addresses and widths of columns."""
    lines = [line for line in text.splitlines() if not (ignore and re.search(ignore, line))]
    return [line for line in map(_constant, lines) if line]


def _cut_off_alike(expected: str, got: str) -> str:
    """Return ``expected`` if both lines end with … and the shorter line is the beginning of the other; else ``got``.

    Times in other columns change the width of a column, and so the place where its text is cut off.
    """
    cut_off = expected.endswith("…") and got.endswith("…")
    length = min(len(expected), len(got)) - 1
    return expected if cut_off and expected[:length] == got[:length] else got


def _unplanned_alike(expected: str, got: str) -> str:
    """Return ``expected`` if ``got`` reports that the same jobs are submitted and not all planned yet; else ``got``."""
    unplanned = _UNPLANNED.match(got)
    begin = unplanned and (unplanned["begin"] or unplanned["count"])
    return expected if begin and expected.startswith(begin) else got


def _constant(line: str) -> str:
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()


def _fences(page: str) -> Iterator[_Fence]:
    """Yield each fenced block with the marker above it."""
    fence: _Fence | None = None
    marker = ""
    for number, line in enumerate(page.splitlines()):
        if fence is None and (comment := re.fullmatch(r"<!-- (.*) -->", line)):
            marker = comment[1]
        elif fence is None and line.startswith("```"):
            fence = _Fence(line.removeprefix("```"), marker, number + 1)
        elif fence is not None and line == "```":
            yield fence
            fence, marker = None, ""
        elif fence is not None:
            fence.lines.append(line)
        elif line:
            marker = ""


def _shown(text: str, marker: str) -> Shown:
    options = dict(word.split("=", 1) for word in shlex.split(marker)[1:])
    first, _, last = options.pop("lines", "").partition("+")
    status = int(options.pop("exit", 0))
    return Shown(text, lines=(int(first), int(last)) if first else None, exit=status, **options)
