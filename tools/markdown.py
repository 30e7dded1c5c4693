"""Markdown pages of the documentation: their headings, anchors, links, paragraphs, code and tables, as on GitHub."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^ *(`{3,}|~{3,})")
_HEADING = re.compile(r"^(#{1,6}) +(.*?)(?: +#+)?$")
_LINK = re.compile(r"(\]\()([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)(\))")
_HTML_LINK = re.compile(r"((?:src|srcset|href)=\")([^\"]+)(\")")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ITEM = re.compile(r"^ *([-*+]|\d+[.)]) +")


class Heading(NamedTuple):
    """A heading: its level from 1, its text without marks, and its anchor."""

    level: int
    text: str
    anchor: str


def prose_lines(page: str) -> Iterator[str]:
    """Yield each line of a page; for each line of a block of code, yield an empty line instead."""
    fence = ""
    in_list = in_code = False
    after_blank = True
    for line in page.splitlines():
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and line.strip() == mark[1] else fence
            yield ""
        elif mark:
            fence = mark[1]
            yield ""
        else:
            is_indented = line.startswith("    ")
            in_code = not in_list and is_indented and (in_code or after_blank) or (in_code and not line.strip())
            in_list = not in_code and (bool(_ITEM.match(line)) or (in_list and line[:1] in ("", " ")))
            yield "" if in_code else line
        after_blank = not line.strip()


def headings(page: str) -> list[Heading]:
    """Return the headings with their anchors; the second heading with the same text has the anchor `text-1`."""
    seen: Counter[str] = Counter()
    found = []
    for line in prose_lines(page):
        if heading := _HEADING.match(line):
            text = plain(heading[2])
            anchor = anchor_of(text)
            found.append(Heading(len(heading[1]), text, f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor))
            seen[anchor] += 1
    return found


def anchor_of(heading: str) -> str:
    """Return the anchor of the first heading with this text."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with these headings and cells, which contain Markdown."""
    lines = (f"| {' | '.join(map(str, cells))} |" for cells in (headings, *rows))
    return "\n".join([next(lines), "|---" * len(headings) + "|", *lines])


def code_blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block that begins at the start of a line."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def plain(text: str) -> str:
    """Return a line of Markdown without its marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\\([\\`*_|<{}\[\]()#+.!-])", r"\1", re.sub(r"(?<!\\)[`*]", "", text))


def links(page: str) -> list[str]:
    """Return the targets of all links and pictures outside of code."""
    found: list[str] = []

    def note(target: str) -> str:
        found.append(target)
        return target

    with_links(page, note)
    return found


def with_links(page: str, renewed: Callable[[str], str]) -> str:
    """Return the page with each target of a link or picture replaced; code stays as it is."""
    lines = page.splitlines(keepends=True)
    for at, prose in enumerate(prose_lines(page)):
        if prose:
            # In `parts`, code between backticks has an odd index.
            parts = re.split(r"(`[^`]*`)", lines[at])
            text = _hidden(parts)
            for form in (_LINK, _HTML_LINK):
                text = form.sub(lambda found: f"{found[1]}{renewed(found[2])}{found[3]}", text)
            lines[at] = _shown(text, parts)
    return "".join(lines)


def _hidden(parts: list[str]) -> str:
    return "".join(f"\0{at}\0" if at % 2 else part for at, part in enumerate(parts))


def _shown(text: str, parts: list[str]) -> str:
    return re.sub(r"\0(\d+)\0", lambda found: parts[int(found[1])], text)


def paragraphs(page: str) -> list[str]:
    """Return the paragraphs and list items of a page, without headings, tables, comments and code."""
    found: list[list[str]] = [[]]
    for line in prose_lines(_COMMENT.sub("", page)):
        text = line.strip().removeprefix("> ")
        if not text or text.startswith("|") or _HEADING.match(line):
            found.append([])
        elif _ITEM.match(line):
            found.append([_ITEM.sub("", line)])
        else:
            found[-1].append(text)
    return [plain(" ".join(lines)) for lines in found if lines]


def words(page: str) -> int:
    """Return the number of words of a page, without comments."""
    return len(_COMMENT.sub("", page).split())


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page: of its headings, and those in HTML."""
    page = path.read_text()
    return {heading.anchor for heading in headings(page)} | set(re.findall(r"(?:id|name)=\"([^\"]+)\"", page))
