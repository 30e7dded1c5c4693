"""The pages in docs/run: their commands have the options that they use, and their code is that of the examples."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagemaker_queue.cli import build_parser
from sagemaker_queue.cli.reference import commands
from tools.markdown import code_blocks

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/run").glob("*.md"))


def code(page: Path, language: str) -> Iterator[str]:
    """Yield the code blocks of a language."""
    yield from (text for name, text in code_blocks(page.read_text()) if name == language)


def typed(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command that a page shows, without the command that a job is to run."""
    for block in code(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" && | \| ", line):
                words = shlex.split(part.removeprefix("nohup "), comments=True)
                if words[:1] == ["smq"]:
                    end = words.index("--") if "--" in words else len(words)
                    yield words[1:end]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_options_of_each_command_exist(page: Path) -> None:
    known = {one.name: one.command for one in commands(build_parser())}
    for words in typed(page):
        words = words[2:] if words[0] == "-c" else words  # noqa: PLW2901  # the profile stands before the command
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in known)
        options = {
            option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[1:]:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in options, f"{page.name}: {' '.join(words)}"


def test_a_page_with_an_unknown_option_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nsmq submit --chekpoint -- python train.py\n```\n")
    with pytest.raises(AssertionError, match="chekpoint"):
        test_the_options_of_each_command_exist(page)


def test_the_snippets_about_checkpoints_are_lines_of_the_examples() -> None:
    page = ROOT / "docs/run/checkpoints.md"
    examples = [*ROOT.glob("examples/checkpoints/*.py"), *ROOT.glob("examples/saved_when_stopped/*.py")]
    lines = {line.strip() for path in examples for line in path.read_text().splitlines()}
    blocks = list(code(page, "python"))
    assert len(blocks) == 5
    for line in "".join(blocks).splitlines():
        assert line.strip() in lines, line


def test_the_example_of_several_instances_is_the_file() -> None:
    (shown, *_) = code(ROOT / "docs/run/several-instances.md", "python")
    _, _, program = (ROOT / "examples/several_instances/train.py").read_text().partition('"""\n\n')
    assert shown == program
