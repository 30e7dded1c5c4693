"""``python -m tools.module_list docs/developers/modules.md``: update the list of modules from their docstrings.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import ast
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tools.generated_text import update_page, with_sections
from tools.markdown import table

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "api_contract",
    "job_queue",
    "client/sagemaker_queue",
    "client/sagemaker_queue_startup",
    "local_cloud",
    "tools",
)


def with_modules(page: str) -> str:
    """Return the page with the present list of modules."""
    return with_sections(page, _folders())


def _folders() -> Iterator[str]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"), key=_order)]
    for folder, modules in groupby(paths, key=lambda path: path.parent):
        lines = {path.stem: _first_line(path) for path in modules}
        about = lines.pop("__init__", "")
        modules_in_it = table(["module", "what it has"], [(f"`{name}`", line) for name, line in lines.items()])
        yield "\n".join([f"### `{folder.relative_to(ROOT)}/`", "", about, *(["", modules_in_it] if lines else [])])


def _order(path: Path) -> tuple[Path, str]:
    return path.parent, path.stem


def _first_line(path: Path) -> str:
    """Return the first paragraph of a module's docstring in one line, in Markdown."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(update_page(with_modules))
