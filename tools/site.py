"""``python -m tools.site``: build the site of the documentation from docs/ and mkdocs.yml.

The pages are prepared for MkDocs, because its Markdown differs from GitHub's: headings get GitHub's anchors,
lists get blank lines and indentation, and alerts become admonitions. A link to a file outside of docs/ leads to a copy
of the file in the folder ``files``. The site also has every page as Markdown, and llms.txt, a list of the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import yaml

from tools.markdown import headings, prose_lines, with_links

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build/site"
MKDOCS = ROOT / ".venv-site/bin/mkdocs"
COPIES = "files"
"""The folder of the site with copies of files outside of docs/."""

_DOCS = "docs"
_PICTURES = (".svg", ".png")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".ipynb": "json", ".toml": "toml", ".sh": "bash"}
_ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)")
_ALERT = re.compile(r"^> \[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]$")
_SEARCH = {f"{COPIES}/": "exclude: true", "developers/adr/": "exclude: true", "developers/": "boost: 0.5"}
"""The search options of pages, by the beginning of their paths. Pages for users rank above pages for developers."""


def main() -> int:
    """Build the site, and return the exit status of MkDocs."""
    code = build(ROOT, SITE)
    if code == 0:
        print(f"The site is in {SITE.relative_to(ROOT)}: begin with index.html.")
    return code


def build(root: Path, site: Path) -> int:
    """Build the site of a checkout into the folder ``site``, and return the exit status of MkDocs.

    Any warning is an error, such as a warning about a link to a missing page or anchor.
    """
    source = site.with_name(f"{site.name}-source")
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    pages = Preparation(root).prepare(source / _DOCS)
    config = source / "mkdocs.yml"
    config.write_text(f"INHERIT: {root / 'mkdocs.yml'}\ndocs_dir: {_DOCS}\nsite_dir: {site}\n")
    command = [str(MKDOCS), "build", "--strict", "--config-file", str(config)]
    # Without the variable, the theme prints that it will be replaced by Zensical in 2027.
    if code := subprocess.run(command, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode:
        return code
    for path, page in pages.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(page)
    (site / "llms.txt").write_text(llms_txt(pages, navigation(root)))
    return 0


class Preparation:
    """The pages of a checkout, and the files to which their links lead."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pages: dict[str, str] = {}
        self._waiting = [path.relative_to(root).as_posix() for path in (root / _DOCS).rglob("*.md")]

    def prepare(self, target: Path) -> dict[str, str]:
        """Write the pages for MkDocs, and the other files, below ``target``; return the pages as plain Markdown."""
        shutil.copytree(self._root / _DOCS, target, ignore=shutil.ignore_patterns("*.md"))
        known: set[str] = set()
        while self._waiting:
            file = self._waiting.pop()
            if file not in known:
                known.add(file)
                self._prepare(file, target)
        return self._pages

    def _prepare(self, file: str, target: Path) -> None:
        source = self._root / file
        if source.suffix in _PICTURES:
            copy = target / _place(file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            return
        place = _page_of(file, source)
        page = self._relinked(_content(file, source), file, place)
        self._pages[place] = page
        shown = target / place
        shown.parent.mkdir(parents=True, exist_ok=True)
        weight = next((f"---\nsearch: {{{how}}}\n---\n\n" for at, how in _SEARCH.items() if place.startswith(at)), "")
        shown.write_text(weight + for_mkdocs(page, place))

    def _relinked(self, page: str, file: str, place: str) -> str:
        """Return the page with links to other places of the repository turned into links to their copies."""

        def renewed(target: str) -> str:
            parts = urlsplit(target)
            if parts.scheme or not parts.path:
                return target
            linked = os.path.normpath(PurePosixPath(file).parent / parts.path)
            path = self._root / linked
            if path.is_dir() and (path / "README.md").exists():
                linked, path = f"{linked}/README.md", path / "README.md"
            if linked.startswith(f"{_DOCS}/") and path.suffix != ".md" and path.is_file():
                new = linked.removeprefix(f"{_DOCS}/")
            elif not path.exists():
                return target
            else:
                self._waiting.append(linked)
                new = _place(linked) if path.suffix in _PICTURES else _page_of(linked, path)
            relative = os.path.relpath(new, PurePosixPath(place).parent)
            return f"{relative}#{parts.fragment}" if parts.fragment else relative

        return with_links(page, renewed)


def _place(file: str) -> str:
    """Return the place of a file of the repository in the site."""
    return file.removeprefix(f"{_DOCS}/") if file.startswith(f"{_DOCS}/") else f"{COPIES}/{file}"


def _page_of(file: str, source: Path) -> str:
    """Return the place of the page that shows a file or a folder."""
    return _place(file) if source.suffix == ".md" else f"{_place(file)}.md"


def _content(file: str, source: Path) -> str:
    """Return a file as a page: Markdown as it is, other files as code, a folder as a list."""
    if source.suffix == ".md":
        return source.read_text()
    if source.is_dir():
        found = sorted(path for path in source.iterdir() if not path.name.startswith((".", "_")))
        items = [f"- [{path.name}]({source.name}/{path.name})" for path in found]
        return "\n".join([f"# {file}", "", *items, ""])
    return f"# {file}\n\n````{_LANGUAGES.get(source.suffix, '')}\n{source.read_text().rstrip()}\n````\n"


# --- the differences between GitHub's Markdown and that of MkDocs


def for_mkdocs(page: str, place: str) -> str:
    """Return a page as MkDocs needs it, with the same result as on GitHub."""
    page = _with_links_in_html(page, place)
    for change in (_with_anchors, _with_admonitions, _with_lists):
        page = change(page)
    return page


def _with_anchors(page: str) -> str:
    anchors = iter(heading.anchor for heading in headings(page))
    lines = page.splitlines()
    for at, prose in enumerate(prose_lines(page)):
        if re.match(r"#{1,6} ", prose):
            lines[at] = f"{lines[at]} {{#{next(anchors)}}}"
    return "\n".join(lines) + "\n"


def _with_admonitions(page: str) -> str:
    lines: list[str] = []
    inside = False
    for line in page.splitlines():
        if alert := _ALERT.match(line):
            inside = True
            lines += [f"!!! {alert[1].lower().replace('important', 'info').replace('caution', 'danger')}", ""]
        elif inside and line.startswith(">"):
            lines.append(f"    {line[2:]}")
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def _with_lists(page: str) -> str:
    """Put a blank line before each list, and indent the content of items by four columns for each level."""
    return "\n".join(_list_lines(page)) + "\n"


def _list_lines(page: str) -> Iterator[str]:
    levels: list[tuple[int, int]] = []  # columns of the item and of its content, for each open list
    before = ""
    for line, prose in zip(page.splitlines(), prose_lines(page), strict=True):
        item = _ITEM.match(prose)
        was_in_list = bool(levels)
        indent = len(line) - len(line.lstrip())
        while levels and line.strip() and indent < levels[-1][1]:
            levels.pop()
        if item:
            if before.strip() and not was_in_list:
                yield ""
            yield f"{'    ' * len(levels)}{item[2]} {line[len(item[0]) :]}"
            levels.append((indent, len(item[0])))
        else:
            yield f"{'    ' * len(levels)}{line[levels[-1][1] :]}" if levels and line.strip() else line
        before = line


def _with_links_in_html(page: str, place: str) -> str:
    """Adapt relative addresses in HTML: MkDocs serves a page from a folder of its own, and leaves HTML unchanged."""
    if PurePosixPath(place).name in ("index.md", "README.md"):
        return page

    def renewed(found: re.Match[str]) -> str:
        return found[0] if urlsplit(found[2]).scheme else f'{found[1]}="../{found[2]}"'

    return re.sub(r"\b(src|srcset|href)=\"([^\"#]+)\"", renewed, page)


# --- llms.txt


def llms_txt(pages: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the list of all pages of the navigation, for language models, in the format of llmstxt.org."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for section in config["nav"]:
        ((heading, content),) = section.items()
        lines += ["", f"## {heading}", ""]
        for place in paths(content):
            title = headings(pages[place])[0].text
            lines.append(f"- [{title}]({place}): {_audience(pages[place])}")
    return "\n".join(lines) + "\n"


def navigation(root: Path = ROOT) -> dict[str, Any]:
    """Return the content of mkdocs.yml, whose ``nav`` has all pages in order."""
    config: dict[str, Any] = yaml.safe_load((root / "mkdocs.yml").read_text())
    return config


def paths(nav: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for content in nav.values():
            yield from paths(content)
    else:
        for one in nav:
            yield from paths(one)


def _audience(page: str) -> str:
    header = re.search(r"^> \*\*([\w-]+)\*\* for ([\w ]+)\.", page, re.MULTILINE)
    return f"{header[1].lower()} for {header[2]}" if header else "for developers"


if __name__ == "__main__":
    sys.exit(main())
