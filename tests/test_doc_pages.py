"""Pages of the documentation keep the rules of CONTRIBUTING.md: header, length, paragraphs and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.markdown import headings, paragraphs, plain, prose_lines, words

ROOT = Path(__file__).parents[1]
FOLDERS = ("start", "run", "operate", "reference", "background", "developers")
KINDS = ("Tutorial", "How-to", "Reference", "Explanation")
AUDIENCES = ("researchers", "operators", "integrators", "decision makers", "everybody", "developers")
HEADER = re.compile(
    rf"> \*\*({'|'.join(KINDS)})\*\* for ({'|'.join(AUDIENCES)})\. (Look up|\d+ minutes?)\. Before you begin: \S.*\."
)
MOST_WORDS = 1_800  # of a page, without generated parts; on pages for developers, also without tables and code
MOST_WORDS_OF_SITES = 500  # other regions and accounts: a page, two alarms, and two threats
MOST_WORDS_OF_PIPELINES = 270  # docs/run/pipelines.md: jobs that other AWS services start are a task of their own
# Of all pages for users, without generated parts, tables and code:
MOST_WORDS_OF_ALL = 30_000 + MOST_WORDS_OF_SITES + MOST_WORDS_OF_PIPELINES
STUB = "Not written yet"
MESSAGES = ("preflight.md", "reasons.md", "errors.md")  # an entry for each message of the program
MEASUREMENTS = ("simulations.md",)  # one page has all measurements of the public traces
MOST_WORDS_OF_A_PARAGRAPH = 60
MOST_CHARACTERS = 200  # of a line outside of tables and code
NO_PROSE = ("|", "> **", "- `")  # rows, the header, and messages

# Parts that a tool writes: to the end of the page, or between two comments.
GENERATED_TO_THE_END = re.compile(r"<!-- (?:the rest is )?made by `make docs`[^>]*-->.*", re.DOTALL)
GENERATED_BETWEEN = re.compile(r"<!-- made by [^>]*-->.*?<!-- (?:the rest|end)[^>]*-->", re.DOTALL)


def pages() -> list[Path]:
    found = [path for folder in FOLDERS for path in ROOT.glob(f"docs/{folder}/**/*.md")]
    return sorted(path for path in [ROOT / "docs/index.md", *found] if "adr" not in path.parts)


PAGES = pages()
FOR_USERS = [path for path in PAGES if "developers" not in path.parts]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "docs"))


each_page = pytest.mark.parametrize("path", PAGES, ids=name_of)
each_page_for_users = pytest.mark.parametrize("path", FOR_USERS, ids=name_of)


def by_hand(page: str) -> str:
    """The part of a page that people write."""
    return GENERATED_TO_THE_END.sub("", GENERATED_BETWEEN.sub("", page))


@each_page
def test_a_page_names_its_kind_its_readers_its_duration_and_its_prerequisites(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ") and not lines[1]
    header = HEADER.fullmatch(lines[2])
    assert header, lines[2]
    assert not lines[3], "the header is one line"
    if header[1] in ("Tutorial", "How-to"):
        assert header[3] != "Look up"


@each_page
def test_a_page_is_short(path: Path) -> None:
    page = by_hand(path.read_text())
    count = words(page) if path in FOR_USERS else prose_words(page)
    assert count <= MOST_WORDS or path.name in MEASUREMENTS


def test_all_pages_for_users_can_be_read_in_two_hours() -> None:
    pages = [path.read_text() for path in FOR_USERS if path.name not in MESSAGES]
    assert sum(prose_words(by_hand(page)) for page in pages) < MOST_WORDS_OF_ALL


def prose_words(page: str) -> int:
    """The words outside of tables and code."""
    return sum(len(text.split()) for text in paragraphs(page))


@each_page_for_users
def test_a_paragraph_has_one_rule(path: Path) -> None:
    long = [text for text in paragraphs(by_hand(path.read_text())) if len(text.split()) > MOST_WORDS_OF_A_PARAGRAPH]
    assert not long


@each_page_for_users
def test_a_line_can_be_compared(path: Path) -> None:
    lines = prose_lines(by_hand(path.read_text()))
    assert not [line for line in lines if len(plain(line)) > MOST_CHARACTERS and not line.startswith(NO_PROSE)]


@each_page_for_users
def test_a_page_has_one_title(path: Path) -> None:
    levels = [heading.level for heading in headings(path.read_text())]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in zip(levels, levels[1:], strict=False))


@each_page_for_users
def test_pages_for_users_link_decisions_only_at_their_end(path: Path) -> None:
    above, _, notes = by_hand(path.read_text()).rstrip().rpartition("\nDesign notes: ")
    assert "developers/adr/" not in (above or notes)
    assert "\n\n" not in notes if above else True


def test_no_page_is_a_stub() -> None:
    assert not [name_of(path) for path in PAGES if STUB in path.read_text()]


def test_generated_parts_are_recognised() -> None:
    page = "a\n\n<!-- made by `make docs` from the parser -->\n\nb\n\n<!-- the rest is written by hand -->\n\nc\n"
    assert by_hand(page).split() == ["a", "c"]
    assert by_hand("a\n\n<!-- the rest is made by `make docs` from the docstrings -->\n\nb\n").split() == ["a"]


def sentences(path: Path) -> Iterator[str]:
    for text in paragraphs(by_hand(path.read_text())):
        yield from re.split(r"(?<=[.!?:;]) ", text)


@each_page_for_users
def test_a_sentence_is_short(path: Path) -> None:
    assert not [one for one in sentences(path) if len(one.split()) > 30]
