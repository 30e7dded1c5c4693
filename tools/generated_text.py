"""The generated part of a page of the documentation. The part above is written by hand."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_BEGIN = "<!-- the rest is made by `make docs` from the docstrings -->"


def with_sections(page: str, sections: Iterable[str]) -> str:
    """Return the page with these sections in place of its generated part."""
    by_hand = page.partition(_BEGIN)[0].rstrip()
    return f"{by_hand}\n\n{_BEGIN}\n\n" + "\n\n".join(sections) + "\n"


def update_page(renewed: Callable[[str], str]) -> int:
    """Update the page that the command line names. Return the exit status."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text()))
    return 0
