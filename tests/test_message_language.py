"""Help texts and messages are in plain English, as far as a program can check: CONTRIBUTING.md has the rules."""

import argparse
import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from local_cloud.__main__ import parser as local_cloud_parser
from sagemaker_queue.cli import build_parser
from sagemaker_queue.cli.output import EXIT_CODES

ROOT = Path(__file__).parents[1]
FOLDERS = ("client", "api_contract", "job_queue", "local_cloud")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
OPENINGS = re.compile(r"(who|whoever|whose|what|whatever|those|of)\b", re.IGNORECASE)
DUMMY = re.compile(
    r"it (takes|(is|was) (not )?(best|certain|clear|enough|known|likely|possible|said|time))\b", re.IGNORECASE
)
VAGUE = re.compile(
    r"\b(nobody|somebody|anybody|whoever|whatever|anew|is told|are told|told otherwise)\b", re.IGNORECASE
)
ONLY = re.compile(r"\b(?<!\bthan )alone\b")  # "only" is the common word
PROSE = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")  # a literal with fewer words is no sentence

EXCEPTIONS = {"What to do": "the heading of a remedy"}  # the beginning of a text -> the reason


@cache
def texts() -> dict[str, str]:
    """Return each help text and each message with the place where it stands."""
    found: dict[str, str] = {}
    for place, text in (*_help_of(build_parser(), "smq"), *_help_of_local_cloud(), *_exit_codes(), *_literals()):
        found.setdefault(text, place)
    return found


def _help_of(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a command, its parameters and its subcommands."""
    for text in (command.help, command.short_help):
        yield path, text or ""
    for parameter in command.get_params(click.Context(command, info_name=path)):
        names = [*parameter.opts, parameter.name or ""]
        yield f"{path} {names[0]}", getattr(parameter, "help", None) or ""
    for name, other in getattr(command, "commands", {}).items():
        yield from _help_of(other, f"{path} {name}")


def _help_of_local_cloud() -> Iterator[tuple[str, str]]:
    pending = [local_cloud_parser()]
    while pending:
        current = pending.pop()
        for action in current._actions:
            yield f"local_cloud {action.dest}", action.help or ""
            if isinstance(action, argparse._SubParsersAction):
                pending += action.choices.values()


def _exit_codes() -> Iterator[tuple[str, str]]:
    yield from ((f"exit code {code}", meaning) for code, meaning in EXIT_CODES.items())


def _literals() -> Iterator[tuple[str, str]]:
    """Yield each string literal with several words; {} stands for a value in it."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            skipped = set(_ids(_no_messages(tree)))
            for node in ast.walk(tree):
                if id(node) in skipped:
                    continue
                text = _text_of(node)
                if text is not None and PROSE.search(text):
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text


def _no_messages(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield docstrings, which test_language.py checks, and the parts of f-strings, which are checked as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from (part for part in ast.walk(node) if part is not node)


def _ids(nodes: Iterable[ast.AST]) -> Iterator[int]:
    yield from map(id, nodes)


def _text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def faults(text: str) -> list[str]:
    """Return the rules that a text breaks."""
    sentences = [part.strip() for part in SENTENCE_END.split(text) if part.strip()]
    opened = [
        sentence
        for sentence in sentences
        if (OPENINGS.match(sentence) or DUMMY.match(sentence)) and not sentence.endswith("?")
    ]
    vague = [found[0] for found in (*VAGUE.finditer(text), *ONLY.finditer(text))]
    return [*(f"begins with {sentence.split()[0]!r}" for sentence in opened), *map(repr, vague)]


def _excused(text: str) -> bool:
    return any(text.startswith(beginning) for beginning in EXCEPTIONS)


def test_help_texts_and_messages_are_plain() -> None:
    wrong = [
        f"{place}: {', '.join(found)}: {' '.join(text.split())}"
        for text, place in texts().items()
        if (found := faults(text)) and not _excused(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_each_excused_text_exists_and_breaks_a_rule() -> None:
    for beginning in EXCEPTIONS:
        assert any(text.startswith(beginning) and faults(text) for text in texts()), beginning


def test_no_text_is_overlooked() -> None:
    known = " ".join(texts())
    for part in ("List the live jobs", "limits of SageMaker", "No queue is configured.", "Only an admin"):
        assert part.casefold() in known.casefold(), part


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What ended then or later", 1),
        ("It is not said how it looks. Of the jobs, one waits.", 2),
        ("What does the job wait for?", 0),
        ("Nobody has applied a policy, and the pages are served here alone.", 2),
        ("The job waits: it needs 2 instances, which is more than one GPU alone.", 1),
    ],
)
def test_the_rules_find_what_they_are_for(text: str, count: int) -> None:
    assert len(faults(text)) == count
