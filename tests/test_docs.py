"""The documentation is part of the product: what it names exists, and what exists is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_queue.cli import build_parser
from sagemaker_queue.tables import COLUMNS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("events/*.md")])


def read(path: str) -> str:
    return (ROOT / path).read_text()


def smq_commands() -> list[str]:
    for action in build_parser()._actions:
        if isinstance(action.choices, dict):
            return list(action.choices)
    raise AssertionError("smq has no commands")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_decision_is_listed() -> None:
    index = read("docs/adr/README.md")
    pages = {page.name for page in (ROOT / "docs/adr").glob("0*.md")}
    assert set(re.findall(r"\((\d{4}-[^)]*\.md)\)", index)) == pages


def test_the_readme_is_a_page() -> None:
    assert len(read("README.md").splitlines()) <= 100


def test_the_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    for page in PAGES:
        for named in re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", page.read_text(), re.MULTILINE):
            assert "".join(named) in targets, f"{page.name} names make {''.join(named)}"
    assert {"setup", "demo", "test", "lint", "build", "clean"} <= targets


def test_every_smq_command_is_documented_with_its_options() -> None:
    manual = read("docs/cli.md")
    commands = smq_commands()
    assert {"ls", "show", "cancel"} <= set(commands)
    for command in commands:
        assert f"## `smq {command}`" in manual
    for action in build_parser()._actions:
        if isinstance(action.choices, dict):
            for command, parser in action.choices.items():
                section = manual.partition("## Which queue")[2].partition("\n## ")[0]  # options of every command
                section += manual.partition(f"## `smq {command}`")[2].partition("\n## ")[0]
                for option in parser._actions:
                    for name in option.option_strings:
                        assert name in section or name in ("-h", "--help"), f"smq {command} {name}"


def test_every_smq_command_that_documents_name_exists() -> None:
    commands = smq_commands()
    for page in PAGES:
        for command in re.findall(r"(?:^|\$ |`)smq ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert command in commands, f"{page.name} names smq {command}"


def test_every_column_is_documented() -> None:
    manual = read("docs/cli.md")
    for column in COLUMNS:
        assert f"`{column}`" in manual, column


@pytest.mark.parametrize(
    "arguments", [["local_cloud", "--help"], ["sagemaker_queue", "--help"], ["job_queue.scheduler", "--help"]]
)
def test_help_helps(arguments: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "PATH": "/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr
    assert "usage:" in answer.stdout
