"""Update the generated part of a page of the documentation, which follows the part written by hand."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def with_sections(page: str, sections: Iterable[str], source: str = "the docstrings") -> str:
    """Return the page with these sections in place of its generated part.

    :param source: the source of the sections, as the comment above them names it.
    """
    begin = f"<!-- the rest is made by `make docs` from {source} -->"
    by_hand = page.partition(begin)[0].rstrip()
    return f"{by_hand}\n\n{begin}\n\n" + "\n\n".join(sections) + "\n"


def update_page(renewed: Callable[[str], str]) -> int:
    """Update the page that the command line names. Return the exit status."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text()))
    return 0
