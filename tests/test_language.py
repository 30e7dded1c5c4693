"""Docstrings and headings are plain English, as far as a program can check: CONTRIBUTING.md has the rules."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.markdown import headings

ROOT = Path(__file__).parents[1]
FOLDERS = ("job_queue", "api_contract", "client", "local_cloud", "tools", "benchmarks")
OPENINGS = re.compile(r"(who|whose|whoever|what|whatever|those|it|of)\b", re.IGNORECASE)
VAGUE = re.compile(r"\b(nobody|somebody|anybody)\b", re.IGNORECASE)

EXCEPTIONS: dict[str, str] = {}  # module:name -> the reason

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def faults() -> tuple[tuple[str, str], ...]:
    """Return each docstring that breaks a rule, with the place where it stands."""
    return tuple((place, text) for place, text in _docstrings() if OPENINGS.match(text) or VAGUE.search(text))


def _docstrings() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}", text


def test_no_docstring_begins_with_a_pronoun_or_names_a_vague_person() -> None:
    found = [f"{place}: {text.splitlines()[0]}" for place, text in faults() if place not in EXCEPTIONS]
    assert not found, "\n".join(found)


def test_each_exception_is_needed() -> None:
    assert {place for place, _ in faults()} >= EXCEPTIONS.keys()


def test_no_heading_begins_with_a_pronoun_or_names_a_vague_person() -> None:
    pages = [path for path in ROOT.glob("docs/**/*.md") if "adr" not in path.parts] + [ROOT / "README.md"]
    found = [
        f"{path.relative_to(ROOT)}: {heading.text}"
        for path in pages
        for heading in headings(path.read_text())
        if OPENINGS.match(heading.text) or VAGUE.search(heading.text)
    ]
    assert len(pages) > 90
    assert not found, "\n".join(found)
